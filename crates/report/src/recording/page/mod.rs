//! A self-contained HTML page about a recording: data, styles and program in one file, no network.
//!
//! The page contains the longest spans, as many as a browser can handle; tables and the curve of memory cover all spans.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::fmt::Write as _;
use std::sync::Arc;

use crate::export::{Data, Kind, Record, Status, Thread, json};
use crate::recording::gpu_use;
use crate::recording::summary::{
    Class, PROCESS_END, Stat, Summary, by_time, class_of, is_graph, is_informative, memory_kind,
};
use crate::recording::{Recording, RecordingEnd};

/// Largest number of spans that the page shows.
const SPANS: usize = 200_000;
/// Largest number of points of the memory curve.
const POINTS: usize = 4000;
/// Largest number of rows of a table.
const ROWS: usize = 200;
/// Largest size of a span's details in bytes.
const DETAILS: usize = 300;

const PAGE: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
const PROGRAM: &str = include_str!("page.js");

/// A span in the page.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct PageSpan {
    duration_ns: u64,
    start_ns: u64,
    thread: u32,
    name: u32,
    class: u8,
    failed: bool,
    /// Number of the launched kernel's name, otherwise of the span's name.
    label: u32,
    /// Number that a call and the work of a GPU that it launched share; 0: none.
    pair: u32,
    details: String,
}

/// Collector of the page's data.
#[derive(Default)]
pub struct Page {
    names: Vec<Arc<str>>,
    ids: HashMap<Arc<str>, u32>,
    threads: Vec<ShownThread>,
    thread_ids: HashMap<(u32, u32), u32>,
    /// The longest spans, the shortest of them on top.
    spans: BinaryHeap<Reverse<PageSpan>>,
    total: u64,
    /// Curves by kind of memory.
    memory: BTreeMap<Arc<str>, Curve>,
    /// Allocated blocks by process and address: bytes and kind.
    blocks: HashMap<(u32, u64), (u64, Arc<str>)>,
    /// Numbers of the calls that launched work of a GPU, by their ids.
    pairs: HashMap<u64, u32>,
}

/// A thread in the page.
struct ShownThread {
    pid: u32,
    tid: u32,
    /// Name of the thread.
    comm: Arc<str>,
    /// Name of the program.
    program: Arc<str>,
}

/// Allocated bytes of a kind over time.
#[derive(Default)]
struct Curve {
    live: u64,
    /// Boot-clock ns and bytes at each change.
    points: Vec<(u64, u64)>,
}

impl Curve {
    fn change(&mut self, at_ns: u64, change: impl FnOnce(u64) -> u64) {
        self.live = change(self.live);
        self.points.push((at_ns, self.live));
        if self.points.len() > 2 * POINTS {
            thin(&mut self.points);
        }
    }
}

impl Page {
    /// Adds a record.
    pub fn add(&mut self, record: &Record) {
        let Some(thread) = &record.thread else { return };
        if matches!(record.kind, Kind::Instant { .. }) && &*record.name == PROCESS_END {
            return self.end_process(thread.pid, record.time_ns);
        }
        let Kind::Span(span) = &record.kind else { return };
        self.total += 1;
        self.memory_of(record, span.works(), thread.pid);
        let class = Class::ALL.iter().position(|known| *known == class_of(record)).unwrap_or(0) as u8;
        let is_short = |Reverse(shortest): &Reverse<PageSpan>| shortest.duration_ns >= span.duration_ns;
        if self.spans.len() == SPANS && self.spans.peek().is_some_and(is_short) {
            return;
        }
        let thread_id = self.thread(thread);
        let kernel = match record.field("kernel") {
            Some(Data::Text(kernel)) if !is_graph(record) => kernel,
            _ => &record.name,
        };
        let shown = PageSpan {
            duration_ns: span.duration_ns,
            start_ns: record.time_ns,
            thread: thread_id,
            name: self.name(&record.name),
            class,
            failed: span.status == Status::Error,
            label: self.name(kernel),
            pair: self.pair(record),
            details: details(record),
        };
        self.spans.push(Reverse(shown));
        if self.spans.len() > SPANS {
            self.spans.pop();
        }
    }

    fn pair(&mut self, record: &Record) -> u32 {
        let Some(call) = record.launch() else { return 0 };
        let next = self.pairs.len() as u32 + 1;
        *self.pairs.entry(call).or_insert(next)
    }

    fn name(&mut self, name: &Arc<str>) -> u32 {
        if let Some(id) = self.ids.get(name) {
            return *id;
        }
        let id = self.names.len() as u32;
        self.names.push(name.clone());
        self.ids.insert(name.clone(), id);
        id
    }

