//! Files that the tracer knows before a program starts, and which of them the program has mapped since: a mark for each in
//! memory that the doorman shares with us, so that nobody waits for a word about them.

use super::doorman::Identity;
use crate::sys;
use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

/// Known files, with marks that outlive fork(2).
pub(super) struct Known {
    index: HashMap<Identity, usize>,
    memory: sys::Mapping,
}

impl Known {
    /// None of them is mapped yet.
    ///
    /// # Errors
    /// Those of mmap(2).
    pub(super) fn new(files: &HashSet<Identity>) -> io::Result<Known> {
        let index = files.iter().copied().zip(0..).collect();
        // An empty mapping is none.
        let memory = sys::Mapping::shared_by_fork(files.len().max(1))?;
        Ok(Known { index, memory })
    }

    /// Whether it is one of them; if so, it is mapped from now on.
    pub(super) fn mark(&self, file: &Identity) -> bool {
        self.of(file).map(|mark| mark.store(true, Ordering::Relaxed)).is_some()
    }

    /// It is one of them and was mapped.
    pub(super) fn is_mapped(&self, file: &Identity) -> bool {
        self.of(file).is_some_and(|mark| mark.load(Ordering::Relaxed))
    }

    fn of(&self, file: &Identity) -> Option<&AtomicBool> {
        let at = *self.index.get(file)?;
        // SAFETY: the memory has a byte for each index, was zero, and is written as `AtomicBool` alone.
        Some(unsafe { AtomicBool::from_ptr(self.memory.bytes().add(at).cast()) })
    }
}

impl std::fmt::Debug for Known {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Known").field("index", &self.index).finish_non_exhaustive()
    }
}
