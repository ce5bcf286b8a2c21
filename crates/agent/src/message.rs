//! Messages between the agent and the tracer, one per packet of a socket.

/// Largest size of the list of paths in a [`Request`].
pub const PATHS: usize = 3988;

/// What the tracer asks for.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Request {
    /// Kinds of records: a bit per [`crate::record::Kind`].
    pub kinds: u32,
    /// Milliseconds between two flushes of CUPTI's buffers.
    pub flush_ms: u32,
    /// 1: records have the time and the thread of their launch, which costs a callback at each.
    pub launches: u32,
    /// Paths of CUPTI for a process that has not loaded it, the best one first; each ends with zero.
    pub paths: [u8; PATHS],
}

/// State of the agent.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum State {
    /// It has found no CUPTI.
    NoCupti = 1,
    /// CUPTI refused; `status` is the error.
    Refused,
    /// Records come.
    Collects,
    /// It has ended, and CUPTI with it.
    Ended,
    /// It has ended. CUPTI ends with the next call of the driver.
    EndsLater,
}

/// `CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED`: another tool has CUPTI.
pub const MULTIPLE_SUBSCRIBERS: u32 = 39;

/// Room for the name of a tool.
pub const NAME: usize = 32;

/// What the agent reports.
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
    /// The tool that has CUPTI, if that refused because of it and tells; ends with zero.
    pub holder: [u8; NAME],
}

/// Where the tracer listens.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Address {
    /// Process of the tracer; 0: none.
    pub pid: u32,
    /// Length of the name in bytes.
    pub length: u32,
    /// Abstract name of a Unix socket.
    pub name: [u8; 56],
}
