//! Needs of single programs of an object, to decide where each of them can run.

use crate::layout::{Layout, Placement};
use crate::object::{Object, Reference};
use crate::x86::Assembler;
use crate::{
    CpuNumber, Environment, Process, ThreadId, TimeSource, TranslateError, context, translate, translator,
};
use std::collections::BTreeSet;

/// An object whose programs are looked at.
#[derive(Debug)]
pub struct Survey<'o> {
    object: &'o Object,
    layout: Layout,
    placement: Placement,
}

/// Needs of a program and of the functions that it calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Names of maps.
    pub maps: BTreeSet<String>,
    /// Reason why the code cannot be translated.
    pub unsupported: Option<TranslateError>,
    /// Whether it reads vector registers.
    pub vectors: bool,
}

impl<'o> Survey<'o> {
    /// Prepares an object.
    pub fn new(object: &'o Object) -> Survey<'o> {
        let (layout, placement) = Layout::new(object, 1);
        Survey { object, layout, placement }
    }

    /// Needs of a program, by its symbol.
    pub fn of(&self, symbol: &str) -> Needs {
        let mut needs = Needs::default();
        for number in self.reachable(symbol) {
            for reference in self.object.functions[number].references.values() {
                let (Reference::Map(map) | Reference::Value { map, .. }) = reference else { continue };
                let place = &self.layout.maps[self.placement.maps[*map]];
                needs.maps.insert(place.def.name.clone());
                if !place.is_supported() {
                    needs.unsupported = Some(TranslateError::Map(place.def.name.clone()));
                }
            }
            needs.vectors |= self.object.functions[number].reads_vectors();
            let translated = self.translate(number);
            needs.unsupported = needs.unsupported.or(translated.err());
        }
        needs
    }

    /// Numbers of the functions that a program calls, and its own.
    fn reachable(&self, symbol: &str) -> BTreeSet<usize> {
        let mut found = BTreeSet::new();
        let mut next: Vec<usize> = self.object.function(symbol).into_iter().collect();
        while let Some(number) = next.pop() {
            if found.insert(number) {
                let callees = self.object.functions[number].references.values();
                next.extend(callees.filter_map(|reference| match reference {
                    Reference::Function(number) => Some(*number),
                    _ => None,
                }));
            }
        }
        found
    }

    fn translate(&self, number: usize) -> Result<(), TranslateError> {
        let environment = Environment::Process(Process {
            cpus: 1,
            cpu: CpuNumber::Segment,
            thread: ThreadId::Word,
            time: TimeSource::Asked,
            unwind: None,
        });
        let head = translator::Head::new(self.object, &self.layout, &self.placement, 0);
        let mut asm = Assembler::new(0);
        let context = context(self.object, &self.layout, &self.placement, &head, &environment, &mut asm);
        translate::function(&context, &mut asm, number)
    }
}
