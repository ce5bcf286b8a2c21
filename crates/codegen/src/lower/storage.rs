//! Memory of a body: stack slots for small temporaries, a cell of the scratch map for the rest, and the frame for callbacks.
//! Temporaries are live until the end of their statement; then their memory is reused.
//!
//! Another body may preempt a body on the same CPU, so scratch memory is no per-CPU buffer. It is a cell of a shared array, claimed
//! by compare-exchange and released on every exit path.

use super::body::Body;
use super::module::{BPF_MAP_TYPE_ARRAY, Cx};
use super::operations::Operations;
use super::place::{Base, Home, Mark, Place, Temps, chunks, chunks_of_both, is_scalar};
use super::prologue::{Entry, Pro, Stage};
use crate::bpf::helper::Helper;
use crate::ir::{Bin, Cmp, MapDef, Operand, VReg, Width};
use lang::hir::{self, Type};
use wire::CounterKind;

/// Copies and fills of more bytes call a helper.
const INLINE_BYTES: u32 = 128;
/// Number of cells that a body tries.
const SCRATCH_TRIES: u32 = 4;
/// The same in the traced process, and the number of cells: threads are preempted there while they hold one.
const SCRATCH_TRIES_OF_THREADS: u32 = 16;
const SCRATCH_CELLS_OF_THREADS: u32 = 128;
/// Size of the header of a scratch cell in bytes: the word that marks it as taken.
const SCRATCH_HEAD: i64 = 8;

impl Cx<'_> {
    /// Declares the scratch map; the size of its cells is set at the end.
    fn scratch_map(&mut self) -> crate::ir::MapRef {
        let entries = match self.runs_in_process() {
            true => SCRATCH_CELLS_OF_THREADS,
            false => (2 * self.options.cpus).next_power_of_two().max(16),
        };
        self.internal_map(MapDef {
            name: self.scratch_map.clone(),
            kind: BPF_MAP_TYPE_ARRAY,
            key_size: 4,
            value_size: 0,
            max_entries: entries,
            flags: 0,
            direct: false,
        })
    }

    /// Sets the size of the scratch cells to what the largest body needs.
    pub(super) fn set_scratch_size(&mut self) {
        let size = SCRATCH_HEAD as u32 + self.scratch_bytes.next_multiple_of(8);
        if let Some(map) = self.module.maps.iter_mut().find(|map| map.name == self.scratch_map) {
            map.value_size = size;
        }
    }
}

impl Body<'_, '_> {
    /// The temporaries in use now.
    pub(super) fn mark(&mut self) -> Mark {
        Mark { used: self.fun().temps.used.len(), scratch: self.scratch_at }
    }

    /// Frees the temporaries since `mark`.
    pub(super) fn release(&mut self, mark: Mark) {
        self.scratch_at = mark.scratch;
        let temps = &mut self.fun().temps;
        let done = temps.used.split_off(mark.used);
        temps.free.extend(done);
    }

    /// A temporary of `bytes` bytes, aligned to 8; its contents are undefined.
    pub(super) fn temp(&mut self, bytes: u32) -> Place {
        match self.stack_temp(bytes) {
            Some(place) => place,
            None => self.scratch_temp(bytes),
        }
    }

    fn stack_temp(&mut self, bytes: u32) -> Option<Place> {
        let bytes = bytes.max(1).next_multiple_of(8);
        let fun = self.fun();
        let fitting = fun.temps.free.iter().enumerate().filter(|(_, (_, size))| *size >= bytes);
        let best = fitting.min_by_key(|(_, (_, size))| *size).map(|(at, _)| at);
        let (slot, size) = match best {
            Some(at) => fun.temps.free.swap_remove(at),
            None => {
                fun.temps.budget = fun.temps.budget.checked_sub(bytes)?;
                (fun.b.func_mut().slot(bytes, 8), bytes)
            }
        };
        fun.temps.used.push((slot, size));
        Some(Place { base: Base::Slot(slot), off: 0 })
    }

