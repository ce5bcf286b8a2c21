//! Records that a recording has beside the program's calls: counters of the machine's GPUs once a second, and versions of libraries.
//!
//! A thread makes them: NVML's questions may take milliseconds, for which no event waits.

use super::environment;
use nvml_wrapper::enum_wrappers::device::{Clock as NvmlClock, TemperatureSensor};
use nvml_wrapper::{Device, Nvml};
use report::export::{Data, Fields, Kind, Record, Thread};
use report::recording::summary::ENVIRONMENT;
use runtime::kernel::clock::{Clock, SystemClock};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// Period of the counters.
const PERIOD: Duration = Duration::from_secs(1);
/// Times after its first record at which the libraries of a process are looked at: it loads most of them before, some with its first batch.
const LOOKS: [Duration; 3] = [Duration::ZERO, Duration::from_secs(5), Duration::from_secs(30)];
/// Processes whose libraries are looked at.
const PROCESSES: usize = 1024;

/// Tells the thread of processes; it ends with this.
pub struct Processes {
    known: HashSet<u32>,
    to_thread: Sender<Arc<Thread>>,
}

impl Processes {
    /// Notes the process of a record.
    pub fn see(&mut self, record: &Record) {
        let Some(thread) = &record.thread else { return };
        if self.known.len() < PROCESSES && self.known.insert(thread.pid) {
            // Without the thread there are no versions.
            let _ = self.to_thread.send(thread.clone());
        }
    }
}

/// Starts the thread; its records come by the receiver.
///
/// # Errors
/// The errors of pthread_create(3).
pub fn start() -> std::io::Result<(Processes, Receiver<Record>)> {
    let (to_thread, processes) = channel();
    let (records, made) = channel();
    std::thread::Builder::new().name("ct-samples".into()).spawn(move || sample(&processes, &records))?;
    Ok((Processes { known: HashSet::new(), to_thread }, made))
}

/// A look at the libraries of a process that is to come.
struct Look {
    at: Instant,
    thread: Arc<Thread>,
}

fn sample(processes: &Receiver<Arc<Thread>>, records: &Sender<Record>) {
    let nvml = Nvml::init().ok();
    let devices = nvml.as_ref().map(devices).unwrap_or_default();
    let (mut next, mut looks, mut found) = (Instant::now(), Vec::<Look>::new(), BTreeMap::new());
    loop {
        if next <= Instant::now() {
            next = Instant::now() + PERIOD;
            for record in devices.iter().flat_map(counters) {
                if records.send(record).is_err() {
                    return;
                }
            }
        }
        let now = Instant::now();
        let (due, later): (Vec<Look>, Vec<Look>) = looks.into_iter().partition(|look| look.at <= now);
        looks = later;
        for Look { thread, .. } in due {
            let versions = environment::of_process(thread.pid);
            if !versions.is_empty() && found.get(&thread.pid) != Some(&versions) {
                if records.send(versions_of(&thread, &versions)).is_err() {
                    return;
                }
                found.insert(thread.pid, versions);
            }
        }
        let until = looks.iter().map(|look| look.at).fold(next, Instant::min);
        match processes.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(thread) => looks.extend(LOOKS.map(|after| Look { at: now + after, thread: thread.clone() })),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// A device with the names of its counters.
struct CountedDevice<'n> {
    device: Device<'n>,
    number: u32,
}

fn devices(nvml: &Nvml) -> Vec<CountedDevice<'_>> {
    let device = |number| Some(CountedDevice { device: nvml.device_by_index(number).ok()?, number });
    (0..nvml.device_count().unwrap_or(0)).filter_map(device).collect()
}

/// The counters of a device that it has, by its number in nvidia-smi, which may differ from CUDA's.
fn counters(counted: &CountedDevice<'_>) -> Vec<Record> {
    let CountedDevice { device, number } = counted;
    let utilization = device.utilization_rates().ok();
    let values = [
        ("utilization (%)", utilization.as_ref().map(|used| used.gpu.into())),
        ("memory traffic (%)", utilization.as_ref().map(|used| used.memory.into())),
        ("memory used (bytes)", device.memory_info().ok().map(|memory| memory.used)),
        ("power (mW)", device.power_usage().ok().map(u64::from)),
        ("SM clock (MHz)", device.clock_info(NvmlClock::SM).ok().map(u64::from)),
        ("temperature (C)", device.temperature(TemperatureSensor::Gpu).ok().map(u64::from)),
    ];
    let record = |(name, value): (&str, Option<u64>)| {
        let kind = Kind::Counter { value: Data::Uint(value?) };
        Some(bare(kind, format!("nvidia-smi {number}: {name}"), None, Fields::default()))
    };
    values.into_iter().filter_map(record).collect()
}

fn versions_of(thread: &Arc<Thread>, versions: &BTreeMap<String, String>) -> Record {
    let fields =
        versions.iter().map(|(name, version)| (name.as_str().into(), Data::Text(version.as_str().into())));
    bare(Kind::Instant { parent_id: 0 }, ENVIRONMENT.into(), Some(thread.clone()), fields.collect())
}

fn bare(kind: Kind, name: String, thread: Option<Arc<Thread>>, fields: Fields) -> Record {
    let site = Arc::default();
    Record { kind, time_ns: SystemClock.boot_ns(), thread, site, name: name.into(), fields }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_thread_ends_with_its_owner() {
        let (processes, records) = start().expect("a thread");
        drop(processes);
        assert!(
            records
                .recv_timeout(Duration::from_secs(20))
                .is_err_and(|error| error == RecvTimeoutError::Disconnected)
        );
    }
}
