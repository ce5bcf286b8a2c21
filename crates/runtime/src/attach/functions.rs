//! Attaches programs to functions of files and of the kernel.
//!
//! One link for many functions: for all of a file, or for all of the kernel. On a kernel without such links, and at functions of the
//! kernel that its function tracer does not reach, one perf event each. A trampoline is a link without parameters: the object names
//! its function.
//!
//! Format of perf events: `/sys/bus/event_source/devices/uprobe`, `kprobe`.

use crate::attach::link::Link;
use crate::attach::{AttachLock, AttachResult, Attacher, perf_uprobe, probe_error};
use crate::error::{AttachError, SiteError, SiteFailure};
use crate::handles::LoadedProgram;
use crate::kernel::links::{MultiSites, link_kprobes, link_multi, link_perf_event, link_trampoline};
use crate::kernel::perf_pmu::{KPROBE, ProbePmu, UPROBE};
use crate::kernel::signals::StopSignals;
use crate::kernel::sys;
use crate::options::ModuleId;
use libbpf_sys as bpf;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use wire::Hook;
use wire::manifest::{Program, Side, Site};

impl Attacher<'_> {
    /// Attaches a program to its functions.
    pub(super) fn functions(
        &self,
        program: &Program,
        loaded: &LoadedProgram,
        hook: Hook,
        side: Side,
        sites: &[Site],
    ) -> Result<AttachResult, AttachError> {
        let mut result = AttachResult::default();
        // All functions of the kernel have the same file id.
        for of_file in by_file(sites) {
            let file = of_file[0].file;
            let path = (!hook.is_in_kernel()).then(|| (self.options.files)(file));
            let code = path.as_deref().map_or(Code::Kernel, |path| Code::File { id: file, path });
            let batch = SiteBatch { attacher: self, clause: program.clause, loaded, side, code };
            match (hook, loaded.attach_type) {
                (Hook::Trampoline, _) => batch.attach_trampolines(&of_file, &mut result),
                (_, 0) => batch.attach_single(&of_file, &mut result),
                _ => batch.attach_multi(&of_file, &mut result),
            }
            if let Some(errno) = result.file_limit_error() {
                let what = "the limit of open files is too low for its functions";
                return Err(probe_error(self.manifest, program, what, errno));
            }
        }
        Ok(result)
    }

    /// The failures of the functions of a program that was not loaded.
    pub(super) fn refused(&self, sites: &[Site], reason: &str) -> AttachResult {
        let failure = |site: &Site| SiteFailure {
            probe: self.probe_name(site),
            position: None,
            error: SiteError::Verifier(reason.to_owned()),
        };
        AttachResult { failures: sites.iter().map(failure).collect(), ..AttachResult::default() }
    }

    fn probe_name(&self, site: &Site) -> String {
        self.manifest.names.probes.get(site.probe as usize).cloned().unwrap_or_default()
    }
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

/// The code that contains the sites of a batch.
#[derive(Copy, Clone)]
enum Code<'a> {
    File {
        /// The catalog's id.
        id: u32,
        path: &'a Path,
    },
    Kernel,
}

/// Sites of one program in one file or in the kernel.
struct SiteBatch<'a> {
    attacher: &'a Attacher<'a>,
    clause: u32,
    loaded: &'a LoadedProgram,
    side: Side,
    code: Code<'a>,
}

