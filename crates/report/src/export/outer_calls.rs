//! The outermost runtime call around the call that launched work.
//!
//! ```text
//! cudaLaunchKernel      its correlation is that of the kernel, as in kineto's traces
//!   cuLaunchKernel      has CUPTI's id, by which the kernel finds it
//! ```
//!
//! Records arrive when calls return, so the outer call is unknown when the inner one arrives, and known when its work does.

use super::recent::{LAUNCHES, Recent};
use super::record::{Record, Span};

/// Most calls around a launch: a recording can name any call as the enclosing one, also in a circle.
const DEPTH: usize = 16;

/// Calls that launched work, and the runtime calls around them.
#[derive(Default)]
pub(super) struct OuterCalls {
    /// By id; `None` for a call around a launch that has not arrived.
    calls: Recent<u64, Option<LaunchCall>, LAUNCHES>,
}

/// A call that launched work, or one around it.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct LaunchCall {
    pub(super) id: u64,
    /// Id of the enclosing call; 0 if there is none.
    parent_id: u64,
    pub(super) time_ns: u64,
    pub(super) pid: u32,
    pub(super) tid: u32,
    /// Whether the begin of its arrow is written.
    pub(super) has_arrow: bool,
}

impl OuterCalls {
    /// Notes a call that launches work, and a runtime call around one.
    pub(super) fn note(&mut self, record: &Record, span: &Span) {
        let Some(thread) = &record.thread else { return };
        let is_runtime = || record.site.func.starts_with("cuda");
        let is_around = || self.calls.get(&span.span_id) == Some(None) && is_runtime();
        if record.launch().is_none() && !is_around() {
            return;
        }
        let call = LaunchCall {
            id: span.span_id,
            parent_id: span.parent_id,
            time_ns: record.time_ns,
            pid: thread.pid,
            tid: thread.tid,
            has_arrow: false,
        };
        self.calls.insert(call.id, Some(call));
        if call.parent_id != 0 && self.calls.get(&call.parent_id).is_none() {
            self.calls.insert(call.parent_id, None);
        }
    }

    /// The outermost known call around a launch, which may be the launch itself.
    pub(super) fn around(&self, launch: u64) -> Option<LaunchCall> {
        let mut call = self.calls.get(&launch)??;
        for _ in 0..DEPTH {
            match self.calls.get(&call.parent_id) {
                Some(Some(outer)) => call = outer,
                _ => break,
            }
        }
        Some(call)
    }

    /// Notes that the begin of an arrow from this call is written.
    pub(super) fn has_arrow(&mut self, call: LaunchCall) {
        self.calls.insert(call.id, Some(LaunchCall { has_arrow: true, ..call }));
    }
}
