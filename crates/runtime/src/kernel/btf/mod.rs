//! Looks up functions and fields of the kernel in its BTF: whether a function is there, how many parameters it has, where a
//! field lies in its struct, what a tracepoint passes on.
//!
//! libbpf can do that too, after parsing all 150 000 types into an index; one pass over the bytes takes a tenth of the
//! time and no memory of its own where the kernel lets its BTF be mapped (6.15+).
//!
//! Format: Documentation/bpf/btf.rst of the kernel.

mod spell;
mod types;

use crate::kernel::sys::MemoryMapping;
pub use spell::variable;
use std::fs::File;
use std::os::fd::AsFd;
use std::sync::OnceLock;
use types::All;
pub use types::{Field, Kind, Type};

const VMLINUX: &str = "/sys/kernel/btf/vmlinux";
const MAGIC: u16 = 0xeb9f;

// Kinds of types, by their number (Documentation/bpf/btf.rst).
const KIND_INT: u32 = 1;
const KIND_POINTER: u32 = 2;
const KIND_ARRAY: u32 = 3;
const KIND_STRUCT: u32 = 4;
const KIND_UNION: u32 = 5;
const KIND_ENUM: u32 = 6;
const KIND_FORWARD: u32 = 7;
const KIND_TYPEDEF: u32 = 8;
const KIND_VOLATILE: u32 = 9;
const KIND_CONST: u32 = 10;
const KIND_RESTRICT: u32 = 11;
const KIND_FUNC: u32 = 12;
const KIND_PROTOTYPE: u32 = 13;
const KIND_VARIABLE: u32 = 14;
const KIND_SECTION: u32 = 15;
const KIND_FLOAT: u32 = 16;
const KIND_DECLARATION_TAG: u32 = 17;
const KIND_TYPE_TAG: u32 = 18;
const KIND_ENUM64: u32 = 19;

/// The kernel has BTF.
pub fn is_there() -> bool {
    std::path::Path::new(VMLINUX).exists()
}

/// Number of parameters of a kernel function; none: no such function, or no BTF.
pub fn kernel_function_params(name: &str) -> Option<u32> {
    with_kernel(|btf| function_params(btf, name))
}

/// Where fields lie in structs of the kernel, in bytes: `("task_struct", "utask")`. None if one of them is not there.
pub fn kernel_fields<const N: usize>(fields: [(&str, &str); N]) -> Option<[u32; N]> {
    with_kernel(|btf| {
        let found: Option<Vec<u32>> = fields.iter().map(|(of, field)| field_offset(btf, of, field)).collect();
        found?.try_into().ok()
    })
}

/// The struct, union or enum of a name; ids are those of this kernel's BTF.
pub fn kernel_type_named(name: &str) -> Option<u32> {
    all()?.named(name)
}

/// The enum that has a constant of a name.
pub fn kernel_enum_with(constant: &str) -> Option<u32> {
    all()?.enum_with(constant)
}

/// One level of a type.
pub fn kernel_type(id: u32) -> Option<Type> {
    all()?.describe(id)
}

/// The struct, union or enum of a name as C declares it: `struct task_struct`, and its members, `char comm[16];`.
pub fn declaration(name: &str) -> Option<(String, Vec<String>)> {
    all()?.declaration(name)
}

/// All types, for who asks for more than one: found once, and kept.
fn all() -> Option<&'static All<'static>> {
    static BYTES: OnceLock<Option<Vec<u8>>> = OnceLock::new();
    static ALL: OnceLock<Option<All<'static>>> = OnceLock::new();
    let bytes = BYTES.get_or_init(|| std::fs::read(VMLINUX).ok());
    ALL.get_or_init(|| All::of(bytes.as_deref()?)).as_ref()
}

/// What a tracepoint passes to its programs, each in 8 bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TracepointArg {
    /// `prev_state`
    pub name: String,
    /// What it is.
    pub kind: TracepointArgKind,
}

/// What an argument of a tracepoint is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TracepointArgKind {
    /// A number.
    Int {
        /// 1, 2, 4 or 8.
        bytes: u8,
        /// Two's complement.
        signed: bool,
    },
    /// Address of something of the kernel's: of this struct, if it is one.
    Pointer(Option<String>),
    /// A struct, a floating-point number.
    Other,
}

