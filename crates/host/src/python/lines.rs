//! Tables of lines of code objects: the line of an instruction, in the three formats that CPython has had.
//!
//! Source: Objects/lnotab_notes.txt (3.9, 3.10) and InternalDocs/code_objects.md (from 3.11 on) of CPython.

/// The format of a table.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum LineFormat {
    /// 3.9: pairs of steps, of the offset and of the line. A step of the line is at the offset that has been reached.
    Lnotab,
    /// 3.10: pairs of the length of a range and of the step of its line; -128: the range has no line.
    Ranges,
    /// 3.11 and later: entries of several bytes, of which only the first has its upper bit set.
    Locations,
}

/// Size of a code unit in bytes.
const UNIT: u32 = 2;
/// Step of a range without a line.
const NO_LINE: i8 = -128;

/// The line of the instruction at an offset in bytes; `None` if it has none.
pub(super) fn line_of(format: LineFormat, table: &[u8], first_line: u32, offset: u32) -> Option<u32> {
    let line = match format {
        LineFormat::Lnotab => Some(by_steps(table, first_line, offset)),
        LineFormat::Ranges => by_ranges(table, first_line, offset),
        LineFormat::Locations => by_locations(table, first_line, offset),
    };
    line.and_then(|line| u32::try_from(line).ok())
}

fn pairs(table: &[u8]) -> impl Iterator<Item = (u32, i8)> {
    table.as_chunks::<2>().0.iter().map(|[length, step]| (u32::from(*length), *step as i8))
}

fn by_steps(table: &[u8], first_line: u32, offset: u32) -> i64 {
    let (mut at, mut line) = (0, i64::from(first_line));
    for (length, step) in pairs(table) {
        at += length;
        if at > offset {
            break;
        }
        line += i64::from(step);
    }
    line
}

fn by_ranges(table: &[u8], first_line: u32, offset: u32) -> Option<i64> {
    let (mut end, mut line) = (0, i64::from(first_line));
    for (length, step) in pairs(table) {
        end += length;
        if step != NO_LINE {
            line += i64::from(step);
        }
        if offset < end {
            return (step != NO_LINE).then_some(line);
        }
    }
    None
}

fn by_locations(table: &[u8], first_line: u32, offset: u32) -> Option<i64> {
    /// Codes of entries: without a line, and those whose line has a step of any size, with columns and without.
    const NONE: u8 = 15;
    const LONG: u8 = 14;
    const NO_COLUMNS: u8 = 13;
    /// Codes of entries whose step is 0 to 2.
    const STEPS: std::ops::RangeInclusive<u8> = 10..=12;
    let (mut end, mut line) = (0, i64::from(first_line));
    let mut rest = table;
    while let Some((head, behind)) = rest.split_first() {
        let code = head >> 3 & 15;
        let step = match code {
            LONG | NO_COLUMNS => signed(behind),
            code if STEPS.contains(&code) => i64::from(code - STEPS.start()),
            _ => 0,
        };
        line = line.saturating_add(step);
        end += (u32::from(head & 7) + 1) * UNIT;
        if offset < end {
            return (code != NONE).then_some(line);
        }
        let next = behind.iter().position(|byte| byte & 0x80 != 0).unwrap_or(behind.len());
        rest = &behind[next..];
    }
    None
}

/// A signed number: six bits in each byte, the lowest ones first, with the sign in the lowest bit.
fn signed(bytes: &[u8]) -> i64 {
    const MORE: u8 = 0x40;
    let mut number = 0u64;
    for (at, byte) in bytes.iter().enumerate().take(10) {
        number |= u64::from(byte & 0x3f) << (6 * at);
        if byte & MORE == 0 {
            break;
        }
    }
    let size = (number >> 1) as i64;
    if number & 1 == 1 { -size } else { size }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(format: LineFormat, table: &[u8], offsets: [u32; 5]) -> [Option<u32>; 5] {
        offsets.map(|offset| line_of(format, table, 10, offset))
    }

    #[test]
    fn steps_of_3_9_are_at_the_offset_that_they_reach() {
        // Line 11 from offset 4 on, line 9 from offset 8 on.
        let table = [4, 1, 4, 0xfe];
        assert_eq!(lines(LineFormat::Lnotab, &table, [0, 3, 4, 8, 500]), [10, 10, 11, 9, 9].map(Some));
    }

    #[test]
    fn ranges_of_3_10_may_have_no_line() {
        let table = [4, 1, 4, 0x80, 2, 0];
        let expected = [Some(11), Some(11), None, Some(11), None];
        assert_eq!(lines(LineFormat::Ranges, &table, [0, 3, 4, 8, 10]), expected);
    }

    #[test]
    fn locations_have_steps_of_several_forms() {
        // Three units in the line after the first; one without a line; one 40 lines before; two in the same.
        let back = 40 << 1 | 1;
        let table = [
            0x80 | 11 << 3 | 2,
            1,
            9,
            0x80 | 15 << 3,
            0x80 | 13 << 3,
            0x40 | (back & 0x3f),
            back >> 6,
            0x80 | 1,
            0,
        ];
        let expected = [Some(51), Some(51), None, Some(11), Some(11)];
        let found = [0, 5, 6, 8, 11].map(|offset| line_of(LineFormat::Locations, &table, 50, offset));
        assert_eq!(found, expected);
        assert_eq!(line_of(LineFormat::Locations, &table, 50, 14), None);
    }

    #[test]
    fn any_bytes_are_no_reason_to_fail() {
        // Steps of the line that are as large as can be.
        let steps = [0x80 | 13 << 3, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x3e].repeat(40);
        assert_eq!(line_of(LineFormat::Locations, &steps, 1, 70), None);
        for seed in 0..=255u8 {
            let table: Vec<u8> = (0..64u8).map(|at| at.wrapping_mul(seed).wrapping_add(seed)).collect();
            for format in [LineFormat::Lnotab, LineFormat::Ranges, LineFormat::Locations] {
                (0..200).for_each(|offset| _ = line_of(format, &table, 1, offset));
            }
        }
    }
}
