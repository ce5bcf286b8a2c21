//! Single uprobes: one perf event per function, for kernels without multi-uprobes (before 6.6).
//!
//! The kernel creates and destroys them under one lock for all processes. Destroying one holds the lock for three or four grace
//! periods, 100 ms in all on Linux 6.18. A tracer that attaches while another one closes 1400 probes would wait for minutes, so
//! closing pauses while another tracer attaches ([`AttachLock`]).
//!
//! Format: `/sys/bus/event_source/devices/uprobe`. Not here: the link between event and program (`link`).

use crate::kernel::sys;
use libbpf_sys as bpf;
use rustix::fs::{FlockOperation, flock};
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use wire::manifest::Site;

/// The kernel's description of these events.
const PMU: &str = "/sys/bus/event_source/devices/uprobe";

/// First bit of the semaphore's offset in an event's `config`: `PERF_UPROBE_REF_CTR_OFFSET_SHIFT`.
const SEMAPHORE_SHIFT: u32 = 32;

/// The performance monitoring unit `uprobe`: the type of these perf events and its return bit.
pub(crate) struct UprobePmu {
    kind: u32,
    return_bit: u64,
}

impl UprobePmu {
    pub fn of_kernel() -> io::Result<UprobePmu> {
        let base = Path::new(PMU);
        let number = |text: &str| text.trim().parse().map_err(io::Error::other);
        let kind = number(&std::fs::read_to_string(base.join("type"))?)?;
        let format = std::fs::read_to_string(base.join("format/retprobe"))?;
        let bit = number(format.trim().strip_prefix("config:").unwrap_or(""))?;
        Ok(UprobePmu { kind, return_bit: 1 << bit })
    }

    pub fn open(&self, path: &Path, site: &Site, at_return: bool, pid: Option<u32>) -> io::Result<OwnedFd> {
        let path: CString = sys::c_path(path)?;
        let mut attr = bpf::perf_event_attr { type_: self.kind, ..Default::default() };
        attr.config = if at_return { self.return_bit } else { 0 };
        attr.config |= site.semaphore << SEMAPHORE_SHIFT;
        attr.__bindgen_anon_3.uprobe_path = path.as_ptr() as u64;
        attr.__bindgen_anon_4.probe_offset = site.offset;
        let (pid, cpu) = pid.map_or((-1, 0), |pid| (pid as i32, -1));
        sys::perf_event_open(&mut attr, pid, cpu)
    }
}

/// A lock that all tracers share, on a file in sysfs. Attaching holds it shared; detaching waits until it is free.
pub(crate) struct AttachLock(File);

/// While it exists, no tracer closes single uprobes.
pub(crate) struct AttachGuard {
    _locked: File,
}

impl AttachLock {
    /// `None` where sysfs is not mounted: then attaching may wait for detaching.
    pub fn open() -> Option<AttachLock> {
        File::open(Path::new(PMU).join("type")).ok().map(AttachLock)
    }

    /// Called before attaching.
    pub fn lock(self) -> AttachGuard {
        let AttachLock(file) = self;
        // Fails on a file system without locks: attaching then waits for detaching.
        let _ = flock(&file, FlockOperation::LockShared);
        AttachGuard { _locked: file }
    }

    /// Called before each event is closed: waits while a tracer attaches.
    pub fn wait_until_free(&self) {
        let _ = flock(&self.0, FlockOperation::LockExclusive)
            .and_then(|()| flock(&self.0, FlockOperation::Unlock));
    }
}
