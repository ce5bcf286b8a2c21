//! `--export openmetrics=ADDR`: metrics over HTTP, for Prometheus and other readers of its text format.
//!
//! ```text
//! GET /metrics    OpenMetrics or Prometheus' text form, by the Accept header
//! GET /healthz    200 if everything is traced, otherwise 503 and the reason
//! ```
//!
//! The default address is loopback, where only requests for this machine's name are answered: a web page whose name was made to
//! resolve to loopback (DNS rebinding) reads nothing. Requests change nothing. Idle connections are closed in favour of new ones, so
//! that they delay no scrape.

use super::own;
use super::requests::{MetricsSnapshot, SnapshotClient};
use super::scrapes::{ScrapeClient, Scrapes};
use anyhow::{Context, Result, anyhow, bail};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{
    ACCEPT, ACCEPT_ENCODING, ALLOW, CONTENT_ENCODING, CONTENT_TYPE, HOST, HeaderMap, HeaderValue, USER_AGENT,
    VARY,
};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use report::metrics::openmetrics::{Form, render};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, ToSocketAddrs};
use std::rc::Rc;
use std::time::Duration;
use tokio::task::AbortHandle;

/// OpenTelemetry's default port for Prometheus exporters.
const PORT: u16 = 9464;
/// Largest number of connections; one more replaces another.
const CONNECTIONS: usize = 64;
/// Timeout for the head of a request, and for a response of the run.
const PATIENCE: Duration = Duration::from_secs(5);
/// Header that Prometheus and compatible scrapers send.
const SCRAPE: &str = "x-prometheus-scrape-timeout-seconds";

/// A listening socket.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    pub address: SocketAddr,
}

impl Server {
    /// Listens on `PORT`, `HOST` or `HOST:PORT`; by default on loopback and port 9464.
    pub fn bind(address: &str) -> Result<Server> {
        let addresses = addresses(address)?;
        let listener = TcpListener::bind(&*addresses).map_err(|error| match error.kind() {
            io::ErrorKind::AddrNotAvailable => anyhow!(
                "openmetrics={address}: this machine does not have that address: expected PORT, for this machine alone, or 0.0.0.0:PORT"
            ),
            _ => anyhow!("openmetrics={address}: cannot listen there: {error}"),
        })?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        Ok(Server { listener, address })
    }

    /// Serves from a separate thread until the process ends.
    pub fn start(self, client: SnapshotClient) {
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            // Without a runtime the socket closes, so scrapes are refused.
            if let Ok(runtime) = runtime {
                tokio::task::LocalSet::new().block_on(&runtime, self.serve(client));
            }
        });
    }

    async fn serve(self, client: SnapshotClient) {
        let local = self.address.ip().is_loopback();
        let Ok(listener) = tokio::net::TcpListener::from_std(self.listener) else { return };
        let service = Rc::new(Service { client, local, scrapes: RefCell::default() });
        let mut connections = Connections::default();
        loop {
            let Ok((stream, peer)) = listener.accept().await else {
                // The limit of open files was reached; the server waits.
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            };
            let (service, has_request) = (Rc::clone(&service), Rc::new(Cell::new(false)));
            let set_request = Rc::clone(&has_request);
            let task = tokio::task::spawn_local(async move {
                let answer = service_fn(|request| {
                    set_request.set(true);
                    service.answer(request, peer.ip())
                });
                let served = hyper::server::conn::http1::Builder::new()
                    .timer(TokioTimer::new())
                    .header_read_timeout(PATIENCE)
                    .keep_alive(false)
                    .serve_connection(TokioIo::new(stream), answer);
                // A client that does not read is disconnected.
                let _ = tokio::time::timeout(4 * PATIENCE, served).await;
            });
            connections.add(task.abort_handle(), has_request);
        }
    }
}

/// Open connections, oldest first, and whether each has sent a request.
#[derive(Default)]
struct Connections(VecDeque<(AbortHandle, Rc<Cell<bool>>)>);

impl Connections {
    /// Makes room for another connection: closes the oldest one without a request, otherwise the oldest.
    fn add(&mut self, task: AbortHandle, has_request: Rc<Cell<bool>>) {
        self.0.retain(|(task, _)| !task.is_finished());
        if self.0.len() >= CONNECTIONS {
            let silent = self.0.iter().position(|(_, has_request)| !has_request.get());
            if let Some((oldest, _)) = self.0.remove(silent.unwrap_or(0)) {
                oldest.abort();
            }
        }
        self.0.push_back((task, has_request));
    }
}

/// The addresses that `PORT`, `HOST` or `HOST:PORT` means.
pub fn addresses(address: &str) -> Result<Vec<SocketAddr>> {
    parse(address).with_context(|| format!("`{address}` is no address: expected PORT, HOST or HOST:PORT"))
}

fn parse(address: &str) -> Result<Vec<SocketAddr>> {
    let loopback = |port| vec![SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)];
    let port = address.strip_prefix(':').unwrap_or(address);
    match port.parse() {
        Ok(port) => return Ok(loopback(port)),
        Err(_) if port.is_empty() => return Ok(loopback(PORT)),
        Err(_) if port.bytes().all(|digit| digit.is_ascii_digit()) => {
            bail!("port `{port}` is too large: 65535 at most")
        }
        Err(_) => {}
    }
    if let Ok(ip) = address.trim_matches(['[', ']']).parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(ip, PORT)]);
    }
    let with_port = if address.contains(':') { address.to_owned() } else { format!("{address}:{PORT}") };
    Ok(with_port.to_socket_addrs()?.collect())
}

type Answer = Response<Full<Bytes>>;