    /// A temporary in the scratch cell.
    pub(super) fn scratch_temp(&mut self, bytes: u32) -> Place {
        self.pro(Pro::Scratch);
        let off = self.scratch_at;
        self.scratch_at += bytes.next_multiple_of(8);
        self.scratch_max = self.scratch_max.max(self.scratch_at);
        self.cx.scratch_bytes = self.cx.scratch_bytes.max(self.scratch_max);
        Place { base: Base::Scratch, off: off as i32 }
    }

    /// Base register and offset for accesses to a location.
    fn base(&mut self, place: Place) -> (VReg, i16) {
        let base = match place.base {
            Base::Slot(slot) => self.b().slot_addr(slot),
            Base::Reg(reg) => reg,
            Base::Scratch => self.pro(Pro::Scratch),
            Base::Frame => self.frame_addr(),
        };
        match i16::try_from(place.off) {
            Ok(off) if off < i16::MAX - 8 => (base, off),
            _ => (self.b().bin(Bin::Add, base, i64::from(place.off)), 0),
        }
    }

    fn frame_addr(&mut self) -> VReg {
        match self.fun().frame {
            Some(reg) => reg,
            None => {
                let slot = self.frame.expect("only bodies with loops use the frame");
                self.b().slot_addr(slot)
            }
        }
    }

    /// The address of a location.
    pub(super) fn pointer(&mut self, place: Place) -> VReg {
        match self.base(place) {
            (base, 0) => base,
            (base, off) => self.b().bin(Bin::Add, base, i64::from(off)),
        }
    }

    /// Reads memory.
    pub(super) fn load(&mut self, place: Place, width: Width, signed: bool) -> VReg {
        let (base, off) = self.base(place);
        self.b().load(base, off, width, signed)
    }

    /// Writes memory.
    pub(super) fn store(&mut self, place: Place, width: Width, value: impl Into<Operand>) {
        let (base, off) = self.base(place);
        self.b().store(base, off, width, value);
    }

    /// Zeroes memory.
    pub(super) fn zero(&mut self, place: Place, bytes: u32) {
        if bytes <= INLINE_BYTES {
            for (at, width) in chunks(place.off, bytes) {
                self.store(place.plus(at), width, 0);
            }
            return;
        }
        let offset = self.cx.zeros(bytes);
        let from = self.b().data_addr(offset);
        self.copy_by_helper(place, from, bytes);
    }

    /// Copies memory.
    pub(super) fn copy(&mut self, to: Place, from: Place, bytes: u32) {
        if bytes > INLINE_BYTES {
            let from = self.pointer(from);
            return self.copy_by_helper(to, from, bytes);
        }
        for (at, width) in chunks_of_both(to.off, from.off, bytes) {
            let value = self.load(from.plus(at), width, false);
            self.store(to.plus(at), width, value);
        }
    }

    pub(super) fn copy_by_helper(&mut self, to: Place, from: VReg, bytes: u32) {
        let to = self.pointer(to);
        let args = [to.into(), i64::from(bytes).into(), from.into()];
        self.b().call_void(Helper::ProbeReadKernel, &args);
    }

    /// Stores constant bytes, and zeroes up to `size`.
    pub(super) fn store_bytes(&mut self, place: Place, bytes: &[u8], size: u32) {
        if size > INLINE_BYTES {
            let mut padded = bytes.to_vec();
            padded.resize(size as usize, 0);
            let offset = self.cx.data(&padded);
            let from = self.b().data_addr(offset);
            return self.copy_by_helper(place, from, size);
        }
        for (at, width) in chunks(place.off, size) {
            let mut word = [0u8; 8];
            let rest = bytes.get(at as usize..).unwrap_or(&[]);
            let len = rest.len().min(width.bytes() as usize);
            word[..len].copy_from_slice(&rest[..len]);
            self.store(place.plus(at), width, i64::from_le_bytes(word));
        }
    }

    /// Writes a scalar of type `ty`.
    pub(super) fn store_scalar(&mut self, place: Place, ty: &Type, value: Operand) {
        if matches!(ty, Type::Stack { .. }) && place.off % 8 != 0 {
            let high = self.b().bin(Bin::Shr, value, 32);
            self.store(place, Width::B32, value);
            return self.store(place.plus(4), Width::B32, high);
        }
        let width = self.width(ty);
        self.store(place, width, value);
    }

