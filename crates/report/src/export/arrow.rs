//! A stream of Apache Arrow, compressed: the form of recordings. It takes some 6 to 12 bytes a record, and pyarrow, polars and DuckDB
//! read it; see [`columns`](super::columns) for its rows.
//!
//! Rows are written in batches, each of which can be read without the later ones: a file that ends in the middle, after SIGKILL or a full
//! disk, is valid up to its last batch.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow_array::builder::{
    ArrayBuilder, Int64Builder, StringBuilder, StringDictionaryBuilder, UInt32Builder, UInt64Builder,
};
use arrow_array::types::Int32Type;
use arrow_array::{ArrayRef, RecordBatch};
use arrow_ipc::CompressionType;
use arrow_ipc::writer::{IpcWriteOptions, StreamWriter};
use arrow_schema::{ArrowError, SchemaRef};

use super::columns::{self, CallIds, GOES_ON, KERNEL, NUMBERS, STACK};
use super::format::Out;
use super::record::{Data, Fields, Kind, Record, Span, Text};
use super::{End, Exporter, Format, Run, json, jsonl};

/// Rows of a batch, at most.
pub(super) const ROWS: usize = 1 << 16;
/// Rows that are written only after some time, since a batch has kilobytes of its own; and that time, which is what a crash takes at most.
const FEW: usize = 1 << 12;
const LONGEST: Duration = Duration::from_secs(5);

/// `--export arrow=FILE`
pub const FORMAT: Format = Format {
    name: "arrow",
    file: "FILE.arrows",
    doc: "the recording in columns, compressed, for `cudatrace report`, DuckDB, polars and pyarrow",
    look: Some("cudatrace report FILE --html trace.html"),
    end: b"",
    create: |out, run| Ok(Box::new(Arrow::new(out, run)?)),
};

/// Exporter of columns to `out`.
pub struct Arrow<W: Write = Out> {
    out: StreamWriter<W>,
    rows: Rows,
    ids: CallIds,
}

impl<W: Write + Send> Arrow<W> {
    /// Writes the schema, with the description of the run.
    ///
    /// # Errors
    /// Errors of `out`.
    pub fn new(out: W, run: &Arc<Run>) -> io::Result<Arrow<W>> {
        let schema = Arc::new(columns::schema(jsonl::run_line(run).trim_end().to_owned()));
        let options = IpcWriteOptions::default().try_with_compression(Some(CompressionType::ZSTD));
        let options = options.map_err(failure)?;
        let out = StreamWriter::try_new_with_options(out, &schema, options).map_err(failure)?;
        Ok(Arrow { out, rows: Rows::new(schema, false), ids: CallIds::new(run.clone()) })
    }

    /// Writes the rows of the present batch.
    fn write(&mut self) -> io::Result<()> {
        if self.rows.count > 0 {
            let batch = self.rows.take().map_err(failure)?;
            self.out.write(&batch).map_err(failure)?;
        }
        Ok(())
    }
}

impl<W: Write + Send> Exporter for Arrow<W> {
    fn record(&mut self, record: &Record) -> io::Result<()> {
        self.rows.add(record, &self.ids);
        self.ids.note(record);
        if self.rows.count == ROWS { self.write() } else { Ok(()) }
    }

    fn pending(&self) -> u64 {
        self.rows.count as u64
    }

    fn catch_up(&mut self) -> io::Result<bool> {
        // A batch has some kilobytes beside its rows.
        let is_due = self.rows.count >= FEW || self.rows.count > 0 && self.rows.begun.elapsed() >= LONGEST;
        if is_due {
            self.flush()?;
        }
        Ok(self.rows.count == 0)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.write()?;
        self.out.flush().map_err(failure)
    }

    fn finish(&mut self, end: &End) -> io::Result<()> {
        if !end.is_cut {
            self.rows.end(end, &self.ids);
        }
        self.write()?;
        self.out.finish().map_err(failure)?;
        self.out.flush().map_err(failure)
    }
}

pub(super) fn failure(error: ArrowError) -> io::Error {
    match error {
        ArrowError::IoError(_, error) => error,
        other => io::Error::other(other),
    }
}

/// Texts of which there are few.
type Words = StringDictionaryBuilder<Int32Type>;

