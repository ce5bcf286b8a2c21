//! Reads recordings of JSON lines, and what all readers share: the result, and texts that are kept once.

use std::hash::Hash;
use std::io::BufRead;
use std::sync::Arc;

use cuda::errors::AFTER_SHUTDOWN;
use foldhash::{HashMap, HashSet, HashSetExt};
use serde_json::Value;

use crate::Frame;
use crate::export::jsonl;
use crate::export::{
    Data, Enumerator, Fields, Kind, Record, Row, Run, Site, Span, Status, Table, Text, Thread,
};

/// End of a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RecordingEnd {
    /// The last line exists.
    Whole {
        /// Number of records that were dropped because the writer was too slow.
        dropped: u64,
        /// Whether the recording goes on in another file.
        goes_on: bool,
    },
    /// The last line is missing: the program that wrote it was interrupted.
    #[default]
    Cut,
}

/// Data of a recording besides the records.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recording {
    /// Description of the run, from the first line.
    pub run: Run,
    /// End.
    pub ended: RecordingEnd,
    /// Lines that are not records.
    pub unreadable: Option<UnreadableLines>,
}

/// Lines that are not records.
#[derive(Clone, Debug, PartialEq)]
pub struct UnreadableLines {
    /// Number of the first one.
    pub first: u64,
    /// The reason why the first one cannot be read.
    pub reason: String,
    /// Number of lines.
    pub count: u64,
}

impl Recording {
    /// Counts a line that is not a record.
    pub(super) fn add_unreadable(&mut self, number: u64, reason: String) {
        self.unreadable.get_or_insert(UnreadableLines { first: number, reason, count: 0 }).count += 1;
    }
}

/// The reason why a file is not a recording.
#[derive(Debug)]
pub enum NoRecording {
    /// The file cannot be read.
    Io(std::io::Error),
    /// The first line is invalid.
    FirstLine,
    /// The schema of an Arrow stream is damaged or cut off, or another one.
    Schema,
    /// The version is unsupported.
    Format(u64),
}

impl std::fmt::Display for NoRecording {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            NoRecording::Io(error) => write!(f, "{error}"),
            NoRecording::FirstLine => write!(
                f,
                "this is no recording: its first line is not that of `--export jsonl=FILE` or `cudatrace record`"
            ),
            NoRecording::Schema => write!(
                f,
                "this is no recording: it begins as an Arrow stream, but has not the schema of `cudatrace record`, or was cut off in it"
            ),
            NoRecording::Format(version) => {
                write!(f, "its format is {version}, and this cudatrace reads format {}", jsonl::VERSION)
            }
        }
    }
}

impl std::error::Error for NoRecording {}

/// Limit in bytes. A small compressed file may expand to one line that fills the memory.
const LONGEST_LINE: u64 = 16 << 20;
/// Limit in bytes of distinct names and threads, for the same reason: they are kept.
const MOST_KEPT: usize = 512 << 20;
/// Size of each kept object in addition to its text, in bytes.
const EACH_KEPT: usize = 256;

/// Receiver of the records of a recording.
pub trait Reader {
    /// Called once, before the first record.
    fn begin(&mut self, run: &Run);
    /// Called for each record in order.
    fn record(&mut self, record: Record);
}

/// Passes the records of a recording to `to`.
pub(super) fn read(lines: impl BufRead, to: &mut dyn Reader) -> Result<Recording, NoRecording> {
    read_keeping(MOST_KEPT, lines, to)
}

fn read_keeping(
    most_kept: usize,
    mut lines: impl BufRead,
    to: &mut dyn Reader,
) -> Result<Recording, NoRecording> {
    let mut line = Vec::new();
    read_line(&mut lines, &mut line).map_err(NoRecording::Io)?;
    let run = first_line(&line)?;
    to.begin(&run);
    let mut reader = Lines::default();
    let mut recording = Recording { run, ..Recording::default() };
    let mut number = 1;
    loop {
        line.clear();
        number += 1;
        // A truncated compressed file ends with an error; the lines before it are valid.
        let Ok(read) = read_line(&mut lines, &mut line) else { return Ok(recording) };
        if read as u64 == LONGEST_LINE {
            let reason = format!("a line of more than {} MB", LONGEST_LINE >> 20);
            recording.add_unreadable(number, reason);
            return Ok(recording);
        }
        if read == 0 || line.last() != Some(&b'\n') {
            return Ok(recording);
        }
        recording.ended = RecordingEnd::Cut;
        match serde_json::from_slice(&line)
            .map_err(|error| error.to_string())
            .and_then(|json| reader.line(json))
        {
            Ok(Line::Record(record)) => to.record(*record),
            Ok(Line::End(end)) => recording.ended = end,
            Ok(Line::Known) => {}
            Err(reason) => recording.add_unreadable(number, reason),
        }
        if let Some(reason) = reader.is_over(most_kept) {
            recording.add_unreadable(number, reason);
            return Ok(recording);
        }
    }
}

