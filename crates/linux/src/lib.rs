//! Facts that the kernel reports of processes, each read in one place.
//!
//! - [`proc`]: mappings, states, parents, namespaces and rights in `/proc`
//! - [`pidfd`], [`exit_status`]: the end of a process
//! - [`timer`], [`mailbox`]: ticks and messages for an event loop, which polls their descriptors
//!
//! Not here: memory of other processes and ptrace(2) (`runtime`), files that are mapped (`host`).

pub mod exit_status;
pub mod mailbox;
pub mod pidfd;
pub mod proc;
pub mod timer;
