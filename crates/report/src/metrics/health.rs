//! Metrics of the tracer itself, beside those of the script.

use wire::{CounterKind, Manifest};

use super::{Family, Kind, Labels, Number, Point, Reading};
use crate::Loss;

/// State of a running session.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Health {
    /// `0.1.0`
    pub version: String,
    /// Number of attach points that succeeded.
    pub attached: usize,
    /// Number of attach points that failed.
    pub failed: usize,
    /// Number of files that were found but cannot be traced.
    pub untraced: usize,
    /// True if a script has no probe until a process maps its library.
    pub waiting: bool,
    /// Runs of each clause. Empty if the kernel does not measure them.
    pub runs: Vec<ClauseRuns>,
    /// Failures and losses so far.
    pub losses: Vec<Loss>,
    /// For each sink: the number of records that it dropped.
    pub dropped: Vec<(String, u64)>,
}

/// Runs of the programs of a clause.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClauseRuns {
    /// Probes of the clause; empty for programs of the tracer itself.
    pub probe: String,
    /// Number of runs.
    pub hits: u64,
    /// Time in ns.
    pub ns: u64,
}

/// Name in place of a clause, for programs that follow children and record names of GPU kernels, and in place of the maps of the compiler.
const OWN: &str = "cudatrace itself";

/// A row of the table of own metrics.
struct Row {
    name: &'static str,
    unit: &'static str,
    kind: Kind,
    help: &'static str,
    points: fn(&Health, &LossCounts) -> Vec<Point>,
}

/// All families; those without a point are omitted.
static FAMILIES: &[Row] = &[
    Row {
        name: "cudatrace.build.info",
        unit: "",
        kind: Kind::Gauge,
        help: "Version of the tracer",
        points: |health, _| vec![point(label("version", &health.version), 1)],
    },
    Row {
        name: "cudatrace.probes.attached",
        unit: "",
        kind: Kind::Gauge,
        help: "Attach points that are attached",
        points: |health, _| one(health.attached as u64),
    },
    Row {
        name: "cudatrace.probes.failed",
        unit: "",
        kind: Kind::Gauge,
        help: "Attach points that the kernel refused",
        points: |health, _| one(health.failed as u64),
    },
    Row {
        name: "cudatrace.files.failed",
        unit: "",
        kind: Kind::Gauge,
        help: "Files with functions to probe that could not be traced",
        points: |health, _| one(health.untraced as u64),
    },
    Row {
        name: "cudatrace.waiting",
        unit: "",
        kind: Kind::Gauge,
        help: "1 as long as no process has mapped a library that a script probes",
        points: |health, _| one(health.waiting.into()),
    },
    Row {
        name: "cudatrace.probe.hits",
        unit: "{run}",
        kind: Kind::Counter,
        help: "Runs of the programs of a clause",
        points: |health, _| health.by_probe(|hits, _| hits.into()),
    },
    Row {
        name: "cudatrace.probe.overhead",
        unit: "s",
        kind: Kind::Counter,
        help: "Run time of the programs of a clause, without the overhead of the kernel",
        points: |health, _| health.by_probe(|_, ns| Number { whole: ns.into(), divisor: 1_000_000_000 }),
    },
    Row {
        name: "cudatrace.events.lost",
        unit: "{event}",
        kind: Kind::Counter,
        help: "Events that did not fit into the ring buffer",
        points: |_, losses| one(losses.lost),
    },
    Row {
        name: "cudatrace.calls.open",
        unit: "{call}",
        kind: Kind::Gauge,
        help: "Calls whose return was not seen yet: under way, or lost",
        points: |_, losses| one(losses.open),
    },
    Row {
        name: "cudatrace.problems",
        unit: "",
        kind: Kind::Counter,
        help: "What else was lost or went wrong, by kind",
        points: |_, losses| losses.others.clone(),
    },
    Row {
        name: "cudatrace.sink.dropped",
        unit: "{record}",
        kind: Kind::Counter,
        help: "Records that a sink could not hold or deliver",
        points: |health, _| {
            health.dropped.iter().map(|(sink, count)| point(label("sink", sink), *count)).collect()
        },
    },
];

