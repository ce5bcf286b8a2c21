//! Sends OTLP requests over gRPC or HTTP, and retries where the protocol permits it.
//!
//! Facts: the specification of OTLP (retryable statuses, `Retry-After`), gRPC over HTTP/2 (a message is a flag byte for compression,
//! its length in 4 bytes, and its data; the status is in the trailers, or in the headers if there is no message).

use super::destination::{Protocol, Target, without_credentials};
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
use report::export::otlp;
use report::export::otlp::refused;
use std::io::{self, Write};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::Instant;

/// Pause before the second attempt; it doubles.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// Longest pause, unless the receiver requests a longer one.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// gRPC header for the compression of a message.
const GRPC_ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");
/// Largest size of a response in bytes.
const ANSWER_BYTES: usize = 64 << 10;

/// A connection to a receiver, opened when it is needed.
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

impl Connection {
    /// Sends a message, after the previous one on this connection.
    async fn send(&mut self, message: Request<Full<Bytes>>) -> hyper::Result<Response<Incoming>> {
        match self {
            Connection::Http1(sender) => {
                sender.ready().await?;
                sender.send_request(message).await
            }
            Connection::Http2(sender) => {
                sender.ready().await?;
                sender.send_request(message).await
            }
        }
    }
}

/// Result of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SendOutcome {
    /// The receiver accepted it, except for some items.
    Taken {
        /// Number of spans or series that the receiver rejected.
        refused: u64,
        /// Message of the receiver.
        message: String,
    },
    /// The request failed.
    Failed(String),
}

/// The reason why an attempt failed.
#[derive(Debug)]
struct Failure {
    /// Shortest pause before another attempt; `None` if another one is useless.
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
    /// Creates a client without a connection.
    pub fn new(target: Target) -> Client {
        Client { target, connection: None }
    }

    /// Connects and disconnects, within `patience`; the error is the reason why no connection can be made.
    pub async fn try_to_connect(&self, patience: Duration) -> Result<(), String> {
        let patience = patience.min(self.target.timeout);
        let connected = tokio::time::timeout(patience, self.connect()).await;
        connected.map_err(|_| format!("no answer after {patience:?}"))?.map(drop)
    }

    /// Sends a request, with repeated attempts until `patience` is over. `fails` gets the reason of each failed
    /// attempt.
    pub async fn send(
        &mut self,
        request: &otlp::Request,
        patience: Duration,
        fails: &(dyn Fn(String) + Sync),
    ) -> SendOutcome {
        let deadline = Instant::now() + patience;
        let mut pause = FIRST_PAUSE;
        loop {
            let timeout = self.target.timeout;
            let failure = match tokio::time::timeout(timeout, self.attempt(request)).await {
                Ok(Ok((refused, message))) => return SendOutcome::Taken { refused, message },
                Ok(Err(failure)) => failure,
                Err(_) => Failure::passing(format!("no answer after {timeout:?}")),
            };
            self.connection = None;
            fails(format!("{}: {}", without_credentials(&self.target.uri.to_string()), failure.reason));
            // Jitter, so that senders do not retry at the same moment.
            let jitter = pause.mul_f64(f64::from(std::process::id() % 64) / 128.0);
            let next = failure.again.map(|least| Instant::now() + least.max(pause + jitter));
            match next.filter(|next| *next < deadline) {
                Some(next) => tokio::time::sleep_until(next).await,
                None => {
                    return SendOutcome::Failed(format!(
                        "{}: {}",
                        without_credentials(&self.target.uri.to_string()),
                        failure.reason
                    ));
                }
            }
            pause = (2 * pause).min(LONGEST_PAUSE);
        }
    }

    async fn attempt(&mut self, request: &otlp::Request) -> Result<(u64, String), Failure> {
        if self.connection.is_none() {
            self.connection = Some(self.connect().await.map_err(Failure::passing)?);
        }
        let message = self.message(request).map_err(Failure::lasting)?;
        let Some(connection) = &mut self.connection else { return Err(Failure::passing("not connected")) };
        let answer = connection.send(message).await.map_err(Failure::passing)?;
        match self.target.protocol {
            Protocol::Grpc => grpc_answer(answer, request.signal).await,
            _ => http_answer(answer, request.signal, self.target.protocol.encoding()).await,
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
        // The connection task ends with its sender.
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
    // Compression must keep up with the rate of records.
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(body)?;
    gzip.finish()
}

/// A gRPC message: flag, length and body.
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
    let reason = format!("HTTP {status}{}", body_text(&body));
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

/// Parses the Retry-After header: seconds, or a date.
fn retry_after(headers: &HeaderMap) -> Duration {
    let value = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok());
    let until = |date: &str| {
        let at = jiff::fmt::rfc2822::parse(date).ok()?.timestamp();
        Duration::try_from(at.duration_since(jiff::Timestamp::now())).ok()
    };
    let pause = value.and_then(|value| value.parse().map(Duration::from_secs).ok().or_else(|| until(value)));
    pause.unwrap_or_default()
}

/// Printable text of a response, for a message.
fn body_text(body: &[u8]) -> String {
    let text: String = String::from_utf8_lossy(body).chars().take(200).filter(|c| !c.is_control()).collect();
    if text.trim().is_empty() { String::new() } else { format!(": {}", text.trim()) }
}

/// The body and trailers of a response.
async fn collect(body: Incoming) -> Result<(Bytes, HeaderMap), String> {
    let limited = http_body_util::Limited::new(body, ANSWER_BYTES);
    let collected = limited.collect().await.map_err(words)?;
    let trailers = collected.trailers().cloned().unwrap_or_default();
    Ok((collected.to_bytes(), trailers))
}

/// gRPC codes for which OTLP requires another attempt.
const RETRIED: [u32; 6] = [1, 4, 10, 11, 14, 15];
/// gRPC code for which another attempt is useful only if the receiver gives a delay.
const RESOURCE_EXHAUSTED: u32 = 8;

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
            let reason = format!(
                "gRPC status {code}{}",
                body_text(field("grpc-message").unwrap_or_default().as_bytes())
            );
            let pause = field("grpc-status-details-bin").and_then(|details| retry_info(&details));
            let again = RETRIED.contains(&code).then(|| pause.unwrap_or_default());
            Err(Failure { again: again.or(pause.filter(|_| code == RESOURCE_EXHAUSTED)), reason })
        }
        None => Err(Failure::passing("an answer without gRPC status")),
    }
}

