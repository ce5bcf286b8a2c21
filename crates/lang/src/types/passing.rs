//! How arguments are passed, as far as their types determine it: System V AMD64 ABI 3.2.3, "Classification".
//!
//! ```text
//! struct { long a; int b; }       two integer registers, or two words of the stack
//! struct { double x; long n; }    a vector register and an integer register, or two words of the stack
//! struct { char text[24]; }       the stack
//! ```
//!
//! Not here: assignment of the registers to arguments (`codegen`'s `abi`).

use crate::hir::{Field, Struct, Type};
use std::sync::Arc;

/// Class of an eightbyte of a struct.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// Padding only.
    None,
    /// Passed in an integer register.
    Integer,
    /// Passed in a vector register.
    Vector,
}

/// Method of passing an argument.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Passing {
    /// A scalar in an integer register.
    Word,
    /// A floating-point number in a vector register.
    Vector,
    /// Eightbytes in registers, if enough registers are left.
    Registers(Vec<Class>),
    /// In memory, among the stack arguments.
    Memory {
        /// Size in bytes, rounded up to words.
        bytes: u32,
        /// Alignment: 8 or 16.
        align: u32,
    },
}

/// Largest size in bytes that is passed in registers.
const IN_REGISTERS: u32 = 16;
/// `long double`: class X87.
const LONG_DOUBLE: u32 = 16;

/// How a value of a type is passed; `float`: the value is a floating-point number although the type is an integer.
pub fn passing(ty: &Type, float: bool, structs: &[Struct]) -> Passing {
    match ty {
        _ if float && is_long_double(ty) => Passing::Memory { bytes: LONG_DOUBLE, align: LONG_DOUBLE },
        _ if float => Passing::Vector,
        Type::Struct(id) => structure(&structs[id.0 as usize], structs),
        _ => Passing::Word,
    }
}

fn structure(def: &Struct, structs: &[Struct]) -> Passing {
    let memory =
        Passing::Memory { bytes: def.size.next_multiple_of(8), align: if def.align > 8 { 16 } else { 8 } };
    if def.size > IN_REGISTERS {
        return memory;
    }
    // A struct with unknown members is treated as one of integers.
    let unknown = if def.fields.is_empty() && def.size > 1 { Class::Integer } else { Class::None };
    let mut classes = vec![unknown; def.size.div_ceil(8) as usize];
    match def.fields.iter().all(|field| classify(field, 0, structs, &mut classes)) {
        true => Passing::Registers(classes),
        false => memory,
    }
}

/// Merges the class of a member into its eightbytes; false if the whole struct is passed in memory.
fn classify(field: &Field, base: u32, structs: &[Struct], classes: &mut [Class]) -> bool {
    let at = base + field.offset;
    classify_type(&field.ty, at, field.float, field.bits.is_some(), structs, classes)
}

fn classify_type(
    ty: &Type,
    at: u32,
    float: bool,
    bits: bool,
    structs: &[Struct],
    classes: &mut [Class],
) -> bool {
    match ty {
        Type::Struct(id) => {
            structs[id.0 as usize].fields.iter().all(|field| classify(field, at, structs, classes))
        }
        _ if float && is_long_double(ty) => false,
        Type::Array(element, count) => {
            let each = size(element, structs);
            (0..*count).all(|n| classify_type(element, at + n * each, float, bits, structs, classes))
        }
        scalar => {
            let bytes = size(scalar, structs);
            let Some(class) = classes.get_mut(at as usize / 8) else { return false };
            match float {
                true if *class == Class::None => *class = Class::Vector,
                true => {}
                false => *class = Class::Integer,
            }
            // A struct with a misaligned member is passed in memory.
            bits || bytes <= 1 || at.is_multiple_of(bytes)
        }
    }
}

/// The type for the bits of a `long double`.
pub fn long_double() -> Type {
    Type::Array(Arc::new(Type::Int { bytes: 1, signed: false }), LONG_DOUBLE)
}

/// The floating-point type for a type that has its bits.
pub fn float_of(bits: &Type) -> Type {
    match bits {
        bits if is_long_double(bits) => Type::Float(LONG_DOUBLE as u8),
        Type::Int { bytes, .. } => Type::Float(*bytes),
        Type::Array(element, count) => Type::Array(Arc::new(float_of(element)), *count),
        other => other.clone(),
    }
}

fn is_long_double(ty: &Type) -> bool {
    *ty == long_double() || *ty == Type::Float(LONG_DOUBLE as u8)
}

/// Size of a type in C, in bytes.
pub fn size(ty: &Type, structs: &[Struct]) -> u32 {
    match ty {
        Type::Void => 0,
        Type::Bool => 1,
        Type::Int { bytes, .. } | Type::Float(bytes) => u32::from(*bytes),
        Type::Enum(_) => 4,
        Type::Struct(id) => structs[id.0 as usize].size,
        Type::Array(element, count) => size(element, structs) * count,
        _ => 8,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hir::{Origin, StructId};

    const DOUBLE: (Type, bool) = (Type::U64, true);
    const FLOAT: (Type, bool) = (Type::U32, true);
    const INT: (Type, bool) = (Type::I32, false);
    const LONG: (Type, bool) = (Type::I64, false);

    /// The method for a struct with members at offsets.
    fn of(size: u32, members: &[(u32, (Type, bool))]) -> Passing {
        let fields = members.iter().map(|(offset, (ty, float))| Field {
            name: String::new(),
            offset: *offset,
            ty: ty.clone(),
            bits: None,
            float: *float,
            named: None,
        });
        let fields = fields.collect();
        let structs = [Struct { name: String::new(), size, align: 8, fields, origin: Origin::Debug }];
        passing(&Type::Struct(StructId(0)), false, &structs)
    }

    #[test]
    fn eightbytes_have_classes() {
        use Class::{Integer, Vector};
        assert_eq!(of(16, &[(0, DOUBLE), (8, LONG)]), Passing::Registers(vec![Vector, Integer]));
        assert_eq!(of(8, &[(0, FLOAT), (4, INT)]), Passing::Registers(vec![Integer]), "both are in one");
        assert_eq!(of(8, &[(0, INT), (4, FLOAT)]), Passing::Registers(vec![Integer]));
        assert_eq!(of(12, &[(0, FLOAT), (4, FLOAT), (8, INT)]), Passing::Registers(vec![Vector, Integer]));
        assert_eq!(of(1, &[]), Passing::Registers(vec![Class::None]), "an empty class takes nothing");
        let four = (Type::Array(Arc::new(Type::U32), 4), true);
        assert_eq!(of(16, &[(0, four)]), Passing::Registers(vec![Vector, Vector]));
    }

    #[test]
    fn large_and_unaligned_structs_and_long_doubles_lie_in_memory() {
        assert_eq!(of(24, &[(0, LONG), (8, LONG), (16, LONG)]), Passing::Memory { bytes: 24, align: 8 });
        assert_eq!(of(9, &[(0, (Type::Bool, false)), (1, LONG)]), Passing::Memory { bytes: 16, align: 8 });
        assert_eq!(of(16, &[(0, (long_double(), true))]), Passing::Memory { bytes: 16, align: 8 });
        assert_eq!(passing(&long_double(), true, &[]), Passing::Memory { bytes: 16, align: 16 });
    }
}
