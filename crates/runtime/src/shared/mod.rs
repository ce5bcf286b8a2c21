//! Memory that a session shares with the traced processes: maps, ring buffer, clock, unwind tables. Each traced process can write it at
//! any time, so only [`untrusted`] touches it.
//!
//! Not here: its layout (`native`), and how a process gets it (`in_process`).

pub(crate) mod clock;
pub(crate) mod lease;
mod map;
pub(crate) mod memory;
pub(crate) mod names;
mod program;
mod untrusted;
mod unwind_memory;

pub(crate) use map::SharedMap;
pub(crate) use memory::{PlaceError, SessionMemory};
pub(crate) use program::SharedProgram;
pub use untrusted::Damage;
pub(crate) use unwind_memory::UnwindMemory;
