//! Maps of the script: their storage, and reads and writes of plain values. A missing key reads as zero; an
//! insertion into a full map is counted.

use super::arithmetic::Arithmetic;
use super::body::Body;
use super::module::{
    BPF_F_NO_PREALLOC, BPF_MAP_TYPE_ARRAY, BPF_MAP_TYPE_HASH, BPF_MAP_TYPE_LRU_HASH,
    BPF_MAP_TYPE_LRU_PERCPU_HASH, BPF_MAP_TYPE_PERCPU_ARRAY, BPF_MAP_TYPE_PERCPU_HASH,
    BPF_MAP_TYPE_STACK_TRACE, Cx,
};
use super::operations::Operations;
use super::place::{Place, is_scalar};
use super::walk;
use crate::bpf::helper::Helper;
use crate::ir::{AtomicOp, Bin, Cmp, MapDef, MapRef, Operand, VReg, Width};
use lang::hir::{self, BinaryOp, Expr, ExprKind, MapId, StmtKind, Type, Yields};
use wire::map::{Agg, Map, MapValue, Storage};
use wire::{CounterKind, layout};

/// Flag of bpf_map_update_elem: only if the key is new.
const BPF_NOEXIST: i64 = 1;
/// Largest size over all CPUs of an array that is keyed by names, in bytes.
const DENSE_BYTES: u64 = 16 << 20;
/// Largest size of a preallocated hash in bytes; larger ones allocate elements on demand.
const PREALLOCATED_BYTES: u64 = 256 << 10;
/// The same limit over all CPUs for per-CPU hashes. It is higher: the kernel can allocate few per-CPU elements
/// while it handles an event, and new keys would be lost.
const PREALLOCATED_PER_CPU_BYTES: u64 = 64 << 20;
/// Largest number of distinct stacks.
const STACKS: u32 = 1 << 14;
/// Attempts of a compare-exchange before the update is dropped and counted.
const EXCHANGE_TRIES: u32 = 64;

/// A map that no program of the module uses.
const ELSEWHERE: MapRef = MapRef(u32::MAX);

/// Use of a map by the script, as far as it determines the storage.
#[derive(Default)]
struct Usage {
    /// True if keys are enumerated, tested or deleted.
    walked: bool,
    /// True if keys are deleted.
    deleted: bool,
    /// True if cells are read over all CPUs.
    read: bool,
}

impl Usage {
    /// The use of each map.
    fn of_all(program: &hir::Program) -> Vec<Usage> {
        let mut all: Vec<Usage> = program.maps.iter().map(|_| Usage::default()).collect();
        let walked = |usage: &mut Usage| (usage.walked, usage.read) = (true, true);
        for probe in &program.probes {
            walk::each_of(probe, &mut |e| match &e.kind {
                ExprKind::MapGet { map, .. } => all[map.0 as usize].read = true,
                ExprKind::HasKey { map, .. } => walked(&mut all[map.0 as usize]),
                ExprKind::Delete { map, .. } => {
                    walked(&mut all[map.0 as usize]);
                    all[map.0 as usize].deleted = true;
                }
                ExprKind::Len(map) => all[map.0 as usize].walked = true,
                _ => {}
            });
            walk::any_stmt(&probe.body, &mut |stmt| {
                if let StmtKind::ForMap { map, .. } = stmt.kind {
                    walked(&mut all[map.0 as usize]);
                }
                false
            });
        }
        all
    }
}

