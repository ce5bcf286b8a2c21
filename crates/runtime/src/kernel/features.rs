//! Probes the features of the kernel by loading small programs, which are never attached.
//!
//! The kernel version is used only in error messages: distributions backport features, and sandboxes remove them.

use crate::error::FeatureError;
use crate::kernel::links::{MultiSites, link_kprobes, link_multi};
use crate::kernel::perf_pmu::KPROBE;
use crate::kernel::{btf, sys};
use libbpf_sys as bpf;
use std::borrow::Cow;
use std::ffi::c_char;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::OnceLock;
use wire::Features;

/// Features of the kernel.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// Features that the compiler uses.
    pub features: Features,
    /// True if the pid filter of a multi-uprobe link is by process (6.10), not by thread.
    pub uprobe_multi_pid: bool,
}

/// Whether the effective user is root.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

impl Kernel {
    /// Probes all features; takes a few milliseconds.
    pub fn probe() -> Result<Kernel, FeatureError> {
        check_minimum()?;
        let multi = multi_link(bpf::BPF_TRACE_UPROBE_MULTI);
        let session =
            multi.is_some() && btf::is_there() && multi_link(bpf::BPF_TRACE_UPROBE_SESSION).is_some();
        let kprobe_multi = kprobes().is_ok() && has_kprobe_multi();
        let kprobe_session = kprobe_multi && btf::has_name("BPF_TRACE_KPROBE_SESSION");
        // The kfunc by which programs distinguish entry from return has a parameter since 7.0.
        let side = (session || kprobe_session)
            .then(|| btf::kernel_function_params("bpf_session_is_return"))
            .flatten();
        let features = Features {
            uprobe_multi: multi.is_some(),
            uprobe_session: session && side.is_some(),
            session_takes_context: side.is_some_and(|params| params > 0),
            private_stack: private_stack(multi.is_some()),
            bpf_loop: has_helper(bpf::BPF_FUNC_loop),
            percpu_lookup: has_helper(bpf::BPF_FUNC_map_lookup_percpu_elem),
            for_each_map: has_helper(bpf::BPF_FUNC_for_each_map_elem),
            btf: btf::is_there(),
            kprobe_multi,
            kprobe_session: kprobe_session && side.is_some(),
        };
        Ok(Kernel { features, uprobe_multi_pid: multi == Some(PidFilter::Process) })
    }
}

/// Refuses kernels that are too old or do not permit BPF.
///
/// # Errors
/// The reason why this kernel loads no programs of this user.
pub fn check_minimum() -> Result<(), FeatureError> {
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

/// Converts an errno of bpf(2) or perf_event_open(2) to an error that explains missing permissions.
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

/// Options of a program; its type is kprobe by default.
#[derive(Default)]
struct Kind<'a> {
    raw_tracepoint: bool,
    attach_type: bpf::bpf_attach_type,
    log: &'a mut [u8],
}

/// Loads an empty raw tracepoint program, to measure the overhead of a run.
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
    let of = if kind.raw_tracepoint { bpf::BPF_PROG_TYPE_RAW_TRACEPOINT } else { bpf::BPF_PROG_TYPE_KPROBE };
    load_as(of, insns, opts)
}

fn load_as(
    kind: bpf::bpf_prog_type,
    insns: &[bpf::bpf_insn],
    mut opts: bpf::bpf_prog_load_opts,
) -> io::Result<OwnedFd> {
    // SAFETY: all pointers are to values that outlive the call.
    sys::owned_libbpf(unsafe {
        bpf::bpf_prog_load(
            kind,
            c"ct_try".as_ptr(),
            c"GPL".as_ptr(),
            insns.as_ptr(),
            insns.len() as u64,
            &mut opts,
        )
    })
}

/// Whether programs of kprobe type may call this helper. The call has no arguments, about which the verifier complains if it
/// accepts the helper.
fn has_helper(helper: bpf::bpf_func_id) -> bool {
    let mut log = [0u8; 4096];
    let call = [insn(CALL, 0, helper as i32), EXIT[0], EXIT[1]];
    if load(&call, Kind { log: &mut log, ..Kind::default() }).is_ok() {
        return true;
    }
    let log = text_of(&log);
    // The log is empty if the call did not reach the verifier.
    !log.is_empty()
        && !["invalid func ", "unknown func ", "cannot use helper"]
            .iter()
            .any(|refusal| log.contains(refusal))
}

/// Whether each program has a private stack: only then the kernel accepts two functions that together exceed the shared limit.
fn private_stack(multi: bool) -> bool {
    const DEEP: i16 = -400;
    let store = || {
        let mut store = insn(bpf::BPF_ST | bpf::BPF_MEM | bpf::BPF_DW, 10, 0);
        store.off = DEEP;
        store
    };
    // The distance of the call is relative to the next instruction.
    let call = insn(CALL, (bpf::BPF_PSEUDO_CALL as u8) << 4, 1);
    let program = [store(), call, EXIT[1], store(), EXIT[0], EXIT[1]];
    let attach_type = if multi { bpf::BPF_TRACE_UPROBE_MULTI } else { 0 };
    load(&program, Kind { attach_type, ..Kind::default() }).is_ok()
        && btf::kernel_function_params("bpf_preempt_disable").is_some()
}

/// Whether functions of the kernel can be probed by kprobes.
///
/// # Errors
/// They cannot; the error is the reason.
pub fn kprobes() -> Result<(), String> {
    match Path::new(KPROBE).exists() {
        true => Ok(()),
        false => Err("it is built without them (`CONFIG_KPROBES`)".into()),
    }
}

