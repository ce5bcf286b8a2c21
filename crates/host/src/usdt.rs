//! Static tracepoints (USDT): the notes in `.note.stapsdt`, as `<sys/sdt.h>` emits them.
//!
//! A note has the address of a `nop`, the address of `.stapsdt.base` at link time, the address of a semaphore (0: none), and
//! three strings: provider, name, and arguments in the assembler's notation: `-4@%edi 8@-16(%rbp,%rax,8) 4@$7`. A prelinker moves
//! addresses but not notes, so the displacement of the base is added.
//!
//! Any bytes are acceptable input: a damaged note is left out, and an argument with an unknown location is
//! [`MarkerPlace::Unreadable`].

use lang::catalog::{Marker, MarkerArg, MarkerPlace};

use crate::elf::{ElfFile, c_string, notes, u64_at};

/// Section of the notes.
const SECTION: &str = ".note.stapsdt";
/// Section whose address gives the distance by which the file was relocated.
const BASE: &str = ".stapsdt.base";
/// Type of the notes.
const NT_STAPSDT: u32 = 3;

/// All markers of a file, in the order of their notes.
pub fn markers(elf: &ElfFile) -> Vec<Marker> {
    let list = elf.named_section(SECTION).unwrap_or_default();
    let ours = notes(list).filter(|note| note.name == b"stapsdt\0" && note.kind == NT_STAPSDT);
    ours.filter_map(|note| marker(elf, note.data)).collect()
}

fn marker(elf: &ElfFile, data: &[u8]) -> Option<Marker> {
    let (address, base, counter) = (u64_at(data, 0)?, u64_at(data, 8)?, u64_at(data, 16)?);
    let moved = match (base, elf.section_address(BASE)) {
        (0, _) | (_, None) => 0,
        (then, Some(now)) => now.wrapping_sub(then),
    };
    let texts = &data[24..];
    let provider = c_string(texts, 0)?;
    let name = c_string(texts, provider.len() + 1)?;
    let args = c_string(texts, provider.len() + name.len() + 2).unwrap_or("");
    let pc = address.wrapping_add(moved);
    let semaphore = match counter {
        0 => 0,
        counter => elf.data_offset(counter.wrapping_add(moved))? as u64,
    };
    let place = Operands { elf, pc, x86_64: elf.is_x86_64() };
    Some(Marker {
        provider: provider.to_owned(),
        name: name.to_owned(),
        offset: elf.code_offset(pc)?,
        semaphore,
        args: split(args).into_iter().map(|arg| place.arg(arg)).collect(),
    })
}

/// Splits the text into operands; blanks may also occur inside brackets.
fn split(args: &str) -> Vec<&str> {
    let (mut list, mut start, mut depth) = (Vec::new(), 0, 0i32);
    for (at, c) in args.char_indices().chain([(args.len(), ' ')]) {
        match c {
            '[' | '(' => depth += 1,
            ']' | ')' => depth -= 1,
            c if c.is_ascii_whitespace() && depth <= 0 => {
                list.push(&args[start..at]);
                start = at + c.len_utf8();
            }
            _ => {}
        }
    }
    list.retain(|arg| !arg.is_empty());
    list
}

/// Parser of assembler operands.
struct Operands<'e> {
    elf: &'e ElfFile,
    /// Address of the marker.
    pc: u64,
    x86_64: bool,
}

