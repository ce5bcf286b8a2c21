//! Reads recordings in Arrow's form; see [`columns`] for their rows.

use std::io::{ErrorKind, Read};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type, UInt32Type, UInt64Type};
use arrow_array::{
    ArrayAccessor, Int64Array, RecordBatch, StringArray, TypedDictionaryArray, UInt32Array, UInt64Array,
};
use arrow_ipc::reader::StreamDecoder;
use serde_json::Value;

use super::arrow_messages;
use super::lines::{self, Lines, NoRecording, Reader, Recording, RecordingEnd};
use crate::export::columns::{self, CallIds, GOES_ON, KERNEL, NUMBERS, STACK};
use crate::export::{Data, Enumerator, Fields, Kind, Record, Site, Span, Status, Text, Thread};

/// Passes the records of a recording to `to`.
pub(super) fn read(input: impl Read, to: &mut dyn Reader) -> Result<Recording, NoRecording> {
    let mut stream = Stream::open(input)?;
    let run = lines::first_line(stream.description.as_bytes())?;
    to.begin(&run);
    let mut rows = Rows { lines: Lines::default(), ids: CallIds::new(Arc::new(run.clone())) };
    let mut recording = Recording { run, ..Recording::default() };
    let mut number = 0;
    while let Some(batch) = stream.next() {
        let Some(columns) = Columns::of(&batch) else {
            recording.add_unreadable(number + 1, "a batch without the columns of a recording".into());
            return Ok(recording);
        };
        let mut batch = Batch { columns, schemas: vec![], args: vec![], stacks: vec![] };
        recording.ended = RecordingEnd::Cut;
        for row in 0..batch.columns.ts.len() {
            number += 1;
            match rows.row(&mut batch, row) {
                Ok(Row::Record(record)) => to.record(*record),
                Ok(Row::End(end)) => recording.ended = end,
                Ok(Row::Unknown) => {}
                Err(reason) => recording.add_unreadable(number, reason),
            }
        }
        if let Some(reason) = rows.lines.is_full() {
            recording.add_unreadable(number, reason);
            return Ok(recording);
        }
    }
    Ok(recording)
}

/// The description of the run.
pub(super) fn description(input: impl Read) -> Result<String, NoRecording> {
    Ok(Stream::open(input)?.description)
}

/// The batches of a stream.
struct Stream<R> {
    input: R,
    decoder: StreamDecoder,
    description: String,
}

impl<R: Read> Stream<R> {
    fn open(mut input: R) -> Result<Stream<R>, NoRecording> {
        let first = arrow_messages::next(&mut input).map_err(|error| match error.kind() {
            ErrorKind::InvalidData | ErrorKind::UnexpectedEof => NoRecording::Schema,
            _ => NoRecording::Io(error),
        })?;
        let mut decoder = StreamDecoder::new();
        let first = first.ok_or(NoRecording::Schema)?;
        let schema = arrow_messages::schema(&first).ok_or(NoRecording::Schema)?;
        let description = schema.metadata().get(columns::RUN).cloned();
        decoder.decode(&mut first.into()).map_err(|_| NoRecording::Schema)?;
        Ok(Stream { input, decoder, description: description.ok_or(NoRecording::Schema)? })
    }

    /// The next batch. A truncated file ends with an error; the batches before it are valid.
    fn next(&mut self) -> Option<RecordBatch> {
        while let Ok(Some(message)) = arrow_messages::next(&mut self.input) {
            match self.decoder.decode(&mut message.into()) {
                Ok(Some(batch)) => return Some(batch),
                // A dictionary.
                Ok(None) => {}
                Err(_) => return None,
            }
        }
        None
    }
}

/// Texts of a dictionary.
type Words<'b> = TypedDictionaryArray<'b, Int32Type, StringArray>;

/// The columns of a batch.
struct Columns<'b> {
    kind: Words<'b>,
    ts: &'b Int64Array,
    dur: &'b Int64Array,
    pid: &'b UInt32Array,
    tid: &'b UInt32Array,
    comm: Words<'b>,
    program: Words<'b>,
    name: Words<'b>,
    func: Words<'b>,
    api: Words<'b>,
    probe: Words<'b>,
    id: &'b UInt64Array,
    parent: &'b UInt64Array,
    launch: &'b UInt64Array,
    parent_ts: &'b Int64Array,
    status: Words<'b>,
    result_type: Words<'b>,
    result: Words<'b>,
    result_value: &'b Int64Array,
    numbers: [&'b UInt64Array; NUMBERS.len()],
    kernel: Words<'b>,
    /// Recordings of the first versions have no stacks.
    stack: Option<Words<'b>>,
    schema: Words<'b>,
    args: Words<'b>,
    count: &'b UInt64Array,
    text: &'b StringArray,
    value: &'b StringArray,
}

