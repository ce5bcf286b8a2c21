//! Requests of metrics by the threads of servers, to the thread that reads events.

use linux::mailbox::{Mailbox, Post};
use report::metrics::Family;
use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::Arc;
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
pub struct SnapshotClient(Post<oneshot::Sender<MetricsSnapshot>>);

impl SnapshotClient {
    /// The families, or `None` if the run has ended.
    pub async fn request(&self) -> Option<MetricsSnapshot> {
        let (answer, answered) = oneshot::channel();
        self.0.send(answer).ok()?;
        answered.await.ok()
    }
}

/// Requests for the thread of the run.
pub struct SnapshotRequests(Mailbox<oneshot::Sender<MetricsSnapshot>>);

/// Creates a channel for requests.
pub fn channel() -> io::Result<(SnapshotClient, SnapshotRequests)> {
    let (post, mailbox) = Mailbox::new()?;
    Ok((SnapshotClient(post), SnapshotRequests(mailbox)))
}

impl SnapshotRequests {
    /// Descriptor that is readable when there are requests.
    pub fn fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }

    /// Takes the requests that have arrived.
    pub fn take(&self) -> impl Iterator<Item = oneshot::Sender<MetricsSnapshot>> {
        std::iter::from_fn(|| self.0.take())
    }
}
