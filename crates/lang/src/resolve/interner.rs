//! Ids of names, since programs in the kernel handle names as small integers: one id per text and kind, in order of first use.

use rustc_hash::FxHashMap;

use crate::hir::{NameId, NameKind, Names};

/// Tables of names under construction.
#[derive(Debug, Default)]
pub struct Interner {
    names: Names,
    index: [FxHashMap<String, u32>; 3],
}

impl Interner {
    /// Begins with the names of a running program, which keep their ids.
    pub fn new(names: Names) -> Interner {
        let index = [&names.funcs, &names.apis, &names.probes]
            .map(|table| table.iter().enumerate().map(|(id, name)| (name.clone(), id as u32)).collect());
        Interner { names, index }
    }

    /// The id of a name, new or old.
    pub fn intern(&mut self, kind: NameKind, name: &str) -> NameId {
        let slot = slot(kind);
        if let Some(&id) = self.index[slot].get(name) {
            return NameId(id);
        }
        let table = match kind {
            NameKind::Func => &mut self.names.funcs,
            NameKind::Api => &mut self.names.apis,
            NameKind::Probe => &mut self.names.probes,
        };
        let id = table.len() as u32;
        table.push(name.to_string());
        self.index[slot].insert(name.to_string(), id);
        NameId(id)
    }

    /// The tables.
    pub fn names(&self) -> &Names {
        &self.names
    }

    /// The finished tables.
    pub fn into_names(self) -> Names {
        self.names
    }
}

fn slot(kind: NameKind) -> usize {
    match kind {
        NameKind::Func => 0,
        NameKind::Api => 1,
        NameKind::Probe => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_a_running_program_are_kept() {
        let known = Names { funcs: vec!["cuInit".into(), "cuMemAlloc_v2".into()], ..Names::default() };
        let mut interner = Interner::new(known);
        assert_eq!(interner.intern(NameKind::Func, "cuMemAlloc_v2"), NameId(1));
        assert_eq!(interner.intern(NameKind::Func, "cuMemFree_v2"), NameId(2));
        assert_eq!(interner.intern(NameKind::Api, "cuMemFree"), NameId(0));
        assert_eq!(interner.intern(NameKind::Func, "cuMemFree_v2"), NameId(2));
    }
}
