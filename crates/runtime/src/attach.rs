//! Programs to places: functions of files, timers, tracepoints.
//!
//! Functions of one file take one multi-uprobe link, or a perf event and a link each where the kernel has no such links;
//! the program's section, chosen by the compiler, says which. A place that the kernel refuses is named and left out, and
//! the rest of its clause runs; a clause of which nothing is left is an error.
//!
//! Not here: which functions (`target`), in which order clauses are attached (`session`).

use crate::error::AttachError;
use crate::load::LoadedProgram;
use crate::session::{AttachOptions, ModuleId};
use crate::signals::StopSignals;
use crate::single::{Gate, UprobePmu};
use crate::sys;
use libbpf_sys as bpf;
use std::ffi::{CStr, CString};
use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use wire::Manifest;
use wire::manifest::{Attach, Program, Side, Site};

/// Where a file lies that the manifest knows by its id: a path that this process can open, such as
/// `/proc/PID/root/usr/lib/libcuda.so.1`.
pub type Files<'a> = dyn Fn(u32) -> PathBuf + 'a;

/// An attach point that the kernel refused.
#[derive(Debug)]
pub struct SiteFailure {
    /// Its probe, `uprobe:libcuda:cuInit`.
    pub probe: String,
    /// Its file.
    pub path: PathBuf,
    /// Its offset in the file.
    pub offset: u64,
    /// Why.
    pub errno: io::Error,
}

impl fmt::Display for SiteFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SiteFailure { probe, path, offset, .. } = self;
        write!(f, "`{probe}` at {}+{offset:#x}: {}", path.display(), self.why())
    }
}

/// The kernel's own `ENOTSUPP`, which is no errno for programs: it cannot execute the instruction elsewhere.
const UNSUPPORTED: i32 = 524;

impl SiteFailure {
    /// In words.
    pub fn why(&self) -> String {
        match self.errno.raw_os_error() {
            Some(UNSUPPORTED) => {
                "the kernel cannot put a probe on the instruction there, such as one that begins with `lock`"
                    .into()
            }
            _ => self.errno.to_string(),
        }
    }
}

/// A program attached to something; detached on drop.
#[derive(Debug)]
pub struct Link {
    /// What it was attached with; the session says.
    pub module: ModuleId,
    /// Clause of the script.
    pub clause: u32,
    /// The file whose functions are probed.
    pub file: Option<u32>,
    // Fields drop in this order: the link before the event that it is on.
    pub(crate) link: OwnedFd,
    pub(crate) event: Option<OwnedFd>,
}

impl Link {
    /// A descriptor that is slow to close, as links are, and goes with them.
    pub(crate) fn of_nothing(fd: OwnedFd) -> Link {
        Link { module: ModuleId::default(), clause: 0, file: None, link: fd, event: None }
    }
}

/// What attaching a program came to.
#[derive(Debug, Default)]
pub struct Links {
    /// Made.
    pub links: Vec<Link>,
    /// Attach points that took.
    pub attached: usize,
    /// Those that did not.
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
    /// Of the module.
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
                path: self.path.to_owned(),
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

/// Functions of a file for one link.
pub(crate) struct MultiSites<'a> {
    /// The file.
    pub path: &'a CStr,
    /// Where in it.
    pub offsets: &'a [u64],
    /// What the program finds there.
    pub cookies: &'a [u64],
    /// Counters that the kernel raises meanwhile, 0 where there is none.
    pub semaphores: Option<&'a [u64]>,
    /// Only in this process; 0: in all.
    pub pid: u32,
}

/// Makes a multi-uprobe link; `attach_type` is `BPF_TRACE_UPROBE_MULTI` or `_SESSION`.
pub(crate) fn link_multi(
    program: RawFd,
    attach_type: bpf::bpf_attach_type,
    at_return: bool,
    sites: &MultiSites<'_>,
) -> io::Result<OwnedFd> {
    let mut opts =
        bpf::bpf_link_create_opts { sz: size_of::<bpf::bpf_link_create_opts>() as u64, ..Default::default() };
    opts.__bindgen_anon_1.uprobe_multi = bpf::bpf_link_create_opts__bindgen_ty_1__bindgen_ty_3 {
        flags: if at_return { bpf::BPF_F_UPROBE_MULTI_RETURN } else { 0 },
        cnt: sites.offsets.len() as u32,
        path: sites.path.as_ptr(),
        offsets: sites.offsets.as_ptr(),
        cookies: sites.cookies.as_ptr(),
        ref_ctr_offsets: sites.semaphores.map_or(std::ptr::null(), <[u64]>::as_ptr),
        pid: sites.pid,
        ..Default::default()
    };
    // SAFETY: the arrays have `cnt` elements and outlive the call, which copies them.
    sys::owned_libbpf(unsafe { bpf::bpf_link_create(program, 0, attach_type, &opts) })
}

fn link_perf_event(program: RawFd, event: &OwnedFd, cookie: u64) -> io::Result<OwnedFd> {
    let mut opts =
        bpf::bpf_link_create_opts { sz: size_of::<bpf::bpf_link_create_opts>() as u64, ..Default::default() };
    opts.__bindgen_anon_1.perf_event =
        bpf::bpf_link_create_opts__bindgen_ty_1__bindgen_ty_1 { bpf_cookie: cookie };
    // SAFETY: both descriptors live; the options are copied.
    sys::owned_libbpf(unsafe { bpf::bpf_link_create(program, event.as_raw_fd(), bpf::BPF_PERF_EVENT, &opts) })
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
    let format = crate::tracefs::tracepoint_format(category, event)?;
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

impl Link {
    /// As part of a module.
    pub(crate) fn of(self, module: ModuleId) -> Link {
        Link { module, ..self }
    }

    /// Its descriptors.
    pub(crate) fn fds(&self) -> impl Iterator<Item = RawFd> {
        std::iter::once(&self.link).chain(&self.event).map(AsRawFd::as_raw_fd)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instruction_that_the_kernel_does_not_probe_is_said() {
        let errno = io::Error::from_raw_os_error(UNSUPPORTED);
        let probe = "uretprobe:libc:pthread_spin_lock".to_owned();
        let failure = SiteFailure { probe, path: "/lib/libc.so.6".into(), offset: 0x8ff70, errno };
        let said = failure.to_string();
        assert!(said.contains("the instruction there") && !said.contains("524"), "{said}");
    }
}