impl Operands<'_> {
    /// `-4@%edi`: size, negative if signed, and location.
    fn arg(&self, text: &str) -> MarkerArg {
        let (size, operand) = text.split_once('@').unwrap_or(("-8", text));
        let (bytes, signed) = match size.parse::<i8>() {
            Ok(size @ (1 | 2 | 4 | 8 | -1 | -2 | -4 | -8)) => (size.unsigned_abs(), size < 0),
            _ => (8, false),
        };
        let known = size.parse::<i8>().is_ok_and(|size| size.unsigned_abs() == bytes);
        let place = if self.x86_64 { self.x86_64(operand) } else { aarch64(operand) };
        let place = place.filter(|_| known).unwrap_or_else(|| MarkerPlace::Unreadable(text.to_owned()));
        MarkerArg { bytes, signed, place }
    }

    /// `$-5`, `%rax`, `-8(%rbp,%rax,4)`, `counter+4(%rip)`, `counter`
    fn x86_64(&self, operand: &str) -> Option<MarkerPlace> {
        if let Some(number) = operand.strip_prefix('$') {
            return number_of(number).map(MarkerPlace::Constant);
        }
        if operand.starts_with('%') {
            return x86_64_register(operand).map(MarkerPlace::Register);
        }
        let (displacement, registers) = match operand.split_once('(') {
            Some((displacement, rest)) => (displacement, rest.strip_suffix(')')?),
            None => (operand, ""),
        };
        let mut parts = registers.split(',').map(str::trim);
        let mut register = || match parts.next() {
            None | Some("") => Some(None),
            Some(name) => x86_64_register(name).map(Some),
        };
        let (base, index) = (register()?, register()?);
        let scale = parts.next().map_or(Some(1), |text| text.parse().ok())?;
        let index = index.map(|name| (name, scale));
        let named = number_of(displacement).is_none() && !displacement.is_empty();
        let offset = match (named, base.as_deref()) {
            (false, None) if index.is_none() => return None,
            (false, _) if displacement.is_empty() => 0,
            (false, _) => number_of(displacement)?,
            // Before the file is mapped, the address of a variable is known only relative to this instruction.
            (true, None | Some("ip")) if index.is_none() => {
                self.variable(displacement)?.wrapping_sub(self.pc) as i64
            }
            (true, _) => return None,
        };
        let base = base.or_else(|| named.then(|| "ip".to_owned()));
        Some(MarkerPlace::Memory { base, index, offset })
    }

    /// `counter+4`
    fn variable(&self, text: &str) -> Option<u64> {
        let at = text[1..].find(['+', '-']).map_or(text.len(), |at| at + 1);
        let (name, offset) = text.split_at(at);
        let offset = if offset.is_empty() { 0 } else { number_of(offset)? };
        Some(self.elf.symbol_of(name)?.0.wrapping_add_signed(offset))
    }
}

/// `5`, `-8`, `+4`, `0x10`
fn number_of(text: &str) -> Option<i64> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let value = match digits.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok()?,
        None => digits.parse::<u64>().ok()?,
    };
    Some(if negative { (value as i64).wrapping_neg() } else { value as i64 })
}

/// Registers of x86-64 by the name in `reg`, with the names of their low parts: 64, 32, 16 and 8 bits.
const X86_64: [(&str, [&str; 4]); 8] = [
    ("ax", ["rax", "eax", "ax", "al"]),
    ("bx", ["rbx", "ebx", "bx", "bl"]),
    ("cx", ["rcx", "ecx", "cx", "cl"]),
    ("dx", ["rdx", "edx", "dx", "dl"]),
    ("si", ["rsi", "esi", "si", "sil"]),
    ("di", ["rdi", "edi", "di", "dil"]),
    ("bp", ["rbp", "ebp", "bp", "bpl"]),
    ("sp", ["rsp", "esp", "sp", "spl"]),
];

/// `%eax`. `%ah` and similar registers have no name in `reg`.
fn x86_64_register(text: &str) -> Option<String> {
    let name = text.strip_prefix('%')?;
    if let Some((register, _)) = X86_64.iter().find(|(_, parts)| parts.contains(&name)) {
        return Some((*register).to_owned());
    }
    if name == "rip" || name == "eip" {
        return Some("ip".into());
    }
    let number = name.strip_prefix('r')?.trim_end_matches(['d', 'w', 'b']);
    (8..=15).contains(&number.parse::<u8>().ok()?).then(|| format!("r{number}"))
}

