//! Resolves ids to text for the sinks: symbols, stacks, times, users and others.

mod lookup;
pub mod process_facts;
pub mod processes;
pub mod python;

use crate::console::Messages;
use host::Symbols;
use report::{Frame, Names};
use runtime::StackStore;
use runtime::kernel::clock::Epoch;
use runtime::started::{MappedRange, Mapping, MappingEvent};
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use wire::Manifest;
use wire::manifest::Attach;
use wire::trigger::{Environment, Trigger};
use wire::types::Lookup;
use wire::unwind::Stop;

/// Names on this machine, for the sinks.
pub struct MachineNames {
    symbols: RefCell<Symbols>,
    stacks: Arc<StackStore>,
    epoch: Epoch,
    zone: jiff::tz::TimeZone,
    /// Programs by process.
    programs: RefCell<HashMap<u32, Option<Arc<str>>>>,
    /// Names of GPU kernels in the requested forms: demangling takes longer than all other work for a launch.
    kernels: RefCell<HashMap<(Lookup, i64), String>>,
    /// Processes in the keys of maps.
    pub processes: processes::Processes,
    /// Threads that were delayed, with the boot-clock times of the delays.
    waits: RefCell<Vec<(u32, Range<u64>)>>,
    /// True if stacks begin at probes, and not where a sample has interrupted the program.
    begin_at_probes: bool,
    /// Number of printed stacks that end early, by reason.
    cut: RefCell<BTreeMap<&'static str, u64>>,
    /// The interpreters of traced processes.
    pub pythons: Rc<python::Pythons>,
}

impl MachineNames {
    /// Creates names for a session with the stacks in `stacks`; `epoch` relates the clocks of the run. The
    /// manifest specifies the form of symbols.
    pub fn new(stacks: Arc<StackStore>, epoch: Epoch, manifest: &Manifest) -> MachineNames {
        let pythons = Rc::new(python::Pythons::new(Arc::clone(&stacks)));
        MachineNames {
            symbols: RefCell::new(Symbols::new(manifest.source_lines, !manifest.mangled)),
            stacks,
            epoch,
            zone: jiff::tz::TimeZone::system(),
            programs: RefCell::default(),
            kernels: RefCell::default(),
            processes: processes::Processes::default(),
            waits: RefCell::default(),
            begin_at_probes: !has_samples(manifest),
            cut: RefCell::default(),
            pythons,
        }
    }

    /// Records that a thread was delayed between two boot-clock times.
    pub fn waited(&self, tid: u32, times: Range<u64>) {
        self.waits.borrow_mut().push((tid, times));
    }

    /// Records the mappings and the program of a process, so that its addresses have names after its end.
    pub fn remember(&self, pid: u32) {
        if let Some(program) = process_facts::of(pid).program() {
            self.programs.borrow_mut().insert(pid, Some(program));
        }
        self.symbols.borrow_mut().remember(pid);
    }

    /// Records that a thread of the process is about to map a file at a known address.
    pub fn expect(&self, pid: u32, mapping: &Mapping, range: MappedRange) {
        let MappedRange { start, end, offset } = range;
        self.symbols.borrow_mut().expect(pid, start..end, offset, &mapping.open, &mapping.shown);
    }

    /// Records that a process has mapped a file; it may end before its mappings are read.
    pub fn add_mapping(&self, mapped: &MappingEvent) {
        let MappedRange { start, end, offset } = mapped.range;
        let path = mapped.path.clone();
        self.symbols.borrow_mut().record_mapping(mapped.pid, start..end, offset, mapped.inode.number, path);
    }

    /// Marks the mappings of a process as outdated.
    pub fn outdate(&self, pid: u32) {
        self.symbols.borrow_mut().outdate(pid);
    }
}

impl MachineNames {
    /// Reports the printed stacks that end early.
    pub fn report_cut_stacks(&self, messages: &Messages) {
        for (why, count) in self.cut.borrow().iter() {
            let stacks = if *count == 1 { "stack ends" } else { "stacks end" };
            messages.note(&format!("{count} printed {stacks} too early: {why}"));
        }
    }

    /// The name of a GPU kernel by its number, in a form.
    fn kernel(&self, what: Lookup, number: i64, form: impl Fn(&str) -> String) -> String {
        if let Some(known) = self.kernels.borrow().get(&(what, number)) {
            return known.clone();
        }
        let name = self.stacks.kernel_name(number as u64);
        let name = name.map(|name| String::from_utf8_lossy(&name).into_owned());
        let Some(name) = name.or_else(|| self.kernel_of_host(number)) else {
            return format!("<kernel {number:#x}>");
        };
        let name = form(&name);
        self.kernels.borrow_mut().insert((what, number), name.clone());
        name
    }
}

/// Prefix of the names of functions that nvcc generates for launching kernels.
const STUB: &str = "__device_stub_";

impl MachineNames {
    /// The GPU kernel of a host function: they have the same name, if the program has symbols.
    fn kernel_of_host(&self, number: i64) -> Option<String> {
        let (pid, address) = self.stacks.kernel_place(number as u64)?;
        let symbol = self.symbols.borrow_mut().function_at(pid, address);
        let name = symbol.as_deref().map(|symbol| symbol.strip_prefix(STUB).unwrap_or(symbol));
        Some(name.unwrap_or("<unknown kernel>").to_owned())
    }
}

