//! A fake machine for the tests of this crate.

use wire::manifest::{Enum, SourceFile, StackMap};
use wire::{Manifest, map};

use crate::export::{Fields, GpuStream, Kind, Record, Site, Span, Status, Thread};
use crate::{Frame, Names};

/// An implementation of [`Names`] with deterministic results.
pub(crate) struct Fake;

impl Names for Fake {
    fn user_symbol(&self, tgid: u32, address: u64) -> String {
        format!("sym_{address:x}+{tgid}")
    }

    fn stack(&self, _user: bool, _tgid: u32, addresses: &[u64]) -> Vec<Frame> {
        addresses.iter().map(|&address| frame(address)).collect()
    }

    fn file_place(&self, _tgid: u32, address: u64) -> Option<(String, u64)> {
        (address < 0x80).then(|| ("abcd".into(), 0x1000 + address))
    }

    fn stack_addresses(&self, _map: u32, id: u32) -> Vec<u64> {
        if id == 1 { vec![0x10, 0x20, 0xff] } else { vec![] }
    }

    fn wall_clock_ns(&self, boot_ns: u64) -> i128 {
        i128::from(boot_ns) + 1000
    }

    fn strftime(&self, format: &str, wall_ns: i128) -> String {
        format!("[{format} {wall_ns}]")
    }

    fn program(&self, pid: u32) -> Option<std::sync::Arc<str>> {
        (pid == 77).then(|| "python3".into())
    }

    fn process(&self, pid: u32) -> crate::metrics::Process {
        crate::metrics::Process { program: self.program(pid), ..Default::default() }
    }

    fn lookup(&self, what: wire::types::Lookup, number: i64) -> String {
        match what {
            // Short names of several kernels collide.
            wire::types::Lookup::Kernel => format!("kernel {}", number % 10),
            _ => format!("{what:?} {number}"),
        }
    }
}

fn frame(address: u64) -> Frame {
    let known = Frame { address, ..Frame::default() };
    match address {
        0x10 => Frame {
            symbol: Some("main".into()),
            offset: 16,
            module: Some("/bin/a".into()),
            source: Some(("a.c".into(), 3)),
            ..known
        },
        0x20 => Frame { symbol: Some("f".into()), inlined: true, ..known },
        _ => known,
    }
}

/// A manifest with some names, one enum, one stack map and no map.
pub(crate) fn manifest() -> Manifest {
    let variants = [("CUDA_SUCCESS", 0), ("CUDA_ERROR_OUT_OF_MEMORY", 2)];
    Manifest {
        sources: vec![SourceFile { script: String::new(), file: "t.ct".into() }],
        names: wire::manifest::Names {
            funcs: vec!["cuInit".into(), "cuMemFree_v2".into()],
            ..Default::default()
        },
        enums: vec![Enum {
            name: "CUresult".into(),
            variants: variants.map(|(n, v)| (n.into(), v)).to_vec(),
        }],
        stacks: vec![StackMap { symbol: "s".into(), user: true, limit: 8, walked: false }],
        truncation_trailer: "..".into(),
        ..Manifest::default()
    }
}

/// A map with placeholder values for all that does not affect printing.
pub(crate) fn map(name: &str, value: map::MapValue) -> map::Map {
    let storage = map::Storage::Hash;
    map::Map { name: name.into(), symbol: name.into(), key: vec![], value, storage, max_entries: 1 }
}

/// A kernel of stream 7 of device 0 that begins then and takes this long, in ns.
pub(crate) fn gpu_kernel(name: &str, time_ns: u64, duration_ns: u64) -> Record {
    let span =
        Span { duration_ns, span_id: time_ns, parent_id: 0, status: Status::Ok, result: None, launch_id: 0 };
    let thread = Thread {
        pid: 1,
        tid: GpuStream { device: 0, stream: 7 }.tid(),
        comm: "GPU 0 stream 7".into(),
        program: "train".into(),
    };
    Record {
        kind: Kind::Span(span),
        time_ns,
        thread: Some(thread.into()),
        site: Site { probe: "gpu:kernel".into(), ..Site::default() }.into(),
        name: name.into(),
        fields: Fields::default(),
    }
}
