//! Describes maps in the form that libbpf requires: one variable per map in section `.maps`. Its type is a struct; each member is
//! a pointer to an array, and the length of the array is the number.
//!
//! ```text
//! struct { int (*type)[1]; int (*max_entries)[4096]; int (*key_size)[8]; ... } calls SEC(".maps");
//! ```

use super::btf::{Btf, SectionMember};
use crate::ir::MapDef;

/// Section of maps.
pub(super) const SECTION: &str = ".maps";

/// Describes the maps. Returns offset and size of each map's variable in the section, in bytes. A direct map is a
/// section of its own and has none.
pub(super) fn describe(btf: &mut Btf, maps: &[MapDef]) -> Vec<Option<(u32, u32)>> {
    let mut places = Vec::with_capacity(maps.len());
    let mut members = Vec::with_capacity(maps.len());
    let mut offset = 0;
    for map in maps {
        if map.direct {
            places.push(None);
            continue;
        }
        let attributes = attributes(map);
        let fields: Vec<_> = attributes.iter().map(|&(name, value)| (name, btf.number(value))).collect();
        let ty = btf.pointers(&fields);
        let size = 8 * fields.len() as u32;
        members.push(SectionMember { id: btf.variable(&map.name, ty), offset, size });
        places.push(Some((offset, size)));
        offset += size;
    }
    if !members.is_empty() {
        btf.section(SECTION, &members);
    }
    places
}

/// Attributes in the description of a map; attributes that are 0 (sizes of ring buffers) are omitted.
fn attributes(map: &MapDef) -> Vec<(&'static str, u32)> {
    let all = [
        ("max_entries", map.max_entries),
        ("key_size", map.key_size),
        ("value_size", map.value_size),
        ("map_flags", map.flags),
    ];
    let said = all.into_iter().filter(|(_, value)| *value != 0);
    std::iter::once(("type", map.kind)).chain(said).collect()
}
