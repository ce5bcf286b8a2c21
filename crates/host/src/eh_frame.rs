//! `.eh_frame` of a mapped file as rows that a BPF program can search (`wire::unwind`).
//!
//! ```text
//! FDE main 1000..1040:                         rows:
//!   1000: CFA=rsp+8   ra=c-8                   1000  sp+8   bp kept
//!   1001: CFA=rsp+16  rbp=c-16 ra=c-8          1001  sp+16  bp 2 words below
//!   1004: CFA=rbp+16  rbp=c-16 ra=c-8          1004  bp+16  bp 2 words below
//! ```
//!
//! A row has only what leads to the caller: its stack pointer, its frame pointer, and the location of the return address.
//! Expressions are supported where compilers and linkers emit them: PLT entries, functions that align their stack, the kernel's
//! signal frame. Other expressions become a row that ends the walk with that reason.
//!
//! Not here: layout and search of rows (`wire`), when a file is read.

use std::collections::HashMap;
use std::fs::File;
use std::path::Path;

use gimli::{
    BaseAddresses, CfaRule, CieOrFde, CommonInformationEntry, EhFrame, EndianSlice, FrameDescriptionEntry,
    LittleEndian, Register, RegisterRule, UnwindContext, UnwindExpression, UnwindSection, UnwindTableRow,
    X86_64,
};
use goblin::elf::ProgramHeader;
use wire::unwind::{Base, Rule, SavedBp, row, row_address};

use crate::elf::{ElfFile, SectionPlace};
use linux::proc::{self, Mapping, MappingName};

/// Shorter gaps between functions are treated as alignment padding, in bytes.
const PADDING: u64 = 16;

type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// A mapped file with unwind information.
#[derive(Debug)]
pub struct Source {
    elf: ElfFile,
    segments: Segments,
    /// The place of `.eh_frame`.
    section: SectionPlace,
}

/// The code segments of a file.
#[derive(Clone, Debug)]
pub struct Segments(Vec<ProgramHeader>);

impl Segments {
    /// The difference between an address in a mapping of `offset` at `start` and the address in the file.
    pub fn bias(&self, start: u64, offset: u64) -> Option<u64> {
        let holds = |segment: &&ProgramHeader| {
            let first = segment.p_offset & !0xfff;
            (first..segment.p_offset.saturating_add(segment.p_filesz.max(1))).contains(&offset)
        };
        let segment = self.0.iter().filter(|segment| segment.is_executable()).find(holds)?;
        Some(start.wrapping_sub(offset).wrapping_add(segment.p_offset).wrapping_sub(segment.p_vaddr))
    }
}

impl Source {
    /// The mapped object: a file, or the kernel's `[vdso]`. `None` without unwind information.
    pub fn open(pid: u32, mapping: &Mapping) -> Option<Source> {
        match &mapping.name {
            MappingName::Special(name) if name == "[vdso]" => {
                Source::of(ElfFile::parse(own_vdso()?, Path::new("[vdso]")).ok()?)
            }
            MappingName::Anonymous | MappingName::Special(_) => None,
            _ => Source::of_file(&crate::stack::open_mapped(pid, mapping)?),
        }
    }

    /// The source for an ELF file.
    pub fn of_file(file: &File) -> Option<Source> {
        Source::of(ElfFile::of_file(file, Path::new("")).ok()?)
    }

    fn of(elf: ElfFile) -> Option<Source> {
        let section = elf.section_place(".eh_frame")?;
        elf.bytes().get(section.offset..section.offset.checked_add(section.size)?)?;
        let segments = Segments(elf.loaded_segments().cloned().collect());
        Some(Source { elf, segments, section })
    }

    /// Size of the unwind information in bytes.
    pub fn len(&self) -> usize {
        self.section.size
    }

    /// Whether there is no unwind information.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The code segments.
    pub fn segments(&self) -> &Segments {
        &self.segments
    }

    /// All rows, sorted by address. Entries that cannot be parsed are skipped.
    pub fn rows(&self) -> Vec<u64> {
        let SectionPlace { offset, size, address } = self.section;
        let section = EhFrame::new(&self.elf.bytes()[offset..offset + size], LittleEndian);
        let bases = BaseAddresses::default().set_eh_frame(address);
        let mut reader = Reader { section, bases, context: UnwindContext::new(), rows: Vec::new() };
        reader.read();
        tidy(reader.rows)
    }
}

