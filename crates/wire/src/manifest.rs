//! The manifest: everything that the loader and the reader need of a compiled script. It is passed beside the object, and is
//! also inside the object in section [`SECTION`].
//!
//! A running session can be extended by more objects, called modules. The manifest of a module starts with all entries of
//! the session before it (maps, events, counters and names keep their indices) and adds its own programs.

use crate::counter::Counter;
use crate::hook::Hook;
use crate::layout::Record;
use crate::map::Map;
pub use crate::place::{Place, SourceFile};
use crate::trigger::Trigger;
use crate::types::{MissingProbes, NameKind};
use serde::{Deserialize, Serialize};

/// Tracepoint of new tasks. Children are added before any probe of the script can run in them.
pub const TASK_BEGINS: &str = "task:task_newtask";
/// Tracepoint of ending tasks. The script's probes run before the process is removed.
pub const TASK_ENDS: &str = "sched:sched_process_exit";

/// Whether a tracepoint is [`TASK_ENDS`].
pub fn is_task_end(category: &str, event: &str) -> bool {
    TASK_ENDS.split_once(':') == Some((category, event))
}

/// Version of this format; a reader refuses other versions.
pub const VERSION: u32 = 24;
/// Bit of [`Manifest::gpu_kinds`]: the records need the time and the thread of the call that launched the work.
pub const GPU_LAUNCHES: u32 = 1 << 31;
/// Bit of [`Manifest::gpu_kinds`]: the records need the range of NVTX around that call.
pub const GPU_RANGES: u32 = 1 << 30;
/// Bit of [`Manifest::gpu_kinds`]: the records need the operator of PyTorch around that call.
pub const GPU_OPERATORS: u32 = 1 << 29;
/// ELF section with the manifest as JSON.
pub const SECTION: &str = ".cudatrace";
/// Name of the ring buffer's map.
pub const RING_MAP: &str = "ct_ring";
/// Hash map u32 tgid -> u64: the traced processes, and the number of threads of each, or [`UNCOUNTED`]. Programs
/// use it only if [`Manifest::pid_filter`]. A process is removed with its last thread. The tgid is that of the
/// tracer's pid namespace. If that is not the initial one, processes that programs add have the initial tgid with
/// [`GLOBAL_PID`].
pub const PIDS_MAP: &str = "ct_pids";
/// Number of threads of a process that was already running: large enough that the process is never removed.
pub const UNCOUNTED: u64 = 1 << 32;
/// Bit of a key of [`PIDS_MAP`] whose tgid is of the initial pid namespace, although the tracer is in another one.
pub const GLOBAL_PID: u32 = 1 << 31;
/// Array map with one cell, see [`CONTROL_*`](CONTROL_START); the runtime writes it before attaching.
pub const CONTROL_MAP: &str = "ct_control";
/// u64 in the control cell: boot-clock ns of the start, for `elapsed`.
pub const CONTROL_START: u32 = 0;
/// u64 in the control cell: non-zero after `exit(code)` ([`exit_code`]), or at the end of the session; from then
/// on probe bodies do nothing. END still runs.
pub const CONTROL_EXITED: u32 = 8;
/// u64 in the control cell: TAI minus boot clock, ns, for `nsecs(tai)`.
pub const CONTROL_TAI: u32 = 16;
/// u64 in the control cell: process that the tracer started, 0 if there is none, for `cpid`.
pub const CONTROL_CHILD: u32 = 24;
/// i64 in the control cell: return value of a test.
pub const CONTROL_RETURNED: u32 = 32;
/// Size of the control cell in bytes.
pub const CONTROL_SIZE: u32 = 40;

/// Value of [`CONTROL_EXITED`] when the runtime ends a session.
pub const STOPPED: u64 = 1;

/// `exit(code)` writes the code, shifted left by this number of bits, into [`CONTROL_EXITED`], with [`EXITED`]
/// below.
pub const EXIT_SHIFT: u32 = 2;
/// Low bits of [`CONTROL_EXITED`] after an `exit()`.
pub const EXITED: u64 = 3;