/// State for handling requests.
struct Service {
    client: SnapshotClient,
    /// True if it listens on loopback.
    local: bool,
    scrapes: RefCell<Scrapes>,
}

impl Service {
    async fn answer(&self, request: Request<Incoming>, peer: IpAddr) -> Result<Answer, Infallible> {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let mut refused = text(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n".into());
            refused.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return Ok(refused);
        }
        let host = request.headers().get(HOST).and_then(|host| host.to_str().ok());
        if self.local && !host.is_none_or(is_local) {
            let why = "this address serves only this machine: request localhost or 127.0.0.1\n";
            return Ok(text(StatusCode::MISDIRECTED_REQUEST, why.into()));
        }
        Ok(match request.uri().path() {
            "/metrics" => self.metrics(request.headers(), peer, self.read().await),
            "/healthz" => match self.read().await {
                Some(
                    MetricsSnapshot { error: Some(why), .. } | MetricsSnapshot { unhealthy: Some(why), .. },
                ) => unavailable(&why),
                Some(_) => text(StatusCode::OK, "ok\n".into()),
                None => unavailable("the run does not respond"),
            },
            "/" => text(StatusCode::OK, "cudatrace: /metrics, /healthz\n".into()),
            _ => text(StatusCode::NOT_FOUND, "the paths are /metrics and /healthz\n".into()),
        })
    }

    async fn read(&self) -> Option<MetricsSnapshot> {
        tokio::time::timeout(PATIENCE, self.client.request()).await.ok()?
    }

    fn metrics(&self, headers: &HeaderMap, address: IpAddr, reading: Option<MetricsSnapshot>) -> Answer {
        let reading = match reading {
            None => return unavailable("the run does not respond"),
            Some(MetricsSnapshot { error: Some(error), .. }) => return unavailable(&error),
            Some(reading) => reading,
        };
        let reader = ScrapeClient { address, agent: listed(headers, USER_AGENT) };
        let mut families = self.scrapes.borrow_mut().shown(reader, headers.contains_key(SCRAPE), &reading);
        families.extend(own::families());
        let form = Form::accepted(&listed(headers, ACCEPT));
        let body = render(&families, form).into_bytes();
        let is_packed = accepts_gzip(&listed(headers, ACCEPT_ENCODING));
        let mut answer = Response::new(Full::new(Bytes::from(if is_packed { packed(&body) } else { body })));
        let headers = answer.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(form.content_type()));
        headers.insert(VARY, HeaderValue::from_static("accept, accept-encoding"));
        if is_packed {
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        answer
    }
}

/// All values of a header as one list.
fn listed(headers: &HeaderMap, name: hyper::header::HeaderName) -> String {
    let values: Vec<&str> = headers.get_all(name).iter().filter_map(|value| value.to_str().ok()).collect();
    values.join(",")
}

fn accepts_gzip(list: &str) -> bool {
    let mut codings = list.split(',').map(|coding| coding.split(';').map(str::trim));
    codings.any(|mut coding| {
        coding.next() == Some("gzip")
            && !coding.any(|weight| matches!(weight, "q=0" | "q=0.0" | "q=0.00" | "q=0.000"))
    })
}

fn packed(body: &[u8]) -> Vec<u8> {
    let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    // Writing to memory cannot fail.
    let _ = out.write_all(body);
    out.finish().unwrap_or_default()
}

/// Whether a Host header names the loopback of this machine.
fn is_local(host: &str) -> bool {
    let is_port = |text: &str| text.parse::<u16>().is_ok();
    let name = match host.rsplit_once(':') {
        Some((name, port)) if is_port(port) => name,
        _ => host,
    };
    let address = name.trim_matches(['[', ']']).parse::<IpAddr>();
    name.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
}

fn unavailable(why: &str) -> Answer {
    text(StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n"))
}

fn text(status: StatusCode, body: String) -> Answer {
    let mut answer = Response::new(Full::new(Bytes::from(body)));
    *answer.status_mut() = status;
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    answer.headers_mut().insert(CONTENT_TYPE, plain);
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_address_is_loopback() {
        let first = |address: &str| parse(address).unwrap()[0].to_string();
        assert_eq!(first(""), "127.0.0.1:9464");
        assert_eq!(first("9000"), "127.0.0.1:9000");
        assert_eq!(first(":9000"), "127.0.0.1:9000");
        assert_eq!(first("0.0.0.0"), "0.0.0.0:9464");
        assert_eq!(first("0.0.0.0:1"), "0.0.0.0:1");
        assert_eq!(first("[::]:1"), "[::]:1");
        assert_eq!(first("::1"), "[::1]:9464");
        assert!(parse("no.such.host.invalid:99999").is_err());
        assert_eq!(parse("99999").unwrap_err().to_string(), "port `99999` is too large: 65535 at most");
    }

    #[test]
    fn names_of_this_machine_are_local() {
        for host in ["localhost", "LOCALHOST:9464", "127.0.0.1:9464", "127.1.2.3", "[::1]:9464", "[::1]"] {
            assert!(is_local(host), "{host}");
        }
        for host in
            ["evil.example:9464", "localhost.evil.example", "10.0.0.1", "", "127.0.0.1.evil.example:9464"]
        {
            assert!(!is_local(host), "{host}");
        }
    }

    #[test]
    fn gzip_is_for_clients_that_take_it() {
        for list in ["gzip", "deflate, gzip;q=0.5", "br,gzip"] {
            assert!(accepts_gzip(list), "{list}");
        }
        for list in ["", "identity", "gzip;q=0, br", "gzip; q=0", "x-gzip"] {
            assert!(!accepts_gzip(list), "{list}");
        }
    }
}
