//! TLS to a receiver. The receiver is verified by the certificates that this machine trusts, or by those of a file. If it requires
//! client authentication, our own certificate is sent.

use anyhow::{Context, Result, bail};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject};
use rustls::{ClientConfig, RootCertStore};
use std::io;
use std::path::Path;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, client::TlsStream};

/// Certificate bundles of distributions.
const BUNDLES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Files named in the environment.
#[derive(Debug, Default)]
pub struct CertificateFiles {
    /// Certificates of receivers; by default those that this machine trusts.
    pub trusted: Option<String>,
    /// Client certificate.
    pub own: Option<String>,
    /// Private key of the client certificate.
    pub key: Option<String>,
}

/// TLS configuration for the protocol `h2` or `http/1.1`.
pub fn config(files: &CertificateFiles, protocol: &str) -> Result<Arc<ClientConfig>> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let versions = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let trusting = versions.with_root_certificates(trusted(files.trusted.as_deref())?);
    let mut config = match (&files.own, &files.key) {
        (Some(own), Some(key)) => {
            let key = PrivateKeyDer::from_pem_file(key).with_context(|| format!("key of `{key}`"))?;
            trusting.with_client_auth_cert(certificates(own)?, key)?
        }
        (None, None) => trusting.with_no_client_auth(),
        _ => bail!("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE and OTEL_EXPORTER_OTLP_CLIENT_KEY go together"),
    };
    config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
    Ok(Arc::new(config))
}

fn certificates(file: &str) -> Result<Vec<CertificateDer<'static>>> {
    let certificates: Result<Vec<_>, _> =
        CertificateDer::pem_file_iter(file).and_then(|certificates| certificates.collect());
    certificates.with_context(|| format!("certificates of `{file}`"))
}

fn trusted(file: Option<&str>) -> Result<RootCertStore> {
    let Some(file) = file.or_else(|| BUNDLES.into_iter().find(|path| Path::new(path).exists())) else {
        bail!(
            "this machine has no certificates in {}; name a file in OTEL_EXPORTER_OTLP_CERTIFICATE",
            BUNDLES[0]
        );
    };
    let certificates = certificates(file)?;
    let mut store = RootCertStore::empty();
    // Bundles contain obsolete certificates that cannot be parsed.
    let (usable, _) = store.add_parsable_certificates(certificates);
    if usable == 0 {
        bail!("`{file}` holds no certificate");
    }
    Ok(store)
}

/// Performs the handshake with a host.
pub async fn connect(
    config: &Arc<ClientConfig>,
    host: &str,
    stream: TcpStream,
) -> io::Result<TlsStream<TcpStream>> {
    let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
    TlsConnector::from(config.clone()).connect(name, stream).await
}