impl<'b> Columns<'b> {
    /// `None` if one is missing, or has another type.
    fn of(batch: &'b RecordBatch) -> Option<Columns<'b>> {
        let words = |name: &str| {
            batch.column_by_name(name)?.as_dictionary_opt::<Int32Type>()?.downcast_dict::<StringArray>()
        };
        let long = |name: &str| batch.column_by_name(name)?.as_primitive_opt::<UInt64Type>();
        let signed = |name: &str| batch.column_by_name(name)?.as_primitive_opt::<Int64Type>();
        let word = |name: &str| batch.column_by_name(name)?.as_primitive_opt::<UInt32Type>();
        let text = |name: &str| batch.column_by_name(name)?.as_string_opt::<i32>();
        let numbers: Option<Vec<&UInt64Array>> = NUMBERS.into_iter().map(long).collect();
        Some(Columns {
            kind: words("type")?,
            ts: signed("ts")?,
            dur: signed("dur")?,
            pid: word("pid")?,
            tid: word("tid")?,
            comm: words("comm")?,
            program: words("program")?,
            name: words("name")?,
            func: words("func")?,
            api: words("api")?,
            probe: words("probe")?,
            id: long("id")?,
            parent: long("parent")?,
            launch: long("launch")?,
            parent_ts: signed("parent_ts")?,
            status: words("status")?,
            result_type: words("result_type")?,
            result: words("result")?,
            result_value: signed("result_value")?,
            numbers: numbers?.try_into().ok()?,
            kernel: words(KERNEL)?,
            stack: words(STACK),
            schema: words("schema")?,
            args: words("args")?,
            count: long("count")?,
            text: text("text")?,
            value: text("value")?,
        })
    }
}

/// The value of a row, if it has one.
fn at<A: ArrayAccessor>(column: A, row: usize) -> Option<A::Item> {
    column.is_valid(row).then(|| column.value(row))
}

/// Number of a word in its dictionary.
fn key(words: &Words<'_>, row: usize) -> Option<usize> {
    at(words.keys(), row).and_then(|key| usize::try_from(key).ok())
}

/// A batch, with what its dictionaries say, parsed once.
struct Batch<'b> {
    columns: Columns<'b>,
    /// Names and types of values.
    schemas: Vec<Option<Arc<lines::Schema>>>,
    args: Vec<Option<Arc<Value>>>,
    stacks: Vec<Option<Arc<Data>>>,
}

/// The value that was made of the word of a row at its first use.
fn once<T>(
    made: &mut Vec<Option<Arc<T>>>,
    words: &Words<'_>,
    row: usize,
    make: impl FnOnce(&str) -> Result<T, String>,
) -> Result<Option<Arc<T>>, String> {
    let Some(key) = key(words, row) else { return Ok(None) };
    if made.len() <= key {
        made.resize(key + 1, None);
    }
    if made[key].is_none() {
        made[key] = Some(Arc::new(make(words.value(row))?));
    }
    Ok(made[key].clone())
}

enum Row {
    Record(Box<Record>),
    End(RecordingEnd),
    /// A kind of a later version.
    Unknown,
}

/// State of the reader.
struct Rows {
    lines: Lines,
    ids: CallIds,
}

impl Rows {
    fn row(&mut self, batch: &mut Batch<'_>, row: usize) -> Result<Row, String> {
        let columns = &batch.columns;
        let time_ns = at(columns.ts, row).ok_or("it has no time")? as u64;
        let thread = self.thread(columns, row);
        let kind = match at(columns.kind, row).ok_or("it has no `type`")? {
            "end" => {
                let (dropped, goes_on) =
                    (at(columns.count, row).unwrap_or(0), at(columns.name, row) == Some(GOES_ON));
                return Ok(Row::End(RecordingEnd::Whole { dropped, goes_on }));
            }
            "span" => Kind::Span(self.span(columns, row, thread.as_deref(), time_ns)?),
            "event" => Kind::Instant { parent_id: self.parent(columns, row, thread.as_deref()) },
            "counter" => Kind::Counter { value: self.lines.data(&json(columns, row)?, None) },
            "map" => Kind::Table(self.lines.table(&json(columns, row)?)),
            "printf" => Kind::Text(Text::Output, text(columns, row)),
            "warning" => Kind::Text(Text::Warning, text(columns, row)),
            "error" => Kind::Text(Text::Error, text(columns, row)),
            "trouble" => Kind::Text(Text::Loss(at(columns.count, row).unwrap_or(0)), text(columns, row)),
            _ => return Ok(Row::Unknown),
        };
        let mut word = |words: Words<'_>| self.lines.text(at(words, row).unwrap_or_default());
        let name = word(columns.name);
        let site = Site { func: word(columns.func), api: word(columns.api), probe: word(columns.probe) };
        let site = self.lines.site(site);
        let fields = self.fields(batch, row)?;
        let mut record = Record { kind, time_ns, thread, site, name, fields }.within_limits();
        self.set_launch(&mut record, at(batch.columns.launch, row));
        self.ids.note(&record);
        Ok(Row::Record(Box::new(record)))
    }

