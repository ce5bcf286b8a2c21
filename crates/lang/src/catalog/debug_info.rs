//! Declarations from a file's debug information (DWARF): functions with their parameters, and types.
//!
//! A type is returned one level at a time. The type behind a pointer is queried when a script follows the pointer, so that a
//! function of a large program costs only what its own parameters cost.
//!
//! Not here: reading DWARF (`host`), types of the script (`check::types`), locations of arguments (`types::passing`).

use crate::catalog::FileId;

/// A type of a file, as the catalog numbers it. One type may have several numbers: each unit of a program declares its own.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct TypeId {
    /// The file.
    pub file: FileId,
    /// The catalog's number.
    pub at: u64,
}

/// A function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// As C declares it: `int grow(struct pool *p, unsigned long n)`.
    pub declared: String,
    /// In order; those without a name are called by their place: `_1`.
    pub params: Vec<Param>,
    /// `None`: it returns nothing.
    pub ret: Option<TypeId>,
    /// The caller says where the result goes, before all parameters.
    pub hidden: bool,
    /// Where nobody can tell how a function is called.
    pub unsure: Option<Unsure>,
}

/// A parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Param {
    /// `n`
    pub name: String,
    /// Its type; of an object that the ABI passes by its address, a pointer to it.
    pub ty: TypeId,
}

/// From some parameter on nobody can tell where arguments lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsure {
    /// The first such parameter.
    pub from: usize,
    /// Why, in words.
    pub why: String,
}

/// A type of a file.
pub type Type = wire::debug_info::Type<TypeId>;
/// What a type of a file is.
pub type Kind = wire::debug_info::Kind<TypeId>;
/// A member of a struct of a file.
pub type Field = wire::debug_info::Field<TypeId>;

/// What gives a file debug information.
pub const WITH_INFORMATION: &str = "compile it with `-g`, or install the package with its debug information (`-dbg`, `-dbgsym`, `-debuginfo`)";

/// Why nothing is known of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Absent {
    /// The file has no debug information, nor is there any beside it.
    NoInformation {
        /// Files that were looked for.
        looked_for: Vec<String>,
    },
    /// There is some, and this function is not in it.
    NotDescribed,
    /// There is some that cannot be used, or the function is not called as it is declared: why, in words.
    Unusable(String),
}
