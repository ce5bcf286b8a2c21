//! The performance monitoring units `uprobe` and `kprobe`, which create one probe per perf event.

use libbpf_sys as bpf;
use std::io;
use std::path::Path;

/// The kernel's descriptions of these events.
pub(crate) const UPROBE: &str = "/sys/bus/event_source/devices/uprobe";
pub(crate) const KPROBE: &str = "/sys/bus/event_source/devices/kprobe";

/// The type of the unit's perf events and its return bit.
pub(crate) struct ProbePmu {
    kind: u32,
    return_bit: u64,
}

impl ProbePmu {
    /// The unit that the kernel describes in this folder of sysfs.
    pub(crate) fn of_kernel(folder: &str) -> io::Result<ProbePmu> {
        let base = Path::new(folder);
        let number = |text: &str| text.trim().parse().map_err(io::Error::other);
        let kind = number(&std::fs::read_to_string(base.join("type"))?)?;
        let format = std::fs::read_to_string(base.join("format/retprobe"))?;
        let bit = number(format.trim().strip_prefix("config:").unwrap_or(""))?;
        Ok(ProbePmu { kind, return_bit: 1 << bit })
    }

    /// An event without its place.
    pub(crate) fn attr(&self, at_return: bool) -> bpf::perf_event_attr {
        let mut attr = bpf::perf_event_attr { type_: self.kind, ..Default::default() };
        attr.config = if at_return { self.return_bit } else { 0 };
        attr
    }
}
