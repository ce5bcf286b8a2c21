//! This machine: ELF files, libraries, processes, stacks.
//!
//! The edge of the compiler: answers queries of [`lang::Catalog`] from files and `/proc`, and symbolizes addresses. Nothing here
//! needs root, but less is visible without: other users' processes, files of containers, and deleted files.
//!
//! - [`elf`]: functions of a file; [`prologue`]: the address of a probe within a function; [`patch`]: where a jump may replace it
//! - `dwarf`: signatures and types from debug information
//! - [`search`]: the files of a target's name; [`machine`]: the catalog
//! - [`stack`]: names of addresses; [`eh_frame`]: unwind tables; [`python`]: frames of Python

mod branches;
pub mod container;
mod devices;
mod dwarf;
pub mod eh_frame;
pub mod elf;
mod identity;
pub mod machine;
pub mod patch;
mod perf_map;
pub mod prologue;
pub mod python;
pub mod search;
pub mod stack;
pub mod untrusted_file;
pub mod usdt;

pub use dwarf::search_in_folders;
pub use elf::{ElfError, ElfFile};
pub use identity::Identity;
pub use machine::{Kernel, Machine, OwnRuntime, Progress, Scope};
pub use stack::{Frame, Symbols};
