//! What this kernel can do, found out by trying: tiny programs are loaded, never attached to anything that runs.
//!
//! Versions are looked at only to word a refusal: distributions carry features back, and sandboxes take them away.

use crate::attach::link::{MultiSites, link_multi};
use crate::error::FeatureError;
use crate::kernel::{btf, sys};
use libbpf_sys as bpf;
use std::ffi::c_char;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use wire::Features;

/// Features, and what only the runtime asks for.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// What the compiler chooses by.
    pub features: Features,
    /// A multi-uprobe link's own pid filter goes by process (6.10), not by thread.
    pub uprobe_multi_pid: bool,
}

/// The effective user is root.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

impl Kernel {
    /// Tries everything out; takes a few milliseconds.
    pub fn probe() -> Result<Kernel, FeatureError> {
        floor()?;
        let multi = multi_link(bpf::BPF_TRACE_UPROBE_MULTI);
        let session =
            multi.is_some() && btf::is_there() && multi_link(bpf::BPF_TRACE_UPROBE_SESSION).is_some();
        // Programs ask by kfunc which side they are on; 7.0 gave that function a parameter.
        let side = session.then(|| btf::kernel_function_params("bpf_session_is_return")).flatten();
        let features = Features {
            uprobe_multi: multi.is_some(),
            uprobe_session: side.is_some(),
            session_takes_context: side.is_some_and(|params| params > 0),
            private_stack: private_stack(multi.is_some()),
            bpf_loop: has_helper(bpf::BPF_FUNC_loop),
            percpu_lookup: has_helper(bpf::BPF_FUNC_map_lookup_percpu_elem),
            for_each_map: has_helper(bpf::BPF_FUNC_for_each_map_elem),
            btf: btf::is_there(),
        };
        Ok(Kernel { features, uprobe_multi_pid: multi == Some(PidFilter::Process) })
    }
}

/// Refuses what is below the floor, in words.
fn floor() -> Result<(), FeatureError> {
    match load(&EXIT, Kind::default()) {
        Ok(_) => {}
        Err(error) => return Err(explain(error)),
    }
    if has_helper(bpf::BPF_FUNC_get_attach_cookie) {
        return Ok(());
    }
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    Err(FeatureError::KernelTooOld { release: release.trim().to_owned() })
}

/// What an errno of `bpf(2)` or `perf_event_open(2)` says about our rights.
pub fn explain(error: io::Error) -> FeatureError {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) if is_confidential() => FeatureError::LockedDown,
        Some(libc::EPERM | libc::EACCES) => FeatureError::NotPermitted,
        _ => FeatureError::Kernel(error),
    }
}

fn is_confidential() -> bool {
    let text = std::fs::read_to_string("/sys/kernel/security/lockdown");
    text.is_ok_and(|text| text.contains("[confidentiality]"))
}

/// An instruction.
const fn insn(code: u32, dst_src: u8, imm: i32) -> bpf::bpf_insn {
    bpf::bpf_insn {
        code: code as u8,
        _bitfield_align_1: [],
        _bitfield_1: bpf::__BindgenBitfieldUnit::new([dst_src]),
        off: 0,
        imm,
    }
}

const MOV_IMM: u32 = bpf::BPF_ALU64 | bpf::BPF_MOV | bpf::BPF_K;
const CALL: u32 = bpf::BPF_JMP | bpf::BPF_CALL;
/// `r0 = 0; exit`
const EXIT: [bpf::bpf_insn; 2] = [insn(MOV_IMM, 0, 0), insn(bpf::BPF_JMP | bpf::BPF_EXIT, 0, 0)];

/// How a program is loaded, of kprobe type unless it says otherwise.
#[derive(Default)]
struct Kind<'a> {
    raw_tracepoint: bool,
    attach_type: bpf::bpf_attach_type,
    log: &'a mut [u8],
}

/// A program that does nothing, of the kind that runs once: what others take beside it is their own.
pub(crate) fn empty_program() -> io::Result<OwnedFd> {
    load(&EXIT, Kind { raw_tracepoint: true, ..Kind::default() })
}

