//! Chrome's trace events in the form of PyTorch's profiler (kineto), for Perfetto, chrome://tracing and readers of torch's traces.
//!
//! Source of the form and of the base time: pytorch/kineto, libkineto/src/output_json.cpp and output_json.h.
//!
//! - Times are microseconds with three decimals since kineto's base time, the beginning of a quarter of a year, which all ranks and runs
//!   share. So the rows of this file and those of a torch profile can be merged into one list.
//! - A call is one `X` row with its own `correlation`; the enclosing call is in `parent_correlation`.
//! - Work of a GPU has rows only if a script records it (`gpu:kernel`): the device is their process, the stream their thread. Their
//!   `correlation` is that of the outermost runtime call that encloses the launching call, and an arrow leads from that call to them. The
//!   begin of an arrow is written when the first work of its call arrives, since many calls cause none, such as launches that a graph captures.
//! - Readers take a row with an argument `stream` for work of a GPU. In rows of calls that argument is named `cuda_stream`.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::sync::Arc;

use foldhash::{HashMap, HashSet};

use super::format::IN_PERFETTO;
use super::outer_calls::{LaunchCall, OuterCalls};
use super::record::{Data, GpuStream, Kind, Record, Row, Span, Status, Table, Thread, is_dimensions};
use super::{End, Exporter, Format, Run, json};
use crate::units;

/// Length of three months of std::chrono in seconds. The base time of kineto is a multiple of it since 1970.
const BASE_SECONDS: i128 = 7_889_238;
/// Largest number of rows of a map that are shown as a counter.
const SERIES: usize = 32;
/// Text after the last row. It is rewritten after each batch of rows, so that the file is valid at any time.
const END: &[u8] = b"\n]}\n";
/// Largest integer that a reader's double represents exactly, together with all smaller ones.
const EXACT: u64 = (1 << 53) - 1;

/// Place of a GPU's rows, after those of all processes, as kineto has it.
const AFTER_HOST: u32 = 5_000_000;

/// Correlation number of a call: the lower bits of its id.
fn correlation(id: u64) -> u64 {
    id & EXACT
}

/// `--export chrome=FILE.json[.gz]`
pub const FORMAT: Format = Format {
    name: "chrome",
    file: "FILE.json[.gz]",
    doc: "trace events for Perfetto, chrome://tracing and readers of PyTorch's traces; the GPU's work with `record --gpu`",
    look: IN_PERFETTO,
    end: END,
    create: |out, run| Ok(Box::new(Chrome::new(out, run.clone())?)),
};

/// Exporter of rows to `out`.
pub struct Chrome<W> {
    out: W,
    run: Arc<Run>,
    base_ns: i128,
    row: String,
    rows: u64,
    /// Threads by process and thread id, as they were last described.
    threads: HashMap<(u32, u32), Arc<Thread>>,
    processes: HashSet<u32>,
    /// Numbers of the rows of streams, by process and thread id; those of further processes with the same stream differ from it.
    streams: HashMap<(u32, u32), (u32, u32)>,
    launches: OuterCalls,
    last_ns: u64,
}

impl<W: Write + Send> Chrome<W> {
    /// Writes the text before the rows.
    pub fn new(mut out: W, run: Arc<Run>) -> io::Result<Chrome<W>> {
        let quarter = BASE_SECONDS * 1_000_000_000;
        let base_ns = run.wall_ns(run.start_ns).div_euclid(quarter) * quarter;
        let mut head = String::from("{\"schemaVersion\": 1, \"displayTimeUnit\": \"ms\", ");
        let _ = write!(head, "\"distributedInfo\": {{\"rank\": {}}}, ", run.rank.unwrap_or(0));
        let _ = write!(head, "\"baseTimeNanoseconds\": {base_ns}, \"traceName\": ");
        json::string(&mut head, &run.script);
        head.push_str(", \"otherData\": {\"tool\": ");
        json::string(&mut head, &run.tool);
        head.push_str(", \"host\": ");
        json::string(&mut head, &run.host);
        head.push_str("},\n\"traceEvents\": [");
        out.write_all(head.as_bytes())?;
        // A file is valid from its start.
        out.flush()?;
        let last_ns = run.start_ns;
        let (threads, processes, streams, launches) = Default::default();
        let row = String::new();
        Ok(Chrome { out, run, base_ns, row, rows: 0, threads, processes, streams, launches, last_ns })
    }

