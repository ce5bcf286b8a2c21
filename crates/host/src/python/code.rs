//! Code objects: the name and the file of a function, and its lines.

use super::layout::CodeLayout;
use super::lines::{LineFormat, line_of};
use super::memory::Memory;

/// Largest number of characters of a name or path that are read.
const CHARACTERS: u64 = 4096;
/// Largest table of lines, in bytes.
const TABLE: u64 = 16 << 20;

/// `length` of texts and `ob_size` of bytes.
const LENGTH: u64 = 16;
/// `state` of texts.
const STATE: u64 = 32;
/// Head of bytes.
const BYTES_HEAD: u64 = 32;

/// A function, or another piece of code such as a module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Code {
    /// `Trainer.step`; before Python 3.11 without the class: `step`.
    pub name: String,
    /// Path of the source.
    pub file: String,
    /// The line of its `def`.
    pub first_line: u32,
    /// Offset of the first instruction of the source, in bytes: those before it begin the function.
    first_traceable: u32,
    lines: Vec<u8>,
    line_format: LineFormat,
}

impl Code {
    /// Reads the object at an address; without its table of lines if that is not there and not needed.
    pub(super) fn read(
        memory: &Memory,
        layout: &CodeLayout,
        address: u64,
        needs_lines: bool,
    ) -> Option<Code> {
        let text = |at: u64| text(memory, layout, memory.u64(address, at)?);
        Some(Code {
            name: text(layout.name)?,
            file: text(layout.file)?,
            first_line: memory.u32(address, layout.first_line)?,
            first_traceable: match layout.first_traceable {
                Some(at) => memory.u32(address, at)?.saturating_mul(wire::python::UNIT),
                None => 0,
            },
            lines: bytes(memory, memory.u64(address, layout.lines)?).or((!needs_lines).then(Vec::new))?,
            line_format: layout.line_format,
        })
    }

    /// Whether a function that executes the instruction at an offset has not begun yet: Python itself shows no such frame.
    pub fn is_before_begin(&self, offset: Option<u32>) -> bool {
        offset.is_none_or(|offset| offset < self.first_traceable)
    }

    /// The line of the instruction at an offset in bytes; `None` if it has none.
    pub fn line(&self, offset: u32) -> Option<u32> {
        line_of(self.line_format, &self.lines, self.first_line, offset)
    }
}

/// Reads a text. Its characters follow its head.
fn text(memory: &Memory, layout: &CodeLayout, address: u64) -> Option<String> {
    let length = memory.u64(address, LENGTH)?.min(CHARACTERS);
    // Bits: 2 of interning, 3 of the size of a character, whether the characters are here, whether all are ASCII.
    let state = memory.u32(address, STATE)?;
    let (size, is_compact, is_ascii) = (state >> 2 & 7, state >> 5 & 1 == 1, state >> 6 & 1 == 1);
    if !is_compact {
        return None;
    }
    let [ascii, other] = layout.text_heads;
    let mut bytes = vec![0; (length * u64::from(size)) as usize];
    let head = if is_ascii { ascii } else { other };
    memory.read(address, head, &mut bytes).then_some(())?;
    let characters: Vec<u32> = match size {
        1 => bytes.into_iter().map(u32::from).collect(),
        2 => bytes.as_chunks::<2>().0.iter().map(|pair| u32::from(u16::from_le_bytes(*pair))).collect(),
        4 => bytes.as_chunks::<4>().0.iter().map(|four| u32::from_le_bytes(*four)).collect(),
        _ => return None,
    };
    Some(
        characters
            .into_iter()
            .map(|one| char::from_u32(one).unwrap_or(char::REPLACEMENT_CHARACTER))
            .collect(),
    )
}

/// Reads an object of bytes.
fn bytes(memory: &Memory, address: u64) -> Option<Vec<u8>> {
    let length = memory.u64(address, LENGTH)?;
    if length > TABLE {
        return None;
    }
    let mut bytes = vec![0; length as usize];
    memory.read(address, BYTES_HEAD, &mut bytes).then_some(bytes)
}