/// What a tracepoint passes on; none: no such tracepoint, or no BTF.
pub fn raw_tracepoint(name: &str) -> Option<Vec<TracepointArg>> {
    with_kernel(|btf| passed(btf, name))
}

/// Names of the tracepoints, in order.
pub fn raw_tracepoints() -> Vec<String> {
    with_kernel(|btf| {
        let (_, strings) = sections(btf)?;
        let each = strings.split(|byte| *byte == 0).filter_map(|name| name.strip_prefix(b"btf_trace_"));
        let mut names: Vec<String> = each.map(|name| String::from_utf8_lossy(name).into_owned()).collect();
        names.sort();
        Some(names)
    })
    .unwrap_or_default()
}

fn with_kernel<T>(f: impl FnOnce(&[u8]) -> Option<T>) -> Option<T> {
    let file = File::open(VMLINUX).ok()?;
    let len = file.metadata().ok()?.len() as usize;
    match MemoryMapping::read_only(file.as_fd(), len) {
        // SAFETY: a mapping of this length, of a file that never changes.
        Ok(map) => f(unsafe { std::slice::from_raw_parts(map.bytes(), len) }),
        Err(_) => f(&std::fs::read(VMLINUX).ok()?),
    }
}

/// A type's fixed part.
struct Head {
    name: u32,
    info: u32,
    type_id: u32,
}

impl Head {
    fn kind(&self) -> u32 {
        self.info >> 24 & 0x1f
    }

    /// It is another type by a name or with a qualifier: `typedef int t`, `const int`.
    fn renames(&self) -> bool {
        matches!(self.kind(), KIND_TYPEDEF | KIND_VOLATILE | KIND_CONST | KIND_RESTRICT | KIND_TYPE_TAG)
    }

    fn members(&self) -> u32 {
        self.info & 0xffff
    }

    /// Bytes behind the fixed part; none for a kind that is newer than this code.
    fn tail(&self) -> Option<usize> {
        let each = match self.kind() {
            KIND_POINTER | KIND_FORWARD | KIND_FUNC | KIND_FLOAT => 0,
            _ if self.renames() => 0,
            KIND_INT | KIND_VARIABLE | KIND_DECLARATION_TAG => return Some(4),
            KIND_ARRAY => return Some(12),
            KIND_STRUCT | KIND_UNION | KIND_SECTION | KIND_ENUM64 => 12,
            KIND_ENUM | KIND_PROTOTYPE => 8,
            _ => return None,
        };
        Some(each * self.members() as usize)
    }
}

fn word(data: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(data.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

/// The types in the order of their ids, from 1.
fn types(section: &[u8]) -> impl Iterator<Item = Head> + '_ {
    types_and_tails(section).map(|(head, _)| head)
}

/// The types, each with where its variable part begins.
fn types_and_tails(section: &[u8]) -> impl Iterator<Item = (Head, usize)> + '_ {
    let mut at = 0;
    std::iter::from_fn(move || {
        let head =
            Head { name: word(section, at)?, info: word(section, at + 4)?, type_id: word(section, at + 8)? };
        let tail = at + 12;
        at = tail + head.tail()?;
        Some((head, tail))
    })
}

/// The sections of types and of strings.
fn sections(btf: &[u8]) -> Option<(&[u8], &[u8])> {
    if u16::from_le_bytes(btf.get(..2)?.try_into().ok()?) != MAGIC {
        return None;
    }
    let section = |at: usize| -> Option<&[u8]> {
        let start = word(btf, 4)?.checked_add(word(btf, at)?)? as usize;
        btf.get(start..start.checked_add(word(btf, at + 4)? as usize)?)
    };
    Some((section(8)?, section(16)?))
}

