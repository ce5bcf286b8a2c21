//! Programs that run in the traced processes (`--in-process`): their code, the jumps to it, and which processes have them.
//!
//! ```text
//! CompiledScript -> native::translate -> SessionMemory (maps, the tracer's code) -> SharedMap, SharedProgram, SharedClock
//!                                     -> TracedProcess -> PatchedRegion (its code, detours, jumps)
//! ```
//!
//! Not here: the memory (`shared`), control of a process (`remote`), what the code is (`native`).

mod environment;
mod gates;
mod outposts;
mod owner;
mod patch_sites;
mod patching;
pub(crate) mod placement;
mod process_ends;
mod regions;
#[cfg(test)]
mod tests;
mod traced_process;
mod unwinder_hooks;
mod user_space;

pub use native::returns::Hook as UnwinderHook;
pub use patch_sites::{PatchCount, PatchSiteFinders, PatchSites};
pub(crate) use patching::Access;
pub use regions::{FileFunctions, FunctionSite, PatchReport, PatchSite};
pub(crate) use user_space::{MemorySizes, UserSpace};
