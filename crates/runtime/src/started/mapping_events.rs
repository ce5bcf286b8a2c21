//! Reports files that processes have mapped executable, by perf records, with the time since.
//!
//! There is one buffer per CPU and one descriptor for all of them. The reports are for processes that the tracer did not start
//! (`-p`, system-wide). The processes continue, so calls before the probes are attached are missed. A program that the tracer
//! starts is held at each new file instead (`seccomp_server`); for it, the reports contain the addresses that the kernel chose.
//!
//! Format: include/uapi/linux/perf_event.h, `PERF_RECORD_MMAP2`.

use super::query::MappedRange;
use crate::kernel::clock::{Clock, SystemClock};
use crate::kernel::sys;
use crate::kernel::sys::MemoryMapping;
use libbpf_sys as bpf;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Data pages of all buffers, unless each of them has the fewest or the most. A page has some 30 records; a program that starts causes a dozen,
/// and the tracer may be busy for seconds.
const ALL_PAGES: usize = 2048;
const FEWEST_PAGES: usize = 16;
const MOST_PAGES: usize = 256;

/// Passes over the buffers before what has come meanwhile waits for the next read.
const MOST_PASSES: usize = 32;

const HEADER: usize = 8;
/// Offsets in a `PERF_RECORD_MMAP2`.
const PID: usize = HEADER;
const TID: usize = PID + 4;
/// Offset in a `PERF_RECORD_FORK`.
const PARENT: usize = PID + 4;
const START: usize = HEADER + 8;
const LENGTH: usize = START + 8;
const OFFSET: usize = LENGTH + 8;
const MAJOR: usize = HEADER + 32;
const MINOR: usize = MAJOR + 4;
const INODE: usize = MINOR + 4;
const GENERATION: usize = INODE + 8;
const NAME: usize = HEADER + 64;

/// Identity of a mapped file. Inode numbers are reused, with another generation.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct MappedInode {
    /// As in `/proc/PID/maps`, which differs from `stat` on some file systems.
    pub device: u64,
    /// The inode in the layer, on file systems that merge layers.
    pub number: u64,
    generation: u64,
}

/// An executable mapping of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MappingEvent {
    /// Process, in our pid namespace.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// The file.
    pub inode: MappedInode,
    /// Path in the process's root.
    pub path: PathBuf,
    /// Addresses.
    pub range: MappedRange,
    /// Boot-clock time of the mapping, ns.
    pub time_ns: u64,
    /// That of the end of a thread of the process, the last one that was read with the mapping.
    pub ended_ns: Option<u64>,
}

impl MappingEvent {
    /// Time since the mapping.
    pub fn age(&self) -> Duration {
        Duration::from_nanos(SystemClock.boot_ns().saturating_sub(self.time_ns))
    }

    /// Time for which a process that has ended can have used the file, at most.
    pub fn time_in_use(&self) -> Duration {
        self.ended_ns.map_or(self.age(), |end| Duration::from_nanos(end.saturating_sub(self.time_ns)))
    }
}

/// Reader of the executable mappings of all processes.
#[derive(Debug)]
pub struct MappingWatch {
    buffers: Vec<Buffer>,
    epoll: OwnedFd,
    lost: u64,
    forks: Vec<Fork>,
}

/// A new process, by their ids in our pid namespace.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Fork {
    /// The process.
    pub pid: u32,
    /// Its parent.
    pub parent: u32,
    /// Boot-clock time, ns.
    pub time_ns: u64,
}

impl MappingWatch {
    /// Opens the buffers. Needs CAP_PERFMON.
    ///
    /// # Errors
    /// The errors of perf_event_open(2) and of mapping its buffers.
    pub fn start() -> io::Result<MappingWatch> {
        MappingWatch::open(false)
    }

    /// The same, with the forks of all processes.
    ///
    /// # Errors
    /// As for [`MappingWatch::start`]
    pub fn with_forks() -> io::Result<MappingWatch> {
        MappingWatch::open(true)
    }

