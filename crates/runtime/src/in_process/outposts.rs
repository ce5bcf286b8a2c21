//! Small pages of code near probed functions. A jump of 32 bits reaches 2 GiB; the region, the memory for our code in a traced process, may be
//! farther. Then the function jumps to a page near it, which jumps on to the region. Near a library there is often room for a page and not
//! for a region, as CUDA reserves much of the address space.
//!
//! Here is the account of the pages and their free room. The caller maps them.

use crate::remote::{OutpostPage, RemoteError, is_in_hole, is_near};
use linux::proc::Mapping;

/// Size of a page.
const PAGE: u64 = 4096;
/// Bytes for the code of a function.
pub(super) const ROOM: u64 = 96;
/// Largest number of pages: the journal of a region has room for more.
const MOST: usize = 32;

/// Size of the memory in which functions are taken to have no room near them, as soon as one of them has none. A search takes milliseconds, for
/// which the process stands still, and a library has hundreds of functions.
const CROWDED: u64 = 1 << 20;

/// The pages of a region.
#[derive(Debug, Default)]
pub(super) struct Outposts {
    pages: Vec<Outpost>,
    /// A function that has no room near it.
    crowded: Option<u64>,
}

/// A page, and how much of it is used.
#[derive(Debug)]
struct Outpost {
    page: OutpostPage,
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
        map: impl FnOnce() -> Result<OutpostPage, RemoteError>,
    ) -> Result<u64, RemoteError> {
        let near = function..function + 1;
        let fits =
            |outpost: &&mut Outpost| outpost.used + ROOM <= PAGE && is_near(&outpost.page.range(), &near);
        if let Some(outpost) = self.pages.iter_mut().find(fits) {
            outpost.used += ROOM;
            return Ok(outpost.page.address + outpost.used - ROOM);
        }
        let is_crowded = self.crowded.is_some_and(|other| other.abs_diff(function) < CROWDED);
        if self.pages.len() == MOST || is_crowded {
            return Err(RemoteError::NoRoom);
        }
        let mapped = map();
        self.crowded = matches!(mapped, Err(RemoteError::NoRoom)).then_some(function);
        let page = mapped?;
        self.pages.push(Outpost { page, used: ROOM });
        Ok(page.address)
    }

    /// Memory may have become free since the last search, and libraries may have been unmapped with pages.
    pub(super) fn search_again(&mut self, maps: &[Mapping]) {
        self.crowded = None;
        self.pages.retain(|Outpost { page, .. }| !page.is_in_hole || is_in_hole(maps, page.address));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(address: u64) -> OutpostPage {
        OutpostPage { address, is_in_hole: false }
    }

    #[test]
    fn functions_share_the_pages_that_are_near() {
        let mut outposts = Outposts::default();
        let mut reserve =
            |function: u64, page: u64| outposts.reserve(function, || Ok(at(page))).expect("room");
        assert_eq!(reserve(0x7f00_0000_0000, 0x7f00_1000_0000), 0x7f00_1000_0000);
        assert_eq!(reserve(0x7f00_0000_1000, 1), 0x7f00_1000_0000 + ROOM);
        assert_eq!(reserve(0x7e00_0000_0000, 0x7e00_0001_0000), 0x7e00_0001_0000, "the first page is far");
        for number in 2..PAGE / ROOM {
            assert_eq!(reserve(0x7f00_0000_0000, 1), 0x7f00_1000_0000 + number * ROOM);
        }
        assert_eq!(reserve(0x7f00_0000_0000, 0x7f00_2000_0000), 0x7f00_2000_0000, "the first page is full");
    }

    #[test]
    fn the_neighbours_of_a_function_without_room_are_not_searched() {
        let mut outposts = Outposts::default();
        let mut searches = 0;
        let mut reserve = |outposts: &mut Outposts, function: u64| {
            let none = outposts.reserve(function, || {
                searches += 1;
                Err(RemoteError::NoRoom)
            });
            assert!(none.is_err());
            searches
        };
        assert_eq!(reserve(&mut outposts, 0x7f00_0000_0000), 1);
        assert_eq!(reserve(&mut outposts, 0x7f00_0000_1000), 1);
        assert_eq!(reserve(&mut outposts, 0x7f00_1000_0000), 2);
        outposts.search_again(&[]);
        assert_eq!(reserve(&mut outposts, 0x7f00_1000_1000), 3);
    }

    #[test]
    fn pages_are_few() {
        let mut outposts = Outposts::default();
        let far = |number: u64| 0x1000_0000_0000 + (number << 32);
        for number in 0..MOST as u64 {
            assert_eq!(outposts.reserve(far(number), || Ok(at(far(number)))).ok(), Some(far(number)));
        }
        assert!(outposts.reserve(far(99), || panic!("no more")).is_err());
    }
}
