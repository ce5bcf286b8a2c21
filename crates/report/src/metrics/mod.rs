//! Maps as metric families, the input of the metric formats (`openmetrics`, `export::otlp`).
//!
//! ```text
//! @[func] = count()          counter    cudatrace_map{func="cuInit"} 3
//! @us[pid] = hist(duration)  histogram  cudatrace_us{pid="7"}, bounds 0, 1, 3, 7 ... 2^i - 1
//! @live[pid] += n            gauge      cudatrace_live{pid="7"} 4096
//! ```
//!
//! Names, labels and units are those declared in the script (`metric @m = { ... }`), otherwise derived from the map and its keys.
//! A name may have OpenTelemetry's form, `gpu.cuda.memory.copies` with unit `By`; Prometheus' form is derived from it by
//! OpenTelemetry's rule, `gpu_cuda_memory_copies_bytes`.
//!
//! Keys by process (`processes`) and the number of series (`series_limit`) are bounded without decreasing counters. Bounds of
//! histograms depend only on the map and its unit, so that histograms of several tracers can be added.

mod births;
mod health;
mod histogram;
pub mod openmetrics;
mod processes;
pub mod prometheus;
mod series_limit;

pub use births::Births;
pub use health::{ClauseRuns, Health};
pub use processes::{Device, Life, Process, by_process, labels_of_process};

use std::collections::{HashMap, HashSet};

use wire::manifest::{Metric, MetricKind};
use wire::map::{Agg, Map, MapValue};
use wire::{Manifest, Value};

use crate::map_order::wide;
use crate::value::{Context, escape};
use crate::{Cell, Names, Snapshot, hist};

/// Value of all labels of the series that sums up those beyond the limit.
pub const OTHER: &str = "other";
/// Default limit of series per family.
pub const SERIES: usize = 1000;
/// Names of labels or attributes, with their values.
pub type Labels = Vec<(String, String)>;

/// Metrics with the same name.
#[derive(Clone, Debug, PartialEq)]
pub struct Family {
    /// Name as declared, with dots or underscores.
    pub name: String,
    /// Unit in UCUM: `By`, `s`, `{call}`; empty if there is none.
    pub unit: String,
    /// Description.
    pub help: String,
    /// Kind of the values.
    pub kind: Kind,
    /// One point per set of labels.
    pub points: Vec<Point>,
}

/// Kind of the values of a family.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A value that never decreases during the run.
    Counter,
    /// A value that increases and decreases, and whose sum over all series is meaningful.
    UpDownCounter,
    /// A value that increases and decreases.
    Gauge,
    /// Distribution of samples.
    Histogram,
    /// Number and sum of samples.
    Summary,
}

/// A series at one time.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// Labels in the order of the key.
    pub labels: Labels,
    /// Its value.
    pub value: Reading,
}

/// Value of a series.
#[derive(Clone, Debug, PartialEq)]
pub enum Reading {
    /// Value of a counter or gauge.
    Number(Number),
    /// Buckets of a histogram.
    Histogram {
        /// Inclusive upper bounds, with the number of samples up to each. The last bound does not include all
        /// samples: see `count`.
        buckets: Vec<(Number, u64)>,
        /// Number of all samples.
        count: u64,
        /// Sum of the samples, if it is kept and no sample can be negative.
        sum: Option<Number>,
    },
    /// Samples and sum of a summary.
    Summary {
        /// Number of samples.
        count: u64,
        /// Sum of the samples.
        sum: Number,
    },
}

/// An integer with the divisor of its family.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Number {
    /// Integer in the map.
    pub whole: i128,
    /// Divisor; 1 for a number that is exported unchanged.
    pub divisor: u64,
}

impl Number {
    /// Nearest double.
    pub fn as_f64(self) -> f64 {
        self.whole as f64 / self.divisor as f64
    }
}

impl From<u64> for Number {
    fn from(whole: u64) -> Number {
        Number { whole: whole.into(), divisor: 1 }
    }
}

impl std::fmt::Display for Number {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.divisor {
            1 => write!(f, "{}", self.whole),
            _ => write!(f, "{}", self.as_f64()),
        }
    }
}

