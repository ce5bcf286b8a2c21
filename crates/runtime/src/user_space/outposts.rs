//! Pages near functions from which the region is too far: a jump of 32 bits reaches the page, and a far jump there reaches the region. Where a
//! library is surrounded by what a program has reserved, as CUDA does, such a page has room, and a further region has not.

use super::processes::TracedProcess;
use crate::in_process::{Entry, Region, RemoteError, Stopped, is_near};

/// Size of a page.
const PAGE: u64 = 4096;
/// Bytes for the code of a function.
const ROOM: u64 = 96;
/// Largest number of pages: the journal of a region has room for more.
const MOST: usize = 32;

/// A page, and how much of it is used.
#[derive(Debug)]
pub(super) struct Outpost {
    address: u64,
    used: u64,
}

impl TracedProcess {
    /// Reserves room for the code of a function near it; returns its address.
    ///
    /// # Errors
    /// [`RemoteError::NoRoom`], and those of [`Region::outpost`].
    pub(super) fn reserve_near(&mut self, stopped: &Stopped<'_>, function: u64) -> Result<u64, RemoteError> {
        let near = function..function + 1;
        let fits = |outpost: &&mut Outpost| {
            outpost.used + ROOM <= PAGE && is_near(&(outpost.address..outpost.address + PAGE), &near)
        };
        if let Some(outpost) = self.outposts.iter_mut().find(fits) {
            outpost.used += ROOM;
            return Ok(outpost.address + outpost.used - ROOM);
        }
        if self.outposts.len() == MOST {
            return Err(RemoteError::NoRoom);
        }
        let address = Region::outpost(stopped, near, self.own_filters)?;
        self.record(stopped, &[Entry::Outpost(address)])?;
        self.outposts.push(Outpost { address, used: ROOM });
        Ok(address)
    }

    /// Writes code into room that was reserved.
    pub(super) fn write_near(&self, stopped: &Stopped<'_>, at: u64, code: &[u8]) -> Result<(), RemoteError> {
        if code.len() as u64 > ROOM {
            return Err(RemoteError::NoRoom);
        }
        stopped.write(at, code)
    }
}
