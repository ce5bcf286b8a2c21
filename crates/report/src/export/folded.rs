//! Folded stacks for flame graphs: `python;main;f;cuMemAlloc 4096`, one line per stack with its weight.
//!
//! Maps that have a stack in their key come first: the parts of the key become frames in order, counts and sums become weights.
//! Without such a map, spans with a stack are used: the span is the innermost frame, its ns are the weight. Without these, the
//! nesting of calls is used, weighted by self time. A map that is printed several times counts once, with its last values.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};
use std::sync::Arc;

use super::record::{Data, Kind, Record, Row, Span, Table};
use super::{End, Exporter, Format};
use crate::value::escape;

/// Largest number of distinct stacks; the others share one line.
const STACKS: usize = 1 << 20;
/// Largest number of calls that have not returned but contain calls.
const OPEN: usize = 1 << 16;
/// Size in bytes from which on a line gets no further callers.
const LONGEST: usize = 1 << 14;
/// Line of the stacks beyond the limit.
const OTHERS: &str = "[other stacks]";

/// `--export folded=FILE`
pub const FORMAT: Format = Format {
    name: "folded",
    file: "FILE",
    doc: "stacks for flame graphs, from maps by stack or from spans with stacks",
    look: None,
    end: b"",
    create: |out, _| Ok(Box::new(FoldedStacks::new(out))),
};

/// Exporter that writes at the end, when all weights are summed.
pub struct FoldedStacks<W> {
    out: W,
    maps: BTreeMap<Arc<str>, Table>,
    spans: Lines,
    calls: Lines,
    /// Nested calls by the id of a call that has not returned.
    inside: HashMap<u64, Inside>,
    taken: u64,
}

type Lines = BTreeMap<String, u128>;

/// Calls nested in a call.
#[derive(Default)]
struct Inside {
    ns: u64,
    lines: Lines,
}

impl<W: Write + Send> FoldedStacks<W> {
    /// Creates the exporter; it writes nothing before the end.
    pub fn new(out: W) -> FoldedStacks<W> {
        let (maps, spans, calls, inside) = Default::default();
        FoldedStacks { out, maps, spans, calls, inside, taken: 0 }
    }

    fn span(&mut self, record: &Record, span: &Span) {
        let Some(stack) = record.fields.values().iter().find(|value| matches!(value, Data::Stack(_))) else {
            return self.call(record, span);
        };
        let frames = comm(record).into_iter().chain(part(stack)).chain([frame(&record.name)]);
        let line = frames.collect::<Vec<_>>().join(";");
        add(&mut self.spans, line, u128::from(record.duration_ns()));
    }

    /// Puts the nested calls below a call. A call is recorded when it returns, so nested calls are recorded before
    /// it.
    fn call(&mut self, record: &Record, span: &Span) {
        let inside = self.inside.remove(&span.span_id).unwrap_or_default();
        let name = frame(&record.name);
        let own = u128::from(record.duration_ns().saturating_sub(inside.ns));
        // Calls that are nested without end would make lines without end.
        let put_below = |line: String| if line.len() < LONGEST { format!("{name};{line}") } else { line };
        let below = inside.lines.into_iter().map(|(line, ns)| (put_below(line), ns));
        let lines = below.chain((own > 0).then(|| (name.clone(), own)));
        if [0, span.span_id].contains(&span.parent_id) {
            let root = comm(record).map_or(String::new(), |comm| format!("{comm};"));
            lines.for_each(|(line, ns)| add(&mut self.calls, format!("{root}{line}"), ns));
            return;
        }
        // Calls whose enclosing call is never recorded would accumulate.
        if self.inside.len() >= OPEN {
            self.add_orphans();
        }
        let around = self.inside.entry(span.parent_id).or_default();
        around.ns = around.ns.saturating_add(record.duration_ns());
        lines.for_each(|(line, ns)| add(&mut around.lines, line, ns));
    }

    /// The lines of the preferred source that has any.
    fn lines(&mut self) -> Lines {
        if let Some(lines) = lines(&self.maps) {
            return lines;
        }
        if !self.spans.is_empty() {
            return std::mem::take(&mut self.spans);
        }
        self.add_orphans();
        std::mem::take(&mut self.calls)
    }

    /// Takes the calls inside of calls that were not recorded so far as calls that are in no other.
    fn add_orphans(&mut self) {
        let orphans = std::mem::take(&mut self.inside).into_values().flat_map(|inside| inside.lines);
        orphans.for_each(|(line, ns)| add(&mut self.calls, line, ns));
    }

    fn write(&mut self) -> io::Result<()> {
        self.lines().iter().try_for_each(|(line, weight)| writeln!(self.out, "{line} {weight}"))
    }
}

/// Root frame of a thread.
fn comm(record: &Record) -> Option<String> {
    record.thread.as_ref().map(|thread| frame(&thread.comm)).filter(|comm| !comm.is_empty())
}

fn add(lines: &mut Lines, line: String, weight: u128) {
    let is_full = lines.len() >= STACKS && !lines.contains_key(&line);
    *lines.entry(if is_full { OTHERS.into() } else { line }).or_default() += weight;
}

impl<W: Write + Send> Exporter for FoldedStacks<W> {
    fn record(&mut self, record: &Record) -> io::Result<()> {
        self.taken += 1;
        match &record.kind {
            Kind::Span(span) => self.span(record, span),
            Kind::Table(table) if table.rows.iter().any(has_stack) => {
                self.maps.insert(record.name.clone(), table.clone());
            }
            _ => {}
        }
        Ok(())
    }

