//! Messages between the agent and the tracer, one per packet of a socket: the agent's [`Hello`], the tracer's [`Request`] with a descriptor of memory for
//! [`Counters`], and the agent's [`Report`]s.
//!
//! Any local process can connect to the tracer's socket. The tracer reads nothing else before a `Hello` with the right secret.

use core::sync::atomic::AtomicU64;

/// Size of a secret in bytes: nobody finds one by trying.
pub const SECRET: usize = 16;

/// The first packet of an agent.
#[derive(Copy, Clone, PartialEq, Eq)]
#[repr(C)]
pub struct Hello {
    /// That of the [`Address`].
    pub secret: [u8; SECRET],
}

/// Largest size of the list of paths in a [`Request`].
pub const PATHS: usize = 3884;

/// Request of the tracer for records.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Request {
    /// Kinds of records and what they need: the bits of a [`crate::kind_set::KindSet`].
    pub kinds: u32,
    /// Milliseconds between two flushes of CUPTI's buffers.
    pub flush_ms: u32,
    /// Paths of CUPTI for a process that has not loaded it, the best one first; each ends with zero.
    pub paths: [u8; PATHS],
}

/// State of the agent.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum State {
    /// The agent has found no CUPTI, or only one that lacks functions, whose `version` the report has.
    NoCupti = 1,
    /// CUPTI refused; `status` is the error.
    Refused,
    /// Records come.
    Collects,
    /// The agent has left CUPTI. That has ended, too, unless the process uses graphs, or exits.
    Ended,
    /// The agent has ended. CUPTI ends with the next call of the driver.
    EndsLater,
}

/// Whether operators of PyTorch are known.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Operators {
    /// The tracer did not ask for them.
    Unasked = 0,
    /// The process has not loaded PyTorch.
    NoPyTorch,
    /// PyTorch calls the agent at each.
    Come,
    /// PyTorch lacks functions, or there is no memory.
    Refused,
}

/// Counters of the agent, in memory that the tracer reads when the process has ended, in whatever way.
///
/// A launch is counted when its call returns without an error, unless something is captured meanwhile: then it may be part of a graph. It has
/// a record as soon as the first of its records has come.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Counters {
    /// 1 as soon as launches are counted.
    pub counts: AtomicU64,
    /// Launches of kernels.
    pub kernels: AtomicU64,
    /// Launches of kernels with a record.
    pub kernels_recorded: AtomicU64,
    /// Launches of graphs.
    pub graphs: AtomicU64,
    /// Launches of graphs with a record.
    pub graphs_recorded: AtomicU64,
    /// Launches that were forgotten before a record came.
    pub forgotten: AtomicU64,
    /// Records of kernels whose launch is not known.
    pub unknown: AtomicU64,
}

/// Size of [`Counters`] in bytes.
pub const COUNTERS: usize = size_of::<Counters>();

/// `CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED`: another tool has CUPTI.
pub const MULTIPLE_SUBSCRIBERS: u32 = 39;

/// Room for the name of a tool.
pub const NAME: usize = 32;

/// Report of an agent.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Report {
    /// A [`State`].
    pub state: u32,
    /// `CUptiResult` of what failed.
    pub status: u32,
    /// `CUPTI_API_VERSION`
    pub version: u32,
    /// Kind of CUPTI's records that it refused.
    pub kind: u32,
    /// 1: a device had a primary context before the agent was there, so that work may have been launched.
    pub had_context: u16,
    /// 1: the work of graphs has no records, since an earlier collection took graphs as a whole and CUPTI could not be ended.
    pub graphs_lack_records: u16,
    /// An [`Operators`].
    pub operators: u32,
    /// Records that were passed to probes, by [`crate::record::Kind`].
    pub passed: [u64; crate::record::KINDS],
    /// Records that CUPTI dropped.
    pub dropped: u64,
    /// Times that CUPTI asked for a buffer and there was none.
    pub refused: u64,
    /// Records without a time, which were not passed on.
    pub without_time: u64,
    /// Times that the wall clock was set: records in flight then have wrong times.
    pub clock_steps: u64,
    /// Kernels that came so late that they were taken for idle time.
    pub missed: u64,
    /// The tool that has CUPTI, if that refused because of it and tells; ends with zero.
    pub holder: [u8; NAME],
}

/// Begin of the name of the variable with the library that the program had asked for; the tracer's name follows, since a tracer may be
/// traced, too.
pub const NEXT: &str = "CUDATRACE_NEXT_";

/// Room for the tracer's name.
pub const TRACER_NAME: usize = 56;

/// Where the tracer listens.
#[derive(Copy, Clone, PartialEq, Eq)]
#[repr(C)]
pub struct Address {
    /// Process of the tracer; 0: none.
    pub pid: u32,
    /// Length of the name in bytes.
    pub length: u32,
    /// Abstract name of a Unix socket, of letters, digits and underscores.
    pub name: [u8; TRACER_NAME],
    /// Proves to the tracer that the process has loaded the library.
    pub secret: [u8; SECRET],
}
