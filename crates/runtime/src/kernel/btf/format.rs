//! Parts of a BTF file: sections, types and strings.
//!
//! Format: Documentation/bpf/btf.rst of the kernel.

const MAGIC: u16 = 0xeb9f;

// Numbers of the kinds of types.
pub(super) const KIND_INT: u32 = 1;
pub(super) const KIND_POINTER: u32 = 2;
pub(super) const KIND_ARRAY: u32 = 3;
pub(super) const KIND_STRUCT: u32 = 4;
pub(super) const KIND_UNION: u32 = 5;
pub(super) const KIND_ENUM: u32 = 6;
pub(super) const KIND_FORWARD: u32 = 7;
pub(super) const KIND_TYPEDEF: u32 = 8;
pub(super) const KIND_VOLATILE: u32 = 9;
pub(super) const KIND_CONST: u32 = 10;
pub(super) const KIND_RESTRICT: u32 = 11;
pub(super) const KIND_FUNC: u32 = 12;
pub(super) const KIND_PROTOTYPE: u32 = 13;
pub(super) const KIND_VARIABLE: u32 = 14;
pub(super) const KIND_SECTION: u32 = 15;
pub(super) const KIND_FLOAT: u32 = 16;
pub(super) const KIND_DECLARATION_TAG: u32 = 17;
pub(super) const KIND_TYPE_TAG: u32 = 18;
pub(super) const KIND_ENUM64: u32 = 19;

/// The fixed part of a type.
pub(super) struct Head {
    pub name: u32,
    pub info: u32,
    pub type_id: u32,
}

impl Head {
    pub(super) fn kind(&self) -> u32 {
        self.info >> 24 & 0x1f
    }

    /// Whether it is another type with a name or a qualifier: `typedef int t`, `const int`.
    pub(super) fn renames(&self) -> bool {
        matches!(self.kind(), KIND_TYPEDEF | KIND_VOLATILE | KIND_CONST | KIND_RESTRICT | KIND_TYPE_TAG)
    }

    pub(super) fn members(&self) -> u32 {
        self.info & 0xffff
    }

    /// Size in bytes of the variable part; `None` for an unknown kind.
    fn tail(&self) -> Option<usize> {
        let each = match self.kind() {
            KIND_POINTER | KIND_FORWARD | KIND_FUNC | KIND_FLOAT => 0,
            _ if self.renames() => 0,
            KIND_INT | KIND_VARIABLE | KIND_DECLARATION_TAG => return Some(4),
            KIND_ARRAY => return Some(12),
            KIND_STRUCT | KIND_UNION | KIND_SECTION | KIND_ENUM64 => 12,
            KIND_ENUM | KIND_PROTOTYPE => 8,
            _ => return None,
        };
        Some(each * self.members() as usize)
    }
}

pub(super) fn word(data: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(data.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

/// The types in the order of their ids, from 1.
pub(super) fn types(section: &[u8]) -> impl Iterator<Item = Head> + '_ {
    types_and_tails(section).map(|(head, _)| head)
}

/// The types with the offsets of their variable parts.
pub(super) fn types_and_tails(section: &[u8]) -> impl Iterator<Item = (Head, usize)> + '_ {
    let mut at = 0;
    std::iter::from_fn(move || {
        let head =
            Head { name: word(section, at)?, info: word(section, at + 4)?, type_id: word(section, at + 8)? };
        let tail = at + 12;
        at = tail + head.tail()?;
        Some((head, tail))
    })
}

/// The sections of types and of strings.
pub(super) fn sections(btf: &[u8]) -> Option<(&[u8], &[u8])> {
    if u16::from_le_bytes(btf.get(..2)?.try_into().ok()?) != MAGIC {
        return None;
    }
    let section = |at: usize| -> Option<&[u8]> {
        let start = word(btf, 4)?.checked_add(word(btf, at)?)? as usize;
        btf.get(start..start.checked_add(word(btf, at + 4)? as usize)?)
    };
    Some((section(8)?, section(16)?))
}

pub(super) fn string(strings: &[u8], at: u32) -> Option<String> {
    let text = strings.get(at as usize..)?.split(|byte| *byte == 0).next()?;
    Some(String::from_utf8_lossy(text).into_owned())
}

/// A string that is valid UTF-8, as all names of C are.
pub(super) fn text(strings: &[u8], at: u32) -> Option<&str> {
    std::str::from_utf8(strings.get(at as usize..)?.split(|byte| *byte == 0).next()?).ok()
}

/// Offset of a whole string in the string section.
pub(super) fn offset_of_string(strings: &[u8], name: &str) -> Option<u32> {
    let whole = [b"\0", name.as_bytes(), b"\0"].concat();
    let first = name.as_bytes().first()?;
    // Filtered by the NUL and the first letter: `windows` over megabytes is slow without optimisation.
    let mut at = 0;
    while let Some(step) = strings.get(at..)?.iter().position(|byte| *byte == 0) {
        at += step;
        if strings.get(at + 1) == Some(first) && strings[at..].starts_with(&whole) {
            return u32::try_from(at + 1).ok();
        }
        at += 1;
    }
    None
}

/// A BTF file with these sections.
#[cfg(test)]
pub(super) fn file(strings: &[u8], types: &[u32]) -> Vec<u8> {
    let len = types.len() as u32 * 4;
    let head = [24, 0, len, len, strings.len() as u32];
    let words = head.iter().chain(types).flat_map(|word| word.to_le_bytes());
    [0x9f, 0xeb, 1, 0].into_iter().chain(words).chain(strings.iter().copied()).collect()
}
