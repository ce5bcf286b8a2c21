//! The record of what a GPU did, as the agent in the traced process passes it to probes. All kinds have one layout.
//!
//! A kind is a row of `kinds!`, a member a row of `members!`. The struct, the offsets, the numbers and the functions come from these rows.
//!
//! The file is a module of three crates: `agent`, its library, which has no dependencies, and `cuda`. If `cuda` depended on `agent`, the
//! compiler of scripts would be built after the agent's library, and again after each change of it.

/// Passes the kinds of records to a macro: name in Rust, number, name in scripts, and function of the agent.
macro_rules! kinds {
    ($then:ident) => {
        $then! {
            /// A kernel ran.
            Kernel = 0, "kernel", cudatrace_gpu_kernel;
            /// Memory was copied, also between devices.
            Memcpy = 1, "memcpy", cudatrace_gpu_memcpy;
            /// Memory was filled.
            Memset = 2, "memset", cudatrace_gpu_memset;
            /// A graph ran, as a whole.
            Graph = 3, "graph", cudatrace_gpu_graph;
            /// The host waited.
            Sync = 4, "sync", cudatrace_gpu_sync;
            /// The collection of these records took time.
            Overhead = 5, "overhead", cudatrace_gpu_overhead;
            /// A device did nothing.
            Idle = 6, "idle", cudatrace_gpu_idle;
            /// The program marked a part of its work by NVTX. The function is called by the thread that ends the range, with one record.
            Range = 7, "range", cudatrace_gpu_range;
            /// PyTorch ran an operator. The function is called by the thread that ran it, with one record.
            Operator = 8, "operator", cudatrace_gpu_operator;
            /// A range ends that the program names for PyTorch's profiler. The function is called by the thread that ends it, with one record.
            Annotation = 9, "annotation", cudatrace_gpu_annotation;
            /// A call that launches work, or waits for it, begins. The function is called by its thread, with one record, which has the
            /// launch and the names alone.
            Launch = 10, "__launch", cudatrace_gpu_launch;
            /// An operator of PyTorch begins that may have work in the backward pass. The function is called by its thread, with one record,
            /// whose correlation id is that of the operator.
            Forward = 11, "__forward", cudatrace_gpu_forward;
            /// Operators of PyTorch are known from now on, in a table whose address the record has as its correlation id.
            OperatorTable = 12, "__operator_table", cudatrace_gpu_operator_table;
        }
    };
}

macro_rules! define_kinds {
    ($($(#[$doc:meta])* $kind:ident = $number:literal, $name:literal, $function:ident;)*) => {
        /// A kind of records. Each has a function of the agent that is called with a batch of its records: `void f(const Record *records,
        /// uint64_t count)`. The records, also those of the next calls, are sorted by their start, but for some that CUPTI returns a second
        /// late. The function is empty: a probe on it sees the batch.
        #[derive(Copy, Clone, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Kind {
            $($(#[$doc])* $kind = $number,)*
        }

        /// Number of kinds.
        pub const KINDS: usize = [$($number),*].len();

        impl Kind {
            /// All kinds; the index is the number.
            pub const ALL: [Kind; KINDS] = [$(Kind::$kind),*];

            /// The name in scripts. A name that begins with `__` is only for clauses that the compiler adds.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Kind::$kind => $name,)*
                }
            }

            /// The function that is called with a batch.
            pub const fn function(self) -> &'static str {
                match self {
                    $(Kind::$kind => stringify!($function),)*
                }
            }
        }
    };
}

kinds!(define_kinds);

const _: () = {
    let mut number = 0;
    while number < KINDS {
        assert!(Kind::ALL[number] as usize == number, "the rows are in the order of their numbers");
        number += 1;
    }
};

/// A member of a record: an unsigned number.
#[derive(Clone, Copy, Debug)]
pub struct Member {
    /// `start`
    pub name: &'static str,
    /// Offset in bytes.
    pub offset: u32,
    /// Size in bytes.
    pub bytes: u32,
}

