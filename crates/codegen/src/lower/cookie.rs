//! What a program finds in its attach cookie: the ids that its body uses, packed, and a bit for each test on names.
//!
//! ```text
//! @[func] = count()                    the cookie is the id of func
//! /func == "cuInit"/ { @[api] = ... }  low bits: id of api; one bit above: func == "cuInit"
//! ```
//!
//! The case of a site, see `fuse`, is an id among the others.
//!
//! Tests for which no bit is left look the id up in a bitmap of the module's data.

use super::Cx;
use super::body::{Body, Pro};
use super::walk;
use crate::ir::{Bin, Operand, VReg, Width};
use lang::hir::{ExprKind, NameId, NameKind, Names, Probe, Site};

/// Layout of a program's cookie.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Layout {
    ids: Vec<Id>,
    tests: Vec<Test>,
    bits: u32,
}

#[derive(Clone, Debug, PartialEq)]
struct Id {
    what: What,
    shift: u32,
    bits: u32,
}

/// What an id is of.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum What {
    Name(NameKind),
    Case,
}

#[derive(Clone, Debug, PartialEq)]
struct Test {
    kind: NameKind,
    ids: Vec<NameId>,
    /// `None`: by bitmap.
    bit: Option<u32>,
}

fn id_of(site: &Site, kind: NameKind) -> NameId {
    match kind {
        NameKind::Func => site.func,
        NameKind::Api => site.api,
        NameKind::Probe => site.probe,
    }
}

impl Layout {
    /// The layout for what a probe uses; `extra` is a name that the program wants besides.
    pub fn new(probe: &Probe, names: &Names, extra: Option<NameKind>) -> Layout {
        let mut layout = Layout::default();
        let mut kinds: Vec<NameKind> = extra.into_iter().collect();
        let mut tests: Vec<(NameKind, &[NameId])> = vec![];
        walk::each_of(probe, &mut |e| match &e.kind {
            ExprKind::Name(kind) if !kinds.contains(kind) => kinds.push(*kind),
            ExprKind::NameIn { kind, ids } if !tests.contains(&(*kind, ids)) => tests.push((*kind, ids)),
            _ => {}
        });
        if !probe.cases.is_empty() {
            layout.add_id(What::Case, probe.cases.len());
        }
        kinds.into_iter().for_each(|kind| layout.add_name(kind, names));
        for (kind, ids) in tests {
            layout.add_test(kind, ids, names);
        }
        layout
    }

    fn add_name(&mut self, kind: NameKind, names: &Names) {
        self.add_id(What::Name(kind), names.table(kind).len());
    }

    /// Room for one of `count` ids.
    fn add_id(&mut self, what: What, count: usize) {
        if self.id(what).is_none() {
            let bits = u32::BITS - (count as u32).saturating_sub(1).leading_zeros();
            self.ids.push(Id { what, shift: self.bits, bits: bits.max(1) });
            self.bits += bits.max(1);
        }
    }

    fn add_test(&mut self, kind: NameKind, ids: &[NameId], names: &Names) {
        // Three ids of at most 20 bits (a million names) leave room for a bitmap's id, and of 18 bits for a case besides.
        let bit = (self.bits < 44).then_some(self.bits);
        self.bits += u32::from(bit.is_some());
        self.tests.push(Test { kind, ids: ids.to_vec(), bit });
        if bit.is_none() {
            self.add_name(kind, names);
        }
    }

    fn id(&self, what: What) -> Option<&Id> {
        self.ids.iter().find(|id| id.what == what)
    }

    /// The cookie of a site.
    pub fn cookie(&self, site: &Site) -> u64 {
        let ids = self.ids.iter().map(|id| {
            let value = match id.what {
                What::Name(kind) => u64::from(id_of(site, kind).0),
                What::Case => u64::from(site.case),
            };
            value << id.shift
        });
        let tests = self.tests.iter().filter_map(|test| {
            let holds = test.ids.binary_search(&id_of(site, test.kind)).is_ok();
            test.bit.map(|bit| u64::from(holds) << bit)
        });
        ids.chain(tests).fold(0, |cookie, part| cookie | part)
    }
}

impl Cx<'_> {
    /// Bit n of it says whether id n is in the list; its length in bytes is a power of two.
    fn bitmap(&mut self, ids: &[NameId]) -> (u32, u32) {
        let bytes = (ids.last().map_or(0, |id| id.0) / 8 + 1).next_power_of_two();
        let mut map = vec![0u8; bytes as usize];
        ids.iter().for_each(|id| map[id.0 as usize / 8] |= 1 << (id.0 % 8));
        (self.data(&map), bytes)
    }
}

impl Body<'_, '_> {
    /// `func`, `api`, `probe`
    pub(super) fn name(&mut self, kind: NameKind) -> Operand {
        self.id(What::Name(kind)).into()
    }

    /// Which of the probe's cases the site is.
    pub(super) fn case(&mut self) -> VReg {
        self.id(What::Case)
    }

    fn id(&mut self, what: What) -> VReg {
        let id = self.cookie.id(what).expect("the layout was made from this body").clone();
        let mut value = self.pro(Pro::Cookie);
        if id.shift > 0 {
            value = self.b().bin(Bin::Shr, value, i64::from(id.shift));
        }
        if id.shift + id.bits < self.cookie.bits {
            value = self.b().bin(Bin::And, value, (1 << id.bits) - 1);
        }
        value
    }

    /// `func == "cuInit"`, as something that is zero or not.
    pub(super) fn name_in(&mut self, kind: NameKind, ids: &[NameId]) -> Operand {
        let test = self.cookie.tests.iter().find(|test| test.kind == kind && test.ids == ids);
        match test.expect("the layout was made from this body").bit {
            Some(bit) => {
                let cookie = self.pro(Pro::Cookie);
                let shifted = self.b().bin(Bin::Shr, cookie, i64::from(bit));
                self.b().bin(Bin::And, shifted, 1).into()
            }
            None => self.name_in_bitmap(kind, ids),
        }
    }

    fn name_in_bitmap(&mut self, kind: NameKind, ids: &[NameId]) -> Operand {
        let (offset, bytes) = self.cx.bitmap(ids);
        let id = self.name(kind);
        let b = self.b();
        let byte = b.bin(Bin::Shr, id, 3);
        let inside = b.bin(Bin::And, byte, i64::from(bytes - 1));
        let base = b.data_addr(offset);
        let at = b.bin(Bin::Add, base, inside);
        let bits = b.load(at, 0, Width::B8, false);
        let bit = b.bin(Bin::And, id, 7);
        let shifted = b.bin(Bin::Shr, bits, bit);
        let holds = b.bin(Bin::And, shifted, 1);
        // Ids beyond the bitmap wrap around inside it: they are in no list.
        let small = b.compare(crate::ir::Cmp::Ult, byte, i64::from(bytes));
        b.bin(Bin::And, holds, small).into()
    }
}
