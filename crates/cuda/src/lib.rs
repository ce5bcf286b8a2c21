//! Facts about CUDA: signatures, symbol families, types, enums.
//!
//! Tables only, without I/O. Three kinds of facts are kept apart: the arguments of a call ([`signature`]), the exported
//! symbols of one logical call ([`family`]), and the names of numbers ([`constant`], [`Enum::name_of`]).
//!
//! ```
//! let call = cuda::signature(cuda::Library::Driver, 0, "cuMemAlloc_v2").unwrap();
//! assert_eq!(call.params[0].name, "dptr");
//! assert_eq!(cuda::ty(call.params[0].ty).c_name, "CUdeviceptr *");
//! ```
//!
//! Not here: the location of an argument at entry (the code generator's ABI), the file of a library (`host`), how values are
//! printed. The tables in `api/driver.rs`, `api/runtime.rs`, `api/defs.rs` are generated: see `gen/README.md`.

#![forbid(unsafe_code)]

pub mod api;
pub mod errors;
pub mod family;
pub mod gates;
pub mod gpu;
pub mod ioctls;
pub mod kernel_driver;
pub mod library;
pub mod operations;
pub mod prelude;
// A link to a file of the agent; the reason is there.
pub mod record;
mod rows;
pub mod types;

pub use api::{Direction, Param, Signature, signature, signatures};
pub use family::{base_name, is_dead, is_live_member};
pub use library::Library;
pub use types::{
    Enum, EnumConstant, EnumId, Field, Kind, Struct, StructId, Type, TypeId, constant, constants,
    driver_constants, enum_def, find_enum, find_struct, find_type, macro_constant, macro_constants,
    struct_def, ty,
};