impl SiteBatch<'_> {
    /// Attaches all sites by one link. A list that the kernel refuses is split into halves until the refused sites are found.
    fn attach_multi(&self, sites: &[&Site], result: &mut AttachResult) {
        match self.link(sites) {
            Ok(link) => {
                result.attached += sites.len();
                result.links.push(self.new_link(link, None));
            }
            Err(errno) if sites.len() == 1 || self.concerns_all(&errno) => {
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
        let offsets: Vec<u64> = sites.iter().map(|site| site.offset).collect();
        let cookies: Vec<u64> = sites.iter().map(|site| site.cookie).collect();
        let (program, attach_type) = (self.loaded.fd()?.as_raw_fd(), self.loaded.attach_type);
        let at_return = self.side == Side::Return;
        match self.code {
            Code::File { path, .. } => {
                let path = sys::c_path(path)?;
                let semaphores: Vec<u64> = sites.iter().map(|site| site.semaphore).collect();
                let sites = MultiSites {
                    path: &path,
                    offsets: &offsets,
                    cookies: &cookies,
                    semaphores: Some(&*semaphores).filter(|list| list.iter().any(|&at| at != 0)),
                    pid: self.attacher.options.link_pid.unwrap_or(0),
                };
                link_multi(program, attach_type, at_return, &sites)
            }
            Code::Kernel => {
                let flags = if at_return { bpf::BPF_F_KPROBE_MULTI_RETURN } else { 0 };
                link_kprobes(program, attach_type, flags, &offsets, &cookies)
            }
        }
    }

    /// Attaches each site by a perf event and a link. This may take long, so signals are checked before each one.
    fn attach_single(&self, sites: &[&Site], result: &mut AttachResult) {
        let (pmu, lock) = match self.code {
            Code::File { .. } => (UPROBE, AttachLock::open()),
            Code::Kernel => (KPROBE, None),
        };
        let pmu = match ProbePmu::of_kernel(pmu) {
            Ok(pmu) => pmu,
            Err(errno) => return self.add_failures(sites, &errno, result),
        };
        let _guard = lock.map(AttachLock::lock);
        for site in sites {
            if self.attacher.options.stop.is_some_and(StopSignals::is_waiting) {
                result.stopped = true;
                return;
            }
            self.add(site, self.link_single(&pmu, site), result);
            if result.file_limit_error().is_some() {
                return;
            }
        }
    }

    fn link_single(&self, pmu: &ProbePmu, site: &Site) -> io::Result<Link> {
        let at_return = self.side == Side::Return;
        let event = match self.code {
            Code::File { path, .. } => {
                perf_uprobe::open(pmu, path, site, at_return, self.attacher.options.link_pid)?
            }
            Code::Kernel => {
                let mut attr = pmu.attr(at_return);
                // Without a name, the second word is an address.
                attr.__bindgen_anon_4.kprobe_addr = site.offset;
                sys::perf_event_open(&mut attr, -1, 0)?
            }
        };
        let event = sys::out_of_the_way(event);
        let link = sys::out_of_the_way(link_perf_event(self.loaded.fd()?.as_raw_fd(), &event, site.cookie)?);
        Ok(self.new_link(link, Some(event)))
    }

    fn attach_trampolines(&self, sites: &[&Site], result: &mut AttachResult) {
        for site in sites {
            let link = self.loaded.fd().and_then(|program| link_trampoline(program.as_raw_fd()));
            self.add(site, link.map(|link| self.new_link(link, None)), result);
        }
    }

    fn new_link(&self, link: OwnedFd, event: Option<OwnedFd>) -> Link {
        let file = match self.code {
            Code::File { id, .. } => Some(id),
            Code::Kernel => None,
        };
        Link { module: ModuleId::default(), clause: self.clause, file, link, event, items: None }
    }

    /// Adds the link of a site, or its failure.
    fn add(&self, site: &Site, link: io::Result<Link>, result: &mut AttachResult) {
        match link {
            Ok(link) => {
                result.attached += 1;
                result.links.push(link);
            }
            Err(errno) => self.add_failures(&[site], &errno, result),
        }
    }

    fn add_failures(&self, sites: &[&Site], errno: &io::Error, result: &mut AttachResult) {
        let path = self.shown_path();
        let errno =
            || errno.raw_os_error().map_or_else(|| io::ErrorKind::Other.into(), io::Error::from_raw_os_error);
        result.failures.extend(sites.iter().map(|site| SiteFailure {
            probe: self.attacher.probe_name(site),
            position: path.clone().map(|path| (path, site.offset)),
            error: SiteError::Errno(errno()),
        }));
    }

    /// The path of the file, as shown.
    fn shown_path(&self) -> Option<PathBuf> {
        let Code::File { id, path } = self.code else { return None };
        let known = self.attacher.manifest.files.iter().find(|file| file.id == id);
        Some(known.map_or_else(|| path.to_owned(), |file| file.path.clone().into()))
    }

    /// Whether each of the sites would fail with this errno.
    fn concerns_all(&self, errno: &io::Error) -> bool {
        // No permission, limits of this process.
        const ALWAYS: [i32; 5] = [libc::EACCES, libc::EPERM, libc::ENOMEM, libc::EMFILE, libc::ENFILE];
        // No such file, not a file, no such process.
        const IN_FILES: [i32; 4] = [libc::ENOENT, libc::ENOTDIR, libc::EBADF, libc::ESRCH];
        // No such links.
        const IN_KERNEL: [i32; 1] = [libc::EOPNOTSUPP];
        let of_code: &[i32] = match self.code {
            Code::File { .. } => &IN_FILES,
            Code::Kernel => &IN_KERNEL,
        };
        errno.raw_os_error().is_some_and(|errno| ALWAYS.contains(&errno) || of_code.contains(&errno))
    }
}
