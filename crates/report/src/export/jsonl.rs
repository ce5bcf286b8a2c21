//! JSON lines, one typed record per line: the recording that `cudatrace report` reads.
//!
//! ```text
//! {"type":"run","format":1,...,"boot_ns":5,"monotonic_ns":5,"wall_ns":"1700000000000000005"}
//! {"type":"schema","id":0,"fields":[["bytes","uint64"],["kind","enum CUmemorytype"]]}
//! {"type":"span","ts":7,"dur":3,"pid":1,"tid":1,"comm":"a","name":"cuInit",...,"id":"0x1","parent":"0x0","status":"ok"}
//! {"type":"end","dropped":0}
//! ```
//!
//! Times are ns of the boot clock; the first line relates it to the other clocks. A line with fields of the script refers to the
//! schema with their types. Integers beyond 2^53 are strings of digits, handles are hexadecimal strings. A file without its last
//! line was truncated, and is valid up to there.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::mem::discriminant;
use std::sync::Arc;

use wire::map::{Agg, Keeps};

use super::record::{Data, Fields, Kind, Record, Site, Span, Status, Table, Text, Thread};
use super::text_cache::TextCache;
use super::{End, Exporter, Format, Run, json};

/// Version of the format.
pub const VERSION: u32 = 1;

/// `--export jsonl=FILE`
pub const FORMAT: Format = Format {
    name: "jsonl",
    file: "FILE",
    doc: "one record per line, for `cudatrace report` and jq; `.gz` compresses",
    look: Some("cudatrace report FILE --html trace.html"),
    end: b"",
    create: |out, run| Ok(Box::new(Jsonl::new(out, run)?)),
};

/// Exporter of lines to `out`.
pub struct Jsonl<W> {
    out: W,
    line: String,
    schemas: Vec<Schema>,
    threads: TextCache<Thread>,
    sites: TextCache<Site>,
}

/// Names and types of the fields of a statement's records.
pub(super) struct Schema {
    names: Vec<Arc<str>>,
    types: Vec<Type>,
}

/// Type of a field.
#[derive(PartialEq)]
enum Type {
    Plain(&'static str),
    /// An enum with its name.
    Enum(Arc<str>),
}

impl Type {
    fn of(data: &Data) -> Type {
        match data {
            Data::Enum(of) => Type::Enum(of.ty.clone()),
            other => Type::Plain(plain_type(other)),
        }
    }

    fn is_of(&self, data: &Data) -> bool {
        match (self, data) {
            (Type::Enum(ty), Data::Enum(of)) => *ty == of.ty,
            (Type::Enum(_), _) | (_, Data::Enum(_)) => false,
            (Type::Plain(name), data) => *name == plain_type(data),
        }
    }

    /// `uint64`, `enum CUresult`
    fn name(&self) -> String {
        match self {
            Type::Plain(name) => (*name).into(),
            Type::Enum(ty) => format!("enum {ty}"),
        }
    }
}

impl Schema {
    pub(super) fn of(fields: &Fields) -> Schema {
        Schema { names: fields.names().to_vec(), types: fields.values().iter().map(Type::of).collect() }
    }

    pub(super) fn is_of(&self, fields: &Fields) -> bool {
        self.names == fields.names()
            && self.types.iter().zip(fields.values()).all(|(ty, value)| ty.is_of(value))
    }

    fn line(&self, id: usize) -> String {
        format!("{{\"type\":\"schema\",\"id\":{id},\"fields\":{}}}\n", self.text())
    }

    /// `[["bytes","uint64"]]`: a list, since most readers lose the order of an object's members.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        json::list(&mut text, self.names.iter().zip(&self.types), |out, (name, ty)| {
            json::list(out, [&**name, &*ty.name()].into_iter(), json::string);
        });
        text
    }
}

impl<W: Write + Send> Jsonl<W> {
    /// Writes the line that describes the run.
    pub fn new(mut out: W, run: &Run) -> io::Result<Jsonl<W>> {
        out.write_all(run_line(run).as_bytes())?;
        let (line, schemas, threads, sites) = Default::default();
        Ok(Jsonl { out, line, schemas, threads, sites })
    }

