//! A set of kinds of records, and what records need besides: one bit per kind, as in the manifest and in a request.

use crate::record::Kind;

/// Kinds of records, and whether they need their launches and ranges.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct KindSet(u32);

impl KindSet {
    /// No kind.
    pub const EMPTY: KindSet = KindSet(0);
    /// The records need the time and the thread of the call that launched the work, which costs a callback at each.
    pub const LAUNCHES: KindSet = KindSet(1 << 31);
    /// The records need the range of NVTX around that call.
    pub const RANGES: KindSet = KindSet(1 << 30);
    /// The records need the operator of PyTorch around that call, which costs a callback at each operator.
    pub const OPERATORS: KindSet = KindSet(1 << 29);
    /// All that is no kind.
    const JOINS: KindSet = KindSet::LAUNCHES.union(KindSet::RANGES).union(KindSet::OPERATORS);

    /// The set with these bits: bit N for kind number N.
    pub const fn from_bits(bits: u32) -> KindSet {
        KindSet(bits)
    }

    /// The bits.
    pub const fn to_bits(self) -> u32 {
        self.0
    }

    /// The set of one kind.
    pub const fn of(kind: Kind) -> KindSet {
        KindSet(1 << kind as u32)
    }

    /// Whether a kind is in the set.
    pub const fn contains(self, kind: Kind) -> bool {
        self.includes(KindSet::of(kind))
    }

    /// Adds a kind.
    pub const fn insert(&mut self, kind: Kind) {
        self.0 |= KindSet::of(kind).0;
    }

    /// Members of one of the sets or both.
    pub const fn union(self, other: KindSet) -> KindSet {
        KindSet(self.0 | other.0)
    }

    /// Whether all of the other set is in this one.
    pub const fn includes(self, other: KindSet) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether nothing is in the set.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The kinds alone.
    pub const fn kinds(self) -> KindSet {
        KindSet(self.0 & !KindSet::JOINS.0)
    }

    /// The kinds in the order of their numbers.
    pub fn iter(self) -> impl Iterator<Item = Kind> {
        Kind::ALL.into_iter().filter(move |kind| self.contains(*kind))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::KINDS;

    #[test]
    fn each_kind_has_a_bit_of_its_own() {
        let mut all = KindSet::EMPTY;
        for kind in Kind::ALL {
            assert!(!all.contains(kind));
            all.insert(kind);
            assert!(all.contains(kind));
        }
        assert_eq!((all.to_bits(), all.iter().count()), ((1 << KINDS) - 1, KINDS));
        let joins = KindSet::JOINS;
        assert!(all.kinds() == all && joins.kinds().is_empty() && !all.includes(KindSet::LAUNCHES));
    }

    #[test]
    fn launches_and_ranges_are_no_kinds() {
        let set = KindSet::of(Kind::Sync).union(KindSet::of(Kind::Memcpy)).union(KindSet::RANGES);
        assert!(set.includes(KindSet::RANGES) && !set.includes(KindSet::LAUNCHES));
        assert!(set.iter().eq([Kind::Memcpy, Kind::Sync]));
        assert_eq!(set.kinds(), KindSet::from_bits(0b1_0010));
    }
}
