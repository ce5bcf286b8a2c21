//! The record of what a GPU did, as the agent in the traced process passes it to probes. All kinds have one layout.

/// Function of the agent that is called with a batch of records of one kind: `void f(const Record *records, uint64_t count)`. The
/// records, also those of the next calls, are sorted by their start, but for some that CUPTI returns a second late. The function is empty:
/// a probe on it sees the batch.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// `cudatrace_gpu_kernel`
    Kernel,
    /// `cudatrace_gpu_memcpy`: copies, also between devices.
    Memcpy,
    /// `cudatrace_gpu_memset`
    Memset,
    /// `cudatrace_gpu_graph`: launches of graphs as a whole.
    Graph,
    /// `cudatrace_gpu_sync`: waits of the host.
    Sync,
    /// `cudatrace_gpu_overhead`: time that the collection of these records took.
    Overhead,
    /// `cudatrace_gpu_idle`: time in which a device did nothing.
    Idle,
    /// `cudatrace_gpu_launch`: a call that launches work, or waits for it, begins. The function is called by its thread, with one
    /// record, which has the launch and the names alone.
    Launch,
}

/// Number of kinds.
pub const KINDS: usize = 8;

/// What the GPU did once. Times are in nanoseconds of CLOCK_MONOTONIC.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Record {
    /// When it began.
    pub start: u64,
    /// When it ended.
    pub end: u64,
    /// Address of the kernel's mangled name, which ends with a zero byte; 0 for other kinds.
    pub kernel: u64,
    /// Bytes that were copied or set.
    pub bytes: u64,
    /// Id of the stream.
    pub stream: u64,
    /// Id of the node of a graph; 0: not of a graph, or a graph as a whole.
    pub node: u64,
    /// Correlation id of the launching call.
    pub corr: u64,
    /// Begin of the launching call; 0: not known.
    pub launch: u64,
    /// Address of the name of the launching function, which ends with a zero byte; 0: not known.
    pub func: u64,
    /// Address of the name of the range of NVTX around the launching call, which ends with a zero byte; 0: none.
    pub range: u64,
    /// Ordinal of the device.
    pub device: u32,
    /// Id of the context.
    pub context: u32,
    /// Id of the graph; 0: no graph.
    pub graph: u32,
    /// Registers per thread.
    pub registers: u32,
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: [u32; 3],
    /// Bytes of shared memory of a block.
    pub shared: u32,
    /// Kind of memory that is read, number of `CUpti_ActivityMemoryKind`; for `memset` the memory that is set.
    pub src_kind: u8,
    /// Kind of memory that is written.
    pub dst_kind: u8,
    /// Number of `CUpti_ActivityMemcpyKind`, `CUpti_ActivitySynchronizationType`, or the cause of an idle time.
    pub what: u8,
    /// 1: the host does not wait for it.
    pub is_async: u8,
    /// Number of `CUpti_ActivityOverheadKind`; the value of `memset`; the id of an event that is waited for.
    pub value: u32,
    /// Device that is read, for copies between devices.
    pub src_device: u32,
    /// Device that is written.
    pub dst_device: u32,
    /// Thread of the launching call; 0: not known.
    pub tid: u32,
    /// Number of the device that no other device of the machine has, in any process; 0: not known.
    pub gpu: u64,
    /// Address of the text of its UUID, which ends with a zero byte; 0: not known.
    pub uuid: u64,
}

/// Size of a [`Record`] in bytes.
pub const SIZE: usize = size_of::<Record>();

const _: () = assert!(SIZE == 160);
