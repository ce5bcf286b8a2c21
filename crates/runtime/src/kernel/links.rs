//! Makes BPF links: for the functions of a file, for functions of the kernel and for perf events.

use super::sys;
use libbpf_sys as bpf;
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

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
pub(crate) fn link_trampoline(program: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: a descriptor that lives across the call; such a program takes no name.
    sys::owned_libbpf(unsafe { bpf::bpf_raw_tracepoint_open(std::ptr::null(), program) })
}

/// Creates the link of an iterator's program.
pub(crate) fn link_iterator(program: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: a descriptor that lives across the call; without options all items are iterated over.
    sys::owned_libbpf(unsafe { bpf::bpf_link_create(program, 0, bpf::BPF_TRACE_ITER, std::ptr::null()) })
}

pub(crate) fn link_perf_event(program: RawFd, event: &OwnedFd, cookie: u64) -> io::Result<OwnedFd> {
    let mut opts =
        bpf::bpf_link_create_opts { sz: size_of::<bpf::bpf_link_create_opts>() as u64, ..Default::default() };
    opts.__bindgen_anon_1.perf_event =
        bpf::bpf_link_create_opts__bindgen_ty_1__bindgen_ty_1 { bpf_cookie: cookie };
    // SAFETY: both descriptors live; the options are copied.
    sys::owned_libbpf(unsafe { bpf::bpf_link_create(program, event.as_raw_fd(), bpf::BPF_PERF_EVENT, &opts) })
}