/// Whether functions of the kernel can be probed by trampolines. A program at a function that all kernels have is loaded and not
/// attached; it calls the newest helper that such programs use.
///
/// # Errors
/// They cannot; the error is the reason.
pub fn trampolines() -> Result<(), String> {
    static KNOWN: OnceLock<Result<(), String>> = OnceLock::new();
    KNOWN.get_or_init(load_trampoline).clone()
}

fn load_trampoline() -> Result<(), String> {
    let Some(function) = btf::kernel_function_id("bpf_prog_put") else {
        return Err("it has no BTF".into());
    };
    let opts = bpf::bpf_prog_load_opts {
        sz: size_of::<bpf::bpf_prog_load_opts>() as u64,
        attempts: 1,
        expected_attach_type: bpf::BPF_TRACE_FENTRY,
        attach_btf_id: function,
        ..Default::default()
    };
    let count = [insn(CALL, 0, bpf::BPF_FUNC_get_func_arg_cnt as i32), EXIT[0], EXIT[1]];
    match load_as(bpf::BPF_PROG_TYPE_TRACING, &count, opts).map_err(|error| error.raw_os_error()) {
        Ok(_) => Ok(()),
        Err(Some(libc::EPERM | libc::EACCES)) if is_locked_down() => {
            Err("it is locked down, and refuses their programs".into())
        }
        Err(Some(libc::EPERM | libc::EACCES)) if is_root() => Err("it refuses their programs".into()),
        Err(Some(libc::EPERM | libc::EACCES)) => Err("it refuses their programs to this user".into()),
        Err(_) => Err("they need Linux 5.17 on this architecture".into()),
    }
}

/// Whether the kernel refuses programs at a function, which is described by a program's section: `fentry/nvidia:nvidia_open`.
/// Returns the kernel's reason. An empty program is loaded and not attached.
pub(crate) fn refusal_of_trampoline(section: &str) -> Option<String> {
    let (kind, function) = section.split_once('/')?;
    let (module, function) = function.split_once(':')?;
    let object = match module {
        wire::kernel_function::VMLINUX => None,
        _ => Some(btf::module_object(module).ok()?),
    };
    let mut log = [0u8; 4096];
    let opts = bpf::bpf_prog_load_opts {
        sz: size_of::<bpf::bpf_prog_load_opts>() as u64,
        attempts: 1,
        expected_attach_type: if kind == "fexit" { bpf::BPF_TRACE_FEXIT } else { bpf::BPF_TRACE_FENTRY },
        attach_btf_id: btf::module_function_id(module, function)?,
        attach_btf_obj_fd: object.as_ref().map_or(0, |object| object.as_raw_fd() as u32),
        log_level: 1,
        log_size: log.len() as u32,
        log_buf: log.as_mut_ptr().cast::<c_char>(),
        ..Default::default()
    };
    let error = load_as(bpf::BPF_PROG_TYPE_TRACING, &EXIT, opts).err()?;
    let log = text_of(&log);
    // After the reason, newer kernels print statistics.
    let reason = log.lines().find(|line| !line.trim().is_empty() && !line.starts_with("processed "));
    // Without the name, functions that are refused for one reason have the same text.
    let unnamed = |reason: &str| {
        reason.trim().trim_end_matches('.').replacen(&format!("The function {function}"), "a function", 1)
    };
    Some(reason.map_or_else(|| error.to_string(), unnamed))
}

/// The text before the first NUL.
fn text_of(log: &[u8]) -> Cow<'_, str> {
    let end = log.iter().position(|byte| *byte == 0).unwrap_or(log.len());
    String::from_utf8_lossy(&log[..end])
}

fn is_locked_down() -> bool {
    let text = std::fs::read_to_string("/sys/kernel/security/lockdown");
    text.is_ok_and(|text| !text.contains("[none]"))
}

/// Whether the kernel has multi-kprobe links. A kernel that is built without them (`CONFIG_FPROBE`) refuses all with EOPNOTSUPP;
/// others refuse unknown flags with EINVAL, as does a kernel that does not know the type, whose BTF lacks the name.
fn has_kprobe_multi() -> bool {
    let attach_type = bpf::BPF_TRACE_KPROBE_MULTI;
    let refused_with = |program: OwnedFd| {
        link_kprobes(program.as_raw_fd(), attach_type, u32::MAX, &[0], &[0])
            .err()
            .and_then(|error| error.raw_os_error())
    };
    btf::has_name("BPF_TRACE_KPROBE_MULTI")
        && load(&EXIT, Kind { attach_type, ..Kind::default() })
            .is_ok_and(|program| refused_with(program) == Some(libc::EINVAL))
}

/// How a multi-uprobe link filters by pid.
#[derive(Copy, Clone, PartialEq, Eq)]
enum PidFilter {
    /// By thread, before 6.10.
    Thread,
    /// By process.
    Process,
}

/// The pid filter of links of this type; `None` without such links. A kernel with such links refuses a directory with EBADF. A
/// kernel that filters by process refuses a pid of -1 with EINVAL.
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
    fn this_kernel_is_probed_and_unknown_helpers_are_not_found() {
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
    fn refusals_name_a_remedy() {
        let error = explain(io::Error::from_raw_os_error(libc::EPERM)).to_string();
        assert!(error.contains("CAP_BPF") || error.contains("locked down"), "{error}");
        let error = FeatureError::KernelTooOld { release: "5.4.0".into() }.to_string();
        assert!(error.contains("5.4.0") && error.contains("5.15"), "{error}");
    }
}