/// `5`, `x0`, `w3`, `[sp, 16]`, `[x0, x1]`
fn aarch64(operand: &str) -> Option<MarkerPlace> {
    if let Some(number) = number_of(operand.trim_start_matches('#')) {
        return Some(MarkerPlace::Constant(number));
    }
    let Some(inside) = operand.strip_prefix('[') else {
        return aarch64_register(operand).map(MarkerPlace::Register);
    };
    let mut parts = inside.strip_suffix(']')?.split(',').map(str::trim);
    let base = aarch64_register(parts.next()?)?;
    let (index, offset) = match parts.next() {
        None => (None, 0),
        Some(text) => match number_of(text.trim_start_matches('#')) {
            Some(offset) => (None, offset),
            None => (Some((aarch64_register(text)?, 1)), 0),
        },
    };
    parts.next().is_none().then_some(MarkerPlace::Memory { base: Some(base), index, offset })
}

fn aarch64_register(name: &str) -> Option<String> {
    if name == "sp" {
        return Some("sp".into());
    }
    let number = name.strip_prefix(['x', 'w'])?;
    (number.parse::<u8>().ok()? <= 30).then(|| format!("r{number}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(base: &str, index: Option<(&str, u8)>, offset: i64) -> MarkerPlace {
        let index = index.map(|(name, scale)| (name.to_owned(), scale));
        MarkerPlace::Memory { base: Some(base.into()), index, offset }
    }

    fn x86_64(text: &str) -> MarkerArg {
        let path = std::env::current_exe().expect("a program");
        let elf = ElfFile::open(&path).expect("this program is an ELF file");
        Operands { elf: &elf, pc: 0, x86_64: true }.arg(text)
    }

    #[test]
    fn values_are_split_at_blanks_outside_of_brackets() {
        assert_eq!(split("-4@%edi 8@[sp, 16]  1@(%rax, %rcx)"), ["-4@%edi", "8@[sp, 16]", "1@(%rax, %rcx)"]);
        assert_eq!(split(""), Vec::<&str>::new());
        assert_eq!(split(") ] x"), [")", "]", "x"]);
    }

    #[test]
    fn sizes_and_signs() {
        for (text, bytes, signed) in [("-4@%edi", 4, true), ("8@%rdi", 8, false), ("1@%dil", 1, false)] {
            let arg = x86_64(text);
            assert_eq!((arg.bytes, arg.signed), (bytes, signed), "{text}");
            assert_eq!(arg.place, MarkerPlace::Register("di".into()));
        }
    }

    #[test]
    fn operands_of_x86_64() {
        assert_eq!(x86_64("-4@$-5").place, MarkerPlace::Constant(-5));
        assert_eq!(x86_64("8@$0x10").place, MarkerPlace::Constant(16));
        assert_eq!(x86_64("4@%r10d").place, MarkerPlace::Register("r10".into()));
        assert_eq!(x86_64("-8@-16(%rbp)").place, memory("bp", None, -16));
        assert_eq!(x86_64("8@(%rax)").place, memory("ax", None, 0));
        assert_eq!(x86_64("2@8(%rax,%rbx,4)").place, memory("ax", Some(("bx", 4)), 8));
        assert_eq!(x86_64("2@8(%rip)").place, memory("ip", None, 8));
        for text in ["8f@%xmm0", "4@%ah", "4@nothing(%rip)", "16@%rax", "4@-8(%rbp", "4@", "@", "x", "4@%r16"]
        {
            assert_eq!(x86_64(text).place, MarkerPlace::Unreadable(text.into()), "{text}");
        }
    }

    #[test]
    fn operands_of_aarch64() {
        assert_eq!(aarch64("-3"), Some(MarkerPlace::Constant(-3)));
        assert_eq!(aarch64("w3"), Some(MarkerPlace::Register("r3".into())));
        assert_eq!(aarch64("[sp, 60]"), Some(memory("sp", None, 60)));
        assert_eq!(aarch64("[x0, x1]"), Some(memory("r0", Some(("r1", 1)), 0)));
        for text in ["v0", "[x0", "[x0, x1, lsl 3]", "x31", ""] {
            assert_eq!(aarch64(text), None, "{text}");
        }
    }
}
