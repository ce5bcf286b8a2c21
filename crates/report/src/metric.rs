//! Maps as metrics: what formats of metrics (`sink::openmetrics`, `sink::otlp`) are written from.
//!
//! ```text
//! @[func] = count()          counter    cudatrace_map{func="cuInit"} 3
//! @us[pid] = hist(duration)  histogram  cudatrace_us{pid="7"}, bounds 0, 1, 3, 7 ... 2^i - 1
//! @live[pid] += n            gauge      cudatrace_live{pid="7"} 4096
//! ```
//!
//! Names, labels and units are those that the script declares (`metric @m = { ... }`), else made from the map and its keys.
//! A name may be written as OpenTelemetry does, `gpu.cuda.memory.copies` with unit `By`; Prometheus' form is made from it by
//! OpenTelemetry's own rule, `gpu_cuda_memory_copies_bytes`.
//!
//! Each family has a limit of series. Who came first stays, so that no counter ever falls; the others are summed in one
//! series whose labels all are [`OTHER`].

mod health;
pub mod prometheus;

pub use health::Health;

use std::collections::{BTreeMap, HashMap, HashSet};

use wire::manifest::{Metric, MetricKind};
use wire::map::{Agg, Map, MapValue, hist_range};
use wire::{Manifest, Value};

use crate::hist;
use crate::order::wide;
use crate::value::{Context, escape};
use crate::{Cell, Names, Snapshot};

/// What the labels of a series are that stands for those beyond the limit.
pub const OTHER: &str = "other";
/// Series of a family, if nothing else is asked for.
pub const SERIES: usize = 1000;
/// Bounds in a power of two are no more than 2 to this; finer histograms are joined, which is exact.
const FINEST_BITS: u8 = 2;

/// Label or attribute, and its value.
pub type Labels = Vec<(String, String)>;

/// Metrics of one name.
#[derive(Clone, Debug, PartialEq)]
pub struct Family {
    /// As declared, with dots or underscores.
    pub name: String,
    /// UCUM: `By`, `s`, `{call}`; empty if there is none.
    pub unit: String,
    /// What it is, in words.
    pub help: String,
    /// What its values are.
    pub kind: Kind,
    /// One for each set of labels.
    pub points: Vec<Point>,
}

/// What the values of a family are.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Never falls while the run lasts.
    Counter,
    /// Rises and falls.
    Gauge,
    /// Samples by size.
    Histogram,
    /// Number of samples and their sum.
    Summary,
}

/// One series at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// In the order of the key.
    pub labels: Labels,
    /// Its value.
    pub value: Reading,
}

/// The value of a series.
#[derive(Clone, Debug, PartialEq)]
pub enum Reading {
    /// Of a counter or gauge.
    Number(Number),
    /// Of a histogram.
    Histogram {
        /// Upper bounds, which belong to their bucket, and the samples up to there. The last bound is not all: see `count`.
        buckets: Vec<(Number, u64)>,
        /// All samples.
        count: u64,
        /// Their sum, if it is kept and none of them may be negative.
        sum: Option<Number>,
    },
    /// Of a summary.
    Summary {
        /// Samples.
        count: u64,
        /// Their sum.
        sum: Number,
    },
}

/// An integer, over the divisor of its family.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Number {
    /// What the map holds.
    pub whole: i128,
    /// 1 for what is exported as it is.
    pub divisor: u64,
}

impl Number {
    /// Nearest number that a double can hold.
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

/// Makes families of maps, again and again during a run.
#[derive(Debug)]
pub struct Metrics {
    limit: usize,
    /// Of each map: series that were seen, and whether they stand for themselves.
    seen: HashMap<u32, HashMap<Labels, bool>>,
}

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics::new(SERIES)
    }
}

