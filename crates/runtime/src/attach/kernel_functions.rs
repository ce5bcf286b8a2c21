//! Attaches programs to functions of the kernel.
//!
//! One multi-kprobe link for all functions of a program; on a kernel without such links, and at functions and instructions that the
//! function tracer does not reach, one perf event each. A trampoline is a link without parameters: the object names its function.
//!
//! Format of perf events: `/sys/bus/event_source/devices/kprobe`.

use crate::attach::link::{Link, link_kprobes, link_perf_event, link_trampoline};
use crate::attach::perf_pmu::ProbePmu;
use crate::attach::{AttachResult, Attacher};
use crate::error::{AttachError, SiteFailure};
use crate::kernel::signals::StopSignals;
use crate::kernel::sys;
use crate::load::LoadedProgram;
use crate::module::ModuleId;
use libbpf_sys as bpf;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use wire::Hook;
use wire::manifest::{Program, Side, Site};

/// The kernel's description of these events.
const PMU: &str = "/sys/bus/event_source/devices/kprobe";

impl Attacher<'_> {
    pub(super) fn kernel_functions(
        &self,
        program: &Program,
        loaded: &LoadedProgram,
        (hook, side): (Hook, Side),
        sites: &[Site],
    ) -> Result<AttachResult, AttachError> {
        let batch =
            KernelBatch { attacher: self, clause: program.clause, loaded, at_return: side == Side::Return };
        let mut result = AttachResult::default();
        match (hook, loaded.attach_type) {
            (Hook::Trampoline, _) => batch.attach_trampoline(&sites[0], &mut result),
            (_, 0) => batch.attach_single(sites, &mut result),
            _ => batch.attach_multi(sites, &mut result),
        }
        if let Some(errno) = result.file_limit_error() {
            let what = "the limit of open files is too low for its functions";
            return Err(super::probe_error(self.manifest, program, what, errno));
        }
        self.unless_nothing(program, sites, result)
    }
}

/// Functions of one program.
struct KernelBatch<'a> {
    attacher: &'a Attacher<'a>,
    clause: u32,
    loaded: &'a LoadedProgram,
    at_return: bool,
}

impl KernelBatch<'_> {
    /// Attaches all functions by one link. A list that the kernel refuses is split into halves until the refused functions are found.
    fn attach_multi(&self, sites: &[Site], result: &mut AttachResult) {
        let addresses: Vec<u64> = sites.iter().map(|site| site.offset).collect();
        let cookies: Vec<u64> = sites.iter().map(|site| site.cookie).collect();
        let flags = if self.at_return { bpf::BPF_F_KPROBE_MULTI_RETURN } else { 0 };
        let (program, attach_type) = (self.loaded.fd.as_raw_fd(), self.loaded.attach_type);
        match link_kprobes(program, attach_type, flags, &addresses, &cookies) {
            Ok(link) => {
                result.attached += sites.len();
                result.links.push(self.new_link(link, None));
            }
            Err(errno) if sites.len() == 1 || concerns_all(&errno) => {
                self.add_failures(sites, &errno, result)
            }
            Err(_) => {
                let (left, right) = sites.split_at(sites.len() / 2);
                self.attach_multi(left, result);
                self.attach_multi(right, result);
            }
        }
    }

    /// Attaches each function by a perf event. This may take long, so signals are checked before each one.
    fn attach_single(&self, sites: &[Site], result: &mut AttachResult) {
        let pmu = match ProbePmu::of_kernel(PMU) {
            Ok(pmu) => pmu,
            Err(errno) => return self.add_failures(sites, &errno, result),
        };
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
                    self.add_failures(std::slice::from_ref(site), &errno, result);
                    if result.file_limit_error().is_some() {
                        return;
                    }
                }
            }
        }
    }

    fn link_single(&self, pmu: &ProbePmu, site: &Site) -> io::Result<Link> {
        let mut attr = pmu.attr(self.at_return);
        // Without a name, the second word is an address.
        attr.__bindgen_anon_4.kprobe_addr = site.offset;
        let event = sys::out_of_the_way(sys::perf_event_open(&mut attr, -1, 0)?);
        let link = sys::out_of_the_way(link_perf_event(self.loaded.fd.as_raw_fd(), &event, site.cookie)?);
        Ok(self.new_link(link, Some(event)))
    }

    fn attach_trampoline(&self, site: &Site, result: &mut AttachResult) {
        match link_trampoline(self.loaded.fd.as_raw_fd()) {
            Ok(link) => {
                result.attached += 1;
                result.links.push(self.new_link(link, None));
            }
            Err(errno) => self.add_failures(std::slice::from_ref(site), &errno, result),
        }
    }

    fn new_link(&self, link: OwnedFd, event: Option<OwnedFd>) -> Link {
        Link { module: ModuleId::default(), clause: self.clause, file: None, link, event }
    }

    fn add_failures(&self, sites: &[Site], errno: &io::Error, result: &mut AttachResult) {
        let names = &self.attacher.manifest.names.probes;
        result.failures.extend(
            sites.iter().map(|site| SiteFailure {
                probe: names.get(site.probe as usize).cloned().unwrap_or_default(),
                position: None,
                errno: errno
                    .raw_os_error()
                    .map_or_else(|| io::ErrorKind::Other.into(), io::Error::from_raw_os_error),
            }),
        );
    }
}

/// Whether each function would fail with this errno: no permission, no such links, limits of this process.
fn concerns_all(errno: &io::Error) -> bool {
    const ERRNOS: [i32; 6] =
        [libc::EACCES, libc::EPERM, libc::EOPNOTSUPP, libc::ENOMEM, libc::EMFILE, libc::ENFILE];
    errno.raw_os_error().is_some_and(|errno| ERRNOS.contains(&errno))
}
