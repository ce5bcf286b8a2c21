//! Declarations from a file's debug information (DWARF): functions with their parameters, and types.
//!
//! A type is returned one level at a time. The type behind a pointer is queried when a script follows the pointer, so that a
//! function of a large program costs only what its own parameters cost.
//!
//! Not here: reading DWARF (`host`), types of the script (`check::types`), locations of arguments (`types::passing`).

use crate::catalog::file_id::FileId;

/// A type of a file, by the catalog's number. A type may have several numbers, since each unit of a program
/// declares its own.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct TypeId {
    /// The file.
    pub file: FileId,
    /// Number in the catalog.
    pub at: u64,
}

/// A function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// C declaration: `int grow(struct pool *p, unsigned long n)`.
    pub declared: String,
    /// Parameters in order; a parameter without a name is named by its index: `_1`.
    pub params: Vec<Param>,
    /// Result type; `None` for `void`.
    pub ret: Option<TypeId>,
    /// True if the caller passes the address of the result as a hidden first argument.
    pub hidden: bool,
    /// The parameters whose locations are unknown, if any.
    pub unsure: Option<Unsure>,
}

/// A parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Param {
    /// `n`
    pub name: String,
    /// Type; for an object that the ABI passes by reference, a pointer to it.
    pub ty: TypeId,
}

/// The locations of arguments are unknown from some parameter on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsure {
    /// Index of the first such parameter.
    pub from: usize,
    /// Reason.
    pub why: String,
}

/// A type of a file.
pub type Type = wire::debug_info::Type<TypeId>;
/// Kind of a type of a file.
pub type Kind = wire::debug_info::Kind<TypeId>;
/// Member of a struct of a file.
pub type Field = wire::debug_info::Field<TypeId>;

/// Advice on how to get debug information for a file.
pub const WITH_INFORMATION: &str = "compile it with `-g`, or install the package with its debug information (`-dbg`, `-dbgsym`, `-debuginfo`)";

/// The reason why a function is not described.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Absent {
    /// The file has no debug information, and no separate debug file.
    NoInformation {
        /// Files that were searched.
        looked_for: Vec<String>,
    },
    /// The debug information does not contain this function.
    NotDescribed,
    /// The debug information cannot be used, or the function does not use its declared calling convention; the
    /// text is the reason.
    Unusable(String),
}
