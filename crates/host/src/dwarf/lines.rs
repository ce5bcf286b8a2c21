//! Line tables: the code of each line of a source file, over all units.

use std::path::PathBuf;

use gimli::{AttributeValue, Dwarf, LineProgramHeader, Unit};

use super::{Debug, Slice};

impl Debug {
    /// Lines of a source file, with the addresses where code for them begins. `source` is the end of a path.
    pub(crate) fn lines_of(&self, source: &str) -> Vec<(u64, u64)> {
        let dwarf = self.dwarf();
        let mut lines = Vec::new();
        let mut headers = dwarf.units();
        while let Ok(Some(header)) = headers.next() {
            if let Ok(unit) = dwarf.unit(header) {
                // If the program is damaged, the rows before the damage are used.
                let _ = add_lines(&dwarf, &unit, source, &mut lines);
            }
        }
        lines
    }
}

fn add_lines(
    dwarf: &Dwarf<Slice<'_>>,
    unit: &Unit<Slice<'_>>,
    source: &str,
    lines: &mut Vec<(u64, u64)>,
) -> gimli::Result<()> {
    let Some(program) = unit.line_program.clone() else { return Ok(()) };
    let wanted = files_named(dwarf, unit, program.header(), source);
    if wanted.is_empty() {
        return Ok(());
    }
    let mut rows = program.rows();
    let mut before = None;
    while let Some((_, row)) = rows.next_row()? {
        let line = row.line().filter(|_| !row.end_sequence() && wanted.contains(&row.file_index()));
        let line = line.map(std::num::NonZeroU64::get);
        // Functions that the linker has removed have the address 0.
        if let Some(line) = line.filter(|_| row.is_stmt() && line != before && row.address() != 0) {
            lines.push((line, row.address()));
        }
        before = line;
    }
    Ok(())
}

/// Numbers of the files of a unit whose paths end with `source`.
fn files_named<'d>(
    dwarf: &Dwarf<Slice<'d>>,
    unit: &Unit<Slice<'d>>,
    header: &LineProgramHeader<Slice<'d>>,
    source: &str,
) -> Vec<u64> {
    let text = |value: AttributeValue<Slice<'d>>| {
        dwarf
            .attr_string(unit, value)
            .map_or_else(|_| PathBuf::new(), |text| text.to_string_lossy().as_ref().into())
    };
    // Before DWARF 5 files are numbered from 1.
    let first = u64::from(header.version() < 5);
    let mut numbers = Vec::new();
    for (number, entry) in (first..).zip(header.file_names()) {
        let folder = entry.directory(header).map_or_else(PathBuf::new, text);
        if folder.join(text(entry.path_name())).ends_with(source) {
            numbers.push(number);
        }
    }
    numbers
}
