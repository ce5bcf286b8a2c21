//! The manifest: everything that the loader and the reader need of a compiled script. It is passed beside the object, and is
//! also inside the object in section [`SECTION`].
//!
//! A running session can be extended by further objects, called modules. The manifest of a module starts with all entries of
//! the session before it (maps, events, counters and names keep their indices) and adds its own programs.

use crate::counter::Counter;
use crate::layout::Record;
use crate::map::Map;
use crate::types::NameKind;
use serde::{Deserialize, Serialize};

/// The tracepoint of new tasks. Children are followed before any probe of the script can hit.
pub const TASK_BEGINS: &str = "task:task_newtask";
/// The tracepoint of ending tasks. The script sees an end before the process is forgotten.
pub const TASK_ENDS: &str = "sched:sched_process_exit";

/// Version of this format; a reader refuses another.
pub const VERSION: u32 = 9;
/// ELF section with the manifest as JSON.
pub const SECTION: &str = ".cudatrace";
/// Name of the ring buffer's map.
pub const RING_MAP: &str = "ct_ring";
/// Hash map u32 tgid -> u64: the processes to trace, and how many threads each has, or [`UNCOUNTED`]. Programs look at it only
/// if [`Manifest::pid_filter`]. A process goes with its last thread. The tgid is that of the tracer's pid namespace; if that
/// is not the initial one, processes that programs enter have the initial one's and [`GLOBAL_PID`].
pub const PIDS_MAP: &str = "ct_pids";
/// Threads of a process that was running when it was entered: so many that it stays.
pub const UNCOUNTED: u64 = 1 << 32;
/// Bit of a key of [`PIDS_MAP`] that is a tgid of the initial pid namespace though the tracer is not in it.
pub const GLOBAL_PID: u32 = 1 << 31;
/// Array map with one cell, see [`CONTROL_*`](CONTROL_START): written by the runtime before attaching.
pub const CONTROL_MAP: &str = "ct_control";
/// u64 in the control cell: boot-clock ns of the start, for `elapsed`.
pub const CONTROL_START: u32 = 0;
/// u64 in the control cell: non-zero once `exit(code)` ran ([`exit_code`]), or when the runtime ends; probe bodies do nothing
/// from then on. END still runs.
pub const CONTROL_EXITED: u32 = 8;
/// u64 in the control cell: TAI minus boot clock, ns, for `nsecs(tai)`.
pub const CONTROL_TAI: u32 = 16;
/// u64 in the control cell: process that the tracer started, 0 if there is none, for `cpid`.
pub const CONTROL_CHILD: u32 = 24;
/// i64 in the control cell: what a test returned.
pub const CONTROL_RETURNED: u32 = 32;
/// Bytes of the control cell.
pub const CONTROL_SIZE: u32 = 40;

/// What [`CONTROL_EXITED`] holds when the runtime ends a run.
pub const STOPPED: u64 = 1;

/// `exit(code)` writes the code shifted up by so many bits into [`CONTROL_EXITED`], with [`EXITED`] below.
pub const EXIT_SHIFT: u32 = 2;
/// What is below the code of an `exit()`.
pub const EXITED: u64 = 3;

/// The code of the `exit()` that set [`CONTROL_EXITED`], if it was one.
pub fn exit_code(word: u64) -> Option<i64> {
    (word & EXITED == EXITED).then_some(word as i64 >> EXIT_SHIFT)
}

