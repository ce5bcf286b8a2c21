//! Requests of metrics by the threads of servers, to the thread that reads events.

use report::metrics::Family;
use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use tokio::sync::oneshot;

/// The families at one time.
#[derive(Clone, Debug, Default)]
pub struct MetricsSnapshot {
    /// Families of the maps, then own metrics.
    pub families: Arc<Vec<Family>>,
    /// The error, if the maps could not be read.
    pub error: Option<Arc<str>>,
    /// The reason why not everything is traced.
    pub unhealthy: Option<Arc<str>>,
}

/// Requests the families of the run from another thread.
#[derive(Clone, Debug)]
pub struct SnapshotClient {
    bell: Arc<OwnedFd>,
    requests: Sender<oneshot::Sender<MetricsSnapshot>>,
}

impl SnapshotClient {
    /// The families, or `None` if the run has ended.
    pub async fn request(&self) -> Option<MetricsSnapshot> {
        let (answer, answered) = oneshot::channel();
        self.requests.send(answer).ok()?;
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
        answered.await.ok()
    }
}

/// Requests for the thread of the run.
pub struct SnapshotRequests {
    bell: Arc<OwnedFd>,
    requests: Receiver<oneshot::Sender<MetricsSnapshot>>,
}

/// Creates a channel for requests.
pub fn channel() -> io::Result<(SnapshotClient, SnapshotRequests)> {
    let bell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
    let (sender, receiver) = mpsc::channel();
    Ok((
        SnapshotClient { bell: Arc::clone(&bell), requests: sender },
        SnapshotRequests { bell, requests: receiver },
    ))
}

impl SnapshotRequests {
    /// Descriptor that is readable when there are requests.
    pub fn fd(&self) -> RawFd {
        self.bell.as_raw_fd()
    }

    /// Takes the requests that have arrived.
    pub fn take(&self) -> impl Iterator<Item = oneshot::Sender<MetricsSnapshot>> {
        let _ = rustix::io::read(&self.bell, &mut [0u8; 8]);
        self.requests.try_iter()
    }
}