fn field_offset(btf: &[u8], of: &str, field: &str) -> Option<u32> {
    /// A member: name, type, bits from the start.
    const MEMBER: usize = 12;
    /// The upper bits are the size of a bit-field.
    const BIT_OFFSET: u32 = 0xff_ffff;
    let (all, strings) = sections(btf)?;
    let (of, field) = (offset_of_string(strings, of)?, offset_of_string(strings, field)?);
    let (head, tail) =
        types_and_tails(all).find(|(head, _)| head.name == of && head.kind() == KIND_STRUCT)?;
    let mut members = (0..head.members() as usize).map(|member| tail + MEMBER * member);
    let member = members.find(|&at| word(all, at) == Some(field))?;
    Some((word(all, member + 8)? & BIT_OFFSET) / 8)
}

fn function_params(btf: &[u8], name: &str) -> Option<u32> {
    let (all, strings) = sections(btf)?;
    let wanted = offset_of_string(strings, name)?;
    let function = types(all).find(|head| head.name == wanted && head.kind() == KIND_FUNC)?;
    types(all).nth(function.type_id.checked_sub(1)? as usize).map(|prototype| prototype.members())
}

/// By the function that stands for the tracepoint where nothing listens, or, on older kernels, the one that calls programs.
/// The first parameter of each is the tracepoint's own.
fn passed(btf: &[u8], name: &str) -> Option<Vec<TracepointArg>> {
    /// A parameter: name, type.
    const PARAMETER: usize = 8;
    let (all, strings) = sections(btf)?;
    let function = ["__probestub_", "__bpf_trace_"].iter().find_map(|before| {
        let wanted = offset_of_string(strings, &format!("{before}{name}"))?;
        types(all).find(|head| head.name == wanted && head.kind() == KIND_FUNC)
    })?;
    let types: Vec<(Head, usize)> = types_and_tails(all).collect();
    let (prototype, tail) = types.get(function.type_id.checked_sub(1)? as usize)?;
    let parameter = |n: usize| {
        let (at, kind) = (tail + PARAMETER * n, word(all, tail + PARAMETER * n + 4)?);
        Some(TracepointArg {
            name: string(strings, word(all, at)?)?,
            kind: kind_of((all, strings), &types, kind),
        })
    };
    (1..prototype.members() as usize).map(parameter).collect()
}

/// What a type is behind its names and qualifiers.
fn kind_of((all, strings): (&[u8], &[u8]), types: &[(Head, usize)], id: u32) -> TracepointArgKind {
    /// In the word behind an integer.
    const SIGNED: u32 = 1 << 24;
    /// In the info of an enum.
    const SIGNED_ENUM: u32 = 1 << 31;
    let named = |(head, _): &(Head, usize)| head.renames().then_some(head.type_id);
    let at = |id: u32| types.get((id as usize).checked_sub(1)?);
    // Chains are short; in a broken file they might be rings.
    let last = |id: u32| std::iter::successors(at(id), |of| at(named(of)?)).take(32).last();
    let Some((head, tail)) = last(id) else { return TracepointArgKind::Other };
    let int = |signed| match head.type_id {
        bytes @ (1 | 2 | 4 | 8) => TracepointArgKind::Int { bytes: bytes as u8, signed },
        _ => TracepointArgKind::Other,
    };
    match head.kind() {
        KIND_INT => int(word(all, *tail).is_some_and(|encoding| encoding & SIGNED != 0)),
        KIND_ENUM => int(head.info & SIGNED_ENUM != 0),
        KIND_POINTER => {
            let to = last(head.type_id).filter(|(to, _)| to.kind() == KIND_STRUCT && to.name != 0);
            TracepointArgKind::Pointer(to.and_then(|(to, _)| string(strings, to.name)))
        }
        _ => TracepointArgKind::Other,
    }
}

fn string(strings: &[u8], at: u32) -> Option<String> {
    let text = strings.get(at as usize..)?.split(|byte| *byte == 0).next()?;
    Some(String::from_utf8_lossy(text).into_owned())
}

