//! The outcome of a run: output, contents of maps, signals, exit status, failure counters. Ids are resolved to names, so that the
//! outcomes of the interpreter and of the compiled object can be compared.
//!
//! Not compared: the flag of a truncated string, which is lost when the string is stored in a map or variable, and the counters of
//! entry/return pairing.

use crate::series;
use std::collections::BTreeMap;
use std::fmt;
use wire::manifest::{Manifest, Piece};
use wire::map::Agg;
use wire::types::StackMode;

/// A value, with ids resolved to names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Value {
    /// `true`
    Bool(bool),
    /// Value and size in bytes.
    Int(i64, u8),
    /// Value and size in bytes.
    Uint(u64, u8),
    /// Name of the enum, and the value sign-extended from its 4 bytes.
    Enum(String, i64),
    /// Address.
    Pointer(u64),
    /// Bytes without NUL.
    Str(Vec<u8>),
    /// `(a, b)`
    Tuple(Vec<Value>),
    /// `(a = 1)`, a C struct
    Record(Vec<(String, Value)>),
    /// Elements
    Array(Vec<Value>),
    /// `cuInit`
    Name(String),
    /// Code address and process.
    Usym(u64, u32),
    /// Frames, process, print format.
    Stack(Option<Vec<u64>>, u32, StackMode),
    /// Boot-clock ns and format.
    Timestamp(u64, String),
    /// A number that the reader resolves.
    Lookup(wire::types::Lookup, i64),
    /// Bytes.
    Buf(Vec<u8>),
    /// Address family and bytes of a host's address.
    Inet(u32, [u8; 16]),
}

/// A cell of a map, merged over all CPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cell {
    /// A value.
    Plain(Value),
    /// `count`
    Count(u64),
    /// `sum`, `min`, `max`
    Number(i64),
    /// `avg`, `stats`: number of samples and their sum.
    Total(u64, i64),
    /// `hist`, `lhist`: buckets in the order of `wire::map`, and the sum, if it is kept.
    Buckets(Vec<u64>, Option<i64>),
    /// `tseries`: intervals by number since boot.
    Series(Vec<(u64, i64)>),
}

/// Contents of a map.
pub type Contents = BTreeMap<Vec<Value>, Cell>;

/// Output of a statement.
#[derive(Clone, Debug, PartialEq)]
pub enum What {
    /// `printf`
    Printf(Vec<Piece>, Vec<Value>),
    /// `errorf`, `warnf`, `cat`, `system`
    Message(wire::manifest::Message, Vec<Piece>, Vec<Value>),
    /// `rows(top, "none")`
    Rows(u32, Vec<u8>),
    /// `print(e)`
    Print(Value),
    /// `print(@m[k])`: map, key, content of the cell.
    PrintEntry(String, Vec<Value>, Option<Cell>),
    /// `print(@m, top, div)`: map, contents at that time, arguments.
    PrintMap(String, Contents, u32, u32),
    /// `clear(@m)`
    Clear(String),
    /// `zero(@m)`
    Zero(String),
    /// `exit(code)`
    Exit(i64),
    /// `time(format)`
    Time(String),
    /// `span(...)` and similar functions: name, and all values.
    Export(&'static str, Vec<Value>),
}

/// Name of the function in scripts.
pub fn exported(what: wire::manifest::Export) -> &'static str {
    use wire::manifest::Export;
    match what {
        Export::Span => "span",
        Export::Instant => "event",
        Export::Counter => "counter",
    }
}

/// An output with its thread and time.
#[derive(Clone, Debug, PartialEq)]
pub struct Output {
    /// CPU.
    pub cpu: u32,
    /// Boot-clock ns.
    pub time_ns: u64,
    /// Process.
    pub tgid: u32,
    /// Thread.
    pub tid: u32,
    /// Output.
    pub what: What,
}

