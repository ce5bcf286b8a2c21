//! This machine: ELF files, libraries, processes, stacks.
//!
//! The rim of the compiler: answers the questions of [`lang::Catalog`] from files and `/proc`, and gives names to
//! addresses. Nothing here needs root, but less is visible without: other users' processes, files of containers, and
//! deleted ones.
//!
//! - [`elf`]: what a file defines; [`prologue`]: where in a function a probe goes
//! - `dwarf`: what debug information says of functions and types
//! - [`locate`]: what a target's name accepts; [`search`]: where on disk libraries lie; [`machine`]: puts them together
//! - [`process`]: `/proc`; [`stack`]: names of addresses; [`unwind`]: how stacks are walked

pub mod container;
mod dwarf;
pub mod eh_frame;
pub mod elf;
mod identity;
pub mod machine;
mod perf_map;
pub mod process;
pub mod prologue;
pub mod search;
pub mod stack;
pub mod untrusted_file;
pub mod usdt;

pub use elf::{ElfError, ElfFile};
pub use identity::Identity;
pub use machine::{Kernel, Machine, Scope};
pub use stack::{Frame, Symbols};
