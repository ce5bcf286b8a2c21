//! References to types of the CUDA tables and of debug information.

use crate::catalog::debug_info;

/// A type of the CUDA tables or of debug information.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum TypeRef {
    /// `void`
    Void,
    /// From the CUDA tables.
    Cuda(cuda::TypeId),
    /// From debug information.
    Debug(debug_info::TypeId),
}

/// A struct of the CUDA tables or of debug information.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum StructRef {
    /// From the CUDA tables.
    Cuda(cuda::StructId),
    /// From debug information.
    Debug(debug_info::TypeId),
}

/// An enum of the CUDA tables or of debug information.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum EnumRef {
    /// From the CUDA tables.
    Cuda(cuda::EnumId),
    /// From debug information.
    Debug(debug_info::TypeId),
}

/// One level of a type.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Shape {
    /// `void`, or an unknown type.
    Void,
    /// `bool`
    Bool,
    /// `long`
    Int {
        /// 1, 2, 4 or 8.
        bytes: u8,
        /// Two's complement.
        signed: bool,
    },
    /// `double`
    Float {
        /// 4, 8 or 16.
        bytes: u8,
    },
    /// `CUresult`
    Enum(EnumRef),
    /// `T *`
    Pointer(TypeRef),
    /// `const char *`
    Text,
    /// A handle, or a pointer to a function.
    Address,
    /// `dim3`
    Struct(StructRef),
    /// `T [4]`
    Array(TypeRef, u32),
    /// A value of this size whose type scripts do not support: `__int128`.
    Bytes(u32),
}

impl Shape {
    /// The level of a type in the CUDA tables.
    pub(super) fn of_tables(kind: cuda::Kind) -> Shape {
        match kind {
            cuda::Kind::Void => Shape::Void,
            cuda::Kind::Bool => Shape::Bool,
            cuda::Kind::Int { bytes, signed } => Shape::Int { bytes, signed },
            cuda::Kind::Float { bytes } => Shape::Float { bytes },
            cuda::Kind::Enum(id) => Shape::Enum(EnumRef::Cuda(id)),
            cuda::Kind::Pointer(to) => Shape::Pointer(TypeRef::Cuda(to)),
            cuda::Kind::String => Shape::Text,
            cuda::Kind::Handle | cuda::Kind::Function => Shape::Address,
            cuda::Kind::Struct(id) => Shape::Struct(StructRef::Cuda(id)),
            cuda::Kind::Array(element, count) => Shape::Array(TypeRef::Cuda(element), count),
        }
    }
}