    fn thread(&mut self, columns: &Columns<'_>, row: usize) -> Option<Arc<Thread>> {
        let pid = at(columns.pid, row)?;
        let comm = self.lines.text(at(columns.comm, row).unwrap_or_default());
        let program =
            at(columns.program, row).map_or_else(|| comm.clone(), |program| self.lines.text(program));
        Some(self.lines.thread(Thread { pid, tid: at(columns.tid, row).unwrap_or(0), comm, program }))
    }

    fn parent(&self, columns: &Columns<'_>, row: usize, thread: Option<&Thread>) -> u64 {
        let start = || at(columns.parent_ts, row).map(|start| self.ids.of(thread, start as u64));
        at(columns.parent, row).or_else(start).unwrap_or(0)
    }

    fn span(
        &mut self,
        columns: &Columns<'_>,
        row: usize,
        thread: Option<&Thread>,
        time_ns: u64,
    ) -> Result<Span, String> {
        let result = at(columns.result_value, row).map(|value| {
            let ty = self.lines.text(at(columns.result_type, row).unwrap_or_default());
            let name = at(columns.result, row).map(|name| self.lines.text(name));
            Data::Enum(Arc::new(Enumerator { ty, name, value }))
        });
        Ok(Span {
            duration_ns: at(columns.dur, row).ok_or("a span without duration")? as u64,
            span_id: at(columns.id, row).unwrap_or_else(|| self.ids.of(thread, time_ns)),
            parent_id: self.parent(columns, row, thread),
            status: match at(columns.status, row) {
                Some("ok") => Status::Ok,
                Some("error") => Status::Error,
                _ => Status::Unset,
            },
            result,
            launch_id: 0,
        })
    }

    /// The call that launched the work, which its correlation id tells, unless the row does.
    fn set_launch(&self, record: &mut Record, stored: Option<u64>) {
        let known = || record.gpu_kind().and_then(|_| self.ids.launch(record));
        let launch = stored.or_else(known).unwrap_or(0);
        if let Kind::Span(span) = &mut record.kind {
            span.launch_id = launch;
        }
    }

    /// Values in the order of the script.
    fn fields(&mut self, batch: &mut Batch<'_>, row: usize) -> Result<Fields, String> {
        let Batch { columns, schemas, args, stacks } = batch;
        let parse = |text: &str| serde_json::from_str::<Value>(text).map_err(|error| error.to_string());
        let schema = once(schemas, &columns.schema, row, |text| Ok(self.lines.schema_of(&parse(text)?)))?;
        let Some(schema) = schema else { return Ok(Fields::default()) };
        let args = once(args, &columns.args, row, parse)?;
        let data = |text: &str| Ok(self.lines.data(&parse(text)?, Some("stack")));
        let stack = match &columns.stack {
            Some(words) => once(stacks, words, row, data)?,
            None => None,
        };
        let field = |(name, ty): &(Arc<str>, String)| {
            if let Some(column) = NUMBERS.iter().position(|column| *column == &**name)
                && let Some(number) = at(columns.numbers[column], row)
            {
                let value = match ty.as_str() {
                    "handle" => Data::Handle(number),
                    "int64" => Data::Int(number as i64),
                    _ => Data::Uint(number),
                };
                return Some((name.clone(), value));
            }
            if let (KERNEL, Some(kernel)) = (&**name, at(columns.kernel, row)) {
                return Some((name.clone(), Data::Text(self.lines.text(kernel))));
            }
            if let (STACK, Some(stack)) = (&**name, &stack) {
                return Some((name.clone(), Data::clone(stack)));
            }
            let value = args.as_ref()?.get(&**name)?;
            Some((name.clone(), self.lines.data(value, Some(ty))))
        };
        Ok(schema.iter().filter_map(field).collect())
    }
}

/// The value of a row that is JSON.
fn json(columns: &Columns<'_>, row: usize) -> Result<Value, String> {
    serde_json::from_str(at(columns.value, row).unwrap_or_default()).map_err(|error| error.to_string())
}

fn text(columns: &Columns<'_>, row: usize) -> String {
    at(columns.text, row).unwrap_or_default().to_owned()
}
