//! The contract between a BPF program and its reader.
//!
//! Both sides compute byte positions with this crate: `codegen` for the offset of a store, `runtime` for the offset of a load.
//! The [`manifest::Manifest`] has everything that a reader needs, so that another tool can read the stream from the manifest alone.
//!
//! Rules: natural alignment; every padding byte is written as zero; the first word of a record is its event id, an index into
//! the manifest; an unknown id is counted and reported, never a panic.

#![forbid(unsafe_code)]

pub mod counter;
pub mod debug_info;
pub mod decode;
pub mod features;
pub mod hook;
pub mod kernel_function;
pub mod layout;
pub mod manifest;
pub mod map;
mod place;
pub mod python;
pub mod trigger;
pub mod types;
pub mod unwind;

pub use counter::{Counter, CounterKind};
pub use decode::Value;
pub use features::Features;
pub use hook::Hook;
pub use layout::{Field, Record};
pub use manifest::Manifest;
pub use types::{NameKind, Type};
