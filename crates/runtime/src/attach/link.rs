//! BPF links: makes them for the functions of a file and for perf events, and keeps their descriptors.
//!
//! Not here: choice of program and functions (`attach`), closing of links (`detach`).

use crate::kernel::sys;
use crate::module::ModuleId;
use libbpf_sys as bpf;
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// An attached program. Dropping it detaches.
#[derive(Debug)]
pub struct Link {
    /// Module of the program; set by the session.
    pub module: ModuleId,
    /// Clause of the script.
    pub clause: u32,
    /// Id of the file whose functions are probed.
    pub file: Option<u32>,
    // Fields drop in this order: the link before the event that it is on.
    pub(crate) link: OwnedFd,
    pub(crate) event: Option<OwnedFd>,
}

impl Link {
    /// A descriptor that is closed with the links because closing it is slow, too.
    pub(crate) fn of_nothing(fd: OwnedFd) -> Link {
        Link { module: ModuleId::default(), clause: 0, file: None, link: fd, event: None }
    }

    /// Sets the module.
    pub(crate) fn with_module(self, module: ModuleId) -> Link {
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
    /// Offsets of the functions in the file.
    pub offsets: &'a [u64],
    /// Attach cookie of each function.
    pub cookies: &'a [u64],
    /// Offsets of USDT semaphores, which the kernel increments while attached; 0 for a function without one.
    pub semaphores: Option<&'a [u64]>,
    /// The process whose calls run the program; 0: all processes.
    pub pid: u32,
}

/// Creates a multi-uprobe link; `attach_type` is `BPF_TRACE_UPROBE_MULTI` or `_SESSION`.
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

/// Creates a multi-kprobe link; `attach_type` is `BPF_TRACE_KPROBE_MULTI` or `_SESSION`.
pub(crate) fn link_kprobes(
    program: RawFd,
    attach_type: bpf::bpf_attach_type,
    flags: u32,
    addresses: &[u64],
    cookies: &[u64],
) -> io::Result<OwnedFd> {
    let mut opts =
        bpf::bpf_link_create_opts { sz: size_of::<bpf::bpf_link_create_opts>() as u64, ..Default::default() };
    opts.__bindgen_anon_1.kprobe_multi = bpf::bpf_link_create_opts__bindgen_ty_1__bindgen_ty_2 {
        flags,
        cnt: addresses.len() as u32,
        addrs: addresses.as_ptr(),
        cookies: cookies.as_ptr(),
        ..Default::default()
    };
    // SAFETY: the arrays have `cnt` elements and outlive the call, which copies them.
    sys::owned_libbpf(unsafe { bpf::bpf_link_create(program, 0, attach_type, &opts) })
}

/// Creates the link of a trampoline's program, which names the function itself.
pub(super) fn link_trampoline(program: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: a descriptor that lives across the call; such a program takes no name.
    sys::owned_libbpf(unsafe { bpf::bpf_raw_tracepoint_open(std::ptr::null(), program) })
}

pub(super) fn link_perf_event(program: RawFd, event: &OwnedFd, cookie: u64) -> io::Result<OwnedFd> {
    let mut opts =
        bpf::bpf_link_create_opts { sz: size_of::<bpf::bpf_link_create_opts>() as u64, ..Default::default() };
    opts.__bindgen_anon_1.perf_event =
        bpf::bpf_link_create_opts__bindgen_ty_1__bindgen_ty_1 { bpf_cookie: cookie };
    // SAFETY: both descriptors live; the options are copied.
    sys::owned_libbpf(unsafe { bpf::bpf_link_create(program, event.as_raw_fd(), bpf::BPF_PERF_EVENT, &opts) })
}
