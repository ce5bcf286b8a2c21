//! Effects of statements on maps.

use super::state::Meaning;
use super::table::{Slot, add};
use super::value::{Val, key_bytes};
use crate::outcome::{Cell, Contents, Loss, Value, merge};
use lang::hir::{MapId, MapValue, Type};
use wire::map::Agg;

impl Meaning<'_> {
    fn key_types(&self, map: MapId) -> &[Type] {
        &self.program.maps[map.0 as usize].key
    }

    fn key(&self, map: MapId, key: &[Val]) -> Vec<u8> {
        key_bytes(key, self.key_types(map), &self.program.structs)
    }

    /// The content of a key; an aggregation without samples counts as absent.
    pub(super) fn slot(&self, map: MapId, key: &[Val]) -> Option<&Slot> {
        let (table, key) = (&self.tables[map.0 as usize], self.key(map, key));
        table.used(&key);
        table.cells.get(&key).map(|(_, slot)| slot)
    }

    /// Like `slot`, but does not mark the key as used.
    pub(super) fn unused_slot(&self, map: MapId, key: &[Val]) -> Option<&Slot> {
        self.tables[map.0 as usize].cells.get(&self.key(map, key)).map(|(_, slot)| slot)
    }

    /// Sets a plain value.
    pub(super) fn set(&mut self, map: MapId, key: Vec<Val>, value: Val) {
        if let Some(slot) = self.touch(map, key, || Slot::Plain(value.clone())) {
            *slot = Slot::Plain(value);
        }
    }

    /// Creates a key with the value 0 if it is missing; returns whether it exists.
    pub(super) fn make(&mut self, map: MapId, key: &[Val]) -> bool {
        self.touch(map, key.to_vec(), || Slot::Plain(Val::Num(0))).is_some()
    }

    /// Adds a sample with the current time.
    pub(super) fn aggregate(&mut self, map: MapId, key: Vec<Val>, sample: i64, now_ns: u64) {
        let agg =
            self.tables[map.0 as usize].agg.clone().expect("the checker aggregates into aggregations only");
        if let Some(Slot::Agg(words)) = self.touch(map, key, || Slot::Agg(vec![0; agg.words() as usize])) {
            add(&agg, words, sample, now_ns);
        }
    }

    /// The slot of a key, which is created if there is room.
    fn touch(&mut self, map: MapId, key: Vec<Val>, new: impl FnOnce() -> Slot) -> Option<&mut Slot> {
        let bytes = self.key(map, &key);
        let name = &self.program.maps[map.0 as usize].name;
        let table = &mut self.tables[map.0 as usize];
        if !table.has_room(&bytes) {
            self.outcome.loss(Loss::MapFull(name.clone()), 1);
            return None;
        }
        table.cells.entry(bytes.clone()).or_insert_with(|| (key, new()));
        table.used(&bytes);
        table.cells.get_mut(&bytes).map(|(_, slot)| slot)
    }

    /// Removes a key; returns whether it existed.
    pub(super) fn remove(&mut self, map: MapId, key: &[Val]) -> bool {
        let bytes = self.key(map, key);
        self.tables[map.0 as usize].forget(&bytes)
    }

    /// The value of a key, as scripts read it.
    pub(super) fn get(&self, map: MapId, key: &[Val]) -> Val {
        let declared = &self.program.maps[map.0 as usize];
        match (self.slot(map, key), &declared.value) {
            (Some(slot), _) => self.slot_value(map, slot),
            (None, MapValue::Plain(ty)) => Val::zero(ty, self.program),
            (None, MapValue::Agg(_)) => Val::Num(0),
        }
    }

    /// Returns the number that scripts read from an aggregation.
    pub(super) fn slot_value(&self, map: MapId, slot: &Slot) -> Val {
        let words = match slot {
            Slot::Plain(value) => return value.clone(),
            Slot::Agg(words) => words,
        };
        Val::Num(match self.tables[map.0 as usize].agg.as_ref().expect("has words") {
            Agg::Avg { .. } if words[0] == 0 => 0,
            Agg::Avg { signed: true } => (words[1] as i64).wrapping_div(words[0] as i64),
            Agg::Avg { signed: false } => (words[1] / words[0]) as i64,
            Agg::Count => words[0] as i64,
            _ => words[1] as i64,
        })
    }

    /// Keys in the order of loops over the map.
    pub(super) fn keys(&self, map: MapId) -> Vec<Vec<Val>> {
        self.tables[map.0 as usize].cells.values().map(|(key, _)| key.clone()).collect()
    }

    fn cell(&self, map: MapId, slot: &Slot) -> Option<Cell> {
        match (slot, &self.program.maps[map.0 as usize].value) {
            (Slot::Plain(value), MapValue::Plain(ty)) => Some(Cell::Plain(self.to_value(value, ty))),
            (Slot::Agg(words), _) => {
                merge(self.tables[map.0 as usize].agg.as_ref()?, std::slice::from_ref(words))
            }
            (Slot::Plain(_), MapValue::Agg(_)) => None,
        }
    }

    /// A map as the reader prints it.
    pub(super) fn contents(&self, map: MapId) -> Contents {
        let entry = |(key, slot): &(Vec<Val>, Slot)| {
            Some((self.to_values(key, self.key_types(map)), self.cell(map, slot)?))
        };
        self.tables[map.0 as usize].cells.values().filter_map(entry).collect()
    }

    /// `print(@m[k])` of an aggregation.
    pub(super) fn entry(&self, map: MapId, key: &[Val]) -> (Vec<Value>, Option<Cell>) {
        let cell = self.unused_slot(map, key).and_then(|slot| self.cell(map, slot));
        (self.to_values(key, self.key_types(map)), cell)
    }
}