    /// Reads a scalar of type `ty`.
    pub(super) fn load_scalar(&mut self, place: Place, ty: &Type) -> VReg {
        if matches!(ty, Type::Stack { .. }) && place.off % 8 != 0 {
            let low = self.load(place, Width::B32, false);
            let high = self.load(place.plus(4), Width::B32, false);
            let high = self.b().bin(Bin::Shl, high, 32);
            return self.b().bin(Bin::Or, low, high);
        }
        self.load_as_aligned_at(place.off, place, ty)
    }

    /// Reads a scalar from a location with the alignment of `off`. Members of packed structs are read in parts, as
    /// the stack requires alignment.
    pub(super) fn load_as_aligned_at(&mut self, off: i32, place: Place, ty: &Type) -> VReg {
        let (width, signed) = (self.width(ty), self.signed(ty));
        if off.unsigned_abs().is_multiple_of(width.bytes()) {
            return self.load(place, width, signed);
        }
        let value = self.b().copy(0);
        for (at, part) in chunks(off, width.bytes()) {
            let loaded = self.load(place.plus(at), part, false);
            let moved = self.b().bin(Bin::Shl, loaded, i64::from(8 * at));
            self.b().update(Bin::Or, value, moved);
        }
        self.b().extend(value, width, signed)
    }

    /// Whether registers hold the type sign-extended.
    pub(super) fn signed(&self, ty: &Type) -> bool {
        match ty {
            Type::Int { signed, .. } => *signed,
            Type::Enum(id) => self.cx.program.enums[id.0 as usize].signed,
            _ => false,
        }
    }

    /// Width of a scalar.
    pub(super) fn width(&mut self, ty: &Type) -> Width {
        Width::of(self.cx.size(ty)).expect("a scalar")
    }

    /// Assigns storage to each variable. With loops, which become callbacks, all variables are in memory that
    /// callbacks access.
    pub(super) fn place_variables(&mut self) {
        let loops = self.has_loops();
        if loops {
            self.frame = Some(self.b().func_mut().slot(8, 8));
        }
        if loops || self.walks_stacks() {
            self.fun().temps = Temps::new(self.cx.share.program_with_callbacks);
        }
        let mut with_address = Vec::new();
        super::walk::each_of(self.probe, &mut |e| {
            if let hir::ExprKind::VarAddress(var) = e.kind {
                with_address.push(var.0 as usize);
            }
        });
        for (at, var) in self.probe.vars.iter().enumerate() {
            let home = match with_address.contains(&at) {
                // The address is stored in registers and maps, which addresses of the stack may not be.
                true => {
                    let size = self.variable_bytes(&var.ty);
                    Home::Memory(self.scratch_temp(size))
                }
                false => self.home(&var.ty, loops),
            };
            self.homes.push(home);
        }
    }

    fn variable_bytes(&mut self, ty: &Type) -> u32 {
        if is_scalar(ty) { 8 } else { self.cx.size(ty) }
    }

    /// Variables that callbacks access are in scratch memory, whose values the verifier does not track. For a
    /// counter on the stack it would follow every iteration of the loop.
    fn home(&mut self, ty: &Type, loops: bool) -> Home {
        match (is_scalar(ty), loops) {
            (true, false) => Home::Reg(self.b().vreg()),
            (true, true) => Home::Memory(self.scratch_temp(8)),
            (false, _) => {
                let size = self.cx.size(ty);
                Home::Memory(if loops { self.scratch_temp(size) } else { self.temp(size) })
            }
        }
    }

    /// Zeroes the variables and fills the frame. The code goes into the body's prologue, but is emitted last.
    pub(super) fn init_variables(&mut self) {
        for at in 0..self.homes.len() {
            let ty = &self.probe.vars[at].ty;
            match self.homes[at] {
                Home::Reg(reg) => self.b().set(reg, 0),
                Home::Memory(place) => {
                    let size = self.variable_bytes(ty);
                    self.zero(place, size);
                }
            }
        }
        if self.frame.is_some() {
            self.init_frame();
        }
    }