/// Reads a line; of a line longer than any record only the beginning.
fn read_line(lines: impl BufRead, line: &mut Vec<u8>) -> std::io::Result<usize> {
    lines.take(LONGEST_LINE).read_until(b'\n', line)
}

/// The first line of a recording.
pub(super) fn description(mut lines: impl BufRead) -> Result<String, NoRecording> {
    let mut line = Vec::new();
    read_line(&mut lines, &mut line).map_err(NoRecording::Io)?;
    first_line(&line)?;
    String::from_utf8(line).map_err(|_| NoRecording::FirstLine)
}

/// The run that a first line describes.
pub(super) fn first_line(line: &[u8]) -> Result<Run, NoRecording> {
    let json: Value = serde_json::from_slice(line).map_err(|_| NoRecording::FirstLine)?;
    let text = |key: &str| json[key].as_str().unwrap_or_default();
    if text("type") != "run" {
        return Err(NoRecording::FirstLine);
    }
    let format = integer(&json["format"]).unwrap_or(0) as u64;
    if format != u64::from(jsonl::VERSION) {
        return Err(NoRecording::Format(format));
    }
    // Sums of these do not overflow.
    let limits = i128::from(i64::MIN)..=i128::from(i64::MAX);
    let ns = |key: &str| integer(&json[key]).filter(|ns| limits.contains(ns)).unwrap_or(0);
    let boot = ns("boot_ns");
    let words = json["command"].as_array().cloned().unwrap_or_default();
    Ok(Run {
        id: u128::from_str_radix(text("id"), 16).unwrap_or(0),
        boot_at_wall_ns: ns("wall_ns") - boot,
        suspended_ns: (boot - ns("monotonic_ns")).max(0) as u64,
        start_ns: boot as u64,
        tool: text("tool").into(),
        host: text("host").into(),
        command: words.iter().filter_map(|word| word.as_str().map(str::to_owned)).collect(),
        script: text("script").into(),
        rank: json["rank"].as_u64().and_then(|rank| rank.try_into().ok()),
        environment: json["environment"]
            .as_object()
            .into_iter()
            .flatten()
            .filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())))
            .collect(),
    })
}

/// A number, or digits in a string.
fn integer(json: &Value) -> Option<i128> {
    match json {
        Value::Number(number) => number.as_i128(),
        Value::String(text) => text.parse().ok(),
        _ => None,
    }
}

fn hex(json: &Value) -> Option<u64> {
    u64::from_str_radix(json.as_str()?.strip_prefix("0x")?, 16).ok()
}

enum Line {
    Record(Box<Record>),
    End(RecordingEnd),
    /// A line that describes later records, or of a kind unknown to this version.
    Known,
}

/// Names and types of fields.
pub(super) type Schema = Vec<(Arc<str>, String)>;

/// Shared texts, threads and sites, which a reader keeps.
#[derive(Default)]
pub(super) struct Lines {
    texts: HashSet<Arc<str>>,
    /// Total size of the texts in bytes.
    text_bytes: usize,
    threads: Interner<Thread>,
    sites: Interner<Site>,
    schemas: HashMap<u64, Schema>,
}

/// Set of shared objects without duplicates.
struct Interner<T>(HashSet<Arc<T>>);

impl<T> Default for Interner<T> {
    fn default() -> Interner<T> {
        Interner(HashSet::new())
    }
}

impl<T: Eq + Hash> Interner<T> {
    fn of(&mut self, made: T) -> Arc<T> {
        if let Some(known) = self.0.get(&made) {
            return known.clone();
        }
        let made = Arc::new(made);
        self.0.insert(made.clone());
        made
    }
}

impl Lines {
    /// The reason to stop if more is kept than a file may make a reader keep.
    pub(super) fn is_full(&self) -> Option<String> {
        self.is_over(MOST_KEPT)
    }

    fn is_over(&self, most_kept: usize) -> Option<String> {
        let things = self.texts.len() + self.threads.0.len() + self.sites.0.len();
        let kept = self.text_bytes + EACH_KEPT * things;
        let text =
            || format!("more than {} MB of different names; what follows is left out", most_kept >> 20);
        (kept > most_kept).then(text)
    }