/// The maps that are exported: those that the script declares as metrics, or all that it has if it declares none.
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
    /// So many series of a family at most, and one for the rest.
    pub fn new(limit: usize) -> Metrics {
        Metrics { limit, seen: HashMap::new() }
    }

    /// The families of maps; `snapshots` has all that [`exported`] lists. Families without a series are left out.
    pub fn families(
        &mut self,
        manifest: &Manifest,
        names: &dyn Names,
        snapshots: &[Snapshot],
    ) -> Vec<Family> {
        let context = Context { manifest, names };
        let of = |map: u32| snapshots.iter().find(|snapshot| snapshot.map == map);
        let mut families = Vec::new();
        for map in exported(manifest) {
            let metric = manifest.metrics.get(map as usize);
            let (Some(declared), Some(snapshot)) = (manifest.maps.get(map as usize), of(map)) else {
                continue;
            };
            families.extend(self.family(context, declared, metric, snapshot));
        }
        distinct(&mut families);
        families
    }

    fn family(
        &mut self,
        context: Context<'_>,
        map: &Map,
        metric: Option<&Metric>,
        snapshot: &Snapshot,
    ) -> Option<Family> {
        let unnamed = Metric::default();
        let metric = metric.unwrap_or(&unnamed);
        let shape = Shape { map, kind: kind(map, metric)?, divisor: metric.divisor.max(1) };
        let labels = |key: &[Value]| labels(context, metric, key);
        let series: Vec<(Labels, Tally)> = snapshot
            .entries
            .iter()
            .filter_map(|(key, cell)| Some((labels(key), shape.tally(cell)?)))
            .collect();
        let series = self.limited(snapshot.map, series, &shape);
        let filled = series.iter().filter_map(|(_, tally)| tally.filled());
        let filled = filled.reduce(|one, more| (one.0.min(more.0), one.1.max(more.1)));
        let point = |(labels, tally)| Point { labels, value: shape.reading(tally, filled) };
        let points: Vec<Point> = series.into_iter().map(point).collect();
        (!points.is_empty()).then(|| Family {
            name: family_name(map, metric),
            unit: metric.unit.clone(),
            help: help(map, metric),
            kind: shape.kind,
            points,
        })
    }

    /// Joins series with the same labels, and those beyond the limit; by labels.
    fn limited(&mut self, map: u32, series: Vec<(Labels, Tally)>, shape: &Shape<'_>) -> Vec<(Labels, Tally)> {
        let before = self.seen.remove(&map).unwrap_or_default();
        let mut now = HashMap::new();
        let mut own = before.values().filter(|stays| **stays).count();
        let mut joined: BTreeMap<(bool, Labels), Tally> = BTreeMap::new();
        for (labels, tally) in series {
            let stays = *now.entry(labels.clone()).or_insert_with(|| {
                before.get(&labels).copied().unwrap_or_else(|| {
                    let room = own < self.limit;
                    own += usize::from(room);
                    room
                })
            });
            let labels = if stays { labels } else { others(labels) };
            let at = joined.entry((!stays, labels)).or_default();
            at.join(tally, shape);
        }
        self.seen.insert(map, now);
        joined.into_iter().map(|((_, labels), tally)| (labels, tally)).collect()
    }
}

fn others(labels: Labels) -> Labels {
    labels.into_iter().map(|(name, _)| (name, OTHER.to_owned())).collect()
}

/// How the cells of a map are read.
struct Shape<'a> {
    map: &'a Map,
    kind: Kind,
    divisor: u64,
}

/// A cell, or several that are joined, as plain numbers.
#[derive(Clone, Debug, Default)]
struct Tally {
    cells: u32,
    number: i128,
    count: u64,
    buckets: Vec<u64>,
    sum: Option<i128>,
}

impl Tally {
    /// The lowest and the highest bucket that hold something.
    fn filled(&self) -> Option<(usize, usize)> {
        let is_filled = |count: &u64| *count > 0;
        Some((self.buckets.iter().position(is_filled)?, self.buckets.iter().rposition(is_filled)?))
    }