/// A short text for error messages; formats are omitted.
impl fmt::Display for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Output { cpu, time_ns, tgid, tid, what } = self;
        match what {
            What::Printf(_, values) => write!(f, "printf {values:?}")?,
            other => write!(f, "{other:?}")?,
        }
        write!(f, " by {tgid}/{tid} on CPU {cpu} at {time_ns}")
    }
}

/// A signal that a program sent.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Signal {
    /// Process.
    pub tgid: u32,
    /// Thread.
    pub tid: u32,
    /// Signal number.
    pub number: u32,
    /// True if it was sent only to the thread.
    pub thread: bool,
}

/// Kind of failure, summed over the positions in the script.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Loss {
    /// A map was full.
    MapFull(String),
    /// A read of user memory failed.
    UserRead,
    /// Division by zero.
    DivisionByZero,
    /// An index of an array was out of bounds.
    OutOfBounds,
    /// A loop reached its limit of iterations.
    LoopLimit,
    /// A stack was not available.
    LostStack,
    /// `delete()` of a missing key.
    MissingKey(String),
    /// Failures that cannot occur in a simulated world: ring buffer full, no scratch memory, no call slot.
    NoResource(String),
}

/// Result of a run; see the module documentation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Output in order.
    pub output: Vec<Output>,
    /// Maps by name, at the end.
    pub maps: BTreeMap<String, Contents>,
    /// Signals in order.
    pub signals: Vec<Signal>,
    /// Exit status of `exit()`.
    pub exit: Option<i64>,
    /// Return values of tests, in order.
    pub returned: Vec<i64>,
    /// Non-zero failure counters.
    pub losses: BTreeMap<Loss, u64>,
}

impl Outcome {
    /// Adds to a counter.
    pub fn loss(&mut self, loss: Loss, count: u64) {
        if count > 0 {
            *self.losses.entry(loss).or_default() += count;
        }
    }

    /// Whether both outcomes have the same failures equally often. For reads of memory the count may be smaller,
    /// but not zero: an expression that occurs several times may be read once.
    fn has_losses_of(&self, other: &Outcome) -> bool {
        let reads = |outcome: &Outcome| outcome.losses.get(&Loss::UserRead).copied().unwrap_or(0);
        let (meant, did) = (reads(self), reads(other));
        let others = |outcome: &Outcome| {
            let mut losses = outcome.losses.clone();
            losses.remove(&Loss::UserRead);
            losses
        };
        did <= meant && (did == 0) == (meant == 0) && others(self) == others(other)
    }

    /// The first difference of `other` (the tested outcome) from this one (the expected outcome), as text.
    pub fn difference(&self, other: &Outcome) -> Option<String> {
        let different = self.output.iter().zip(&other.output).position(|(a, b)| a != b);
        if let Some(at) = different {
            return Some(format!("output {at}:\n  meant {}\n  did   {}", self.output[at], other.output[at]));
        }
        if self.output.len() != other.output.len() {
            let (meant, did) = (self.output.len(), other.output.len());
            let extra =
                self.output.get(did).or(other.output.get(meant)).map(Output::to_string).unwrap_or_default();
            return Some(format!("output: meant {meant} records, did {did}; first difference: {extra}"));
        }
        if !self.has_losses_of(other) {
            return Some(format!("losses:\n  meant {:?}\n  did   {:?}", self.losses, other.losses));
        }
        if self.signals != other.signals {
            return Some(format!("signals:\n  meant {:?}\n  did   {:?}", self.signals, other.signals));
        }
        if self.returned != other.returned {
            return Some(format!("returned: meant {:?}, did {:?}", self.returned, other.returned));
        }
        if self.exit != other.exit {
            return Some(format!("exit: meant {:?}, did {:?}", self.exit, other.exit));
        }
        self.maps.keys().chain(other.maps.keys()).find_map(|name| {
            let (meant, did) = (self.maps.get(name), other.maps.get(name));
            (meant != did).then(|| format!("@{name}:\n  meant {meant:?}\n  did   {did:?}"))
        })
    }
}

