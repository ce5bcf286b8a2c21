//! Single uprobes: a perf event each, on kernels without multi-uprobes (before 6.6).
//!
//! The kernel makes and destroys them under one lock for all processes, and keeps it while it waits for the grace periods of
//! each that goes: three or four, 100 ms together on Linux 6.18. Who begins while another tracer's 1400 probes go would stand
//! in a line with them for minutes; so those that go let it pass at a [`Gate`].

use crate::kernel::sys;
use libbpf_sys as bpf;
use rustix::fs::{FlockOperation, flock};
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use wire::manifest::Site;

/// The kernel's description of such events.
const PMU: &str = "/sys/bus/event_source/devices/uprobe";

/// Where in the configuration of a uprobe's event its counter goes: `PERF_UPROBE_REF_CTR_OFFSET_SHIFT`.
const SEMAPHORE_SHIFT: u32 = 32;

/// The kernel's way to single uprobes: a perf event of a type of its own.
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

/// Where tracers meet: a lock on a file of the kernel's, which leaves nothing behind.
pub(crate) struct Gate(File);

/// While it lives, nobody of ours takes a single uprobe away.
pub(crate) struct First {
    _locked: File,
}

impl Gate {
    /// None where sysfs is not mounted: then nobody waits for anybody.
    pub fn open() -> Option<Gate> {
        File::open(Path::new(PMU).join("type")).ok().map(Gate)
    }

    /// For who attaches.
    pub fn go_first(self) -> First {
        let Gate(file) = self;
        // A file system without locks: we stand in line.
        let _ = flock(&file, FlockOperation::LockShared);
        First { _locked: file }
    }

    /// For who detaches: waits while somebody attaches.
    pub fn let_pass(&self) {
        let _ = flock(&self.0, FlockOperation::LockExclusive)
            .and_then(|()| flock(&self.0, FlockOperation::Unlock));
    }
}