struct Reader<'a> {
    section: EhFrame<Slice<'a>>,
    bases: BaseAddresses,
    context: UnwindContext<usize>,
    rows: Vec<u64>,
}

impl<'a> Reader<'a> {
    fn read(&mut self) {
        let mut common: HashMap<usize, CommonInformationEntry<Slice<'a>>> = HashMap::new();
        let (section, bases) = (self.section, self.bases.clone());
        let mut entries = section.entries(&bases);
        while let Ok(Some(entry)) = entries.next() {
            let CieOrFde::Fde(partial) = entry else { continue };
            let parsed = partial.parse(|section, bases, offset| match common.get(&offset.0) {
                Some(known) => Ok(known.clone()),
                None => {
                    let read = section.cie_from_offset(bases, offset)?;
                    common.insert(offset.0, read.clone());
                    Ok(read)
                }
            });
            if let Ok(fde) = parsed {
                self.function(&fde);
            }
        }
    }

    /// Appends the rows of a function, and a row that ends it.
    fn function(&mut self, fde: &FrameDescriptionEntry<Slice<'a>>) {
        let end = fde.initial_address().saturating_add(fde.len());
        // Rows cannot hold this address; 0 marks functions that the linker has removed.
        if fde.initial_address() == 0 || end >= u64::from(u32::MAX) {
            return;
        }
        if fde.is_signal_trampoline() {
            let rule = Rule::Frame { base: Base::Signal, offset: 0, bp: SavedBp::Kept };
            self.rows.push(row(fde.initial_address() as u32, rule));
        } else {
            self.instructions(fde);
        }
        self.rows.push(row(end as u32, Rule::Unknown));
    }

    fn instructions(&mut self, fde: &FrameDescriptionEntry<Slice<'a>>) {
        let Ok(mut table) = fde.rows(&self.section, &self.bases, &mut self.context) else { return };
        while let Ok(Some(found)) = table.next_row() {
            if found.start_address() < found.end_address() {
                let rule = rule(&self.section, found);
                self.rows.push(row(found.start_address() as u32, rule));
            }
        }
    }
}

fn rule(section: &EhFrame<Slice<'_>>, found: &UnwindTableRow<usize>) -> Rule {
    match found.register(X86_64::RA) {
        Some(RegisterRule::Undefined) => return Rule::Outermost,
        Some(RegisterRule::Offset(-8)) => {}
        _ => return Rule::Unsupported,
    }
    let Some((base, offset)) = base(section, found.cfa()) else { return Rule::Unsupported };
    let Some(bp) = saved_bp(section, found.register(X86_64::RBP)) else { return Rule::Unsupported };
    Rule::Frame { base, offset, bp }
}

fn base(section: &EhFrame<Slice<'_>>, cfa: &CfaRule<usize>) -> Option<(Base, i32)> {
    match cfa {
        CfaRule::RegisterAndOffset { register, offset } => {
            Some((base_register(*register)?, i32::try_from(*offset).ok()?))
        }
        CfaRule::Expression(expression) => base_expression(bytes(section, expression)?),
    }
}

fn base_register(register: Register) -> Option<Base> {
    match register {
        X86_64::RSP => Some(Base::Sp),
        X86_64::RBP => Some(Base::Bp),
        _ => None,
    }
}

/// Matches the expressions that compilers and linkers emit.
fn base_expression(bytes: &[u8]) -> Option<(Base, i32)> {
    match *bytes {
        // breg7 8; breg16 0; lit15; and; litN; ge; lit3; shl; plus: a PLT entry, which pushes a word at byte N.
        [0x77, 8, 0x80, 0, 0x3f, 0x1a, lit @ 0x30..=0x4f, 0x2a, 0x33, 0x24, 0x22] => {
            Some((Base::Plt, i32::from(lit - 0x30)))
        }
        // breg6 N; deref: the stack pointer was saved before it was aligned. N is one byte of SLEB128.
        [0x76, offset @ 0..=0x7f, 0x06] => Some((Base::AtBp, i32::from((offset << 1) as i8 >> 1))),
        _ => None,
    }
}

