//! Processes and their descendants, by the kernel's reports of forks. Unlike `/proc`, it knows processes that have ended, too.

use linux::proc;
use runtime::started::Fork;
use std::collections::BTreeSet;

/// The processes of a tree. A pid stays in it until a process outside the tree gets it.
#[derive(Debug, Default)]
pub struct ProcessTree {
    pids: BTreeSet<u32>,
}

impl ProcessTree {
    /// These processes, with their present descendants.
    pub fn of(roots: &[u32]) -> ProcessTree {
        ProcessTree { pids: proc::with_descendants(roots).into_iter().collect() }
    }

    /// Adds the processes that those of the tree have forked, in the order of the forks.
    pub fn add(&mut self, forks: &[Fork]) {
        for Fork { pid, parent, .. } in forks {
            if self.pids.contains(parent) {
                self.pids.insert(*pid);
            } else {
                // Another process had this id.
                self.pids.remove(pid);
            }
        }
    }

    /// Whether a process is, or was, in the tree.
    pub fn contains(&self, pid: u32) -> bool {
        self.pids.contains(&pid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_of_a_child_is_in_the_tree_until_another_process_has_its_pid() {
        let own = std::process::id();
        let mut tree = ProcessTree::of(&[own]);
        let (child, grandchild, other) = (4_194_305, 4_194_306, 4_194_307);
        let fork = |pid, parent| Fork { pid, parent, time_ns: 1 };
        tree.add(&[fork(child, own), fork(grandchild, child)]);
        assert!([own, child, grandchild].into_iter().all(|pid| tree.contains(pid)));
        tree.add(&[fork(grandchild, other)]);
        assert!(tree.contains(child) && !tree.contains(grandchild) && !tree.contains(other));
    }
}
