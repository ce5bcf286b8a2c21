//! `.BTF.ext`: the function and the script position of each instruction. The verifier's log,
//! `bpftool prog dump` and profilers print it.
//!
//! Source: `struct btf_ext_header`, `bpf_func_info` and `bpf_line_info` of libbpf and `linux/bpf.h`.

use super::btf::{Btf, TypeId};
use super::sections::Sections;
use crate::bpf::code::{Assembly, Code};
use lang::{Source, Span};
use rustc_hash::FxHashMap;

const MAGIC: u16 = 0xeb9f;
const VERSION: u8 = 1;
const HEADER: u32 = 24;
const FUNC_RECORD: u32 = 8;
const LINE_RECORD: u32 = 16;
/// Largest column: the field has 10 bits.
const MAX_COLUMN: u32 = 1023;
/// Largest number of characters that are quoted of a line; the verifier log repeats them with each statement.
const MAX_QUOTE: usize = 160;

/// Writes the section. Script names and lines become strings of `btf`.
pub(super) fn write(
    btf: &mut Btf,
    assembly: &Assembly,
    sections: &Sections,
    funcs: &[TypeId],
    src: &Source,
) -> Vec<u8> {
    let mut lines = Lines::new(btf, src);
    let mut func_info = FUNC_RECORD.to_le_bytes().to_vec();
    let mut line_info = LINE_RECORD.to_le_bytes().to_vec();
    for (section, codes) in &sections.list {
        let name = lines.btf.string(section);
        let funcs = codes.iter().map(|&at| [sections.offsets[at] as u32, funcs[at].0]);
        append(&mut func_info, name, &funcs.collect::<Vec<_>>());
        let records = codes.iter().flat_map(|&at| lines.of(&assembly.codes[at], sections.offsets[at]));
        append(&mut line_info, name, &records.collect::<Vec<_>>());
    }
    header(func_info, line_info)
}

fn header(func_info: Vec<u8>, line_info: Vec<u8>) -> Vec<u8> {
    let (funcs, lines) = (func_info.len() as u32, line_info.len() as u32);
    let mut out = MAGIC.to_le_bytes().to_vec();
    out.extend([VERSION, 0]);
    for word in [HEADER, 0, funcs, funcs, lines] {
        out.extend(word.to_le_bytes());
    }
    out.extend(func_info);
    out.extend(line_info);
    out
}

/// Appends the records of a section.
fn append<const N: usize>(out: &mut Vec<u8>, section: u32, records: &[[u32; N]]) {
    out.reserve(4 * (2 + N * records.len()));
    let words = [section, records.len() as u32].into_iter().chain(records.iter().flatten().copied());
    words.for_each(|word| out.extend(word.to_le_bytes()));
}

struct Lines<'a> {
    btf: &'a mut Btf,
    src: &'a Source,
    file: u32,
    /// Location of a span by its start. The programs of a clause share spans.
    known: FxHashMap<u32, [u32; 3]>,
}

impl<'a> Lines<'a> {
    fn new(btf: &'a mut Btf, src: &'a Source) -> Lines<'a> {
        let file = btf.string(&src.name);
        Lines { btf, src, file, known: FxHashMap::default() }
    }

    /// Records of a function: one for the first instruction, and one wherever the location changes.
    fn of(&mut self, code: &Code, start: u64) -> Vec<[u32; 4]> {
        let mut records: Vec<[u32; 4]> = Vec::new();
        let mut last = None;
        for (at, span) in code.spans.iter().enumerate() {
            if last.replace(span.start) != Some(span.start) {
                let [file, line, column] = self.place(*span);
                if records.last().is_none_or(|last| last[1..] != [file, line, column]) {
                    records.push([start as u32 + code.offsets[at], file, line, column]);
                }
            }
        }
        records
    }

    /// File, text, and line with column.
    fn place(&mut self, span: Span) -> [u32; 3] {
        if let Some(&place) = self.known.get(&span.start) {
            return place;
        }
        let (line, column) = self.src.line_column(span.start);
        let text = quote(self.src.line_at(span.start), self.src.in_line(span.start));
        let place = [self.file, self.btf.string(text), line << 10 | column.min(MAX_COLUMN)];
        self.known.insert(span.start, place);
        place
    }
}

/// The line; for a long line the part that begins at this byte.
fn quote(line: &str, from: usize) -> &str {
    match start_of(line, MAX_QUOTE) {
        whole if whole.len() == line.len() => line.trim(),
        _ => start_of(line.get(from..).unwrap_or(""), MAX_QUOTE).trim(),
    }
}

/// At most this number of characters from the start of the text.
fn start_of(text: &str, chars: usize) -> &str {
    let longer = (text.len() > chars).then(|| text.char_indices().nth(chars)).flatten();
    longer.map_or(text, |(at, _)| &text[..at])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_line_is_quoted_from_the_statement_on() {
        assert_eq!(quote("  @ = count()", 2), "@ = count()");
        let long = format!("{}@x = 1; {}", "é".repeat(300), "y".repeat(300));
        assert!(quote(&long, 600).starts_with("@x = 1; y"));
        assert_eq!(quote(&long, 600).chars().count(), MAX_QUOTE);
    }
}