/// The code of the `exit()` that set [`CONTROL_EXITED`], if an `exit()` did.
pub fn exit_code(word: u64) -> Option<i64> {
    (word & EXITED == EXITED).then_some(word as i64 >> EXIT_SHIFT)
}

/// File id of sites in the kernel.
pub const KERNEL_FILE: u32 = u32::MAX;

/// A compiled script.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CompiledScript {
    /// Relocatable BPF object.
    pub elf: Vec<u8>,
    /// Description of the object.
    pub manifest: Manifest,
}

/// Description of a compiled object for the runtime and the reader; see the module documentation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// [`VERSION`]
    pub version: u32,
    /// Files of the scripts, those of earlier modules first; positions refer to them.
    #[serde(default)]
    pub sources: Vec<SourceFile>,
    /// Files with attach points; indices are the catalog's file ids.
    pub files: Vec<File>,
    /// Programs of this module.
    pub programs: Vec<Program>,
    /// Probe lists of the clauses of earlier modules, for messages.
    #[serde(default)]
    pub earlier: Vec<ProbeList>,
    /// Maps of the script.
    pub maps: Vec<Map>,
    /// Stack maps; the index is that in [`crate::Type::Stack`].
    pub stacks: Vec<StackMap>,
    /// Internal maps of the objects that run where this one does (scratch, call slots).
    pub internal_maps: Vec<String>,
    /// True if the programs of this module run in the traced processes.
    #[serde(default)]
    pub in_process: bool,
    /// Internal maps of the objects that run at the other place.
    #[serde(default)]
    pub internal_maps_elsewhere: Vec<String>,
    /// Kinds of records; the index is the event id.
    pub events: Vec<Event>,
    /// Counters; the index is that in the maps of counters.
    pub counters: Vec<Counter>,
    /// Tables of names.
    pub names: Names,
    /// Enums of printed values.
    pub enums: Vec<Enum>,
    /// Export of each map as a metric; maps after the end of the list have the default.
    #[serde(default)]
    pub metrics: Vec<Metric>,
    /// Maps whose keys begin with a process id; the keys are deleted when the process has ended.
    #[serde(default)]
    pub by_process: Vec<u32>,
    /// Maps that programs also read or delete keys from; only the runtime reads the other maps.
    #[serde(default)]
    pub read: Vec<u32>,
    /// Kinds of records of GPUs that the programs of this module need from the agent in the traced processes: bit N for kind
    /// number N, and [`GPU_LAUNCHES`], [`GPU_RANGES`], [`GPU_OPERATORS`].
    #[serde(default)]
    pub gpu_kinds: u32,
    /// True if programs ignore calls of processes that are not in [`PIDS_MAP`].
    pub pid_filter: bool,
    /// True if the maps are printed at the end.
    pub print_maps_on_exit: bool,
    /// Names of maps that are not printed at the end, because their script disables it.
    #[serde(default)]
    pub unprinted: Vec<String>,
    /// True if symbols are printed mangled, as in the symbol table.
    #[serde(default)]
    pub mangled: bool,
    /// True if stacks have source lines and inlined functions.
    #[serde(default)]
    pub source_lines: bool,
    /// Treatment of a clause of this module if the kernel refuses all its attach points.
    #[serde(default)]
    pub missing_probes: MissingProbes,
    /// Largest number of bytes that `cat` prints of a file.
    pub cat_bytes: u32,
    /// Text after a truncated string.
    pub truncation_trailer: String,
    /// Requested size of the ring buffer in bytes; 0: the runtime selects it.
    pub ring_bytes: u32,
}

impl Manifest {
    /// The file of a position, as messages show it.
    pub fn file_of(&self, place: Place) -> &str {
        self.sources.get(place.source as usize).map_or("script", |source| source.file.as_str())
    }

    /// Name of the script of a position, as its output shows it; empty if it is the only script.
    pub fn script_of(&self, place: Place) -> &str {
        self.sources.get(place.source as usize).map_or("", |source| source.script.as_str())
    }

