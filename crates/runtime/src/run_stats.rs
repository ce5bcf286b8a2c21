//! How often programs ran and how long that took, as the kernel counts while somebody asks it to.
//!
//! The count costs two readings of a clock for each run of every BPF program of the machine, so nobody asks by default.

use crate::kernel::sys;
use crate::module::ModuleId;
use libbpf_sys as bpf;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// The kernel counts as long as this lives.
#[derive(Debug)]
pub struct Counting {
    _held: OwnedFd,
}

impl Counting {
    /// Begins to count.
    ///
    /// # Errors
    /// EPERM without CAP_SYS_ADMIN; EINVAL before Linux 5.8.
    pub fn start() -> io::Result<Counting> {
        // SAFETY: takes a number.
        let fd = sys::owned_libbpf(unsafe { bpf::bpf_enable_stats(bpf::BPF_STATS_RUN_TIME) })?;
        Ok(Counting { _held: fd })
    }
}

/// A program that is attached.
#[derive(Debug)]
pub(crate) struct Running {
    pub module: ModuleId,
    pub clause: u32,
    pub text: String,
    pub program: OwnedFd,
}

/// What a clause's programs did since counting began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Runs {
    /// The clause's probe list as written.
    pub probe: String,
    /// How often they ran; a call whose return is traced by the same program counts twice.
    pub hits: u64,
    /// Time in them, ns.
    pub ns: u64,
}

/// The runs of each clause, in the order of the script.
pub(crate) fn of(programs: &[Running]) -> io::Result<Vec<Runs>> {
    let mut all: Vec<Runs> = Vec::new();
    for running in programs {
        let (hits, ns) = counted(&running.program)?;
        match all.iter_mut().find(|runs| runs.probe == running.text) {
            Some(runs) => (runs.hits, runs.ns) = (runs.hits + hits, runs.ns + ns),
            None => all.push(Runs { probe: running.text.clone(), hits, ns }),
        }
    }
    Ok(all)
}

/// How often a program ran and how long that took, ns.
pub(crate) fn counted(program: &OwnedFd) -> io::Result<(u64, u64)> {
    let mut info = bpf::bpf_prog_info::default();
    let mut size = size_of::<bpf::bpf_prog_info>() as u32;
    // SAFETY: the kernel writes no more than `size` bytes, and follows no pointer of a structure of zeros.
    sys::check_libbpf(unsafe { bpf::bpf_prog_get_info_by_fd(program.as_raw_fd(), &mut info, &mut size) })?;
    Ok((info.run_cnt, info.run_time_ns))
}
