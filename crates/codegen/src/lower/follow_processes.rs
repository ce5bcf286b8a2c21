//! Programs that maintain the set of traced processes: a child of a traced process is added, its threads are counted, and it is
//! removed with its last thread. The main thread may end before others do.
//!
//! The kernel reports a new task with its pid in the initial pid namespace, and helpers cannot query the child yet. A tracer in
//! another namespace therefore has two kinds of keys; see [`manifest::PIDS_MAP`].

use super::module::Cx;
use crate::bpf::helper::Helper;
use crate::ir::build::Builder;
use crate::ir::{AtomicOp, Bin, BlockId, Cmp, FuncKind, MapRef, ProgramInfo, VReg, Width};
use crate::options::Follow;
use lang::Span;
use wire::manifest;

/// Clause number of programs that do not belong to a clause.
pub(super) const NO_CLAUSE: u32 = u32::MAX;
/// Flag of clone: the new task is a thread of its creator's process (sched.h).
const CLONE_THREAD: i64 = 0x10000;

impl Cx<'_> {
    /// Adds the programs if the options enable them.
    pub(super) fn follow_programs(&mut self) {
        if let Some(follow) = self.options.follow {
            self.follow_fork(follow);
            self.follow_exit();
        }
    }

    fn begin_follow(&mut self, symbol: &str, tracepoint: &str) -> Builder {
        let attach = manifest::Attach::Follow { tracepoint: tracepoint.into() };
        self.manifest.programs.push(manifest::Program {
            symbol: symbol.into(),
            clause: NO_CLAUSE,
            place: manifest::Place::default(),
            text: format!("tracepoint:{tracepoint}"),
            attach: attach.clone(),
            auxiliary: true,
        });
        let info = ProgramInfo { clause: NO_CLAUSE, attach };
        let kind = FuncKind::Program { section: "tracepoint".into(), info };
        Builder::new(symbol.into(), kind, Span::default())
    }

    fn follow_fork(&mut self, follow: Follow) {
        let pids = self.pids();
        let mut b = self.begin_follow("follow_fork", manifest::TASK_BEGINS);
        let ctx = b.ctx();
        let [thread, process, done] = std::array::from_fn(|_| b.block());
        let cell = self.cell_of_current(&mut b, pids, done);
        let flags = b.load(ctx, follow.clone_flags as i16, Width::B64, false);
        let is_thread = b.bin(Bin::And, flags, CLONE_THREAD);
        b.branch(Cmp::Ne, is_thread, 0, thread, process);
        b.switch_to(thread);
        let one = b.copy(1);
        b.atomic(AtomicOp::Add, cell, 0, one);
        b.jump(done);
        b.switch_to(process);
        let child = b.load(ctx, follow.pid as i16, Width::B32, false);
        let child = self.key_of_global(&mut b, child);
        let key = key(&mut b, child);
        let slot = b.func_mut().slot(8, 8);
        let threads = b.slot_addr(slot);
        b.store(threads, 0, Width::B64, 1);
        let map = b.map_addr(pids);
        b.call_void(Helper::MapUpdateElem, &[map.into(), key.into(), threads.into(), 0.into()]);
        b.fall_into(done);
        b.ret(0);
        self.add(b.finish());
    }

    fn follow_exit(&mut self) {
        let pids = self.pids();
        let mut b = self.begin_follow("follow_exit", manifest::TASK_ENDS);
        let [last, done] = std::array::from_fn(|_| b.block());
        let cell = self.cell_of_current(&mut b, pids, done);
        let minus_one = b.copy(-1);
        let threads = b.atomic_fetch(AtomicOp::Add, cell, 0, minus_one);
        b.branch(Cmp::Eq, threads, 1, last, done);
        b.switch_to(last);
        for tgid in self.keys_of_current(&mut b) {
            let key = key(&mut b, tgid);
            let map = b.map_addr(pids);
            b.call_void(Helper::MapDeleteElem, &[map.into(), key.into()]);
        }
        b.fall_into(done);
        b.ret(0);
        self.add(b.finish());
    }

    /// The cell of the current process in the map of traced processes; jumps to `missing` if there is none.
    fn cell_of_current(&self, b: &mut Builder, pids: MapRef, missing: BlockId) -> VReg {
        let keys = self.keys_of_current(b);
        let found = b.block();
        let cell = b.copy(0);
        for tgid in keys {
            let key = key(b, tgid);
            let map = b.map_addr(pids);
            let looked_up = b.call(Helper::MapLookupElem, &[map.into(), key.into()]);
            b.set(cell, looked_up);
            let next = b.block();
            b.branch(Cmp::Ne, cell, 0, found, next);
            b.switch_to(next);
        }
        b.jump(missing);
        b.switch_to(found);
        cell
    }

    /// The possible keys of the current process: as a program enters it, and as the tracer does.
    fn keys_of_current(&self, b: &mut Builder) -> Vec<VReg> {
        let thread = b.call(Helper::GetCurrentPidTgid, &[]);
        let tgid = b.bin(Bin::Shr, thread, 32);
        let Some((device, inode)) = self.options.pid_namespace else { return vec![tgid] };
        let global = self.key_of_global(b, tgid);
        let thread = thread_in(b, device, inode);
        vec![global, b.bin(Bin::Shr, thread, 32)]
    }

    /// The key for a tgid of the initial pid namespace.
    fn key_of_global(&self, b: &mut Builder, tgid: VReg) -> VReg {
        match self.options.pid_namespace {
            Some(_) => b.bin(Bin::Or, tgid, i64::from(manifest::GLOBAL_PID)),
            None => tgid,
        }
    }
}

/// tgid and tid of the current thread in a pid namespace, whose file has this device and inode; 0 outside of it.
fn thread_in(b: &mut Builder, device: u64, inode: u64) -> VReg {
    let slot = b.func_mut().slot(8, 8);
    let place = b.slot_addr(slot);
    b.store(place, 0, Width::B64, 0);
    let args = [(device as i64).into(), (inode as i64).into(), place.into(), 8.into()];
    b.call_void(Helper::GetNsCurrentPidTgid, &args);
    // struct bpf_pidns_info { u32 pid, tgid }: `pid` is the thread id.
    b.load(place, 0, Width::B64, false)
}

/// Stores the low half of a register in a slot, as a key.
fn key(b: &mut Builder, value: VReg) -> VReg {
    let slot = b.func_mut().slot(4, 4);
    let key = b.slot_addr(slot);
    b.store(key, 0, Width::B32, value);
    key
}