impl Cx<'_> {
    /// Declares the maps of the script, unless they are elsewhere; the maps of a running session keep their definitions.
    pub(super) fn declare_maps(&mut self) {
        for (at, usage) in Usage::of_all(self.program).iter().enumerate() {
            if at == self.manifest.maps.len() {
                let map = self.new_map(MapId(at as u32), usage);
                self.manifest.maps.push(map);
            }
            if (usage.walked || usage.read) && !self.manifest.read.contains(&(at as u32)) {
                self.manifest.read.push(at as u32);
            }
            let map = &self.manifest.maps[at];
            if !self.options.has_map(&map.name) {
                self.maps.push(ELSEWHERE);
                continue;
            }
            let def = self.map_def(map);
            self.module.maps.push(def);
            self.maps.push(MapRef(self.module.maps.len() as u32 - 1));
        }
    }

    fn new_map(&mut self, id: MapId, usage: &Usage) -> Map {
        let map = &self.program.maps[id.0 as usize];
        let key = self.wire_types(&map.key);
        let value = match &map.value {
            hir::MapValue::Plain(ty) => MapValue::Plain(self.wire_type(ty)),
            hir::MapValue::Agg(agg) => MapValue::Agg(agg.clone().with_sums(self.options.sums)),
        };
        let symbol = symbol(id, &map.name);
        let scalar =
            Map { name: map.name.clone(), symbol, key, value, storage: Storage::Array, max_entries: 1 };
        self.with_storage(scalar, map, usage)
    }

    /// Selects the storage. Aggregations have a cell on each CPU. On a kernel without lookups on other CPUs, an
    /// aggregation that a program reads has one shared cell, with the same result.
    fn with_storage(&self, map: Map, declared: &hir::Map, usage: &Usage) -> Map {
        let has_lookup = self.options.features.percpu_lookup
            && self.options.part.as_ref().is_none_or(|part| part.percpu_lookup);
        let shared = matches!(map.value, MapValue::Plain(_)) || usage.read && !has_lookup;
        let array = if shared { Storage::Array } else { Storage::PerCpuArray };
        let hash = match (shared, declared.evicts) {
            (true, false) => Storage::Hash,
            (false, false) => Storage::PerCpuHash,
            (true, true) => Storage::LruHash,
            (false, true) => Storage::PerCpuLruHash,
        };
        // An array cell always exists: a deleted count could not be distinguished from a count of 0.
        let vanishes = usage.deleted && map.value == MapValue::Agg(Agg::Count);
        if map.key.is_empty() {
            return Map { storage: if vanishes { hash } else { array }, ..map };
        }
        match self.dense_entries(&map, declared.max_entries) {
            Some(entries) if !usage.walked && !shared && !declared.evicts => {
                Map { storage: array, max_entries: entries, ..map }
            }
            _ => Map { storage: hash, max_entries: declared.max_entries, ..map },
        }
    }

    /// Number of entries of an array for a map keyed by names. It must hold all names, including those of
    /// libraries that are loaded later.
    fn dense_entries(&self, map: &Map, max_entries: u32) -> Option<u32> {
        let [wire::Type::Name(kind)] = map.key[..] else { return None };
        let names = match kind {
            wire::NameKind::Func => &self.manifest.names.funcs,
            wire::NameKind::Api => &self.manifest.names.apis,
            wire::NameKind::Probe => &self.manifest.names.probes,
        };
        let entries = (2 * names.len() as u32).max(256).next_power_of_two();
        let bytes = u64::from(entries) * u64::from(map.value_size()) * u64::from(self.options.cpus);
        (bytes <= DENSE_BYTES && names.len() as u32 <= max_entries).then_some(entries)
    }

    fn map_def(&self, map: &Map) -> MapDef {
        let kind = match map.storage {
            Storage::Hash => BPF_MAP_TYPE_HASH,
            Storage::PerCpuHash => BPF_MAP_TYPE_PERCPU_HASH,
            Storage::LruHash => BPF_MAP_TYPE_LRU_HASH,
            Storage::PerCpuLruHash => BPF_MAP_TYPE_LRU_PERCPU_HASH,
            Storage::Array => BPF_MAP_TYPE_ARRAY,
            Storage::PerCpuArray => BPF_MAP_TYPE_PERCPU_ARRAY,
        };
        let cpus = if map.storage.is_per_cpu() { self.options.cpus } else { 1 };
        let bytes =
            u64::from(map.max_entries) * u64::from(map.value_size() + map.key_size()) * u64::from(cpus);
        // LRU maps are preallocated: they evict existing elements only.
        let most = if map.storage.is_per_cpu() { PREALLOCATED_PER_CPU_BYTES } else { PREALLOCATED_BYTES };
        let lazy = !map.storage.is_array() && !map.storage.evicts() && bytes > most;
        MapDef {
            name: map.symbol.clone(),
            kind,
            key_size: map.key_size(),
            value_size: map.value_size(),
            max_entries: map.max_entries,
            flags: if lazy { self.allocating() } else { 0 },
            direct: map.storage == Storage::Array,
        }
    }

    /// Flags of a hash that allocates elements on demand. Kernels before 6.1 refuse it in perf event programs;
    /// kernels with multi-uprobes (6.6) accept it.
    pub(super) fn allocating(&self) -> u32 {
        if self.options.features.uprobe_multi { BPF_F_NO_PREALLOC } else { 0 }
    }

    /// The declaration of a map in the manifest.
    pub(super) fn map(&self, id: MapId) -> &Map {
        &self.manifest.maps[id.0 as usize]
    }

    /// The stack map for stacks of this kind and depth.
    pub(super) fn stack_map_ref(&mut self, user: bool, limit: u32) -> MapRef {
        let at = self.stack_map(user, limit);
        let name = self.manifest.stacks[at as usize].symbol.clone();
        if let Some(known) = self.module.maps.iter().position(|map| map.name == name) {
            return MapRef(known as u32);
        }
        let (kind, value_size, flags) = match self.walks(user) {
            true => (BPF_MAP_TYPE_HASH, wire::unwind::stack_bytes(limit), self.allocating()),
            false => (BPF_MAP_TYPE_STACK_TRACE, 8 * limit, 0),
        };
        self.module.maps.push(MapDef {
            name,
            kind,
            key_size: 4,
            value_size,
            max_entries: STACKS,
            flags,
            direct: false,
        });
        MapRef(self.module.maps.len() as u32 - 1)
    }
}