/// A compiled script.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Compiled {
    /// Relocatable BPF object.
    pub elf: Vec<u8>,
    /// What it contains.
    pub manifest: Manifest,
}

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// [`VERSION`]
    pub version: u32,
    /// Files of the scripts, those of earlier modules first; places name one of them.
    #[serde(default)]
    pub sources: Vec<SourceFile>,
    /// Files that attach points lie in; indices are the catalog's file ids.
    pub files: Vec<File>,
    /// Programs of this module.
    pub programs: Vec<Program>,
    /// Probe lists of the clauses of earlier modules, for messages.
    #[serde(default)]
    pub earlier: Vec<ProbeList>,
    /// Maps of the script.
    pub maps: Vec<Map>,
    /// Stack maps: name of each in the object and frames at most; index is that of [`crate::Type::Stack`].
    pub stacks: Vec<StackMap>,
    /// Other maps of the object, for completeness (scratch, call slots).
    pub internal_maps: Vec<String>,
    /// Kinds of record; the index is the event id.
    pub events: Vec<Event>,
    /// Counters; the index is that in the counters' map.
    pub counters: Vec<Counter>,
    /// Tables of names.
    pub names: Names,
    /// Enums of printed values.
    pub enums: Vec<Enum>,
    /// How each of the maps is exported as a metric; fewer than there are maps: the others have no wishes.
    #[serde(default)]
    pub metrics: Vec<Metric>,
    /// Maps whose keys begin with a process id, and are to be deleted when that process has ended.
    #[serde(default)]
    pub by_process: Vec<u32>,
    /// Maps that programs read themselves, or delete keys of; the reader is alone with the others.
    #[serde(default)]
    pub read: Vec<u32>,
    /// Programs drop calls of processes that are not in [`PIDS_MAP`].
    pub pid_filter: bool,
    /// Print the maps at the end.
    pub print_maps_on_exit: bool,
    /// Names of maps that are not, as their own script has it.
    #[serde(default)]
    pub unprinted: Vec<String>,
    /// Symbols print as they stand in the file's table.
    #[serde(default)]
    pub mangled: bool,
    /// Stacks have source lines and inlined functions.
    #[serde(default)]
    pub source_lines: bool,
    /// Bytes that `cat` prints of a file at most.
    pub cat_bytes: u32,
    /// What follows a cut string.
    pub truncation_trailer: String,
    /// Ring buffer size asked for in bytes; 0: the runtime chooses.
    pub ring_bytes: u32,
}

impl Manifest {
    /// The file that a place lies in, as messages name it.
    pub fn file_of(&self, place: Place) -> &str {
        self.sources.get(place.source as usize).map_or("script", |source| source.file.as_str())
    }

    /// The script that a place belongs to, as its output is headed; empty if it is the only one.
    pub fn script_of(&self, place: Place) -> &str {
        self.sources.get(place.source as usize).map_or("", |source| source.script.as_str())
    }

    /// `line 3`, of several files `line 3 of leak.ct`.
    pub fn line_of(&self, place: Place) -> String {
        match self.sources.len() {
            0 | 1 => format!("line {}", place.line),
            _ => format!("line {} of {}", place.line, self.file_of(place)),
        }
    }

    /// The scripts by the files that they begin with, in their order.
    pub fn scripts(&self) -> Vec<&str> {
        let mut scripts: Vec<(&str, &str)> = Vec::new();
        for SourceFile { script, file } in &self.sources {
            if scripts.iter().all(|(known, _)| known != script) {
                scripts.push((script, file));
            }
        }
        scripts.into_iter().map(|(_, file)| file).collect()
    }
}

/// A file of a script.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceFile {
    /// What lines of its script begin with beside those of others; empty if it is alone.
    pub script: String,
    /// Name of the file in messages.
    pub file: String,
}

/// Where something stands in a script.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Place {
    /// Index in [`Manifest::sources`].
    pub source: u32,
    /// From 1; 0: nowhere.
    pub line: u32,
    /// From 1.
    pub column: u32,
}

/// A file with attach points.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct File {
    /// The catalog's id.
    pub id: u32,
    /// As shown.
    pub path: String,
}

/// A stack map.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StackMap {
    /// In the object.
    pub symbol: String,
    /// User or kernel stacks.
    pub user: bool,
    /// Frames at most.
    pub limit: u32,
    /// A hash of stacks that programs walk themselves (see [`crate::unwind`]), not one of the kernel's stack maps.
    #[serde(default)]
    pub walked: bool,
}

/// A BPF program and what to attach it to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// Its symbol in the object.
    pub symbol: String,
    /// Index of the clause.
    pub clause: u32,
    /// The clause.
    pub place: Place,
    /// The clause's probe list as written, for messages.
    pub text: String,
    /// Where it runs.
    pub attach: Attach,
}

/// The probe list of a clause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbeList {
    /// Index of the clause.
    pub clause: u32,
    /// The clause.
    pub place: Place,
    /// As written.
    pub text: String,
}

