//! Attaches programs to functions, timers, counters and tracepoints.
//!
//! The program's section, chosen by the compiler, decides whether functions share a link. A function that the kernel refuses is
//! skipped, and the rest of its clause runs.
//!
//! Not here: resolution of functions (`host`), the order of clauses, clauses of which nothing is attached (`session`).

pub(crate) mod detach;
mod functions;
pub(crate) mod in_process;
pub(crate) mod link;
pub(crate) mod own_programs;
pub(crate) mod perf_uprobe;

use crate::attach::link::Link;
use crate::attach::perf_uprobe::AttachLock;
use crate::error::{AttachError, SiteFailure};
use crate::handles::{LoadResult, LoadedProgram, ProgramHandle};
use crate::kernel::links::{link_iterator, link_perf_event};
use crate::kernel::sys;
use crate::options::{AttachOptions, ModuleId};
use libbpf_sys as bpf;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use wire::Manifest;
use wire::manifest::{Attach, Program};
use wire::trigger::{Accesses, PerfCounter, Trigger};

/// Result of attaching a program.
#[derive(Debug, Default)]
pub struct AttachResult {
    /// The links.
    pub links: Vec<Link>,
    /// Number of attach points that are attached.
    pub attached: usize,
    /// Attach points that the kernel refused.
    pub failures: Vec<SiteFailure>,
    /// A signal interrupted attaching; the remaining attach points were not tried.
    pub stopped: bool,
}

impl AttachResult {
    /// The error if the limit of open files was reached. It is no property of a function, and a skipped function would look like
    /// one that is never called, so the whole clause fails.
    fn file_limit_error(&self) -> Option<io::Error> {
        let last = self.failures.last()?.error.raw_os_error()?;
        matches!(last, libc::EMFILE | libc::ENFILE).then(|| io::Error::from_raw_os_error(last))
    }
}

/// Attaches the programs of a manifest.
pub struct Attacher<'a> {
    /// Paths of files, the traced process, signals that interrupt.
    pub options: &'a AttachOptions<'a>,
    /// The manifest of the module.
    pub manifest: &'a Manifest,
}

impl Attacher<'_> {
    /// Attaches one program. BEGIN, END, signals, tests and benches have nothing to attach to.
    pub fn attach(&self, program: &Program, loaded: &LoadResult) -> Result<AttachResult, AttachError> {
        let loaded = match (loaded, &program.attach) {
            (Ok(loaded), _) => loaded,
            (Err(reason), Attach::Functions { sites, .. }) => return Ok(self.refused(sites, reason)),
            (Err(_), _) => return Ok(AttachResult::default()),
        };
        match &program.attach {
            Attach::Event(trigger) => self.event(program, loaded, trigger),
            Attach::Functions { hook, side, sites } => self.functions(program, loaded, *hook, *side, sites),
            // The compiler chooses it only for programs in the traced processes.
            Attach::ProcessEnd => Ok(AttachResult::default()),
            Attach::Follow { tracepoint } => follow(program.clause, loaded, tracepoint)
                .map_err(self.failed(program, "cannot attach to the tracepoint for new processes")),
        }
    }

    fn event(
        &self,
        program: &Program,
        loaded: &LoadedProgram,
        trigger: &Trigger,
    ) -> Result<AttachResult, AttachError> {
        let clause = program.clause;
        let cpus = || sys::online_cpus().map_err(self.failed(program, "cannot list the CPUs"));
        let (links, what) = match trigger {
            Trigger::Begin | Trigger::End | Trigger::Signal { .. } | Trigger::Test { .. } => (Ok(vec![]), ""),
            Trigger::Interval { period_ns } => {
                let cpus = cpus()?;
                let first = &cpus[..cpus.len().min(1)];
                (
                    samples(clause, loaded, PerfCounter::CPU_CLOCK, *period_ns, first),
                    "the timer cannot be created",
                )
            }
            Trigger::Profile { counter, period } => {
                let what = match counter.kind {
                    bpf::PERF_TYPE_HARDWARE => "this machine does not have the counter",
                    _ => "the timer cannot be created",
                };
                (samples(clause, loaded, *counter, *period, &cpus()?), what)
            }
            Trigger::Watchpoint { address, bytes, accesses } => (
                watch(
                    clause,
                    loaded,
                    &WatchedMemory { address: *address, bytes: *bytes, accesses: *accesses },
                    &cpus()?,
                ),
                "the processor cannot watch this address; most can watch four at a time, those of debuggers and other \
                 tracers included",
            ),
            Trigger::Tracepoint { category, event } => (
                tracepoint(clause, loaded, category, event).map(|link| vec![link]),
                "cannot attach to the tracepoint",
            ),
            Trigger::Iterator { .. } => (
                iterator(clause, loaded).map(|link| vec![link]),
                "this kernel cannot iterate over these items",
            ),
            Trigger::RawTracepoint { event } => (
                raw_tracepoint(clause, loaded, event).map(|link| vec![link]),
                "cannot attach to the tracepoint",
            ),
        };
        let links = links.map_err(self.failed(program, what))?;
        Ok(AttachResult { links, attached: 1, ..AttachResult::default() })
    }

    fn failed(&self, program: &Program, what: &'static str) -> impl FnOnce(io::Error) -> AttachError {
        move |errno| probe_error(self.manifest, program, what, errno)
    }
}