/// Symbol in the object: at most 15 bytes, unique because of the number.
fn symbol(id: MapId, name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    let symbol: String = format!("m{}_{name}", id.0).chars().map(plain).collect();
    symbol.chars().take(15).collect()
}

/// The atomic operation for an operator, if there is one. Subtraction adds the negated operand.
fn atomic(op: BinaryOp) -> Option<AtomicOp> {
    Some(match op {
        BinaryOp::Add | BinaryOp::Sub => AtomicOp::Add,
        BinaryOp::BitAnd => AtomicOp::And,
        BinaryOp::BitOr => AtomicOp::Or,
        BinaryOp::BitXor => AtomicOp::Xor,
        _ => return None,
    })
}

impl Body<'_, '_> {
    /// Stores a key. A scalar map has the single key 0, which is stored only for a lookup.
    pub(super) fn key(&mut self, map: MapId, key: &[Expr]) -> Place {
        let parts = self.cx.map(map).key.clone();
        let place = self.temp(layout::key(&parts).size);
        match key {
            [] if self.cx.map(map).storage == Storage::Array => {}
            [] => self.store(place, Width::B32, 0),
            _ => {
                self.store_tuple(key, place);
                for (at, len) in layout::gaps(&wire::Type::Tuple(parts)) {
                    self.zero(place.plus(at), len);
                }
            }
        }
        place
    }

    /// Address of a cell, or 0.
    pub(super) fn lookup_raw(&mut self, map: MapRef, key: Place) -> VReg {
        let key = self.pointer(key);
        let map = self.b().map_addr(map);
        self.b().call(Helper::MapLookupElem, &[map.into(), key.into()])
    }

    /// Address of a scalar map's cell, if all CPUs share it.
    pub(super) fn only_cell(&mut self, map: MapId) -> Option<VReg> {
        let direct = self.cx.map(map).storage == Storage::Array;
        let map = self.cx.maps[map.0 as usize];
        direct.then(|| self.b().value_addr(map, 0))
    }

