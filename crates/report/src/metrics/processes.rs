//! Keys by process: their labels, and their end with the process.
//!
//! ```text
//! labels = "process, process.executable.name"      {process_executable_name="python3", container_id="7c1f", ...}
//! labels = "process.pid, process.executable.name"  {process_pid="4242", process_executable_name="python3", ...}
//! ```
//!
//! A part of a key that is a process id may have the label [`PROCESS`] or [`PID`]. Both expand to the identity of the process: its
//! program, container and pod. `process` omits the id, so that processes of one program and one container share a series. When a
//! process has ended, its keys are deleted from the map ([`Metrics::settle`]), so that the map does not fill up. Its counts stay
//! in the series, since counters must not decrease. Its gauges end at once.

use std::collections::HashMap;
use std::sync::Arc;

use wire::{Manifest, Value};

use super::{Ended, Kind, Labels, MapHistory, Metrics, OTHER, Series, Shape, exported, label_text, shape};
use crate::value::{Context, escape, key_parts};
use crate::{Names, Snapshot};

/// The process, without its id.
const PROCESS: &str = "process";
/// The process by its id.
const PID: &str = "process.pid";
/// Its program. A key has the name of a thread there, for processes that end before anybody looks.
const PROGRAM: &str = "process.executable.name";
/// The number of a CUDA device of the process.
const DEVICE: &str = "cuda.device";

/// Readings that a series by process id outlasts its process, so that its last value is read.
const LAST: u64 = 2;
/// The same of a series of a container. Both are told from a program, which may run again: its series stays.
const CONTAINER_LAST: u64 = 10;
/// Labels of what does not come back.
const CONTAINER: [&str; 2] = ["container.id", "k8s.pod.uid"];

/// What a process is known by.
#[derive(Clone, Debug, Default)]
pub struct Process {
    /// File name of its program, if it was seen alive.
    pub program: Option<Arc<str>>,
    /// Its container and pod.
    pub place: Labels,
    /// Whether it still runs.
    pub life: Life,
}

/// Whether a process still runs.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Life {
    /// It does, or nothing says that it does not.
    #[default]
    Alive,
    /// It has ended; maps may have been read before.
    Ended,
    /// It had ended when the maps were read: they have its last values.
    Settled,
}

/// What a device is known by.
#[derive(Clone, Debug, Default)]
pub struct Device {
    /// As the program asked for it; none if it never did.
    pub uuid: Option<String>,
    /// As the program asked for it; none if it never did.
    pub model: Option<String>,
}

/// The exported maps whose keys name processes by a label.
pub fn by_process(manifest: &Manifest) -> Vec<u32> {
    let named = |map: &u32| {
        let metric = manifest.metrics.get(*map as usize);
        metric.is_some_and(|metric| metric.labels.iter().any(|label| is_process(label)))
    };
    exported(manifest).into_iter().filter(named).collect()
}

fn is_process(label: &str) -> bool {
    matches!(label, PROCESS | PID)
}

fn pid(part: &Value) -> Option<u32> {
    match part {
        Value::Uint(pid, _) => u32::try_from(*pid).ok(),
        Value::Int(pid, _) => u32::try_from(*pid).ok(),
        _ => None,
    }
}

/// The labels of a key's parts, and what has become of its process.
pub(crate) fn labels(context: Context<'_>, parts: Vec<(String, &Value)>) -> (Labels, Life) {
    let id = parts.iter().find_map(|(name, part)| pid(part).filter(|_| is_process(name)));
    let process = id.map(|id| context.names.process(id)).unwrap_or_default();
    let mut labels = Labels::new();
    for (name, part) in &parts {
        match (name.as_str(), pid(part)) {
            (PROCESS, Some(_)) => {}
            (PROGRAM, _) => {
                let program = process.program.as_ref();
                let text = program.map_or_else(|| label_text(context, part), |name| escape(name.as_bytes()));
                labels.push((name.clone(), text));
            }
            (DEVICE, number) => labels.extend(device(context.names, id, number)),
            _ => labels.push((name.clone(), label_text(context, part))),
        }
    }
    if let Some(program) = process.program.filter(|_| parts.iter().all(|(name, _)| name != PROGRAM)) {
        labels.push((PROGRAM.to_owned(), escape(program.as_bytes())));
    }
    labels.extend(process.place);
    (labels, process.life)
}

