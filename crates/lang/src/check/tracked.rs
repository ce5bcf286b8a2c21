//! Dependency tracking for the rounds of the checker.
//!
//! A body is checked with the facts that are known by then. Every read of a fact is recorded with the body. If the fact has
//! changed by the end of a round, that body is checked again, and no other.

use std::cell::Cell;

use crate::types::Types;

/// Something that widens, and knows how often it has done so.
#[derive(Clone, Debug, Default)]
pub struct Watched<T> {
    value: T,
    /// Number of changes that a body can observe.
    changes: u32,
    /// The changes there were when the body that is being checked first looked.
    seen: Cell<Option<u32>>,
}

/// More is known of it than shows.
pub trait Shown: Clone + PartialEq {
    /// Whether a body cannot observe a difference between the two.
    fn looks_like(&self, other: &Self, types: &Types) -> bool;
}

impl<T: Shown> Watched<T> {
    /// Nobody has looked yet.
    pub fn new(value: T) -> Watched<T> {
        Watched { value, changes: 0, seen: Cell::new(None) }
    }

    /// As it is now; what follows from it is to be found again if it changes.
    pub fn get(&self) -> &T {
        self.seen.set(self.seen.get().or(Some(self.changes)));
        &self.value
    }

    /// Widens it. What comes out may follow from what it was only where the script is refused.
    pub fn change<R>(&mut self, types: &Types, widen: impl FnOnce(&mut T) -> R) -> R {
        let before = self.value.clone();
        let result = widen(&mut self.value);
        let same = before == self.value || before.looks_like(&self.value, types);
        self.changes += u32::from(!same);
        result
    }

    /// Makes it this.
    pub fn set(&mut self, value: T) {
        self.changes += u32::from(value != self.value);
        self.value = value;
    }

    /// The changes there were when somebody first looked since this was last asked; `None` if nobody did.
    pub fn take_seen(&self) -> Option<u32> {
        self.seen.take()
    }

    /// It has changed since it was seen with so many changes.
    pub fn is_beyond(&self, seen: Option<u32>) -> bool {
        seen.is_some_and(|seen| seen != self.changes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Shown for i32 {
        fn looks_like(&self, _: &i32, _: &Types) -> bool {
            false
        }
    }

    #[test]
    fn only_what_was_seen_before_a_change_is_stale() {
        let mut watched = Watched::new(1);
        watched.set(2);
        assert_eq!(watched.take_seen(), None);
        assert_eq!(*watched.get(), 2);
        watched.set(2);
        let seen = watched.take_seen();
        assert!(!watched.is_beyond(seen));
        watched.get();
        watched.set(3);
        watched.get();
        let seen = watched.take_seen();
        assert!(watched.is_beyond(seen) && !watched.is_beyond(watched.take_seen()));
    }
}