fn load(insns: &[bpf::bpf_insn], kind: Kind<'_>) -> io::Result<OwnedFd> {
    let mut opts = bpf::bpf_prog_load_opts {
        sz: size_of::<bpf::bpf_prog_load_opts>() as u64,
        attempts: 1,
        expected_attach_type: kind.attach_type,
        ..Default::default()
    };
    if !kind.log.is_empty() {
        opts.log_level = 1;
        opts.log_size = kind.log.len() as u32;
        opts.log_buf = kind.log.as_mut_ptr().cast::<c_char>();
    }
    // SAFETY: all pointers are to values that outlive the call.
    sys::owned_libbpf(unsafe {
        bpf::bpf_prog_load(
            if kind.raw_tracepoint { bpf::BPF_PROG_TYPE_RAW_TRACEPOINT } else { bpf::BPF_PROG_TYPE_KPROBE },
            c"ct_try".as_ptr(),
            c"GPL".as_ptr(),
            insns.as_ptr(),
            insns.len() as u64,
            &mut opts,
        )
    })
}

/// Programs of kprobe type may call this helper: with no arguments set up, the verifier complains about those and not
/// about the helper.
fn has_helper(helper: bpf::bpf_func_id) -> bool {
    let mut log = [0u8; 4096];
    let call = [insn(CALL, 0, helper as i32), EXIT[0], EXIT[1]];
    if load(&call, Kind { log: &mut log, ..Kind::default() }).is_ok() {
        return true;
    }
    let end = log.iter().position(|byte| *byte == 0).unwrap_or(log.len());
    let said = String::from_utf8_lossy(&log[..end]);
    // An empty log: the call did not get as far as the verifier.
    !said.is_empty()
        && !["invalid func ", "unknown func ", "cannot use helper"].iter().any(|no| said.contains(no))
}

/// Two functions with more stack than the kernel has for a program together: it takes them where each has a stack of its own.
fn private_stack(multi: bool) -> bool {
    const DEEP: i16 = -400;
    let store = || {
        let mut store = insn(bpf::BPF_ST | bpf::BPF_MEM | bpf::BPF_DW, 10, 0);
        store.off = DEEP;
        store
    };
    // The call's distance is counted from the instruction behind it.
    let call = insn(CALL, (bpf::BPF_PSEUDO_CALL as u8) << 4, 1);
    let program = [store(), call, EXIT[1], store(), EXIT[0], EXIT[1]];
    let attach_type = if multi { bpf::BPF_TRACE_UPROBE_MULTI } else { 0 };
    load(&program, Kind { attach_type, ..Kind::default() }).is_ok()
        && btf::kernel_function_params("bpf_preempt_disable").is_some()
}

/// How a multi-uprobe link filters by pid.
#[derive(Copy, Clone, PartialEq, Eq)]
enum PidFilter {
    /// By thread, before 6.10.
    Thread,
    /// By process.
    Process,
}

/// Whether links of this type exist: linking to a directory is refused with EBADF by a kernel that knows them, and a pid
/// of -1 with EINVAL by one that filters by process.
fn multi_link(attach_type: bpf::bpf_attach_type) -> Option<PidFilter> {
    let program = load(&EXIT, Kind { attach_type, ..Kind::default() }).ok()?;
    let errno = |pid: u32| {
        let site = MultiSites { path: c"/", offsets: &[0], cookies: &[0], semaphores: None, pid };
        let link = link_multi(program.as_raw_fd(), attach_type, false, &site);
        link.err().and_then(|error| error.raw_os_error())
    };
    if errno(0) != Some(libc::EBADF) {
        return None;
    }
    Some(if errno(u32::MAX) == Some(libc::EINVAL) { PidFilter::Process } else { PidFilter::Thread })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_kernel_is_probed_and_helpers_that_never_were_are_not_found() {
        if !is_root() {
            eprintln!("skipped: needs root");
            return;
        }
        let start = std::time::Instant::now();
        let kernel = Kernel::probe().expect("a kernel that the tests can run on");
        eprintln!("{kernel:?} in {:?}", start.elapsed());
        assert!(kernel.features.for_each_map, "in the kernel since 5.13");
        assert!(kernel.features.uprobe_multi || !kernel.features.uprobe_session);
        assert!(!has_helper(100_000));
        assert!(has_helper(bpf::BPF_FUNC_map_lookup_elem));
    }

    #[test]
    fn refusals_name_the_way_out() {
        let error = explain(io::Error::from_raw_os_error(libc::EPERM)).to_string();
        assert!(error.contains("CAP_BPF") || error.contains("locked down"), "{error}");
        let error = FeatureError::KernelTooOld { release: "5.4.0".into() }.to_string();
        assert!(error.contains("5.4.0") && error.contains("5.15"), "{error}");
    }
}
