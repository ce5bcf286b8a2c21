//! ELF files: defined functions, their file offsets, the file's soname and build id.
//!
//! A file is mapped, and only the tables that a query needs are read: the dynamic table for names and versions, the section headers
//! for `.symtab` (a stripped file has none; the rest works without). An address becomes a file offset through the loadable
//! segments, as the kernel maps them, never through section headers.
//!
//! Not here: the address of a probe within a function (`prologue`), the file of a name (`search`).
//! Any bytes are acceptable input: damaged parts are an [`ElfError`] or left out, never a panic.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use goblin::container::{Container, Ctx, Endian};
use goblin::elf::dynamic::{
    DT_GNU_HASH, DT_HASH, DT_NEEDED, DT_RPATH, DT_RUNPATH, DT_SONAME, DT_STRSZ, DT_STRTAB, DT_SYMTAB,
    DT_VERDEF, DT_VERDEFNUM, DT_VERSYM,
};
use goblin::elf::header::{EI_CLASS, EI_DATA, ELFCLASS64, ELFDATA2LSB, ELFMAG, EM_AARCH64, EM_X86_64};
use goblin::elf::program_header::{PF_X, PT_DYNAMIC, PT_LOAD, PT_NOTE};
use goblin::elf::section_header::{SHT_DYNSYM, SHT_NOBITS, SHT_SYMTAB};
use goblin::elf::sym::{STB_GLOBAL, STB_WEAK, STT_FUNC, STT_GNU_IFUNC};
use goblin::elf::{Header, ProgramHeader, SectionHeader};
use lang::catalog::Function;
use memchr::memmem;

use crate::untrusted_file;
use crate::untrusted_file::FileMapping;

/// Size of an `Elf64_Sym`.
const SYM_SIZE: usize = 24;
/// Size of an `Elf64_Dyn`.
const DYN_SIZE: usize = 16;
/// `VERSYM_HIDDEN`: not the default version of its symbol.
const VERSYM_HIDDEN: u16 = 0x8000;
/// Largest number of bytes that are searched for text. A sparse file may be much larger than its contents.
const MOST_SEARCHED: usize = 4 << 30;
/// Largest size of a string table in bytes: about ten times that of the largest libraries.
const MOST_NAMES: usize = 1 << 30;
/// Largest size of a symbol table or its hash table in bytes: 8 million symbols are several times those of the
/// largest programs.
const MOST_SYMBOLS: usize = SYM_SIZE << 23;
/// Largest size of a list of notes in bytes.
const MOST_NOTES: usize = 16 << 20;
/// `NT_GNU_BUILD_ID`
const NT_GNU_BUILD_ID: u32 = 3;

/// The reason why a file cannot be probed.
#[derive(Debug, thiserror::Error)]
pub enum ElfError {
    /// `uprobe:/no/such/file:f`
    #[error("no such file: `{}`", path.display())]
    NotFound {
        /// The file.
        path: PathBuf,
    },
    /// The file exists, but may not be read, or its file system fails.
    #[error("cannot read `{}`: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// `uprobe:/etc/passwd:f`
    #[error("`{}` is not an ELF file", path.display())]
    NotElf {
        /// The file.
        path: PathBuf,
    },
    /// A program or library for another machine: 32-bit, big-endian, another instruction set.
    #[error("`{}` is {found}; only {expected} files can be probed here", path.display())]
    OtherMachine {
        /// The file.
        path: PathBuf,
        /// `a 32-bit file`
        found: String,
        /// `64-bit x86-64`
        expected: &'static str,
    },
    /// The file is truncated or overwritten.
    #[error("`{}` is damaged: {what}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Description of the inconsistency.
        what: String,
    },
}

/// The machine number of this architecture in ELF headers, and its description.
#[cfg(target_arch = "x86_64")]
const THIS_MACHINE: (u16, &str) = (EM_X86_64, "64-bit x86-64");
#[cfg(target_arch = "aarch64")]
const THIS_MACHINE: (u16, &str) = (EM_AARCH64, "64-bit aarch64");

/// The place of a section.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SectionPlace {
    /// Offset in the file.
    pub offset: usize,
    /// Size in the file, in bytes.
    pub size: usize,
    /// Address.
    pub address: u64,
}

