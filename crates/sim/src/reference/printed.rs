//! Values as they are printed.

use super::abi;
use super::state::Meaning;
use super::value::{Val, fit, is_signed, word};
use crate::outcome::Value;
use lang::hir::{self, Type};
use lang::types::passing::float_of;

/// `char`
const CHAR: Type = Type::Int { bytes: 1, signed: true };

impl Meaning<'_> {
    /// A value as it is printed.
    pub(super) fn to_value(&self, value: &Val, ty: &Type) -> Value {
        match (value, ty) {
            (Val::Num(n), Type::Bool) => Value::Bool(*n != 0),
            (Val::Num(n), Type::Int { bytes, signed: true }) => Value::Int(*n, *bytes),
            (Val::Num(n), Type::Int { bytes, signed: false }) => Value::Uint(*n as u64, *bytes),
            (Val::Num(n), Type::Enum(id)) => {
                Value::Enum(self.program.enums[id.0 as usize].name.clone(), fit(*n, ty, self.program))
            }
            (Val::Num(n), Type::Pointer(_)) => Value::Pointer(*n as u64),
            (Val::Num(n), Type::Name(kind)) => {
                Value::Name(self.program.names.table(*kind)[*n as usize].clone())
            }
            (Val::Num(n), Type::Timestamp(format)) => Value::Timestamp(*n as u64, format.clone()),
            (Val::Num(n), Type::Lookup(what)) => Value::Lookup(*what, *n),
            (Val::Str(text), _) => Value::Str(text.clone()),
            (Val::Buf(bytes), _) => Value::Buf(bytes.clone()),
            (Val::Tuple(parts), Type::Tuple(types)) => {
                Value::Tuple(parts.iter().zip(&**types).map(|(p, t)| self.to_value(p, t)).collect())
            }
            (Val::Tuple(parts), Type::Record(names, types)) => {
                let parts = parts.iter().zip(&**types).map(|(p, t)| self.to_value(p, t));
                Value::Record(names.iter().cloned().zip(parts).collect())
            }
            (Val::Tuple(parts), Type::Either(types)) => {
                let which = parts[0].num() as usize;
                // A missing value of a map is no variant.
                if which == 0 { Value::Str(vec![]) } else { self.to_value(&parts[which], &types[which]) }
            }
            (Val::Tuple(words), Type::Inet) => {
                let bytes: Vec<u8> =
                    words[1..].iter().flat_map(|word| (word.num() as u32).to_le_bytes()).collect();
                Value::Inet(words[0].num() as u32, bytes.try_into().expect("four words"))
            }
            (Val::Bytes(bytes), _) => self.bytes_to_value(bytes, ty),
            (Val::Usym(address, tgid), _) => Value::Usym(*address, *tgid),
            (Val::Stack(id, tgid), Type::Stack { user, limit, mode }) => {
                let stacks = self.stacks.get(&(*user, *limit));
                let frames = stacks.and_then(|s| s.get(*id as usize)).cloned();
                Value::Stack(frames, *tgid, *mode)
            }
            (value, ty) => panic!("{value:?} is no {ty:?}"),
        }
    }

    /// A struct, an array or a part of one, as it is printed.
    fn bytes_to_value(&self, bytes: &[u8], ty: &Type) -> Value {
        match ty {
            Type::Array(element, _) if **element == CHAR => {
                Value::Str(bytes.iter().copied().take_while(|byte| *byte != 0).collect())
            }
            Type::Array(element, _) => {
                let size = abi::size(element, &self.program.structs).max(1) as usize;
                Value::Array(bytes.chunks(size).map(|bytes| self.bytes_to_value(bytes, element)).collect())
            }
            Type::Struct(id) => {
                let fields = self.program.structs[id.0 as usize].fields.iter();
                Value::Record(fields.map(|f| (f.name.clone(), self.field_to_value(bytes, f))).collect())
            }
            Type::Float(4) => Value::Lookup(wire::types::Lookup::Float, word(bytes) as i64),
            Type::Float(8) => Value::Lookup(wire::types::Lookup::Double, word(bytes) as i64),
            _ => self.to_value(&self.inside(bytes, 0, ty), ty),
        }
    }

    fn field_to_value(&self, bytes: &[u8], field: &hir::Field) -> Value {
        let size = abi::size(&field.ty, &self.program.structs) as usize;
        let inside = &bytes[field.offset as usize..][..size];
        if field.float {
            return self.bytes_to_value(inside, &float_of(&field.ty));
        }
        let Some(bits) = field.bits else { return self.bytes_to_value(inside, &field.ty) };
        let word = word(inside) >> bits.first & (u64::MAX >> (64 - u32::from(bits.count)));
        let signed = is_signed(&field.ty, self.program) && matches!(field.ty, Type::Int { .. });
        let spare = 64 - u32::from(bits.count);
        let number = if signed { (word << spare) as i64 >> spare } else { word as i64 };
        self.to_value(&Val::Num(fit(number, &field.ty, self.program)), &field.ty)
    }

    /// A part of a struct or array at `offset`; zero if it is outside.
    pub(super) fn inside(&self, bytes: &[u8], offset: usize, ty: &Type) -> Val {
        let size = abi::size(ty, &self.program.structs) as usize;
        let Some(found) = bytes.get(offset..offset.saturating_add(size)) else {
            return Val::zero(ty, self.program);
        };
        match ty {
            Type::Struct(_) | Type::Array(..) => Val::Bytes(found.to_vec()),
            _ => Val::Num(fit(word(found) as i64, ty, self.program)),
        }
    }

    /// Several values as they are printed.
    pub(super) fn to_values(&self, values: &[Val], types: &[Type]) -> Vec<Value> {
        values.iter().zip(types).map(|(v, t)| self.to_value(v, t)).collect()
    }
}