    fn lookup(&mut self, map: MapId, key: Place) -> VReg {
        let map = self.cx.maps[map.0 as usize];
        self.lookup_raw(map, key)
    }

    /// Runs `f` on the cell of a key; a missing cell is created with zeroes.
    pub(super) fn with_cell(&mut self, map: MapId, key: Place, f: impl FnOnce(&mut Self, VReg)) {
        if self.cx.map(map).key.is_empty() && self.cx.map(map).storage.is_array() {
            return self.if_cell(map, key, f);
        }
        let [missing, full] = std::array::from_fn(|_| self.b().cold_block());
        let [there, after] = std::array::from_fn(|_| self.b().block());
        let cell = self.b().vreg();
        let found = self.lookup(map, key);
        self.b().set(cell, found);
        self.b().branch(Cmp::Ne, cell, 0, there, missing);
        self.b().switch_to(missing);
        if !self.cx.map(map).storage.is_array() {
            self.create(map, key);
            let found = self.lookup(map, key);
            self.b().set(cell, found);
            self.b().branch(Cmp::Ne, cell, 0, there, full);
        }
        self.b().jump(full);
        self.b().switch_to(full);
        self.count(CounterKind::MapFull(map.0));
        self.b().jump(after);
        self.b().switch_to(there);
        f(self, cell);
        self.b().fall_into(after);
    }

    /// Creates a cell. It makes no difference if another thread creates it first.
    fn create(&mut self, map: MapId, key: Place) {
        let bytes = self.cx.map(map).value_size();
        let zeros = self.cx.zeros(bytes);
        let map = self.cx.maps[map.0 as usize];
        let key = self.pointer(key);
        let (map, zeros) = (self.b().map_addr(map), self.b().data_addr(zeros));
        let args = [map.into(), key.into(), zeros.into(), BPF_NOEXIST.into()];
        self.b().call_void(Helper::MapUpdateElem, &args);
    }

    /// `@m[k] = value`
    pub(super) fn set_map(&mut self, map: MapId, key: &[Expr], value: &Expr) {
        if self.cx.map(map).storage.is_array() {
            return self.set_array(map, value);
        }
        let key = self.key(map, key);
        let bytes = self.cx.map(map).value_size();
        let from = self.temp(bytes);
        let size = self.cx.size(&value.ty);
        self.store_value(value, from);
        self.zero(from.plus(size), bytes - size);
        let (key, from) = (self.pointer(key), self.pointer(from));
        let map_addr = self.cx.maps[map.0 as usize];
        let map_addr = self.b().map_addr(map_addr);
        let args = [map_addr.into(), key.into(), from.into(), 0.into()];
        let failed = self.b().call(Helper::MapUpdateElem, &args);
        self.count_if(Cmp::Ne, failed, 0, CounterKind::MapFull(map.0));
    }

    fn set_array(&mut self, map: MapId, value: &Expr) {
        let early = is_scalar(&value.ty).then(|| self.scalar(value));
        let from = early.is_none().then(|| self.place(value));
        let key = self.key(map, &[]);
        let offset = self.cx.map(map).value_offset();
        let size = self.cx.size(&value.ty);
        self.with_cell(map, key, |body, cell| {
            let to = Place::behind(cell).plus(offset);
            match (early, from) {
                (Some(scalar), _) => body.store_scalar(to, &value.ty, scalar),
                (None, Some(from)) => body.copy(to, from, size),
                (None, None) => {}
            }
            body.store(Place::behind(cell), Width::B64, 1);
        });
    }

