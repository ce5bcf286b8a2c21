//! Counters of a session that are not zero: lost events, failed reads, calls without a return.

use report::Loss;
use std::collections::BTreeMap;
use wire::manifest::Place;
use wire::{CounterKind, Manifest};

/// Returns the counters that are not zero. `Entered` is reduced by `Returned`, which is omitted: the difference is the number
/// of calls that had not returned.
pub(crate) fn losses(manifest: &Manifest, counts: &[u64]) -> Vec<Loss> {
    let counted = manifest.counters.iter().zip(counts);
    let returned = |program: u32, place: Place| -> u64 {
        let same = |(counter, _): &(&wire::Counter, &u64)| {
            counter.kind == CounterKind::Returned(program) && counter.place == place
        };
        counted.clone().filter(same).fold(0, |sum, (_, count)| sum.wrapping_add(*count))
    };
    let loss = |(counter, count): (&wire::Counter, &u64)| {
        let count = match counter.kind {
            CounterKind::Entered(program) => count.saturating_sub(returned(program, counter.place)),
            CounterKind::Returned(_) => 0,
            _ => *count,
        };
        Loss { kind: counter.kind.clone(), count, place: counter.place }
    };
    counted.clone().map(loss).filter(|loss| loss.count > 0).collect()
}

/// Separates updates of locked maps from those of full maps, which programs count alike. `refused`: number of updates that found a map
/// locked, by the id of the map.
pub(crate) fn separate_locked(losses: Vec<Loss>, refused: impl Fn(u32) -> u64) -> Vec<Loss> {
    let mut left: BTreeMap<u32, u64> = BTreeMap::new();
    let separate = |loss: Loss| {
        let CounterKind::MapFull(map) = loss.kind else { return [loss.clone(), Loss { count: 0, ..loss }] };
        let left = left.entry(map).or_insert_with(|| refused(map));
        let count = loss.count.min(*left);
        *left -= count;
        let locked = Loss { kind: CounterKind::MapLocked(map), count, ..loss.clone() };
        [Loss { count: loss.count - count, ..loss }, locked]
    };
    losses.into_iter().flat_map(separate).filter(|loss| loss.count > 0).collect()
}

/// Updates and deletions of the tracer that found a map locked.
pub(crate) fn locked(map: u32, count: u64) -> Loss {
    Loss { kind: CounterKind::MapLocked(map), count, place: Place::default() }
}

/// The loss of calls in a traced process whose return was not traced: there was no room, or their frame was overwritten.
pub(crate) fn lost_returns(count: u64) -> Option<Loss> {
    (count > 0).then(|| Loss { kind: CounterKind::NoCallSlot, count, place: Place::default() })
}

/// Number of calls whose return was ignored.
pub(crate) fn ignored_returns(losses: &[Loss]) -> u64 {
    losses.iter().filter(|loss| loss.kind == CounterKind::NoCallSlot).map(|loss| loss.count).sum()
}

/// The loss of records that traced processes had not finished when they ended.
pub(crate) fn unfinished(count: u64) -> Option<Loss> {
    (count > 0).then(|| Loss { kind: CounterKind::Unfinished, count, place: Place::default() })
}

/// Events at which the kernel did not run a program.
pub(crate) fn missed(count: u64) -> Option<Loss> {
    (count > 0).then(|| Loss { kind: CounterKind::Missed, count, place: Place::default() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::Counter;

    #[test]
    fn updates_of_a_locked_map_are_not_those_of_a_full_one() {
        let loss = |kind, count| Loss { kind, count, place: Place::default() };
        let counted = vec![
            loss(CounterKind::MapFull(0), 3),
            loss(CounterKind::MapFull(1), 2),
            loss(CounterKind::UserRead, 4),
            loss(CounterKind::MapFull(0), 3),
        ];
        let separated = separate_locked(counted, |map| if map == 0 { 4 } else { 0 });
        let wanted = [
            loss(CounterKind::MapLocked(0), 3),
            loss(CounterKind::MapFull(1), 2),
            loss(CounterKind::UserRead, 4),
            loss(CounterKind::MapFull(0), 2),
            loss(CounterKind::MapLocked(0), 1),
        ];
        assert_eq!(separated, wanted);
    }

    #[test]
    fn calls_that_have_not_returned_are_counted_per_script() {
        let counter = |kind, source| Counter { kind, place: Place { source, line: 3, column: 1 } };
        let (entered, returned) = (CounterKind::Entered(0), CounterKind::Returned(0));
        // Clauses of several scripts have the same numbers.
        let counters = [counter(entered.clone(), 0), counter(returned.clone(), 0), counter(returned, 1)];
        let manifest = Manifest { counters: counters.to_vec(), ..Manifest::default() };
        let open = |counts: [u64; 3]| losses(&manifest, &counts);
        let loss = Loss { kind: entered, count: 1, place: manifest.counters[0].place };
        assert_eq!(open([5, 4, 9]), [loss]);
        assert_eq!(open([4, 4, 9]), []);
    }
}