/// A mapped ELF file.
#[derive(Clone, Debug)]
pub struct ElfFile {
    path: PathBuf,
    bytes: Bytes,
    machine: u16,
    segments: Vec<ProgramHeader>,
    sections: Vec<SectionHeader>,
    section_names: u16,
    dynamic: Dynamic,
}

/// Contents of the file: mapped, or given by a test.
#[derive(Clone, Debug)]
enum Bytes {
    Mapped(Arc<FileMapping>),
    Owned(Vec<u8>),
}

impl std::ops::Deref for Bytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match self {
            Bytes::Mapped(map) => map,
            Bytes::Owned(vec) => vec,
        }
    }
}

/// Contents of the dynamic table; addresses are converted to file offsets.
#[derive(Clone, Debug, Default)]
struct Dynamic {
    symbols: Option<usize>,
    strings: Option<(usize, usize)>,
    versions: Option<usize>,
    version_definitions: Option<(usize, usize)>,
    hash: Option<usize>,
    gnu_hash: Option<usize>,
    soname: Option<usize>,
    needed: Vec<usize>,
    rpath: Option<usize>,
    runpath: Option<usize>,
}

/// The functions that a file defines.
#[derive(Debug, Default)]
pub struct Functions {
    /// Functions without duplicate addresses, sorted by first name.
    pub list: Vec<Function>,
    /// File offset and size in bytes (0: unknown), sorted by offset.
    extents: Vec<(u64, u64)>,
    /// For each of these the index in `list`.
    indices: Vec<usize>,
}

impl Functions {
    /// Size in bytes of the function at a file offset; 0 if the size is unknown, `None` if no function starts
    /// there.
    pub fn size_at(&self, offset: u64) -> Option<u64> {
        Some(self.extents[self.number(offset)?].1)
    }

    /// The function that starts at a file offset.
    pub fn at(&self, offset: u64) -> Option<&Function> {
        Some(&self.list[self.indices[self.number(offset)?]])
    }

    fn number(&self, offset: u64) -> Option<usize> {
        self.extents.binary_search_by_key(&offset, |extent| extent.0).ok()
    }

    /// Start and size of the function that contains an offset, if known.
    pub fn around(&self, offset: u64) -> Option<(u64, u64)> {
        let behind = self.extents.partition_point(|extent| extent.0 <= offset);
        let (start, size) = *self.extents.get(behind.checked_sub(1)?)?;
        (offset - start < size).then_some((start, size))
    }

    /// File offset of the next function after `offset`.
    pub fn next_after(&self, offset: u64) -> Option<u64> {
        let at = self.extents.partition_point(|extent| extent.0 <= offset);
        self.extents.get(at).map(|extent| extent.0)
    }
}

/// A defined function symbol.
struct Symbol<'a> {
    offset: u64,
    size: u64,
    /// Order of preference: 0 dynamic, 1 dynamic with a superseded version, 2 global, 3 weak, 4 local.
    rank: u8,
    name: &'a str,
    version: Option<&'a str>,
}

/// An entry of a symbol table.
struct RawSymbol {
    name: usize,
    info: u8,
    section: u16,
    value: u64,
    size: u64,
}

impl RawSymbol {
    fn parse(bytes: &[u8]) -> Option<RawSymbol> {
        Some(RawSymbol {
            name: u32_at(bytes, 0)? as usize,
            info: *bytes.get(4)?,
            section: u16_at(bytes, 6)?,
            value: u64_at(bytes, 8)?,
            size: u64_at(bytes, 16)?,
        })
    }

    /// Whether the symbol is a function defined in this file; an IFUNC is excluded, because its address is that of
    /// the resolver.
    fn is_function(&self) -> bool {
        self.info & 0xf == STT_FUNC && self.section != 0 && self.value != 0
    }
}

impl ElfFile {
    /// Maps a file and reads its headers.
    pub fn open(path: &Path) -> Result<ElfFile, ElfError> {
        let unreadable = |source: io::Error| match source.kind() {
            io::ErrorKind::NotFound => ElfError::NotFound { path: path.into() },
            io::ErrorKind::InvalidInput => ElfError::NotElf { path: path.into() },
            _ => ElfError::Unreadable { path: path.into(), source },
        };
        ElfFile::of_file(&untrusted_file::open(path).map_err(unreadable)?, path)
    }

