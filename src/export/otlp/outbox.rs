//! Requests in flight to a receiver: several at once, the others queued within a limit of bytes.
//!
//! ```text
//! thread of the export -> room for the bytes -> queue -> [request, request, ...] -> receiver
//! ```
//!
//! During the run a request is retried for minutes, since a receiver may be restarted. After the run, one deadline holds for all
//! remaining requests.

use super::client::{Client, SendOutcome};
use super::destination::{Target, without_credentials};
use crate::export::file::Destination;
use anyhow::{Context, Result};
use report::export::otlp::{Encoding, Request, Signal};
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;

/// Largest size of queued requests in bytes: about 400 000 spans, or twenty seconds at 20 000 spans per second.
const BYTES: usize = 128 << 20;
/// Number of concurrent requests.
const CONCURRENT: usize = 8;
/// Time after which a request is given up during the run.
const GIVE_UP: Duration = Duration::from_secs(300);
/// Longest wait for the first connection before a warning.
const FIRST_CONNECTION: Duration = Duration::from_secs(3);
/// Period of checks of the deadline.
const LOOK: Duration = Duration::from_millis(50);

/// Queue of requests to a server; see the module documentation.
pub struct Outbox {
    shared: Arc<OutboxState>,
    requests: Option<UnboundedSender<Request>>,
    thread: Option<JoinHandle<()>>,
    encodings: [Encoding; 2],
}

struct OutboxState {
    dest: Destination,
    targets: [Target; 2],
    waiting: Mutex<PendingRequests>,
    /// Notified when a request has completed or was given up.
    settled: Condvar,
}

#[derive(Default)]
struct PendingRequests {
    bytes: usize,
    items: u64,
    /// Idle connections, by signal.
    idle: [Vec<Client>; 2],
}

/// Index of the target for a signal.
fn index(signal: Signal) -> usize {
    match signal {
        Signal::Traces => 0,
        Signal::Metrics => 1,
    }
}

impl Outbox {
    /// Starts the sender thread.
    pub fn start(dest: Destination, traces: Target, metrics: Target) -> Result<Outbox> {
        dest.deliver(0);
        let targets = [traces, metrics];
        let encodings = [0, 1].map(|at: usize| targets[at].protocol.encoding());
        let shared =
            Arc::new(OutboxState { dest, targets, waiting: Mutex::default(), settled: Condvar::default() });
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("no event loop for the network")?;
        let (requests, queue) = unbounded_channel();
        let own = shared.clone();
        let send = move || {
            runtime.block_on(async {
                if !own.dest.is_recorded() {
                    tokio::spawn(own.clone().try_to_connect());
                }
                send_all(queue, own).await;
            });
            // The resolution of a name may still be running.
            runtime.shutdown_background();
        };
        let thread = std::thread::Builder::new().name("ct-otlp-send".into()).spawn(send)?;
        Ok(Outbox { shared, requests: Some(requests), thread: Some(thread), encodings })
    }

    /// Encoding of requests for a signal.
    pub fn encoding(&self, signal: Signal) -> Encoding {
        self.encodings[index(signal)]
    }

    /// Number of items in queued and running requests.
    pub fn pending(&self) -> u64 {
        self.shared.lock().items
    }

    /// Adds a request; waits for room.
    pub fn send(&self, request: Request) -> io::Result<()> {
        let mut waiting = self.shared.lock();
        while waiting.bytes > 0 && waiting.bytes + request.body.len() > BYTES && !self.shared.is_over() {
            let woken = self.shared.settled.wait_timeout(waiting, LOOK);
            waiting = woken.unwrap_or_else(|poisoned| poisoned.into_inner()).0;
        }
        waiting.bytes += request.body.len();
        waiting.items += request.items;
        drop(waiting);
        let died = || io::Error::other("the thread that sends died; this is a bug in cudatrace");
        self.requests.as_ref().ok_or_else(died)?.send(request).map_err(|_| died())
    }