/// A decoded value with ids resolved to names. `frames` returns the addresses of a stack by map and id.
pub fn named(
    value: &wire::Value,
    manifest: &Manifest,
    frames: &dyn Fn(u32, u32) -> Option<Vec<u64>>,
) -> Value {
    let unknown = |what: &str, id: u32| format!("{what} {id} that the manifest lacks");
    match value {
        wire::Value::Bool(b) => Value::Bool(*b),
        wire::Value::Int(n, bytes) => Value::Int(*n, *bytes),
        wire::Value::Uint(n, bytes) => Value::Uint(*n, *bytes),
        wire::Value::Enum(id, n) => {
            let name = manifest.enums.get(*id as usize).map(|e| e.name.clone());
            Value::Enum(name.unwrap_or_else(|| unknown("enum", *id)), *n)
        }
        wire::Value::Pointer(p) => Value::Pointer(*p),
        wire::Value::Str(text, _) => Value::Str(text.clone()),
        wire::Value::Record(members) => {
            let member =
                |(name, value): &(String, wire::Value)| (name.clone(), named(value, manifest, frames));
            Value::Record(members.iter().map(member).collect())
        }
        wire::Value::Array(elements) => {
            Value::Array(elements.iter().map(|e| named(e, manifest, frames)).collect())
        }
        wire::Value::Tuple(parts) => Value::Tuple(parts.iter().map(|p| named(p, manifest, frames)).collect()),
        wire::Value::Name(kind, id) => {
            Value::Name(manifest.names.get(*kind, *id).map_or_else(|| unknown("name", *id), str::to_owned))
        }
        wire::Value::Usym { address, tgid } => Value::Usym(*address, *tgid),
        wire::Value::Stack { map, id, tgid, mode } => Value::Stack(frames(*map, *id), *tgid, *mode),
        wire::Value::Lookup(what, number) => Value::Lookup(*what, *number),
        wire::Value::Buf(bytes) => Value::Buf(bytes.clone()),
        wire::Value::Inet(family, bytes) => Value::Inet(*family, *bytes),
        wire::Value::Either(_, value, _) => named(value, manifest, frames),
        wire::Value::Timestamp(ns, format) => Value::Timestamp(*ns, format.clone()),
    }
}

/// Merges the words of a cell over all CPUs. `None` if it was never written.
pub fn merge(agg: &Agg, cells: &[Vec<u64>]) -> Option<Cell> {
    let total = |word: usize| cells.iter().fold(0u64, |sum, cell| sum.wrapping_add(cell[word]));
    let touched = cells.iter().filter(|cell| cell[0] != 0).map(|cell| cell[1]);
    Some(match agg {
        Agg::Count => Cell::Count(Some(total(0)).filter(|n| *n > 0)?),
        Agg::Sum { .. } if total(0) > 0 => Cell::Number(total(1) as i64),
        Agg::Avg { .. } | Agg::Stats { .. } if total(0) > 0 => Cell::Total(total(0), total(1) as i64),
        Agg::Min { signed: true } => Cell::Number(touched.map(|w| w as i64).min()?),
        Agg::Max { signed: true } => Cell::Number(touched.map(|w| w as i64).max()?),
        Agg::Min { signed: false } => Cell::Number(touched.min()? as i64),
        Agg::Max { signed: false } => Cell::Number(touched.max()? as i64),
        Agg::Hist { .. } | Agg::LHist { .. } => {
            let counts: Vec<u64> = (0..agg.buckets() as usize).map(total).collect();
            let sum = agg.sum_word().map(|word| total(word as usize) as i64);
            Cell::Buckets(Some(counts).filter(|counts| counts.iter().any(|n| *n > 0))?, sum)
        }
        Agg::TSeries { .. } => Cell::Series(Some(series::shown(agg, cells)).filter(|s| !s.is_empty())?),
        Agg::Sum { .. } | Agg::Avg { .. } | Agg::Stats { .. } => return None,
    })
}
