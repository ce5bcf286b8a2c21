//! Records of CUPTI, made into those of probes.
//!
//! NVIDIA only ever appends fields to these structs, and the library fills the newest form that it knows. So fields are read at their
//! offsets, which are the same in CUPTI 11.7 to 13.5 (taken from the layouts of the structs in NVIDIA's headers).

use crate::clock::Clock;
use crate::record::{KINDS, Kind, Record};

/// `CUpti_ActivityKind`
pub(crate) mod kind {
    pub(crate) const MEMCPY: u32 = 1;
    pub(crate) const MEMSET: u32 = 2;
    pub(crate) const KERNEL: u32 = 3;
    pub(crate) const CONCURRENT_KERNEL: u32 = 10;
    pub(crate) const OVERHEAD: u32 = 17;
    pub(crate) const MEMCPY2: u32 = 22;
    pub(crate) const SYNCHRONIZATION: u32 = 38;
    pub(crate) const GRAPH_TRACE: u32 = 51;
}

/// CUPTI's kinds of records for ours, in the order in which they are enabled.
pub(crate) const SOURCES: [(Kind, &[u32]); KINDS] = [
    // Kernels delimit idle times; copies are causes, and waits, from callbacks.
    (Kind::Idle, &[kind::CONCURRENT_KERNEL, kind::MEMCPY]),
    (Kind::Kernel, &[kind::CONCURRENT_KERNEL]),
    (Kind::Memcpy, &[kind::MEMCPY, kind::MEMCPY2]),
    (Kind::Memset, &[kind::MEMSET]),
    (Kind::Graph, &[kind::GRAPH_TRACE]),
    (Kind::Sync, &[kind::SYNCHRONIZATION]),
    (Kind::Overhead, &[kind::OVERHEAD]),
    // From callbacks of NVTX, of PyTorch and of CUPTI.
    (Kind::Range, &[]),
    (Kind::Operator, &[]),
    (Kind::Annotation, &[]),
    (Kind::Launch, &[]),
    (Kind::Forward, &[]),
    (Kind::OperatorTable, &[]),
];

/// A record of CUPTI.
#[derive(Copy, Clone)]
pub(crate) struct Activity(*const u8);

impl Activity {
    /// # Safety
    /// A record that CUPTI has written, which stays as long as this value.
    pub(crate) unsafe fn new(at: *const u8) -> Activity {
        Activity(at)
    }

    /// The record with its kind; `None` for kinds that are not known here.
    pub(crate) fn record(self, clock: &Clock) -> Option<(Kind, Record)> {
        let (what, mut record) = match self.u32(0) {
            kind::KERNEL | kind::CONCURRENT_KERNEL => (Kind::Kernel, self.kernel()),
            kind::MEMCPY => (Kind::Memcpy, self.memcpy()),
            kind::MEMCPY2 => (Kind::Memcpy, self.peer_copy()),
            kind::MEMSET => (Kind::Memset, self.memset()),
            kind::GRAPH_TRACE => (Kind::Graph, self.graph()),
            kind::SYNCHRONIZATION => (Kind::Sync, self.sync()),
            kind::OVERHEAD => (Kind::Overhead, self.overhead()),
            _ => return None,
        };
        (record.start, record.end) = (clock.monotonic(record.start), clock.monotonic(record.end));
        Some((what, record))
    }

    fn kernel(self) -> Record {
        Record {
            start: self.u64(16),
            end: self.u64(24),
            kernel: self.u64(104),
            stream: self.u32(48).into(),
            node: self.u64(144),
            corr: self.u32(92).into(),
            device: self.u32(40),
            context: self.u32(44),
            graph: self.u32(156),
            registers: self.u16(6).into(),
            grid_x: self.u32(52),
            grid_y: self.u32(56),
            grid_z: self.u32(60),
            block_x: self.u32(64),
            block_y: self.u32(68),
            block_z: self.u32(72),
            shared: self.u32(76).wrapping_add(self.u32(80)),
            ..Record::default()
        }
    }

    fn memcpy(self) -> Record {
        Record { corr: self.u32(44).into(), node: self.u64(64), graph: self.u32(72), ..self.copy() }
    }

    /// A copy between devices.
    fn peer_copy(self) -> Record {
        Record {
            corr: self.u32(60).into(),
            node: self.u64(72),
            graph: self.u32(80),
            src_device: self.u32(44),
            dst_device: self.u32(52),
            ..self.copy()
        }
    }

    /// Fields of both kinds of copies.
    fn copy(self) -> Record {
        let device = self.u32(32);
        Record {
            what: self.u8(4),
            src_kind: self.u8(5),
            dst_kind: self.u8(6),
            is_async: self.u8(7) & 1,
            src_device: device,
            dst_device: device,
            ..self.operation()
        }
    }

    fn memset(self) -> Record {
        Record {
            value: self.u32(4),
            corr: self.u32(44).into(),
            is_async: (self.u16(48) & 1) as u8,
            src_kind: self.u16(50) as u8,
            dst_kind: self.u16(50) as u8,
            node: self.u64(64),
            graph: self.u32(72),
            ..self.operation()
        }
    }

    /// Fields of copies and fills.
    fn operation(self) -> Record {
        Record {
            bytes: self.u64(8),
            start: self.u64(16),
            end: self.u64(24),
            device: self.u32(32),
            context: self.u32(36),
            stream: self.u32(40).into(),
            ..Record::default()
        }
    }

    fn graph(self) -> Record {
        Record {
            corr: self.u32(4).into(),
            start: self.u64(8),
            end: self.u64(16),
            device: self.u32(24),
            graph: self.u32(28),
            context: self.u32(32),
            stream: self.u32(36).into(),
            ..Record::default()
        }
    }

    fn sync(self) -> Record {
        Record {
            what: self.u32(4) as u8,
            start: self.u64(8),
            end: self.u64(16),
            corr: self.u32(24).into(),
            context: self.u32(28),
            stream: self.u32(32).into(),
            value: self.u32(36),
            ..Record::default()
        }
    }

    fn overhead(self) -> Record {
        Record { value: self.u32(4), start: self.u64(24), end: self.u64(32), ..Record::default() }
    }

    fn u8(self, at: usize) -> u8 {
        self.read(at)
    }

    fn u16(self, at: usize) -> u16 {
        self.read(at)
    }

    fn u32(self, at: usize) -> u32 {
        self.read(at)
    }

    fn u64(self, at: usize) -> u64 {
        self.read(at)
    }

    fn read<T>(self, at: usize) -> T {
        // SAFETY: within all forms of the record, see `new`.
        unsafe { self.0.add(at).cast::<T>().read_unaligned() }
    }
}