fn saved_bp(section: &EhFrame<Slice<'_>>, rule: Option<RegisterRule<usize>>) -> Option<SavedBp> {
    match rule {
        None | Some(RegisterRule::Undefined | RegisterRule::SameValue) => Some(SavedBp::Kept),
        Some(RegisterRule::Offset(offset)) if offset < 0 && offset % 8 == 0 => {
            u8::try_from(-offset / 8).ok().filter(|words| *words < u8::MAX).map(SavedBp::Below)
        }
        // breg6 0: at the address in the frame pointer.
        Some(RegisterRule::Expression(expression)) => {
            (bytes(section, &expression)? == [0x76, 0]).then_some(SavedBp::AtBp)
        }
        _ => None,
    }
}

fn bytes<'a>(section: &EhFrame<Slice<'a>>, expression: &UnwindExpression<usize>) -> Option<&'a [u8]> {
    Some(expression.get(section).ok()?.0.slice())
}

/// Sorts the rows. Of several rows at one address, one with a rule wins. Rows for alignment padding and repeated
/// rules are removed.
fn tidy(mut rows: Vec<u64>) -> Vec<u64> {
    const RULE: u64 = u32::MAX as u64;
    rows.sort_unstable();
    let mut tidy: Vec<u64> = Vec::with_capacity(rows.len());
    for (at, &this) in rows.iter().enumerate() {
        let gap = rows.get(at + 1).map_or(u64::MAX, |next| u64::from(row_address(*next) - row_address(this)));
        let is_padding = this & RULE == 0 && gap < PADDING;
        let repeats = tidy.last().is_some_and(|last| last & RULE == this & RULE);
        match tidy.last_mut() {
            _ if is_padding || repeats => {}
            Some(last) if row_address(*last) == row_address(this) => *last = this,
            _ => tidy.push(this),
        }
    }
    tidy
}

/// The vdso of this process; the kernel maps the same one into every process.
fn own_vdso() -> Option<Vec<u8>> {
    let mappings = proc::mappings(std::process::id());
    let vdso = mappings.iter().find(|m| m.name == MappingName::Special("[vdso]".into()))?;
    let len = usize::try_from(vdso.end - vdso.start).ok()?;
    // SAFETY: mapped, readable, and never changed or unmapped.
    Some(unsafe { std::slice::from_raw_parts(vdso.start as *const u8, len) }.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_expressions_of_linkers_and_compilers_are_understood() {
        let plt = [0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22];
        assert_eq!(base_expression(&plt), Some((Base::Plt, 11)));
        assert_eq!(base_expression(&[0x76, 0x78, 0x06]), Some((Base::AtBp, -8)));
        assert_eq!(base_expression(&[0x77, 8]), None);
    }

    #[test]
    fn rows_at_one_address_padding_and_repetitions_go() {
        let known = Rule::Frame { base: Base::Sp, offset: 8, bp: SavedBp::Kept };
        let other = Rule::Frame { base: Base::Sp, offset: 16, bp: SavedBp::Kept };
        let rows = vec![
            row(0x40, Rule::Unknown),
            row(0x10, known),
            row(0x14, other),
            row(0x20, Rule::Unknown),
            row(0x20, known),
            row(0x28, Rule::Unknown),
            row(0x30, known),
        ];
        let expected = [row(0x10, known), row(0x14, other), row(0x20, known), row(0x40, Rule::Unknown)];
        assert_eq!(tidy(rows), expected);
    }

    #[test]
    fn the_vdso_and_our_own_program_have_rows() {
        let own = proc::mappings(std::process::id());
        let here = the_vdso_and_our_own_program_have_rows as *const () as u64;
        for mapping in own.iter().filter(|m| m.executable) {
            let is_ours = (mapping.start..mapping.end).contains(&here);
            if is_ours || mapping.name == MappingName::Special("[vdso]".into()) {
                let source = Source::open(std::process::id(), mapping).expect("unwind information");
                let rows = source.rows();
                assert!(rows.len() > 5 && rows.is_sorted(), "{mapping:?}");
                let bias = source.segments().bias(mapping.start, mapping.offset).expect("a segment");
                let known = |at: u64| rows.iter().rev().find(|row| u64::from(row_address(**row)) <= at);
                let found = is_ours.then(|| known(here - bias).expect("a row"));
                assert!(found.is_none_or(|row| row & 0xf != 0), "{found:?}");
            }
        }
    }
}
