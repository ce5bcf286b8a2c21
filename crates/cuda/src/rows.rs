//! Rows of the tables of C types; `types` finds rows in them.

/// An interned type: see [`ty`](crate::types::ty).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TypeId(pub(crate) u16);

/// A struct or union: see [`struct_def`](crate::types::struct_def).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StructId(pub(crate) u16);

/// An enum: see [`enum_def`](crate::types::enum_def).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EnumId(pub(crate) u16);

/// A C type.
#[derive(Debug)]
pub struct Type {
    /// The type in C: `CUdeviceptr *`, `const char *`, `unsigned char [16]`. Typedef names are kept: a `size_t`
    /// and an `unsigned long` are two types of one kind.
    pub c_name: &'static str,
    /// Kind after resolving typedefs.
    pub kind: Kind,
}

/// Kind of a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// `void`: a function without result, or the pointee of a `void *`
    Void,
    /// `bool`, one byte
    Bool,
    /// `int`, `size_t`, `CUdeviceptr`
    Int {
        /// 1, 2, 4 or 8
        bytes: u8,
        /// two's complement
        signed: bool,
    },
    /// `float`, `double`
    Float {
        /// 4 or 8
        bytes: u8,
    },
    /// `CUresult`: four bytes
    Enum(EnumId),
    /// `T *` and `const T *`
    Pointer(TypeId),
    /// `const char *`, a string that ends in NUL
    String,
    /// A pointer to an opaque type of the library: `CUstream`
    Handle,
    /// `CUlaunchConfig`, `dim3`
    Struct(StructId),
    /// `char [256]`
    Array(TypeId, u32),
    /// A callback
    Function,
}

/// A struct, or a union, in which all fields have the offset 0.
#[derive(Debug)]
pub struct Struct {
    /// Name of the typedef, if there is one (`CUlaunchConfig`). A type without a name is named after the member
    /// that contains it (`CUDA_RESOURCE_DESC.res`).
    pub name: &'static str,
    /// Size in bytes, with the padding at the end.
    pub size: u32,
    /// Alignment in bytes.
    pub align: u32,
    /// Whether the fields overlap, as in a union.
    pub is_union: bool,
    /// Fields in the order of the definition. Members of anonymous unions are fields with equal offsets.
    pub fields: &'static [Field],
}

/// A member of a struct.
#[derive(Debug)]
pub struct Field {
    /// Its C name.
    pub name: &'static str,
    /// Offset in bytes from the start of the struct.
    pub offset: u32,
    /// Type. CUDA has no bit-fields.
    pub ty: TypeId,
}

/// An enum: four bytes wide.
#[derive(Debug)]
pub struct Enum {
    /// Its C name: `CUresult`.
    pub name: &'static str,
    /// Whether it has negative values.
    pub signed: bool,
    /// Names and values, sorted by value; names with equal values are in the order of their definition.
    pub variants: &'static [(&'static str, i64)],
}

impl Enum {
    /// The name of a value; if several names have it, the one defined first.
    pub fn name_of(&self, value: i64) -> Option<&'static str> {
        let at = self.variants.partition_point(|&(_, v)| v < value);
        self.variants.get(at).filter(|&&(_, v)| v == value).map(|&(name, _)| name)
    }

    /// The value of a name.
    pub fn value_of(&self, name: &str) -> Option<i64> {
        self.variants.iter().find(|&&(n, _)| n == name).map(|&(_, value)| value)
    }
}

impl Struct {
    /// The field of that name.
    pub fn field(&self, name: &str) -> Option<&'static Field> {
        self.fields.iter().find(|field| field.name == name)
    }
}
