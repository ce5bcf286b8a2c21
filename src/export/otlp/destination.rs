//! The destination of telemetry, from `otlp=DEST` and the environment variables of OpenTelemetry's exporters.
//!
//! ```text
//! otlp=http://host:4318         a base: /v1/traces and /v1/metrics are appended, unless it ends in the one of a signal
//! otlp=grpc://host:4317         gRPC; so is http://host:4317, OpenTelemetry's port for it
//! otlp=https://host:4318        either with TLS; grpcs://host:4317
//! otlp=file:trace.json          a request a line; so is what looks like a path, `trace.json`, `./trace`
//! otlp                          OTEL_EXPORTER_OTLP_ENDPOINT, otherwise http://localhost:4318
//! ```
//!
//! Facts: "OpenTelemetry Protocol Exporter" of its specification. The endpoint of a single signal is used unchanged.

use super::tls;
use anyhow::{Context, Result, anyhow, bail};
use hyper::Uri;
use hyper::header::{HeaderName, HeaderValue};
use report::export::Data;
use report::export::otlp::{Attributes, Encoding, Signal};
use std::sync::Arc;
use std::time::Duration;

/// Transport of requests.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// gRPC with protobuf.
    Grpc,
    HttpProtobuf,
    HttpJson,
}

impl Protocol {
    /// Encoding of requests.
    pub fn encoding(self) -> Encoding {
        match self {
            Protocol::Grpc | Protocol::HttpProtobuf => Encoding::Protobuf,
            Protocol::HttpJson => Encoding::Json,
        }
    }

    /// ALPN protocol of the TLS handshake.
    fn over_tls(self) -> &'static str {
        match self {
            Protocol::Grpc => "h2",
            Protocol::HttpProtobuf | Protocol::HttpJson => "http/1.1",
        }
    }

    fn named(name: &str) -> Result<Protocol> {
        match name {
            "grpc" => Ok(Protocol::Grpc),
            "http/protobuf" => Ok(Protocol::HttpProtobuf),
            "http/json" => Ok(Protocol::HttpJson),
            _ => bail!("no protocol `{name}`: expected grpc, http/protobuf or http/json"),
        }
    }
}

/// Destination of the requests for one signal.
#[derive(Clone, Debug)]
pub struct Target {
    /// Scheme, host, port and path.
    pub uri: Uri,
    /// Transport.
    pub protocol: Protocol,
    /// True if requests are compressed with gzip.
    pub gzip: bool,
    /// TLS configuration, if the transport uses TLS.
    pub tls: Option<Arc<rustls::ClientConfig>>,
    /// Headers of each request.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// Timeout of each request, including its response.
    pub timeout: Duration,
}

#[derive(Clone, Debug)]
pub enum OtlpDestination {
    /// A receiver.
    Server {
        /// Target for spans.
        traces: Box<Target>,
        metrics: Box<Target>,
    },
    /// A file of JSON lines.
    File,
}

/// Reads an environment variable; an empty one counts as unset.
pub type Variables<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Reads a variable of the process's own environment.
pub fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

impl OtlpDestination {
    pub fn new(dest: &str, variables: Variables<'_>) -> Result<OtlpDestination> {
        if dest == "file:" {
            bail!("otlp=file: expects a path, `otlp=file:trace.json`");
        }
        if is_file(dest) {
            return Ok(OtlpDestination::File);
        }
        let target = |signal| target(dest, signal, variables).map(Box::new);
        Ok(OtlpDestination::Server { traces: target(Signal::Traces)?, metrics: target(Signal::Metrics)? })
    }
}

/// Whether the destination is `file:FILE`, or looks like a path and not like a host.
fn is_file(dest: &str) -> bool {
    let ends = [".json", ".jsonl", ".gz"];
    dest.starts_with("file:")
        || dest.starts_with(['/', '.'])
        || !dest.contains("://") && ends.iter().any(|end| dest.ends_with(end))
}

/// Name of a signal in variables.
fn word(signal: Signal) -> &'static str {
    match signal {
        Signal::Traces => "TRACES",
        Signal::Metrics => "METRICS",
    }
}

