//! A self-contained record of one event: without ids that need the manifest.

use std::sync::Arc;
use wire::map::Agg;

use crate::Frame;

/// See the module.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// What it is.
    pub kind: Kind,
    /// Boot-clock ns; of a span its start.
    pub time_ns: u64,
    /// The thread; none for maps and for output at the end of the run.
    pub thread: Option<Arc<Thread>>,
    /// Stack of a span's call, or of the place where another record was made. Empty where there is none.
    pub site: Arc<Site>,
    /// Name of a span, an instant or a counter; of a map, with its `@`. Empty for text.
    pub name: Arc<str>,
    /// What the script added, in its order.
    pub fields: Fields,
}

/// Field of a call that began while the tracer kept its thread waiting, as it had to attach to a library first: ns before the
/// call's time, which are no part of its duration.
pub const WAITED: &str = "cudatrace_wait_ns";

/// Names of values, which all records of one statement share.
pub type FieldNames = Arc<[Arc<str>]>;

/// Values with their names.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Fields {
    /// As many as there are values; none where there are none.
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
        /// The call in which it was said, 0 if none is known.
        parent_id: u64,
    },
    /// `counter(...)`
    Counter {
        /// Its value now.
        value: Data,
    },
    /// `printf(...)` and its like, and what went wrong.
    Text(Text, String),
    /// A map, printed or at the end.
    Table(Table),
}

/// A call.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// ns.
    pub duration_ns: u64,
    /// Not 0.
    pub span_id: u64,
    /// The traced call around it on the same thread; 0 if there is none.
    pub parent_id: u64,
    /// How it ended.
    pub status: Status,
    /// The result, if it is one of an API that we know.
    pub result: Option<Data>,
}

impl Span {
    /// Whether it did what it is there for, as far as its result tells.
    pub fn works(&self) -> bool {
        self.status != Status::Error && !self.is_after_shutdown()
    }

    /// Whether the driver had shut down when it came.
    pub fn is_after_shutdown(&self) -> bool {
        self.status == Status::Unset && self.result.is_some()
    }
}

/// How a call ended.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Status {
    /// Nothing tells, or it came when the driver had shut down, which is neither.
    #[default]
    Unset,
    /// Its result says so. "Not ready" is an answer, not an error.
    Ok,
    /// Its result is an error.
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
    /// Something was lost or went wrong; the number is how often.
    Trouble(u64),
}

impl Text {
    /// In a word.
    pub fn name(self) -> &'static str {
        match self {
            Text::Output => "printf",
            Text::Warning => "warning",
            Text::Error => "error",
            Text::Trouble(_) => "trouble",
        }
    }
}

/// A thread.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Thread {
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// Its name; empty where it was not asked for.
    pub comm: Arc<str>,
    /// File name of the program that the process runs; where it is not known, the name of the thread.
    pub program: Arc<str>,
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

/// A map at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// How its values came to be; nothing: they were assigned.
    pub agg: Option<Agg>,
    /// Its entries, in the order in which they are shown.
    pub rows: Vec<Row>,
}

/// An entry of a map.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Parts of the key; empty for a map without.
    pub key: Vec<Data>,
    /// Its value: of `stats` a map of `count`, `average` and `total`, of a histogram a list of `[low, high, count]` with
    /// inclusive bounds, an open one being `None`.
    pub value: Data,
}

/// A value with its type.
#[derive(Clone, Debug, PartialEq)]
pub enum Data {
    /// Nothing there.
    None,
    /// `true`
    Bool(bool),
    /// Signed.
    Int(i64),
    /// Unsigned.
    Uint(u64),
    /// An address or handle; shown in hex.
    Handle(u64),
    /// A value of an enum.
    Enum(Arc<Enumerator>),
    /// Text; what was not UTF-8 in it has become U+FFFD. Control characters are still in it.
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
    /// Nothing if the value has no name.
    pub name: Option<Arc<str>>,
    /// The number.
    pub value: i64,
}

impl Fields {
    /// Values in the order of their names; what has no name is left out, and what has no value too.
    pub fn new(names: &FieldNames, values: Vec<Data>) -> Fields {
        if names.len() != values.len() {
            return names.iter().cloned().zip(values).collect();
        }
        Fields { names: (!values.is_empty()).then(|| names.clone()), values }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Their names.
    pub fn names(&self) -> &[Arc<str>] {
        self.names.as_deref().unwrap_or_default()
    }

    /// Their values.
    pub fn values(&self) -> &[Data] {
        &self.values
    }

    /// Each with its name.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &Data)> {
        self.names().iter().zip(&self.values)
    }

    /// `bytes=4096`, each.
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
    /// The number that it is.
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
    /// The value of a field.
    pub fn field(&self, name: &str) -> Option<&Data> {
        let at = self.fields.names().iter().position(|known| &**known == name)?;
        self.fields.values.get(at)
    }

    /// ns of a call; 0 of what is none.
    pub fn duration_ns(&self) -> u64 {
        self.span().map_or(0, |span| span.duration_ns)
    }

    /// ns that its thread waited for the tracer before a call, if it did.
    pub fn waited_ns(&self) -> Option<u64> {
        self.field(WAITED).and_then(Data::number).and_then(|ns| u64::try_from(ns).ok())
    }

    /// The call that it is, if it is one.
    pub fn span(&self) -> Option<&Span> {
        match &self.kind {
            Kind::Span(span) => Some(span),
            _ => None,
        }
    }
}

/// What a function's result says. 0 is success in all APIs of CUDA and NCCL; who asks for an earlier call's error does not fail.
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
    /// One line for people.
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

/// `x`, `y` and `z`, as a grid has them: `(4,1,1)` says as much.
fn is_dimensions(members: &[(Arc<str>, Data)]) -> bool {
    members.iter().map(|(name, _)| &**name).eq(["x", "y", "z"])
}

impl Frame {
    /// Its name, or its file, or its address.
    pub fn label(&self) -> String {
        match (&self.symbol, wire::unwind::Stop::of(self.address), self.file()) {
            (Some(symbol), ..) => symbol.clone(),
            (None, Some(stop), _) => format!("[stack cut: {}]", stop.words()),
            (None, None, Some(file)) => format!("[{}]", file.trim_matches(['[', ']'])),
            (None, None, None) => format!("{:#x}", self.address),
        }
    }

    /// Where in which file it lies: `libcuda.so.1+0x2724a`.
    pub fn place(&self) -> Option<String> {
        Some(format!("{}+{:#x}", crate::value::escape(self.file()?.as_bytes()), self.offset))
    }

    /// The file's name without its directory.
    fn file(&self) -> Option<&str> {
        self.module.as_deref()?.rsplit('/').next()
    }
}