/// Converter of maps to families, called repeatedly during a run.
#[derive(Debug)]
pub struct Metrics {
    limit: usize,
    /// Number of calls of [`Metrics::families`].
    reads: u64,
    /// State of each map between two readings.
    kept: HashMap<u32, MapHistory>,
}

/// State of a map between two readings.
#[derive(Debug, Default)]
struct MapHistory {
    /// Series of the last reading, and whether each has its own series or is part of [`OTHER`].
    seen: HashMap<Labels, bool>,
    /// Values of ended processes, whose keys have been deleted.
    ended: HashMap<Labels, EndedProcesses>,
}

/// Contribution of ended processes to a series.
#[derive(Clone, Debug, Default)]
struct EndedProcesses {
    tally: Tally,
    /// The last reading at which one of its processes existed.
    read: u64,
}

/// A series before conversion.
struct Series {
    labels: Labels,
    tally: Tally,
    /// True if its value may still change: it is not only of ended processes.
    live: bool,
}

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics::new(SERIES)
    }
}

/// The maps that are exported: those that the script declares as metrics, or all maps if it declares none.
pub fn exported(manifest: &Manifest) -> Vec<u32> {
    let of = |map: &u32| manifest.metrics.get(*map as usize);
    let visible = |at: &u32| manifest.maps.get(*at as usize).is_some_and(|map| !map.is_hidden());
    let all = (0..manifest.maps.len() as u32).filter(visible);
    match manifest.metrics.iter().any(|metric| metric.declared) {
        true => all.filter(|map| of(map).is_some_and(|metric| metric.declared)).collect(),
        false => all.collect(),
    }
}

impl Metrics {
    /// Exports at most `limit` series per family, plus one for the others.
    pub fn new(limit: usize) -> Metrics {
        Metrics { limit, reads: 0, kept: HashMap::new() }
    }

    /// The families of maps; `snapshots` has all maps in [`exported`]. Families without a series are omitted.
    pub fn families(
        &mut self,
        manifest: &Manifest,
        names: &dyn Names,
        snapshots: &[Snapshot],
    ) -> Vec<Family> {
        self.reads += 1;
        let context = Context { manifest, names, verbatim: false };
        let of = |map: u32| snapshots.iter().find(|snapshot| snapshot.map == map);
        let exported = exported(manifest);
        let mut families: Vec<Family> =
            exported.into_iter().filter_map(|map| self.family(context, of(map)?)).collect();
        distinct(&mut families);
        families
    }

    fn family(&mut self, context: Context<'_>, snapshot: &Snapshot) -> Option<Family> {
        let (shape, metric) = shape(context.manifest, snapshot.map)?;
        let kept = self.kept.entry(snapshot.map).or_default();
        let rows = snapshot.entries.iter().filter_map(|(key, cell)| {
            let (labels, life) = labels(context, &metric, key);
            let is_over = shape.kind.is_now() && life != Life::Alive;
            (!is_over).then_some(Series { labels, tally: shape.tally(cell)?, live: life == Life::Alive })
        });
        let series = kept.with_ended(joined(rows, &shape), self.reads, &shape);
        let series = kept.limited(series, self.limit, &shape);
        let point = |(labels, tally)| Point { labels, value: shape.reading(tally) };
        let points: Vec<Point> = series.into_iter().map(point).collect();
        (!points.is_empty()).then(|| Family {
            name: family_name(shape.map, &metric),
            unit: metric.unit.clone(),
            help: help(shape.map, &metric),
            kind: shape.kind,
            points,
        })
    }
}

/// Type and settings of a map as a metric; `None` if it is not a metric.
fn shape(manifest: &Manifest, map: u32) -> Option<(Shape<'_>, Metric)> {
    let declared = manifest.maps.get(map as usize)?;
    let metric = manifest.metrics.get(map as usize).cloned().unwrap_or_default();
    let kind = kind(declared, &metric)?;
    let divisor = metric.divisor.max(1);
    let bounds = histogram::bounds(&declared.value, &metric.unit, divisor);
    Some((Shape { map: declared, kind, divisor, bounds }, metric))
}

