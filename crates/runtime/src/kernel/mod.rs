//! The kernel's interfaces that need no session: system calls, features, BTF, tracefs, clocks, signals and inotify.

pub mod btf;
pub mod clock;
pub mod features;
pub(crate) mod inotify;
pub(crate) mod links;
pub(crate) mod perf_pmu;
pub mod signals;
pub mod symbols;
pub(crate) mod sys;
pub mod tracefs;
