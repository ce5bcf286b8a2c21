//! Single uprobes: one perf event per function, for kernels without multi-uprobes (before 6.6).
//!
//! The kernel creates and destroys them under one lock for all processes. Destroying one holds the lock for three or four grace
//! periods, 100 ms in all on Linux 6.18. A tracer that attaches while another one closes 1400 probes would wait for minutes, so
//! closing pauses while another tracer attaches ([`AttachLock`]).
//!
//! Format: `/sys/bus/event_source/devices/uprobe`. Not here: the link between event and program (`link`).

use crate::kernel::perf_pmu::{ProbePmu, UPROBE};
use crate::kernel::sys;
use rustix::fs::{FlockOperation, flock};
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use wire::manifest::Site;

/// First bit of the semaphore's offset in an event's `config`: `PERF_UPROBE_REF_CTR_OFFSET_SHIFT`.
const SEMAPHORE_SHIFT: u32 = 32;

/// Opens the event of a function.
pub(crate) fn open(
    pmu: &ProbePmu,
    path: &Path,
    site: &Site,
    at_return: bool,
    pid: Option<u32>,
) -> io::Result<OwnedFd> {
    let path: CString = sys::c_path(path)?;
    let mut attr = pmu.attr(at_return);
    attr.config |= site.semaphore << SEMAPHORE_SHIFT;
    attr.__bindgen_anon_3.uprobe_path = path.as_ptr() as u64;
    attr.__bindgen_anon_4.probe_offset = site.offset;
    let (pid, cpu) = pid.map_or((-1, 0), |pid| (pid as i32, -1));
    sys::perf_event_open(&mut attr, pid, cpu)
}

/// A lock that all tracers share, on a file in sysfs. Attaching holds it shared; detaching waits until it is free.
pub(crate) struct AttachLock(File);

/// While it exists, no tracer closes single uprobes.
pub(crate) struct AttachGuard {
    _locked: File,
}

impl AttachLock {
    /// `None` where sysfs is not mounted: then attaching may wait for detaching.
    pub(crate) fn open() -> Option<AttachLock> {
        File::open(Path::new(UPROBE).join("type")).ok().map(AttachLock)
    }

    /// Called before attaching.
    pub(crate) fn lock(self) -> AttachGuard {
        let AttachLock(file) = self;
        // Fails on a file system without locks: attaching then waits for detaching.
        let _ = flock(&file, FlockOperation::LockShared);
        AttachGuard { _locked: file }
    }

    /// Called before each event is closed: waits while a tracer attaches.
    pub(crate) fn wait_until_free(&self) {
        let _ = flock(&self.0, FlockOperation::LockExclusive)
            .and_then(|()| flock(&self.0, FlockOperation::Unlock));
    }
}