    /// Converts a boot-clock time to microseconds since the base time.
    fn time(&self, boot_ns: u64) -> Micros {
        Micros((self.run.wall_ns(boot_ns) - self.base_ns).max(0) as u64)
    }

    /// Begins a row: `{"ph":...` up to its thread.
    fn begin(&mut self, phase: char, record: &Record) {
        let (pid, tid) = self.ids(record);
        self.begin_at(phase, record.time_ns, pid, tid);
    }

    /// Process and thread of a row.
    fn ids(&self, record: &Record) -> (u32, u32) {
        let ids = record.thread.as_ref().map_or((0, 0), |thread| (thread.pid, thread.tid));
        self.streams.get(&ids).copied().unwrap_or(ids)
    }

    fn begin_at(&mut self, phase: char, boot_ns: u64, pid: u32, tid: u32) {
        self.row.clear();
        self.row.push_str(if self.rows == 0 { "\n" } else { ",\n" });
        self.row.push_str("{\"ph\": \"");
        self.row.push(phase);
        self.row.push('"');
        self.micros("ts", self.time(boot_ns));
        self.number("pid", pid);
        self.number("tid", tid);
    }

    fn key(&mut self, key: &str) {
        self.row.push_str(", \"");
        self.row.push_str(key);
        self.row.push_str("\": ");
    }

    fn number(&mut self, key: &str, value: impl itoa::Integer) {
        self.key(key);
        json::digits(&mut self.row, value);
    }

    fn micros(&mut self, key: &str, time: Micros) {
        self.key(key);
        time.write(&mut self.row);
    }

    fn end_row(&mut self) -> io::Result<()> {
        self.row.push('}');
        self.rows += 1;
        self.out.write_all(self.row.as_bytes())
    }

    fn named(&mut self, category: &str, name: &str) {
        self.row.push_str(", \"cat\": ");
        json::string(&mut self.row, category);
        self.row.push_str(", \"name\": ");
        json::string(&mut self.row, name);
    }

    fn span(&mut self, record: &Record, span: &Span) -> io::Result<()> {
        // Readers would take it for work of the GPU.
        if record.is_idle() {
            return Ok(());
        }
        let launch = match record.gpu_kind() {
            Some(_) => self.launches.around(span.launch_id),
            None => {
                self.launches.note(record, span);
                None
            }
        };
        self.begin('X', record);
        self.micros("dur", Micros(span.duration_ns));
        self.named(category(record), &name(record));
        if span.status == Status::Error {
            self.row.push_str(", \"cname\": \"terrible\"");
        }
        self.row.push_str(", \"args\": {\"correlation\": ");
        let id = match record.gpu_kind() {
            Some(_) => launch.map_or(span.launch_id, |call| call.id),
            None => span.span_id,
        };
        json::digits(&mut self.row, correlation(id));
        self.parent(span.parent_id);
        if let Some(result) = &span.result {
            let key = if span.status == Status::Error { "error" } else { "result" };
            self.arg(key, result);
        }
        match record.gpu_kind() {
            Some(kind) => self.args_of_work(kind, record),
            None => self.args(record),
        }
        self.row.push('}');
        self.end_row()?;
        launch.map_or(Ok(()), |call| self.arrow(record, call))
    }

    /// The end of an arrow from a call to the work that it launched; before the first one its begin.
    fn arrow(&mut self, work: &Record, call: LaunchCall) -> io::Result<()> {
        if !call.has_arrow {
            self.launches.has_arrow(call);
            self.begin_at('s', call.time_ns, call.pid, call.tid);
            self.number("id", correlation(call.id));
            self.named("ac2g", "ac2g");
            self.end_row()?;
        }
        self.begin('f', work);
        self.number("id", correlation(call.id));
        self.named("ac2g", "ac2g");
        self.row.push_str(", \"bp\": \"e\"");
        self.end_row()
    }