    fn thread(&mut self, Thread { pid, tid, comm, program }: &Thread) -> u32 {
        let next = self.threads.len() as u32;
        let id = *self.thread_ids.entry((*pid, *tid)).or_insert(next);
        if id == next {
            let (comm, program) = (comm.clone(), program.clone());
            self.threads.push(ShownThread { pid: *pid, tid: *tid, comm, program });
        } else if !comm.is_empty() {
            self.threads[id as usize].comm = comm.clone();
        }
        id
    }

    fn memory_of(&mut self, record: &Record, works: bool, pid: u32) {
        if !works || class_of(record) != Class::Memory {
            return;
        }
        let number =
            |name: &str| record.field(name).and_then(Data::number).map(|number| number.max(0) as u64);
        let Some(ptr) = number("ptr") else { return };
        let end = record.time_ns + record.duration_ns();
        // If a block is allocated at the address of another, the other was freed without a record.
        if let Some((bytes, kind)) = self.blocks.remove(&(pid, ptr)) {
            self.memory.entry(kind).or_default().change(end, |live| live.saturating_sub(bytes));
        }
        if let Some(bytes) = number("bytes") {
            let kind = memory_kind(record);
            self.memory.entry(kind.clone()).or_default().change(end, |live| live.saturating_add(bytes));
            self.blocks.insert((pid, ptr), (bytes, kind));
        }
    }

    /// Frees the memory of a process that has ended.
    fn end_process(&mut self, ended: u32, at_ns: u64) {
        let memory = &mut self.memory;
        self.blocks.retain(|(pid, _), (bytes, kind)| {
            if *pid == ended {
                memory.entry(kind.clone()).or_default().change(at_ns, |live| live.saturating_sub(*bytes));
            }
            *pid != ended
        });
    }

    /// The page as HTML.
    pub fn html(&self, title: &str, recording: &Recording, summary: &Summary) -> String {
        let mut data = String::new();
        self.data(&mut data, title, recording, summary);
        // Inside a script element no text may look like a tag; `<` occurs only in strings.
        let data = data.replace('<', "\\u003c");
        PAGE.replace("/*STYLE*/", STYLE).replace("/*PROGRAM*/", PROGRAM).replace("/*DATA*/", &data)
    }

    fn data(&self, out: &mut String, title: &str, recording: &Recording, summary: &Summary) {
        let run = &recording.run;
        let (first, last) = summary.window.unwrap_or((run.start_ns, run.start_ns));
        out.push_str("{\"title\":");
        json::string(out, title);
        for (key, text) in [("tool", &run.tool), ("host", &run.host)] {
            let _ = write!(out, ",\"{key}\":");
            json::string(out, text);
        }
        out.push_str(",\"command\":");
        json::list(out, run.command.iter(), |out, word| json::string(out, word));
        let wall_ms = run.wall_ns(first) / 1_000_000;
        let _ = write!(
            out,
            ",\"wall_ms\":{wall_ms},\"length\":{},\"time\":{},\"total\":{}",
            last - first,
            summary.length_ns(),
            self.total
        );
        let cut = recording.ended == RecordingEnd::Cut;
        let dropped = if let RecordingEnd::Whole { dropped } = recording.ended { dropped } else { 0 };
        let _ = write!(out, ",\"cut\":{cut},\"dropped\":{dropped},\"troubles\":");
        json::list(out, summary.losses.iter(), |out, text| json::string(out, text));
        out.push_str(",\"classes\":");
        json::list(out, Class::ALL.iter(), |out, class| json::string(out, class.name()));
        out.push_str(",\"names\":");
        json::list(out, self.names.iter(), |out, name| json::string(out, name));
        out.push_str(",\"threads\":");
        json::list(out, self.threads.iter(), |out, ShownThread { pid, tid, comm, program }| {
            let _ = write!(out, "[{pid},{tid},");
            json::string(out, comm);
            out.push(',');
            json::string(out, program);
            out.push(']');
        });
        self.spans_by_start(out, first);
        out.push_str(",\"memory\":");
        json::object(out, self.memory.iter().map(|(kind, curve)| (&**kind, curve)), |out, curve| {
            json::list(out, curve.points.iter(), |out, (at, bytes)| {
                let _ = write!(out, "[{},{bytes}]", at.saturating_sub(first));
            });
        });
        self.tables(out, summary);
        out.push('}');
    }