macro_rules! members {
    ($($(#[$doc:meta])* $name:ident: $ty:ty,)*) => {
        /// Record of a GPU. Times are in nanoseconds of CLOCK_MONOTONIC.
        #[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
        #[repr(C)]
        pub struct Record {
            $($(#[$doc])* pub $name: $ty,)*
        }

        /// Members of a [`Record`] in order.
        pub static MEMBERS: &[Member] = &[$(Member {
            name: stringify!($name),
            offset: core::mem::offset_of!(Record, $name) as u32,
            bytes: size_of::<$ty>() as u32,
        }),*];

        const _: () = assert!(SIZE == 0 $(+ size_of::<$ty>())*, "a record has no padding, which would not be initialised");
    };
}

members! {
    /// When it began.
    start: u64,
    /// When it ended.
    end: u64,
    /// Address of the kernel's mangled name, which ends with a zero byte; of a range that of its domain's name; 0 for other kinds.
    kernel: u64,
    /// Bytes that were copied or set; the bits of a range's payload.
    bytes: u64,
    /// Id of the stream.
    stream: u64,
    /// Id of the node of a graph; 0: not of a graph, or a graph as a whole.
    node: u64,
    /// Correlation id of the launching call.
    corr: u64,
    /// Begin of the launching call; 0: not known.
    launch: u64,
    /// Address of the name of the launching function, which ends with a zero byte; 0: not known.
    func: u64,
    /// Address of the name of the range of NVTX around the launching call, which ends with a zero byte, or of the range itself; 0: none.
    range: u64,
    /// Ordinal of the device.
    device: u32,
    /// Id of the context.
    context: u32,
    /// Id of the graph; 0: no graph.
    graph: u32,
    /// Registers per thread.
    registers: u32,
    /// Blocks in the first dimension.
    grid_x: u32,
    /// Blocks in the second dimension.
    grid_y: u32,
    /// Blocks in the third dimension.
    grid_z: u32,
    /// Threads of a block in the first dimension.
    block_x: u32,
    /// Threads of a block in the second dimension.
    block_y: u32,
    /// Threads of a block in the third dimension.
    block_z: u32,
    /// Bytes of shared memory of a block.
    shared: u32,
    /// Kind of memory that is read, number of `CUpti_ActivityMemoryKind`; for `memset` the memory that is set.
    src_kind: u8,
    /// Kind of memory that is written.
    dst_kind: u8,
    /// Number of `CUpti_ActivityMemcpyKind`, `CUpti_ActivitySynchronizationType`, the cause of an idle time, or the type of a range's payload.
    what: u8,
    /// 1: the host does not wait for it. Of a range: 0 by push and pop, 1 by start and end, 2 a mark.
    is_async: u8,
    /// Number of `CUpti_ActivityOverheadKind`; the value of `memset`; the id of an event that is waited for; the
    /// category of a range; how many operators are around an operator.
    value: u32,
    /// Device that is read, for copies between devices.
    src_device: u32,
    /// Device that is written.
    dst_device: u32,
    /// Thread of the launching call; 0: not known.
    tid: u32,
    /// Number of the device that no other device of the machine has, in any process; 0: not known.
    gpu: u64,
    /// Address of the text of its UUID, which ends with a zero byte; of a range that of its category's name; 0: not known.
    uuid: u64,
    /// Address of the name of PyTorch's operator around the launching call, which ends with a zero byte, or of the operator itself; 0: none.
    operator: u64,
    /// Id of the forward operator that the work belongs to, if it is of the backward pass; 1: it belongs to none; 0: it is not of that pass.
    forward: u64,
}

/// The table of the operators of PyTorch in which threads are now, which programs read.
///
/// A thread has the first place with its number from that place on which its number leads to; none if a place before is free.
pub mod operator_table {
    /// Number of places.
    pub const PLACES: u64 = 1 << 12;
    /// Places at which a thread is looked for.
    pub const TRIES: u64 = 64;
    /// The lower half of the number of a thread, times this, and of that the lower half, is the number of the first place, modulo [`PLACES`].
    pub const FACTOR: u64 = 0x9e37_79b1;
    /// The number of a thread is the address of its control block without so many bits.
    pub const BITS: u32 = 4;
    /// Size of a place in bytes.
    pub const PLACE: u64 = 32;
    /// Offset of the number of the thread; 0: the place is free.
    pub const THREAD: u64 = 0;
    /// Offset of the address of the name of the innermost operator, which ends with a zero byte; 0: the thread is in none.
    pub const NAME: u64 = 8;
    /// Offset of the id of the forward operator that the thread works for, as [`Record::forward`].
    pub const FORWARD: u64 = 16;
}

/// Size of a [`Record`] in bytes.
pub const SIZE: usize = size_of::<Record>();

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers are written out here, since the struct computes them.
    #[test]
    fn members_are_at_their_offsets() {
        let words = ["start", "end", "kernel", "bytes", "stream", "node", "corr", "launch", "func", "range"];
        let halves = [
            "device",
            "context",
            "graph",
            "registers",
            "grid_x",
            "grid_y",
            "grid_z",
            "block_x",
            "block_y",
            "block_z",
            "shared",
        ];
        let bytes = ["src_kind", "dst_kind", "what", "is_async"];
        let devices = ["value", "src_device", "dst_device", "tid"];
        let row = |at: u32, bytes: u32, names: &[&'static str]| -> Vec<(&'static str, u32, u32)> {
            names.iter().zip(0..).map(|(name, index)| (*name, at + bytes * index, bytes)).collect()
        };
        let expected = [
            row(0, 8, &words),
            row(80, 4, &halves),
            row(124, 1, &bytes),
            row(128, 4, &devices),
            row(144, 8, &["gpu", "uuid", "operator", "forward"]),
        ];
        let found: Vec<_> = MEMBERS.iter().map(|member| (member.name, member.offset, member.bytes)).collect();
        assert_eq!((found, SIZE), (expected.concat(), 176));
    }

    #[test]
    fn functions_have_the_names_of_their_kinds() {
        for kind in Kind::ALL {
            assert_eq!(kind.function(), format!("cudatrace_gpu_{}", kind.name().trim_start_matches('_')));
        }
    }
}