/// Merges series with the same labels.
fn joined(rows: impl Iterator<Item = Series>, shape: &Shape<'_>) -> HashMap<Labels, Series> {
    let mut all: HashMap<Labels, Series> = HashMap::new();
    for Series { labels, tally, live } in rows {
        let empty = || Series { labels: labels.clone(), tally: Tally::default(), live: false };
        let series = all.entry(labels.clone()).or_insert_with(empty);
        series.tally.join(tally, shape);
        series.live |= live;
    }
    all
}

impl Kind {
    /// Whether the values are a current state, not a total of events.
    fn is_now(self) -> bool {
        matches!(self, Kind::Gauge | Kind::UpDownCounter)
    }
}

/// Conversion of the cells of a map.
struct Shape<'a> {
    map: &'a Map,
    kind: Kind,
    divisor: u64,
    /// Buckets of a histogram that have an upper bound, with the bound.
    bounds: Vec<(usize, i128)>,
}

/// A cell, or several merged cells, as numbers.
#[derive(Clone, Debug, Default)]
struct Tally {
    cells: u32,
    number: i128,
    count: u64,
    buckets: Vec<u64>,
    sum: Option<i128>,
}

impl Tally {
    /// Size of the value, for comparing series of a family.
    fn magnitude(&self) -> i128 {
        self.number.abs() + i128::from(self.count) + i128::from(self.buckets.iter().sum::<u64>())
    }

    fn join(&mut self, other: Tally, shape: &Shape<'_>) {
        self.number = match &shape.map.value {
            _ if self.cells == 0 => other.number,
            MapValue::Agg(Agg::Min { .. }) => self.number.min(other.number),
            // A mean of means is meaningless; the largest is at least an upper bound.
            MapValue::Agg(Agg::Max { .. } | Agg::Avg { .. }) => self.number.max(other.number),
            _ => self.number + other.number,
        };
        self.cells += 1;
        self.count += other.count;
        self.buckets.resize(self.buckets.len().max(other.buckets.len()), 0);
        self.buckets.iter_mut().zip(other.buckets).for_each(|(all, more)| *all += more);
        self.sum = match (self.sum, other.sum) {
            (Some(one), Some(more)) => Some(one + more),
            (one, more) => one.or(more),
        };
    }
}

impl Shape<'_> {
    fn tally(&self, cell: &Cell) -> Option<Tally> {
        match cell {
            Cell::Plain(_) | Cell::Number { .. } => Some(Tally { number: plain(cell)?, ..Tally::default() }),
            Cell::Stats { count, total, signed } => {
                let number = wide(*total, *signed);
                Some(Tally { number, count: *count, ..Tally::default() })
            }
            Cell::Series(points) => {
                let last = points.last()?;
                Some(Tally { number: wide(last.bits, last.signed), ..Tally::default() })
            }
            Cell::Buckets { counts, sum } => {
                let sum = sum.map(i128::from);
                Some(Tally { buckets: counts.clone(), sum, ..Tally::default() })
            }
        }
    }

    fn number(&self, whole: i128) -> Number {
        Number { whole, divisor: self.divisor }
    }

    fn reading(&self, tally: Tally) -> Reading {
        match self.kind {
            Kind::Counter | Kind::Gauge | Kind::UpDownCounter => Reading::Number(self.number(tally.number)),
            Kind::Summary => Reading::Summary { count: tally.count, sum: self.number(tally.number) },
            Kind::Histogram => {
                let count = tally.buckets.iter().sum();
                let sum = tally.sum.filter(|_| !self.has_negative(&tally.buckets));
                let buckets = self.buckets(&tally.buckets);
                Reading::Histogram { buckets, count, sum: sum.map(|sum| self.number(sum)) }
            }
        }
    }

    /// Whether samples may be negative. A sum of such samples may decrease, so OpenMetrics and OTLP omit it.
    fn has_negative(&self, counts: &[u64]) -> bool {
        let MapValue::Agg(agg) = &self.map.value else { return false };
        let Some(lowest) = counts.iter().position(|count| *count > 0) else { return false };
        hist::range(agg, lowest).and_then(|(low, _)| low).is_none_or(|low| low < 0)
    }

    /// Upper bounds and the number of samples up to each.
    fn buckets(&self, counts: &[u64]) -> Vec<(Number, u64)> {
        let up_to = |bucket: usize| counts.iter().take(bucket + 1).sum();
        self.bounds.iter().map(|&(bucket, bound)| (self.number(bound), up_to(bucket))).collect()
    }
}