pub(crate) fn probe_error(
    manifest: &Manifest,
    program: &Program,
    what: &'static str,
    errno: io::Error,
) -> AttachError {
    let place = match program.place.line {
        0 => "cudatrace's own".into(),
        _ => manifest.line_of(program.place),
    };
    AttachError::Probe { text: program.text.clone(), place, what, errno }
}

/// Runs a program each time that one of the CPUs has counted `period` events of a counter.
fn samples(
    clause: u32,
    loaded: &LoadedProgram,
    counter: PerfCounter,
    period: u64,
    cpus: &[u32],
) -> io::Result<Vec<Link>> {
    let mut attr = bpf::perf_event_attr { type_: counter.kind, config: counter.number, ..Default::default() };
    attr.__bindgen_anon_1.sample_period = period;
    let link = |cpu: &u32| link_event(clause, loaded, sys::perf_event_open(&mut attr, -1, *cpu as i32)?);
    cpus.iter().map(link).collect()
}

/// `enum` of linux/hw_breakpoint.h, which the bindings of libbpf lack.
const HW_BREAKPOINT_W: u32 = 2;
const HW_BREAKPOINT_RW: u32 = 3;
const HW_BREAKPOINT_X: u32 = 4;

/// Memory that a processor watches.
struct WatchedMemory {
    address: u64,
    bytes: u8,
    accesses: Accesses,
}

/// Runs a program at each access to memory. Each CPU watches the address in all processes, so threads and processes that begin later
/// are included; the program tests which process it is.
fn watch(
    clause: u32,
    loaded: &LoadedProgram,
    watched: &WatchedMemory,
    cpus: &[u32],
) -> io::Result<Vec<Link>> {
    let (accesses, bytes) = match watched.accesses {
        Accesses::Write => (HW_BREAKPOINT_W, watched.bytes.into()),
        Accesses::ReadWrite => (HW_BREAKPOINT_RW, watched.bytes.into()),
        // The kernel takes no other length here.
        Accesses::Execute => (HW_BREAKPOINT_X, size_of::<usize>() as u64),
    };
    let mut attr =
        bpf::perf_event_attr { type_: bpf::PERF_TYPE_BREAKPOINT, bp_type: accesses, ..Default::default() };
    attr.__bindgen_anon_1.sample_period = 1;
    attr.__bindgen_anon_3.bp_addr = watched.address;
    attr.__bindgen_anon_4.bp_len = bytes;
    let link = |cpu: &u32| link_event(clause, loaded, sys::perf_event_open(&mut attr, -1, *cpu as i32)?);
    cpus.iter().map(link).collect()
}

fn follow(clause: u32, loaded: &LoadedProgram, place: &str) -> io::Result<AttachResult> {
    let (category, event) = place.split_once(':').ok_or(io::ErrorKind::InvalidInput)?;
    let link = tracepoint(clause, loaded, category, event)?;
    Ok(AttachResult { links: vec![link], ..AttachResult::default() })
}

fn tracepoint(clause: u32, loaded: &LoadedProgram, category: &str, event: &str) -> io::Result<Link> {
    let format = crate::kernel::tracefs::tracepoint_format(category, event)?;
    let mut attr =
        bpf::perf_event_attr { type_: bpf::PERF_TYPE_TRACEPOINT, config: format.id, ..Default::default() };
    // A tracepoint runs its programs on all CPUs, not only on that of the perf event.
    link_event(clause, loaded, sys::perf_event_open(&mut attr, -1, 0)?)
}

fn raw_tracepoint(clause: u32, loaded: &LoadedProgram, event: &str) -> io::Result<Link> {
    let (name, program) = (CString::new(event)?, loaded.fd()?);
    // SAFETY: a C string and a descriptor that live across the call.
    let link =
        sys::owned_libbpf(unsafe { bpf::bpf_raw_tracepoint_open(name.as_ptr(), program.as_raw_fd()) })?;
    Ok(Link { module: ModuleId::default(), clause, file: None, link, event: None, items: None })
}

/// Attaches to an iterator.
fn iterator(clause: u32, loaded: &LoadedProgram) -> io::Result<Link> {
    let link = link_iterator(loaded.fd()?.as_raw_fd())?;
    // SAFETY: a descriptor that lives across the call.
    let items = sys::owned_libbpf(unsafe { bpf::bpf_iter_create(link.as_raw_fd()) })?;
    Ok(Link { module: ModuleId::default(), clause, file: None, link, event: None, items: Some(items) })
}

fn link_event(clause: u32, loaded: &LoadedProgram, event: OwnedFd) -> io::Result<Link> {
    let link = link_perf_event(loaded.fd()?.as_raw_fd(), &event, 0)?;
    Ok(Link { module: ModuleId::default(), clause, file: None, link, event: Some(event), items: None })
}

/// Runs a program without an event once: BEGIN, END, signals, timers of processes, tests and benches.
pub(crate) fn run_once(program: &ProgramHandle) -> io::Result<()> {
    let fd = match program {
        ProgramHandle::Kernel(fd) => fd,
        ProgramHandle::Process(program) => {
            program.run();
            return Ok(());
        }
    };
    let mut opts =
        bpf::bpf_test_run_opts { sz: size_of::<bpf::bpf_test_run_opts>() as u64, ..Default::default() };
    // SAFETY: no buffers are given.
    sys::check_libbpf(unsafe { bpf::bpf_prog_test_run_opts(fd.as_raw_fd(), &mut opts) }).map(drop)
}
