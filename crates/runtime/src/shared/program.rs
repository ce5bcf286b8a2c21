//! A program of a session in the memory that is shared.

use super::memory::SessionMemory;
use std::sync::Arc;

/// A program in the memory of a session, for the tracer's own runs.
#[derive(Clone, Debug)]
pub struct SharedProgram {
    pub(crate) memory: Arc<SessionMemory>,
    pub(crate) entry: u64,
}

impl SharedProgram {
    /// Runs it in this process, without an event.
    pub fn run(&self) {
        self.memory.run(self.entry);
    }
}
