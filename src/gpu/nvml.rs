//! How much each process uses the GPUs, as NVML (NVIDIA's library for monitoring) samples it: no library in the process is needed, and work
//! that began before the trace counts.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use nvml_wrapper::struct_wrappers::device::ProcessUtilizationSample;
use nvml_wrapper::{Device, Nvml};

/// Period of the queries. NVML keeps samples of some seconds.
const PERIOD: Duration = Duration::from_secs(1);

/// Use of a device by a process, in percent.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceUse {
    /// Share of the time in which a kernel of the process ran.
    pub compute: u32,
    /// Share of the time in which it read or wrote the device's memory.
    pub memory: u32,
}

/// The samples of a period, by process and UUID of the device.
pub type Samples = BTreeMap<(u32, Arc<str>), DeviceUse>;

/// A thread asks NVML as long as this exists.
pub struct Utilization(Arc<Mutex<UtilizationSums>>);

#[derive(Default)]
struct UtilizationSums {
    latest: Samples,
    /// Sums of all periods.
    sums: BTreeMap<(u32, Arc<str>), Sum>,
    /// Number of periods.
    periods: u64,
}

/// Use of a device by a process.
#[derive(Copy, Clone)]
struct Sum {
    /// In percent of a period.
    percent: u64,
    /// Numbers of the first and of the last period in which there was any: the process may have begun and ended between others.
    first: u64,
    last: u64,
}

impl Utilization {
    /// Starts the thread. Without NVML there are no samples.
    ///
    /// # Errors
    /// The errors of pthread_create(3).
    pub fn start() -> std::io::Result<Utilization> {
        let sampled = Arc::new(Mutex::new(UtilizationSums::default()));
        let weak = Arc::downgrade(&sampled);
        let ask = move || {
            let Ok(nvml) = Nvml::init() else { return };
            let mut devices = devices(&nvml);
            while let Some(sampled) = weak.upgrade() {
                let latest = devices.iter_mut().flat_map(DeviceSampler::latest).collect();
                sampled.lock().unwrap_or_else(PoisonError::into_inner).add(latest);
                drop(sampled);
                std::thread::sleep(PERIOD);
            }
        };
        std::thread::Builder::new().name("ct-nvml".into()).spawn(ask)?;
        Ok(Utilization(sampled))
    }

    /// The samples of the last second.
    pub fn latest(&self) -> Samples {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).latest.clone()
    }

    /// How much a process used each device on average from the first period to the last one in which it did, in percent.
    pub fn mean(&self, pid: u32) -> Vec<(Arc<str>, u64)> {
        let sampled = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let of_process = sampled.sums.iter().filter(|((of, _), _)| *of == pid);
        of_process.map(|((_, uuid), sum)| (uuid.clone(), sum.percent / (sum.last - sum.first + 1))).collect()
    }
}

impl UtilizationSums {
    fn add(&mut self, latest: Samples) {
        for (whose, used) in &latest {
            let begun = Sum { percent: 0, first: self.periods, last: self.periods };
            let sum = self.sums.entry(whose.clone()).or_insert(begun);
            sum.percent += u64::from(used.compute);
            sum.last = self.periods;
        }
        self.periods += 1;
        self.latest = latest;
    }
}

/// A device that is watched.
struct DeviceSampler<'n> {
    device: Device<'n>,
    /// `GPU-6ea58346-...`
    uuid: Arc<str>,
    /// Time of the last sample, as NVML tells it.
    seen: u64,
}

fn devices(nvml: &Nvml) -> Vec<DeviceSampler<'_>> {
    let watched = |number| {
        let device = nvml.device_by_index(number).ok()?;
        let uuid = device.uuid().ok()?.into();
        Some(DeviceSampler { device, uuid, seen: 0 })
    };
    (0..nvml.device_count().unwrap_or(0)).filter_map(watched).collect()
}

impl DeviceSampler<'_> {
    /// Samples since the last call.
    fn latest(&mut self) -> Samples {
        // That no process has used it is an error, too; parts of a device (MIG) have no samples.
        let samples = self.device.process_utilization_stats(self.seen).unwrap_or_default();
        self.seen = samples.iter().map(|sample| sample.timestamp).fold(self.seen, u64::max);
        means(&samples).into_iter().map(|(pid, used)| ((pid, self.uuid.clone()), used)).collect()
    }
}

/// The mean of the samples of each process.
fn means(samples: &[ProcessUtilizationSample]) -> BTreeMap<u32, DeviceUse> {
    let mut sums = BTreeMap::<u32, (u32, DeviceUse)>::new();
    for sample in samples {
        let (count, sum) = sums.entry(sample.pid).or_default();
        *count += 1;
        // NVML has been seen to give more than 100.
        sum.compute += sample.sm_util.min(100);
        sum.memory += sample.mem_util.min(100);
    }
    let mean = |(count, sum): (u32, DeviceUse)| DeviceUse {
        compute: sum.compute / count,
        memory: sum.memory / count,
    };
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
        let used = |compute, memory| DeviceUse { compute, memory };
        assert_eq!(means, BTreeMap::from([(7, used(40, 15)), (8, used(100, 0))]));
    }

    #[test]
    fn a_process_without_a_sample_did_nothing_in_that_period_while_it_ran() {
        let (mut sampled, uuid) = (UtilizationSums::default(), Arc::<str>::from("GPU-1"));
        let used = |compute| Samples::from([((7, uuid.clone()), DeviceUse { compute, memory: 0 })]);
        [Samples::new(), used(60), Samples::new(), used(30), Samples::new()]
            .into_iter()
            .for_each(|of_period| sampled.add(of_period));
        let utilization = Utilization(Arc::new(Mutex::new(sampled)));
        assert_eq!((utilization.mean(7), utilization.mean(8)), (vec![(uuid, 30)], vec![]));
        assert!(utilization.latest().is_empty());
    }
}