    /// `@m[k]` of a scalar type.
    pub(super) fn map_get(&mut self, map: MapId, key: &[Expr], ty: &Type) -> VReg {
        let key = self.key(map, key);
        if matches!(self.cx.map(map).value, MapValue::Agg(_)) {
            return self.read_aggregation(map, key);
        }
        let result = self.b().copy(0);
        let offset = self.cx.map(map).value_offset();
        self.if_cell(map, key, |body, cell| {
            let value = body.load_scalar(Place::behind(cell).plus(offset), ty);
            body.b().set(result, value);
        });
        result
    }

    /// `@m[k]` of a string or tuple.
    pub(super) fn map_get_into(&mut self, map: MapId, key: &[Expr], to: Place) {
        let key = self.key(map, key);
        let offset = self.cx.map(map).value_offset();
        let size = match &self.cx.map(map).value {
            MapValue::Plain(ty) => ty.size(),
            MapValue::Agg(_) => unreachable!("an aggregation reads as an integer"),
        };
        self.zero(to, size);
        self.if_cell(map, key, |body, cell| body.copy(to, Place::behind(cell).plus(offset), size));
    }

    /// Runs `f` on the cell of a key, if there is one.
    fn if_cell(&mut self, map: MapId, key: Place, f: impl FnOnce(&mut Self, VReg)) {
        if let Some(cell) = self.only_cell(map) {
            return f(self, cell);
        }
        let [there, after] = std::array::from_fn(|_| self.b().block());
        let cell = self.lookup(map, key);
        self.b().branch(Cmp::Ne, cell, 0, there, after);
        self.b().switch_to(there);
        f(self, cell);
        self.b().fall_into(after);
    }

    /// `has_key(@m, k)`: 0 or 1.
    pub(super) fn has_key(&mut self, map: MapId, key: &[Expr]) -> VReg {
        let key = self.key(map, key);
        let found = match self.cx.map(map).storage.is_array() {
            true => self.touched(map, key),
            false => self.lookup(map, key),
        };
        let result = self.b().copy(0);
        let [yes, after] = std::array::from_fn(|_| self.b().block());
        self.b().branch(Cmp::Ne, found, 0, yes, after);
        self.b().switch_to(yes);
        self.b().set(result, 1);
        self.b().fall_into(after);
        result
    }

    /// Non-zero if the cell of an array was ever written.
    fn touched(&mut self, map: MapId, key: Place) -> VReg {
        let seen = self.b().copy(0);
        let words = match &self.cx.map(map).value {
            MapValue::Agg(agg) if agg.words() > 2 => agg.words(),
            _ => 1,
        };
        self.each_cell(map, key, |body, cell| {
            body.counted_loop(words, |body, index| {
                let offset = body.b().bin(Bin::Shl, index, 3);
                let at = body.b().bin(Bin::Add, cell, offset);
                let word = body.b().load(at, 0, Width::B64, false);
                body.b().update(Bin::Or, seen, word);
            });
        });
        seen
    }

    /// In a map loop: jumps to `untouched` for array cells that were never written. An element of a hash exists
    /// only if it was written.
    pub(super) fn go_on_if_touched(
        &mut self,
        map: MapId,
        key: VReg,
        _value: VReg,
        untouched: crate::ir::BlockId,
    ) {
        if self.cx.map(map).storage.is_array() {
            let seen = self.touched(map, Place::behind(key));
            self.go_on_unless(Cmp::Eq, seen, 0, untouched);
        }
    }

    /// The value of an element in a map loop.
    pub(super) fn element_value(&mut self, map: MapId, key: VReg, value: VReg, ty: &Type) -> VReg {
        if matches!(self.cx.map(map).value, MapValue::Agg(_)) {
            return self.read_aggregation(map, Place::behind(key));
        }
        let offset = self.cx.map(map).value_offset();
        self.load_scalar(Place::behind(value).plus(offset), ty)
    }

