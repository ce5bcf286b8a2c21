//! Sections of debug information, decompressed if necessary.

use std::io::Read;

use gimli::{Dwarf, DwarfSections, EndianSlice, LittleEndian, SectionId};
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
#[derive(Debug)]
enum Section {
    /// The bytes in the file.
    Plain(&'static str),
    Unpacked(Vec<u8>),
    Missing,
}

impl Sections {
    /// Loads the sections of a file.
    ///
    /// # Errors
    /// A section is damaged; the error is a description.
    pub(super) fn load(elf: ElfFile) -> Result<Sections, String> {
        let list = DwarfSections::load(|id| section(&elf, id))?;
        Ok(Sections { elf, list })
    }

    pub(super) fn dwarf(&self) -> Dwarf<Slice<'_>> {
        self.list.borrow(|section| EndianSlice::new(self.bytes(section), LittleEndian))
    }

    fn bytes<'a>(&'a self, section: &'a Section) -> &'a [u8] {
        match section {
            Section::Plain(name) => self.elf.named_section(name).unwrap_or(&[]),
            Section::Unpacked(bytes) => bytes,
            Section::Missing => &[],
        }
    }
}

fn section(elf: &ElfFile, id: SectionId) -> Result<Section, String> {
    let name = id.name();
    if !NEEDED.contains(&id) {
        return Ok(Section::Missing);
    }
    let damaged = || format!("its section `{name}` is damaged");
    if let Some((flags, bytes)) = elf.flagged_section(name) {
        return match flags & u64::from(SHF_COMPRESSED) {
            0 => Ok(Section::Plain(name)),
            _ => unpack(bytes).map(Section::Unpacked).ok_or_else(damaged),
        };
    }
    // Section name of `-gz=zlib-gnu` in older compilers.
    let old = name.replacen(".debug", ".zdebug", 1);
    match elf.named_section(&old) {
        Some(bytes) => unpack_old(bytes).map(Section::Unpacked).ok_or_else(damaged),
        None => Ok(Section::Missing),
    }
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
