//! Sections of debug information, decompressed where they are compressed.

use std::io::Read;

use gimli::{Dwarf, DwarfSections, EndianSlice, LittleEndian, SectionId};
use goblin::elf::section_header::SHF_COMPRESSED;

use super::Slice;
use crate::elf::{ElfFile, u32_at, u64_at};

/// Size of an `Elf64_Chdr`.
const HEADER: usize = 24;
/// `ELFCOMPRESS_ZLIB`
const ZLIB: u32 = 1;
/// `ELFCOMPRESS_ZSTD`
const ZSTD: u32 = 2;
/// More than that is no debug information but an attempt to exhaust memory.
const MOST: u64 = 16 << 30;

/// The sections that answers need.
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

/// A file's debug information.
#[derive(Debug)]
pub(super) struct Sections {
    elf: ElfFile,
    list: DwarfSections<Section>,
}

/// Bytes of one section.
#[derive(Debug)]
enum Section {
    /// As it lies in the file.
    Plain(&'static str),
    Unpacked(Vec<u8>),
    Missing,
}

impl Sections {
    /// Finds the sections of a file.
    ///
    /// # Errors
    /// One is damaged: in words.
    pub fn load(elf: ElfFile) -> Result<Sections, String> {
        let list = DwarfSections::load(|id| section(&elf, id))?;
        Ok(Sections { elf, list })
    }

    pub fn dwarf(&self) -> Dwarf<Slice<'_>> {
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
    // `-gz=zlib-gnu` of older compilers.
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
        ZLIB => read_all(flate2::read::ZlibDecoder::new(packed), size),
        ZSTD => read_all(ruzstd::decoding::StreamingDecoder::new(packed).ok()?, size),
        _ => None,
    }
}

/// `ZLIB`, the size with the high byte first, and a zlib stream.
fn unpack_old(bytes: &[u8]) -> Option<Vec<u8>> {
    let size = u64::from_be_bytes(bytes.strip_prefix(b"ZLIB")?.get(..8)?.try_into().ok()?);
    read_all(flate2::read::ZlibDecoder::new(&bytes[12..]), size)
}

fn read_all(from: impl Read, size: u64) -> Option<Vec<u8>> {
    let mut all = Vec::new();
    from.take(size.min(MOST)).read_to_end(&mut all).ok()?;
    (all.len() as u64 == size).then_some(all)
}
