//! C types of the CUDA interfaces: kind, size, fields, enumerators.
//!
//! Sizes and offsets follow LP64 with natural alignment, which x86-64 and aarch64 Linux share. The definitions are those of
//! CUDA 13.5. A struct whose layout changed between CUDA versions appears once per layout (`cudaDeviceProp`,
//! `cudaDeviceProp_12`, `cudaDeviceProp_11`). Types are interned: equal C types have equal [`TypeId`]s.

use crate::api::defs;
pub use crate::rows::{Enum, EnumId, Field, Kind, Struct, StructId, Type, TypeId};
use crate::{gpu, ioctls};

impl TypeId {
    /// Size in bytes of a value of this type. `void` has none.
    pub fn size(self) -> Option<u32> {
        Some(match ty(self).kind {
            Kind::Void => return None,
            Kind::Bool => 1,
            Kind::Int { bytes, .. } | Kind::Float { bytes } => u32::from(bytes),
            Kind::Enum(_) => 4,
            Kind::Pointer(_) | Kind::String | Kind::Handle | Kind::Function => 8,
            Kind::Struct(id) => struct_def(id).size,
            Kind::Array(element, count) => element.size()? * count,
        })
    }
}

/// The type with an id.
pub fn ty(id: TypeId) -> &'static Type {
    let at = usize::from(id.0);
    defs::TYPES.get(at).unwrap_or_else(|| &MORE_TYPES[at - defs::TYPES.len()])
}

/// Names of the enums of ioctls and of records of the GPU, whose ids follow those of the CUDA tables.
const MORE_NAMES: [&str; ioctls::ENUM_NAMES.len() + gpu::ENUM_NAMES.len()] = {
    let [a, b, c, d] = ioctls::ENUM_NAMES;
    let [e, f, g, h, i, j] = gpu::ENUM_NAMES;
    [a, b, c, d, e, f, g, h, i, j]
};

/// The types of [`MORE_NAMES`].
static MORE_TYPES: [Type; MORE_NAMES.len()] = {
    const fn named(at: usize) -> Type {
        Type { c_name: MORE_NAMES[at], kind: Kind::Enum(EnumId((defs::ENUMS.len() + at) as u16)) }
    }
    [named(0), named(1), named(2), named(3), named(4), named(5), named(6), named(7), named(8), named(9)]
};

/// The struct with an id.
pub fn struct_def(id: StructId) -> &'static Struct {
    &defs::STRUCTS[usize::from(id.0)]
}

/// The enum with an id.
pub fn enum_def(id: EnumId) -> &'static Enum {
    let at = usize::from(id.0);
    let of_gpu = || &gpu::ENUMS[at - defs::ENUMS.len() - ioctls::ENUM_NAMES.len()];
    let more = || ioctls::ENUMS.get(at - defs::ENUMS.len()).unwrap_or_else(of_gpu);
    defs::ENUMS.get(at).unwrap_or_else(more)
}

/// The type that a script names in a cast: a typedef, struct, enum or fundamental type (`CUdeviceptr`,
/// `unsigned int`). `struct NAME` and tags such as `CUlaunchConfig_st` are also accepted.
pub fn find_type(c_name: &str) -> Option<TypeId> {
    let name = c_name.strip_prefix("struct ").unwrap_or(c_name);
    let more = || MORE_NAMES.iter().position(|known| *known == name);
    let found = lookup(defs::NAMES, name).map(|at| defs::NAMES[at].1);
    found.or_else(|| Some(TypeId((defs::TYPES.len() + more()?) as u16)))
}

/// The struct or union of this name, with or without `_st`.
pub fn find_struct(name: &str) -> Option<StructId> {
    match ty(find_type(name)?).kind {
        Kind::Struct(id) => Some(id),
        _ => None,
    }
}

/// The enum of this name; its tag (`cudaError_enum`) is also accepted.
pub fn find_enum(name: &str) -> Option<EnumId> {
    match ty(find_type(name.strip_prefix("enum ").unwrap_or(name))?).kind {
        Kind::Enum(id) => Some(id),
        _ => None,
    }
}

/// The enum constant of this name and its value: `CUDA_ERROR_OUT_OF_MEMORY` is (`CUresult`, 2), `NV_ERR_TIMEOUT` is
/// (`nvidia_status`, 0x65).
pub fn constant(name: &str) -> Option<(EnumId, i64)> {
    let named = |&(enum_at, at): &(u16, u16)| defs::ENUMS[usize::from(enum_at)].variants[usize::from(at)];
    match defs::CONSTANTS.binary_search_by(|entry| named(entry).0.cmp(name)) {
        Ok(found) => Some((EnumId(defs::CONSTANTS[found].0), named(&defs::CONSTANTS[found]).1)),
        Err(_) => driver_constants().find(|known| known.name == name).map(|known| (known.id, known.value)),
    }
}

/// A constant of an enum.
#[derive(Clone, Copy, Debug)]
pub struct EnumConstant {
    /// `CUDA_ERROR_OUT_OF_MEMORY`
    pub name: &'static str,
    /// `CUresult`
    pub id: EnumId,
    /// 2
    pub value: i64,
}

/// The constants of the kernel driver's ioctls.
pub fn driver_constants() -> impl Iterator<Item = EnumConstant> {
    ioctls::ENUMS.iter().enumerate().flat_map(|(at, def)| {
        let id = EnumId((defs::ENUMS.len() + at) as u16);
        def.variants.iter().map(move |&(name, value)| EnumConstant { name, id, value })
    })
}

/// All enum constants of CUDA, sorted by name.
pub fn constants() -> impl Iterator<Item = EnumConstant> {
    defs::CONSTANTS.iter().map(|&(enum_at, at)| {
        let (name, value) = defs::ENUMS[usize::from(enum_at)].variants[usize::from(at)];
        EnumConstant { name, id: EnumId(enum_at), value }
    })
}

/// The value of a preprocessor constant, which is not part of an enum: `cudaHostAllocPortable` is 1.
pub fn macro_constant(name: &str) -> Option<i64> {
    lookup(defs::MACROS, name).map(|at| defs::MACROS[at].1)
}

/// All preprocessor constants, sorted by name.
pub fn macro_constants() -> impl Iterator<Item = (&'static str, i64)> {
    defs::MACROS.iter().copied()
}

/// Index of a name in a table that is sorted by name.
fn lookup<T>(table: &[(&'static str, T)], name: &str) -> Option<usize> {
    table.binary_search_by(|(entry, _)| (*entry).cmp(name)).ok()
}
