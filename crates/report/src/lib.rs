//! Events of a run, and the formats in which they are printed and exported. Takes values and writes to an `io::Write`; reads no
//! clock, no kernel, no file.

#![forbid(unsafe_code)]

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

/// Merged contents of a map at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    /// Index of the map in the manifest.
    pub map: u32,
    /// Keys and cells, in the order of the kernel; keys of scalar maps are empty.
    pub entries: Vec<(Vec<Value>, Cell)>,
    /// Entries to show, 0 for all.
    pub top: u32,
    /// Divide values by it; 0 counts as 1.
    pub div: u32,
}

/// A cell, merged over CPUs.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// A value.
    Plain(Value),
    /// `count`, `sum`, `min`, `max`, `avg` (already divided): the number it prints as.
    Number {
        /// The bits.
        bits: i64,
        /// How to read them.
        signed: bool,
    },
    /// `stats`
    Stats {
        /// Samples.
        count: u64,
        /// Bits of the sum.
        total: i64,
        /// Signed sum.
        signed: bool,
    },
    /// `hist` and `lhist`
    Buckets {
        /// Samples in each bucket, as `wire::map` orders them.
        counts: Vec<u64>,
        /// All samples added up, if that is kept.
        sum: Option<i64>,
    },
    /// `tseries`: the intervals that have a sample, in order.
    Series(Vec<Point>),
}

/// An interval of a `tseries`.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Point {
    /// Its beginning, boot-clock ns.
    pub start_ns: u64,
    /// Bits of its value.
    pub bits: i64,
    /// How to read them.
    pub signed: bool,
}

/// A counter that is not zero, summed over CPUs.
#[derive(Clone, Debug, PartialEq)]
pub struct Trouble {
    /// What happened.
    pub kind: CounterKind,
    /// How often.
    pub count: u64,
    /// What of the script it concerns.
    pub place: Place,
}

/// One thing that a run says, in the order in which it happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// All is attached; so many attach points.
    Attached {
        /// Attach points.
        probes: usize,
    },
    /// A record: `printf`, `print(value)`, `print(@m[k])`, `time()`. `event` indexes the manifest.
    Event {
        /// Thread, time, and index of the event.
        header: Header,
        /// The record's values; for `PrintEntry` the key's parts.
        values: Vec<Value>,
        /// For `PrintEntry`: the cell, if the key is there.
        cell: Option<Cell>,
    },
    /// What a file that `cat` names holds, or what a command of `system` said; else why there is nothing.
    Fetched {
        /// Which of them.
        what: Message,
        /// As it came.
        text: Result<Vec<u8>, String>,
    },
    /// `print(@m)`, and every map at the end.
    Map(Snapshot),
    /// Rows of a table, by `rows`; with the header of the first of them.
    Table(Header, table::Table),
    /// What follows is said by this script, and what came before by another; only if there are several.
    Script(String),
    /// The run ends; maps follow.
    End,
    /// What tests or benches come to.
    Trials(test_results::Step),
    /// Told once, at the end, after the maps.
    Trouble(Vec<Trouble>),
}

/// Turns ids into text; given by the command line, since it reads this machine.
pub trait Names {
    /// `sym+off` or hex of a user-space address of a process.
    fn user_symbol(&self, tgid: u32, address: u64) -> String;
    /// Frames of a stack, innermost first: address, `symbol+offset` if known, module if known.
    fn stack(&self, user: bool, tgid: u32, addresses: &[u64]) -> Vec<Frame>;
    /// Build id in hex of the file that has a code address of a process, and the place in it; `None` if it has none.
    fn file_place(&self, _tgid: u32, _address: u64) -> Option<(String, u64)> {
        None
    }
    /// Addresses of a stack by its map and key, as the runtime read them; empty if it is not there.
    fn stack_addresses(&self, map: u32, id: u32) -> Vec<u64>;
    /// Wall-clock ns since 1970 of a boot-clock time.
    fn wall_clock_ns(&self, boot_ns: u64) -> i128;
    /// Local time of a wall-clock time by a strftime format, `%f` being microseconds.
    fn strftime(&self, format: &str, wall_ns: i128) -> String;
    /// What a number stands for; its digits, or nothing, where it stands for nothing.
    fn lookup(&self, what: Lookup, number: i64) -> String;
    /// File name of the program that a process runs, or ran when it was first asked for. A thread's own name says less.
    fn program(&self, _pid: u32) -> Option<Arc<str>> {
        None
    }
    /// What a process is known by, as long as its keys are in a map, and whether it still runs.
    fn process(&self, _pid: u32) -> metrics::Process {
        metrics::Process::default()
    }
    /// What a process calls one of its CUDA devices.
    fn device(&self, _pid: u32, _number: u32) -> metrics::Device {
        metrics::Device::default()
    }
    /// How long the tracer has kept a thread waiting between two boot-clock times.
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
    /// Bytes from the symbol's start; without one from where the file is loaded.
    pub offset: u64,
    /// File that it lies in.
    pub module: Option<String>,
    /// Source file and line.
    pub source: Option<(String, u32)>,
    /// Inlined into the frame behind it.
    pub inlined: bool,
}

/// A format. Called in order; a write error ends the sink, not the trace: the caller decides.
pub trait Sink {
    /// Writes one thing.
    fn output(&mut self, manifest: &Manifest, names: &dyn Names, output: &Output) -> io::Result<()>;
    /// Brings buffered bytes out.
    fn flush(&mut self) -> io::Result<()>;
}
