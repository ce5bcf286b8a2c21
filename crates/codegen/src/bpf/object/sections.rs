//! Sections of code, and the locations of functions in them.

use crate::bpf::code::{Assembly, Code};
use rustc_hash::FxHashMap;

/// Section of callbacks; libbpf appends them to the programs that refer to them.
pub(super) const TEXT: &str = ".text";

/// Assignment of functions to sections.
pub(super) struct Sections {
    /// Name of each section and indices of its functions, in the order of the file.
    pub list: Vec<(String, Vec<usize>)>,
    /// Offset of each function in its section, in bytes.
    pub offsets: Vec<u64>,
}

impl Sections {
    pub(super) fn of(assembly: &Assembly) -> Sections {
        let mut sections = Sections { list: Vec::new(), offsets: Vec::new() };
        let mut known: FxHashMap<&str, (usize, u64)> = FxHashMap::default();
        for (at, code) in assembly.codes.iter().enumerate() {
            let name = section(code);
            let (index, end) = known.entry(name).or_insert_with(|| {
                sections.list.push((name.to_owned(), Vec::new()));
                (sections.list.len() - 1, 0)
            });
            sections.list[*index].1.push(at);
            sections.offsets.push(*end);
            *end += u64::from(code.size());
        }
        sections
    }
}

pub(super) fn section(code: &Code) -> &str {
    code.section.as_deref().unwrap_or(TEXT)
}
