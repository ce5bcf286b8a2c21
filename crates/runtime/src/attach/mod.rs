//! Attaches programs to functions of files, timers, counters and tracepoints.
//!
//! The functions of one file take one multi-uprobe link; on a kernel without such links, one perf event and one link per
//! function. `kernel_functions` does the same for functions of the kernel. The program's section, chosen by the compiler, decides. A function that the kernel refuses is reported and skipped,
//! and the rest of its clause runs. A clause of which nothing is attached is an error.
//!
//! Not here: resolution of functions (`host`), the order of clauses (`session`).

pub(crate) mod detach;
mod kernel_functions;
pub(crate) mod link;
pub(crate) mod perf_pmu;
pub(crate) mod perf_uprobe;

use crate::attach::link::{Link, MultiSites, link_multi, link_perf_event};
use crate::attach::perf_pmu::ProbePmu;
use crate::attach::perf_uprobe::{AttachLock, PMU, open};
use crate::error::{AttachError, SiteFailure};
use crate::kernel::signals::StopSignals;
use crate::kernel::sys;
use crate::load::LoadedProgram;
use crate::module::{AttachOptions, ModuleId};
use libbpf_sys as bpf;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use wire::manifest::{Attach, Program, Side, Site};
use wire::trigger::{PerfCounter, Trigger};
use wire::{Hook, Manifest};

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
        let last = self.failures.last()?.errno.raw_os_error()?;
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
    pub fn attach(&self, program: &Program, loaded: &LoadedProgram) -> Result<AttachResult, AttachError> {
        match &program.attach {
            Attach::Event(trigger) => self.event(program, loaded, trigger),
            Attach::Functions { hook: Hook::Uprobe, side, sites } => {
                self.uprobes(program, loaded, *side, sites)
            }
            Attach::Functions { hook, side, sites } => {
                self.kernel_functions(program, loaded, (*hook, *side), sites)
            }
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
            Trigger::Tracepoint { category, event } => (
                tracepoint(clause, loaded, category, event).map(|link| vec![link]),
                "cannot attach to the tracepoint",
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

    fn uprobes(
        &self,
        program: &Program,
        loaded: &LoadedProgram,
        side: Side,
        sites: &[Site],
    ) -> Result<AttachResult, AttachError> {
        let mut result = AttachResult::default();
        for of_file in by_file(sites) {
            let file = of_file[0].file;
            let path = (self.options.files)(file);
            let batch = SiteBatch { attacher: self, clause: program.clause, loaded, side, file, path: &path };
            if loaded.attach_type == 0 {
                batch.attach_single(&of_file, &mut result)
            } else {
                batch.attach_multi(&of_file, &mut result)
            }
            if let Some(errno) = result.file_limit_error() {
                let what = "the limit of open files is too low for its functions";
                return Err(probe_error(self.manifest, program, what, errno));
            }
        }
        self.unless_nothing(program, sites, result)
    }

    /// The error of a program of which nothing is attached.
    fn unless_nothing(
        &self,
        program: &Program,
        sites: &[Site],
        mut result: AttachResult,
    ) -> Result<AttachResult, AttachError> {
        if result.attached > 0 || result.failures.is_empty() || result.stopped {
            return Ok(result);
        }
        let (text, place) = (program.text.clone(), self.manifest.line_of(program.place));
        Err(AttachError::Nothing { text, place, count: sites.len(), first: result.failures.remove(0) })
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

/// Groups sites by file, files in the order of their first site.
fn by_file(sites: &[Site]) -> Vec<Vec<&Site>> {
    let mut groups: Vec<Vec<&Site>> = Vec::new();
    for site in sites {
        match groups.iter_mut().find(|group| group[0].file == site.file) {
            Some(group) => group.push(site),
            None => groups.push(vec![site]),
        }
    }
    groups
}

/// Sites of one program in one file.
struct SiteBatch<'a> {
    attacher: &'a Attacher<'a>,
    clause: u32,
    loaded: &'a LoadedProgram,
    side: Side,
    file: u32,
    path: &'a Path,
}

impl SiteBatch<'_> {
    /// Attaches all sites by one link. A list that the kernel refuses is split into halves until the refused sites are found.
    fn attach_multi(&self, sites: &[&Site], result: &mut AttachResult) {
        match self.link(sites) {
            Ok(link) => {
                result.attached += sites.len();
                result.links.push(self.new_link(link, None));
            }
            Err(errno) if sites.len() == 1 || concerns_file(&errno) => {
                self.add_failures(sites, &errno, result)
            }
            Err(_) => {
                let (left, right) = sites.split_at(sites.len() / 2);
                self.attach_multi(left, result);
                self.attach_multi(right, result);
            }
        }
    }

    fn link(&self, sites: &[&Site]) -> io::Result<OwnedFd> {
        let path = sys::c_path(self.path)?;
        let offsets: Vec<u64> = sites.iter().map(|site| site.offset).collect();
        let cookies: Vec<u64> = sites.iter().map(|site| site.cookie).collect();
        let semaphores: Vec<u64> = sites.iter().map(|site| site.semaphore).collect();
        let sites = MultiSites {
            path: &path,
            offsets: &offsets,
            cookies: &cookies,
            semaphores: Some(&*semaphores).filter(|list| list.iter().any(|&at| at != 0)),
            pid: self.attacher.options.link_pid.unwrap_or(0),
        };
        link_multi(self.loaded.fd.as_raw_fd(), self.loaded.attach_type, self.side == Side::Return, &sites)
    }

    /// Attaches each site by a perf event and a link. This may take long, so signals are checked before each one.
    fn attach_single(&self, sites: &[&Site], result: &mut AttachResult) {
        let pmu = match ProbePmu::of_kernel(PMU) {
            Ok(pmu) => pmu,
            Err(errno) => return self.add_failures(sites, &errno, result),
        };
        let _guard = AttachLock::open().map(AttachLock::lock);
        for site in sites {
            if self.attacher.options.stop.is_some_and(StopSignals::is_waiting) {
                result.stopped = true;
                return;
            }
            match self.link_single(&pmu, site) {
                Ok(link) => {
                    result.attached += 1;
                    result.links.push(link);
                }
                Err(errno) => {
                    self.add_failures(&[site], &errno, result);
                    if result.file_limit_error().is_some() {
                        return;
                    }
                }
            }
        }
    }

    fn link_single(&self, pmu: &ProbePmu, site: &Site) -> io::Result<Link> {
        let pid = self.attacher.options.link_pid;
        let event = open(pmu, self.path, site, self.side == Side::Return, pid)?;
        let event = sys::out_of_the_way(event);
        let link = sys::out_of_the_way(link_perf_event(self.loaded.fd.as_raw_fd(), &event, site.cookie)?);
        Ok(self.new_link(link, Some(event)))
    }

    fn new_link(&self, link: OwnedFd, event: Option<OwnedFd>) -> Link {
        Link { module: ModuleId::default(), clause: self.clause, file: Some(self.file), link, event }
    }

    fn add_failures(&self, sites: &[&Site], errno: &io::Error, result: &mut AttachResult) {
        let known = self.attacher.manifest.files.iter().find(|file| file.id == self.file);
        let path = known.map_or_else(|| self.path.to_owned(), |file| file.path.clone().into());
        result.failures.extend(
            sites.iter().map(|site| SiteFailure {
                probe: self
                    .attacher
                    .manifest
                    .names
                    .probes
                    .get(site.probe as usize)
                    .cloned()
                    .unwrap_or_default(),
                position: Some((path.clone(), site.offset)),
                errno: errno
                    .raw_os_error()
                    .map_or_else(|| io::ErrorKind::Other.into(), io::Error::from_raw_os_error),
            }),
        );
    }
}

/// Whether each of the file's sites would fail with this errno: no such file, no permission, not a file, no such process, limits
/// of this process.
fn concerns_file(errno: &io::Error) -> bool {
    const ERRNOS: [i32; 9] = [
        libc::ENOENT,
        libc::ENOTDIR,
        libc::EACCES,
        libc::EPERM,
        libc::EBADF,
        libc::ESRCH,
        libc::ENOMEM,
        libc::EMFILE,
        libc::ENFILE,
    ];
    errno.raw_os_error().is_some_and(|errno| ERRNOS.contains(&errno))
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
    let name = CString::new(event)?;
    // SAFETY: a C string and a descriptor that live across the call.
    let link =
        sys::owned_libbpf(unsafe { bpf::bpf_raw_tracepoint_open(name.as_ptr(), loaded.fd.as_raw_fd()) })?;
    Ok(Link { module: ModuleId::default(), clause, file: None, link, event: None })
}

fn link_event(clause: u32, loaded: &LoadedProgram, event: OwnedFd) -> io::Result<Link> {
    let link = link_perf_event(loaded.fd.as_raw_fd(), &event, 0)?;
    Ok(Link { module: ModuleId::default(), clause, file: None, link, event: Some(event) })
}

/// Runs a raw tracepoint program once: BEGIN, END, signals, tests and benches.
pub(crate) fn run_once(program: &OwnedFd) -> io::Result<()> {
    let mut opts =
        bpf::bpf_test_run_opts { sz: size_of::<bpf::bpf_test_run_opts>() as u64, ..Default::default() };
    // SAFETY: no buffers are given.
    sys::check_libbpf(unsafe { bpf::bpf_prog_test_run_opts(program.as_raw_fd(), &mut opts) }).map(drop)
}