    /// `line 3`; with several files `line 3 of leak.ct`.
    pub fn line_of(&self, place: Place) -> String {
        match self.sources.len() {
            0 | 1 => format!("line {}", place.line),
            _ => format!("line {} of {}", place.line, self.file_of(place)),
        }
    }

    /// The scripts with their first files, in order.
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

/// A file with attach points.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct File {
    /// The catalog's id.
    pub id: u32,
    /// Path as shown.
    pub path: String,
}

/// A stack map.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StackMap {
    /// Symbol in the object.
    pub symbol: String,
    /// True for user stacks, false for kernel stacks.
    pub user: bool,
    /// Largest number of frames.
    pub limit: u32,
    /// True for a hash of stacks that programs walk themselves (see [`crate::unwind`]), false for a stack map of
    /// the kernel.
    #[serde(default)]
    pub walked: bool,
}

/// A BPF program and its attach point.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// Symbol in the object.
    pub symbol: String,
    /// Index of the clause.
    pub clause: u32,
    /// Position of the clause.
    pub place: Place,
    /// The probe list of the clause as written, for messages.
    pub text: String,
    /// Attach point.
    pub attach: Attach,
    /// True for the side of a call that only stores or removes values for the side with the body, and for clauses that the
    /// script does not contain.
    #[serde(default)]
    pub auxiliary: bool,
}

/// The probe list of a clause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbeList {
    /// Index of the clause.
    pub clause: u32,
    /// Position of the clause.
    pub place: Place,
    /// Text as written.
    pub text: String,
}

/// Attach point of a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Attach {
    /// An event other than a call.
    Event(Trigger),
    /// Functions of files or of the kernel.
    Functions {
        /// How they are probed.
        hook: Hook,
        /// Side of the call.
        side: Side,
        /// The functions.
        sites: Vec<Site>,
    },
    /// The end of a process: the tracer runs the program when it notices it, if programs run in the traced processes.
    ProcessEnd,
    /// A tracepoint of new or ending tasks, which maintains [`PIDS_MAP`].
    Follow {
        /// [`TASK_BEGINS`] or [`TASK_ENDS`]
        tracepoint: String,
    },
}

/// Side of a call.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Side {
    /// Entry.
    Entry,
    /// Return.
    Return,
    /// Both sides, in a session program.
    Session,
}

/// One attach site.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Site {
    /// The catalog's id of the file; [`KERNEL_FILE`] for functions of the kernel.
    pub file: u32,
    /// Offset in the file; address of a function of the kernel.
    pub offset: u64,
    /// Attach cookie.
    pub cookie: u64,
    /// Index of the attach point's name in `names.probes`, for messages.
    pub probe: u32,
    /// Offset in the file of a 16-bit semaphore that the kernel increments while the site is probed; 0: none.
    #[serde(default)]
    pub semaphore: u64,
}

/// A kind of records.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Action of the reader.
    pub kind: EventKind,
    /// Layout of the values.
    pub record: Record,
    /// Position of the statement.
    pub place: Place,
}

