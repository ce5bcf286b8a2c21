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
        /// Size: 1, 2, 4 or 8.
        bytes: u8,
        /// True for two's complement.
        signed: bool,
    },
    /// `float`, `double`, `long double`: 4, 8 or 16 bytes in memory. As a value it is a [`Lookup`], which is
    /// printed as the number.
    Float(u8),
    /// 4 bytes that are printed as a name.
    Enum(EnumId),
    /// User-space pointer, 8 bytes; to `Void` if the type of its target is unknown (handles).
    Pointer(Arc<Type>),
    /// NUL-terminated text in a buffer of the given size in bytes, the NUL included; stored with zeros after the
    /// NUL.
    Str(u32),
    /// A C struct: its bytes, in memory or as a value.
    Struct(StructId),
    /// C array: its bytes, in memory or as a value.
    Array(Arc<Type>, u32),
    /// `(1, "a")`; also a key with several parts, and `$kv` of a map loop: `(key, value)`.
    Tuple(Arc<[Type]>),
    /// `(a = 1, b = "x")`: the names, and the types of the values.
    Record(Arc<[String]>, Arc<[Type]>),
    /// `func`, `api`, `probe`: 4 bytes, an index into [`Names`].
    Name(NameKind),
    /// Code address of a process: `usym(x)`, 16 bytes (address, tgid).
    Usym,
    /// Stack id, 8 bytes (id, tgid).
    Stack {
        /// True for the user stack, false for the kernel stack.
        user: bool,
        /// Maximum number of frames.
        limit: u32,
        /// The output format.
        mode: StackMode,
    },
    /// `strftime(format, ns)`: 8 bytes, boot-clock ns; printed with the format.
    Timestamp(String),
    /// `strerror(n)`: 8 bytes, int64; printed as the text found in user space.
    Lookup(Lookup),
    /// `buf(p, n)`: a uint32 length and a capacity in bytes; zeros after the length.
    Buf(u32),
    /// `ntop(address)`: the family and four words in network order, all uint32.
    Inet,
    /// `c ? func : "none"`: a uint32 tag that selects one of the parts after it; the other parts are zero.
    Either(Arc<[Type]>),
}

impl Type {
    /// Whether a variable of this type may hold an address.
    pub fn may_be_address(&self) -> bool {
        matches!(self, Type::Pointer(_) | Type::Int { bytes: 8, signed: false })
    }

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
    /// The name: `CUresult`
    pub name: String,
    /// True if some value is negative.
    pub signed: bool,
    /// The variants: `(CUDA_SUCCESS, 0)`, sorted by value.
    pub variants: Vec<(String, i64)>,
    /// The source that declares it.
    pub origin: Origin,
}

/// A struct.
#[derive(Clone, Debug, PartialEq)]
pub struct Struct {
    /// The name: `CUlaunchConfig`
    pub name: String,
    /// Size in bytes.
    pub size: u32,
    /// Alignment in bytes.
    pub align: u32,
    /// The members, in order.
    pub fields: Vec<Field>,
    /// The source that declares it.
    pub origin: Origin,
}

/// A member of a struct.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    /// The name.
    pub name: String,
    /// Offset in the struct, in bytes.
    pub offset: u32,
    /// The type.
    pub ty: Type,
    /// `int flag : 3;`: the value is only these bits of the integer at the offset.
    pub bits: Option<Bits>,
    /// True for a floating-point number; the type is an integer with its bits.
    pub float: bool,
    /// The enum of the member, if it is not 4 bytes wide; the type then is an integer with its bits.
    pub named: Option<EnumId>,
}

/// The position of a bit-field in its integer.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Bits {
    /// Number of bits below the bit-field.
    pub first: u8,
    /// Number of bits of the bit-field.
    pub count: u8,
}
