//! Rows of the page: streams of devices, threads of processes, and ranges of NVTX above their thread.
//!
//! A stream belongs to a device, also if several processes use the device, and is no thread.

use crate::export::{Data, GpuStream, Record, Thread, json};
use foldhash::HashMap;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

/// Category of spans that are ranges of NVTX.
const NVTX: &str = "nvtx";

/// Kind of a row; its letter in the page.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum RowKind {
    /// A stream of a device.
    Stream,
    /// Times in which a device had no kernel, by their causes.
    Idle,
    /// A thread of a process.
    Thread,
    /// NVTX ranges of a thread.
    Nvtx,
}

impl RowKind {
    fn of(record: &Record, tid: u32) -> RowKind {
        match record.field("category") {
            _ if record.is_idle() => RowKind::Idle,
            _ if GpuStream::of_tid(tid).is_some() => RowKind::Stream,
            Some(Data::Text(category)) if &**category == NVTX => RowKind::Nvtx,
            _ => RowKind::Thread,
        }
    }

    fn is_of_device(self) -> bool {
        matches!(self, RowKind::Stream | RowKind::Idle)
    }

    fn letter(self) -> char {
        match self {
            RowKind::Stream => 's',
            RowKind::Idle => 'i',
            RowKind::Thread => 't',
            RowKind::Nvtx => 'n',
        }
    }
}

#[derive(Debug)]
struct Row {
    kind: RowKind,
    pid: u32,
    tid: u32,
    /// Name of the thread.
    comm: Arc<str>,
    /// Name of the program.
    program: Arc<str>,
}

/// Rows by number; see the module documentation.
#[derive(Debug, Default)]
pub(super) struct Rows {
    all: Vec<Row>,
    numbers: HashMap<(u32, u32, RowKind), u32>,
    /// The row of the previous record.
    last: Option<((u32, u32, RowKind), u32)>,
    /// Devices' numbers of all processes, by process and its number.
    devices: HashMap<(u32, u32), u64>,
}

impl Rows {
    /// The row of a span. Spans without a thread have one for themselves.
    pub(super) fn row(&mut self, record: &Record) -> u32 {
        let none = Thread { pid: 0, tid: 0, comm: "no thread".into(), program: "no process".into() };
        let thread = record.thread.as_deref().unwrap_or(&none);
        let kind = RowKind::of(record, thread.tid);
        if let (RowKind::Stream, Some(Data::Uint(device @ 1..))) = (kind, record.field("gpu"))
            && let Some(stream) = GpuStream::of_tid(thread.tid)
        {
            self.devices.insert((thread.pid, stream.device), *device);
        }
        let key = (thread.pid, thread.tid, kind);
        if let Some((last, number)) = self.last
            && last == key
        {
            self.rename(number, thread);
            return number;
        }
        let next = self.all.len() as u32;
        let number = *self.numbers.entry(key).or_insert(next);
        if number == next {
            let Thread { pid, tid, comm, program } = thread.clone();
            self.all.push(Row { kind, pid, tid, comm, program });
        } else {
            self.rename(number, thread);
        }
        self.last = Some((key, number));
        number
    }

    /// A thread may get a name after its first call.
    fn rename(&mut self, row: u32, thread: &Thread) {
        let known = &mut self.all[row as usize].comm;
        if !thread.comm.is_empty() && !Arc::ptr_eq(known, &thread.comm) {
            *known = thread.comm.clone();
        }
    }

    /// Number of rows.
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether work on a row may overlap without one part being within the other.
    pub(super) fn is_stream(&self, row: usize) -> bool {
        self.all[row].kind.is_of_device()
    }

    /// The number of the device of a stream, in all processes if it is known.
    fn device(&self, row: &Row) -> Option<(u64, u32)> {
        let stream = GpuStream::of_tid(row.tid).filter(|_| row.kind.is_of_device())?;
        let number = self.devices.get(&(row.pid, stream.device)).copied();
        Some((number.unwrap_or(stream.device.into()), stream.device))
    }

    /// Members of the page's data: names of devices, and for each row its kind, process, thread or stream, name, program and device.
    pub(super) fn header(&self, out: &mut String) {
        let mut devices: BTreeMap<u64, u32> = BTreeMap::new();
        for (number, ordinal) in self.all.iter().filter_map(|row| self.device(row)) {
            devices.entry(number).or_insert(ordinal);
        }
        out.push_str(",\"devices\":");
        let is_alone = |ordinal: u32| devices.values().filter(|other| **other == ordinal).count() == 1;
        json::list(out, devices.iter(), |out, (number, ordinal)| match is_alone(*ordinal) {
            true => _ = write!(out, "\"GPU {ordinal}\""),
            false => _ = write!(out, "\"GPU {ordinal} ({number:012x})\""),
        });
        out.push_str(",\"rows\":");
        json::list(out, self.all.iter(), |out, row| {
            let device =
                self.device(row).and_then(|(number, _)| devices.keys().position(|key| *key == number));
            let tid = GpuStream::of_tid(row.tid).map_or(row.tid, |stream| stream.stream);
            let _ = write!(out, "[\"{}\",{},{tid},", row.kind.letter(), row.pid);
            json::string(out, &row.comm);
            out.push(',');
            json::string(out, &row.program);
            if let Some(device) = device {
                let _ = write!(out, ",{device}");
            }
            out.push(']');
        });
    }
}