/// google.rpc.Status, the fields that are used.
#[derive(Clone, PartialEq, prost::Message)]
struct RpcStatus {
    #[prost(message, repeated, tag = "3")]
    details: Vec<RpcDetail>,
}

/// google.protobuf.Any
#[derive(Clone, PartialEq, prost::Message)]
struct RpcDetail {
    #[prost(string, tag = "1")]
    type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

/// google.rpc.RetryInfo
#[derive(Clone, PartialEq, prost::Message)]
struct RetryInfo {
    #[prost(message, optional, tag = "1")]
    retry_delay: Option<RpcDuration>,
}

/// google.protobuf.Duration
#[derive(Clone, PartialEq, prost::Message)]
struct RpcDuration {
    #[prost(int64, tag = "1")]
    seconds: i64,
    #[prost(int32, tag = "2")]
    nanos: i32,
}

/// The delay that a receiver requests in `grpc-status-details-bin`.
fn retry_info(details: &str) -> Option<Duration> {
    use prost::Message;
    let status = RpcStatus::decode(&*unbase64(details)?).ok()?;
    let detail = status.details.iter().find(|detail| detail.type_url.ends_with("/google.rpc.RetryInfo"))?;
    let delay = RetryInfo::decode(&*detail.value).ok()?.retry_delay?;
    Some(Duration::new(u64::try_from(delay.seconds).ok()?, u32::try_from(delay.nanos).ok()?))
}

/// Decodes Base64, with or without padding.
fn unbase64(text: &str) -> Option<Vec<u8>> {
    let digit = |c: u8| {
        Some(match c {
            b'A'..=b'Z' => c - b'A',
            b'a'..=b'z' => c - b'a' + 26,
            b'0'..=b'9' => c - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        })
    };
    let digits: Vec<u8> = text.trim_end_matches('=').bytes().map(digit).collect::<Option<_>>()?;
    let bytes = digits.chunks(4).flat_map(|four| {
        let bits =
            four.iter().fold(0u32, |bits, digit| bits << 6 | u32::from(*digit)) << (6 * (4 - four.len()));
        bits.to_be_bytes()[1..four.len().max(1)].to_vec()
    });
    Some(bytes.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost::Message;

    fn base64(bytes: &[u8]) -> String {
        const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let mut text = String::new();
        for three in bytes.chunks(3) {
            let mut word = [0; 4];
            word[1..=three.len()].copy_from_slice(three);
            let bits = u32::from_be_bytes(word);
            (0..=three.len()).for_each(|at| text.push(DIGITS[(bits >> (18 - 6 * at)) as usize & 63] as char));
        }
        text
    }

    #[test]
    fn a_receiver_sets_the_time_of_the_next_attempt() {
        let info = RetryInfo { retry_delay: Some(RpcDuration { seconds: 2, nanos: 500_000_000 }) };
        let detail = |name: &str| RpcDetail {
            type_url: format!("type.googleapis.com/google.rpc.{name}"),
            value: info.encode_to_vec(),
        };
        let status = RpcStatus { details: vec![detail("Help"), detail("RetryInfo")] };
        let details = base64(&status.encode_to_vec());
        assert_eq!(retry_info(&details), Some(Duration::from_millis(2500)));
        assert_eq!(retry_info(&(details + "==")), Some(Duration::from_millis(2500)));
        let help = RpcStatus { details: vec![detail("Help")] };
        assert_eq!(retry_info(&base64(&help.encode_to_vec())), None);
        assert_eq!(retry_info("%"), None);
    }

    #[test]
    fn a_pause_in_seconds_or_until_a_date() {
        let pause = |value: &str| {
            retry_after(&HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_str(value).unwrap())]))
        };
        assert_eq!(pause("7"), Duration::from_secs(7));
        assert_eq!(pause("Thu, 01 Jan 1970 00:00:00 GMT"), Duration::ZERO);
        assert!(pause("Tue, 31 Dec 2199 23:59:59 GMT") > Duration::from_secs(1_000_000));
        assert_eq!(pause("soon"), Duration::ZERO);
    }
}