/// Failures and losses by family; some have a family of their own. A kind that can occur but has not is 0.
#[derive(Default)]
struct LossCounts {
    lost: u64,
    open: u64,
    others: Vec<Point>,
}

impl LossCounts {
    fn of(losses: &[Loss], manifest: &Manifest) -> LossCounts {
        let mut sums = LossCounts::default();
        let possible = manifest.counters.iter().map(|counter| (&counter.kind, 0));
        for (kind, count) in possible.chain(losses.iter().map(|loss| (&loss.kind, loss.count))) {
            match kind {
                CounterKind::LostEvent(_) => sums.lost += count,
                CounterKind::Entered(_) => sums.open += count,
                CounterKind::Returned(_) => {}
                kind => add(&mut sums.others, labels(manifest, kind), count),
            }
        }
        sums
    }
}

impl Health {
    /// The state as families of metrics.
    pub fn families(&self, manifest: &Manifest) -> Vec<Family> {
        let losses = LossCounts::of(&self.losses, manifest);
        let family = |row: &Row| Family {
            name: row.name.into(),
            unit: row.unit.into(),
            help: row.help.into(),
            kind: row.kind,
            points: (row.points)(self, &losses),
        };
        FAMILIES.iter().map(family).filter(|family| !family.points.is_empty()).collect()
    }

    /// A value for each clause, computed from its runs and their ns.
    fn by_probe(&self, pick: fn(u64, u64) -> Number) -> Vec<Point> {
        let point = |runs: &ClauseRuns| Point {
            labels: label("probe", if runs.probe.is_empty() { OWN } else { &runs.probe }),
            value: Reading::Number(pick(runs.hits, runs.ns)),
        };
        self.runs.iter().map(point).collect()
    }
}

fn one(value: u64) -> Vec<Point> {
    vec![point(Vec::new(), value)]
}

fn label(name: &str, value: &str) -> Labels {
    vec![(name.to_owned(), value.to_owned())]
}

fn point(labels: Labels, value: u64) -> Point {
    Point { labels, value: Reading::Number(value.into()) }
}

/// Adds to a point; several positions of the script may have the same failure.
fn add(points: &mut Vec<Point>, labels: Labels, count: u64) {
    match points.iter_mut().find(|point| point.labels == labels) {
        Some(Point { value: Reading::Number(number), .. }) => number.whole += i128::from(count),
        _ => points.push(point(labels, count)),
    }
}

fn labels(manifest: &Manifest, kind: &CounterKind) -> Labels {
    let mut labels = label("kind", word(kind));
    if let CounterKind::MapFull(id) | CounterKind::MapLocked(id) | CounterKind::MissingKey(id) = kind {
        // Maps of the compiler, such as those for devices, are one series: their names mean nothing to a user.
        let name = match manifest.maps.get(*id as usize) {
            Some(map) if map.is_hidden() => OWN.to_owned(),
            map => format!("@{}", map.map_or("", |map| map.name.as_str())),
        };
        labels.extend(label("map", &name));
    }
    labels
}

fn word(kind: &CounterKind) -> &'static str {
    match kind {
        CounterKind::MapFull(_) => "map_full",
        CounterKind::MapLocked(_) => "map_locked",
        CounterKind::MissingKey(_) => "missing_key",
        CounterKind::UserRead => "user_read",
        CounterKind::DivisionByZero => "division_by_zero",
        CounterKind::OutOfBounds => "out_of_bounds",
        CounterKind::LoopLimit => "loop_limit",
        CounterKind::LostStack => "lost_stack",
        CounterKind::NoUnwindTable => "no_unwind_table",
        CounterKind::NoScratch => "no_scratch",
        CounterKind::NoCallSlot => "no_call_slot",
        CounterKind::NoRoomAround => "no_room_around",
        CounterKind::NoEntry(_) => "return_without_entry",
        CounterKind::UnsentSignal => "unsent_signal",
        CounterKind::Unfinished => "unfinished",
        CounterKind::Missed => "missed",
        CounterKind::LostEvent(_) | CounterKind::Entered(_) | CounterKind::Returned(_) => "other",
    }
}
