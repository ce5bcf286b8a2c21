//! Built-in variables and functions: identities, CPUs, clocks, strings.

use super::operations::Operations;
use super::place::Place;
use super::prologue::Pro;
use super::string::Strings;
use crate::bpf::helper::Helper;
use crate::ir::{Bin, Cmp, Operand, VReg, Width};
use lang::hir::{Builtin, Expr, ExprKind};
use wire::manifest::{CONTROL_CHILD, CONTROL_START, CONTROL_TAI};

/// Lowering of built-ins.
pub(super) trait Builtins: Operations {
    /// The value of a built-in variable or function if it is a scalar.
    fn builtin(&mut self, id: Builtin, args: &[Expr]) -> Operand {
        match id {
            Builtin::Pid => self.high_word(|body| body.pro(Pro::Thread)),
            Builtin::Tid => self.low_word(|body| body.pro(Pro::Thread)),
            Builtin::InitPid => self.high_word(|body| body.host_thread()),
            Builtin::InitTid => self.low_word(|body| body.host_thread()),
            Builtin::ChildPid => self.control_word(CONTROL_CHILD).into(),
            Builtin::Uid => self.low_word(|body| body.b().call(Helper::GetCurrentUidGid, &[])),
            Builtin::Gid => self.high_word(|body| body.b().call(Helper::GetCurrentUidGid, &[])),
            Builtin::Cgroup => self.b().call(Helper::GetCurrentCgroupId, &[]).into(),
            Builtin::Task => self.b().call(Helper::GetCurrentTask, &[]).into(),
            Builtin::Context => self.context_address().into(),
            Builtin::FunctionAddress => {
                let ctx = self.pro(Pro::Ctx);
                self.b().call(Helper::GetFuncIp, &[ctx.into()]).into()
            }
            Builtin::Cpu => self.b().call(Helper::GetSmpProcessorId, &[]).into(),
            Builtin::Cpus => i64::from(self.options().cpus).into(),
            Builtin::NumaNode => self.low_word(|body| body.b().call(Helper::GetNumaNodeId, &[])),
            Builtin::UserMode => self.user_mode(),
            Builtin::Nsecs => self.b().call(Helper::KtimeGetBootNs, &[]).into(),
            Builtin::Monotonic => self.b().call(Helper::KtimeGetNs, &[]).into(),
            Builtin::Tai => self.since_boot(Bin::Add, CONTROL_TAI).into(),
            Builtin::Elapsed => self.since_boot(Bin::Sub, CONTROL_START).into(),
            Builtin::Jiffies => self.b().call(Helper::Jiffies64, &[]).into(),
            Builtin::Rand => self.low_word(|body| body.b().call(Helper::GetPrandomU32, &[])),
            Builtin::StrLen => self.string_length(&args[0]).into(),
            Builtin::StrHash => self.string_hash(&args[0]).into(),
            Builtin::StrSearch => match &args[1].kind {
                ExprKind::Str(needle) => self.string_find(&args[0], needle).into(),
                _ => self.string_search(&args[0], &args[1]).into(),
            },
            Builtin::ByteSwap => self.byte_swap(&args[0]).into(),
            Builtin::PopCount => self.pop_count(&args[0]).into(),
            Builtin::BeginEvent => {
                let name = self.scalar(&args[0]);
                self.begin_event(name).into()
            }
            Builtin::EndEvent => {
                self.end_event();
                0.into()
            }
            Builtin::RecordAddress => self.record_address().into(),
            Builtin::ThreadPointer => self.thread_pointer().into(),
            Builtin::FloatResult => self.vector(0).into(),
            Builtin::Comm
            | Builtin::Program
            | Builtin::ProcessName
            | Builtin::StrConcat
            | Builtin::ToLower
            | Builtin::ToUpper
            | Builtin::Usym => unreachable!("not a scalar: {id:?}"),
        }
    }

    /// Stores the value of a built-in that is not a scalar.
    fn store_builtin(&mut self, id: Builtin, args: &[Expr], to: Place, size: u32) {
        match id {
            Builtin::Comm => self.store_comm(to, size),
            Builtin::Program => self.store_name(wire::features::PROGRAM_NAME, to),
            Builtin::ProcessName => self.store_name(wire::features::PROCESS_NAME, to),
            Builtin::StrConcat => self.concat(&args[0], &args[1], to, size),
            Builtin::ToLower => self.change_case(&args[0], false, to, size),
            Builtin::ToUpper => self.change_case(&args[0], true, to, size),
            Builtin::Usym => self.store_usym(&args[0], to),
            _ => unreachable!("a scalar: {id:?}"),
        }
    }

    /// Stores a name that the traced process has in its memory.
    fn store_name(&mut self, function: &'static str, to: Place) {
        let at = self.pointer(to);
        self.b().kfunc(function, &[at.into()]);
    }