    /// Maps an open file and reads its headers; errors show `path`.
    pub fn of_file(file: &File, path: &Path) -> Result<ElfFile, ElfError> {
        let unreadable = |source: io::Error| ElfError::Unreadable { path: path.into(), source };
        if file.metadata().map_err(unreadable)?.len() == 0 {
            return Err(ElfError::NotElf { path: path.into() });
        }
        ElfFile::from_bytes(Bytes::Mapped(Arc::new(FileMapping::of(file).map_err(unreadable)?)), path)
    }

    /// Reads an image in memory; errors show `path`.
    pub fn parse(image: Vec<u8>, path: &Path) -> Result<ElfFile, ElfError> {
        ElfFile::from_bytes(Bytes::Owned(image), path)
    }

    fn from_bytes(bytes: Bytes, path: &Path) -> Result<ElfFile, ElfError> {
        check_identification(&bytes, path)?;
        let damaged = |what: &str| ElfError::Damaged { path: path.into(), what: what.into() };
        let header = goblin::elf::Elf::parse_header(&bytes).map_err(|_| damaged("its header is cut off"))?;
        check_machine(&header, path)?;
        let segments = ProgramHeader::parse(&bytes, to_usize(header.e_phoff), header.e_phnum.into(), CTX)
            .map_err(|_| damaged("its program headers lie outside the file"))?;
        // Section headers may be stripped; they are needed only for `.symtab`.
        let sections = SectionHeader::parse(&bytes, to_usize(header.e_shoff), header.e_shnum.into(), CTX)
            .unwrap_or_default();
        let mut file = ElfFile {
            path: path.into(),
            machine: header.e_machine,
            section_names: header.e_shstrndx,
            dynamic: Dynamic::default(),
            bytes,
            segments,
            sections,
        };
        file.dynamic = file.read_dynamic();
        Ok(file)
    }

    /// Whether the instruction set is x86-64.
    pub fn is_x86_64(&self) -> bool {
        self.machine == EM_X86_64
    }

    /// At most `len` bytes of the file from an offset.
    pub fn code(&self, offset: u64, len: u64) -> &[u8] {
        let start = to_usize(offset).min(self.bytes.len());
        let end = start.saturating_add(to_usize(len)).min(self.bytes.len());
        &self.bytes[start..end]
    }

    /// `DT_SONAME`: `libcudart.so.12`.
    pub fn soname(&self) -> Option<&str> {
        self.dynamic_string(self.dynamic.soname?)
    }

    /// `DT_NEEDED`, in order.
    pub fn needed(&self) -> impl Iterator<Item = &str> {
        self.dynamic.needed.iter().filter_map(|&at| self.dynamic_string(at))
    }

    /// `DT_RPATH`, which a loader ignores if there is a `DT_RUNPATH`.
    pub fn rpath(&self) -> Option<&str> {
        self.dynamic_string(self.dynamic.rpath?)
    }

    /// `DT_RUNPATH`
    pub fn runpath(&self) -> Option<&str> {
        self.dynamic_string(self.dynamic.runpath?)
    }

    /// Path as it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// GNU build id.
    pub fn build_id(&self) -> Option<&[u8]> {
        self.segments.iter().filter(|s| s.p_type == PT_NOTE).find_map(|segment| {
            let notes = self.bytes.get(to_usize(segment.p_offset)..)?;
            build_id_in(&notes[..notes.len().min(to_usize(segment.p_filesz))])
        })
    }

