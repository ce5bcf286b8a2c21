//! Values of the interpreter, and their forms as bytes of a key and as things said.

use super::Meaning;
use crate::outcome::Value;
use lang::hir::{self, Program, Type};
use wire::layout;

/// A value; its type is that of the expression that made it.
#[derive(Clone, Debug, PartialEq)]
pub enum Val {
    /// Integers, bools, enums, pointers, names, timestamps: extended to 64 bits by the type's signedness.
    Num(i64),
    /// Without NUL.
    Str(Vec<u8>),
    /// All of them.
    Buf(Vec<u8>),
    /// Parts.
    Tuple(Vec<Val>),
    /// Address and process.
    Usym(u64, u32),
    /// Id and process.
    Stack(u32, u32),
}

impl Val {
    /// What is read where nothing was written.
    pub fn zero(ty: &Type) -> Val {
        match ty {
            Type::Str(_) => Val::Str(vec![]),
            Type::Buf(_) => Val::Buf(vec![]),
            Type::Tuple(parts) => Val::Tuple(parts.iter().map(Val::zero).collect()),
            Type::Usym => Val::Usym(0, 0),
            Type::Stack { .. } => Val::Stack(0, 0),
            _ => Val::Num(0),
        }
    }

    /// The number.
    pub fn num(&self) -> i64 {
        match self {
            Val::Num(n) => *n,
            other => panic!("the checker lets no {other:?} stand for a number"),
        }
    }

    /// The text.
    pub fn text(&self) -> &[u8] {
        match self {
            Val::Str(text) => text,
            other => panic!("the checker lets no {other:?} stand for a string"),
        }
    }

    /// Not zero.
    pub fn truth(&self) -> bool {
        self.num() != 0
    }
}

/// Numbers of this type are extended by their sign.
pub fn is_signed(ty: &Type, program: &Program) -> bool {
    match ty {
        Type::Int { signed, .. } => *signed,
        Type::Enum(id) => program.enums[id.0 as usize].signed,
        _ => false,
    }
}

/// The low bits of a number, as many as the type has, extended.
pub fn fit(bits: i64, ty: &Type, program: &Program) -> i64 {
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

/// The layout's view of a type.
fn wire_type(ty: &Type) -> wire::Type {
    match ty {
        Type::Bool => wire::Type::Bool,
        Type::Int { bytes, signed } => wire::Type::Int { bytes: *bytes, signed: *signed },
        Type::Enum(id) => wire::Type::Enum(id.0),
        Type::Pointer(_) => wire::Type::Pointer,
        Type::Str(capacity) => wire::Type::Str(*capacity),
        Type::Tuple(parts) => wire::Type::Tuple(parts.iter().map(wire_type).collect()),
        Type::Name(_) => wire::Type::Name(wire::NameKind::Func),
        Type::Usym => wire::Type::Usym,
        Type::Stack { .. } => wire::Type::Stack { map: 0, mode: Default::default() },
        Type::Timestamp(format) => wire::Type::Timestamp(format.clone()),
        Type::Lookup(what) => wire::Type::Lookup(lookup(*what)),
        Type::Buf(capacity) => wire::Type::Buf(*capacity),
        Type::Void | Type::Struct(_) | Type::Array(..) => panic!("the checker keeps {ty:?} out of maps"),
    }
}

/// Bytes of a key, which order it among the others.
pub fn key_bytes(parts: &[Val], types: &[Type]) -> Vec<u8> {
    let types: Vec<_> = types.iter().map(wire_type).collect();
    let layout = layout::key(&types);
    let mut bytes = vec![0; layout.size as usize];
    for ((part, ty), offset) in parts.iter().zip(&types).zip(layout.offsets) {
        write(part, ty, &mut bytes[offset as usize..]);
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

impl Meaning<'_> {
    /// A value as it is said.
    pub(super) fn said(&self, value: &Val, ty: &Type) -> Value {
        match (value, ty) {
            (Val::Num(n), Type::Bool) => Value::Bool(*n != 0),
            (Val::Num(n), Type::Int { bytes, signed: true }) => Value::Int(*n, *bytes),
            (Val::Num(n), Type::Int { bytes, signed: false }) => Value::Uint(*n as u64, *bytes),
            (Val::Num(n), Type::Enum(id)) => {
                Value::Enum(self.program.enums[id.0 as usize].name.clone(), i64::from(*n as i32))
            }
            (Val::Num(n), Type::Pointer(_)) => Value::Pointer(*n as u64),
            (Val::Num(n), Type::Name(kind)) => {
                Value::Name(self.program.names.table(*kind)[*n as usize].clone())
            }
            (Val::Num(n), Type::Timestamp(format)) => Value::Timestamp(*n as u64, format.clone()),
            (Val::Num(n), Type::Lookup(what)) => Value::Lookup(lookup(*what), *n),
            (Val::Str(text), _) => Value::Str(text.clone()),
            (Val::Buf(bytes), _) => Value::Buf(bytes.clone()),
            (Val::Tuple(parts), Type::Tuple(types)) => {
                Value::Tuple(parts.iter().zip(types).map(|(p, t)| self.said(p, t)).collect())
            }
            (Val::Usym(address, tgid), _) => Value::Usym(*address, *tgid),
            (Val::Stack(id, tgid), Type::Stack { user, limit, mode }) => {
                let stacks = self.stacks.get(&(*user, *limit));
                let frames = stacks.and_then(|s| s.get(*id as usize)).cloned();
                Value::Stack(frames, *tgid, stack_mode(*mode))
            }
            (value, ty) => panic!("{value:?} is no {ty:?}"),
        }
    }

    /// Several values as they are said.
    pub(super) fn said_all(&self, values: &[Val], types: &[Type]) -> Vec<Value> {
        values.iter().zip(types).map(|(v, t)| self.said(v, t)).collect()
    }
}

fn lookup(lookup: hir::Lookup) -> wire::types::Lookup {
    match lookup {
        hir::Lookup::Comm => wire::types::Lookup::Comm,
        hir::Lookup::Error => wire::types::Lookup::Error,
        hir::Lookup::Signal => wire::types::Lookup::Signal,
        hir::Lookup::Syscall => wire::types::Lookup::Syscall,
        hir::Lookup::User => wire::types::Lookup::User,
        hir::Lookup::CgroupPath => wire::types::Lookup::CgroupPath,
    }
}

fn stack_mode(mode: hir::StackMode) -> wire::types::StackMode {
    match mode {
        hir::StackMode::Bpftrace => wire::types::StackMode::Bpftrace,
        hir::StackMode::Perf => wire::types::StackMode::Perf,
        hir::StackMode::Raw => wire::types::StackMode::Raw,
    }
}