/// The columns of a batch, which [`columns::schema`] has in this order.
#[derive(Default)]
struct Builders {
    kind: Words,
    ts: Int64Builder,
    dur: Int64Builder,
    pid: UInt32Builder,
    tid: UInt32Builder,
    comm: Words,
    program: Words,
    name: Words,
    func: Words,
    api: Words,
    probe: Words,
    id: UInt64Builder,
    parent: UInt64Builder,
    launch: UInt64Builder,
    parent_ts: Int64Builder,
    status: Words,
    result_type: Words,
    result: Words,
    result_value: Int64Builder,
    numbers: [UInt64Builder; NUMBERS.len()],
    kernel: Words,
    stack: Words,
    fields: Words,
    args: Words,
    losses: UInt64Builder,
    printed: StringBuilder,
    value: StringBuilder,
}

impl Builders {
    fn finish(&mut self) -> Vec<ArrayRef> {
        let before: [&mut dyn ArrayBuilder; 19] = [
            &mut self.kind,
            &mut self.ts,
            &mut self.dur,
            &mut self.pid,
            &mut self.tid,
            &mut self.comm,
            &mut self.program,
            &mut self.name,
            &mut self.func,
            &mut self.api,
            &mut self.probe,
            &mut self.id,
            &mut self.parent,
            &mut self.launch,
            &mut self.parent_ts,
            &mut self.status,
            &mut self.result_type,
            &mut self.result,
            &mut self.result_value,
        ];
        let numbers = self.numbers.iter_mut().map(|column| column as &mut dyn ArrayBuilder);
        let after: [&mut dyn ArrayBuilder; 7] = [
            &mut self.kernel,
            &mut self.stack,
            &mut self.fields,
            &mut self.args,
            &mut self.losses,
            &mut self.printed,
            &mut self.value,
        ];
        before.into_iter().chain(numbers).chain(after).map(ArrayBuilder::finish).collect()
    }
}

/// The rows of a batch.
pub(super) struct Rows {
    schema: SchemaRef,
    /// Number of rows.
    pub(super) count: usize,
    /// Whether ids are stored that others tell.
    has_all_ids: bool,
    /// When the first row was added.
    begun: Instant,
    /// Names and types of statements, with their text.
    schemas: Vec<(jsonl::Schema, String)>,
    columns: Builders,
}

impl Rows {
    /// No rows yet. If `has_all_ids`, each row has its ids; otherwise those that [`CallIds`] restores are left out.
    pub(super) fn new(schema: SchemaRef, has_all_ids: bool) -> Rows {
        let (schemas, columns) = Default::default();
        Rows { schema, count: 0, has_all_ids, begun: Instant::now(), schemas, columns }
    }

    /// Adds a record.
    pub(super) fn add(&mut self, record: &Record, ids: &CallIds) {
        self.add_as(jsonl::type_of(&record.kind), record, ids);
    }

    fn add_as(&mut self, kind: &str, record: &Record, ids: &CallIds) {
        if self.count == 0 {
            self.begun = Instant::now();
        }
        self.count += 1;
        self.columns.kind.append_value(kind);
        self.columns.ts.append_value(record.time_ns as i64);
        let thread = record.thread.as_deref();
        self.columns.pid.append_option(thread.map(|thread| thread.pid));
        self.columns.tid.append_option(thread.map(|thread| thread.tid));
        self.columns.comm.append_option(thread.map(|thread| &*thread.comm));
        let program = thread
            .map(|thread| &*thread.program)
            .filter(|program| Some(*program) != thread.map(|thread| &*thread.comm));
        self.columns.program.append_option(program);
        let site = &record.site;
        for (words, text) in [
            (&mut self.columns.name, &record.name),
            (&mut self.columns.func, &site.func),
            (&mut self.columns.api, &site.api),
            (&mut self.columns.probe, &site.probe),
        ] {
            words.append_option(Some(&**text).filter(|text| !text.is_empty()));
        }
        self.add_kind(record, ids);
        self.add_fields(&record.fields);
    }