    /// The build id in hex.
    pub fn build_id_text(&self) -> Option<String> {
        Some(self.build_id()?.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// Whether the Go compiler made the file: Go moves stacks, so return probes kill the program.
    pub fn is_go(&self) -> bool {
        [".gopclntab", ".go.buildinfo"].iter().any(|name| self.section(name).is_some())
    }

    /// Whether the code at an offset is that of the Go compiler. C code that is linked into the file runs on other stacks.
    pub fn is_go_code(&self, offset: u64) -> bool {
        let bound = |name| self.symbol_of(name).map(|(address, _)| address);
        let is_within = |address| match (bound("runtime.text"), bound("runtime.etext")) {
            (Some(start), Some(end)) => (start..end).contains(&address),
            _ => true,
        };
        self.is_go() && self.code_address(offset).is_none_or(is_within)
    }

    /// Whether the file contains GPU code of `nvcc`.
    pub fn has_gpu_code(&self) -> bool {
        [".nv_fatbin", ".nvFatBinSegment"].iter().any(|name| self.section(name).is_some())
    }

    /// Whether the symbol tables are small enough for a reader of all symbols.
    pub fn has_bounded_symbols(&self) -> bool {
        let mut tables = self.sections.iter().filter(|s| matches!(s.sh_type, SHT_SYMTAB | SHT_DYNSYM));
        tables.all(|table| to_usize(table.sh_size) <= MOST_SYMBOLS)
    }

    /// Whether there is a symbol table in addition to the exported symbols.
    pub fn has_symtab(&self) -> bool {
        self.sections.iter().any(|section| section.sh_type == SHT_SYMTAB)
    }

    /// Whether a symbol of this name is an IFUNC, which is resolved to one of several functions when the file is
    /// loaded.
    pub fn defines_indirect(&self, name: &str) -> bool {
        let is_it = |table: &Table, raw: RawSymbol| {
            raw.info & 0xf == STT_GNU_IFUNC && c_string(table.strings, raw.name) == Some(name)
        };
        self.tables().into_iter().flatten().any(|table| table.raw().any(|(_, raw)| is_it(&table, raw)))
    }

    /// Whether the file defines a function of this name. Fast for files that do not contain the name.
    pub fn defines(&self, name: &str) -> bool {
        let wanted = memmem::Finder::new(name.as_bytes());
        self.tables().into_iter().flatten().any(|table| {
            wanted.find(table.strings).is_some()
                && table
                    .raw()
                    .any(|(_, raw)| raw.is_function() && c_string(table.strings, raw.name) == Some(name))
        })
    }

    /// Whether the file contains these bytes.
    pub fn contains(&self, text: &[u8]) -> bool {
        memmem::find(clamp(&self.bytes, 0, MOST_SEARCHED), text).is_some()
    }

    /// Bytes of the section with this name.
    pub fn named_section(&self, name: &str) -> Option<&[u8]> {
        Some(self.section_bytes(self.section(name)?))
    }

    /// The place of the section with this name, if the file has bytes of it.
    pub(crate) fn section_place(&self, name: &str) -> Option<SectionPlace> {
        let section = self.section(name).filter(|section| section.sh_type != SHT_NOBITS)?;
        let (offset, size) = (to_usize(section.sh_offset), to_usize(section.sh_size));
        Some(SectionPlace { offset, size, address: section.sh_addr })
    }

    /// The contents of the file.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Segments that are loaded.
    pub(crate) fn loaded_segments(&self) -> impl Iterator<Item = &ProgramHeader> {
        self.segments.iter().filter(|segment| segment.p_type == PT_LOAD)
    }

    /// Flags and bytes of all sections.
    pub(crate) fn flagged_sections(&self) -> impl Iterator<Item = (u64, &[u8])> {
        self.sections.iter().map(|section| (section.sh_flags, self.section_bytes(section)))
    }

    /// Flags and bytes of all sections with this name.
    pub(crate) fn flagged_sections_named(&self, name: &str) -> impl Iterator<Item = (u64, &[u8])> {
        let names = self
            .sections
            .get(usize::from(self.section_names))
            .map_or(&[][..], |names| self.section_bytes(names));
        let named =
            self.sections.iter().filter(move |section| c_string(names, section.sh_name) == Some(name));
        named.map(|section| (section.sh_flags, self.section_bytes(section)))
    }

    /// Flags and bytes of the section with this name.
    pub(crate) fn flagged_section(&self, name: &str) -> Option<(u64, &[u8])> {
        let section = self.section(name)?;
        Some((section.sh_flags, self.section_bytes(section)))
    }

    /// GNU build id by its section: program headers of separate debug files are invalid.
    pub(crate) fn build_id_section(&self) -> Option<&[u8]> {
        build_id_in(self.named_section(".note.gnu.build-id")?)
    }

    /// Virtual address of the section with this name.
    pub fn section_address(&self, name: &str) -> Option<u64> {
        Some(self.section(name)?.sh_addr)
    }

    /// Virtual address and size of a symbol that the file defines.
    pub fn symbol_of(&self, name: &str) -> Option<(u64, u64)> {
        self.tables().into_iter().flatten().find_map(|table| {
            let named = |raw: &RawSymbol| c_string(table.strings, raw.name) == Some(name);
            let mut defined = table.raw().map(|(_, raw)| raw).filter(|raw| raw.section != 0);
            defined.find(named).map(|raw| (raw.value, raw.size))
        })
    }

    /// Virtual address of a function that other files of a process call by this name. Fast for files that do not contain the name.
    pub fn exported(&self, name: &str) -> Option<u64> {
        let table = self.dynamic_table()?;
        memmem::find(table.strings, name.as_bytes())?;
        let is_it = |raw: &RawSymbol| {
            raw.section != 0 && raw.is_function() && c_string(table.strings, raw.name) == Some(name)
        };
        table.raw().map(|(_, raw)| raw).find(is_it).map(|raw| raw.value)
    }

    /// Virtual address of the first byte that is mapped: 0 in libraries and in most programs.
    pub fn first_address(&self) -> u64 {
        let loaded = self.segments.iter().find(|s| s.p_type == PT_LOAD);
        loaded.map_or(0, |s| s.p_vaddr.wrapping_sub(s.p_offset))
    }

    /// Virtual address of an offset in the code.
    pub fn code_address(&self, offset: u64) -> Option<u64> {
        let code = self.segments.iter().filter(|s| s.p_type == PT_LOAD && s.p_flags & PF_X != 0);
        code.filter_map(|s| Some((s, offset.checked_sub(s.p_offset)?)))
            .find(|(s, inside)| *inside < s.p_filesz)
            .map(|(s, inside)| s.p_vaddr.wrapping_add(inside))
    }

    /// All functions that the file defines.
    pub fn functions(&self) -> Functions {
        self.functions_with(None)
    }

    /// All functions that the file defines, and those in the symbol table of its separate debug file.
    pub fn functions_with(&self, beside: Option<&ElfFile>) -> Functions {
        let mut symbols = self.symbols();
        if let Some(table) = beside.and_then(ElfFile::full_table) {
            symbols.extend(table.raw().filter_map(|(index, raw)| self.symbol(&table, index, &raw, &[])));
        }
        symbols.sort_unstable_by(|a, b| {
            (a.offset, a.rank, a.name.len(), a.name).cmp(&(b.offset, b.rank, b.name.len(), b.name))
        });
        let mut found = Functions::default();
        for same_place in symbols.chunk_by(|a, b| a.offset == b.offset) {
            found.extents.push((same_place[0].offset, same_place.iter().map(|s| s.size).max().unwrap_or(0)));
            found.list.push(function(same_place));
        }
        found.list.sort_unstable_by(|a, b| (&a.names[0], a.offset).cmp(&(&b.names[0], b.offset)));
        found.indices = (0..found.list.len()).collect();
        found.indices.sort_unstable_by_key(|index| found.list[*index].offset);
        found
    }

    /// The defined function symbols of both tables.
    fn symbols(&self) -> Vec<Symbol<'_>> {
        let version_names = self.version_names();
        let mut symbols = Vec::new();
        for table in self.tables().into_iter().flatten() {
            symbols.extend(
                table.raw().filter_map(|(index, raw)| self.symbol(&table, index, &raw, &version_names)),
            );
        }
        symbols
    }

    fn symbol<'a>(
        &'a self,
        table: &Table<'a>,
        index: usize,
        raw: &RawSymbol,
        version_names: &[(u16, &'a str)],
    ) -> Option<Symbol<'a>> {
        if !raw.is_function() {
            return None;
        }
        let offset = self.code_offset(raw.value)?;
        let written = c_string(table.strings, raw.name)?;
        // Linkers write `name@VERSION` into `.symtab` for versioned symbols.
        let (name, suffix) =
            written.split_once('@').map_or((written, None), |(n, v)| (n, Some(v.trim_start_matches('@'))));
        if name.is_empty() {
            return None;
        }
        let versym = if table.is_dynamic { self.versym(index) } else { None };
        let version = versym.and_then(|v| name_of_version(version_names, v & !VERSYM_HIDDEN)).or(suffix);
        let rank = match (table.is_dynamic, raw.info >> 4) {
            (true, _) => u8::from(versym.is_some_and(|v| v & VERSYM_HIDDEN != 0)),
            (false, STB_GLOBAL) => 2,
            (false, STB_WEAK) => 3,
            (false, _) => 4,
        };
        Some(Symbol { offset, size: raw.size, rank, name, version })
    }

    /// File offset of an address in executable memory.
    pub fn code_offset(&self, address: u64) -> Option<u64> {
        let holds = |s: &&ProgramHeader| s.p_type == PT_LOAD && s.p_flags & PF_X != 0;
        self.segments.iter().filter(holds).find_map(|segment| offset_in(segment, address))
    }

    /// File offset of any mapped address.
    pub fn data_offset(&self, address: u64) -> Option<usize> {
        let loaded = self.segments.iter().filter(|s| s.p_type == PT_LOAD);
        loaded.filter_map(|segment| offset_in(segment, address)).map(to_usize).next()
    }

    /// `.dynsym`, then `.symtab`.
    fn tables(&self) -> [Option<Table<'_>>; 2] {
        [self.dynamic_table(), self.full_table()]
    }

    fn dynamic_table(&self) -> Option<Table<'_>> {
        let start = self.dynamic.symbols?;
        let len = self.dynamic_symbol_count()?.checked_mul(SYM_SIZE)?;
        let entries = clamp(&self.bytes, start, len.min(MOST_SYMBOLS));
        let (at, size) = self.dynamic.strings?;
        Some(Table { entries, strings: clamp(&self.bytes, at, size.min(MOST_NAMES)), is_dynamic: true })
    }

