//! The use of the GPUs by each process, as metrics.

use std::sync::Arc;

use report::Names;
use report::metrics::{Family, Kind, Number, Point, Reading, labels_of_process};

use crate::gpu::{DeviceUse, Samples};

/// A family.
struct Row {
    name: &'static str,
    help: &'static str,
    /// The value in percent.
    value: fn(&DeviceUse) -> u32,
}

const FAMILIES: [Row; 2] = [
    Row {
        name: "gpu.cuda.process.utilization",
        help: "Share of the last second in which a kernel of the process ran, as NVML samples it",
        value: |used| used.compute,
    },
    Row {
        name: "gpu.cuda.process.memory.utilization",
        help: "Share of the last second in which the process used the memory of the device, as NVML samples it",
        value: |used| used.memory,
    },
];

/// The samples of traced processes as families; those without a point are omitted.
pub fn families(samples: &Samples, names: &dyn Names, is_traced: impl Fn(u32) -> bool) -> Vec<Family> {
    let traced: Vec<_> = samples.iter().filter(|((pid, _), _)| is_traced(*pid)).collect();
    let family = |Row { name, help, value }: Row| {
        let point = |((pid, uuid), used): &(&(u32, Arc<str>), &DeviceUse)| {
            let mut labels = labels_of_process(names, *pid);
            labels.push(("cuda.device.uuid".into(), uuid.to_string()));
            let ratio = Number { whole: value(used).into(), divisor: 100 };
            Point { labels, value: Reading::Number(ratio) }
        };
        let points = traced.iter().map(point).collect();
        Family { name: name.into(), unit: "1".into(), help: help.into(), kind: Kind::Gauge, points }
    };
    FAMILIES.into_iter().map(family).filter(|family| !family.points.is_empty()).collect()
}
