//! Sections of debug information, decompressed if necessary.

use std::io::Read;

use gimli::{Dwarf, DwarfPackageSections, DwarfSections, EndianSlice, LittleEndian, SectionId};
use goblin::elf::section_header::SHF_COMPRESSED;

use crate::elf::{ElfFile, u32_at, u64_at};

/// Bytes of a section.
pub(super) type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// Size of an `Elf64_Chdr`.
const HEADER: usize = 24;
/// `ELFCOMPRESS_ZLIB`
const ZLIB: u32 = 1;
/// `ELFCOMPRESS_ZSTD`
const ZSTD: u32 = 2;
/// Larger debug information is treated as an attempt to exhaust memory.
const MOST: u64 = 16 << 30;
/// A compressed section that is larger than this when decompressed, and expands more than `RATIO` times, is
/// refused.
const SUSPICIOUS: u64 = 64 << 20;
const RATIO: u64 = 100;

/// Sections that queries use.
const NEEDED: [SectionId; 10] = [
    SectionId::DebugAbbrev,
    SectionId::DebugAddr,
    SectionId::DebugInfo,
    SectionId::DebugLine,
    SectionId::DebugLineStr,
    SectionId::DebugRanges,
    SectionId::DebugRngLists,
    SectionId::DebugStr,
    SectionId::DebugStrOffsets,
    SectionId::DebugTypes,
];

/// The debug sections of a file.
#[derive(Debug)]
pub(super) struct Sections {
    elf: ElfFile,
    list: DwarfSections<Section>,
}

/// Bytes of one section.
#[derive(Debug, Default)]
pub(super) enum Section {
    /// The bytes in the file.
    Plain(&'static str),
    Unpacked(Vec<u8>),
    #[default]
    Missing,
}

impl Sections {
    /// Loads the sections of a file.
    ///
    /// # Errors
    /// A section is damaged; the error is a description.
    pub(super) fn load(elf: ElfFile) -> Result<Sections, String> {
        let list = DwarfSections::load(|id| match NEEDED.contains(&id) {
            true => section(&elf, id.name()),
            false => Ok(Section::Missing),
        })?;
        Ok(Sections { elf, list })
    }

    /// Loads the sections of a `.dwo` file.
    ///
    /// # Errors
    /// A section is damaged; the error is a description.
    pub(super) fn load_split(elf: ElfFile) -> Result<Sections, String> {
        let list = DwarfSections::load(|id| split_section(&elf, id))?;
        Ok(Sections { elf, list })
    }

    pub(super) fn dwarf(&self) -> Dwarf<Slice<'_>> {
        self.list.borrow(|section| EndianSlice::new(section.bytes(&self.elf), LittleEndian))
    }
}

/// The sections of a package of `.dwo` files.
#[derive(Debug)]
pub(super) struct PackageList(DwarfPackageSections<Section>);

impl PackageList {
    /// Loads the sections; those that are damaged are treated as absent.
    pub(super) fn load(elf: &ElfFile) -> PackageList {
        // The index names ranges of all sections, also of those that no query reads.
        let loaded = |id: SectionId| {
            let section = id.dwo_name().map(|name| section(elf, name));
            Ok::<_, gimli::Error>(section.and_then(Result::ok).unwrap_or_default())
        };
        PackageList(DwarfPackageSections::load(loaded).unwrap_or_default())
    }

    pub(super) fn sections(&self) -> &DwarfPackageSections<Section> {
        &self.0
    }
}

impl Section {
    /// The bytes of the section of a file.
    pub(super) fn bytes<'a>(&'a self, elf: &'a ElfFile) -> &'a [u8] {
        match self {
            Section::Plain(name) => elf.named_section(name).unwrap_or(&[]),
            Section::Unpacked(bytes) => bytes,
            Section::Missing => &[],
        }
    }
}

