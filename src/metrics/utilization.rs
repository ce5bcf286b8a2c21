//! How much each process uses the GPUs, as NVML (NVIDIA's library for monitoring) samples it: no library in the process is needed, and work
//! that began before the trace counts.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use nvml_wrapper::error::NvmlError;
use nvml_wrapper::struct_wrappers::device::ProcessUtilizationSample;
use nvml_wrapper::{Device, Nvml};
use report::Names;
use report::metrics::{Family, Kind, Number, Point, Reading, labels_of_process};

/// Period of the queries. NVML keeps samples of some seconds.
const PERIOD: Duration = Duration::from_secs(1);

/// Use of a device by a process, in percent.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
struct Used {
    /// Share of the time in which a kernel of the process ran.
    compute: u32,
    /// Share of the time in which it read or wrote the device's memory.
    memory: u32,
}

/// The last samples, by process and UUID of the device.
type Samples = BTreeMap<(u32, Arc<str>), Used>;

/// A thread asks NVML as long as this exists.
pub struct Utilization(Arc<Mutex<Samples>>);

/// A family: its name, its description, and its value in percent.
type Row = (&'static str, &'static str, fn(&Used) -> u32);

const FAMILIES: [Row; 2] = [
    (
        "gpu.cuda.process.utilization",
        "Share of the last second in which a kernel of the process ran, as NVML samples it",
        |used| used.compute,
    ),
    (
        "gpu.cuda.process.memory.utilization",
        "Share of the last second in which the process used the memory of the device, as NVML samples it",
        |used| used.memory,
    ),
];

impl Utilization {
    /// Starts the thread. Without NVML there are no samples.
    ///
    /// # Errors
    /// The errors of pthread_create(3).
    pub fn start() -> std::io::Result<Utilization> {
        let samples = Arc::new(Mutex::new(Samples::new()));
        let weak = Arc::downgrade(&samples);
        let ask = move || {
            let Ok(nvml) = Nvml::init() else { return };
            let mut devices = devices(&nvml);
            while let Some(samples) = weak.upgrade() {
                let latest = devices.iter_mut().flat_map(Watched::latest).collect();
                *samples.lock().unwrap_or_else(PoisonError::into_inner) = latest;
                drop(samples);
                std::thread::sleep(PERIOD);
            }
        };
        std::thread::Builder::new().name("ct-nvml".into()).spawn(ask)?;
        Ok(Utilization(samples))
    }

    /// The samples of traced processes as families; those without a point are omitted.
    pub fn families(&self, names: &dyn Names, is_traced: impl Fn(u32) -> bool) -> Vec<Family> {
        let samples = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let traced: Samples = samples.clone().into_iter().filter(|((pid, _), _)| is_traced(*pid)).collect();
        drop(samples);
        let family = |(name, help, value): Row| {
            let point = |((pid, uuid), used): (&(u32, Arc<str>), &Used)| {
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
}

/// A device that is watched.
struct Watched<'n> {
    device: Device<'n>,
    /// `GPU-6ea58346-...`
    uuid: Arc<str>,
    /// Time of the last sample, as NVML tells it.
    seen: u64,
}

fn devices(nvml: &Nvml) -> Vec<Watched<'_>> {
    let watched = |number| {
        let device = nvml.device_by_index(number).ok()?;
        let uuid = device.uuid().ok()?.into();
        Some(Watched { device, uuid, seen: 0 })
    };
    (0..nvml.device_count().unwrap_or(0)).filter_map(watched).collect()
}

impl Watched<'_> {
    /// What was sampled since the last time.
    fn latest(&mut self) -> Samples {
        let samples = match self.device.process_utilization_stats(self.seen) {
            Ok(samples) => samples,
            // No process has used it.
            Err(NvmlError::NotFound) => Vec::new(),
            // As in parts of a device (MIG).
            Err(_) => Vec::new(),
        };
        self.seen = samples.iter().map(|sample| sample.timestamp).fold(self.seen, u64::max);
        means(&samples).into_iter().map(|(pid, used)| ((pid, self.uuid.clone()), used)).collect()
    }
}

/// The mean of the samples of each process.
fn means(samples: &[ProcessUtilizationSample]) -> BTreeMap<u32, Used> {
    let mut sums = BTreeMap::<u32, (u32, Used)>::new();
    for sample in samples {
        let (count, sum) = sums.entry(sample.pid).or_default();
        *count += 1;
        // NVML has been seen to give more than 100.
        sum.compute += sample.sm_util.min(100);
        sum.memory += sample.mem_util.min(100);
    }
    let mean = |(count, sum): (u32, Used)| Used { compute: sum.compute / count, memory: sum.memory / count };
    sums.into_iter().map(|(pid, sum)| (pid, mean(sum))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_of_a_process_are_averaged_and_at_most_all_of_the_time() {
        let sample = |pid, sm_util, mem_util| ProcessUtilizationSample {
            pid,
            sm_util,
            mem_util,
            timestamp: 0,
            enc_util: 0,
            dec_util: 0,
        };
        let means = means(&[sample(7, 30, 10), sample(8, 4_000_000, 0), sample(7, 50, 20)]);
        let used = |compute, memory| Used { compute, memory };
        assert_eq!(means, BTreeMap::from([(7, used(40, 15)), (8, used(100, 0))]));
    }
}