    fn full_table(&self) -> Option<Table<'_>> {
        let section = self.sections.iter().find(|s| s.sh_type == SHT_SYMTAB)?;
        let strings = self.section_bytes(self.sections.get(section.sh_link as usize)?);
        let strings = clamp(strings, 0, MOST_NAMES);
        let entries = clamp(self.section_bytes(section), 0, MOST_SYMBOLS);
        Some(Table { entries, strings, is_dynamic: false })
    }

    /// Number of dynamic symbols. The dynamic table lacks it, so it comes from the section header or the hash
    /// tables.
    fn dynamic_symbol_count(&self) -> Option<usize> {
        let start = self.dynamic.symbols? as u64;
        let section = self.sections.iter().find(|s| s.sh_type == SHT_DYNSYM && s.sh_offset == start);
        section
            .map(|s| to_usize(s.sh_size) / SYM_SIZE)
            .or_else(|| Some(u32_at(&self.bytes, self.dynamic.hash?.checked_add(4)?)? as usize))
            .or_else(|| gnu_hash_count(clamp(&self.bytes, self.dynamic.gnu_hash?, MOST_SYMBOLS)))
    }

    fn read_dynamic(&self) -> Dynamic {
        let mut dynamic = Dynamic::default();
        let Some(segment) = self.segments.iter().find(|s| s.p_type == PT_DYNAMIC) else { return dynamic };
        let (mut strings_size, mut definitions) = (0, 0);
        for entry in
            clamp(&self.bytes, to_usize(segment.p_offset), to_usize(segment.p_filesz)).chunks_exact(DYN_SIZE)
        {
            let (Some(tag), Some(value)) = (u64_at(entry, 0), u64_at(entry, 8)) else { break };
            let number = to_usize(value);
            match tag {
                0 => break,
                DT_SYMTAB => dynamic.symbols = self.data_offset(value),
                DT_STRTAB => dynamic.strings = self.data_offset(value).map(|at| (at, 0)),
                DT_STRSZ => strings_size = number,
                DT_VERSYM => dynamic.versions = self.data_offset(value),
                DT_VERDEF => dynamic.version_definitions = self.data_offset(value).map(|at| (at, 0)),
                DT_VERDEFNUM => definitions = number,
                DT_HASH => dynamic.hash = self.data_offset(value),
                DT_GNU_HASH => dynamic.gnu_hash = self.data_offset(value),
                DT_SONAME => dynamic.soname = Some(number),
                DT_NEEDED => dynamic.needed.push(number),
                DT_RPATH => dynamic.rpath = Some(number),
                DT_RUNPATH => dynamic.runpath = Some(number),
                _ => {}
            }
        }
        dynamic.strings = dynamic.strings.map(|(at, _)| (at, strings_size));
        dynamic.version_definitions = dynamic.version_definitions.map(|(at, _)| (at, definitions));
        dynamic
    }

    fn dynamic_string(&self, at: usize) -> Option<&str> {
        let (start, size) = self.dynamic.strings?;
        c_string(clamp(&self.bytes, start, size), at)
    }

    /// Version index of a dynamic symbol. 0 (local) and 1 (global) are not versions.
    fn versym(&self, index: usize) -> Option<u16> {
        u16_at(&self.bytes, self.dynamic.versions?.checked_add(index.checked_mul(2)?)?)
    }

    /// Versions that the file defines, by index. The first is the name of the file itself, which no symbol has. In
    /// libcudart it has index 1, and the version of its symbols has the same name.
    fn version_names(&self) -> Vec<(u16, &str)> {
        let mut names = Vec::new();
        let Some((mut at, count)) = self.dynamic.version_definitions else { return names };
        for _ in 0..count {
            let Some(definition) = self.version_definition(at) else { break };
            names.extend(definition.name.map(|name| (definition.index, name)));
            if definition.next == 0 {
                break;
            }
            at = at.saturating_add(definition.next);
        }
        names
    }

    fn version_definition(&self, at: usize) -> Option<VersionDefinition<'_>> {
        let entry = self.bytes.get(at..)?;
        let name_entry = u32_at(entry, 12)? as usize;
        let name = u32_at(entry, name_entry).and_then(|name| self.dynamic_string(name as usize));
        Some(VersionDefinition { index: u16_at(entry, 4)?, next: u32_at(entry, 16)? as usize, name })
    }

    fn section(&self, name: &str) -> Option<&SectionHeader> {
        let names = self.section_bytes(self.sections.get(usize::from(self.section_names))?);
        self.sections.iter().find(|section| c_string(names, section.sh_name) == Some(name))
    }

    fn section_bytes(&self, section: &SectionHeader) -> &[u8] {
        match section.sh_type {
            SHT_NOBITS => &[],
            _ => clamp(&self.bytes, to_usize(section.sh_offset), to_usize(section.sh_size)),
        }
    }
}

