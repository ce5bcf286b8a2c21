//! Values of the interpreter, and their encoding as bytes of a key.

use super::abi;
use lang::hir::{self, Program, Type};
use wire::layout;

/// A value; its type is that of the expression that computed it.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Val {
    /// Integers, bools, enums, pointers, names, timestamps: extended to 64 bits by the type's signedness.
    Num(i64),
    /// Bytes without NUL.
    Str(Vec<u8>),
    /// All bytes.
    Buf(Vec<u8>),
    /// Parts.
    Tuple(Vec<Val>),
    /// Structs and arrays, in their memory format.
    Bytes(Vec<u8>),
    /// Address and process.
    Usym(u64, u32),
    /// Id and process.
    Stack(u32, u32),
}

impl Val {
    /// The value of memory that was not written.
    pub(super) fn zero(ty: &Type, program: &Program) -> Val {
        match ty {
            Type::Str(_) => Val::Str(vec![]),
            Type::Buf(_) => Val::Buf(vec![]),
            Type::Tuple(parts) | Type::Record(_, parts) | Type::Either(parts) => {
                Val::Tuple(parts.iter().map(|part| Val::zero(part, program)).collect())
            }
            Type::Inet => Val::Tuple(vec![Val::Num(0); 5]),
            Type::Struct(_) | Type::Array(..) => {
                Val::Bytes(vec![0; abi::size(ty, &program.structs) as usize])
            }
            Type::Usym => Val::Usym(0, 0),
            Type::Stack { .. } => Val::Stack(0, 0),
            _ => Val::Num(0),
        }
    }

    /// The number.
    pub(super) fn num(&self) -> i64 {
        match self {
            Val::Num(n) => *n,
            // Stacks are compared as words.
            Val::Stack(id, tgid) => i64::from(*tgid) << 32 | i64::from(*id),
            other => panic!("the checker lets no {other:?} stand for a number"),
        }
    }

    /// The bytes of a struct or array.
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Val::Bytes(bytes) => bytes,
            other => panic!("the checker lets no {other:?} stand for a struct"),
        }
    }

    /// The text.
    pub(super) fn text(&self) -> &[u8] {
        match self {
            Val::Str(text) => text,
            other => panic!("the checker lets no {other:?} stand for a string"),
        }
    }

    /// Whether the number is not zero.
    pub(super) fn truth(&self) -> bool {
        self.num() != 0
    }
}

/// Whether numbers of this type are sign-extended.
pub(super) fn is_signed(ty: &Type, program: &Program) -> bool {
    match ty {
        Type::Int { signed, .. } => *signed,
        Type::Enum(id) => program.enums[id.0 as usize].signed,
        _ => false,
    }
}

/// Truncates a number to the width of the type and extends it.
pub(super) fn fit(bits: i64, ty: &Type, program: &Program) -> i64 {
    let width = match ty {
        Type::Bool => return i64::from(bits != 0),
        Type::Int { bytes, .. } => 8 * u32::from(*bytes),
        Type::Enum(_) | Type::Name(_) => 32,
        _ => 64,
    };
    let spare = 64 - width;
    match is_signed(ty, program) {
        true => bits << spare >> spare,
        false => ((bits as u64) << spare >> spare) as i64,
    }
}

/// The type for layouts.
fn wire_type(ty: &Type, structs: &[hir::Struct]) -> wire::Type {
    let wire_type = |ty: &Type| wire_type(ty, structs);
    match ty {
        Type::Bool => wire::Type::Bool,
        Type::Int { bytes, signed } => wire::Type::Int { bytes: *bytes, signed: *signed },
        Type::Float(bytes) => wire::Type::Float(*bytes),
        Type::Enum(id) => wire::Type::Enum { id: id.0, signed: false },
        Type::Pointer(_) => wire::Type::Pointer,
        Type::Str(capacity) => wire::Type::Str(*capacity),
        Type::Tuple(parts) | Type::Record(_, parts) | Type::Either(parts) => {
            wire::Type::Tuple(parts.iter().map(wire_type).collect())
        }
        Type::Struct(id) => {
            let def = &structs[id.0 as usize];
            let members = def.fields.iter().map(|field| wire::types::Member {
                name: field.name.clone(),
                offset: field.offset,
                ty: wire_type(&field.ty),
                bits: None,
            });
            wire::Type::Struct(wire::types::Struct {
                size: def.size,
                align: def.align.min(8),
                members: members.collect(),
            })
        }
        Type::Inet => wire::Type::Tuple(vec![wire_type(&Type::U32); 5]),
        Type::Array(element, count) => wire::Type::Array(Box::new(wire_type(element)), *count),
        Type::Name(_) => wire::Type::Name(wire::NameKind::Func),
        Type::Usym => wire::Type::Usym,
        Type::Stack { .. } => wire::Type::Stack { map: 0, mode: Default::default() },
        Type::Timestamp(format) => wire::Type::Timestamp(format.clone()),
        Type::Lookup(what) => wire::Type::Lookup(*what),
        Type::Buf(capacity) => wire::Type::Buf(*capacity),
        Type::Void => panic!("the checker keeps {ty:?} out of keys"),
    }
}

/// Bytes of a key, which determine its order.
pub(super) fn key_bytes(parts: &[Val], types: &[Type], structs: &[hir::Struct]) -> Vec<u8> {
    let types: Vec<_> = types.iter().map(|ty| wire_type(ty, structs)).collect();
    let layout = layout::key(&types);
    let mut bytes = vec![0; layout.size as usize];
    for ((part, ty), offset) in parts.iter().zip(&types).zip(layout.offsets) {
        write(part, ty, &mut bytes[offset as usize..]);
    }
    for (at, len) in layout::gaps(&wire::Type::Tuple(types)) {
        bytes[at as usize..(at + len) as usize].fill(0);
    }
    bytes
}

fn write(value: &Val, ty: &wire::Type, to: &mut [u8]) {
    match (value, ty) {
        (Val::Tuple(parts), wire::Type::Tuple(types)) => {
            for ((part, ty), offset) in parts.iter().zip(types).zip(layout::tuple(types).offsets) {
                write(part, ty, &mut to[offset as usize..]);
            }
        }
        (Val::Bytes(bytes), _) => to[..bytes.len()].copy_from_slice(bytes),
        (Val::Str(text), _) => to[..text.len()].copy_from_slice(text),
        (Val::Buf(bytes), _) => {
            to[..4].copy_from_slice(&(bytes.len() as u32).to_le_bytes());
            to[4..4 + bytes.len()].copy_from_slice(bytes);
        }
        (Val::Num(n), _) => to[..ty.size() as usize].copy_from_slice(&n.to_le_bytes()[..ty.size() as usize]),
        (Val::Usym(address, tgid), _) => {
            to[..8].copy_from_slice(&address.to_le_bytes());
            to[8..12].copy_from_slice(&tgid.to_le_bytes());
        }
        (Val::Stack(id, tgid), _) => {
            to[..4].copy_from_slice(&id.to_le_bytes());
            to[4..8].copy_from_slice(&tgid.to_le_bytes());
        }
        (Val::Tuple(_), _) => panic!("a tuple where {ty:?} should be"),
    }
}

/// Up to eight bytes as a number.
pub(super) fn word(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(word)
}
