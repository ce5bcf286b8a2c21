//! Programs that keep the set of traced processes: a child of a traced process is traced, and what exits is not.
//!
//! The tracepoint names a new thread as it names a new process; its entry does no harm and goes when it exits. A process
//! counts as gone when its first thread exits.

use super::Cx;
use crate::Follow;
use crate::bpf::helper;
use crate::ir::build::Builder;
use crate::ir::{Bin, Cmp, FuncKind, ProgramInfo, VReg, Width};
use lang::Span;
use wire::manifest;

/// Clause of programs that no clause asked for.
const NO_CLAUSE: u32 = u32::MAX;

impl Cx<'_> {
    /// Adds the programs if the options ask for them.
    pub(super) fn follow_programs(&mut self) {
        if let Some(Follow { fork_child_pid }) = self.options.follow {
            self.follow_fork(fork_child_pid);
            self.follow_exit();
        }
    }

    fn begin_follow(&mut self, symbol: &str, tracepoint: &str) -> Builder {
        let attach = manifest::Attach::Follow { tracepoint: tracepoint.into() };
        self.manifest.programs.push(manifest::Program {
            symbol: symbol.into(),
            clause: NO_CLAUSE,
            line: 0,
            text: format!("tracepoint:sched:{tracepoint}"),
            attach: attach.clone(),
        });
        let info = ProgramInfo { clause: NO_CLAUSE, attach };
        let kind = FuncKind::Program { section: "tracepoint".into(), info };
        Builder::new(symbol.into(), kind, Span::default())
    }

    fn follow_fork(&mut self, child_pid: u32) {
        let pids = self.pids();
        let mut b = self.begin_follow("follow_fork", "sched_process_fork");
        let ctx = b.ctx();
        let thread = b.call(helper::GET_CURRENT_PID_TGID, &[]);
        let tgid = b.bin(Bin::Shr, thread, 32);
        let key = key(&mut b, tgid);
        let map = b.map_addr(pids);
        let traced = b.call(helper::MAP_LOOKUP_ELEM, &[map.into(), key.into()]);
        let [add, done] = std::array::from_fn(|_| b.block());
        b.branch(Cmp::Ne, traced, 0, add, done);
        b.switch_to(add);
        let child = b.load(ctx, child_pid as i16, Width::B32, false);
        b.store(key, 0, Width::B32, child);
        let slot = b.func_mut().slot(1, 8);
        let value = b.slot_addr(slot);
        b.store(value, 0, Width::B8, 1);
        let map = b.map_addr(pids);
        b.call_void(helper::MAP_UPDATE_ELEM, &[map.into(), key.into(), value.into(), 0.into()]);
        b.fall_into(done);
        b.ret(0);
        self.module.funcs.push(b.finish());
    }

    fn follow_exit(&mut self) {
        let pids = self.pids();
        let mut b = self.begin_follow("follow_exit", "sched_process_exit");
        let thread = b.call(helper::GET_CURRENT_PID_TGID, &[]);
        let key = key(&mut b, thread);
        let map = b.map_addr(pids);
        b.call_void(helper::MAP_DELETE_ELEM, &[map.into(), key.into()]);
        b.ret(0);
        self.module.funcs.push(b.finish());
    }
}

/// A slot with the low half of a register.
fn key(b: &mut Builder, value: VReg) -> VReg {
    let slot = b.func_mut().slot(4, 4);
    let key = b.slot_addr(slot);
    b.store(key, 0, Width::B32, value);
    key
}