    fn parent(&mut self, id: u64) {
        if id != 0 {
            self.number("parent_correlation", correlation(id));
        }
    }

    fn args(&mut self, record: &Record) {
        for (name, value) in record.fields.iter() {
            self.arg(arg_name(name), value);
        }
    }

    /// The arguments of work on a GPU, with the names and in the form of kineto.
    fn args_of_work(&mut self, kind: &str, record: &Record) {
        for (name, value) in record.fields.iter() {
            self.arg(arg_name_of_work(name), value);
        }
        if kind == "kernel" && record.field("queued").is_none() {
            // Kineto's value for a time that was not measured.
            self.number("queued", 0);
        }
        let bytes = record.field("bytes").and_then(Data::number);
        if let (Some(bytes), "memcpy" | "memset", 1..) = (bytes, kind, record.duration_ns()) {
            // Bytes per ns are GB per second.
            let rate = bytes as f64 / record.duration_ns() as f64;
            self.key("memory bandwidth (GB/s)");
            let _ = write!(self.row, "{rate:.6}");
        }
    }

    /// An argument. Enums have only their name, since viewers show arguments as text.
    fn arg(&mut self, name: &str, value: &Data) {
        self.row.push_str(", ");
        json::string(&mut self.row, name);
        self.row.push_str(": ");
        match value {
            Data::Enum(of) => match &of.name {
                Some(name) => json::string(&mut self.row, name),
                None => json::digits(&mut self.row, of.value),
            },
            Data::Stack(frames) => {
                json::list(&mut self.row, frames.iter(), |out, frame| json::string(out, &frame.label()));
            }
            Data::Map(members) if is_dimensions(members) => {
                json::list(&mut self.row, members.iter(), |out, (_, value)| json::data(out, value));
            }
            other => json::data(&mut self.row, other),
        }
    }

    fn instant(&mut self, record: &Record, category: &str, name: &str, text: Option<&str>) -> io::Result<()> {
        self.begin('i', record);
        let scope = if record.thread.is_some() { 't' } else { 'g' };
        let _ = write!(self.row, ", \"s\": \"{scope}\"");
        self.named(category, name);
        self.row.push_str(", \"args\": {\"tool\": \"cudatrace\"");
        if let Some(text) = text {
            self.row.push_str(", \"text\": ");
            json::string(&mut self.row, text.trim_end_matches('\n'));
        }
        if let Kind::Instant { parent_id } = &record.kind {
            self.parent(*parent_id);
        }
        self.args(record);
        self.row.push('}');
        self.end_row()
    }

    /// A counter; its fields distinguish counters with the same name.
    fn counter(&mut self, record: &Record, value: &Data) -> io::Result<()> {
        let Some(value) = value.number() else { return Ok(()) };
        let labels: Vec<String> = record.fields.labels().collect();
        let series = if labels.is_empty() { "value".to_owned() } else { labels.join(",") };
        self.begin('C', record);
        self.named("counter", &record.name);
        self.row.push_str(", \"args\": {");
        json::string(&mut self.row, &series);
        let _ = write!(self.row, ": {value}}}");
        self.end_row()
    }

    /// A map of numbers as a counter with a series per key.
    fn table(&mut self, record: &Record, table: &Table) -> io::Result<()> {
        let numbers: Vec<_> =
            table.rows.iter().filter_map(|row| Some((row, row.value.number()?))).take(SERIES).collect();
        if numbers.is_empty() {
            return Ok(());
        }
        self.begin('C', record);
        self.named("map", &record.name);
        self.row.push_str(", \"args\": {");
        let label = |row: &Row| match row.key.is_empty() {
            true => "value".into(),
            false => row.key.iter().map(Data::label).collect::<Vec<_>>().join(","),
        };
        let labels = units::distinct(numbers.iter().map(|(row, _)| label(row)).collect());
        for (at, (label, (_, value))) in labels.iter().zip(numbers).enumerate() {
            self.row.push_str(if at == 0 { "" } else { ", " });
            json::string(&mut self.row, label);
            let _ = write!(self.row, ": {value}");
        }
        self.row.push('}');
        self.end_row()
    }

