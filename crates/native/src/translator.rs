//! State of the translation of a function; `translate` has the instructions, `calls` the helpers.

use crate::Environment;
use crate::layout::{Layout, MapPlace, Placement};
use crate::object::{Function, Object};
use crate::x86::{Assembler, Label};
use std::collections::BTreeMap;

/// Inputs that all functions of an object share.
pub(crate) struct Context<'a> {
    /// The object.
    pub object: &'a Object,
    /// Where maps lie.
    pub layout: &'a Layout,
    /// Which of them are the object's.
    pub placement: &'a Placement,
    /// Head of the code.
    pub head: &'a Head,
    /// Implementation of the helpers.
    pub environment: &'a Environment,
    /// Starts of the compiled helpers, by [`calls::function`](crate::calls::function).
    pub helpers: Vec<Label>,
    /// Starts of the functions.
    pub functions: Vec<Label>,
    /// End of the code.
    pub end: Label,
}

/// Data in front of the functions: descriptions of the maps, and constants.
#[derive(Clone, Debug, Default)]
pub(crate) struct Head {
    /// Offsets of the descriptions in the region, by index in [`Object::maps`].
    pub descriptions: Vec<u64>,
    /// Offsets of constant sections, by index in [`Object::sections`].
    pub constants: Vec<Option<u64>>,
    /// The bytes.
    pub bytes: Vec<u8>,
}

impl Head {
    /// For code that begins at this offset in the region.
    pub(crate) fn new(object: &Object, layout: &Layout, placement: &Placement, start: u64) -> Head {
        let mut head = Head::default();
        for map in &placement.maps {
            let at = head.here(start);
            head.descriptions.push(at);
            head.bytes.extend(layout.maps[*map].description(at));
        }
        for section in &object.sections {
            let at = head.here(start);
            head.constants.push(section.data.as_ref().map(|_| at));
            head.bytes.extend(section.data.iter().flatten());
        }
        head
    }

    /// Offset in the region of the next part.
    fn here(&mut self, start: u64) -> u64 {
        self.bytes.resize(self.bytes.len().next_multiple_of(8), 0);
        start + self.bytes.len() as u64
    }
}

impl Context<'_> {
    /// A map, by its index in the object.
    pub(crate) fn map(&self, index: usize) -> &MapPlace {
        &self.layout.maps[self.placement.maps[index]]
    }
}

/// Translation of one function.
pub(crate) struct Translator<'a, 'b> {
    pub(crate) context: &'a Context<'a>,
    pub(crate) asm: &'b mut Assembler,
    pub(crate) function: &'a Function,
    /// Labels of instructions to which a jump leads.
    pub(crate) labels: BTreeMap<usize, Label>,
    pub(crate) exit: Label,
    /// The map in r1, where it is known.
    pub(crate) map: Option<usize>,
}
