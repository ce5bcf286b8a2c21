//! A self-contained record of one event: without ids that need the manifest.

use std::sync::Arc;
use wire::map::Agg;

use crate::Frame;

/// A record for exporters; see the module documentation.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// Kind, with the values of this kind.
    pub kind: Kind,
    /// Boot-clock ns; the start of a span.
    pub time_ns: u64,
    /// Thread; `None` for maps and for output at the end of the run.
    pub thread: Option<Arc<Thread>>,
    /// Attach point of a span, or of the probe that made another record. Empty if there is none.
    pub site: Arc<Site>,
    /// Name of a span, an instant or a counter; of a map, including `@`. Empty for text.
    pub name: Arc<str>,
    /// Values from the script, in their order.
    pub fields: Fields,
}

/// Field of a call whose thread the tracer delayed at its start, to attach to a library. The value is the delay in
/// ns before the call's time; the duration does not include it.
pub const WAITED: &str = "cudatrace_wait_ns";

/// Value of spans by which calls and work of a GPU find each other: CUPTI's correlation id.
pub(crate) const CORR: &str = "corr";

/// Largest time and duration in ns, 146 years. Traced processes write both, and so does whoever writes a recording; sums of two do not overflow.
const LARGEST_NS: u64 = 1 << 62;

/// Names of values, shared by all records of one statement.
pub type FieldNames = Arc<[Arc<str>]>;

/// Values with their names.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Fields {
    /// One name per value; `None` if there are no values.
    names: Option<FieldNames>,
    values: Vec<Data>,
}

/// The kinds of record.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// `span(...)`: a call.
    Span(Span),
    /// `event(...)`
    Instant {
        /// Id of the enclosing call, 0 if unknown.
        parent_id: u64,
    },
    /// `counter(...)`
    Counter {
        /// Current value.
        value: Data,
    },
    /// Output of `printf(...)` and similar functions, and reports of failures.
    Text(Text, String),
    /// A map, printed by the script or at the end.
    Table(Table),
}

/// A call.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// Duration in ns.
    pub duration_ns: u64,
    /// Id, not 0.
    pub span_id: u64,
    /// Id of the enclosing traced call on the same thread; 0 if there is none.
    pub parent_id: u64,
    /// Status.
    pub status: Status,
    /// Result, for functions of known APIs.
    pub result: Option<Data>,
    /// For work of a GPU: id of the call that launched it; 0 if it is not known.
    pub launch_id: u64,
}

impl Span {
    /// Whether the call had its intended effect, according to its result.
    pub fn works(&self) -> bool {
        self.status != Status::Error && !self.is_after_shutdown()
    }

    /// Whether the call came after the driver had shut down.
    pub fn is_after_shutdown(&self) -> bool {
        self.status == Status::Unset && self.result.is_some()
    }
}

/// Status of a call.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Status {
    /// Unknown, or the driver had shut down, which is neither success nor failure.
    #[default]
    Unset,
    /// Success. "Not ready" is also a success.
    Ok,
    /// Failure.
    Error,
}

/// Kinds of text.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Text {
    /// `printf`, `print`, `time`, `cat`, `system`
    Output,
    /// `warnf`
    Warning,
    /// `errorf`
    Error,
    /// A report of a loss or failure, with the number of occurrences.
    Loss(u64),
}

impl Text {
    /// Name of the kind.
    pub fn name(self) -> &'static str {
        match self {
            Text::Output => "printf",
            Text::Warning => "warning",
            Text::Error => "error",
            Text::Loss(_) => "trouble",
        }
    }
}

/// A thread; for work of a GPU a stream of a device, whose number is above those of threads ([`GpuStream`]).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Thread {
    /// Process id.
    pub pid: u32,
    /// Thread id.
    pub tid: u32,
    /// Name; empty if the script does not use it.
    pub comm: Arc<str>,
    /// File name of the program that the process runs; if unknown, the name of the thread.
    pub program: Arc<str>,
}

/// A stream of a device, as a number of a thread.
///
/// ```text
/// bit 30: 1   bits 16 to 29: device   bits 0 to 15: stream
/// ```
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct GpuStream {
    /// CUDA's number of the device in the process.
    pub device: u32,
    /// Number of the stream.
    pub stream: u32,
}

impl GpuStream {
    /// Threads have smaller numbers: at most 2^22.
    const MARK: u32 = 1 << 30;

    /// Number of the row of [`GpuStream::idle`].
    const IDLE: u32 = 0xfffe;

    /// Largest number of a device, and of a stream.
    const LARGEST: (u32, u32) = (0x3fff, 0xffff);

    /// A row for the times in which a device had no kernel.
    pub fn idle(device: u32) -> GpuStream {
        GpuStream { device, stream: GpuStream::IDLE }
    }

    /// A stream for all work of a process that is of more streams than are kept, or of a device with a number beyond sense.
    pub fn other() -> GpuStream {
        GpuStream { device: GpuStream::LARGEST.0, stream: GpuStream::LARGEST.1 }
    }

    /// Whether there is a number for the device.
    pub fn is_known(self) -> bool {
        self.device < GpuStream::LARGEST.0
    }

