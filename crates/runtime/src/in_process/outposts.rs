//! Small pages of code near probed functions. A jump of 32 bits reaches 2 GiB; the region, the memory for our code in a traced process, may be
//! farther. Then the function jumps to a page near it, which jumps on to the region. Near a library there is often room for a page and not
//! for a region, as CUDA reserves much of the address space.
//!
//! Here is the account of the pages and their free room. The caller maps them.

use crate::remote::{OutpostPage, RemoteError, is_in_hole, is_near};
use linux::proc::Mapping;
use std::ops::Range;

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
    /// Addresses of the functions that may use it.
    serves: Range<u64>,
    used: u64,
}

impl Outposts {
    /// Reserves room for the code of a function near it; returns its address. `map` maps a page there, and knows which functions may use it; with
    /// `in_any` this one may use all.
    ///
    /// # Errors
    /// [`RemoteError::NoRoom`], and those of `map`.
    pub(super) fn reserve(
        &mut self,
        function: u64,
        in_any: bool,
        map: impl FnOnce() -> Result<(OutpostPage, Range<u64>), RemoteError>,
    ) -> Result<u64, RemoteError> {
        let near = function..function + 1;
        let fits = |outpost: &&mut Outpost| {
            let may_use = in_any || outpost.serves.contains(&function);
            may_use && outpost.used + ROOM <= PAGE && is_near(&outpost.page.range(), &near)
        };
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
        let (page, serves) = mapped?;
        self.pages.push(Outpost { page, serves, used: ROOM });
        Ok(page.address)
    }

    /// Memory may have become free since the last search.
    pub(super) fn search_again(&mut self) {
        self.crowded = None;
    }

    /// Whether pages may be unmapped with libraries.
    pub(super) fn are_in_holes(&self) -> bool {
        self.pages.iter().any(|outpost| outpost.page.is_in_hole)
    }

    /// Removes the pages that were unmapped with libraries.
    pub(super) fn remove_unmapped(&mut self, maps: &[Mapping]) -> Vec<Range<u64>> {
        let is_gone =
            |outpost: &mut Outpost| outpost.page.is_in_hole && !is_in_hole(maps, outpost.page.address);
        self.pages.extract_if(.., is_gone).map(|outpost| outpost.page.range()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(address: u64) -> (OutpostPage, Range<u64>) {
        (OutpostPage { address, is_in_hole: false }, 0..u64::MAX)
    }

    #[test]
    fn functions_share_the_pages_that_are_near() {
        let mut outposts = Outposts::default();
        let mut reserve =
            |function: u64, page: u64| outposts.reserve(function, false, || Ok(at(page))).expect("room");
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
            let none = outposts.reserve(function, false, || {
                searches += 1;
                Err(RemoteError::NoRoom)
            });
            assert!(none.is_err());
            searches
        };
        assert_eq!(reserve(&mut outposts, 0x7f00_0000_0000), 1);
        assert_eq!(reserve(&mut outposts, 0x7f00_0000_1000), 1);
        assert_eq!(reserve(&mut outposts, 0x7f00_1000_0000), 2);
        outposts.search_again();
        assert_eq!(reserve(&mut outposts, 0x7f00_1000_1000), 3);
    }

    #[test]
    fn a_page_in_a_hole_serves_the_functions_of_its_library_while_that_is_mapped() {
        let mut outposts = Outposts::default();
        let (library, page) = (0x7f00_0000_0000..0x7f00_0100_0000, 0x7f00_0010_0000);
        let mapped = || Ok((OutpostPage { address: page, is_in_hole: true }, library.clone()));
        assert_eq!(outposts.reserve(0x7f00_0000_1000, false, mapped).ok(), Some(page));
        assert_eq!(
            outposts.reserve(0x7f00_0000_2000, false, || panic!("the same page")).ok(),
            Some(page + ROOM)
        );
        let other = 0x7f00_0200_0000;
        assert_eq!(outposts.reserve(other, false, || Ok(at(0x7f00_0300_0000))).ok(), Some(0x7f00_0300_0000));
        assert_eq!(outposts.reserve(other, true, || panic!("any")).ok(), Some(page + 2 * ROOM));
        assert!(outposts.are_in_holes());
        assert_eq!(outposts.remove_unmapped(&[]).first(), Some(&(page..page + PAGE)));
        assert!(!outposts.are_in_holes());
    }

    #[test]
    fn pages_are_few() {
        let mut outposts = Outposts::default();
        let far = |number: u64| 0x1000_0000_0000 + (number << 32);
        for number in 0..MOST as u64 {
            assert_eq!(outposts.reserve(far(number), false, || Ok(at(far(number)))).ok(), Some(far(number)));
        }
        assert!(outposts.reserve(far(99), false, || panic!("no more")).is_err());
    }
}