/// The variable of a signal, otherwise the one for all signals.
fn variable(variables: Variables<'_>, signal: Signal, name: &str) -> Option<String> {
    variables(&format!("OTEL_EXPORTER_OTLP_{}_{name}", word(signal)))
        .or_else(|| variables(&format!("OTEL_EXPORTER_OTLP_{name}")))
}

/// The address as written, and whether it is specific to a signal. The command line takes precedence over the
/// environment.
fn address(
    dest: &str,
    signal: Signal,
    protocol: Option<Protocol>,
    variables: Variables<'_>,
) -> (String, bool) {
    if !dest.is_empty() {
        return (dest.to_owned(), false);
    }
    if let Some(own) = variables(&format!("OTEL_EXPORTER_OTLP_{}_ENDPOINT", word(signal))) {
        return (own, true);
    }
    let usual = match protocol {
        Some(Protocol::Grpc) => "http://localhost:4317",
        _ => "http://localhost:4318",
    };
    (variables("OTEL_EXPORTER_OTLP_ENDPOINT").unwrap_or_else(|| usual.into()), false)
}

fn target(dest: &str, signal: Signal, variables: Variables<'_>) -> Result<Target> {
    let protocol = variable(variables, signal, "PROTOCOL").map(|name| Protocol::named(&name)).transpose()?;
    let (written, is_whole) = address(dest, signal, protocol, variables);
    let (uri, by_uri) = parse(&written)?;
    let protocol = by_uri.or(protocol).unwrap_or(match uri.port_u16() {
        Some(4317) => Protocol::Grpc,
        _ => Protocol::HttpProtobuf,
    });
    let uri = match protocol {
        Protocol::Grpc => with_path(&uri, signal.grpc_path())?,
        _ if is_whole => uri,
        _ => with_path(&uri, &format!("{}{}", base(uri.path()), signal.http_path()))?,
    };
    let headers = variable(variables, signal, "HEADERS").map_or(Ok(Vec::new()), |text| headers(&text))?;
    let timeout = variable(variables, signal, "TIMEOUT").map_or(Ok(10_000), |ms| {
        ms.parse().map_err(|_| anyhow!("OTEL_EXPORTER_OTLP_TIMEOUT={ms}: expected milliseconds"))
    })?;
    let gzip = match variable(variables, signal, "COMPRESSION").as_deref() {
        None | Some("none") => false,
        Some("gzip") => true,
        Some(other) => bail!("OTEL_EXPORTER_OTLP_COMPRESSION={other}: expected gzip or none"),
    };
    let files = tls::CertificateFiles {
        trusted: variable(variables, signal, "CERTIFICATE"),
        own: variable(variables, signal, "CLIENT_CERTIFICATE"),
        key: variable(variables, signal, "CLIENT_KEY"),
    };
    let tls = (uri.scheme_str() == Some("https"))
        .then(|| tls::config(&files, protocol.over_tls()))
        .transpose()
        .with_context(|| format!("`{written}`"))?;
    Ok(Target { uri, protocol, gzip, tls, headers, timeout: Duration::from_millis(timeout) })
}

/// Parses an address; includes the protocol if the scheme specifies it.
fn parse(written: &str) -> Result<(Uri, Option<Protocol>)> {
    let (protocol, scheme, rest) = match written.split_once("://") {
        Some(("grpc", rest)) => (Some(Protocol::Grpc), "http", rest),
        Some(("grpcs", rest)) => (Some(Protocol::Grpc), "https", rest),
        Some((scheme @ ("http" | "https"), rest)) => (None, scheme, rest),
        Some((scheme, _)) => {
            bail!("`{written}`: unknown scheme `{scheme}`; expected http, https, grpc, grpcs or file")
        }
        // Without a port, a word is more likely a mistake than a host with a receiver at port 80.
        None if !written.contains(':') => {
            bail!(
                "`{written}` is no address: expected http://HOST:4318, grpc://HOST:4317, HOST:PORT or file:FILE"
            )
        }
        None => (None, "http", written),
    };
    let no_host = || anyhow!("`{written}` has no host: write `http://HOST:4318`");
    if rest.is_empty() || rest.starts_with(['/', ':']) {
        return Err(no_host());
    }
    let uri: Uri = format!("{scheme}://{rest}").parse().map_err(|error| anyhow!("`{written}`: {error}"))?;
    if uri.host().is_none_or(str::is_empty) {
        return Err(no_host());
    }
    // Behind the user, and behind the brackets of an address with colons.
    let port =
        uri.authority().and_then(|authority| authority.as_str().rsplit(['@', ']']).next()?.split_once(':'));
    if let Some((_, port)) = port.filter(|(_, port)| !port.is_empty() && port.parse::<u16>().is_err()) {
        bail!("`{}`: `{port}` is no port: expected a number up to 65535", without_credentials(written));
    }
    Ok((uri, protocol))
}