    fn pending(&self) -> u64 {
        self.taken
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    fn finish(&mut self, _: &End) -> io::Result<()> {
        self.write()?;
        self.taken = 0;
        self.out.flush()
    }
}

fn has_stack(row: &Row) -> bool {
    row.key.iter().any(|part| matches!(part, Data::Stack(_)))
}

/// The lines of maps, with equal stacks summed; `None` without maps. Several maps are distinguished by their
/// names.
fn lines(maps: &BTreeMap<Arc<str>, Table>) -> Option<BTreeMap<String, u128>> {
    let mut lines = BTreeMap::new();
    for (name, table) in maps {
        for row in &table.rows {
            let Some(weight) = weight(&row.value) else { continue };
            let root = (maps.len() > 1).then(|| frame(name));
            let frames: Vec<String> = root.into_iter().chain(row.key.iter().flat_map(part)).collect();
            *lines.entry(frames.join(";")).or_default() += weight;
        }
    }
    (!maps.is_empty()).then_some(lines)
}

/// Weight of a value: a number, or the sum of `stats`; a negative one counts as 0.
fn weight(value: &Data) -> Option<u128> {
    let number = match value {
        Data::Map(members) => members.iter().find(|(name, _)| &**name == "total")?.1.number()?,
        value => value.number()?,
    };
    u128::try_from(number).ok().filter(|weight| *weight > 0)
}

/// Frames of a part of a key, outermost first.
fn part(part: &Data) -> Vec<String> {
    match part {
        Data::Stack(frames) => frames.iter().rev().map(|at| frame(&at.label())).collect(),
        other => vec![frame(&other.label())],
    }
}

/// Text of a frame, without the separator of frames and without newlines.
fn frame(text: &str) -> String {
    escape(text.as_bytes()).replace(';', ":")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Frame;
    use crate::export::{Site, Status, Thread};

    fn stack(frames: &[&str]) -> Data {
        let frame = |name: &&str| Frame { symbol: Some((*name).into()), ..Frame::default() };
        Data::Stack(frames.iter().map(frame).collect())
    }

    fn record(name: &str, kind: Kind, fields: Vec<(Arc<str>, Data)>) -> Record {
        let thread = Thread { pid: 1, tid: 1, comm: "py\nthon".into(), program: "python3".into() };
        let (thread, fields) = (Some(thread.into()), fields.into_iter().collect());
        Record { kind, time_ns: 0, thread, site: Site::default().into(), name: name.into(), fields }
    }

    fn table(name: &str, rows: Vec<(Vec<Data>, Data)>) -> Record {
        let rows = rows.into_iter().map(|(key, value)| Row { key, value }).collect();
        record(name, Kind::Table(Table { agg: None, rows }), vec![])
    }

    fn span(name: &str, duration_ns: u64, frames: &[&str]) -> Record {
        let span =
            Span { duration_ns, span_id: 1, parent_id: 0, status: Status::Ok, result: None, launch_id: 0 };
        record(name, Kind::Span(span), vec![("stack".into(), stack(frames))])
    }

    fn folded(records: &[Record]) -> String {
        let mut out = Vec::new();
        let mut folded = FoldedStacks::new(&mut out);
        records.iter().for_each(|record| folded.record(record).unwrap());
        folded.finish(&End::default()).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_map_by_stack_as_it_was_last() {
        let before = table("@", vec![(vec![stack(&["cuInit", "main"])], Data::Uint(1))]);
        let key = vec![Data::Text("a;b".into()), stack(&["cu\x1bInit", "main"]), Data::Text("leaf".into())];
        let now = table("@", vec![(key, Data::Uint(7)), (vec![stack(&[])], Data::Int(-1))]);
        assert_eq!(folded(&[before, now]), "a:b;main;cu\\x1bInit;leaf 7\n");
    }

    #[test]
    fn two_maps_have_their_names_and_win_over_spans() {
        let stats = Data::Map(vec![("total".into(), Data::Uint(9)), ("count".into(), Data::Uint(2))]);
        let one = table("@a", vec![(vec![stack(&["f"])], stats)]);
        let two = table("@b", vec![(vec![stack(&["f"])], Data::Uint(3))]);
        let plain = table("@c", vec![(vec![Data::Uint(1)], Data::Uint(5))]);
        assert_eq!(folded(&[one, two, plain, span("x", 1, &["f"])]), "@a;f 9\n@b;f 3\n");
    }

    fn call(name: &str, duration_ns: u64, span_id: u64, parent_id: u64) -> Record {
        let span = Span { duration_ns, span_id, parent_id, status: Status::Ok, result: None, launch_id: 0 };
        record(name, Kind::Span(span), vec![])
    }

    #[test]
    fn calls_without_stacks_by_how_they_lie_in_each_other() {
        let records = [
            call("ioctl", 2, 3, 2),
            call("cuMemAlloc", 5, 2, 1),
            call("cuMemAlloc", 4, 4, 1),
            call("cudaMalloc", 10, 1, 0),
            call("cuInit", 7, 5, 99),
        ];
        let expected = "cuInit 7\npy\\nthon;cudaMalloc 1\npy\\nthon;cudaMalloc;cuMemAlloc 7\n\
                        py\\nthon;cudaMalloc;cuMemAlloc;ioctl 2\n";
        assert_eq!(folded(&records), expected);
    }

    #[test]
    fn spans_by_their_stacks() {
        let records =
            [span("cuInit", 5, &["g", "main"]), span("cuInit", 6, &["g", "main"]), span("x", 1, &[])];
        assert_eq!(folded(&records), "py\\nthon;main;g;cuInit 11\npy\\nthon;x 1\n");
    }
}
