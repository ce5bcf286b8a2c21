//! Number of runs and run time of programs, from the kernel's statistics (`BPF_STATS_RUN_TIME`).
//!
//! The statistics cost two clock readings per run of every BPF program on the machine, so they are off unless a bench or the
//! metrics need them.

use crate::handles::ProgramHandle;
use crate::kernel::sys;
use crate::options::ModuleId;
use libbpf_sys as bpf;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// Keeps the kernel's statistics enabled while it exists.
#[derive(Debug)]
pub struct RunTimeStats {
    _enabled: OwnedFd,
}

impl RunTimeStats {
    /// Enables the statistics.
    ///
    /// # Errors
    /// EPERM without CAP_SYS_ADMIN; EINVAL before Linux 5.8.
    pub fn start() -> io::Result<RunTimeStats> {
        // SAFETY: takes a number.
        let fd = sys::owned_libbpf(unsafe { bpf::bpf_enable_stats(bpf::BPF_STATS_RUN_TIME) })?;
        Ok(RunTimeStats { _enabled: fd })
    }
}

/// An attached program.
#[derive(Debug)]
pub(crate) struct AttachedProgram {
    pub module: ModuleId,
    pub clause: u32,
    pub text: String,
    pub program: ProgramHandle,
}

/// Runs of a clause's programs since the statistics were enabled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Runs {
    /// The clause's probe list as in the script.
    pub probe: String,
    /// Number of runs; a session program counts twice per call, at entry and at return.
    pub hits: u64,
    /// Run time, ns.
    pub ns: u64,
}

/// Runs of each clause, in the order of the script.
pub(crate) fn runs_by_clause(programs: &[AttachedProgram]) -> io::Result<Vec<Runs>> {
    let mut all: Vec<Runs> = Vec::new();
    for attached in programs {
        let ProgramHandle::Kernel(program) = &attached.program else { continue };
        let (hits, ns) = read_program_stats(program)?;
        match all.iter_mut().find(|runs| runs.probe == attached.text) {
            Some(runs) => (runs.hits, runs.ns) = (runs.hits + hits, runs.ns + ns),
            None => all.push(Runs { probe: attached.text.clone(), hits, ns }),
        }
    }
    Ok(all)
}

/// Number of events at which the kernel did not run one of the programs. Linux before 6.7 does not count those of tracepoints.
pub(crate) fn missed(programs: &[AttachedProgram]) -> u64 {
    let count = |attached: &AttachedProgram| match &attached.program {
        ProgramHandle::Kernel(program) => info(program).map_or(0, |info| info.recursion_misses),
        ProgramHandle::Process(_) => 0,
    };
    programs.iter().map(count).sum()
}

/// Number of runs of a program, and its run time in ns.
pub(crate) fn read_program_stats(program: &OwnedFd) -> io::Result<(u64, u64)> {
    info(program).map(|info| (info.run_cnt, info.run_time_ns))
}

fn info(program: &OwnedFd) -> io::Result<bpf::bpf_prog_info> {
    let mut info = bpf::bpf_prog_info::default();
    let mut size = size_of::<bpf::bpf_prog_info>() as u32;
    // SAFETY: the kernel writes no more than `size` bytes, and follows no pointer of a structure of zeros.
    sys::check_libbpf(unsafe { bpf::bpf_prog_get_info_by_fd(program.as_raw_fd(), &mut info, &mut size) })?;
    Ok(info)
}
