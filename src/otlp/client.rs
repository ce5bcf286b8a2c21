//! Sends requests of OTLP over gRPC or HTTP, and tries again where that may help.
//!
//! Facts: the specification of OTLP (which statuses are worth another try, `Retry-After`), gRPC over HTTP/2 (a message is a
//! byte that says whether it is compressed, its length in 4 bytes, and itself; the status is in the trailers, or in the headers if
//! there is no message).

use super::target::{Protocol, Target};
use super::tls;
use flate2::Compression;
use flate2::write::GzEncoder;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::{http1, http2};
use hyper::header::{
    CONTENT_ENCODING, CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER, TE, USER_AGENT,
};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use report::otlp::{self, refused};
use std::io::{self, Write};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::Instant;

/// Pause before the second try; it doubles.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// Longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// How a message of gRPC is compressed.
const GRPC_ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");
/// Bytes of an answer that are read at most.
const ANSWER_BYTES: usize = 64 << 10;

/// A connection to a receiver, made when it is needed.
#[derive(Debug)]
pub struct Client {
    target: Target,
    connection: Option<Connection>,
}

#[derive(Debug)]
enum Connection {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

/// What became of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sent {
    /// It was taken, save for so many items.
    Taken {
        /// Spans or series that the receiver refused.
        refused: u64,
        /// Why, in its words.
        message: String,
    },
    /// It was not.
    Failed(String),
}

/// Why a try failed.
#[derive(Debug)]
struct Failure {
    /// Another try may help; not before so long.
    again: Option<Duration>,
    reason: String,
}

impl Failure {
    fn passing(reason: impl ToString) -> Failure {
        Failure { again: Some(Duration::ZERO), reason: reason.to_string() }
    }

    fn lasting(reason: impl ToString) -> Failure {
        Failure { again: None, reason: reason.to_string() }
    }
}

impl Client {
    /// Connects later.
    pub fn new(target: Target) -> Client {
        Client { target, connection: None }
    }

    /// How requests have to be encoded.
    pub fn encoding(&self) -> otlp::Encoding {
        self.target.protocol.encoding()
    }

    /// Sends a request, again and again until `patience` is over.
    pub async fn send(&mut self, request: &otlp::Request, patience: Duration) -> Sent {
        let deadline = Instant::now() + patience;
        let mut pause = FIRST_PAUSE;
        loop {
            let timeout = self.target.timeout;
            let failure = match tokio::time::timeout(timeout, self.attempt(request)).await {
                Ok(Ok((refused, message))) => return Sent::Taken { refused, message },
                Ok(Err(failure)) => failure,
                Err(_) => Failure::passing(format!("no answer after {timeout:?}")),
            };
            self.connection = None;
            // Not all senders at the same moment.
            let jitter = pause.mul_f64(f64::from(std::process::id() % 64) / 128.0);
            let next = failure.again.map(|least| Instant::now() + least.max(pause + jitter));
            match next.filter(|next| *next < deadline) {
                Some(next) => tokio::time::sleep_until(next).await,
                None => return Sent::Failed(format!("{}: {}", self.target.uri, failure.reason)),
            }
            pause = (2 * pause).min(LONGEST_PAUSE);
        }
    }

    async fn attempt(&mut self, request: &otlp::Request) -> Result<(u64, String), Failure> {
        if self.connection.is_none() {
            self.connection = Some(self.connect().await.map_err(Failure::passing)?);
        }
        let message = self.message(request).map_err(Failure::lasting)?;
        let answer = match &mut self.connection {
            Some(Connection::Http1(sender)) => sender.send_request(message).await,
            Some(Connection::Http2(sender)) => sender.send_request(message).await,
            None => return Err(Failure::passing("not connected")),
        };
        let answer = answer.map_err(Failure::passing)?;
        match self.target.protocol {
            Protocol::Grpc => grpc_answer(answer, request.signal).await,
            _ => http_answer(answer, request.signal, self.encoding()).await,
        }
    }

    async fn connect(&self) -> Result<Connection, String> {
        let uri = &self.target.uri;
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
        let address = (host, uri.port_u16().unwrap_or(if self.target.tls.is_some() { 443 } else { 80 }));
        let stream = TcpStream::connect(address).await.map_err(|error| error.to_string())?;
        let _ = stream.set_nodelay(true);
        match &self.target.tls {
            None => self.shake_hands(stream).await,
            Some(config) => self.shake_hands(tls::connect(config, host, stream).await.map_err(words)?).await,
        }
    }