    /// The number of the schema of `fields`; a new schema is written first.
    fn schema(&mut self, fields: &Fields) -> io::Result<usize> {
        if let Some(known) = self.schemas.iter().position(|schema| schema.is_of(fields)) {
            return Ok(known);
        }
        let (schema, id) = (Schema::of(fields), self.schemas.len());
        self.out.write_all(schema.line(id).as_bytes())?;
        self.schemas.push(schema);
        Ok(id)
    }

    fn write(&mut self, record: &Record, schema: Option<usize>) {
        let line = &mut self.line;
        line.clear();
        line.push_str("{\"type\":\"");
        line.push_str(type_of(&record.kind));
        line.push_str("\",\"ts\":");
        json::digits(line, record.time_ns);
        if let Kind::Span(span) = &record.kind {
            line.push_str(",\"dur\":");
            json::digits(line, span.duration_ns);
        }
        if let Some(thread) = &record.thread {
            line.push_str(self.threads.of(thread, thread_members));
        }
        member(line, "name", &record.name);
        line.push_str(self.sites.of(&record.site, site_members));
        write_kind(line, &record.kind);
        if let Some(schema) = schema {
            line.push_str(",\"schema\":");
            json::digits(line, schema);
            line.push_str(",\"args\":");
            json::object(line, record.fields.iter().map(|(name, value)| (&**name, value)), json::data);
        }
        line.push_str("}\n");
    }
}

impl<W: Write + Send> Exporter for Jsonl<W> {
    fn record(&mut self, record: &Record) -> io::Result<()> {
        let schema = if record.fields.is_empty() { None } else { Some(self.schema(&record.fields)?) };
        self.write(record, schema);
        self.out.write_all(self.line.as_bytes())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    fn finish(&mut self, end: &End) -> io::Result<()> {
        let more = if end.goes_on { ",\"goes_on\":true" } else { "" };
        // A recording that was cut off stays one.
        if !end.is_cut {
            writeln!(self.out, "{{\"type\":\"end\",\"dropped\":{}{more}}}", end.dropped)?;
        }
        self.out.flush()
    }
}

/// The line that describes a run.
pub(super) fn run_line(run: &Run) -> String {
    let mut line = format!("{{\"type\":\"run\",\"format\":{VERSION},\"tool\":");
    json::string(&mut line, &run.tool);
    let _ = write!(line, ",\"id\":\"{:032x}\",\"host\":", run.id);
    json::string(&mut line, &run.host);
    line.push_str(",\"script\":");
    json::string(&mut line, &run.script);
    line.push_str(",\"command\":");
    json::list(&mut line, run.command.iter(), |out, word| json::string(out, word));
    if let Some(rank) = run.rank {
        let _ = write!(line, ",\"rank\":{rank}");
    }
    if !run.environment.is_empty() {
        line.push_str(",\"environment\":");
        let members = run.environment.iter().map(|(name, value)| (name.as_str(), value));
        json::object(&mut line, members, |out, text| json::string(out, text));
    }
    let (boot, wall) = (run.start_ns, run.wall_ns(run.start_ns));
    let monotonic = boot.saturating_sub(run.suspended_ns);
    let _ = writeln!(line, ",\"boot_ns\":{boot},\"monotonic_ns\":{monotonic},\"wall_ns\":\"{wall}\"}}");
    line
}

/// `,"name":"cuInit"`; nothing if the text is empty.
fn member(line: &mut String, key: &str, text: &str) {
    if !text.is_empty() {
        line.push_str(",\"");
        line.push_str(key);
        line.push_str("\":");
        json::string(line, text);
    }
}

fn thread_members(thread: &Thread) -> String {
    let mut members = format!(",\"pid\":{},\"tid\":{}", thread.pid, thread.tid);
    member(&mut members, "comm", &thread.comm);
    if thread.program != thread.comm {
        members.push_str(",\"program\":");
        json::string(&mut members, &thread.program);
    }
    members
}

fn site_members(site: &Site) -> String {
    let mut members = String::new();
    member(&mut members, "func", &site.func);
    member(&mut members, "api", &site.api);
    member(&mut members, "probe", &site.probe);
    members
}

fn write_kind(line: &mut String, kind: &Kind) {
    match kind {
        Kind::Span(span) => write_span(line, span),
        Kind::Instant { parent_id } => {
            line.push_str(",\"parent\":");
            json::hex(line, *parent_id);
        }
        Kind::Counter { value } => {
            line.push_str(",\"value\":");
            json::data(line, value);
        }
        Kind::Text(kind, text) => {
            if let Text::Loss(count) = kind {
                let _ = write!(line, ",\"count\":{count}");
            }
            line.push_str(",\"text\":");
            json::string(line, text);
        }
        Kind::Table(table) => {
            line.push(',');
            write_table(line, table);
        }
    }
}

/// The `type` of a line.
pub(super) fn type_of(kind: &Kind) -> &'static str {
    match kind {
        Kind::Span(_) => "span",
        Kind::Instant { .. } => "event",
        Kind::Counter { .. } => "counter",
        Kind::Text(kind, _) => kind.name(),
        Kind::Table(_) => "map",
    }
}

