//! How functions give way to jumps: the caller finds that out from their files.

use super::regions::PatchSite;
use native::returns::Hook as UnwinderHook;
use std::path::Path;

/// Counts of patches during a session.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct PatchCount {
    /// Number of processes.
    pub processes: usize,
    /// Number of functions, those of all processes added.
    pub functions: usize,
}

/// Finds how a function gives way to a jump, by the file's id and the offset of its first instruction. The error is a text.
pub type PatchSites<'a> = dyn Fn(u32, u64) -> Result<PatchSite, String> + 'a;

/// Finds the functions of a file by which unwinders find tables, and how they give way to jumps.
pub(super) type UnwinderSites = fn(&Path) -> Vec<(UnwinderHook, PatchSite)>;

/// How functions give way to jumps.
#[derive(Copy, Clone)]
pub struct PatchSiteFinders<'a> {
    /// The functions of the script.
    pub functions: &'a PatchSites<'a>,
    /// Finds the functions of unwinders.
    pub unwinder: UnwinderSites,
}
