//! `--export openmetrics=ADDR`: metrics over HTTP, for Prometheus and whoever reads its text.
//!
//! ```text
//! GET /metrics    OpenMetrics or Prometheus' text form, by the Accept header
//! GET /healthz    200 while the run answers, 503 when it does not
//! ```
//!
//! On loopback unless another address is given; nothing is ever changed by a request. Few connections at a time, and no
//! patience with those that say nothing.

use super::{Asker, Reading};
use anyhow::{Context, Result};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, ALLOW, CONTENT_TYPE};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use report::sink::openmetrics::{Form, render};
use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// OpenTelemetry's port for Prometheus exporters.
const PORT: u16 = 9464;
/// Connections at a time; more wait.
const CONNECTIONS: usize = 16;
/// So long a connection may take for the head of its request, and the run for an answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// A listening socket.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    /// Where it listens.
    pub address: SocketAddr,
}

impl Server {
    /// Listens on `PORT`, `HOST` or `HOST:PORT`; without a host on loopback, without a port on 9464.
    ///
    /// # Errors
    /// The address is none, or taken.
    pub fn bind(address: &str) -> Result<Server> {
        let addresses = parse(address).with_context(|| format!("`{address}` is no address"))?;
        let listener = TcpListener::bind(&*addresses)
            .with_context(|| format!("openmetrics={address}: cannot listen there"))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        Ok(Server { listener, address })
    }

    /// Serves from a thread of its own, to the end of the process.
    pub fn start(self, asker: Asker) {
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            // Without a runtime there is nobody to tell: the socket closes, and a scrape says that it is refused.
            if let Ok(runtime) = runtime {
                runtime.block_on(self.serve(asker));
            }
        });
    }

    async fn serve(self, asker: Asker) {
        let Ok(listener) = tokio::net::TcpListener::from_std(self.listener) else { return };
        let room = Arc::new(Semaphore::new(CONNECTIONS));
        loop {
            let Ok(place) = Arc::clone(&room).acquire_owned().await else { return };
            let Ok((stream, _)) = listener.accept().await else {
                // Too many files, for the moment.
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            };
            let asker = asker.clone();
            tokio::spawn(async move {
                let answer = service_fn(|request| answer(request, &asker));
                let served = hyper::server::conn::http1::Builder::new()
                    .timer(TokioTimer::new())
                    .header_read_timeout(PATIENCE)
                    .keep_alive(false)
                    .serve_connection(TokioIo::new(stream), answer);
                // A client that takes nothing gives its place up.
                let _ = tokio::time::timeout(4 * PATIENCE, served).await;
                drop(place);
            });
        }
    }
}

fn parse(address: &str) -> Result<Vec<SocketAddr>> {
    let loopback = |port| vec![SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)];
    let port = address.strip_prefix(':').unwrap_or(address);
    match port.parse() {
        Ok(port) => return Ok(loopback(port)),
        Err(_) if port.is_empty() => return Ok(loopback(PORT)),
        Err(_) => {}
    }
    if let Ok(ip) = address.trim_matches(['[', ']']).parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(ip, PORT)]);
    }
    let with_port = if address.contains(':') { address.to_owned() } else { format!("{address}:{PORT}") };
    Ok(with_port.to_socket_addrs()?.collect())
}

type Answer = Response<Full<Bytes>>;

async fn answer(request: Request<Incoming>, asker: &Asker) -> Result<Answer, Infallible> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut refused = text(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n".into());
        refused.headers_mut().insert(ALLOW, hyper::header::HeaderValue::from_static("GET, HEAD"));
        return Ok(refused);
    }
    Ok(match request.uri().path() {
        "/metrics" => metrics(&request, read(asker).await),
        "/healthz" => match read(asker).await {
            Some(Reading { error: None, .. }) => text(StatusCode::OK, "ok\n".into()),
            Some(Reading { error: Some(error), .. }) => unavailable(&error),
            None => unavailable("the run does not answer"),
        },
        "/" => text(StatusCode::OK, "cudatrace: /metrics, /healthz\n".into()),
        _ => text(StatusCode::NOT_FOUND, "there are /metrics and /healthz\n".into()),
    })
}

async fn read(asker: &Asker) -> Option<Reading> {
    tokio::time::timeout(PATIENCE, asker.ask()).await.ok()?
}

fn metrics(request: &Request<Incoming>, reading: Option<Reading>) -> Answer {
    let reading = match reading {
        None => return unavailable("the run does not answer"),
        Some(Reading { error: Some(error), .. }) => return unavailable(&error),
        Some(reading) => reading,
    };
    let accepted: Vec<&str> =
        request.headers().get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok()).collect();
    let form = Form::accepted(&accepted.join(","));
    let mut answer = Response::new(Full::new(Bytes::from(render(&reading.families, form))));
    let content = hyper::header::HeaderValue::from_static(form.content_type());
    answer.headers_mut().insert(CONTENT_TYPE, content);
    answer
}

fn unavailable(why: &str) -> Answer {
    text(StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n"))
}

fn text(status: StatusCode, body: String) -> Answer {
    let mut answer = Response::new(Full::new(Bytes::from(body)));
    *answer.status_mut() = status;
    let plain = hyper::header::HeaderValue::from_static("text/plain; charset=utf-8");
    answer.headers_mut().insert(CONTENT_TYPE, plain);
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_else_is_listened_to_unless_asked_for() {
        let first = |address: &str| parse(address).unwrap()[0].to_string();
        assert_eq!(first(""), "127.0.0.1:9464");
        assert_eq!(first("9000"), "127.0.0.1:9000");
        assert_eq!(first(":9000"), "127.0.0.1:9000");
        assert_eq!(first("0.0.0.0"), "0.0.0.0:9464");
        assert_eq!(first("0.0.0.0:1"), "0.0.0.0:1");
        assert_eq!(first("[::]:1"), "[::]:1");
        assert_eq!(first("::1"), "[::1]:9464");
        assert!(parse("no.such.host.invalid:99999").is_err());
    }
}