    fn open(forks: bool) -> io::Result<MappingWatch> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let cpus = sys::online_cpus()?;
        let pages = (ALL_PAGES / cpus.len().max(1)).clamp(FEWEST_PAGES, MOST_PAGES).next_power_of_two();
        let open = |cpu| Buffer::open(cpu, forks, pages);
        let buffers: Vec<Buffer> = cpus.into_iter().map(open).collect::<io::Result<_>>()?;
        for buffer in &buffers {
            epoll::add(&epoll, &buffer.event, EventData::new_u64(0), EventFlags::IN)?;
        }
        Ok(MappingWatch { buffers, epoll, lost: 0, forks: vec![] })
    }

    /// Descriptor that is readable when there are records.
    pub fn fd(&self) -> RawFd {
        self.epoll.as_raw_fd()
    }

    /// Descriptor that is readable when there are records.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Mappings since the last call, in the order of time. The forks of their processes come with them, or came before.
    pub fn read(&mut self) -> Vec<MappingEvent> {
        let mut records = Records::default();
        for _ in 0..MOST_PASSES {
            let before = records.mapped.len();
            self.buffers.iter_mut().for_each(|buffer| buffer.read(&mut records));
            // The fork of a process that has mapped a file may be in a buffer that was read just before.
            if records.mapped.len() == before {
                break;
            }
        }
        let Records { mut mapped, mut forks, ends, lost } = records;
        // Each CPU has a buffer of its own.
        forks.sort_by_key(|fork| fork.time_ns);
        self.forks.extend(forks);
        self.lost += lost;
        mapped.sort_by_key(|mapped| mapped.time_ns);
        let end_of =
            |mapped: &MappingEvent| ends.get(&mapped.pid).copied().filter(|end| *end >= mapped.time_ns);
        mapped.iter_mut().for_each(|mapped| mapped.ended_ns = end_of(mapped));
        mapped
    }

    /// Takes the forks that were read with the mappings.
    pub fn take_forks(&mut self) -> Vec<Fork> {
        std::mem::take(&mut self.forks)
    }

    /// Number of records that did not fit into a buffer: files may have been missed.
    pub fn lost(&self) -> u64 {
        self.lost
    }
}

/// Records of all CPUs that are read at once.
#[derive(Default)]
struct Records {
    mapped: Vec<MappingEvent>,
    forks: Vec<Fork>,
    /// By process: when its last thread ended, of those that did.
    ends: BTreeMap<u32, u64>,
    /// Number of records that did not fit.
    lost: u64,
}

/// The records of one CPU.
struct Buffer {
    event: OwnedFd,
    /// A page of the kernel's, then the records.
    memory: MemoryMapping,
    /// Size of the records' part, bytes; a power of two.
    size: usize,
    spare: Vec<u8>,
}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Buffer").field("event", &self.event).finish_non_exhaustive()
    }
}