/// Where a program runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Attach {
    /// Once before everything, by BPF_PROG_TEST_RUN (a raw tracepoint program).
    Begin,
    /// Once after everything is detached, likewise.
    End,
    /// When the tracer gets a signal, likewise.
    Signal {
        /// As Linux numbers it.
        number: i32,
    },
    /// When the user asks for it, likewise.
    Trial {
        /// What is asked.
        kind: Trial,
        /// `NAME` of `test:NAME`
        name: String,
    },
    /// On one CPU, a perf event program on the CPU clock.
    Interval {
        /// Nanoseconds.
        period_ns: u64,
    },
    /// On each CPU.
    Profile {
        /// `type` of the perf event: `PERF_TYPE_SOFTWARE`, `PERF_TYPE_HARDWARE`.
        kind: u32,
        /// `config` of the perf event: which counter.
        counter: u64,
        /// How much is counted between two samples; of clocks nanoseconds.
        period: u64,
    },
    /// A tracepoint of the kernel.
    Tracepoint {
        /// `sched`
        category: String,
        /// `sched_switch`
        event: String,
    },
    /// A tracepoint of the kernel, without a record.
    RawTracepoint {
        /// `sched_switch`
        event: String,
    },
    /// Functions of files.
    Uprobes {
        /// Which side.
        side: Side,
        /// The functions.
        sites: Vec<Site>,
    },
    /// A tracepoint of new and of ending tasks, to keep [`PIDS_MAP`] up to date.
    Follow {
        /// [`TASK_BEGINS`] or [`TASK_ENDS`]
        tracepoint: String,
    },
}

/// What a body is tried for.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Trial {
    /// `test:NAME`: whether it is right. It runs once.
    Test,
    /// `bench:NAME`: how long it takes. It runs often.
    Bench,
}

impl Trial {
    /// As scripts and options write it.
    pub fn word(self) -> &'static str {
        match self {
            Trial::Test => "test",
            Trial::Bench => "bench",
        }
    }
}

/// Which side of a call a program is for.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Side {
    /// Entry.
    Entry,
    /// Return.
    Return,
    /// Both, as a session program.
    Session,
}

/// One place to probe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Site {
    /// The catalog's id of the file.
    pub file: u32,
    /// Offset in the file.
    pub offset: u64,
    /// What the program finds as its attach cookie.
    pub cookie: u64,
    /// Index of the attach point's name in `names.probes`, for messages.
    pub probe: u32,
    /// Offset in the file of a 16-bit counter that the kernel raises while the place is probed; 0: there is none.
    #[serde(default)]
    pub semaphore: u64,
}

/// A kind of record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// What the reader does with it.
    pub kind: EventKind,
    /// Where its values lie.
    pub record: Record,
    /// The statement.
    pub place: Place,
}

/// What the reader does with a record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EventKind {
    /// `printf`: one value for each directive.
    Printf {
        /// Parsed format.
        format: Vec<Piece>,
    },
    /// `rows(top, "none")`: lines that were kept for it are printed. With a value: so many more there were.
    Rows {
        /// 0: all.
        top: u32,
        /// The line where none were kept; empty: none.
        #[serde(default)]
        none: Vec<u8>,
    },
    /// `errorf(format, ...)` and its like: one value for each directive.
    Message {
        /// What becomes of the text.
        what: Message,
        /// Column behind the statement, 0 if it ends on another line.
        end_column: u32,
        /// Parsed format.
        format: Vec<Piece>,
    },
    /// `print(e)`: one value.
    Print,
    /// `print(@m[k])` of an aggregation without a single value: the key's parts. The reader looks the key up.
    PrintEntry {
        /// Map index.
        map: u32,
    },
    /// `print(@m, top, div)`
    PrintMap {
        /// Map index.
        map: u32,
        /// 0: all.
        top: u32,
        /// 0 counts as 1.
        div: u32,
    },
    /// `clear(@m)`
    Clear {
        /// Map index.
        map: u32,
    },
    /// `zero(@m)`
    Zero {
        /// Map index.
        map: u32,
    },
    /// `exit(code)`: one int64 value.
    Exit,
    /// `time(format)`
    Time {
        /// strftime format.
        format: String,
    },
    /// `span(...)`, `event(...)`, `counter(...)`: what the sinks of `--export` take. The values are those of `hidden` in
    /// their order, then one for each of `keys`.
    Export {
        /// Which of the three.
        what: Export,
        /// The name, if it is the same each time; else it is among the values, or that of the function.
        name: Option<String>,
        /// What the script did not write.
        hidden: Vec<Hidden>,
        /// Names of the script's own values.
        keys: Vec<String>,
    },
}

/// What a record for the sinks of `--export` is.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Export {
    /// `span`: a call with start and duration.
    Span,
    /// `event`: a moment.
    Instant,
    /// `counter`: a number that changes with time.
    Counter,
}

impl Export {
    /// As scripts write it.
    pub fn function(self) -> &'static str {
        match self {
            Export::Span => "span",
            Export::Instant => "event",
            Export::Counter => "counter",
        }
    }
}