fn plain(cell: &Cell) -> Option<i128> {
    match cell {
        Cell::Plain(Value::Int(value, _) | Value::Enum(_, value)) => Some((*value).into()),
        Cell::Plain(Value::Uint(value, _)) => Some((*value).into()),
        Cell::Plain(Value::Bool(value)) => Some((*value).into()),
        Cell::Number { bits, signed } => Some(wide(*bits, *signed)),
        _ => None,
    }
}

/// Kind of a map's values; `None` for text and similar values, which are not metrics.
fn kind(map: &Map, metric: &Metric) -> Option<Kind> {
    use wire::Type;
    let natural = match &map.value {
        MapValue::Plain(Type::Int { .. } | Type::Enum { .. } | Type::Bool) => Kind::Gauge,
        MapValue::Plain(_) => return None,
        MapValue::Agg(Agg::Count | Agg::Sum { signed: false }) => Kind::Counter,
        // A signed sum that decreases is still a total of events; a script can declare it as `gauge`.
        MapValue::Agg(Agg::Sum { signed: true }) => Kind::Counter,
        // The value is that of the last interval.
        MapValue::Agg(Agg::TSeries { .. }) => Kind::Gauge,
        MapValue::Agg(Agg::Min { .. } | Agg::Max { .. } | Agg::Avg { .. }) => Kind::Gauge,
        MapValue::Agg(Agg::Stats { .. }) => Kind::Summary,
        MapValue::Agg(Agg::Hist { .. } | Agg::LHist { .. }) => Kind::Histogram,
    };
    Some(match (natural, metric.kind) {
        (Kind::Counter | Kind::Gauge, Some(MetricKind::Counter)) => Kind::Counter,
        (Kind::Counter | Kind::Gauge, Some(MetricKind::UpDownCounter)) => Kind::UpDownCounter,
        (Kind::Counter | Kind::Gauge, Some(MetricKind::Gauge)) => Kind::Gauge,
        (natural, _) => natural,
    })
}

fn family_name(map: &Map, metric: &Metric) -> String {
    match (metric.name.as_str(), map.name.as_str()) {
        ("", "") => "cudatrace_map".into(),
        ("", map) => format!("cudatrace_{map}"),
        (name, _) => name.to_owned(),
    }
}

fn help(map: &Map, metric: &Metric) -> String {
    if metric.help.is_empty() { format!("map @{} of the script", map.name) } else { metric.help.clone() }
}

/// The labels of a key, and the state of the process in it.
fn labels(context: Context<'_>, metric: &Metric, key: &[Value]) -> (Labels, Life) {
    let name = |at: usize| metric.labels.get(at).cloned().unwrap_or_else(|| format!("key{at}"));
    let parts = crate::value::key_parts(key);
    let parts = parts.iter().enumerate().map(|(at, part)| (name(at), part));
    processes::labels(context, parts.collect())
}

fn label_text(context: Context<'_>, part: &Value) -> String {
    match part {
        Value::Stack { .. } => context.folded(part).unwrap_or_default(),
        Value::Str(bytes, _) => escape(bytes),
        other => context.text(other),
    }
}

/// Renames families whose samples would have the same names: `x_2`.
fn distinct(families: &mut [Family]) {
    let mut taken = HashSet::new();
    for family in families {
        let plain = family.name.clone();
        let mut number = 1;
        while prometheus::sample_names(family).iter().any(|name| taken.contains(name)) {
            number += 1;
            family.name = format!("{plain}_{number}");
        }
        taken.extend(prometheus::sample_names(family));
    }
}

#[cfg(test)]
mod tests;
