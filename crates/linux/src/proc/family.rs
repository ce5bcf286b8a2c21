//! Parents and children of processes.

use super::all_pids;
use super::stat::Stat;

/// `pids` and all their descendants, in ascending order.
pub fn with_descendants(pids: &[u32]) -> Vec<u32> {
    if pids.is_empty() {
        return Vec::new();
    }
    let parents: Vec<(u32, u32)> =
        all_pids().into_iter().filter_map(|pid| Some((pid, Stat::of(pid)?.parent))).collect();
    let mut family = pids.to_vec();
    let mut next = 0;
    while let Some(&parent) = family.get(next) {
        let young =
            parents.iter().filter(|(pid, of)| *of == parent && !family.contains(pid)).map(|(pid, _)| *pid);
        let young: Vec<u32> = young.collect();
        family.extend(young);
        next += 1;
    }
    family.sort_unstable();
    family.dedup();
    family
}

/// Whether a process is one of `roots`, or a descendant of one. Reads only its ancestors, however many processes there are.
pub fn descends_from(pid: u32, roots: &[u32]) -> bool {
    with_ancestors(pid).any(|pid| roots.contains(&pid))
}

/// A process, its parent, the parent of that, and so on.
pub fn with_ancestors(pid: u32) -> impl Iterator<Item = u32> {
    let parent = |pid: &u32| Stat::of(*pid).map(|fields| fields.parent).filter(|parent| *parent != 0);
    // Parents change while they are read; the limit is that of a chain of processes.
    std::iter::successors(Some(pid), parent).take(MOST_ANCESTORS)
}

/// Largest number of ancestors that are read.
const MOST_ANCESTORS: usize = 1000;
