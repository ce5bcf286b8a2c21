//! The tracer about itself, as metrics beside those of the script.

use wire::{CounterKind, Manifest};

use super::{Family, Kind, Labels, Number, Point, Reading};
use crate::Trouble;

/// What is known of a run while it goes on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Health {
    /// `0.1.0`
    pub version: String,
    /// Attach points that took.
    pub attached: usize,
    /// Attach points that did not.
    pub failed: usize,
    /// Of each clause: its probes, how often its programs ran, and ns in them. Nothing where the kernel does not count.
    pub runs: Vec<(String, u64, u64)>,
    /// What was lost or went wrong so far.
    pub troubles: Vec<Trouble>,
    /// Of each sink: what it could not hold or deliver.
    pub dropped: Vec<(String, u64)>,
}

/// Troubles that are counters of their own; the others share one family.
const LOST: &str = "cudatrace.events.lost";

impl Health {
    /// As families.
    pub fn families(&self, manifest: &Manifest) -> Vec<Family> {
        let (mut lost, mut open) = (0, 0);
        let mut problems: Vec<Point> = Vec::new();
        for trouble in &self.troubles {
            match &trouble.kind {
                CounterKind::LostEvent(_) => lost += trouble.count,
                CounterKind::Entered(_) => open += trouble.count,
                kind => add(&mut problems, word(manifest, kind), trouble.count),
            }
        }
        let one = |value: u64| vec![point(Vec::new(), value)];
        let by_probe = |pick: fn(&(String, u64, u64)) -> Number| -> Vec<Point> {
            let label = |run: &(String, u64, u64)| vec![("probe".to_owned(), run.0.clone())];
            let point = |run| Point { labels: label(run), value: Reading::Number(pick(run)) };
            self.runs.iter().map(point).collect()
        };
        let version = vec![("version".to_owned(), self.version.clone())];
        let dropped =
            self.dropped.iter().map(|(sink, count)| point(vec![("sink".into(), sink.clone())], *count));
        let families = [
            family("cudatrace.build.info", "", Kind::Gauge, "Version of the tracer", vec![point(version, 1)]),
            family(
                "cudatrace.probes.attached",
                "",
                Kind::Gauge,
                "Attach points that took",
                one(self.attached as u64),
            ),
            family(
                "cudatrace.probes.failed",
                "",
                Kind::Gauge,
                "Attach points that the kernel refused",
                one(self.failed as u64),
            ),
            family(
                "cudatrace.probe.hits",
                "{run}",
                Kind::Counter,
                "Runs of the programs of a clause",
                by_probe(|run| run.1.into()),
            ),
            family(
                "cudatrace.probe.overhead",
                "s",
                Kind::Counter,
                "Time in the programs of a clause, without what the kernel needs to reach them",
                by_probe(|run| Number { whole: run.2.into(), divisor: 1_000_000_000 }),
            ),
            family(LOST, "{event}", Kind::Counter, "Events that found no room in the ring buffer", one(lost)),
            family(
                "cudatrace.calls.open",
                "{call}",
                Kind::Gauge,
                "Calls whose return was not seen yet: under way, or lost",
                one(open),
            ),
            family(
                "cudatrace.problems",
                "",
                Kind::Counter,
                "What else was lost or went wrong, by kind",
                problems,
            ),
            family(
                "cudatrace.sink.dropped",
                "{record}",
                Kind::Counter,
                "Records that a sink could not hold or deliver",
                dropped.collect(),
            ),
        ];
        families.into_iter().filter(|family| !family.points.is_empty()).collect()
    }
}

fn family(name: &str, unit: &str, kind: Kind, help: &str, points: Vec<Point>) -> Family {
    Family { name: name.into(), unit: unit.into(), help: help.into(), kind, points }
}

fn point(labels: Labels, value: u64) -> Point {
    Point { labels, value: Reading::Number(value.into()) }
}

/// Several places of the script may have the same trouble.
fn add(points: &mut Vec<Point>, labels: Labels, count: u64) {
    match points.iter_mut().find(|point| point.labels == labels) {
        Some(Point { value: Reading::Number(number), .. }) => number.whole += i128::from(count),
        _ => points.push(point(labels, count)),
    }
}

fn word(manifest: &Manifest, kind: &CounterKind) -> Labels {
    let map = |id: u32| manifest.maps.get(id as usize).map_or("@".into(), |map| format!("@{}", map.name));
    let (word, map) = match kind {
        CounterKind::MapFull(id) => ("map_full", map(*id)),
        CounterKind::MissingKey(id) => ("missing_key", map(*id)),
        CounterKind::UserRead => ("user_read", String::new()),
        CounterKind::DivisionByZero => ("division_by_zero", String::new()),
        CounterKind::LoopLimit => ("loop_limit", String::new()),
        CounterKind::LostStack => ("lost_stack", String::new()),
        CounterKind::NoUnwindTable => ("no_unwind_table", String::new()),
        CounterKind::NoScratch => ("no_scratch", String::new()),
        CounterKind::NoCallSlot => ("no_call_slot", String::new()),
        CounterKind::NoRoomAround => ("no_room_around", String::new()),
        CounterKind::NoEntry(_) => ("return_without_entry", String::new()),
        CounterKind::UnsentSignal => ("unsent_signal", String::new()),
        CounterKind::LostEvent(_) | CounterKind::Entered(_) | CounterKind::Returned(_) => {
            ("other", String::new())
        }
    };
    vec![("kind".to_owned(), word.to_owned()), ("map".to_owned(), map)]
}