fn write_span(line: &mut String, span: &Span) {
    line.push_str(",\"id\":");
    json::hex(line, span.span_id);
    line.push_str(",\"parent\":");
    json::hex(line, span.parent_id);
    if span.launch_id != 0 {
        line.push_str(",\"launch\":");
        json::hex(line, span.launch_id);
    }
    line.push_str(",\"status\":\"");
    line.push_str(status_name(span.status));
    line.push('"');
    if let Some(Data::Enum(result)) = &span.result {
        line.push_str(",\"result\":{\"enum\":");
        json::string(line, &result.ty);
        line.push(',');
        json::enumerator(line, result);
    }
}

/// The `status` of a span.
pub(super) fn status_name(status: Status) -> &'static str {
    match status {
        Status::Unset => "unset",
        Status::Ok => "ok",
        Status::Error => "error",
    }
}

/// `"made_by":"count","rows":[...]`
pub(super) fn write_table(line: &mut String, table: &Table) {
    let made = table.agg.as_ref().map_or("value", agg_name);
    let _ = write!(line, "\"made_by\":\"{made}\",\"rows\":");
    json::list(line, table.rows.iter(), |out, row| {
        out.push_str("{\"key\":");
        json::list(out, row.key.iter(), json::data);
        out.push_str(",\"value\":");
        json::data(out, &row.value);
        out.push('}');
    });
}

/// Aggregations by their names in scripts. Other properties are visible in the rows.
static AGGS: &[(&str, Agg)] = &[
    ("count", Agg::Count),
    ("sum", Agg::Sum { signed: true }),
    ("min", Agg::Min { signed: true }),
    ("max", Agg::Max { signed: true }),
    ("avg", Agg::Avg { signed: true }),
    ("stats", Agg::Stats { signed: true }),
    ("hist", Agg::Hist { bits: 0, summed: false }),
    ("lhist", Agg::LHist { min: 0, max: 1, step: 1, summed: false }),
    ("tseries", Agg::TSeries { interval: 0, count: 0, keeps: Keeps::Last, signed: true }),
];

/// Name of the aggregation in scripts.
fn agg_name(agg: &Agg) -> &'static str {
    let is_it = |(_, known): &&(_, Agg)| discriminant(known) == discriminant(agg);
    AGGS.iter().find(is_it).map_or("value", |(name, _)| name)
}

/// The aggregation with this name.
pub(crate) fn agg_named(name: &str) -> Option<Agg> {
    AGGS.iter().find(|(known, _)| *known == name).map(|(_, agg)| agg.clone())
}

fn plain_type(data: &Data) -> &'static str {
    match data {
        Data::None => "none",
        Data::Bool(_) => "bool",
        Data::Int(_) => "int64",
        Data::Uint(_) => "uint64",
        Data::Handle(_) => "handle",
        Data::Enum(_) => "enum",
        Data::Text(_) => "string",
        Data::Stack(_) => "stack",
        Data::List(_) => "list",
        Data::Map(_) => "record",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_aggregation_has_a_name_of_its_own() {
        let all = [
            Agg::Count,
            Agg::Sum { signed: false },
            Agg::Min { signed: false },
            Agg::Max { signed: false },
            Agg::Avg { signed: false },
            Agg::Stats { signed: false },
            Agg::Hist { bits: 3, summed: true },
            Agg::LHist { min: 5, max: 7, step: 1, summed: true },
            Agg::TSeries { interval: 1, count: 2, keeps: Keeps::Last, signed: false },
        ];
        for agg in &all {
            let named = agg_named(agg_name(agg)).expect("it is in the table");
            assert_eq!(discriminant(&named), discriminant(agg));
        }
        assert_eq!(all.len(), AGGS.len());
    }
}