    /// Waits until all requests have completed.
    pub fn finish(&mut self) {
        self.requests = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Outbox {
    fn drop(&mut self) {
        self.finish();
    }
}

impl OutboxState {
    fn lock(&self) -> MutexGuard<'_, PendingRequests> {
        self.waiting.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Whether all requests are given up: the run ended longer ago than the timeout of a request, or the end must
    /// be immediate.
    fn is_over(&self) -> bool {
        self.dest.is_abandoned() || self.dest.closed_at().is_some_and(|at| at.elapsed() >= self.patience())
    }

    /// Longest wait at the end of a run.
    fn patience(&self) -> Duration {
        self.targets.iter().map(|target| target.timeout).max().unwrap_or_default()
    }

    /// Time during which a request is repeated. Data from a recording can be sent again later, so it gets a single
    /// timeout.
    fn patience_of(&self, signal: Signal) -> Duration {
        let timeout = self.targets[index(signal)].timeout;
        if self.dest.is_recorded() { timeout } else { timeout.max(GIVE_UP) }
    }

    /// Connects to each receiver, and warns of one that cannot be reached: its requests are repeated for minutes, so a
    /// wrong address would be noticed at the end only.
    async fn try_to_connect(self: Arc<OutboxState>) {
        let is_other = self.targets[0].uri.authority() != self.targets[1].uri.authority();
        for target in self.targets.iter().take(1 + usize::from(is_other)) {
            let client = Client::new(target.clone());
            if let Err(reason) = client.try_to_connect(FIRST_CONNECTION).await {
                self.dest.warn(unreachable(target, &reason));
            }
        }
    }

    async fn wait_for_end(&self) {
        while !self.is_over() {
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Sends a request until it is accepted or given up.
    async fn deliver(self: Arc<OutboxState>, request: Request) {
        let at = index(request.signal);
        let known = self.lock().idle[at].pop();
        let mut client = known.unwrap_or_else(|| Client::new(self.targets[at].clone()));
        let (begun, patience) = (Instant::now(), self.patience_of(request.signal));
        let fails = |reason| self.dest.set_obstacle(Some(reason));
        let sent = tokio::select! {
            biased;
            () = self.wait_for_end() => {
                let waited = || format!("no answer after {:.1?}", begun.elapsed());
                SendOutcome::Failed(self.dest.obstacle().unwrap_or_else(waited))
            }
            sent = client.send(&request, patience, &fails) => sent,
        };
        match sent {
            SendOutcome::Taken { refused, message } => {
                self.dest.set_obstacle(None);
                self.dest.deliver(request.items.saturating_sub(refused));
                match refused {
                    0 if message.is_empty() => {}
                    0 => self.dest.remark(format!("message of the receiver: {}", message.escape_debug())),
                    _ => {
                        let reason = format!("the receiver refused some: {}", message.escape_debug());
                        self.dest.lose(refused, reason);
                    }
                }
            }
            SendOutcome::Failed(reason) => self.dest.lose(request.items, reason),
        }
        let mut waiting = self.lock();
        waiting.bytes -= request.body.len();
        waiting.items -= request.items;
        waiting.idle[at].push(client);
        self.settled.notify_all();
    }
}

/// The warning of a receiver that cannot be reached.
fn unreachable(target: &Target, reason: &str) -> String {
    let scheme = target.uri.scheme_str().unwrap_or("http");
    let authority = target.uri.authority().map_or("", |authority| authority.as_str());
    let receiver = without_credentials(&format!("{scheme}://{authority}"));
    format!(
        "--export otlp: nothing can be sent to {receiver}: {reason}; check host, port (4317 is gRPC, 4318 HTTP) and whether the \
         receiver runs; tracing goes on, and data is sent as soon as it answers"
    )
}

/// Sends requests until the queue is closed and all have completed.
async fn send_all(mut queue: UnboundedReceiver<Request>, shared: Arc<OutboxState>) {
    let mut in_flight = JoinSet::new();
    loop {
        while in_flight.len() >= CONCURRENT {
            in_flight.join_next().await;
        }
        tokio::select! {
            request = queue.recv() => match request {
                Some(request) => _ = in_flight.spawn(shared.clone().deliver(request)),
                None => break,
            },
            Some(_) = in_flight.join_next(), if !in_flight.is_empty() => {}
        }
    }
    while in_flight.join_next().await.is_some() {}
}