    /// The shared thread.
    pub(super) fn thread(&mut self, thread: Thread) -> Arc<Thread> {
        self.threads.of(thread)
    }

    /// The shared attach point.
    pub(super) fn site(&mut self, site: Site) -> Arc<Site> {
        self.sites.of(site)
    }

    /// The shared text.
    pub(super) fn text(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.texts.get(text) {
            return known.clone();
        }
        let made: Arc<str> = text.into();
        self.texts.insert(made.clone());
        self.text_bytes += text.len();
        made
    }

    fn member(&mut self, json: &Value, key: &str) -> Arc<str> {
        self.text(json[key].as_str().unwrap_or_default())
    }

    fn line(&mut self, json: Value) -> Result<Line, String> {
        let kind = json["type"].as_str().ok_or("it has no `type`")?;
        let kind = match kind {
            "run" => return Ok(Line::Known),
            "end" => {
                let dropped = integer(&json["dropped"]).unwrap_or(0) as u64;
                return Ok(Line::End(RecordingEnd::Whole { dropped, goes_on: json["goes_on"] == true }));
            }
            "schema" => {
                self.schema(&json);
                return Ok(Line::Known);
            }
            "span" => Kind::Span(self.span(&json).ok_or("a span without duration or id")?),
            "event" => Kind::Instant { parent_id: hex(&json["parent"]).unwrap_or(0) },
            "counter" => Kind::Counter { value: self.data(&json["value"], None) },
            "printf" => Kind::Text(Text::Output, message(&json)),
            "warning" => Kind::Text(Text::Warning, message(&json)),
            "error" => Kind::Text(Text::Error, message(&json)),
            "trouble" => Kind::Text(Text::Loss(integer(&json["count"]).unwrap_or(0) as u64), message(&json)),
            "map" => Kind::Table(self.table(&json)),
            _ => return Ok(Line::Known),
        };
        let time_ns = integer(&json["ts"]).ok_or("it has no time")? as u64;
        let id = |key: &str| integer(&json[key]).unwrap_or(0) as u32;
        let thread = json.get("pid").is_some().then(|| {
            let key = if json.get("program").is_some() { "program" } else { "comm" };
            let (comm, program) = (self.member(&json, "comm"), self.member(&json, key));
            self.threads.of(Thread { pid: id("pid"), tid: id("tid"), comm, program })
        });
        let site = Site {
            func: self.member(&json, "func"),
            api: self.member(&json, "api"),
            probe: self.member(&json, "probe"),
        };
        let site = self.sites.of(site);
        let (name, fields) = (self.member(&json, "name"), self.fields(&json));
        let record = Record { kind, time_ns, thread, site, name, fields };
        Ok(Line::Record(Box::new(record.within_limits())))
    }

    fn schema(&mut self, json: &Value) {
        let fields = self.schema_of(&json["fields"]);
        self.schemas.insert(integer(&json["id"]).unwrap_or(0) as u64, fields);
    }

    /// The schema of a list of names and types.
    pub(super) fn schema_of(&mut self, fields: &Value) -> Schema {
        let text = |json: &Value| json.as_str().unwrap_or_default().to_owned();
        let field = |field: &Value| (self.text(&text(&field[0])), text(&field[1]));
        fields.as_array().into_iter().flatten().map(field).collect()
    }

    /// Fields in the order of the file, which is that of the script.
    fn fields(&mut self, json: &Value) -> Fields {
        let Some(args) = json.get("args").and_then(Value::as_object) else { return Fields::default() };
        let schema = integer(&json["schema"]).map(|id| id as u64);
        let schema = schema.and_then(|id| self.schemas.get(&id)).cloned().unwrap_or_default();
        let field = |(name, ty): &(Arc<str>, String)| {
            let value = args.get(&**name)?;
            Some((name.clone(), self.data(value, Some(ty))))
        };
        schema.iter().filter_map(field).collect()
    }

    fn span(&mut self, json: &Value) -> Option<Span> {
        let after_shutdown = || AFTER_SHUTDOWN.contains(&json["result"]["name"].as_str().unwrap_or_default());
        let status = match json["status"].as_str()? {
            "ok" => Status::Ok,
            // Recordings of older versions mark these as errors.
            "error" if !after_shutdown() => Status::Error,
            _ => Status::Unset,
        };
        let result = json.get("result").map(|result| self.enumerator(result, result["enum"].as_str()));
        Some(Span {
            duration_ns: integer(&json["dur"])? as u64,
            span_id: hex(&json["id"])?,
            parent_id: hex(&json["parent"]).unwrap_or(0),
            status,
            result,
            launch_id: hex(&json["launch"]).unwrap_or(0),
        })
    }