    fn add_kind(&mut self, record: &Record, ids: &CallIds) {
        let span = record.span();
        self.columns.dur.append_option(span.map(|span| span.duration_ns as i64));
        self.add_ids(record, ids);
        self.columns.status.append_option(span.map(|span| jsonl::status_name(span.status)));
        let result = span.and_then(|span| match &span.result {
            Some(Data::Enum(result)) => Some(result),
            _ => None,
        });
        self.columns.result_type.append_option(result.map(|result| &*result.ty));
        self.columns.result.append_option(result.and_then(|result| result.name.as_deref()));
        self.columns.result_value.append_option(result.map(|result| result.value));
        let (loss, printed) = match &record.kind {
            Kind::Text(Text::Loss(count), text) => (Some(*count), Some(text)),
            Kind::Text(_, text) => (None, Some(text)),
            _ => (None, None),
        };
        self.columns.losses.append_option(loss);
        self.columns.printed.append_option(printed);
        self.columns.value.append_option(match &record.kind {
            Kind::Counter { value } => Some(written(|text| json::data(text, value))),
            Kind::Table(table) => Some(written(|text| {
                text.push('{');
                jsonl::write_table(text, table);
                text.push('}');
            })),
            _ => None,
        });
    }

    /// Ids, as far as thread, start and correlation id do not tell them.
    fn add_ids(&mut self, record: &Record, ids: &CallIds) {
        let (thread, has_all) = (record.thread.as_deref(), self.has_all_ids);
        let own = record.span().map(|span| span.span_id);
        self.columns.id.append_option(own.filter(|id| has_all || ids.of(thread, record.time_ns) != *id));
        let parent = match &record.kind {
            Kind::Span(Span { parent_id, .. }) | Kind::Instant { parent_id } => *parent_id,
            _ => 0,
        };
        let start = Some(parent).filter(|parent| *parent != 0).and_then(|parent| ids.start(thread, parent));
        self.columns.parent_ts.append_option(start.map(|start| start as i64));
        self.columns.parent.append_option((parent != 0 && (has_all || start.is_none())).then_some(parent));
        let launch = record.span().map_or(0, |span| span.launch_id);
        let known = match has_all {
            true => 0,
            false => record.gpu_kind().and_then(|_| ids.launch(record)).unwrap_or(0),
        };
        self.columns.launch.append_option((launch != known).then_some(launch));
    }

    fn add_fields(&mut self, fields: &Fields) {
        let mut numbers = [None; NUMBERS.len()];
        let (mut kernel, mut stack) = (None, None);
        let mut others = Vec::new();
        for (name, value) in fields.iter() {
            let column = NUMBERS.iter().position(|column| *column == &**name);
            match (column, columns::number(value), value) {
                (Some(column), Some(number), _) => numbers[column] = Some(number),
                (None, _, Data::Text(text)) if &**name == KERNEL => kernel = Some(&**text),
                (None, _, Data::Stack(_)) if &**name == STACK => stack = Some(value),
                _ => others.push((&**name, value)),
            }
        }
        self.columns
            .numbers
            .iter_mut()
            .zip(numbers)
            .for_each(|(column, number)| column.append_option(number));
        self.columns.kernel.append_option(kernel);
        let stack = stack.map(|stack| written(|text| json::data(text, stack)));
        self.columns.stack.append_option(stack);
        self.columns
            .fields
            .append_option((!fields.is_empty()).then(|| schema_text(&mut self.schemas, fields)));
        self.columns.args.append_option(
            (!others.is_empty()).then(|| written(|text| json::object(text, others.into_iter(), json::data))),
        );
    }

    /// Adds the last row.
    fn end(&mut self, end: &End, ids: &CallIds) {
        let name = if end.goes_on { GOES_ON } else { "" };
        let kind = Kind::Text(Text::Loss(end.dropped), String::new());
        let (site, name) = (Default::default(), name.into());
        let row = Record { kind, time_ns: 0, thread: None, site, name, fields: Fields::default() };
        self.add_as("end", &row, ids);
    }

    /// The batch; the next one begins.
    pub(super) fn take(&mut self) -> Result<RecordBatch, ArrowError> {
        self.count = 0;
        RecordBatch::try_new(self.schema.clone(), self.columns.finish())
    }
}

/// A text that is appended to by `write`.
fn written(write: impl FnOnce(&mut String)) -> String {
    let mut text = String::new();
    write(&mut text);
    text
}

/// Names and types of fields as text.
fn schema_text<'s>(schemas: &'s mut Vec<(jsonl::Schema, String)>, fields: &Fields) -> &'s str {
    let known = schemas.iter().position(|(schema, _)| schema.is_of(fields));
    let at = known.unwrap_or_else(|| {
        let schema = jsonl::Schema::of(fields);
        let text = schema.text();
        schemas.push((schema, text));
        schemas.len() - 1
    });
    &schemas[at].1
}
