//! Expressions.

use super::abi::{self, Place};
use super::state::{EntryState, Meaning, Run};
use super::value::{Val, fit, is_signed};
use crate::machine::BOOT_AHEAD_NS;
use crate::outcome::Loss;
use crate::world::{self, ARGUMENT_REGS};
use lang::hir::{
    Around, BinaryOp, Builtin, Environment, Expr, ExprKind, MapId, NameId, NameKind, Site, Type, Yields,
};
use lang::types::passing::{Class, Passing, passing};

/// Addresses of variables; worlds have no memory there.
const VARIABLES: u64 = 0xffff_c900_0000_0000;
/// Each variable has 16 MiB of addresses.
const VARIABLE_BITS: u32 = 24;

/// The variable at an address, and the offset in it.
fn variable_at(address: u64) -> Option<(usize, usize)> {
    let at = address.checked_sub(VARIABLES)?;
    let offset = at & ((1 << VARIABLE_BITS) - 1);
    Some(((at >> VARIABLE_BITS) as usize, offset as usize))
}

impl EntryState {
    /// The eightbyte at a location, if it can be read.
    fn place(&self, place: Place) -> Option<u64> {
        match place {
            Place::Register(n) => Some(self.regs.get(ARGUMENT_REGS[n as usize])),
            Place::Stack(n) => self.stack.get(n as usize).copied().flatten(),
        }
    }
}

fn name_of(site: &Site, kind: NameKind) -> NameId {
    match kind {
        NameKind::Func => site.func,
        NameKind::Api => site.api,
        NameKind::Probe => site.probe,
    }
}

/// Evaluates a comparison; `None` for other operators.
fn compare(op: BinaryOp, a: i64, b: i64, signed: bool) -> Option<bool> {
    let order = if signed { a.cmp(&b) } else { (a as u64).cmp(&(b as u64)) };
    Some(match op {
        BinaryOp::Eq => order.is_eq(),
        BinaryOp::Ne => order.is_ne(),
        BinaryOp::Lt => order.is_lt(),
        BinaryOp::Gt => order.is_gt(),
        BinaryOp::Le => order.is_le(),
        BinaryOp::Ge => order.is_ge(),
        _ => return None,
    })
}

