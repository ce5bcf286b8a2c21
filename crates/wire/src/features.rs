//! Features of the running kernel, found by probing. The runtime fills them in; the compiler selects code by them.

use serde::{Deserialize, Serialize};

/// Kernel function of programs in the traced process: `(64 bytes of memory)`; stores the name of the executed file, with zeros behind it.
pub const PROGRAM_NAME: &str = "ct_program_name";
/// The same, with 16 bytes: stores the name of the process, which is that of its main thread.
pub const PROCESS_NAME: &str = "ct_process_name";
/// The same: `(context, n)`; returns the low 8 bytes of vector register n, of those that pass arguments and results.
pub const VECTOR: &str = "ct_vector";

/// Kernel features that change the generated code or how it is attached.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Features {
    /// Multi-uprobe links (6.6).
    pub uprobe_multi: bool,
    /// Session programs: entry and return in one, with 8 bytes per call (6.13).
    pub uprobe_session: bool,
    /// The session kfuncs take the context as an argument (7.0).
    pub session_takes_context: bool,
    /// Programs at functions may have per-CPU stacks that a run in another thread overwrites, and can disable
    /// preemption (6.13).
    pub private_stack: bool,
    /// `bpf_loop` (5.17).
    pub bpf_loop: bool,
    /// `bpf_map_lookup_percpu_elem` (5.19).
    pub percpu_lookup: bool,
    /// `bpf_for_each_map_elem` (5.13).
    pub for_each_map: bool,
    /// Kernel BTF exists.
    pub btf: bool,
    /// Multi-kprobe links (5.18).
    pub kprobe_multi: bool,
    /// Session programs at functions of the kernel (6.10).
    pub kprobe_session: bool,
}

impl Features {
    /// The minimum: Linux 5.15 without later features.
    pub const FLOOR: Features = Features {
        uprobe_multi: false,
        uprobe_session: false,
        session_takes_context: false,
        private_stack: false,
        bpf_loop: false,
        percpu_lookup: false,
        for_each_map: true,
        btf: false,
        kprobe_multi: false,
        kprobe_session: false,
    };

    /// Code that runs in the traced process: entry and return are one program, whose stack belongs to the thread.
    pub const IN_PROCESS: Features = Features {
        uprobe_multi: true,
        uprobe_session: true,
        session_takes_context: true,
        private_stack: false,
        bpf_loop: true,
        percpu_lookup: true,
        for_each_map: true,
        btf: false,
        kprobe_multi: false,
        kprobe_session: false,
    };

    /// All features that cudatrace uses, as on Linux 6.18.
    pub const ALL: Features = Features {
        uprobe_multi: true,
        uprobe_session: true,
        session_takes_context: false,
        private_stack: true,
        bpf_loop: true,
        percpu_lookup: true,
        for_each_map: true,
        btf: true,
        kprobe_multi: true,
        kprobe_session: true,
    };
}
