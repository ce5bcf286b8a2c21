//! The control cell: one map value that the runtime and the programs both write.
//!
//! The runtime writes the start time and the end of the run; the first `exit()` writes the end and its code; a test writes its
//! result. Layout: `wire::manifest`, `CONTROL_*`.

use crate::handles::MapHandle;
use std::io;
use wire::manifest::{self, CONTROL_EXITED, CONTROL_RETURNED, CONTROL_SIZE, CONTROL_START, STOPPED};

/// The one cell of the control map.
pub(crate) struct ControlCell<'a>(pub &'a MapHandle);

impl ControlCell<'_> {
    /// Ends the run: the programs of probes return at once from now on. An existing exit code stays.
    pub(crate) fn stop(&self) -> io::Result<()> {
        if self.exit_code()?.is_some() { Ok(()) } else { self.set(&[(CONTROL_EXITED, STOPPED)]) }
    }

    /// The code of `exit()`, if a program has called it.
    pub(crate) fn exit_code(&self) -> io::Result<Option<i64>> {
        let cell = self.read()?;
        let at = CONTROL_EXITED as usize;
        let word = u64::from_le_bytes(cell[at..at + 8].try_into().expect("8 bytes"));
        Ok(manifest::exit_code(word))
    }

    /// Boot-clock time at which `elapsed` is 0.
    pub(crate) fn start_ns(&self) -> io::Result<u64> {
        let (cell, at) = (self.read()?, CONTROL_START as usize);
        Ok(u64::from_le_bytes(cell[at..at + 8].try_into().expect("8 bytes")))
    }

    /// The result of a test.
    pub(crate) fn returned(&self) -> io::Result<i64> {
        let (cell, at) = (self.read()?, CONTROL_RETURNED as usize);
        Ok(i64::from_le_bytes(cell[at..at + 8].try_into().expect("8 bytes")))
    }

    /// Removes the result and the exit code of the previous test.
    pub(crate) fn reset_test(&self) -> io::Result<()> {
        self.set(&[(CONTROL_EXITED, 0), (CONTROL_RETURNED, 0)])
    }

    fn read(&self) -> io::Result<[u8; CONTROL_SIZE as usize]> {
        let mut cell = [0; CONTROL_SIZE as usize];
        self.0.lookup(&[0; 4], &mut cell).map(|()| cell)
    }

    /// Writes words at byte offsets in the cell; the others stay.
    pub(crate) fn set(&self, words: &[(u32, u64)]) -> io::Result<()> {
        let mut cell = self.read()?;
        for (at, word) in words {
            cell[*at as usize..*at as usize + 8].copy_from_slice(&word.to_le_bytes());
        }
        self.0.update(&[0; 4], &cell)
    }
}