/// A section of a `.dwo` file. Such a file has a section for each type unit, all with the same name.
fn split_section(elf: &ElfFile, id: SectionId) -> Result<Section, String> {
    let Some(name) = id.dwo_name().filter(|_| NEEDED.contains(&id)) else { return Ok(Section::Missing) };
    if elf.flagged_sections_named(name).nth(1).is_none() {
        return section(elf, name);
    }
    let unpacked = |(flags, bytes): (u64, &[u8])| match flags & u64::from(SHF_COMPRESSED) {
        0 => Some(bytes.to_vec()),
        _ => unpack(bytes),
    };
    let parts: Option<Vec<Vec<u8>>> = elf.flagged_sections_named(name).map(unpacked).collect();
    parts.map(|parts| Section::Unpacked(parts.concat())).ok_or_else(|| damaged(name))
}

fn section(elf: &ElfFile, name: &'static str) -> Result<Section, String> {
    if let Some((flags, bytes)) = elf.flagged_section(name) {
        return match flags & u64::from(SHF_COMPRESSED) {
            0 => Ok(Section::Plain(name)),
            _ => unpack(bytes).map(Section::Unpacked).ok_or_else(|| damaged(name)),
        };
    }
    // Section name of `-gz=zlib-gnu` in older compilers.
    let old = name.replacen(".debug", ".zdebug", 1);
    match elf.named_section(&old) {
        Some(bytes) => unpack_old(bytes).map(Section::Unpacked).ok_or_else(|| damaged(name)),
        None => Ok(Section::Missing),
    }
}

fn damaged(name: &str) -> String {
    format!("its section `{name}` is damaged")
}

fn unpack(bytes: &[u8]) -> Option<Vec<u8>> {
    let (kind, size) = (u32_at(bytes, 0)?, u64_at(bytes, 8)?);
    let packed = bytes.get(HEADER..)?;
    match kind {
        ZLIB => read_all(flate2::read::ZlibDecoder::new(packed), packed, size),
        ZSTD => read_all(ruzstd::decoding::StreamingDecoder::new(packed).ok()?, packed, size),
        _ => None,
    }
}

/// Decompresses `ZLIB`, the size in big-endian order, and a zlib stream.
fn unpack_old(bytes: &[u8]) -> Option<Vec<u8>> {
    let (size, packed) = (old_size(bytes)?, bytes.get(12..)?);
    read_all(flate2::read::ZlibDecoder::new(packed), packed, size)
}

fn old_size(bytes: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(bytes.strip_prefix(b"ZLIB")?.get(..8)?.try_into().ok()?))
}

fn read_all(from: impl Read, packed: &[u8], size: u64) -> Option<Vec<u8>> {
    let mut all = Vec::new();
    if is_bomb(packed.len() as u64, size) {
        return None;
    }
    from.take(size.min(MOST)).read_to_end(&mut all).ok()?;
    (all.len() as u64 == size).then_some(all)
}

/// Whether the ratio is implausible: debug information compresses to a tenth at best.
fn is_bomb(packed: u64, size: u64) -> bool {
    size > SUSPICIOUS && size / RATIO > packed
}

/// Whether a compressed section would exhaust the memory.
pub(super) fn has_bombs(elf: &ElfFile) -> bool {
    elf.flagged_sections().any(|(flags, bytes)| {
        let size = match flags & u64::from(SHF_COMPRESSED) {
            0 => old_size(bytes),
            _ => u64_at(bytes, 8),
        };
        size.is_some_and(|size| is_bomb(bytes.len() as u64, size))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_section_that_is_packed_far_too_well_is_left_alone() {
        let mut packed = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
        let (piece, pieces) = (vec![0; 1 << 20], 80);
        (0..pieces).for_each(|_| packed.write_all(&piece).expect("memory"));
        let packed = packed.finish().expect("memory");
        let bytes = |size: u64| [b"ZLIB".as_slice(), &size.to_be_bytes(), &packed].concat();
        assert_eq!(unpack_old(&bytes(pieces << 20)), None);
        let text: Vec<u8> = (0..1u32 << 16).flat_map(u32::to_le_bytes).collect();
        let mut packed = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
        packed.write_all(&text).expect("memory");
        let honest =
            [b"ZLIB".as_slice(), &(text.len() as u64).to_be_bytes(), &packed.finish().expect("memory")];
        assert_eq!(unpack_old(&honest.concat()), Some(text));
    }
}
