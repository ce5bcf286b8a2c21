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

use super::{
    EndedProcesses, Kind, Labels, MapHistory, Metrics, OTHER, Series, Shape, exported, label_text, shape,
};
use crate::value::{Context, escape, key_parts};
use crate::{Names, Snapshot};

/// Label of a process, without its id.
const PROCESS: &str = "process";
/// Label with the process id.
const PID: &str = "process.pid";
/// Label with the program. In a key it is the name of a thread, for processes that end before they are inspected.
const PROGRAM: &str = "process.executable.name";
/// Label with the number of a CUDA device of the process.
const DEVICE: &str = "cuda.device";

/// Number of readings that a series by process id stays after the end of its process, so that its last value is
/// read.
const LAST: u64 = 2;
/// The same for a series by container. A series by program stays forever, since the program may run again.
const CONTAINER_LAST: u64 = 10;
/// Labels of objects that do not return.
const CONTAINER: [&str; 2] = ["container.id", "k8s.pod.uid"];

/// Identity of a process.
#[derive(Clone, Debug, Default)]
pub struct Process {
    /// File name of its program, if it was inspected while it ran.
    pub program: Option<Arc<str>>,
    /// Container and pod.
    pub place: Labels,
    /// Whether it still runs.
    pub life: Life,
}

/// State of a process.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Life {
    /// The process runs, or its state is unknown.
    #[default]
    Alive,
    /// The process has ended; maps may have been read before that.
    Ended,
    /// The process had ended before the maps were read, so they contain its last values.
    Settled,
}

/// Identity of a device.
#[derive(Clone, Debug, Default)]
pub struct Device {
    /// UUID, if the program has queried it.
    pub uuid: Option<String>,
    /// Model, if the program has queried it.
    pub model: Option<String>,
}

/// The exported maps with a label that is a process.
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

/// The labels of a process, with its id.
pub fn labels_of_process(names: &dyn Names, id: u32) -> Labels {
    let Process { program, place, .. } = names.process(id);
    let program = program.map(|name| (PROGRAM.to_owned(), escape(name.as_bytes())));
    [(PID.to_owned(), id.to_string())].into_iter().chain(program).chain(place).collect()
}

/// The labels of a key's parts, and the state of its process.
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

/// The labels of a device; empty if it is unknown.
fn device(names: &dyn Names, process: Option<u32>, number: Option<u32>) -> Labels {
    let Some(number) = number else { return Labels::new() };
    let Device { uuid, model } = process.map(|id| names.device(id, number)).unwrap_or_default();
    let known = [("index", Some(number.to_string())), ("uuid", uuid), ("model", model)];
    known.into_iter().filter_map(|(what, text)| Some((format!("{DEVICE}.{what}"), text?))).collect()
}

impl Metrics {
    /// Removes the rows of ended processes from a snapshot, and keeps their values. Returns their keys, which must
    /// be deleted from the map before its next snapshot.
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
                // Receivers that do not support the end of a series get a last value of 0.
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
    /// Adds the values of ended processes, except for series that have expired.
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
        for (labels, EndedProcesses { tally, .. }) in &self.ended {
            let empty = || Series { labels: labels.clone(), tally: super::Tally::default(), live: false };
            series.entry(labels.clone()).or_insert_with(empty).tally.join(tally.clone(), shape);
        }
        series.into_values().collect()
    }
}

/// Number of readings that a series without a live process stays; `None`: forever.
fn outlasts(labels: &Labels) -> Option<u64> {
    let has = |name: &str| labels.iter().any(|(label, value)| label == name && value != OTHER);
    if has(PID) {
        return Some(LAST);
    }
    CONTAINER.iter().any(|name| has(name)).then_some(CONTAINER_LAST)
}

/// Whether a label is the location of a process, not a property of the measured value.
pub(crate) fn is_place(label: &str) -> bool {
    label.starts_with("k8s.") || label.starts_with("container.")
}