    /// Writes the names of a process and its threads when they first occur or change.
    fn introduce(&mut self, thread: &Arc<Thread>) -> io::Result<()> {
        let Thread { pid, tid, comm, program } = &**thread;
        if self.threads.get(&(*pid, *tid)).is_some_and(|known| known.comm == *comm || comm.is_empty()) {
            return Ok(());
        }
        self.threads.insert((*pid, *tid), thread.clone());
        if let Some(stream) = GpuStream::of_tid(*tid) {
            return self.introduce_stream(thread, stream);
        }
        if self.processes.insert(*pid) {
            self.metadata("process_name", *pid, 0, &format!("\"name\": {}", quoted(program)))?;
            self.metadata("process_labels", *pid, 0, "\"labels\": \"CPU\"")?;
            self.metadata("process_sort_index", *pid, 0, &format!("\"sort_index\": {pid}"))?;
        }
        let name = if comm.is_empty() { format!("thread {tid}") } else { format!("thread {tid} ({comm})") };
        self.metadata("thread_name", *pid, *tid, &format!("\"name\": {}", quoted(&name)))?;
        self.metadata("thread_sort_index", *pid, *tid, &format!("\"sort_index\": {tid}"))
    }

    /// The row of a stream: device and stream are process and thread, as in kineto.
    fn introduce_stream(&mut self, thread: &Thread, stream: GpuStream) -> io::Result<()> {
        let GpuStream { device, stream: number } = stream;
        let is_taken = self.streams.values().any(|ids| *ids == (device, number));
        let row = if is_taken { thread.pid << 8 | number & 0xff } else { number };
        self.streams.insert((thread.pid, thread.tid), (device, row));
        if self.processes.insert(device) {
            self.metadata("process_name", device, 0, &format!("\"name\": {}", quoted(&thread.program)))?;
            self.metadata("process_labels", device, 0, &format!("\"labels\": \"GPU {device}\""))?;
            self.metadata(
                "process_sort_index",
                device,
                0,
                &format!("\"sort_index\": {}", AFTER_HOST + device),
            )?;
        }
        let of = if is_taken { format!(" of process {}", thread.pid) } else { String::new() };
        self.metadata("thread_name", device, row, &format!("\"name\": \"stream {number}{of}\""))?;
        self.metadata("thread_sort_index", device, row, &format!("\"sort_index\": {row}"))
    }

    fn metadata(&mut self, what: &str, pid: u32, tid: u32, args: &str) -> io::Result<()> {
        self.begin_at('M', self.run.start_ns, pid, tid);
        let _ = write!(self.row, ", \"name\": \"{what}\", \"args\": {{{args}}}");
        self.end_row()
    }
}

