//! The BPF object of a compiled script as x86-64 code for the traced process itself: a probe there is a jump, not a trap.
//!
//! ```text
//! object -> object/ (functions, maps, references)
//! ```
//!
//! Bytes in, bytes out: nothing here touches a process.

#![forbid(unsafe_code)]

pub mod object;
