//! Links: a program attached to the functions of a file, to a perf event, or to nothing.

use crate::kernel::sys;
use crate::module::ModuleId;
use libbpf_sys as bpf;
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

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

    /// As part of a module.
    pub(crate) fn of(self, module: ModuleId) -> Link {
        Link { module, ..self }
    }

    /// Its descriptors.
    pub(crate) fn fds(&self) -> impl Iterator<Item = RawFd> {
        std::iter::once(&self.link).chain(&self.event).map(AsRawFd::as_raw_fd)
    }
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

pub(super) fn link_perf_event(program: RawFd, event: &OwnedFd, cookie: u64) -> io::Result<OwnedFd> {
    let mut opts =
        bpf::bpf_link_create_opts { sz: size_of::<bpf::bpf_link_create_opts>() as u64, ..Default::default() };
    opts.__bindgen_anon_1.perf_event =
        bpf::bpf_link_create_opts__bindgen_ty_1__bindgen_ty_1 { bpf_cookie: cookie };
    // SAFETY: both descriptors live; the options are copied.
    sys::owned_libbpf(unsafe { bpf::bpf_link_create(program, event.as_raw_fd(), bpf::BPF_PERF_EVENT, &opts) })
}
