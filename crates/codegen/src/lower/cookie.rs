//! Reads the attach cookie: the ids that the body uses, packed, and one bit per test of a name.
//!
//! ```text
//! @[func] = count()                    the cookie is the id of func
//! /func == "cuInit"/ { @[api] = ... }  low bits: id of api; one bit above: func == "cuInit"
//! ```
//!
//! The case of a site (see `merge`) is one of the ids. Tests for which there is no bit left look up the id in a bitmap in the
//! data of the module.

use super::body::Body;
use super::cookie_layout::{IdKind, id_of};
use super::module::Cx;
use super::prologue::Pro;
use crate::ir::{Bin, Operand, VReg, Width};
use lang::hir::{Hook, NameId, NameKind, Site};

impl Cx<'_> {
    /// Adds a bitmap to the data: bit n is set if id n is in the list. Its length in bytes is a power of two.
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
        match self.only_site() {
            Some(site) => i64::from(id_of(site, kind).0).into(),
            None => self.id(IdKind::Name(kind)).into(),
        }
    }

    /// The site of a program that has one, and no cookie.
    fn only_site(&self) -> Option<&Site> {
        match self.probe.attach.hook()? {
            Hook::Trampoline => self.probe.attach.sites().first(),
            Hook::Uprobe | Hook::Kprobe | Hook::SingleKprobe => None,
        }
    }

    /// The case of the attach site.
    pub(super) fn case(&mut self) -> VReg {
        self.id(IdKind::Case)
    }

    fn id(&mut self, what: IdKind) -> VReg {
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

    /// `func == "cuInit"`, as zero or non-zero.
    pub(super) fn name_in(&mut self, kind: NameKind, ids: &[NameId]) -> Operand {
        if let Some(site) = self.only_site() {
            return i64::from(ids.contains(&id_of(site, kind))).into();
        }
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
        // Ids beyond the bitmap wrap around to an index inside it, and are masked out as not in the list.
        let small = b.compare(crate::ir::Cmp::Ult, byte, i64::from(bytes));
        b.bin(Bin::And, holds, small).into()
    }
}