    fn init_frame(&mut self) {
        let slot = self.frame.expect("tested by the caller");
        self.b().func_mut().slots[slot.0 as usize].size = self.frame_bytes;
        let frame = Place { base: Base::Frame, off: 0 };
        let value: Vec<(u32, VReg)> =
            self.pros.values().filter_map(|value| value.frame.map(|off| (off, value.reg))).collect();
        for off in (0..self.frame_bytes).step_by(8) {
            let value =
                value.iter().find(|(at, _)| *at == off).map_or(Operand::Const(0), |(_, reg)| (*reg).into());
            self.store(frame.plus(off), Width::B64, value);
        }
    }

    /// Computes the prologue values that `stage` is the first to need.
    pub(super) fn make_pros(&mut self, stage: Stage) {
        let of_stage = self.pros.iter().filter(|(_, value)| value.stage == stage && !value.given);
        let of_stage: Vec<(Pro, VReg)> = of_stage.map(|(pro, value)| (*pro, value.reg)).collect();
        for (pro, reg) in of_stage {
            let value = match pro {
                Pro::Thread => self.current_thread(),
                Pro::Cookie => {
                    let ctx = self.ctx;
                    self.b().call(Helper::GetAttachCookie, &[ctx.into()])
                }
                Pro::Scratch => self.claim_scratch(),
                Pro::Around(hir::Around::Start) => self.start_around(),
                Pro::Ctx | Pro::Entry(_) | Pro::Duration | Pro::Started | Pro::Around(_) => {
                    unreachable!("given where the side begins")
                }
            };
            self.b().set(reg, value);
        }
    }

    /// Claims a scratch cell and returns the address of its bytes; if none is free, the body is skipped and
    /// counted.
    fn claim_scratch(&mut self) -> VReg {
        let map = self.cx.scratch_map();
        let entries = self.cx.module.maps[map.0 as usize].max_entries;
        let slot = self.b().func_mut().slot(4, 4);
        let (cell, got) = (self.b().vreg(), self.b().block());
        let (tries, start) = match self.cx.runs_in_process() {
            true => (SCRATCH_TRIES_OF_THREADS, self.b().call(Helper::GetCurrentPidTgid, &[])),
            false => (SCRATCH_TRIES, self.b().call(Helper::GetSmpProcessorId, &[])),
        };
        let index = self.b().copy(start);
        self.counted_loop(tries, |body, _| {
            let [next, there] = std::array::from_fn(|_| body.b().block());
            let b = body.b();
            let at = b.bin(Bin::And, index, i64::from(entries - 1));
            let key = b.slot_addr(slot);
            b.store(key, 0, Width::B32, at);
            let map = b.map_addr(map);
            let found = b.call(Helper::MapLookupElem, &[map.into(), key.into()]);
            b.branch(Cmp::Eq, found, 0, next, there);
            b.switch_to(there);
            let (free, taken) = (b.copy(0), b.copy(1));
            let old = b.cmpxchg(found, 0, free, taken);
            b.set(cell, found);
            b.branch(Cmp::Ne, old, 0, next, got);
            b.switch_to(next);
            b.update(Bin::Add, index, i64::from(entries / tries));
        });
        self.count(CounterKind::NoScratch);
        let leave = self.without_scratch;
        self.b().jump(leave);
        self.b().switch_to(got);
        self.b().bin(Bin::Add, cell, SCRATCH_HEAD)
    }

    /// Releases the scratch cell.
    pub(super) fn release_scratch(&mut self) {
        let scratch = self.pros[&Pro::Scratch].reg;
        let zero = self.b().copy(0);
        self.b().atomic_fetch(crate::ir::AtomicOp::Xchg, scratch, -(SCRATCH_HEAD as i16), zero);
    }

    /// Distance of the current stack pointer below the one at the entry of the function, in bytes.
    pub(super) fn shift(&self) -> u32 {
        match self.entry {
            Entry::Direct { shift } => shift,
            Entry::Saved(_) => 0,
        }
    }
}
