//! Types of values, with the enums and structs that they refer to.

use std::sync::Arc;
use wire::types::{Lookup, NameKind, StackMode};

/// Index into [`Program::enums`].
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct EnumId(pub u32);

/// Index into [`Program::structs`].
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct StructId(pub u32);

/// The type of a value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Type {
    /// No value.
    Void,
    /// 1 byte, 0 or 1.
    Bool,
    /// `uint32`: `{ bytes: 4, signed: false }`
    Int {
        /// 1, 2, 4 or 8.
        bytes: u8,
        /// Two's complement.
        signed: bool,
    },
    /// `float`, `double`, `long double`: 4, 8 or 16 bytes in memory. As a value it is a [`Lookup`], which prints as the number.
    Float(u8),
    /// 4 bytes that print as a name.
    Enum(EnumId),
    /// User-space pointer, 8 bytes; to `Void` when nothing is known of what it points to (handles).
    Pointer(Arc<Type>),
    /// NUL-terminated bytes in a buffer of so many bytes, the NUL included; zero-filled behind it when stored.
    Str(u32),
    /// A C struct: its bytes, in memory or as a value.
    Struct(StructId),
    /// C array: its bytes, in memory or as a value.
    Array(Arc<Type>, u32),
    /// `(1, "a")`; also a key of several values, and `$kv` of a map loop: `(key, value)`.
    Tuple(Arc<[Type]>),
    /// `(a = 1, b = "x")`: names, and a tuple of the values.
    Record(Arc<[String]>, Arc<[Type]>),
    /// `func`, `api`, `probe`: 4 bytes, an index into [`Names`].
    Name(NameKind),
    /// Code address of a process: `usym(x)`, 16 bytes (address, tgid).
    Usym,
    /// Stack id, 8 bytes (id, tgid).
    Stack {
        /// User or kernel.
        user: bool,
        /// Frames kept at most.
        limit: u32,
        /// How it prints.
        mode: StackMode,
    },
    /// `strftime(format, ns)`: 8 bytes, boot-clock ns; prints by the format.
    Timestamp(String),
    /// `strerror(n)`: 8 bytes, int64; prints as what the reader finds for it.
    Lookup(Lookup),
    /// `buf(p, n)`: a uint32 length and so many bytes at most, zero-filled behind the length.
    Buf(u32),
    /// `ntop(address)`: the family and four words in network order, all uint32.
    Inet,
    /// `c ? func : "none"`: a uint32 that says which of the parts behind it is meant; the others are zero.
    Either(Arc<[Type]>),
}

impl Type {
    /// `int64`
    pub const I64: Type = Type::Int { bytes: 8, signed: true };
    /// `uint64`
    pub const U64: Type = Type::Int { bytes: 8, signed: false };
    /// `uint32`
    pub const U32: Type = Type::Int { bytes: 4, signed: false };
    /// `int32`
    pub const I32: Type = Type::Int { bytes: 4, signed: true };
}

/// The source that declares a struct or an enum.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The script.
    Script,
    /// The CUDA tables.
    Cuda,
    /// Debug information of a file.
    Debug,
}

/// An enum.
#[derive(Clone, Debug, PartialEq)]
pub struct Enum {
    /// `CUresult`
    pub name: String,
    /// Some value is negative.
    pub signed: bool,
    /// `(CUDA_SUCCESS, 0)`, sorted by value.
    pub variants: Vec<(String, i64)>,
    /// The source that declares it.
    pub origin: Origin,
}

/// A struct.
#[derive(Clone, Debug, PartialEq)]
pub struct Struct {
    /// `CUlaunchConfig`
    pub name: String,
    /// Bytes.
    pub size: u32,
    /// Bytes.
    pub align: u32,
    /// In order.
    pub fields: Vec<Field>,
    /// The source that declares it.
    pub origin: Origin,
}

/// A member of a struct.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    /// Its name.
    pub name: String,
    /// Bytes from the start.
    pub offset: u32,
    /// Its type.
    pub ty: Type,
    /// `int flag : 3;`: only these bits of the integer at the offset.
    pub bits: Option<Bits>,
    /// A floating-point number, whose bits the type has.
    pub float: bool,
    /// An enum that is not 4 bytes wide, whose bits the type has.
    pub named: Option<EnumId>,
}

/// Place of a bit-field in its integer.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Bits {
    /// Bits below it.
    pub first: u8,
    /// Bits that it has.
    pub count: u8,
}
