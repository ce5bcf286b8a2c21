//! Counters of a session that are not zero: lost events, failed reads, calls without a return.

use report::Trouble;
use wire::manifest::Place;
use wire::{CounterKind, Manifest};

/// Returns the counters that are not zero. A paired program's two become one, `Entered`: calls seen at entry that did not return,
/// those still under way at the end included.
pub(crate) fn losses(manifest: &Manifest, counts: &[u64]) -> Vec<Trouble> {
    let counted = manifest.counters.iter().zip(counts);
    let returned = |program: u32, place: Place| -> u64 {
        let same = |(counter, _): &(&wire::Counter, &u64)| {
            counter.kind == CounterKind::Returned(program) && counter.place == place
        };
        counted.clone().filter(same).map(|(_, count)| *count).sum()
    };
    let trouble = |(counter, count): (&wire::Counter, &u64)| {
        let count = match counter.kind {
            CounterKind::Entered(program) => count.saturating_sub(returned(program, counter.place)),
            CounterKind::Returned(_) => 0,
            _ => *count,
        };
        Trouble { kind: counter.kind.clone(), count, place: counter.place }
    };
    counted.clone().map(trouble).filter(|trouble| trouble.count > 0).collect()
}