const CTX: Ctx = Ctx { container: Container::Big, le: Endian::Little };

/// A symbol table with its string table.
struct Table<'a> {
    entries: &'a [u8],
    strings: &'a [u8],
    is_dynamic: bool,
}

impl<'a> Table<'a> {
    fn raw(&self) -> impl Iterator<Item = (usize, RawSymbol)> + use<'a> {
        self.entries
            .chunks_exact(SYM_SIZE)
            .map(RawSymbol::parse)
            .enumerate()
            .filter_map(|(i, raw)| Some((i, raw?)))
    }
}

/// An `Elf64_Verdef`.
struct VersionDefinition<'a> {
    index: u16,
    /// Distance to the next entry in bytes; 0 for the last.
    next: usize,
    name: Option<&'a str>,
}

fn check_identification(bytes: &[u8], path: &Path) -> Result<(), ElfError> {
    if !bytes.starts_with(ELFMAG) {
        return Err(ElfError::NotElf { path: path.into() });
    }
    let other = |found: &str| ElfError::OtherMachine {
        path: path.into(),
        found: found.into(),
        expected: THIS_MACHINE.1,
    };
    match (bytes.get(EI_CLASS), bytes.get(EI_DATA)) {
        (Some(&ELFCLASS64), Some(&ELFDATA2LSB)) => Ok(()),
        (Some(&ELFCLASS64), Some(_)) => Err(other("a big-endian file")),
        (Some(_), Some(_)) => Err(other("a 32-bit file")),
        _ => Err(ElfError::Damaged { path: path.into(), what: "its header is cut off".into() }),
    }
}

