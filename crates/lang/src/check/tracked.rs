//! Dependency tracking for the rounds of the checker.
//!
//! A body is checked with the current facts. Every read of a fact is recorded with the body. Only bodies that read a changed
//! fact are checked again.

use std::cell::Cell;

use crate::types::Types;

/// A fact that widens, with a count of its changes.
#[derive(Clone, Debug, Default)]
pub struct TrackedFact<T> {
    value: T,
    /// Number of changes that a body can observe.
    changes: u32,
    /// The count of changes at the first read by the current body.
    seen: Cell<Option<u32>>,
}

/// A fact with an observable part: the rest may change without a new check.
pub trait Observable: Clone + PartialEq {
    /// Whether a body cannot observe a difference between the two.
    fn is_equivalent(&self, other: &Self, types: &Types) -> bool;
}

impl<T: Observable> TrackedFact<T> {
    pub fn new(value: T) -> TrackedFact<T> {
        TrackedFact { value, changes: 0, seen: Cell::new(None) }
    }

    /// The current value; records the read.
    pub fn get(&self) -> &T {
        self.seen.set(self.seen.get().or(Some(self.changes)));
        &self.value
    }

    /// Widens the fact. The result must not depend on the previous value, except when it is an error.
    pub fn change<R>(&mut self, types: &Types, widen: impl FnOnce(&mut T) -> R) -> R {
        let before = self.value.clone();
        let result = widen(&mut self.value);
        let same = before == self.value || before.is_equivalent(&self.value, types);
        self.changes += u32::from(!same);
        result
    }

    pub fn set(&mut self, value: T) {
        self.changes += u32::from(value != self.value);
        self.value = value;
    }

    /// The count of changes at the first read since the last call; `None` without a read.
    pub fn take_seen(&self) -> Option<u32> {
        self.seen.take()
    }

    /// Whether the fact has changed since it was read.
    pub fn has_changed_since(&self, seen: Option<u32>) -> bool {
        seen.is_some_and(|seen| seen != self.changes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Observable for i32 {
        fn is_equivalent(&self, _: &i32, _: &Types) -> bool {
            false
        }
    }

    #[test]
    fn only_reads_before_a_change_are_stale() {
        let mut fact = TrackedFact::new(1);
        fact.set(2);
        assert_eq!(fact.take_seen(), None);
        assert_eq!(*fact.get(), 2);
        fact.set(2);
        let seen = fact.take_seen();
        assert!(!fact.has_changed_since(seen));
        fact.get();
        fact.set(3);
        fact.get();
        let seen = fact.take_seen();
        assert!(fact.has_changed_since(seen) && !fact.has_changed_since(fact.take_seen()));
    }
}