impl<W: Write + Send> Exporter for Chrome<W> {
    fn record(&mut self, record: &Record) -> io::Result<()> {
        if let Some(thread) = &record.thread {
            self.introduce(thread)?;
        }
        let end = record.time_ns + record.span().map_or(0, |span| span.duration_ns);
        self.last_ns = self.last_ns.max(end);
        match &record.kind {
            Kind::Span(span) => self.span(record, span),
            Kind::Instant { .. } => self.instant(record, category(record), &record.name, None),
            Kind::Counter { value } => self.counter(record, value),
            Kind::Text(kind, text) => self.instant(record, "cudatrace", kind.name(), Some(text)),
            Kind::Table(table) => self.table(record, table),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    fn finish(&mut self, end: &End) -> io::Result<()> {
        self.begin_at('i', self.last_ns, 0, 0);
        let _ = write!(
            self.row,
            ", \"s\": \"g\", \"name\": \"Record Window End\", \"args\": {{\"dropped\": {}}}",
            end.dropped
        );
        self.end_row()?;
        self.out.write_all(END)?;
        self.out.flush()
    }
}

fn quoted(text: &str) -> String {
    let mut out = String::new();
    json::string(&mut out, text);
    out
}

/// Category of a record: that of kineto if it has one; a category from the script takes precedence.
pub(super) fn category(record: &Record) -> &str {
    // That of a range of NVTX is the category of the range.
    let is_of_nvtx = &*record.site.probe == "gpu:range";
    if let Some(Data::Text(category)) = record.field("category").filter(|_| !is_of_nvtx) {
        return category;
    }
    if record.is_range() {
        return "user_annotation";
    }
    match record.gpu_kind() {
        Some("kernel") => return "kernel",
        Some("memcpy") => return "gpu_memcpy",
        Some("memset") => return "gpu_memset",
        Some("sync") => return "cuda_sync",
        Some("overhead") => return "overhead",
        _ => {}
    }
    let func = &*record.site.func;
    if func.starts_with("cuda") {
        "cuda_runtime"
    } else if func.strip_prefix("cu").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_uppercase())) {
        "cuda_driver"
    } else {
        "cudatrace"
    }
}

/// Name of a row: that of kineto for copies and fills, by which readers know them.
fn name(record: &Record) -> Cow<'_, str> {
    let label = |field: &str| record.field(field).map(Data::label).unwrap_or_default();
    let word = |field: &str| {
        let word = label(field);
        let mut chars = word.chars();
        let first: String = chars.next().into_iter().flat_map(char::to_uppercase).collect();
        first + chars.as_str()
    };
    match record.gpu_kind() {
        Some("memcpy") if record.field("direction").is_none() => "Memcpy".into(),
        Some("memcpy") if record.field("from").is_none() || record.field("to").is_none() => {
            format!("Memcpy {}", label("direction")).into()
        }
        Some("memcpy") => {
            format!("Memcpy {} ({} -> {})", label("direction"), word("from"), word("to")).into()
        }
        Some("memset") => "Memset (Device)".into(),
        _ => Cow::Borrowed(&record.name),
    }
}

/// Name of an argument. With `stream`, viewers would treat the row as one of the GPU.
fn arg_name(name: &str) -> &str {
    match name {
        "stream" => "cuda_stream",
        "shared" => "shared memory",
        "correlation" => "its correlation",
        name => name,
    }
}

/// Name of an argument of work on a GPU: that of kineto, if it has one.
fn arg_name_of_work(name: &str) -> &str {
    match name {
        "registers" => "registers per thread",
        "shared" => "shared memory",
        "correlation" => "its correlation",
        name => name,
    }
}

/// Nanoseconds, printed as microseconds with three decimals: exact, unlike a double.
struct Micros(u64);

impl Micros {
    fn write(&self, out: &mut String) {
        json::digits(out, self.0 / 1000);
        let ns = self.0 % 1000;
        out.push('.');
        [ns / 100, ns / 10 % 10, ns % 10].iter().for_each(|digit| out.push((b'0' + *digit as u8) as char));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::record::Site;

    #[test]
    fn the_category_of_a_script_takes_precedence_but_that_of_a_range_is_its_own() {
        let record = |probe: &str, own: Option<&str>| {
            let mut record = crate::testing::gpu_kernel("add", 1, 1);
            record.site = Site { probe: probe.into(), ..Site::default() }.into();
            record.fields = own.map(|own| ("category".into(), Data::Text(own.into()))).into_iter().collect();
            record
        };
        for (probe, own, expected) in [
            ("gpu:operator", Some("cpu_op"), "cpu_op"),
            ("gpu:operator", None, "user_annotation"),
            ("gpu:range", Some("nvtx"), "user_annotation"),
            ("gpu:kernel", Some("mine"), "mine"),
            ("gpu:kernel", None, "kernel"),
        ] {
            assert_eq!(category(&record(probe, own)), expected, "{probe} {own:?}");
        }
    }
}