impl Meaning<'_> {
    /// Evaluates an expression, including its side effects.
    pub(super) fn eval(&mut self, run: &mut Run, e: &Expr) -> Val {
        use ExprKind as K;
        let moment = run.moment;
        let bits = match &e.kind {
            K::Str(bytes) if matches!(e.ty, Type::Array(..)) => return Val::Bytes(bytes.clone()),
            K::Str(text) => return Val::Str(text.clone()),
            K::Zero => return Val::zero(&e.ty, self.program),
            K::Var(var) => return run.vars[var.0 as usize].clone(),
            K::MapGet { map, key } => {
                let key = self.values(run, key);
                return self.get(*map, &key);
            }
            K::Cast(inner) => {
                let value = self.eval(run, inner);
                return self.cast(value, &inner.ty, &e.ty);
            }
            K::ByCase(_) => unreachable!("the checker makes none"),
            K::Ternary { cond, then, otherwise } => {
                let taken = self.eval(run, cond).truth();
                return self.eval(run, if taken { then } else { otherwise });
            }
            K::Block { body, value } => {
                self.block(run, body);
                return self.eval(run, value);
            }
            K::Tuple(parts) => return Val::Tuple(self.values(run, parts)),
            K::TupleGet { base, index } => match self.eval(run, base) {
                Val::Tuple(mut parts) => return parts.swap_remove(*index as usize),
                other => panic!("the checker takes no part of {other:?}"),
            },
            K::Member { base, offset } => {
                let whole = self.eval(run, base);
                return self.inside(whole.bytes(), *offset as usize, &e.ty);
            }
            K::Element { base, index } => {
                let whole = self.eval(run, base);
                let index = self.eval(run, index).num() as u64;
                let size = u64::from(abi::size(&e.ty, &self.program.structs));
                let offset = usize::try_from(index.saturating_mul(size)).unwrap_or(usize::MAX);
                if offset >= whole.bytes().len() {
                    self.loss(Loss::OutOfBounds);
                }
                return self.inside(whole.bytes(), offset, &e.ty);
            }
            K::Load { base, .. }
                if matches!(e.ty, Type::Tuple(_) | Type::Record(..) | Type::Str(_) | Type::Buf(_)) =>
            {
                let address = self.eval(run, base).num() as u64;
                return variable_at(address)
                    .map_or(Val::zero(&e.ty, self.program), |(var, _)| run.vars[var].clone());
            }
            K::Load { base, offset } if matches!(e.ty, Type::Struct(_) | Type::Array(..)) => {
                let address = self.eval(run, base).num().wrapping_add(*offset) as u64;
                let size = abi::size(&e.ty, &self.program.structs);
                let bytes = self.bytes_at(run, address, u64::from(size));
                return Val::Bytes(bytes.unwrap_or_else(|| {
                    self.unreadable();
                    vec![0; size as usize]
                }));
            }
            K::ReadStr { base, limit } => return self.read_str(run, base, limit.as_deref(), &e.ty),
            K::ReadBuf { base, len } => return self.read_buf(run, base, len, &e.ty),
            K::Stack => return self.stack(run, &e.ty),
            K::RecordBytes { .. } => panic!("worlds have no tracepoints"),
            K::Kernel(address) => self.eval(run, address).num(),
            K::VarAddress(var) => (VARIABLES + (u64::from(var.0) << VARIABLE_BITS)) as i64,
            K::Int(n) => *n,
            K::Param(n) => self.param(run, *n, 0),
            K::ParamField { param, offset } => self.param(run, *param, *offset),
            K::Arg(n) => self.arg(run, *n),
            K::Reg(name) => run.regs.by_name(name).expect("checked to exist") as i64,
            K::Retval => run.regs.get(crate::world::Reg::Ax) as i64,
            K::RetvalField { offset } => self.retval_field(run, *offset),
            K::Duration => (moment.time_ns - run.entered.as_ref().expect("entered").time_ns) as i64,
            K::Started => run.entered.as_ref().expect("entered").time_ns.wrapping_sub(BOOT_AHEAD_NS) as i64,
            K::Around(around) => match (around, run.around.last()) {
                (Around::Depth, _) => run.around.len() as i64,
                (Around::Func { none }, None) => i64::from(none.0),
                (Around::Start, None) => 0,
                (Around::Func { .. }, Some(innermost)) => i64::from(innermost.func.0),
                (Around::Start, Some(innermost)) => innermost.time_ns.wrapping_sub(BOOT_AHEAD_NS) as i64,
            },
            K::Name(kind) => i64::from(name_of(run.site.expect("at a site"), *kind).0),
            K::NameIn { kind, ids } => i64::from(ids.contains(&name_of(run.site.expect("at a site"), *kind))),
            K::Neg(inner) => self.eval(run, inner).num().wrapping_neg(),
            K::BitNot(inner) => !self.eval(run, inner).num(),
            K::Not(inner) => i64::from(!self.eval(run, inner).truth()),
            K::Binary { op, lhs, rhs } => self.binary(run, *op, lhs, rhs),
            K::StrEq { lhs, rhs, limit } => {
                let (a, b) = (self.eval(run, lhs), self.eval(run, rhs));
                if let (Val::Buf(a), Val::Buf(b)) = (&a, &b) {
                    return Val::Num(i64::from(a == b));
                }
                let limit = limit.map_or(usize::MAX, |n| n as usize);
                let cut = |text: &[u8]| text[..text.len().min(limit)].to_vec();
                i64::from(cut(a.text()) == cut(b.text()))
            }
            K::StrContains { haystack, needle } => {
                let haystack = self.eval(run, haystack);
                i64::from(haystack.text().windows(needle.len()).any(|w| w == needle))
            }
            K::Load { base, offset } => {
                let address = self.eval(run, base).num().wrapping_add(*offset);
                self.load(run, address as u64, &e.ty)
            }
            K::StrIndex { base, index } => {
                let text = self.eval(run, base);
                let index = self.eval(run, index).num();
                i64::from(usize::try_from(index).ok().and_then(|i| text.text().get(i).copied()).unwrap_or(0))
            }
            K::Lookup(inner) => self.eval(run, inner).num(),
            K::Builtin(id, args) => match self.builtin(run, *id, args) {
                Val::Num(number) => number,
                text => return text,
            },
            K::StackLen { mode, .. } if mode.is_python() => 0,
            K::StackLen { user, limit, .. } => self.stack_len(run, *user, *limit),
            K::HasKey { map, key } => {
                let key = self.values(run, key);
                i64::from(self.slot(*map, &key).is_some())
            }
            K::Len(map) => self.tables[map.0 as usize].cells.len() as i64,
            K::Delete { map, key } => {
                let key = self.values(run, key);
                i64::from(self.remove(*map, &key))
            }
            K::UpdateMap { map, key, op, value, yields } => {
                let key = self.values(run, key);
                let value = self.eval(run, value).num();
                self.update_map(*map, key, *op, value, *yields)
            }
            K::UpdateVar { var, op, value, yields } => {
                let value = self.eval(run, value).num();
                let ty = &run.probe.vars[var.0 as usize].ty;
                let old = run.vars[var.0 as usize].num();
                let new =
                    fit(self.arithmetic(*op, old, value, is_signed(ty, self.program)), ty, self.program);
                run.vars[var.0 as usize] = Val::Num(new);
                if *yields == Yields::Old { old } else { new }
            }
        };
        Val::Num(fit(bits, &e.ty, self.program))
    }

    fn builtin(&mut self, run: &mut Run, id: Builtin, args: &[Expr]) -> Val {
        let values = self.values(run, args);
        let moment = run.moment;
        let number = match id {
            Builtin::Pid | Builtin::InitPid => i64::from(moment.tgid),
            Builtin::Tid | Builtin::InitTid => i64::from(moment.tid),
            Builtin::ChildPid => i64::from(world::CHILD),
            Builtin::Uid => i64::from(moment.uid),
            Builtin::Gid => i64::from(moment.gid),
            Builtin::Cgroup => moment.cgroup as i64,
            // The value of the address is arbitrary, but not zero.
            Builtin::Context => 1,
            Builtin::RecordAddress => run.record as i64,
            // No world has operators, so nothing is looked up by it.
            Builtin::ThreadPointer => 0,
            Builtin::Cpu => i64::from(moment.cpu),
            Builtin::Cpus => i64::from(self.cpus),
            Builtin::NumaNode => i64::from(moment.numa_node()),
            // In a world, timers interrupt the kernel.
            Builtin::UserMode => {
                let environment = run.probe.attach.environment();
                i64::from(environment.is_none_or(|environment| environment == Environment::Tracer))
            }
            Builtin::Nsecs => moment.time_ns as i64,
            Builtin::Monotonic => moment.time_ns.wrapping_sub(BOOT_AHEAD_NS) as i64,
            Builtin::Tai => moment.time_ns.wrapping_add(world::TAI_AHEAD_NS) as i64,
            Builtin::Elapsed => moment.time_ns.wrapping_sub(self.start_ns) as i64,
            Builtin::Jiffies => moment.jiffies() as i64,
            Builtin::Rand => i64::from(self.rng.bits() as u32),
            Builtin::Task
            | Builtin::Program
            | Builtin::ProcessName
            | Builtin::FloatResult
            | Builtin::FunctionAddress
            | Builtin::BeginEvent
            | Builtin::EndEvent => {
                panic!("worlds have no kernel")
            }
            Builtin::Comm => return Val::Str(moment.comm.as_bytes().to_vec()),
            Builtin::StrConcat => return Val::Str([values[0].text(), values[1].text()].concat()),
            Builtin::ToLower => return Val::Str(values[0].text().to_ascii_lowercase()),
            Builtin::ToUpper => return Val::Str(values[0].text().to_ascii_uppercase()),
            Builtin::Usym => return Val::Usym(values[0].num() as u64, run.moment.tgid),
            Builtin::StrSearch => {
                let (text, part) = (values[0].text(), values[1].text());
                let mut starts = 0..=text.len() as i64 - part.len() as i64;
                starts.find(|&at| text[at as usize..].starts_with(part)).unwrap_or(-1)
            }
            Builtin::StrHash => {
                let Type::Str(capacity) = args[0].ty else { panic!("the number of a {:?}", args[0].ty) };
                lang::hir::text_hash(values[0].text(), capacity) as i64
            }
            Builtin::StrLen => values[0].text().len() as i64,
            Builtin::PopCount => i64::from(values[0].num().count_ones()),
            Builtin::ByteSwap => {
                let spare = 64 - 8 * abi::size(&args[0].ty, &self.program.structs);
                ((values[0].num() as u64).swap_bytes() >> spare) as i64
            }
        };
        Val::Num(number)
    }

    /// Evaluates expressions from left to right.
    pub(super) fn values(&mut self, run: &mut Run, parts: &[Expr]) -> Vec<Val> {
        parts.iter().map(|part| self.eval(run, part)).collect()
    }

    fn cast(&self, value: Val, from: &Type, ty: &Type) -> Val {
        match (value, ty) {
            (Val::Str(mut text), Type::Buf(length)) => {
                text.resize(*length as usize, 0);
                Val::Buf(text)
            }
            (Val::Str(mut text), Type::Array(_, count)) => {
                text.resize(*count as usize, 0);
                Val::Bytes(text)
            }
            (Val::Num(n), Type::Array(..)) => {
                let size = abi::size(ty, &self.program.structs) as usize;
                Val::Bytes(n.to_le_bytes()[..size].to_vec())
            }
            (Val::Bytes(bytes), Type::Buf(_)) | (Val::Buf(bytes), Type::Buf(_)) => Val::Buf(bytes),
            (Val::Bytes(bytes), Type::Str(_)) => {
                Val::Str(bytes.into_iter().take_while(|byte| *byte != 0).collect())
            }
            (Val::Bytes(bytes), ty) => self.inside(&bytes, 0, ty),
            (Val::Num(n), ty) => Val::Num(fit(n, ty, self.program)),
            (Val::Str(mut text), Type::Str(capacity)) => {
                text.truncate(*capacity as usize - 1);
                Val::Str(text)
            }
            (Val::Tuple(parts), Type::Tuple(types) | Type::Record(_, types) | Type::Either(types)) => {
                let (Type::Tuple(olds) | Type::Record(_, olds) | Type::Either(olds)) = from else {
                    panic!("parts of {from:?}")
                };
                let place = |at: usize| match (from, ty) {
                    (Type::Record(names, _), Type::Record(wanted, _)) => {
                        names.iter().position(|name| *name == wanted[at]).expect("the same members")
                    }
                    _ => at,
                };
                let part = |(at, ty)| self.cast(parts[place(at)].clone(), &olds[place(at)], ty);
                Val::Tuple(types.iter().enumerate().map(part).collect())
            }
            (value, _) => value,
        }
    }

    /// At most eight bytes of a parameter at `offset`.
    fn param(&mut self, run: &Run, index: u32, offset: u32) -> i64 {
        let signature = run.probe.signature.as_ref().expect("a parameter has a signature");
        let places = &abi::places(signature, &self.program.structs)[index as usize];
        let entered = run.entered.as_ref().expect("a parameter has a call");
        match entered.place(places[(offset / 8) as usize]) {
            Some(word) => (word >> (8 * (offset % 8))) as i64,
            None => self.unreadable(),
        }
    }

    /// At most eight bytes of a result in registers: integers are in rax and rdx, in order.
    fn retval_field(&self, run: &Run, offset: u32) -> i64 {
        let signature = run.probe.signature.as_ref().expect("a result has a signature");
        let Passing::Registers(classes) = passing(&signature.ret, false, &self.program.structs) else {
            panic!("a result in registers, not {:?}", signature.ret)
        };
        let before = &classes[..offset as usize / 8];
        let reg = match before.iter().filter(|class| **class == Class::Integer).count() {
            0 => crate::world::Reg::Ax,
            _ => crate::world::Reg::Dx,
        };
        (run.regs.get(reg) >> (8 * (offset % 8))) as i64
    }

    fn arg(&mut self, run: &Run, n: u32) -> i64 {
        let place = if n < 6 { Place::Register(n) } else { Place::Stack(n - 6) };
        match run.entered.as_ref().expect("an argument has a call").place(place) {
            Some(word) => word as i64,
            None => self.unreadable(),
        }
    }

    fn unreadable(&mut self) -> i64 {
        self.loss(Loss::UserRead);
        0
    }

    /// Bytes of the process, or of a variable.
    fn bytes_at(&self, run: &Run, address: u64, size: u64) -> Option<Vec<u8>> {
        let Some((var, offset)) = variable_at(address) else { return self.memory.read(address, size) };
        let bytes = match run.vars.get(var)? {
            Val::Num(number) => number.to_le_bytes().to_vec(),
            value => {
                let ty = run.probe.vars[var].ty.clone();
                super::value::key_bytes(std::slice::from_ref(value), &[ty], &self.program.structs)
            }
        };
        Some(bytes.get(offset..)?.get(..size as usize)?.to_vec())
    }

    fn load(&mut self, run: &Run, address: u64, ty: &Type) -> i64 {
        let size = abi::size(ty, &self.program.structs);
        let Some(bytes) = self.bytes_at(run, address, u64::from(size)) else { return self.unreadable() };
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(&bytes);
        i64::from_le_bytes(word)
    }

    fn read_str(&mut self, run: &mut Run, base: &Expr, limit: Option<&Expr>, ty: &Type) -> Val {
        let Type::Str(capacity) = ty else { panic!("a string has a capacity, not {ty:?}") };
        let address = self.eval(run, base).num() as u64;
        let limit = limit.map_or(u64::MAX, |limit| self.eval(run, limit).num() as u64);
        let size = limit.min(u64::from(*capacity));
        if size == 0 {
            return Val::Str(vec![]);
        }
        let text = self.memory.read_str(address, size);
        if text.is_none() {
            self.loss(Loss::UserRead);
        }
        Val::Str(text.unwrap_or_default())
    }

    fn read_buf(&mut self, run: &mut Run, base: &Expr, len: &Expr, ty: &Type) -> Val {
        let Type::Buf(capacity) = ty else { panic!("a buffer has a capacity, not {ty:?}") };
        let address = self.eval(run, base).num() as u64;
        let len = (self.eval(run, len).num() as u64).min(u64::from(*capacity));
        Val::Buf(self.memory.read(address, len).unwrap_or_else(|| {
            self.loss(Loss::UserRead);
            vec![0; len as usize]
        }))
    }

    fn stack_len(&mut self, run: &Run, user: bool, limit: u32) -> i64 {
        let frames = if user { &run.moment.user_stack } else { &run.moment.kernel_stack };
        frames.len().min(limit as usize) as i64
    }

    fn stack(&mut self, run: &Run, ty: &Type) -> Val {
        let Type::Stack { user, limit, mode } = ty else { panic!("a stack has a stack's type, not {ty:?}") };
        let frames = match user {
            // Worlds have no Python.
            _ if mode.is_python() => &Vec::new(),
            true => &run.moment.user_stack,
            false => &run.moment.kernel_stack,
        };
        let kept = frames[..frames.len().min(*limit as usize)].to_vec();
        // A kernel stack has the same key in all processes.
        let tgid = if *user { run.moment.tgid } else { 0 };
        if kept.is_empty() {
            return Val::Stack(u32::MAX, tgid);
        }
        let stacks = self.stacks.entry((*user, *limit)).or_default();
        let id = stacks.iter().position(|s| *s == kept).unwrap_or_else(|| {
            stacks.push(kept);
            stacks.len() - 1
        });
        Val::Stack(id as u32, tgid)
    }

    fn binary(&mut self, run: &mut Run, op: BinaryOp, lhs: &Expr, rhs: &Expr) -> i64 {
        let left = self.eval(run, lhs).num();
        match op {
            BinaryOp::And if left == 0 => return 0,
            BinaryOp::Or if left != 0 => return 1,
            _ => {}
        }
        let right = self.eval(run, rhs).num();
        let signed = is_signed(&lhs.ty, self.program);
        match op {
            BinaryOp::And | BinaryOp::Or => i64::from(right != 0),
            _ => match compare(op, left, right, signed) {
                Some(holds) => i64::from(holds),
                None => self.arithmetic(op, left, right, signed),
            },
        }
    }

    fn arithmetic(&mut self, op: BinaryOp, a: i64, b: i64, signed: bool) -> i64 {
        if matches!(op, BinaryOp::Div | BinaryOp::Rem) && b == 0 {
            self.loss(Loss::DivisionByZero);
            return 1;
        }
        match op {
            BinaryOp::Add => a.wrapping_add(b),
            BinaryOp::Sub => a.wrapping_sub(b),
            BinaryOp::Mul => a.wrapping_mul(b),
            BinaryOp::Div if signed => a.wrapping_div(b),
            BinaryOp::Rem if signed => a.wrapping_rem(b),
            BinaryOp::Div => (a as u64 / b as u64) as i64,
            BinaryOp::Rem => (a as u64 % b as u64) as i64,
            BinaryOp::BitAnd => a & b,
            BinaryOp::BitOr => a | b,
            BinaryOp::BitXor => a ^ b,
            // As in the instruction, only the low six bits of the count are used.
            BinaryOp::Shl => a.wrapping_shl(b as u32),
            BinaryOp::Shr if signed => a.wrapping_shr(b as u32),
            BinaryOp::Shr => (a as u64).wrapping_shr(b as u32) as i64,
            _ => panic!("{op:?} is no arithmetic"),
        }
    }

    fn update_map(&mut self, map: MapId, key: Vec<Val>, op: BinaryOp, value: i64, yields: Yields) -> i64 {
        let signed = match &self.program.maps[map.0 as usize].value {
            lang::hir::MapValue::Plain(ty) => is_signed(ty, self.program),
            lang::hir::MapValue::Agg(_) => panic!("the checker updates plain maps only"),
        };
        // If the map is full, the value is not computed.
        if !self.make(map, &key) {
            return 0;
        }
        let old = self.get(map, &key).num();
        let new = self.arithmetic(op, old, value, signed);
        self.set(map, key, Val::Num(new));
        if yields == Yields::Old { old } else { new }
    }
}