    fn enumerator(&mut self, json: &Value, ty: Option<&str>) -> Data {
        Data::Enum(Arc::new(Enumerator {
            ty: self.text(ty.unwrap_or_default()),
            name: json["name"].as_str().map(|name| self.text(name)),
            value: integer(&json["value"]).unwrap_or(0) as i64,
        }))
    }

    /// The contents of a map.
    pub(super) fn table(&mut self, json: &Value) -> Table {
        let agg = jsonl::agg_named(json["made_by"].as_str().unwrap_or_default());
        let rows = json["rows"].as_array().cloned().unwrap_or_default();
        let row = |row: &Value, reader: &mut Lines| Row {
            key: row["key"].as_array().into_iter().flatten().map(|part| reader.data(part, None)).collect(),
            value: reader.data(&row["value"], None),
        };
        Table { agg, rows: rows.iter().map(|one| row(one, self)).collect() }
    }

    /// A value with a type, or with the type that its JSON suggests.
    pub(super) fn data(&mut self, json: &Value, ty: Option<&str>) -> Data {
        match (ty, json) {
            (_, Value::Null) => Data::None,
            (_, Value::Bool(value)) => Data::Bool(*value),
            (Some("string"), Value::String(text)) => Data::Text(self.text(text)),
            (Some("handle") | None, Value::String(_)) if hex(json).is_some() => {
                Data::Handle(hex(json).unwrap_or(0))
            }
            (Some("uint64"), json) => Data::Uint(integer(json).unwrap_or(0) as u64),
            (Some("int64"), json) => Data::Int(integer(json).unwrap_or(0) as i64),
            (_, Value::Number(number)) => match number.as_u64() {
                Some(value) => Data::Uint(value),
                None => Data::Int(number.as_i64().unwrap_or(0)),
            },
            (_, Value::String(text)) => Data::Text(self.text(text)),
            (Some("stack"), Value::Array(frames)) => Data::Stack(frames.iter().map(frame).collect()),
            (_, Value::Array(parts)) => Data::List(parts.iter().map(|part| self.data(part, None)).collect()),
            (ty, Value::Object(members)) => {
                let ty = ty.and_then(|ty| ty.strip_prefix("enum "));
                let is_enum =
                    members.len() == 2 && members.contains_key("name") && members.contains_key("value");
                match (ty, is_enum) {
                    (Some(_), _) | (None, true) => self.enumerator(json, ty),
                    _ => Data::Map(
                        members
                            .iter()
                            .map(|(name, value)| (self.text(name), self.data(value, None)))
                            .collect(),
                    ),
                }
            }
        }
    }
}

fn message(json: &Value) -> String {
    json["text"].as_str().unwrap_or_default().to_owned()
}

fn frame(json: &Value) -> Frame {
    let text = |key: &str| json[key].as_str().map(str::to_owned);
    Frame {
        address: hex(&json["pc"]).unwrap_or(0),
        symbol: text("symbol"),
        offset: integer(&json["offset"]).unwrap_or(0) as u64,
        module: text("module"),
        source: text("file").map(|file| (file, integer(&json["line"]).unwrap_or(0) as u32)),
        inlined: json["inlined"].as_bool().unwrap_or(false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct RecordCounter(usize);

    impl Reader for RecordCounter {
        fn begin(&mut self, _: &Run) {}
        fn record(&mut self, _: Record) {
            self.0 += 1;
        }
    }

    #[test]
    fn names_without_end_are_left_out_and_equal_ones_are_not() {
        let recording = |name: fn(u32) -> u32| -> String {
            let first = format!("{{\"type\":\"run\",\"format\":{}}}\n", jsonl::VERSION);
            let line = |n| format!("{{\"type\":\"event\",\"ts\":{n},\"name\":\"n{}\"}}\n", name(n));
            first + &(0..10_000).map(line).collect::<String>()
        };
        let read = |text: String| {
            let mut counted = RecordCounter(0);
            let read = read_keeping(1 << 20, text.as_bytes(), &mut counted).expect("a recording");
            (counted.0, read.unreadable)
        };
        assert_eq!(read(recording(|_| 7)), (10_000, None));
        let (records, unreadable) = read(recording(|n| n));
        assert!((3000..5000).contains(&records), "{records}");
        assert!(unreadable.expect("it was cut").reason.contains("different names"));
    }
}
