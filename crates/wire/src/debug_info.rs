//! C types as debug information declares them (DWARF of a file, BTF of the kernel), one level at a time.
//!
//! A type names others by an id: the offset in DWARF with its file, the number in BTF.
//!
//! Not here: reading them (the crates of files and of the kernel), and what scripts make of them (`lang`).

/// A type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Type<Id> {
    /// `ns::point`, `task_struct`; the name of a typedef if the type itself has none; empty if there is no name.
    pub name: String,
    /// Kind after resolving typedefs and qualifiers.
    pub kind: Kind<Id>,
}

/// Kind of a type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind<Id> {
    /// `void`, a function, or an unknown type.
    Void,
    /// `bool`
    Bool,
    /// `long`, `char`
    Int {
        /// 1, 2, 4 or 8.
        bytes: u8,
        /// Two's complement.
        signed: bool,
    },
    /// `double`; 16 bytes are `long double` of x86.
    Float {
        /// 4, 8 or 16.
        bytes: u8,
    },
    /// `enum color`
    Enum {
        /// 1, 2, 4 or 8.
        bytes: u8,
        /// True if the values are signed.
        signed: bool,
        /// Names and values, in order.
        variants: Vec<(String, i64)>,
    },
    /// `T *`, `T &`; `None` for a pointer to `void`.
    Pointer(Option<Id>),
    /// A struct, class or union. A size of 0 means that only its name is known.
    Struct {
        /// Size in bytes.
        size: u32,
        /// Fields, including members of base classes and of unnamed members.
        fields: Vec<Field<Id>>,
    },
    /// `T [4]`
    Array(Id, u32),
    /// A type that scripts do not support: `__int128`.
    Other {
        /// Size in bytes, as far as known.
        size: u32,
    },
}

/// A member of a struct.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field<Id> {
    /// Its name.
    pub name: String,
    /// Offset in bytes from the start.
    pub offset: u32,
    /// Its type.
    pub ty: Id,
    /// For a bit-field: its first bit above the offset, and its number of bits.
    pub bits: Option<(u8, u8)>,
}

impl<Id> Type<Id> {
    /// Converts the ids of a type.
    pub fn map_ids<To>(self, id: impl Fn(Id) -> To) -> Type<To> {
        let kind = match self.kind {
            Kind::Void => Kind::Void,
            Kind::Bool => Kind::Bool,
            Kind::Int { bytes, signed } => Kind::Int { bytes, signed },
            Kind::Float { bytes } => Kind::Float { bytes },
            Kind::Enum { bytes, signed, variants } => Kind::Enum { bytes, signed, variants },
            Kind::Pointer(to) => Kind::Pointer(to.map(id)),
            Kind::Array(element, count) => Kind::Array(id(element), count),
            Kind::Other { size } => Kind::Other { size },
            Kind::Struct { size, fields } => {
                let field = |Field { name, offset, ty, bits }| Field { name, offset, ty: id(ty), bits };
                Kind::Struct { size, fields: fields.into_iter().map(field).collect() }
            }
        };
        Type { name: self.name, kind }
    }
}
