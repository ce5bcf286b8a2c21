//! The part of BTF that is needed to read map definitions from an object, as libbpf does: a `.maps` variable is a struct whose
//! members are pointers to arrays, and the arrays' lengths are the values.

use super::load_error::LoadError;
use super::map_def::{MapDef, MapKind};

const ARRAY: u32 = 3;
const STRUCT: u32 = 4;
const VAR: u32 = 14;

/// A type, as far as map definitions need it.
struct Type {
    name: u32,
    kind: u32,
    /// Size, or the type that it refers to.
    word: u32,
    /// Words after the header.
    rest: Vec<u32>,
}

/// Number of words after the header of a type.
fn extra(kind: u32, vlen: usize) -> Option<usize> {
    Some(match kind {
        1 | VAR | 17 => 1,
        2 | 7..=12 | 16 | 18 => 0,
        ARRAY => 3,
        STRUCT | 5 | 15 | 19 => 3 * vlen,
        6 | 13 => 2 * vlen,
        _ => return None,
    })
}

/// Reads the map definitions from section `.BTF`.
pub(super) fn maps(btf: &[u8]) -> Result<Vec<MapDef>, LoadError> {
    let bad = || LoadError::Btf("cut short or of an unknown kind");
    let word = |at: usize| btf.get(at..at + 4).map(|b| u32::from_le_bytes(b.try_into().expect("4 bytes")));
    let header = word(4).ok_or_else(bad)? as usize;
    let [types_at, types_len, names_at] = [8, 12, 16].map(|at| word(at).map_or(0, |w| w as usize));
    let (start, names) = (header + types_at, header + names_at);
    let mut types = Vec::new();
    let mut at = start;
    while at < start + types_len {
        let (name, info, size) =
            (word(at).ok_or_else(bad)?, word(at + 4).ok_or_else(bad)?, word(at + 8).ok_or_else(bad)?);
        let kind = info >> 24 & 31;
        let count = extra(kind, info as usize & 0xffff).ok_or_else(bad)?;
        let rest = (0..count).map(|i| word(at + 12 + 4 * i)).collect::<Option<_>>().ok_or_else(bad)?;
        types.push(Type { name, kind, word: size, rest });
        at += 12 + 4 * count;
    }
    let text = |at: u32| {
        let bytes = btf.get(names + at as usize..).unwrap_or_default();
        String::from_utf8_lossy(bytes.split(|b| *b == 0).next().unwrap_or_default()).into_owned()
    };
    let section = types.iter().find(|t| t.kind == 15 && text(t.name) == ".maps");
    let variables = section.map_or(&[][..], |s| &s.rest).chunks(3).map(|entry| entry[0]);
    variables.map(|variable| definition(&types, variable, &text)).collect()
}

fn definition(types: &[Type], id: u32, text: &dyn Fn(u32) -> String) -> Result<MapDef, LoadError> {
    let get = |id: u32| {
        (id as usize).checked_sub(1).and_then(|at| types.get(at)).ok_or(LoadError::Btf("no such type"))
    };
    let variable = get(id)?;
    let mut numbers = [0; 4];
    for member in get(variable.word)?.rest.chunks(3) {
        let names = ["type", "key_size", "value_size", "max_entries"];
        if let Some(at) = names.iter().position(|name| *name == text(member[0])) {
            let array = get(get(member[1])?.word)?;
            numbers[at] = *array.rest.get(2).ok_or(LoadError::Btf("a map's member is no number"))?;
        }
    }
    let [kind, key_size, value_size, max_entries] = numbers;
    let kind = MapKind::from_number(kind).ok_or(LoadError::MapKind(kind))?;
    Ok(MapDef { name: text(variable.name), kind, key_size, value_size, max_entries })
}