/// Removes the path of a signal, which users often append to the base.
fn base(path: &str) -> &str {
    let path = path.trim_end_matches('/');
    let signals = [Signal::Traces, Signal::Metrics];
    signals.iter().find_map(|signal| path.strip_suffix(signal.http_path())).unwrap_or(path)
}

fn with_path(uri: &Uri, path: &str) -> Result<Uri> {
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(path.parse()?);
    Ok(Uri::from_parts(parts)?)
}

/// Parses `a=1,b=%20x`: pairs with percent-encoded values.
fn pairs(text: &str) -> impl Iterator<Item = (String, String)> + '_ {
    let pairs = text.split(',').filter_map(|pair| pair.split_once('='));
    pairs.map(|(key, value)| (key.trim().to_owned(), decoded(value.trim())))
}

fn decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = |byte: Option<&u8>| byte.and_then(|byte| (*byte as char).to_digit(16));
        match (bytes[at], hex(bytes.get(at + 1)), hex(bytes.get(at + 2))) {
            (b'%', Some(high), Some(low)) => {
                out.push((high * 16 + low) as u8);
                at += 3;
            }
            (byte, ..) => {
                out.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

fn headers(text: &str) -> Result<Vec<(HeaderName, HeaderValue)>> {
    if let Some(odd) = text.split(',').find(|pair| !pair.contains('=') && !pair.trim().is_empty()) {
        bail!("OTEL_EXPORTER_OTLP_HEADERS: `{}` is no `name=value`", odd.trim());
    }
    let header = |(key, value): (String, String)| {
        let bad = || anyhow!("OTEL_EXPORTER_OTLP_HEADERS: `{key}` is no header that can be sent");
        let name = key.to_ascii_lowercase().parse().map_err(|_| bad())?;
        Ok((name, HeaderValue::from_str(&value).map_err(|_| bad())?))
    };
    pairs(text).map(header).collect()
}

/// Attributes of the run, from `OTEL_RESOURCE_ATTRIBUTES` and `OTEL_SERVICE_NAME`.
pub fn resource(variables: Variables<'_>) -> Attributes {
    let given = variables("OTEL_RESOURCE_ATTRIBUTES").unwrap_or_default();
    let text = |text: String| Data::Text(text.into());
    let mut attributes: Attributes = pairs(&given).map(|(key, value)| (key, text(value))).collect();
    if let Some(name) = variables("OTEL_SERVICE_NAME") {
        attributes.retain(|(key, _)| key != "service.name");
        attributes.push(("service.name".into(), text(name)));
    }
    attributes
}

/// A destination without user and password in its URL: `otlp=http://user:secret@host` becomes `otlp=http://host`.
pub fn without_credentials(what: &str) -> String {
    let Some((scheme, rest)) = what.split_once("://") else { return what.to_owned() };
    let authority = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    match rest[..authority].rfind('@') {
        Some(at) => format!("{scheme}://{}", &rest[at + 1..]),
        None => what.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(dest: &str, set: &[(&str, &str)]) -> Result<(Target, Target)> {
        let variables =
            |name: &str| set.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        match OtlpDestination::new(dest, &variables)? {
            OtlpDestination::Server { traces, metrics } => Ok((*traces, *metrics)),
            OtlpDestination::File => bail!("a file"),
        }
    }

    fn uris(dest: &str, set: &[(&str, &str)]) -> [String; 2] {
        let (traces, metrics) = server(dest, set).unwrap();
        [traces.uri.to_string(), metrics.uri.to_string()]
    }

    #[test]
    fn a_base_gets_the_paths_of_the_signals() {
        let http = ["http://localhost:4318/v1/traces", "http://localhost:4318/v1/metrics"];
        assert_eq!(uris("", &[]), http);
        assert_eq!(uris("http://localhost:4318/", &[]), http);
        assert_eq!(uris("localhost:4318", &[]), http);
        assert_eq!(uris("http://c/otel", &[])[0], "http://c/otel/v1/traces");
        assert_eq!(uris("http://localhost:4318/v1/traces", &[]), http, "a base that has the path already");
        let own = [
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://t:1/x"),
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://b"),
        ];
        assert_eq!(uris("", &own), ["http://t:1/x", "http://b/v1/metrics"]);
        assert_eq!(uris("http://c:1", &own)[0], "http://c:1/v1/traces", "the command line wins");
    }

    #[test]
    fn the_port_selects_grpc_by_default() {
        let protocol = |dest: &str, set: &[(&str, &str)]| server(dest, set).unwrap().0.protocol;
        assert_eq!(protocol("http://c:4317", &[]), Protocol::Grpc);
        assert_eq!(protocol("grpc://c:9", &[]), Protocol::Grpc);
        assert_eq!(protocol("http://c:4318", &[]), Protocol::HttpProtobuf);
        let json = [("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json")];
        assert_eq!(protocol("http://c:4317", &json), Protocol::HttpJson);
        let grpc = [("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")];
        assert_eq!(uris("", &grpc)[1], format!("http://localhost:4317{}", Signal::Metrics.grpc_path()));
        assert!(server("", &[("OTEL_EXPORTER_OTLP_PROTOCOL", "carrier/pigeon")]).is_err());
    }

    #[test]
    fn invalid_destinations_are_refused() {
        for (dest, word) in
            [("ftp://c", "scheme"), ("http://", "`http://`"), ("file:", "path"), ("nosuch", "no address")]
        {
            let error = OtlpDestination::new(dest, &|_| None).unwrap_err().to_string();
            assert!(error.contains(word), "{dest}: {error}");
        }
        assert!(matches!(OtlpDestination::new("file:x", &|_| None), Ok(OtlpDestination::File)));
    }

    #[test]
    fn headers_timeout_and_resource_come_from_the_environment() {
        let set = [
            ("OTEL_EXPORTER_OTLP_HEADERS", "Authorization=Basic%20x%3D, b=2"),
            ("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "250"),
        ];
        let (traces, metrics) = server("", &set).unwrap();
        assert_eq!(traces.headers[0].0, "authorization");
        assert_eq!((traces.headers[0].1.to_str().unwrap(), traces.headers.len()), ("Basic x=", 2));
        assert_eq!((traces.timeout.as_millis(), metrics.timeout.as_millis()), (250, 10_000));
        let odd = server("", &[("OTEL_EXPORTER_OTLP_HEADERS", "authorization: Basic x")]).unwrap_err();
        assert!(odd.to_string().contains("`authorization: Basic x` is no `name=value`"));
        let compression = |name| server("", &[("OTEL_EXPORTER_OTLP_METRICS_COMPRESSION", name)]);
        let (traces, metrics) = compression("gzip").unwrap();
        assert_eq!((traces.gzip, metrics.gzip), (false, true));
        assert!(!compression("none").unwrap().1.gzip);
        assert!(compression("zip").unwrap_err().to_string().contains("expected gzip or none"));
        let set = |name: &str| match name {
            "OTEL_RESOURCE_ATTRIBUTES" => Some("service.name=a,deployment.environment.name=x%2Cy".into()),
            "OTEL_SERVICE_NAME" => Some("b".to_owned()),
            _ => None,
        };
        let expected = [("deployment.environment.name", "x,y"), ("service.name", "b")];
        assert_eq!(resource(&set), expected.map(|(key, value)| (key.to_owned(), Data::Text(value.into()))));
    }

    #[test]
    fn no_password_is_shown() {
        assert_eq!(
            without_credentials("otlp=http://user:s3c@ret@host:4318/v1@2"),
            "otlp=http://host:4318/v1@2"
        );
        for plain in ["jsonl=/tmp/a@b", "otlp=grpc://host:4317", "otlp=http://host/x@y"] {
            assert_eq!(without_credentials(plain), plain);
        }
    }
}