impl Buffer {
    fn open(cpu: u32, forks: bool, pages: usize) -> io::Result<Buffer> {
        let mut attr = bpf::perf_event_attr {
            type_: bpf::PERF_TYPE_SOFTWARE,
            config: bpf::PERF_COUNT_SW_DUMMY.into(),
            sample_type: bpf::PERF_SAMPLE_TIME.into(),
            clockid: libc::CLOCK_BOOTTIME,
            ..Default::default()
        };
        attr.set_mmap(1);
        attr.set_mmap2(1);
        attr.set_task(forks.into());
        attr.set_sample_id_all(1);
        attr.set_use_clockid(1);
        // Each record wakes the reader: they are rare.
        attr.set_watermark(1);
        attr.__bindgen_anon_2.wakeup_watermark = 1;
        let event = sys::perf_event_open(&mut attr, -1, cpu as i32)?;
        let page = rustix::param::page_size();
        match MemoryMapping::shared(event.as_fd(), 0, (1 + pages) * page, true) {
            Ok(memory) => Ok(Buffer { event, memory, size: pages * page, spare: Vec::new() }),
            // Without the right to lock memory.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied && pages > FEWEST_PAGES => {
                Buffer::open(cpu, forks, FEWEST_PAGES)
            }
            Err(error) => Err(error),
        }
    }

    /// Appends what is in the buffer.
    fn read(&mut self, records: &mut Records) {
        let page = self.memory.bytes().cast::<bpf::perf_event_mmap_page>();
        // SAFETY: both words are in the first page, which lives as long as `self`. The kernel writes the head, this process
        // the tail.
        let (head, tail) = unsafe {
            (
                &*(&raw const (*page).data_head).cast::<AtomicU64>(),
                &*(&raw const (*page).data_tail).cast::<AtomicU64>(),
            )
        };
        let (end, mut at) = (head.load(Ordering::Acquire), tail.load(Ordering::Relaxed));
        while at < end {
            let size = u64::from(self.copy(at, HEADER)[6]) | u64::from(self.copy(at, HEADER)[7]) << 8;
            if size < HEADER as u64 {
                break;
            }
            match read_record(self.copy(at, size as usize)) {
                Some(Record::MappingEvent(one)) => records.mapped.push(one),
                Some(Record::Fork(fork)) => records.forks.push(fork),
                Some(Record::End { pid, time_ns }) => {
                    let last = records.ends.entry(pid).or_default();
                    *last = time_ns.max(*last);
                }
                Some(Record::Lost(count)) => records.lost += count,
                None => {}
            }
            at += size;
        }
        tail.store(end, Ordering::Release);
    }

    /// `len` bytes from a position, which may wrap around.
    fn copy(&mut self, at: u64, len: usize) -> &[u8] {
        let size = self.size;
        let start = at as usize & (size - 1);
        let first = len.min(size - start);
        // SAFETY: the data follows the first page and has `size` bytes; a record is never longer than that.
        let (head, tail) = unsafe {
            let data = self.memory.bytes().add(rustix::param::page_size());
            (
                std::slice::from_raw_parts(data.add(start), first),
                std::slice::from_raw_parts(data, len - first),
            )
        };
        self.spare.clear();
        self.spare.extend_from_slice(head);
        self.spare.extend_from_slice(tail);
        &self.spare
    }
}

/// The records that are used.
#[derive(Debug, PartialEq, Eq)]
enum Record {
    MappingEvent(MappingEvent),
    Fork(Fork),
    /// A thread of the process has ended.
    End {
        pid: u32,
        time_ns: u64,
    },
    Lost(u64),
}

fn word(record: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(record.get(at..at + 4)?.try_into().ok()?))
}

fn long(record: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(record.get(at..at + 8)?.try_into().ok()?))
}

/// Decodes a whole record. `None` if it is of another kind, or not of a file.
fn read_record(record: &[u8]) -> Option<Record> {
    match word(record, 0)? {
        bpf::PERF_RECORD_LOST => long(record, HEADER + 8).map(Record::Lost),
        // A new thread has the process of its creator.
        bpf::PERF_RECORD_FORK => {
            let time_ns = long(record, record.len().checked_sub(8)?)?;
            let fork = Fork { pid: word(record, PID)?, parent: word(record, PARENT)?, time_ns };
            Some(Record::Fork(fork)).filter(|_| fork.pid != fork.parent)
        }
        bpf::PERF_RECORD_EXIT => Some(Record::End {
            pid: word(record, PID)?,
            time_ns: long(record, record.len().checked_sub(8)?)?,
        }),
        bpf::PERF_RECORD_MMAP2 => mapping(record).map(Record::MappingEvent),
        _ => None,
    }
}

