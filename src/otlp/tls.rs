//! TLS to a receiver. Who it is is proved by the certificates that this machine trusts, or by those of a file.

use anyhow::{Context, Result, bail};
use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject};
use rustls::{ClientConfig, RootCertStore};
use std::io;
use std::path::Path;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, client::TlsStream};

/// Where distributions keep what they trust.
const BUNDLES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// How to connect: with the certificates of `file`, or of this machine, for the protocol `h2` or `http/1.1`.
///
/// # Errors
/// There are no certificates.
pub fn config(file: Option<&str>, protocol: &str) -> Result<Arc<ClientConfig>> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let versions = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let mut config = versions.with_root_certificates(trusted(file)?).with_no_client_auth();
    config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
    Ok(Arc::new(config))
}

fn trusted(file: Option<&str>) -> Result<RootCertStore> {
    let Some(file) = file.or_else(|| BUNDLES.into_iter().find(|path| Path::new(path).exists())) else {
        bail!(
            "this machine has no certificates in {}; name a file in OTEL_EXPORTER_OTLP_CERTIFICATE",
            BUNDLES[0]
        );
    };
    let certificates: Result<Vec<_>, _> =
        CertificateDer::pem_file_iter(file).and_then(|certificates| certificates.collect());
    let certificates = certificates.with_context(|| format!("certificates of `{file}`"))?;
    let mut store = RootCertStore::empty();
    // Bundles hold old ones that nobody can read any more.
    let (usable, _) = store.add_parsable_certificates(certificates);
    if usable == 0 {
        bail!("`{file}` holds no certificate");
    }
    Ok(store)
}

/// Shakes hands with a host.
///
/// # Errors
/// It is not who it should be, or speaks no TLS.
pub async fn connect(
    config: &Arc<ClientConfig>,
    host: &str,
    stream: TcpStream,
) -> io::Result<TlsStream<TcpStream>> {
    let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
    TlsConnector::from(config.clone()).connect(name, stream).await
}