/// The labels of a device; none if it is not known which one it is.
fn device(names: &dyn Names, process: Option<u32>, number: Option<u32>) -> Labels {
    let Some(number) = number else { return Labels::new() };
    let Device { uuid, model } = process.map(|id| names.device(id, number)).unwrap_or_default();
    let known = [("index", Some(number.to_string())), ("uuid", uuid), ("model", model)];
    known.into_iter().filter_map(|(what, text)| Some((format!("{DEVICE}.{what}"), text?))).collect()
}

impl Metrics {
    /// Takes the rows of ended processes out of a snapshot, and keeps what they counted. Gives their keys, which are to be deleted
    /// from the map before its next snapshot.
    pub fn settle(
        &mut self,
        manifest: &Manifest,
        names: &dyn Names,
        snapshot: &mut Snapshot,
    ) -> Vec<Vec<Value>> {
        let Some((shape, metric)) = shape(manifest, snapshot.map) else { return Vec::new() };
        let context = Context { manifest, names, verbatim: false };
        let kept = self.kept.entry(snapshot.map).or_default();
        let settled = snapshot.entries.extract_if(.., |(key, _)| is_settled(names, &metric.labels, key));
        let mut keys = Vec::new();
        for (key, cell) in settled {
            let (labels, _) = super::labels(context, &metric, &key);
            let left = match shape.kind {
                // Receivers without a notion of series that end are told that nothing is left.
                Kind::UpDownCounter => kept.seen.contains_key(&labels).then(super::Tally::default),
                Kind::Gauge => None,
                _ => shape.tally(&cell),
            };
            if let Some(tally) = left {
                let ended = kept.ended.entry(labels).or_default();
                ended.tally.join(tally, &shape);
                ended.read = self.reads;
            }
            keys.push(key);
        }
        keys
    }
}

fn is_settled(names: &dyn Names, labels: &[String], key: &[Value]) -> bool {
    let parts = labels.iter().zip(key_parts(key));
    let mut ids = parts.filter(|(label, _)| is_process(label)).filter_map(|(_, part)| pid(part));
    ids.any(|id| names.process(id).life == Life::Settled)
}

impl MapHistory {
    /// Adds what ended processes counted, except of series that are over.
    pub(crate) fn with_ended(
        &mut self,
        mut series: HashMap<Labels, Series>,
        read: u64,
        shape: &Shape<'_>,
    ) -> Vec<Series> {
        self.ended.retain(|labels, ended| {
            if series.get(labels).is_some_and(|series| series.live) {
                ended.read = read;
            }
            outlasts(labels).is_none_or(|reads| read - ended.read <= reads)
        });
        for (labels, Ended { tally, .. }) in &self.ended {
            let empty = || Series { labels: labels.clone(), tally: super::Tally::default(), live: false };
            series.entry(labels.clone()).or_insert_with(empty).tally.join(tally.clone(), shape);
        }
        series.into_values().collect()
    }
}

/// Readings for which a series without a live process stays; none: for ever.
fn outlasts(labels: &Labels) -> Option<u64> {
    let has = |name: &str| labels.iter().any(|(label, value)| label == name && value != OTHER);
    if has(PID) {
        return Some(LAST);
    }
    CONTAINER.iter().any(|name| has(name)).then_some(CONTAINER_LAST)
}

/// Whether a label says where a process is, and not what was counted.
pub(crate) fn is_place(label: &str) -> bool {
    label.starts_with("k8s.") || label.starts_with("container.")
}