/// UUID of a GPU in the format of `nvidia-smi -L`.
fn uuid(bytes: Option<[u8; 16]>) -> String {
    let Some(bytes) = bytes else { return lookup::UNKNOWN.into() };
    let number = u128::from_be_bytes(bytes);
    let part = |from: u32, digits: u32| (number >> from) & ((1 << (4 * digits)) - 1);
    let (a, b, c, d, e) = (part(96, 8), part(80, 4), part(64, 4), part(48, 4), part(0, 12));
    format!("GPU-{a:08x}-{b:04x}-{c:04x}-{d:04x}-{e:012x}")
}

impl MachineNames {
    fn kernel_symbol(&self, address: u64) -> String {
        let frame = self.symbols.borrow_mut().kernel(address);
        frame.symbol.unwrap_or_else(|| format!("{address:#x}"))
    }
}

/// Whether some programs run where a sample has interrupted the program.
fn has_samples(manifest: &Manifest) -> bool {
    let is_sample = |trigger: &Trigger| trigger.environment() == Environment::Sample;
    manifest.programs.iter().any(|program| matches!(&program.attach, Attach::Event(of) if is_sample(of)))
}

fn frame(found: host::Frame) -> Frame {
    let host::Frame { symbol, offset, address, module, source, inlined } = found;
    Frame { address, symbol, offset, module, source, inlined }
}

impl Names for MachineNames {
    fn user_symbol(&self, tgid: u32, address: u64) -> String {
        let frames = self.symbols.borrow_mut().user(tgid, address);
        let whole = frames.into_iter().find(|found| !found.inlined).map(frame).unwrap_or_default();
        let place = whole.place();
        whole.symbol.or(place).unwrap_or_else(|| format!("{address:#x}"))
    }

    fn stack(&self, user: bool, tgid: u32, addresses: &[u64]) -> Vec<Frame> {
        let is_python = |word: &u64| user && wire::python::Frame::of(*word).is_some();
        let native = addresses.iter().position(is_python).unwrap_or(addresses.len());
        let (native, python) = addresses.split_at(native);
        let mut symbols = self.symbols.borrow_mut();
        let frames = native.iter().enumerate().flat_map(|(at, &address)| match (user, at) {
            (true, 0) if self.begin_at_probes => symbols.first(tgid, address),
            (true, _) => symbols.user(tgid, address),
            (false, _) => vec![symbols.kernel(address)],
        });
        let native = frames.map(frame).collect();
        match python {
            [] => native,
            _ => self.pythons.merged(tgid, native, python),
        }
    }

    fn source_line(&self, tgid: u32, file: &str, line: u32) -> Option<String> {
        self.pythons.source_line(tgid, file, line)
    }

    fn file_place(&self, tgid: u32, address: u64) -> Option<(String, u64)> {
        self.symbols.borrow_mut().file_place(tgid, address)
    }

    fn waited_ns(&self, tid: u32, from_ns: u64, to_ns: u64) -> u64 {
        let waits = self.waits.borrow();
        let inside = waits.iter().filter(|(waiting, _)| *waiting == tid);
        inside.map(|(_, times)| times.end.min(to_ns).saturating_sub(times.start.max(from_ns))).sum()
    }

    fn program(&self, pid: u32) -> Option<Arc<str>> {
        self.programs.borrow_mut().entry(pid).or_insert_with(|| process_facts::of(pid).program()).clone()
    }

    fn process(&self, pid: u32) -> report::metrics::Process {
        self.processes.process(pid)
    }

    fn device(&self, pid: u32, number: u32) -> report::metrics::Device {
        self.processes.device(pid, number)
    }

    fn stack_addresses(&self, map: u32, id: u32) -> Vec<u64> {
        let addresses = self.stacks.addresses(map, id);
        if let Some(stop) = addresses.iter().find_map(|&word| Stop::of(word)) {
            *self.cut.borrow_mut().entry(stop.words()).or_default() += 1;
        }
        addresses
    }

    fn wall_clock_ns(&self, boot_ns: u64) -> i128 {
        self.epoch.wall_ns(boot_ns)
    }

    fn strftime(&self, format: &str, wall_ns: i128) -> String {
        let Ok(time) = jiff::Timestamp::from_nanosecond(wall_ns) else { return wall_ns.to_string() };
        // In bpftrace, %f has six digits.
        let format = format.replace("%f", "%6f");
        let zoned = time.to_zoned(self.zone.clone());
        jiff::fmt::strtime::format(format.as_bytes(), &zoned).unwrap_or_else(|error| format!("<{error}>"))
    }

    fn lookup(&self, what: wire::types::Lookup, number: i64) -> String {
        match what {
            Lookup::Kernel => self.kernel(what, number, report::kernel_names::short),
            Lookup::KernelFull => self.kernel(what, number, report::kernel_names::full),
            Lookup::KernelMangled => self.kernel(what, number, str::to_owned),
            Lookup::DeviceUuid => uuid(self.stacks.device_uuid(number as u64)),
            Lookup::Ksym => self.kernel_symbol(number as u64),
            _ => lookup::text(what, number),
        }
    }
}