    async fn shake_hands<S>(&self, stream: S) -> Result<Connection, String>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let stream = TokioIo::new(stream);
        // The connection ends with its sender.
        match self.target.protocol {
            Protocol::Grpc => {
                let (sender, connection) =
                    http2::handshake(TokioExecutor::new(), stream).await.map_err(words)?;
                tokio::spawn(connection);
                Ok(Connection::Http2(sender))
            }
            _ => {
                let (sender, connection) = http1::handshake(stream).await.map_err(words)?;
                tokio::spawn(connection);
                Ok(Connection::Http1(sender))
            }
        }
    }

    fn message(&self, request: &otlp::Request) -> Result<Request<Full<Bytes>>, String> {
        let uri = &self.target.uri;
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let grpc = self.target.protocol == Protocol::Grpc;
        let gzip = self.target.gzip;
        let body = if gzip { compressed(&request.body).map_err(words)? } else { request.body.clone() };
        let (content, encoding, body) = match self.target.protocol {
            Protocol::Grpc => ("application/grpc", GRPC_ENCODING, framed(&body, gzip)),
            Protocol::HttpProtobuf => ("application/x-protobuf", CONTENT_ENCODING, body.into()),
            Protocol::HttpJson => ("application/json", CONTENT_ENCODING, body.into()),
        };
        let mut message = Request::builder().method(Method::POST);
        // HTTP/2 has the host in the address, HTTP/1.1 in a header.
        message = if grpc { message.uri(uri.clone()) } else { message.uri(path) };
        let headers = message.headers_mut().ok_or("an address that cannot be sent to")?;
        if grpc {
            headers.insert(TE, HeaderValue::from_static("trailers"));
        } else if let Some(authority) = uri.authority() {
            headers.insert(HOST, HeaderValue::from_str(authority.as_str()).map_err(words)?);
        }
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content));
        if gzip {
            headers.insert(encoding, HeaderValue::from_static("gzip"));
        }
        headers
            .insert(USER_AGENT, HeaderValue::from_static(concat!("cudatrace/", env!("CARGO_PKG_VERSION"))));
        headers.extend(self.target.headers.iter().cloned());
        message.body(Full::new(body)).map_err(words)
    }
}

fn words(error: impl ToString) -> String {
    error.to_string()
}

fn compressed(body: &[u8]) -> io::Result<Vec<u8>> {
    // Fast: what is sent in a second has to be compressed in less.
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(body)?;
    gzip.finish()
}

/// A message of gRPC.
fn framed(body: &[u8], compressed: bool) -> Bytes {
    let mut frame = Vec::with_capacity(5 + body.len());
    frame.push(compressed.into());
    frame.extend_from_slice(&(body.len() as u32).to_be_bytes());
    frame.extend_from_slice(body);
    frame.into()
}

async fn http_answer(
    answer: Response<Incoming>,
    signal: otlp::Signal,
    encoding: otlp::Encoding,
) -> Result<(u64, String), Failure> {
    let (status, headers) = (answer.status(), answer.headers().clone());
    let body = collect(answer.into_body()).await.map_err(Failure::passing)?.0;
    if status.is_success() {
        return Ok(refused(signal, &body, encoding).unwrap_or_default());
    }
    let reason = format!("HTTP {status}{}", said(&body));
    let retried = [
        StatusCode::TOO_MANY_REQUESTS,
        StatusCode::BAD_GATEWAY,
        StatusCode::SERVICE_UNAVAILABLE,
        StatusCode::GATEWAY_TIMEOUT,
    ];
    match retried.contains(&status) {
        true => Err(Failure { again: Some(retry_after(&headers)), reason }),
        false => Err(Failure::lasting(reason)),
    }
}

fn retry_after(headers: &HeaderMap) -> Duration {
    let seconds = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
    Duration::from_secs(seconds.unwrap_or(0))
}

/// Text of an answer for a message, as far as it is text.
fn said(body: &[u8]) -> String {
    let text: String = String::from_utf8_lossy(body).chars().take(200).filter(|c| !c.is_control()).collect();
    if text.trim().is_empty() { String::new() } else { format!(": {}", text.trim()) }
}

/// Body and trailers.
async fn collect(body: Incoming) -> Result<(Bytes, HeaderMap), String> {
    let limited = http_body_util::Limited::new(body, ANSWER_BYTES);
    let collected = limited.collect().await.map_err(words)?;
    let trailers = collected.trailers().cloned().unwrap_or_default();
    Ok((collected.to_bytes(), trailers))
}

/// Codes of gRPC that OTLP calls worth another try. RESOURCE_EXHAUSTED is only with a hint when, which we do not read.
const RETRIED: [u32; 6] = [1, 4, 10, 11, 14, 15];

async fn grpc_answer(answer: Response<Incoming>, signal: otlp::Signal) -> Result<(u64, String), Failure> {
    if !answer.status().is_success() {
        return Err(Failure::passing(format!("HTTP {}", answer.status())));
    }
    let headers = answer.headers().clone();
    let (body, trailers) = collect(answer.into_body()).await.map_err(Failure::passing)?;
    let field = |name: &'static str| {
        let name = HeaderName::from_static(name);
        let value = trailers.get(&name).or_else(|| headers.get(&name))?;
        value.to_str().ok().map(str::to_owned)
    };
    match field("grpc-status").and_then(|status| status.parse().ok()) {
        Some(0) => {
            let message = body.get(5..).unwrap_or_default();
            Ok(refused(signal, message, otlp::Encoding::Protobuf).unwrap_or_default())
        }
        Some(code) => {
            let reason =
                format!("gRPC status {code}{}", said(field("grpc-message").unwrap_or_default().as_bytes()));
            match RETRIED.contains(&code) {
                true => Err(Failure::passing(reason)),
                false => Err(Failure::lasting(reason)),
            }
        }
        None => Err(Failure::passing("an answer without gRPC status")),
    }
}
