//! One typed record a line: the recording that `cudatrace report` reads.
//!
//! ```text
//! {"type":"run","format":1,...,"boot_ns":5,"monotonic_ns":5,"wall_ns":"1700000000000000005"}
//! {"type":"schema","id":0,"fields":[["bytes","uint64"],["kind","enum CUmemorytype"]]}
//! {"type":"span","ts":7,"dur":3,"pid":1,"tid":1,"comm":"a","name":"cuInit",...,"id":"0x1","parent":"0x0","status":"ok"}
//! {"type":"end","dropped":0}
//! ```
//!
//! Times are ns of the boot clock; the first line relates it to the others. A line with fields of the script names the schema
//! that has their types. Integers beyond 2^53 are strings of digits, handles strings of hex. A file without its last line was
//! cut off, and is right up to there.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::sync::Arc;

use wire::map::Agg;

use super::record::{Data, Kind, Record, Span, Status, Table, Text};
use super::{End, Exporter, Run, json};

/// Version of the lines.
pub const FORMAT: u32 = 1;

/// Lines to `out`.
pub struct Jsonl<W> {
    out: W,
    line: String,
    schemas: Vec<Vec<(Arc<str>, String)>>,
}

impl<W: Write + Send> Jsonl<W> {
    /// Writes the line about the run.
    pub fn new(mut out: W, run: &Run) -> io::Result<Jsonl<W>> {
        out.write_all(run_line(run).as_bytes())?;
        Ok(Jsonl { out, line: String::new(), schemas: Vec::new() })
    }

    /// The number of the record's schema, which is written when it is new.
    fn schema(&mut self, record: &Record) -> io::Result<usize> {
        let same = |schema: &Vec<(Arc<str>, String)>| {
            schema.len() == record.fields.len()
                && schema.iter().zip(&record.fields).all(|((name, ty), (field, value))| {
                    (Arc::ptr_eq(name, field) || name == field) && is_of(value, ty)
                })
        };
        if let Some(known) = self.schemas.iter().position(same) {
            return Ok(known);
        }
        let fields: Vec<_> =
            record.fields.iter().map(|(name, value)| (name.clone(), type_name(value))).collect();
        let id = self.schemas.len();
        let mut line = format!("{{\"type\":\"schema\",\"id\":{id},\"fields\":");
        // A list: the order of an object's members is lost on most readers.
        json::list(&mut line, fields.iter(), |out, (name, ty)| {
            json::list(out, [&**name, &**ty].into_iter(), json::string);
        });
        line.push_str("}\n");
        self.out.write_all(line.as_bytes())?;
        self.schemas.push(fields);
        Ok(id)
    }
}

