//! Sessions whose programs run in the traced processes: maps, ring buffer and clock are memory that these share with the tracer.
//!
//! ```text
//! CompiledScript -> native::translate -> SessionMemory (maps, the tracer's code) -> SharedMap, SharedProgram, SharedClock
//! ```
//!
//! Not here: how code gets into a process (`in_process`), what the code is (`native`).

mod clock;
mod map;
mod memory;

pub use map::SharedMap;
pub use memory::{PlaceError, SessionMemory};

use std::sync::Arc;

/// A program in the memory of a session, for the tracer's own runs.
#[derive(Clone, Debug)]
pub struct SharedProgram {
    memory: Arc<SessionMemory>,
    entry: u64,
}

impl SharedProgram {
    /// Runs it in this process, without an event.
    pub fn run(&self) {
        self.memory.run(self.entry);
    }
}