    /// The number of a thread for the stream.
    pub fn tid(self) -> u32 {
        GpuStream::MARK | (self.device & 0x3fff) << 16 | self.stream & 0xffff
    }

    /// The stream of a number; `None` for those of threads.
    pub fn of_tid(tid: u32) -> Option<GpuStream> {
        (tid & GpuStream::MARK != 0).then_some(GpuStream { device: tid >> 16 & 0x3fff, stream: tid & 0xffff })
    }
}

impl std::fmt::Display for GpuStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.stream {
            GpuStream::IDLE => write!(f, "GPU {} idle", self.device),
            stream => write!(f, "GPU {} stream {stream}", self.device),
        }
    }
}

/// An attach point.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Site {
    /// `cuMemAlloc_v2`
    pub func: Arc<str>,
    /// `cuMemAlloc`
    pub api: Arc<str>,
    /// `uretprobe:/usr/lib/libcuda.so.1:cuMemAlloc_v2`
    pub probe: Arc<str>,
}

impl Default for Site {
    fn default() -> Site {
        let none: Arc<str> = "".into();
        Site { func: none.clone(), api: none.clone(), probe: none }
    }
}

/// Contents of a map at one time.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// Aggregation; `None` if values were assigned.
    pub agg: Option<Agg>,
    /// Entries, in their display order.
    pub rows: Vec<Row>,
}

/// An entry of a map.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Parts of the key; empty for a scalar map.
    pub key: Vec<Data>,
    /// Value. For `stats` it is a map of `count`, `average` and `total`. For a histogram it is a list of
    /// `[low, high, count]` with inclusive bounds, where an open bound is `None`.
    pub value: Data,
}

/// A value with its type.
#[derive(Clone, Debug, PartialEq)]
pub enum Data {
    /// No value.
    None,
    /// `true`
    Bool(bool),
    /// A signed integer.
    Int(i64),
    /// An unsigned integer.
    Uint(u64),
    /// An address or handle, shown in hex.
    Handle(u64),
    /// A value of an enum.
    Enum(Arc<Enumerator>),
    /// Text; invalid UTF-8 was replaced by U+FFFD. Control characters are not escaped yet.
    Text(Arc<str>),
    /// Frames of a stack, innermost first.
    Stack(Arc<[Frame]>),
    /// An array or tuple.
    List(Vec<Data>),
    /// A record or struct.
    Map(Vec<(Arc<str>, Data)>),
}

/// A value of an enum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Enumerator {
    /// `CUresult`
    pub ty: Arc<str>,
    /// Name of the value, if it has one.
    pub name: Option<Arc<str>>,
    /// Number.
    pub value: i64,
}

impl Fields {
    /// Combines names and values by position; a name without a value, or a value without a name, is dropped.
    pub fn new(names: &FieldNames, values: Vec<Data>) -> Fields {
        if names.len() != values.len() {
            return names.iter().cloned().zip(values).collect();
        }
        Fields { names: (!values.is_empty()).then(|| names.clone()), values }
    }

    /// Whether there are no values.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Names.
    pub fn names(&self) -> &[Arc<str>] {
        self.names.as_deref().unwrap_or_default()
    }

    /// Values.
    pub fn values(&self) -> &[Data] {
        &self.values
    }

    /// Names with their values.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &Data)> {
        self.names().iter().zip(&self.values)
    }

    /// `bytes=4096` for each value.
    pub fn labels(&self) -> impl Iterator<Item = String> {
        self.iter().map(|(name, value)| format!("{name}={}", value.label()))
    }
}

impl FromIterator<(Arc<str>, Data)> for Fields {
    fn from_iter<I: IntoIterator<Item = (Arc<str>, Data)>>(fields: I) -> Fields {
        let (names, values): (Vec<_>, Vec<_>) = fields.into_iter().unzip();
        Fields { names: (!values.is_empty()).then(|| names.into()), values }
    }
}

impl Data {
    /// The value as a number, if it is one.
    pub fn number(&self) -> Option<i128> {
        match self {
            Data::Bool(value) => Some(i128::from(*value)),
            Data::Int(value) => Some(i128::from(*value)),
            Data::Enum(of) => Some(i128::from(of.value)),
            Data::Uint(value) | Data::Handle(value) => Some(i128::from(*value)),
            _ => None,
        }
    }
}

impl Record {
    /// The record with a time and a duration that can be added: others are those of no clock, such as the duration of work that ends
    /// before it begins.
    pub fn within_limits(mut self) -> Record {
        self.time_ns = self.time_ns.min(LARGEST_NS);
        if let Kind::Span(span) = &mut self.kind {
            span.duration_ns = span.duration_ns.min(LARGEST_NS);
        }
        self
    }

    /// The kind of a record of a GPU, `kernel` of `gpu:kernel`; `None` for others, such as ranges and operators, which the host makes.
    pub fn gpu_kind(&self) -> Option<&str> {
        self.site
            .probe
            .strip_prefix("gpu:")
            .filter(|kind| !["range", "operator", "annotation"].contains(kind))
    }