    fn join(&mut self, other: Tally, shape: &Shape<'_>) {
        self.number = match &shape.map.value {
            _ if self.cells == 0 => other.number,
            MapValue::Agg(Agg::Min { .. }) => self.number.min(other.number),
            // A mean of means says nothing; the largest at least bounds them.
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

    /// `filled`: the lowest and the highest bucket that any series of the family has filled; they all have the same bounds.
    fn reading(&self, tally: Tally, filled: Option<(usize, usize)>) -> Reading {
        match self.kind {
            Kind::Counter | Kind::Gauge => Reading::Number(self.number(tally.number)),
            Kind::Summary => Reading::Summary { count: tally.count, sum: self.number(tally.number) },
            Kind::Histogram => {
                let buckets = self.buckets(&tally.buckets, filled);
                let count = tally.buckets.iter().sum();
                let sum =
                    tally.sum.filter(|_| !filled.is_some_and(|(lowest, _)| self.may_be_negative(lowest)));
                Reading::Histogram { buckets, count, sum: sum.map(|sum| self.number(sum)) }
            }
        }
    }

    /// Whether a bucket may have negative samples. Sums of those fall, so that both OpenMetrics and OTLP want none.
    fn may_be_negative(&self, bucket: usize) -> bool {
        match &self.map.value {
            MapValue::Agg(agg) => hist::range(agg, bucket).and_then(|(low, _)| low).is_none_or(|low| low < 0),
            MapValue::Plain(_) => false,
        }
    }

    /// Upper bounds and the samples up to each. A bucket without upper bound is in the count alone.
    fn buckets(&self, counts: &[u64], filled: Option<(usize, usize)>) -> Vec<(Number, u64)> {
        let (MapValue::Agg(agg), Some((lowest, highest))) = (&self.map.value, filled) else {
            return Vec::new();
        };
        let mut bounds = Vec::new();
        let mut up_to = 0;
        for (at, count) in counts.iter().enumerate() {
            up_to += count;
            // Below all samples one bound is enough, and a negative one there says nothing.
            let is_wanted = |bound: &i128| at >= lowest || at + 1 == lowest && *bound >= 0;
            if let Some(bound) = bound(agg, at, counts.len()).filter(is_wanted) {
                bounds.push((self.number(bound), up_to));
                if at >= highest {
                    break;
                }
            }
        }
        bounds
    }
}

/// The largest sample in a bucket, if there is one and the bound is wanted.
fn bound(agg: &Agg, at: usize, buckets: usize) -> Option<i128> {
    match *agg {
        Agg::Hist { bits, .. } => {
            let high = i128::from(hist_range(at as u32, bits).1?);
            is_coarse(high, bits).then_some(high - 1)
        }
        Agg::LHist { .. } if at + 1 == buckets => None,
        Agg::LHist { min, max, step, .. } => {
            let high = i128::from(min) + i128::from(step) * at as i128;
            Some(high.min(max.into()) - 1)
        }
        _ => None,
    }
}

/// Whether a bucket of [`FINEST_BITS`] ends here too.
fn is_coarse(high: i128, bits: u8) -> bool {
    if bits <= FINEST_BITS || high < 1 << (FINEST_BITS + 1) {
        return true;
    }
    let shift = 127 - high.leading_zeros() - u32::from(FINEST_BITS);
    high.trailing_zeros() >= shift
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

/// What a map's values are; none for text and the like, which is no metric.
fn kind(map: &Map, metric: &Metric) -> Option<Kind> {
    use wire::Type;
    let natural = match &map.value {
        MapValue::Plain(Type::Int { .. } | Type::Enum(_) | Type::Bool) => Kind::Gauge,
        MapValue::Plain(_) => return None,
        MapValue::Agg(Agg::Count | Agg::Sum { signed: false }) => Kind::Counter,
        // A sum of signed numbers that falls is still a sum of what happened; a script that knows it falls says `gauge`.
        MapValue::Agg(Agg::Sum { signed: true }) => Kind::Counter,
        // The value of the last interval.
        MapValue::Agg(Agg::TSeries { .. }) => Kind::Gauge,
        MapValue::Agg(Agg::Min { .. } | Agg::Max { .. } | Agg::Avg { .. }) => Kind::Gauge,
        MapValue::Agg(Agg::Stats { .. }) => Kind::Summary,
        MapValue::Agg(Agg::Hist { .. } | Agg::LHist { .. }) => Kind::Histogram,
    };
    Some(match (natural, metric.kind) {
        (Kind::Counter | Kind::Gauge, Some(MetricKind::Counter)) => Kind::Counter,
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

fn labels(context: Context<'_>, metric: &Metric, key: &[Value]) -> Labels {
    let name = |at: usize| metric.labels.get(at).cloned().unwrap_or_else(|| format!("key{at}"));
    let parts = crate::value::key_parts(key);
    let labels = parts.iter().enumerate().map(|(at, part)| (name(at), label_text(context, part)));
    with_program(context, labels.collect())
}

/// Puts the program of the process where a label says so, as scripts know the name of the thread alone: `comm`.
fn with_program(context: Context<'_>, mut labels: Labels) -> Labels {
    let pid = labels.iter().find(|(name, _)| name == "process.pid").and_then(|(_, pid)| pid.parse().ok());
    let executable = labels.iter_mut().find(|(name, _)| name == "process.executable.name");
    if let (Some(pid), Some((_, executable))) = (pid, executable)
        && let Some(program) = context.names.program(pid)
    {
        *executable = escape(program.as_bytes());
    }
    labels
}

fn label_text(context: Context<'_>, part: &Value) -> String {
    match part {
        Value::Stack { .. } => context.folded(part).unwrap_or_default(),
        Value::Str(bytes, _) => escape(bytes),
        other => context.text(other),
    }
}

/// Gives families whose samples would have the same names further ones: `x_2`.
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
