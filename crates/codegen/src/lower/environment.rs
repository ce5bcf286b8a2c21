//! Values of the kernel or the tracer: CPUs, clocks, the pids of another namespace.

use super::body::Body;
use super::prologue::Pro;
use crate::bpf::helper::Helper;
use crate::ir::{Bin, Cmp, Operand, VReg, Width};
use lang::hir::{Attach, Fact};
use wire::manifest::{CONTROL_CHILD, CONTROL_TAI};

impl Body<'_, '_> {
    /// The value of an environment fact.
    pub(super) fn fact(&mut self, fact: Fact) -> Operand {
        match fact {
            Fact::Cpus => i64::from(self.cx.options.cpus).into(),
            Fact::NumaNode => {
                let node = self.b().call(Helper::GetNumaNodeId, &[]);
                self.b().extend(node, Width::B32, false).into()
            }
            Fact::Jiffies => self.b().call(Helper::Jiffies64, &[]).into(),
            Fact::UserMode => self.user_mode(),
            Fact::ChildPid => self.control_word(CONTROL_CHILD).into(),
            Fact::InitPid => {
                let thread = self.host_thread();
                self.b().bin(Bin::Shr, thread, 32).into()
            }
            Fact::InitTid => {
                let thread = self.host_thread();
                self.b().extend(thread, Width::B32, false).into()
            }
            Fact::Monotonic => self.b().call(Helper::KtimeGetNs, &[]).into(),
            Fact::Tai => self.tai().into(),
            Fact::Context => self.context_address().into(),
        }
    }

    /// The address of the context as a number. The verifier treats a value loaded from memory as a number, and
    /// forbids arithmetic on the pointer itself.
    fn context_address(&mut self) -> VReg {
        let [pointer, number] = std::array::from_fn(|_| self.temp(8));
        let ctx = self.pro(Pro::Ctx);
        self.store(pointer, Width::B64, ctx);
        let (to, from) = (self.pointer(number), self.pointer(pointer));
        self.b().call_void(Helper::ProbeReadKernel, &[to.into(), 8.into(), from.into()]);
        self.load(number, Width::B64, false)
    }

    fn tai(&mut self) -> VReg {
        let now = self.b().call(Helper::KtimeGetBootNs, &[]);
        let ahead = self.control_word(CONTROL_TAI);
        self.b().bin(Bin::Add, now, ahead)
    }

    /// Whether the probe interrupted user mode. Function probes always do; at a timer the registers show it.
    fn user_mode(&mut self) -> Operand {
        if !matches!(self.probe.attach, Attach::Interval { .. } | Attach::Profile { .. }) {
            return 1.into();
        }
        let (offset, mask, user) = self.machine().mode;
        let ctx = self.pro(Pro::Ctx);
        let word = self.b().load(ctx, offset, Width::B64, false);
        let mode = self.b().bin(Bin::And, word, mask);
        self.b().compare(Cmp::Eq, mode, user).into()
    }
}
