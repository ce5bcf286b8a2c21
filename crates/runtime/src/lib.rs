//! Runs a compiled script: loads and attaches it, reads its records, and ends it.
//!
//! ```text
//! CompiledScript -> LoadedScript (programs and maps in the kernel) -> Session (attached) -> run -> Ending
//! ```
//!
//! All output of a run goes to [`report::Sink`]. Names and symbols come from [`report::Names`], which the command line
//! implements. Dropping a [`Session`] detaches it.
//!
//! Not here: decoding of records (`wire`), formats (`report`), search of libraries (`host`), scripts (`lang`, `codegen`): this
//! crate receives an object and a manifest, never an AST.

pub mod attach;
pub mod error;
#[cfg(target_arch = "x86_64")]
pub mod gpu;
mod handles;
mod in_process;
pub mod kernel;
mod load;
mod options;
pub mod read;
#[cfg(target_arch = "x86_64")]
pub mod remote;
pub mod session;
mod shared;
pub mod stacks;
pub mod started;
#[cfg(test)]
mod tests;

pub use attach::detach::{DetachSummary, PendingDetach};

pub use error::{AttachError, FeatureError, LoadError, SiteFailure};
pub use in_process::placement::{ClauseNeeds, ScriptState, needs, why_not_in_process};
pub use in_process::{
    FileFunctions, FunctionSite, PatchCount, PatchReport, PatchSite, PatchSiteFinders, PatchSites,
    UnwinderHook,
};
pub use kernel::features::Kernel;
pub use kernel::inotify::{WatchedFile, WriteWatch, WrittenFiles};
pub use kernel::sys::raise_file_limit;
pub use options::{AttachOptions, Files, Module, ModuleId, ModulePart, Options};
pub use session::event_loop::{Control, DamagedMemory, Ending, Joining, Next, Reason, Watch};
pub use session::run_stats;
pub use session::{LoadedScript, Session};
pub use shared::Damage;
pub use stacks::store::StackStore;
pub use stacks::unwind_maps::UnwindMaps;