    /// `len(@m)`
    pub(super) fn map_len(&mut self, map: MapId) -> VReg {
        let callback = self.counting_callback(map);
        let slot = self.b().func_mut().slot(8, 8);
        let count = self.b().slot_addr(slot);
        // The count starts from a number that the verifier does not know: it would follow each value of a count
        // from 0.
        let from = self.b().call(Helper::GetCurrentPidTgid, &[]);
        self.b().store(count, 0, Width::B64, from);
        self.call_for_each(map, callback, count.into());
        let to = self.b().load(count, 0, Width::B64, false);
        self.b().bin(Bin::Sub, to, from)
    }

    /// `delete(@m, k)`: 1 if the key existed.
    pub(super) fn delete(&mut self, map: MapId, key: &[Expr]) -> VReg {
        let key = self.key(map, key);
        if self.cx.map(map).storage.is_array() {
            return self.delete_from_array(map, key);
        }
        let key = self.pointer(key);
        let map = self.cx.maps[map.0 as usize];
        let map = self.b().map_addr(map);
        let failed = self.b().call(Helper::MapDeleteElem, &[map.into(), key.into()]);
        self.b().compare(Cmp::Eq, failed, 0)
    }

    fn delete_from_array(&mut self, map: MapId, key: Place) -> VReg {
        let seen = self.touched(map, key);
        let bytes = self.cx.map(map).value_size();
        self.each_cell(map, key, |body, cell| body.zero(Place::behind(cell), bytes));
        self.b().compare(Cmp::Ne, seen, 0)
    }

    /// `@m[k] op= value`: one atomic update. Returns the old or the new value if requested.
    pub(super) fn update_map(
        &mut self,
        map: MapId,
        key: &[Expr],
        op: BinaryOp,
        value: &Expr,
        yields: Option<Yields>,
    ) -> Option<VReg> {
        let key = self.key(map, key);
        let value_here = self.scalar(value);
        let value_here: Operand = self.b().copy(value_here).into();
        let result = yields.map(|_| self.b().copy(0));
        let (offset, is_array) = (self.cx.map(map).value_offset(), self.cx.map(map).storage.is_array());
        let signed = self.signed(&value.ty);
        self.with_cell(map, key, |body, cell| {
            let old = body.exchange(op, cell, offset as i16, value_here, signed, yields.is_some());
            if let (Some(result), Some(old)) = (result, old) {
                let value = match yields {
                    Some(Yields::New) => body.arithmetic(op, old.into(), value_here, signed),
                    _ => old.into(),
                };
                body.b().set(result, value);
            }
            if is_array {
                body.store(Place::behind(cell), Width::B64, 1);
            }
        });
        result
    }

    /// Updates a word of a cell; returns the old value if requested.
    fn exchange(
        &mut self,
        op: BinaryOp,
        cell: VReg,
        offset: i16,
        value: Operand,
        signed: bool,
        needs_value: bool,
    ) -> Option<VReg> {
        let Some(atomic) = atomic(op) else {
            return Some(
                self.exchange_loop(cell, offset, |body, old| body.arithmetic(op, old, value, signed)),
            );
        };
        let mut value = self.b().reg(value);
        if op == BinaryOp::Sub {
            value = self.b().neg(value);
        }
        if needs_value {
            return Some(self.b().atomic_fetch(atomic, cell, offset, value));
        }
        self.b().atomic(atomic, cell, offset, value);
        None
    }

    /// Replaces a word by the result of `f`, with retries on concurrent updates; returns the old value.
    fn exchange_loop(
        &mut self,
        cell: VReg,
        offset: i16,
        f: impl FnOnce(&mut Self, Operand) -> Operand,
    ) -> VReg {
        let old = self.b().copy(0);
        let done = self.b().block();
        self.counted_loop(EXCHANGE_TRIES, |body, _| {
            let current = body.b().load(cell, offset, Width::B64, false);
            body.b().set(old, current);
            let new = f(body, old.into());
            let new = body.b().reg(new);
            let found = body.b().cmpxchg(cell, offset, old, new);
            body.go_on_unless(Cmp::Eq, found, old, done);
        });
        self.count(CounterKind::LoopLimit);
        self.b().fall_into(done);
        old
    }
}