/// Where a whole string begins in the string section.
fn offset_of_string(strings: &[u8], name: &str) -> Option<u32> {
    let whole = [b"\0", name.as_bytes(), b"\0"].concat();
    let first = name.as_bytes().first()?;
    // Candidates by the NUL and the first letter: `windows` over megabytes is slow without optimisation.
    let mut at = 0;
    while let Some(step) = strings.get(at..)?.iter().position(|byte| *byte == 0) {
        at += step;
        if strings.get(at + 1) == Some(first) && strings[at..].starts_with(&whole) {
            return u32::try_from(at + 1).ok();
        }
        at += 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `int f(int, int)` after an int and a struct of one member.
    fn sample() -> Vec<u8> {
        let strings = b"\0int\0f\0ff\0";
        let mut types: Vec<u32> = vec![1, 1 << 24, 4, 32]; // 1: int
        types.extend([0, 4 << 24 | 1, 4, 0, 1, 0]); // 2: struct { int }
        types.extend([0, 13 << 24 | 2, 1, 0, 1, 0, 1]); // 3: prototype
        types.extend([5, 12 << 24, 3]); // 4: f
        let len = types.len() as u32 * 4;
        let mut btf = vec![0x9f, 0xeb, 1, 0];
        btf.extend([24, 0, len, len, strings.len() as u32].iter().flat_map(|word: &u32| word.to_le_bytes()));
        btf.extend(types.iter().flat_map(|word| word.to_le_bytes()));
        btf.extend(strings);
        btf
    }

    #[test]
    fn a_function_is_found_by_its_whole_name() {
        assert_eq!(function_params(&sample(), "f"), Some(2));
        assert_eq!(function_params(&sample(), "ff"), None);
        assert_eq!(function_params(&sample(), "g"), None);
    }

    #[test]
    fn cut_or_foreign_bytes_are_no_function() {
        let whole = sample();
        for len in 0..whole.len() - 1 {
            assert_eq!(function_params(&whole[..len], "f"), None, "{len}");
        }
        assert_eq!(function_params(&[0xff; 64], "f"), None);
    }

    #[test]
    fn a_field_is_found_by_struct_and_name() {
        let strings = b"\0s\0a\0b\0";
        let types: Vec<u32> = vec![1, 4 << 24 | 2, 16, 3, 0, 0, 5, 0, 64];
        let len = types.len() as u32 * 4;
        let mut btf = vec![0x9f, 0xeb, 1, 0];
        btf.extend([24, 0, len, len, strings.len() as u32].iter().flat_map(|word: &u32| word.to_le_bytes()));
        btf.extend(types.iter().flat_map(|word| word.to_le_bytes()));
        btf.extend(strings);
        assert_eq!(field_offset(&btf, "s", "a"), Some(0));
        assert_eq!(field_offset(&btf, "s", "b"), Some(8));
        assert_eq!(field_offset(&btf, "a", "b"), None);
    }

    #[test]
    fn what_a_tracepoint_passes_is_behind_its_own_parameter() {
        let strings = b"\0int\0__probestub_t\0pid\0task\0";
        let mut types: Vec<u32> = vec![1, 1 << 24, 4, 1 << 24 | 32]; // 1: int
        types.extend([0, 2 << 24, 0]); // 2: void *
        types.extend([0, 10 << 24, 1]); // 3: const int
        types.extend([0, 13 << 24 | 3, 0, 0, 2, 19, 3, 23, 2]); // 4: prototype
        types.extend([5, 12 << 24, 4]); // 5: __probestub_t
        let len = types.len() as u32 * 4;
        let mut btf = vec![0x9f, 0xeb, 1, 0];
        btf.extend([24, 0, len, len, strings.len() as u32].iter().flat_map(|word: &u32| word.to_le_bytes()));
        btf.extend(types.iter().flat_map(|word| word.to_le_bytes()));
        btf.extend(strings);
        let expected = [
            TracepointArg { name: "pid".into(), kind: TracepointArgKind::Int { bytes: 4, signed: true } },
            TracepointArg { name: "task".into(), kind: TracepointArgKind::Pointer(None) },
        ];
        assert_eq!(passed(&btf, "t").as_deref(), Some(&expected[..]));
        assert_eq!(passed(&btf, "u"), None);
    }

    #[test]
    fn the_running_kernels_functions_are_found() {
        if !is_there() {
            eprintln!("skipped: no kernel BTF");
            return;
        }
        assert_eq!(kernel_function_params("bpf_prog_put"), Some(1));
        assert_eq!(kernel_function_params("no_such_function_of_the_kernel"), None);
    }
}
