//! Loss counters: one number per kind of failure and position in the script.

use super::body::Body;
use super::module::{BPF_MAP_TYPE_ARRAY, BPF_MAP_TYPE_PERCPU_ARRAY, Cx, index_at};
use crate::bpf::helper::Helper;
use crate::ir::{AtomicOp, Cmp, MapDef, MapRef, Width};
use lang::Span;
use wire::counter::{COUNTERS_MAP, Counter, CounterKind, FAILURES_MAP};

/// Smallest capacity of the map: modules that are added to a running session have further counters and share the
/// map.
const CAPACITY: u32 = 1024;

impl Cx<'_> {
    /// Index of the counter of this kind at this position in the script.
    pub(super) fn counter(&mut self, kind: CounterKind, span: Span) -> u32 {
        let place = self.place(span);
        index_at(&mut self.manifest.counters, &mut self.counters, place, Counter { kind, place })
    }

    /// Declares both maps with room for all counters. It is called last, when their number is known.
    pub(super) fn size_counters(&mut self) {
        self.counters_map();
        let map = self.failures_map();
        self.module.maps[map.0 as usize].value_size = (8 * self.manifest.counters.len() as u32).max(8);
    }

    fn failures_map(&mut self) -> MapRef {
        self.internal_map(MapDef {
            name: FAILURES_MAP.into(),
            kind: BPF_MAP_TYPE_ARRAY,
            key_size: 4,
            value_size: 8,
            max_entries: 1,
            flags: 0,
            direct: true,
        })
    }

    fn counters_map(&mut self) -> MapRef {
        let map = self.internal_map(MapDef {
            name: COUNTERS_MAP.into(),
            kind: BPF_MAP_TYPE_PERCPU_ARRAY,
            key_size: 4,
            value_size: 8,
            max_entries: CAPACITY,
            flags: 0,
            direct: false,
        });
        let needed = self.manifest.counters.len() as u32;
        let def = &mut self.module.maps[map.0 as usize];
        def.max_entries = def.max_entries.max(needed.next_power_of_two());
        map
    }
}

impl Body<'_, '_> {
    /// Adds one to a counter of the current statement.
    pub(super) fn count(&mut self, kind: CounterKind) {
        let index = self.cx.counter(kind.clone(), self.span);
        if !kind.is_frequent() {
            let map = self.cx.failures_map();
            let b = self.b();
            let cell = b.value_addr(map, 8 * index);
            let one = b.copy(1);
            return b.atomic(AtomicOp::Add, cell, 0, one);
        }
        let map = self.cx.counters_map();
        let slot = self.counter_slot();
        let b = self.b();
        let key = b.slot_addr(slot);
        b.store(key, 0, Width::B32, i64::from(index));
        let map = b.map_addr(map);
        let cell = b.call(Helper::MapLookupElem, &[map.into(), key.into()]);
        let (there, after) = (b.cold_block(), b.cold_block());
        b.branch(Cmp::Eq, cell, 0, after, there);
        b.switch_to(there);
        let one = b.copy(1);
        b.atomic(AtomicOp::Add, cell, 0, one);
        b.fall_into(after);
    }

    /// Counts if `lhs cmp rhs` holds, and continues in both cases.
    pub(super) fn count_if(&mut self, cmp: Cmp, lhs: crate::ir::VReg, rhs: i64, kind: CounterKind) {
        let (bad, after) = (self.b().cold_block(), self.b().block());
        self.b().branch(cmp, lhs, rhs, bad, after);
        self.b().switch_to(bad);
        self.count(kind);
        self.b().fall_into(after);
    }
}