/// Action of the reader for a record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EventKind {
    /// `printf`: one value per directive.
    Printf {
        /// Parsed format.
        format: Vec<Piece>,
    },
    /// `rows(top, "none", "name")`: prints the lines that were kept for it. A value is the number of further lines.
    Rows {
        /// Number of lines; 0: all.
        top: u32,
        /// Line to print if no lines were kept; empty: none.
        #[serde(default)]
        none: Vec<u8>,
        /// Name of the table for programs that read it; empty: none.
        name: String,
    },
    /// `errorf(format, ...)` and similar functions: one value per directive.
    Message {
        /// Use of the text.
        what: Message,
        /// Column after the statement; 0 if it ends on another line.
        end_column: u32,
        /// Parsed format.
        format: Vec<Piece>,
        /// Calls of the macros that the statement is in, the innermost first.
        #[serde(default)]
        calls: Vec<MacroCall>,
    },
    /// `print(e)`: one value.
    Print,
    /// `print(@m[k])` of an aggregation with several values: the parts of the key. The reader looks up the key.
    PrintEntry {
        /// Map index.
        map: u32,
    },
    /// `print(@m, top, div)`
    PrintMap {
        /// Map index.
        map: u32,
        /// Number of entries; 0: all.
        top: u32,
        /// Divisor; 0 means 1.
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
    /// `span(...)`, `event(...)`, `counter(...)`: input of the exporters. The values are those of `hidden` in
    /// their order, then one per entry of `keys`.
    Export {
        /// Which of the three.
        what: Export,
        /// The name, if it is constant. Otherwise it is among the values, or is the function's name.
        name: Option<String>,
        /// Values that the compiler added.
        hidden: Vec<HiddenValue>,
        /// Names of the script's own values.
        keys: Vec<String>,
    },
}

/// A call of a macro.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MacroCall {
    /// Position of the call.
    pub place: Place,
    /// Column after the call; 0 if it ends on another line.
    pub end_column: u32,
}

/// Kind of a record for the exporters.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Export {
    /// `span`: a call with start and duration.
    Span,
    /// `event`: a point in time.
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

/// A value of an exported record that the compiler adds.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HiddenValue {
    /// Start of the call, or of the work of a GPU, ns of the monotonic clock.
    Start,
    /// Start given by the script, ns of the boot clock.
    BootStart,
    /// Start of an event that encloses later calls of its thread, ns of the monotonic clock.
    EventStart,
    /// Duration of the call, ns.
    Duration,
    /// Start of the enclosing traced call on the same thread, ns of the monotonic clock; 0 if there is none.
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
    /// A name that is not a literal.
    Name,
    /// Value of a counter.
    Number,
}

/// Use of a formatted text.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Message {
    /// `errorf`: an error reported by the script, with its position.
    Error,
    /// `warnf`: a warning reported by the script, with its position.
    Warning,
    /// `cat`: the path of a file to print.
    Cat,
    /// `system`: a shell command whose output is printed.
    System,
    /// `join`: words that are printed as one line.
    Join,
    /// `row`: a line that the reader keeps for [`EventKind::Rows`]. The first value is the weight, an int64.
    Row,
    /// `heading`: a text for people; machine-readable formats omit it.
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
    /// Literal text, in which `%%` is already `%`.
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
    /// Minimum number of characters.
    pub width: u32,
    /// Minimum number of digits.
    pub precision: Option<u32>,
    /// Bytes of the length modifier (`hh`: 1, `h`: 2, others: 8); 0 without one.
    pub length: u8,
    /// The value is a register of unknown type, such as `arg0`: an `int` is its lower half.
    pub register: bool,
    /// The value is a string literal of the script: its control characters are not escaped.
    pub literal: bool,
    /// `d i u x X o c p s r`
    pub conversion: char,
}

/// Tables of names. An id is an index into the table of its kind, and belongs to a name, not to an attach point.
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
    /// The table of a kind of name.
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
    /// True if the script has `metric @m = { ... }`.
    pub declared: bool,
    /// Name in OpenTelemetry's notation, `gpu.cuda.memory.copies`; empty: derived from the map's name.
    pub name: String,
    /// Unit in UCUM, as in OpenTelemetry: `By`, `s`; empty: none.
    pub unit: String,
    /// Description; empty if there is none.
    pub help: String,
    /// Label of each part of the key; labels that are not declared are taken from the first use.
    pub labels: Vec<String>,
    /// Kind of its values; `None`: determined by the map's aggregation.
    pub kind: Option<MetricKind>,
    /// Divisor of the values; 0 means 1.
    pub divisor: u64,
}

/// Kind of the values of a metric, if it is not determined by the map.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MetricKind {
    /// Values that never fall.
    Counter,
    /// Values that rise and fall, and whose sum is meaningful.
    UpDownCounter,
    /// Values that rise and fall.
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