fn mapping(record: &[u8]) -> Option<MappingEvent> {
    use std::os::unix::ffi::OsStringExt;
    // The time follows the name.
    let time_at = record.len().checked_sub(8)?;
    let name = record.get(NAME..time_at)?;
    let name = &name[..name.iter().position(|byte| *byte == 0).unwrap_or(name.len())];
    let number = long(record, INODE)?;
    if number == 0 || !name.starts_with(b"/") {
        return None;
    }
    let device = libc::makedev(word(record, MAJOR)?, word(record, MINOR)?);
    let start = long(record, START)?;
    Some(MappingEvent {
        pid: word(record, PID)?,
        tid: word(record, TID)?,
        inode: MappedInode { device, number, generation: long(record, GENERATION)? },
        path: std::ffi::OsString::from_vec(name.to_vec()).into(),
        range: MappedRange {
            start,
            end: start.checked_add(long(record, LENGTH)?)?,
            offset: long(record, OFFSET)?,
        },
        time_ns: long(record, time_at)?,
        ended_ns: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn mappings_of_a_new_process_are_reported() {
        if !crate::kernel::features::is_root() {
            eprintln!("skipped: needs root");
            return;
        }
        let before = SystemClock.boot_ns();
        let mut watch = MappingWatch::with_forks().expect("perf");
        let mut child =
            std::process::Command::new("cat").stdin(std::process::Stdio::null()).spawn().expect("cat");
        let pid = child.id();
        child.wait().expect("ended");
        sys::poll(&mut [sys::readable(watch.fd())], 5000).expect("poll");
        let seen: Vec<MappingEvent> = watch.read().into_iter().filter(|mapped| mapped.pid == pid).collect();
        let libc = seen
            .iter()
            .find(|mapped| mapped.path.to_string_lossy().contains("libc.so"))
            .expect("cat maps libc");
        let stat = std::fs::metadata(&libc.path).expect("libc");
        assert_eq!(libc.inode.number, stat.ino());
        assert_eq!(libc.inode.device, stat.dev());
        assert!(libc.time_ns > before && libc.age() < Duration::from_secs(60), "{libc:?}");
        assert_eq!(watch.lost(), 0);
        let end = libc.ended_ns.expect("it has ended");
        assert!(end > libc.time_ns && libc.time_in_use() < libc.age(), "{libc:?}");
        let forks = watch.take_forks();
        let fork = forks.iter().find(|fork| fork.pid == pid).expect("it was forked");
        assert!(fork.parent == std::process::id() && fork.time_ns < libc.time_ns, "{fork:?}");
    }

    #[test]
    fn a_process_is_known_by_its_fork_before_it_maps_a_file() {
        if !crate::kernel::features::is_root() {
            eprintln!("skipped: needs root");
            return;
        }
        let mut watch = MappingWatch::with_forks().expect("perf");
        let programs = std::env::temp_dir().join(format!("forks-{}", std::process::id()));
        std::fs::copy("/bin/true", &programs).expect("a program");
        let (mut forked, mut unknown, mut count) = (std::collections::BTreeSet::new(), vec![], 0);
        std::thread::scope(|scope| {
            let run = || (0..400).all(|_| std::process::Command::new(&programs).status().is_ok());
            let runs = [scope.spawn(run), scope.spawn(run)];
            loop {
                let is_last = runs.iter().all(std::thread::ScopedJoinHandle::is_finished);
                let mapped = watch.read();
                forked.extend(watch.take_forks().iter().map(|fork| fork.pid));
                let own: Vec<u32> =
                    mapped.iter().filter(|mapped| mapped.path == programs).map(|mapped| mapped.pid).collect();
                count += own.len();
                unknown.extend(own.into_iter().filter(|pid| !forked.contains(pid)));
                if is_last {
                    break;
                }
            }
        });
        std::fs::remove_file(programs).expect("it is there");
        assert!(count >= 800 && unknown.is_empty(), "{} of {count}: {unknown:?}", unknown.len());
    }

    #[test]
    fn cut_records_are_no_mapping() {
        let mut record = vec![0; NAME + 16 + 8];
        record[0] = bpf::PERF_RECORD_MMAP2 as u8;
        record[INODE] = 5;
        record[NAME..NAME + 6].copy_from_slice(b"/a.so\0");
        assert!(
            matches!(read_record(&record), Some(Record::MappingEvent(mapped)) if mapped.path.ends_with("a.so"))
        );
        for len in 0..NAME + 8 {
            assert_eq!(read_record(&record[..len]), None, "{len}");
        }
    }
}