    /// Address of the control block of this thread; 0 if it is not known.
    fn thread_pointer(&mut self) -> VReg {
        if self.options().in_process() {
            return self.b().kfunc(wire::python::THREAD_POINTER, &[]);
        }
        let Some(base) = self.options().thread_base else { return self.b().copy(0) };
        let mark = self.mark();
        let place = self.temp(8);
        self.store(place, Width::B64, 0);
        let task = self.b().call(Helper::GetCurrentTask, &[]);
        let at = self.b().bin(Bin::Add, task, i64::from(base));
        let to = self.pointer(place);
        self.b().call_void(Helper::ProbeReadKernel, &[to.into(), 8.into(), at.into()]);
        let pointer = self.load(place, Width::B64, false);
        self.release(mark);
        pointer
    }

    fn high_word(&mut self, pair: impl FnOnce(&mut Self) -> VReg) -> Operand {
        let pair = pair(self);
        self.b().bin(Bin::Shr, pair, 32).into()
    }

    fn low_word(&mut self, pair: impl FnOnce(&mut Self) -> VReg) -> Operand {
        let pair = pair(self);
        self.b().extend(pair, Width::B32, false).into()
    }

    /// Adds the bits of pairs, nibbles and bytes in parallel; the multiplication adds the bytes.
    fn pop_count(&mut self, arg: &Expr) -> VReg {
        const PAIRS: i64 = 0x5555_5555_5555_5555;
        const NIBBLES: i64 = 0x3333_3333_3333_3333;
        const BYTES: i64 = 0x0f0f_0f0f_0f0f_0f0f;
        const ONES: i64 = 0x0101_0101_0101_0101;
        let bits = self.scalar(arg);
        let b = self.b();
        let half = b.bin(Bin::Shr, bits, 1);
        let half = b.bin(Bin::And, half, PAIRS);
        let pairs = b.bin(Bin::Sub, bits, half);
        let high = b.bin(Bin::Shr, pairs, 2);
        let high = b.bin(Bin::And, high, NIBBLES);
        let low = b.bin(Bin::And, pairs, NIBBLES);
        let nibbles = b.bin(Bin::Add, low, high);
        let high = b.bin(Bin::Shr, nibbles, 4);
        let bytes = b.bin(Bin::Add, nibbles, high);
        let bytes = b.bin(Bin::And, bytes, BYTES);
        let sum = b.bin(Bin::Mul, bytes, ONES);
        b.bin(Bin::Shr, sum, 56)
    }

    /// The boot clock plus or minus a word of the control cell.
    fn since_boot(&mut self, op: Bin, offset: u32) -> VReg {
        let now = self.b().call(Helper::KtimeGetBootNs, &[]);
        let word = self.control_word(offset);
        self.b().bin(op, now, word)
    }

    /// Whether the probe interrupted user mode. Function probes always do; at a timer the registers show it.
    fn user_mode(&mut self) -> Operand {
        if !self.has_registers() {
            return i64::from(!self.is_in_kernel()).into();
        }
        let mode = &self.machine().mode;
        let ctx = self.pro(Pro::Ctx);
        let word = self.b().load(ctx, mode.register, Width::B64, false);
        let bits = self.b().bin(Bin::And, word, mode.mask);
        self.b().compare(Cmp::Eq, bits, mode.user).into()
    }

    fn store_comm(&mut self, to: Place, size: u32) {
        // Kernels such as 6.1 do not write the bytes after the NUL, and keys contain them.
        self.zero(to, size);
        let at = self.pointer(to);
        self.b().call_void(Helper::GetCurrentComm, &[at.into(), i64::from(size).into()]);
    }

    fn store_usym(&mut self, address: &Expr, to: Place) {
        let address = self.scalar(address);
        self.store(to, Width::B64, address);
        let thread = self.pro(Pro::Thread);
        let tgid = self.b().bin(Bin::Shr, thread, 32);
        self.store(to.plus(8), Width::B64, tgid);
    }

    /// `bswap(n)`: reverses the order of the bytes.
    fn byte_swap(&mut self, e: &Expr) -> VReg {
        let bytes = i64::from(self.size(&e.ty));
        let value = self.scalar(e);
        let value = self.b().reg(value);
        let result = self.b().copy(0);
        for at in 0..bytes {
            let low = self.b().bin(Bin::Shr, value, 8 * at);
            let byte = self.b().bin(Bin::And, low, 0xff);
            let moved = self.b().bin(Bin::Shl, byte, 8 * (bytes - 1 - at));
            self.b().update(Bin::Or, result, moved);
        }
        result
    }
}

impl<T: Operations> Builtins for T {}
