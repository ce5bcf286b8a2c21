//! Programs to places: functions of files, timers, tracepoints.
//!
//! Functions of one file take one multi-uprobe link, or a perf event and a link each where the kernel has no such links;
//! the program's section, chosen by the compiler, says which. A place that the kernel refuses is named and left out, and
//! the rest of its clause runs; a clause of which nothing is left is an error.
//!
//! Not here: which functions (`host`), in which order clauses are attached (`session`).

pub(crate) mod detach;
pub(crate) mod link;
pub(crate) mod perf_uprobe;

use crate::attach::link::{Link, MultiSites, link_multi, link_perf_event};
use crate::attach::perf_uprobe::{Gate, UprobePmu};
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
use wire::Manifest;
use wire::manifest::{Attach, Program, Side, Site};

/// What attaching a program came to.
#[derive(Debug, Default)]
pub struct Links {
    /// Made.
    pub links: Vec<Link>,
    /// Attach points that took.
    pub attached: usize,
    /// Attach points that the kernel refused.
    pub failures: Vec<SiteFailure>,
    /// A signal came that stops us; the rest was not tried.
    pub stopped: bool,
}

impl Links {
    /// Our own limit is no property of a place: what it cuts off would count as never called, so nothing is left out for it.
    fn no_more_files(&self) -> Option<io::Error> {
        let last = self.failures.last()?.errno.raw_os_error()?;
        matches!(last, libc::EMFILE | libc::ENFILE).then(|| io::Error::from_raw_os_error(last))
    }
}

/// Attaches the programs of a manifest.
pub struct Attacher<'a> {
    /// Where files lie, which processes are meant, what stops us.
    pub options: &'a AttachOptions<'a>,
    /// The manifest of the module.
    pub manifest: &'a Manifest,
}

impl Attacher<'_> {
    /// Attaches one program. BEGIN, END, signals and trials have nothing to attach to.
    pub fn attach(&self, program: &Program, loaded: &LoadedProgram) -> Result<Links, AttachError> {
        let failed = |what| move |errno| probe_error(self.manifest, program, what, errno);
        match &program.attach {
            Attach::Begin | Attach::End | Attach::Signal { .. } | Attach::Trial { .. } => {
                Ok(Links::default())
            }
            Attach::Interval { period_ns } => {
                let cpus = sys::online_cpus().map_err(failed("cannot list the CPUs"))?;
                timers(program.clause, loaded, *period_ns, &cpus[..cpus.len().min(1)])
                    .map_err(failed("no timer"))
            }
            Attach::Profile { kind, counter, period } => {
                let cpus = sys::online_cpus().map_err(failed("cannot list the CPUs"))?;
                let what = match *kind {
                    bpf::PERF_TYPE_HARDWARE => "this machine does not have the counter",
                    _ => "no timer",
                };
                samples(program.clause, loaded, (*kind, *counter, *period), &cpus).map_err(failed(what))
            }
            Attach::Follow { tracepoint } => follow(program.clause, loaded, tracepoint)
                .map_err(failed("no tracepoint to follow processes by")),
            Attach::Tracepoint { category, event } => tracepoint(program.clause, loaded, category, event)
                .map(|link| Links { links: vec![link], attached: 1, ..Links::default() })
                .map_err(failed("cannot attach to the tracepoint")),
            Attach::RawTracepoint { event } => raw_tracepoint(program.clause, loaded, event)
                .map(|link| Links { links: vec![link], attached: 1, ..Links::default() })
                .map_err(failed("cannot attach to the tracepoint")),
            Attach::Uprobes { side, sites } => self.uprobes(program, loaded, *side, sites),
        }
    }

    fn uprobes(
        &self,
        program: &Program,
        loaded: &LoadedProgram,
        side: Side,
        sites: &[Site],
    ) -> Result<Links, AttachError> {
        let mut made = Links::default();
        for of_file in by_file(sites) {
            let file = of_file[0].file;
            let path = (self.options.files)(file);
            let batch = Batch { attacher: self, clause: program.clause, loaded, side, file, path: &path };
            if loaded.attach_type == 0 {
                batch.single(&of_file, &mut made)
            } else {
                batch.multi(&of_file, &mut made)
            }
            if let Some(errno) = made.no_more_files() {
                let what = "there are too many functions for its open files";
                return Err(probe_error(self.manifest, program, what, errno));
            }
        }
        if made.attached == 0 && !made.failures.is_empty() && !made.stopped {
            let (text, place) = (program.text.clone(), self.manifest.line_of(program.place));
            return Err(AttachError::Nothing {
                text,
                place,
                count: sites.len(),
                first: made.failures.remove(0),
            });
        }
        Ok(made)
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
struct Batch<'a> {
    attacher: &'a Attacher<'a>,
    clause: u32,
    loaded: &'a LoadedProgram,
    side: Side,
    file: u32,
    path: &'a Path,
}

