//! Compiled object to a running session: load, attach, read, finish.
//!
//! ```text
//! Compiled -> Loaded (programs and maps in the kernel) -> Session (attached) -> run -> Ending
//! ```
//!
//! Everything that a run says goes through [`report::Sink`]; names and symbols come from [`report::Names`], which the
//! command line implements. Detaching is what dropping a [`Session`] does.
//!
//! Not here: what the records mean (`wire`), how they look (`report`), which file a library is (`target`), what a script
//! says (`lang`, `codegen`): this crate sees an object and a manifest, never an AST.

pub mod aggregate;
pub mod attach;
pub mod btf;
pub mod clock;
mod control;
mod detach;
mod emptied;
pub mod error;
pub mod features;
mod fetch;
mod load;
pub mod names;
pub mod process;
pub mod ring;
mod rows;
pub mod run;
pub mod runs;
pub mod session;
pub mod signals;
mod single;
mod sys;
#[cfg(test)]
mod tests;
pub mod tracefs;
mod unwind;
mod writes;

pub use attach::{Files, SiteFailure};
pub use detach::{Detached, Detaching};
pub use error::{AttachError, FeatureError, LoadError};
pub use features::Kernel;
pub use names::StackStore;
pub use run::{Control, Ending, Joining, Next, Reason, Watch};
pub use session::{AttachOptions, Loaded, Module, ModuleId, Options, Part, Session};
pub use sys::{exit_status, pidfd_open};
pub use unwind::UnwindMaps;
pub use writes::{WatchedFile, WriteWatch, Written};
