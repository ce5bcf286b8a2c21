//! Small pages of code near probed functions. A jump of 32 bits reaches 2 GiB; the region, the memory for our code in a traced process, may be
//! farther. Then the function jumps to a page near it, which jumps on to the region. Near a library there is often room for a page and not
//! for a region, as CUDA reserves much of the address space.
//!
//! Here is the account of the pages and their free room. The caller maps them.

use crate::remote::{RemoteError, is_near};

/// Size of a page.
const PAGE: u64 = 4096;
/// Bytes for the code of a function.
pub(super) const ROOM: u64 = 96;
/// Largest number of pages: the journal of a region has room for more.
const MOST: usize = 32;

/// The pages of a region.
#[derive(Debug, Default)]
pub(super) struct Outposts(Vec<Outpost>);

/// A page, and how much of it is used.
#[derive(Debug)]
struct Outpost {
    address: u64,
    used: u64,
}

impl Outposts {
    /// Reserves room for the code of a function near it; returns its address. `map` maps a page there.
    ///
    /// # Errors
    /// [`RemoteError::NoRoom`], and those of `map`.
    pub(super) fn reserve(
        &mut self,
        function: u64,
        map: impl FnOnce() -> Result<u64, RemoteError>,
    ) -> Result<u64, RemoteError> {
        let near = function..function + 1;
        let fits = |outpost: &&mut Outpost| {
            outpost.used + ROOM <= PAGE && is_near(&(outpost.address..outpost.address + PAGE), &near)
        };
        if let Some(outpost) = self.0.iter_mut().find(fits) {
            outpost.used += ROOM;
            return Ok(outpost.address + outpost.used - ROOM);
        }
        if self.0.len() == MOST {
            return Err(RemoteError::NoRoom);
        }
        let address = map()?;
        self.0.push(Outpost { address, used: ROOM });
        Ok(address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_share_the_pages_that_are_near() {
        let mut outposts = Outposts::default();
        let mut reserve = |function: u64, page: u64| outposts.reserve(function, || Ok(page)).expect("room");
        assert_eq!(reserve(0x7f00_0000_0000, 0x7f00_1000_0000), 0x7f00_1000_0000);
        assert_eq!(reserve(0x7f00_0000_1000, 1), 0x7f00_1000_0000 + ROOM);
        assert_eq!(reserve(0x7e00_0000_0000, 0x7e00_0001_0000), 0x7e00_0001_0000, "the first page is far");
        for number in 2..PAGE / ROOM {
            assert_eq!(reserve(0x7f00_0000_0000, 1), 0x7f00_1000_0000 + number * ROOM);
        }
        assert_eq!(reserve(0x7f00_0000_0000, 0x7f00_2000_0000), 0x7f00_2000_0000, "the first page is full");
    }

    #[test]
    fn pages_are_few() {
        let mut outposts = Outposts::default();
        let far = |number: u64| 0x1000_0000_0000 + (number << 32);
        for number in 0..MOST as u64 {
            assert_eq!(outposts.reserve(far(number), || Ok(far(number))).ok(), Some(far(number)));
        }
        assert!(outposts.reserve(far(99), || panic!("no more")).is_err());
    }
}