fn check_machine(header: &Header, path: &Path) -> Result<(), ElfError> {
    if header.e_machine == THIS_MACHINE.0 {
        return Ok(());
    }
    let found = match header.e_machine {
        EM_X86_64 => "an x86-64 file".into(),
        EM_AARCH64 => "an aarch64 file".into(),
        other => format!("a file for ELF machine {other}"),
    };
    Err(ElfError::OtherMachine { path: path.into(), found, expected: THIS_MACHINE.1 })
}

/// Creates a function from the symbols at its address, sorted by preference.
fn function(symbols: &[Symbol<'_>]) -> Function {
    let mut names: Vec<String> = Vec::with_capacity(1);
    for symbol in symbols {
        if !names.iter().any(|name| name == symbol.name) {
            names.push(symbol.name.to_owned());
        }
    }
    let version = symbols.iter().filter(|s| s.name == names[0]).find_map(|s| s.version);
    Function { version: version.map(str::to_owned), offset: symbols[0].offset, names }
}

fn name_of_version<'a>(names: &[(u16, &'a str)], index: u16) -> Option<&'a str> {
    // 0 and 1 are VER_NDX_LOCAL and VER_NDX_GLOBAL.
    names.iter().find(|(i, _)| *i == index && index > 1).map(|(_, name)| *name)
}