/// A value that a record for the sinks has without the script's doing.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Hidden {
    /// Start of the call, ns of the monotonic clock.
    Start,
    /// Start that the script gives, ns of the boot clock.
    BootStart,
    /// Duration of the call, ns.
    Duration,
    /// Start of the traced call around it on this thread, ns of the monotonic clock; 0 if there is none.
    ParentStart,
    /// `func`
    Func,
    /// `api`
    Api,
    /// `probe`
    Probe,
    /// `comm`
    Comm,
    /// `retval`
    Result,
    /// A name that is no literal.
    Name,
    /// A counter's number.
    Number,
}

/// What becomes of a formatted text.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Message {
    /// `errorf`: an error of the script, with its place.
    Error,
    /// `warnf`: a warning of the script, with its place.
    Warning,
    /// `cat`: the path of a file to print.
    Cat,
    /// `system`: a shell command whose output is printed.
    System,
    /// `join`: words, printed as a line.
    Join,
    /// `row`: a line that the reader keeps for [`EventKind::Rows`]. The weight, an int64, is the first of the values.
    Row,
    /// `heading`: a text for people, which formats for programs leave out.
    Heading,
}

impl Message {
    /// As scripts write it.
    pub fn function(self) -> &'static str {
        match self {
            Message::Error => "errorf",
            Message::Warning => "warnf",
            Message::Cat => "cat",
            Message::System => "system",
            Message::Join => "join",
            Message::Row => "row",
            Message::Heading => "heading",
        }
    }
}

/// Part of a printf format.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Piece {
    /// Text, `%%` already one `%`.
    Text(Vec<u8>),
    /// `%-8d`
    Directive(Directive),
}

/// A conversion of printf.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Directive {
    /// `-`
    pub left: bool,
    /// `+`
    pub plus: bool,
    /// blank
    pub space: bool,
    /// `#`
    pub alternate: bool,
    /// `0`
    pub zero: bool,
    /// Characters at least.
    pub width: u32,
    /// Digits at least.
    pub precision: Option<u32>,
    /// Bytes of the length (`hh`: 1, `h`: 2, others: 8); 0 without one.
    pub length: u8,
    /// The value is a register of unknown type, such as `arg0`: an `int` is its lower half.
    pub register: bool,
    /// The value is a string literal of the script: its control characters are not escaped.
    pub literal: bool,
    /// `d i u x X o c p s r`
    pub conversion: char,
}

/// Tables of names; an id indexes the table of its kind. Ids are per name, not per attach point.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Names {
    /// `func`
    pub funcs: Vec<String>,
    /// `api`
    pub apis: Vec<String>,
    /// `probe`
    pub probes: Vec<String>,
}

impl Names {
    /// The table of a kind.
    pub fn table(&self, kind: NameKind) -> &[String] {
        match kind {
            NameKind::Func => &self.funcs,
            NameKind::Api => &self.apis,
            NameKind::Probe => &self.probes,
        }
    }

    /// The name with this id, if there is one.
    pub fn get(&self, kind: NameKind, id: u32) -> Option<&str> {
        self.table(kind).get(id as usize).map(String::as_str)
    }
}

/// How a map is exported as a metric.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Metric {
    /// `metric @m = { ... }` is in the script.
    pub declared: bool,
    /// As OpenTelemetry writes names, `gpu.cuda.memory.copies`; empty: made from the map's.
    pub name: String,
    /// UCUM, as OpenTelemetry writes units: `By`, `s`; empty: none.
    pub unit: String,
    /// What it is, in words; empty: nothing is known.
    pub help: String,
    /// A name for each part of the key; those that are not declared come from the first use.
    pub labels: Vec<String>,
    /// What its values are; none: as the map's aggregation says.
    pub kind: Option<MetricKind>,
    /// Values are divided by it; 0 counts as 1.
    pub divisor: u64,
}

/// What the values of a metric are, where the map does not tell.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MetricKind {
    /// They never fall.
    Counter,
    /// They rise and fall, and sums of them mean something.
    UpDownCounter,
    /// They rise and fall.
    Gauge,
}

/// An enum of printed values.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Enum {
    /// `CUresult`
    pub name: String,
    /// Names by value, sorted by value.
    pub variants: Vec<(String, i64)>,
}

impl Enum {
    /// The (first) name of a value.
    pub fn name_of(&self, value: i64) -> Option<&str> {
        let at = self.variants.partition_point(|(_, v)| *v < value);
        self.variants.get(at).filter(|(_, v)| *v == value).map(|(name, _)| name.as_str())
    }
}