impl Batch<'_> {
    /// One link for all, or for as many as the kernel takes: halves of a refused list are tried on their own.
    fn multi(&self, sites: &[&Site], made: &mut Links) {
        match self.link(sites) {
            Ok(link) => {
                made.attached += sites.len();
                made.links.push(self.made(link, None));
            }
            Err(errno) if sites.len() == 1 || concerns_file(&errno) => self.fail(sites, &errno, made),
            Err(_) => {
                let (left, right) = sites.split_at(sites.len() / 2);
                self.multi(left, made);
                self.multi(right, made);
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

    /// A perf event and a link for each. That may take long: a signal that stops us is heard between two.
    fn single(&self, sites: &[&Site], made: &mut Links) {
        let pmu = match UprobePmu::of_kernel() {
            Ok(pmu) => pmu,
            Err(errno) => return self.fail(sites, &errno, made),
        };
        let _first = Gate::open().map(Gate::go_first);
        for site in sites {
            if self.attacher.options.stop.is_some_and(StopSignals::is_waiting) {
                made.stopped = true;
                return;
            }
            match self.link_single(&pmu, site) {
                Ok(link) => {
                    made.attached += 1;
                    made.links.push(link);
                }
                Err(errno) => {
                    self.fail(&[site], &errno, made);
                    if made.no_more_files().is_some() {
                        return;
                    }
                }
            }
        }
    }

    fn link_single(&self, pmu: &UprobePmu, site: &Site) -> io::Result<Link> {
        let pid = self.attacher.options.link_pid;
        let event = pmu.open(self.path, site, self.side == Side::Return, pid)?;
        let event = sys::out_of_the_way(event);
        let link = sys::out_of_the_way(link_perf_event(self.loaded.fd.as_raw_fd(), &event, site.cookie)?);
        Ok(self.made(link, Some(event)))
    }

    fn made(&self, link: OwnedFd, event: Option<OwnedFd>) -> Link {
        Link { module: ModuleId::default(), clause: self.clause, file: Some(self.file), link, event }
    }

    fn fail(&self, sites: &[&Site], errno: &io::Error, made: &mut Links) {
        let known = self.attacher.manifest.files.iter().find(|file| file.id == self.file);
        let path = known.map_or_else(|| self.path.to_owned(), |file| file.path.clone().into());
        made.failures.extend(
            sites.iter().map(|site| SiteFailure {
                probe: self
                    .attacher
                    .manifest
                    .names
                    .probes
                    .get(site.probe as usize)
                    .cloned()
                    .unwrap_or_default(),
                path: path.clone(),
                offset: site.offset,
                errno: errno
                    .raw_os_error()
                    .map_or_else(|| io::ErrorKind::Other.into(), io::Error::from_raw_os_error),
            }),
        );
    }
}

/// The errno would be the same for each of the file's sites: no such file, no right, not a file, no such process, our own
/// limits.
fn concerns_file(errno: &io::Error) -> bool {
    const WHOLE: [i32; 9] = [
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
    errno.raw_os_error().is_some_and(|errno| WHOLE.contains(&errno))
}

/// A timer on each of the CPUs.
fn timers(clause: u32, loaded: &LoadedProgram, period_ns: u64, cpus: &[u32]) -> io::Result<Links> {
    let clock = (bpf::PERF_TYPE_SOFTWARE, bpf::PERF_COUNT_SW_CPU_CLOCK.into(), period_ns);
    samples(clause, loaded, clock, cpus)
}

/// Runs a program whenever a CPU has counted `period` of a counter.
fn samples(
    clause: u32,
    loaded: &LoadedProgram,
    (kind, counter, period): (u32, u64, u64),
    cpus: &[u32],
) -> io::Result<Links> {
    let mut made = Links::default();
    for cpu in cpus {
        let mut attr = bpf::perf_event_attr { type_: kind, config: counter, ..Default::default() };
        attr.__bindgen_anon_1.sample_period = period;
        made.links.push(on_event(clause, loaded, sys::perf_event_open(&mut attr, -1, *cpu as i32)?)?);
    }
    made.attached = 1;
    Ok(made)
}

fn follow(clause: u32, loaded: &LoadedProgram, place: &str) -> io::Result<Links> {
    let (category, event) = place.split_once(':').ok_or(io::ErrorKind::InvalidInput)?;
    let link = tracepoint(clause, loaded, category, event)?;
    Ok(Links { links: vec![link], ..Links::default() })
}

fn tracepoint(clause: u32, loaded: &LoadedProgram, category: &str, event: &str) -> io::Result<Link> {
    let format = crate::kernel::tracefs::tracepoint_format(category, event)?;
    let mut attr =
        bpf::perf_event_attr { type_: bpf::PERF_TYPE_TRACEPOINT, config: format.id, ..Default::default() };
    // A tracepoint runs its programs on all CPUs, whichever one the event is opened on.
    on_event(clause, loaded, sys::perf_event_open(&mut attr, -1, 0)?)
}

fn raw_tracepoint(clause: u32, loaded: &LoadedProgram, event: &str) -> io::Result<Link> {
    let name = CString::new(event)?;
    // SAFETY: a C string and a descriptor that live across the call.
    let link =
        sys::owned_libbpf(unsafe { bpf::bpf_raw_tracepoint_open(name.as_ptr(), loaded.fd.as_raw_fd()) })?;
    Ok(Link { module: ModuleId::default(), clause, file: None, link, event: None })
}

fn on_event(clause: u32, loaded: &LoadedProgram, event: OwnedFd) -> io::Result<Link> {
    let link = link_perf_event(loaded.fd.as_raw_fd(), &event, 0)?;
    Ok(Link { module: ModuleId::default(), clause, file: None, link, event: Some(event) })
}

/// Runs a raw tracepoint program once, here and now: BEGIN, END, at signals, and trials.
pub(crate) fn run_once(program: &OwnedFd) -> io::Result<()> {
    let mut opts =
        bpf::bpf_test_run_opts { sz: size_of::<bpf::bpf_test_run_opts>() as u64, ..Default::default() };
    // SAFETY: no buffers are given.
    sys::check_libbpf(unsafe { bpf::bpf_prog_test_run_opts(program.as_raw_fd(), &mut opts) }).map(drop)
}