fn offset_in(segment: &ProgramHeader, address: u64) -> Option<u64> {
    let inside = address.checked_sub(segment.p_vaddr)?;
    (inside < segment.p_filesz).then(|| segment.p_offset.checked_add(inside))?
}

/// Number of symbols in a GNU hash table: the end of the chain of the highest bucket.
fn gnu_hash_count(table: &[u8]) -> Option<usize> {
    let buckets = u32_at(table, 0)? as usize;
    let first = u32_at(table, 4)? as usize;
    let bloom_words = u32_at(table, 8)? as usize;
    let buckets_at = 16usize.checked_add(bloom_words.checked_mul(8)?)?;
    let chains_at = buckets_at.checked_add(buckets.checked_mul(4)?)?;
    let heads = table.get(buckets_at..chains_at)?.chunks_exact(4);
    let mut last = heads.filter_map(|head| u32_at(head, 0)).max()? as usize;
    if last < first {
        return Some(first);
    }
    // The lowest bit of a chain entry marks the end of the chain.
    while u32_at(table, chains_at.checked_add((last - first).checked_mul(4)?)?)? & 1 == 0 {
        last += 1;
    }
    Some(last + 1)
}

/// The build id among the notes of a segment.
fn build_id_in(list: &[u8]) -> Option<&[u8]> {
    let is_build_id = |note: &Note| note.name == b"GNU\0" && note.kind == NT_GNU_BUILD_ID;
    notes(list).find(is_build_id).map(|note| note.data)
}

/// A note of a segment or section.
pub(crate) struct Note<'a> {
    /// Name with its NUL.
    pub name: &'a [u8],
    /// Type, whose meaning depends on the name.
    pub kind: u32,
    /// Contents.
    pub data: &'a [u8],
}

/// Notes up to the first malformed one.
pub(crate) fn notes(list: &[u8]) -> impl Iterator<Item = Note<'_>> {
    let mut list = clamp(list, 0, MOST_NOTES);
    let padded = |len: usize| len.checked_add(3).map(|len| len & !3);
    std::iter::from_fn(move || {
        let (name_len, len, kind) = (u32_at(list, 0)? as usize, u32_at(list, 4)? as usize, u32_at(list, 8)?);
        let name = list.get(12..name_len.checked_add(12)?)?;
        let data_at = padded(name_len)?.checked_add(12)?;
        let data = list.get(data_at..data_at.checked_add(len)?)?;
        list = list.get(data_at.checked_add(padded(len)?)?..).unwrap_or(&[]);
        Some(Note { name, kind, data })
    })
}

/// The part of `bytes[start..start + len]` that exists.
fn clamp(bytes: &[u8], start: usize, len: usize) -> &[u8] {
    let start = start.min(bytes.len());
    &bytes[start..start.saturating_add(len).min(bytes.len())]
}

pub(crate) fn c_string(strings: &[u8], at: usize) -> Option<&str> {
    let rest = strings.get(at..)?;
    std::str::from_utf8(&rest[..memchr::memchr(0, rest)?]).ok()
}

fn to_usize(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

fn array_at<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    array_at(bytes, at).map(u16::from_le_bytes)
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    array_at(bytes, at).map(u32::from_le_bytes)
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    array_at(bytes, at).map(u64::from_le_bytes)
}
