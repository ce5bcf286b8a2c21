//! Control of another process by ptrace, without any code of ours in it beforehand: memory, code, and jumps to the code.
//!
//! ```text
//! Tracer -> StoppedProcess (threads) -> Region (memory, by system calls of a stopped thread) -> Patches (jumps)
//! ```
//!
//! Everything is done by a thread of its own ([`Tracer::run`]). If that thread ends, for whatever reason, the kernel resumes all
//! threads that it holds. The process may be killed at any time; then [`RemoteError::Gone`] is returned.
//!
//! What a traced process sees: a thread that sleeps in some system calls (`epoll_wait`, `nanosleep` …) is interrupted by a stop, as
//! by a signal without a handler. The kernel restarts most of them; those that signal(7) lists under "stop signals" return EINTR.
//!
//! Not here: the contents of the region (`native`), which functions may be patched (`host::patch`).

mod critical_section;
mod descriptors;
mod error;
mod journal;
mod load_request;
mod memory_map;
mod patches;
mod ptrace;
mod region;
mod return_addresses;
pub mod seccomp;
mod signal_frame;
mod stopped;
mod system_calls;

pub use error::RemoteError;
pub(crate) use journal::is_shared_data;
pub use journal::{ENTRY as JOURNAL_ENTRY, Entry, Jump, Remains};
pub use load_request::Library;
pub use memory_map::{OutpostPage, is_in_hole, is_near};
pub use patches::{Patch, PatchOutcome, Patches, SkipReason};
pub(crate) use ptrace::has_shadow_stacks;
pub use region::{Region, RegionSize, SharedFile};
pub use stopped::{SeizedThread, StoppedProcess, Tracer};
pub use system_calls::RemoteCalls;
