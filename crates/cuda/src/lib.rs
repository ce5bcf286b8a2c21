//! What is known of CUDA by heart: signatures, symbol families, types, enums.
//!
//! Data, no cleverness and no I/O. Three kinds of facts, kept apart: what a call's arguments are ([`signature`]), which
//! exported symbols are one logical call ([`family`]), and how numbers are named ([`constant`], [`Enum::name_of`]).
//!
//! ```
//! let call = cuda::signature(cuda::Library::Driver, 0, "cuMemAlloc_v2").unwrap();
//! assert_eq!(call.params[0].name, "dptr");
//! assert_eq!(cuda::ty(call.params[0].ty).c_name, "CUdeviceptr *");
//! ```
//!
//! Not here: where an argument lives at entry (the code generator's ABI), which file a library is (`target`), how values
//! are printed. The tables in `api/driver.rs`, `api/runtime.rs`, `api/defs.rs` are generated: see `gen/README.md`.

pub mod api;
pub mod errors;
pub mod family;
pub mod library;
pub mod operations;
pub mod types;

pub use api::{Direction, Param, Signature, signature, signatures};
pub use family::{base_name, is_dead, is_live_member};
pub use library::Library;
pub use types::{
    Enum, EnumId, Field, Kind, Struct, StructId, Type, TypeId, constant, constants, enum_def, find_enum,
    find_struct, find_type, macro_constant, macro_constants, struct_def, ty,
};