    /// Whether it is a range of the host: of NVTX, or a mark; an operator or an annotation of PyTorch.
    pub fn is_range(&self) -> bool {
        ["gpu:range", "gpu:operator", "gpu:annotation"].contains(&&*self.site.probe)
    }

    /// Whether it is a time in which a device had no kernel.
    pub fn is_idle(&self) -> bool {
        self.gpu_kind() == Some("idle")
    }

    /// The id of the call that launched work: for the work, and for the call itself if it tells its correlation id. Both are joined by it.
    pub fn launch(&self) -> Option<u64> {
        let span = self.span()?;
        match self.gpu_kind() {
            Some(_) => Some(span.launch_id).filter(|id| *id != 0),
            None => self.field(CORR).map(|_| span.span_id),
        }
    }

    /// The stream that did the work; `None` for calls, and if the script does not tell device and stream.
    pub fn gpu_stream(&self) -> Option<GpuStream> {
        self.thread.as_ref().and_then(|thread| GpuStream::of_tid(thread.tid))
    }

    /// The value of a field.
    pub fn field(&self, name: &str) -> Option<&Data> {
        let at = self.fields.names().iter().position(|known| &**known == name)?;
        self.fields.values.get(at)
    }

    /// Duration of a call in ns; 0 for other records.
    pub fn duration_ns(&self) -> u64 {
        self.span().map_or(0, |span| span.duration_ns)
    }

    /// The delay in ns by the tracer before a call, if there was one.
    pub fn waited_ns(&self) -> Option<u64> {
        self.field(WAITED).and_then(Data::number).and_then(|ns| u64::try_from(ns).ok())
    }

    /// The call, if the record is one.
    pub fn span(&self) -> Option<&Span> {
        match &self.kind {
            Kind::Span(span) => Some(span),
            _ => None,
        }
    }
}

/// Status for the result of a function. 0 is success in all APIs of CUDA and NCCL; a query of an earlier call's
/// error does not fail.
pub(crate) fn status_of(func: &str, name: Option<&str>, value: i64) -> Status {
    const ASK: [&str; 2] = ["cudaGetLastError", "cudaPeekAtLastError"];
    match (value, name) {
        (0, _) => Status::Ok,
        _ if ASK.contains(&func) => Status::Ok,
        (_, Some(name)) if cuda::errors::AFTER_SHUTDOWN.contains(&name) => Status::Unset,
        (_, Some(name)) if cuda::errors::is_fine(name) => Status::Ok,
        _ => Status::Error,
    }
}

impl Data {
    /// A one-line text.
    pub fn label(&self) -> String {
        let all = |parts: &[Data]| parts.iter().map(Data::label).collect::<Vec<_>>().join(", ");
        match self {
            Data::None => String::new(),
            Data::Bool(value) => value.to_string(),
            Data::Int(value) => value.to_string(),
            Data::Uint(value) => value.to_string(),
            Data::Handle(value) => format!("{value:#x}"),
            Data::Enum(of) => of.name.as_ref().map_or_else(|| of.value.to_string(), |name| name.to_string()),
            Data::Text(text) => text.to_string(),
            Data::Stack(frames) => frames.iter().map(Frame::label).collect::<Vec<_>>().join(" < "),
            Data::List(parts) => format!("[{}]", all(parts)),
            Data::Map(members) if is_dimensions(members) => {
                let parts: Vec<String> = members.iter().map(|(_, value)| value.label()).collect();
                format!("({})", parts.join(","))
            }
            Data::Map(members) => {
                let one = |(name, value): &(Arc<str>, Data)| format!("{name}={}", value.label());
                members.iter().map(one).collect::<Vec<_>>().join(" ")
            }
        }
    }
}

/// Whether the members are `x`, `y` and `z`, as of a grid, which prints as `(4,1,1)`.
pub(super) fn is_dimensions(members: &[(Arc<str>, Data)]) -> bool {
    members.iter().map(|(name, _)| &**name).eq(["x", "y", "z"])
}

impl Frame {
    /// Function name, otherwise file, otherwise address; of Python with the line: `step (train.py:42)`.
    pub fn label(&self) -> String {
        if let (Some(symbol), Some((_, line)), Some(file), true) =
            (&self.symbol, &self.source, self.file(), self.is_python())
        {
            return format!("{symbol} ({file}:{line})");
        }
        match (&self.symbol, wire::unwind::Stop::of(self.address), self.file()) {
            (Some(symbol), ..) => symbol.clone(),
            (None, Some(stop), _) => format!("[stack cut: {}]", stop.words()),
            (None, None, Some(file)) => format!("[{}]", file.trim_matches(['[', ']'])),
            (None, None, None) => format!("{:#x}", self.address),
        }
    }

    /// Whether the function is one of Python.
    pub fn is_python(&self) -> bool {
        wire::python::Frame::of(self.address).is_some()
    }

    /// File and offset: `libcuda.so.1+0x2724a`.
    pub fn place(&self) -> Option<String> {
        Some(format!("{}+{:#x}", crate::value::escape(self.file()?.as_bytes()), self.offset))
    }

    /// Name of the file without its directory.
    pub(crate) fn file(&self) -> Option<&str> {
        self.module.as_deref()?.rsplit('/').next()
    }
}