impl<W: Write + Send> Exporter for Jsonl<W> {
    fn record(&mut self, record: &Record) -> io::Result<()> {
        let schema = if record.fields.is_empty() { None } else { Some(self.schema(record)?) };
        self.line.clear();
        write_record(&mut self.line, record, schema);
        self.out.write_all(self.line.as_bytes())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    fn finish(&mut self, end: &End) -> io::Result<()> {
        let more = if end.goes_on { ",\"goes_on\":true" } else { "" };
        writeln!(self.out, "{{\"type\":\"end\",\"dropped\":{}{more}}}", end.dropped)?;
        self.out.flush()
    }
}

fn run_line(run: &Run) -> String {
    let mut line = format!("{{\"type\":\"run\",\"format\":{FORMAT},\"tool\":");
    json::string(&mut line, &run.tool);
    let _ = write!(line, ",\"id\":\"{:032x}\",\"host\":", run.id);
    json::string(&mut line, &run.host);
    line.push_str(",\"script\":");
    json::string(&mut line, &run.script);
    line.push_str(",\"command\":");
    json::list(&mut line, run.command.iter(), |out, word| json::string(out, word));
    let (boot, wall) = (run.start_ns, run.wall_ns(run.start_ns));
    let monotonic = boot.saturating_sub(run.suspended_ns);
    let _ = writeln!(line, ",\"boot_ns\":{boot},\"monotonic_ns\":{monotonic},\"wall_ns\":\"{wall}\"}}");
    line
}

fn write_record(line: &mut String, record: &Record, schema: Option<usize>) {
    let _ = write!(line, "{{\"type\":\"{}\",\"ts\":{}", type_of(&record.kind), record.time_ns);
    if let Kind::Span(span) = &record.kind {
        let _ = write!(line, ",\"dur\":{}", span.duration_ns);
    }
    if let Some(thread) = &record.thread {
        let _ = write!(line, ",\"pid\":{},\"tid\":{},\"comm\":", thread.pid, thread.tid);
        json::string(line, &thread.comm);
        if thread.program != thread.comm {
            line.push_str(",\"program\":");
            json::string(line, &thread.program);
        }
    }
    for (key, text) in [
        ("name", &record.name),
        ("func", &record.site.func),
        ("api", &record.site.api),
        ("probe", &record.site.probe),
    ] {
        if !text.is_empty() {
            let _ = write!(line, ",\"{key}\":");
            json::string(line, text);
        }
    }
    match &record.kind {
        Kind::Span(span) => write_span(line, span),
        Kind::Instant { parent_id } => _ = write!(line, ",\"parent\":\"{parent_id:#x}\""),
        Kind::Counter { value } => {
            line.push_str(",\"value\":");
            json::data(line, value);
        }
        Kind::Text(kind, text) => {
            if let Text::Trouble(count) = kind {
                let _ = write!(line, ",\"count\":{count}");
            }
            line.push_str(",\"text\":");
            json::string(line, text);
        }
        Kind::Table(table) => write_table(line, table),
    }
    if let Some(schema) = schema {
        let _ = write!(line, ",\"schema\":{schema},\"args\":");
        json::object(line, record.fields.iter().map(|(name, value)| (&**name, value)), json::data);
    }
    line.push_str("}\n");
}

/// The `type` of a line.
fn type_of(kind: &Kind) -> &'static str {
    match kind {
        Kind::Span(_) => "span",
        Kind::Instant { .. } => "event",
        Kind::Counter { .. } => "counter",
        Kind::Text(Text::Output, _) => "printf",
        Kind::Text(Text::Warning, _) => "warning",
        Kind::Text(Text::Error, _) => "error",
        Kind::Text(Text::Trouble(_), _) => "trouble",
        Kind::Table(_) => "map",
    }
}

fn write_span(line: &mut String, span: &Span) {
    let status = match span.status {
        Status::Unset => "unset",
        Status::Ok => "ok",
        Status::Error => "error",
    };
    let (id, parent) = (span.span_id, span.parent_id);
    let _ = write!(line, ",\"id\":\"{id:#x}\",\"parent\":\"{parent:#x}\",\"status\":\"{status}\"");
    if let Some(Data::Enum { ty, name, value }) = &span.result {
        line.push_str(",\"result\":{\"enum\":");
        json::string(line, ty);
        line.push_str(",\"name\":");
        match name {
            Some(name) => json::string(line, name),
            None => line.push_str("null"),
        }
        let _ = write!(line, ",\"value\":{value}}}");
    }
}

fn write_table(line: &mut String, table: &Table) {
    let made = table.agg.as_ref().map_or("value", agg_name);
    let _ = write!(line, ",\"made_by\":\"{made}\",\"rows\":");
    json::list(line, table.rows.iter(), |out, row| {
        out.push_str("{\"key\":");
        json::list(out, row.key.iter(), json::data);
        out.push_str(",\"value\":");
        json::data(out, &row.value);
        out.push('}');
    });
}

/// As scripts write it.
pub fn agg_name(agg: &Agg) -> &'static str {
    match agg {
        Agg::Count => "count",
        Agg::Sum { .. } => "sum",
        Agg::Min { .. } => "min",
        Agg::Max { .. } => "max",
        Agg::Avg { .. } => "avg",
        Agg::Stats { .. } => "stats",
        Agg::Hist { .. } => "hist",
        Agg::LHist { .. } => "lhist",
        Agg::TSeries { .. } => "tseries",
    }
}

/// `uint64`, `enum CUresult`
fn type_name(data: &Data) -> String {
    match data {
        Data::Enum { ty, .. } => format!("enum {ty}"),
        other => plain_type(other).into(),
    }
}

fn plain_type(data: &Data) -> &'static str {
    match data {
        Data::None => "none",
        Data::Bool(_) => "bool",
        Data::Int(_) => "int64",
        Data::Uint(_) => "uint64",
        Data::Handle(_) => "handle",
        Data::Enum { .. } => "enum",
        Data::Text(_) => "string",
        Data::Stack(_) => "stack",
        Data::List(_) => "list",
        Data::Map(_) => "record",
    }
}

fn is_of(data: &Data, name: &str) -> bool {
    match data {
        Data::Enum { ty, .. } => name.strip_prefix("enum ") == Some(ty),
        other => plain_type(other) == name,
    }
}
