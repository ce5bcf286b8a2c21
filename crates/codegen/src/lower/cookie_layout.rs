//! Layout of a program's attach cookie.

use super::walk;
use lang::hir::{ExprKind, NameId, NameKind, Names, Probe, Site};

/// Layout of a program's cookie.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct CookieLayout {
    pub ids: Vec<Id>,
    pub tests: Vec<Test>,
    pub bits: u32,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Id {
    pub what: IdKind,
    pub shift: u32,
    pub bits: u32,
}

/// Kind of an id.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum IdKind {
    Name(NameKind),
    Case,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Test {
    pub kind: NameKind,
    pub ids: Vec<NameId>,
    /// Bit of the test; `None` for a test by bitmap.
    pub bit: Option<u32>,
}

pub(super) fn id_of(site: &Site, kind: NameKind) -> NameId {
    match kind {
        NameKind::Func => site.func,
        NameKind::Api => site.api,
        NameKind::Probe => site.probe,
    }
}

impl CookieLayout {
    /// The layout for the names that a probe uses; `extra` is a name that the program needs in addition.
    pub(super) fn new(probe: &Probe, names: &Names, extra: Option<NameKind>) -> CookieLayout {
        let mut layout = CookieLayout::default();
        let mut kinds: Vec<NameKind> = extra.into_iter().collect();
        let mut tests: Vec<(NameKind, &[NameId])> = vec![];
        walk::each_of(probe, &mut |e| match &e.kind {
            ExprKind::Name(kind) if !kinds.contains(kind) => kinds.push(*kind),
            ExprKind::NameIn { kind, ids } if !tests.contains(&(*kind, ids)) => tests.push((*kind, ids)),
            _ => {}
        });
        if !probe.cases.is_empty() {
            layout.add_id(IdKind::Case, probe.cases.len());
        }
        kinds.into_iter().for_each(|kind| layout.add_name(kind, names));
        for (kind, ids) in tests {
            layout.add_test(kind, ids, names);
        }
        layout
    }

    fn add_name(&mut self, kind: NameKind, names: &Names) {
        self.add_id(IdKind::Name(kind), names.table(kind).len());
    }

    /// Adds bits for one of `count` ids.
    fn add_id(&mut self, what: IdKind, count: usize) {
        if self.id(what).is_none() {
            let bits = u32::BITS - (count as u32).saturating_sub(1).leading_zeros();
            self.ids.push(Id { what, shift: self.bits, bits: bits.max(1) });
            self.bits += bits.max(1);
        }
    }

    fn add_test(&mut self, kind: NameKind, ids: &[NameId], names: &Names) {
        // Three ids of at most 20 bits (a million names) leave room for the id of a bitmap test; of 18 bits also
        // for a case.
        let bit = (self.bits < 44).then_some(self.bits);
        self.bits += u32::from(bit.is_some());
        self.tests.push(Test { kind, ids: ids.to_vec(), bit });
        if bit.is_none() {
            self.add_name(kind, names);
        }
    }

    pub(super) fn id(&self, what: IdKind) -> Option<&Id> {
        self.ids.iter().find(|id| id.what == what)
    }

    /// The cookie of an attach site.
    pub(super) fn cookie(&self, site: &Site) -> u64 {
        let ids = self.ids.iter().map(|id| {
            let value = match id.what {
                IdKind::Name(kind) => u64::from(id_of(site, kind).0),
                IdKind::Case => u64::from(site.case),
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
