//! Events of a run, and the formats in which they are printed and exported. Takes values and writes to an `io::Write`; reads no
//! clock, no kernel, no file.

#![forbid(unsafe_code)]

mod call_site;
pub mod export;
mod gfp_flags;
pub mod hist;
pub mod kernel_names;
pub mod losses;
pub mod map_order;
pub mod metrics;
mod printed;
pub mod printf;
pub mod recording;
pub mod sink;
pub mod table;
pub mod test_results;
#[cfg(test)]
mod testing;
pub mod time_series;
pub mod units;
pub mod value;

use std::io;
use std::sync::Arc;
use wire::decode::Header;
use wire::manifest::{Message, Place};
use wire::types::Lookup;
use wire::{CounterKind, Manifest, Value};

/// Merged contents of a map at one time.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    /// Index of the map in the manifest.
    pub map: u32,
    /// Keys and cells, in the order of the kernel; the key of a scalar map is empty.
    pub entries: Vec<(Vec<Value>, Cell)>,
    /// Number of entries to show, 0 for all.
    pub top: u32,
    /// Divisor of the values; 0 means 1.
    pub div: u32,
}

/// A cell, merged over all CPUs.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// A value.
    Plain(Value),
    /// `count`, `sum`, `min`, `max`, `avg` (already divided): the number that is printed.
    Number {
        /// The bits.
        bits: i64,
        /// True if the bits are a signed number.
        signed: bool,
    },
    /// `stats`
    Stats {
        /// Number of samples.
        count: u64,
        /// Bits of the sum.
        total: i64,
        /// True if the sum is signed.
        signed: bool,
    },
    /// `hist` and `lhist`
    Buckets {
        /// Number of samples in each bucket, in the order of `wire::map`.
        counts: Vec<u64>,
        /// Sum of all samples, if it is kept.
        sum: Option<i64>,
    },
    /// `tseries`: the intervals that have a sample, in order.
    Series(Vec<Point>),
}

/// An interval of a `tseries`.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Point {
    /// Start, boot-clock ns.
    pub start_ns: u64,
    /// Bits of its value.
    pub bits: i64,
    /// True if the bits are a signed number.
    pub signed: bool,
}

/// A non-zero counter of failures or losses, summed over all CPUs.
#[derive(Clone, Debug, PartialEq)]
pub struct Loss {
    /// Kind of failure or loss.
    pub kind: CounterKind,
    /// Number of occurrences.
    pub count: u64,
    /// Position in the script that it refers to.
    pub place: Place,
}

/// An output of a session, in the order of events.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// All probes are attached.
    Attached {
        /// Number of attach points.
        probes: usize,
    },
    /// A record: `printf`, `print(value)`, `print(@m[k])`, `time()`. `event` indexes the manifest.
    Event {
        /// Header: thread, time, and index of the event.
        header: Header,
        /// Values of the record; for `PrintEntry` the parts of the key.
        values: Vec<Value>,
        /// Cell of a `PrintEntry`, if the key exists.
        cell: Option<Cell>,
    },
    /// The contents of a file for `cat`, or the output of a command for `system`; otherwise the error.
    Fetched {
        /// `cat` or `system`.
        what: Message,
        /// Unmodified bytes, or the error.
        text: Result<Vec<u8>, String>,
    },
    /// `print(@m)`, or a map at the end.
    Map(Snapshot),
    /// Rows of a table for `rows`, with the header of the first row.
    Table(Header, table::Table),
    /// The outputs that follow are of this script; only if there are several scripts.
    Script(String),
    /// The end of the session; maps follow.
    End,
    /// Progress or results of tests or benches.
    Tests(test_results::Step),
    /// Failures and losses; once, at the end, after the maps.
    Losses(Vec<Loss>),
}

/// Resolution of ids to text. The command line implements it, since it reads this machine.
pub trait Names {
    /// `sym+off` of a user-space address of a process, otherwise hex.
    fn user_symbol(&self, tgid: u32, address: u64) -> String;
    /// Frames of a stack, innermost first: address, `symbol+offset` if known, module if known.
    fn stack(&self, user: bool, tgid: u32, addresses: &[u64]) -> Vec<Frame>;
    /// Build id in hex of the file that contains a code address of a process, and the offset in the file; `None`
    /// without a build id.
    fn file_place(&self, _tgid: u32, _address: u64) -> Option<(String, u64)> {
        None
    }
    /// The text of a line of a source file that a process has, without the space around it; `None` if it cannot be read.
    fn source_line(&self, _tgid: u32, _file: &str, _line: u32) -> Option<String> {
        None
    }
    /// Addresses of a stack by its map and key, as the runtime read them; empty if the stack does not exist.
    fn stack_addresses(&self, map: u32, id: u32) -> Vec<u64>;
    /// Wall-clock time of a boot-clock time, in ns since 1970.
    fn wall_clock_ns(&self, boot_ns: u64) -> i128;
    /// Local time of a wall-clock time in a strftime format; `%f` is microseconds.
    fn strftime(&self, format: &str, wall_ns: i128) -> String;
    /// The text for a number; if there is none, its digits or an empty text.
    fn lookup(&self, what: Lookup, number: i64) -> String;
    /// File name of the program that a process runs, or ran when it was first queried. It is more meaningful than
    /// a thread's name.
    fn program(&self, _pid: u32) -> Option<Arc<str>> {
        None
    }
    /// Identity of a process, available while its keys are in a map, and whether it still runs.
    fn process(&self, _pid: u32) -> metrics::Process {
        metrics::Process::default()
    }
    /// Identity of a CUDA device by its number in a process.
    fn device(&self, _pid: u32, _number: u32) -> metrics::Device {
        metrics::Device::default()
    }
    /// The delay of a thread by the tracer between two boot-clock times, in ns.
    fn waited_ns(&self, _tid: u32, _from_ns: u64, _to_ns: u64) -> u64 {
        0
    }
}

/// One frame of a stack.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Frame {
    /// Return address.
    pub address: u64,
    /// Demangled name.
    pub symbol: Option<String>,
    /// Offset from the start of the symbol in bytes; without a symbol from the load address of the file.
    pub offset: u64,
    /// File of the code.
    pub module: Option<String>,
    /// Source file and line.
    pub source: Option<(String, u32)>,
    /// True if the function is inlined into that of the next frame.
    pub inlined: bool,
}

/// An output format. Outputs are passed in order. A write error ends the sink, not the session; the caller
/// decides.
pub trait Sink {
    /// Writes an output.
    fn output(&mut self, manifest: &Manifest, names: &dyn Names, output: &Output) -> io::Result<()>;
    /// Writes buffered bytes.
    fn flush(&mut self) -> io::Result<()>;
}