    /// Start, duration, thread, name, class (plus 8 if it failed), details, the label if it differs from the name, and the pair if there
    /// is one.
    fn spans_by_start(&self, out: &mut String, first: u64) {
        let mut spans: Vec<&PageSpan> = self.spans.iter().map(|Reverse(shown)| shown).collect();
        spans.sort_by_key(|shown| (shown.thread, shown.start_ns, Reverse(shown.duration_ns)));
        out.push_str(",\"spans\":");
        json::list(out, spans.into_iter(), |out, shown| {
            let PageSpan { duration_ns, start_ns, thread, name, class, failed, label, pair, details } = shown;
            let class = class + 8 * u8::from(*failed);
            let _ = write!(out, "[{},{duration_ns},{thread},{name},{class},", start_ns.saturating_sub(first));
            json::string(out, details);
            if label != name || *pair != 0 {
                let _ = write!(out, ",{label}");
            }
            if *pair != 0 {
                let _ = write!(out, ",{pair}");
            }
            out.push(']');
        });
    }

    fn tables(&self, out: &mut String, summary: &Summary) {
        out.push_str(",\"functions\":");
        stats(out, by_time(&summary.functions));
        out.push_str(",\"kernels\":");
        stats(out, by_time(&summary.kernels));
        out.push_str(",\"gpu_kernels\":");
        stats(out, by_time(&summary.gpu_kernels));
        out.push_str(",\"gpus\":");
        let names = gpu_use::names(&summary.gpus);
        json::list(out, names.iter().zip(summary.gpus.values()), |out, (name, used)| {
            out.push('[');
            json::string(out, name);
            let _ = write!(out, ",{}]", used.percent());
        });
        out.push_str(",\"ioctls\":");
        stats(out, by_time(&summary.ioctls));
        out.push_str(",\"driver_functions\":");
        stats(out, by_time(&summary.driver_functions));
        out.push_str(",\"copies\":");
        json::list(out, summary.copies.iter(), |out, (way, moved)| {
            out.push('[');
            json::string(out, way);
            let _ = write!(out, ",{},{},{}]", moved.count, moved.bytes, moved.ns);
        });
        out.push_str(",\"errors\":");
        json::list(
            out,
            summary.errors.iter().filter(|(_, count)| **count > 0),
            |out, ((func, result), count)| {
                out.push('[');
                json::string(out, func);
                out.push(',');
                json::string(out, result);
                let _ = write!(out, ",{count}]");
            },
        );
        out.push_str(",\"kinds\":");
        json::list(out, summary.memory.iter(), |out, (kind, memory)| {
            out.push('[');
            json::string(out, kind);
            let _ = write!(out, ",{},{},{},{}]", memory.count, memory.bytes, memory.peak, memory.left);
        });
        let _ = write!(
            out,
            ",\"calls\":[{},{}],\"launches\":{},\"failed_launches\":{},\"graphs\":{},\"frees\":{},\"leaked\":{},\"after_shutdown\":{}",
            summary.calls.0,
            summary.calls.1,
            summary.launches(),
            summary.failed_launches(),
            summary.graph_launches.count,
            summary.frees,
            summary.leaked(),
            summary.after_shutdown
        );
    }
}

/// Columns: name, count, total, self, median, p99, longest, errors, buckets.
fn stats(out: &mut String, stats: Vec<(&str, &Stat)>) {
    json::list(out, stats.into_iter().take(ROWS), |out, (name, stat)| {
        out.push('[');
        json::string(out, name);
        let Stat { count, total_ns, self_ns, max_ns, errors, .. } = stat;
        let (median, p99) = (stat.percentile_ns(50), stat.percentile_ns(99));
        let _ = write!(out, ",{count},{total_ns},{self_ns},{median},{p99},{max_ns},{errors},");
        json::list(out, stat.powers().iter(), |out, count| _ = write!(out, "{count}"));
        out.push(']');
    });
}

/// `CUDA_ERROR_OUT_OF_MEMORY bytes=4096`
fn details(record: &Record) -> String {
    let span = record.span();
    let failed = span.filter(|span| span.status != Status::Ok).and_then(|span| span.result.as_ref());
    let all: Vec<String> = failed
        .map(Data::label)
        .into_iter()
        .chain(
            record
                .fields
                .iter()
                .filter(|(name, _)| is_informative(record, name))
                .map(|(name, value)| format!("{name}={}", value.label())),
        )
        .collect();
    crate::recording::summary::cut(&all.join(" "), DETAILS)
}

/// Keeps the larger point of each pair, so that peaks are preserved.
fn thin(points: &mut Vec<(u64, u64)>) {
    let kept =
        points.chunks(2).filter_map(|pair| pair.iter().max_by_key(|(_, bytes)| *bytes)).copied().collect();
    *points = kept;
}
