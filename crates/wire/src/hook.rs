//! Ways to run a program at functions.

use serde::{Deserialize, Serialize};

/// The way in which programs are attached to functions, which determines their context.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Hook {
    /// `uprobe`, `uretprobe`, `usdt`: an instruction in a file. The context has the registers of the process.
    Uprobe,
    /// `kprobe`, `kretprobe` on functions of the kernel that its function tracer reaches: one link for many of them, if the kernel
    /// has such links. The context has the registers of the kernel.
    Kprobe,
    /// `kprobe`, `kretprobe` on other instructions and functions of the kernel: one perf event each. The context is the same.
    SingleKprobe,
    /// `fentry`, `fexit`: one program per function of the kernel. The context has the arguments, and at the return the result.
    Trampoline,
}

impl Hook {
    /// Whether the functions are functions of the kernel.
    pub fn is_in_kernel(self) -> bool {
        match self {
            Hook::Uprobe => false,
            Hook::Kprobe | Hook::SingleKprobe | Hook::Trampoline => true,
        }
    }

    /// The value of `probetype` at the entry or at the return.
    pub fn probe_type(self, returns: bool) -> &'static str {
        match (self, returns) {
            (Hook::Uprobe, false) => "uprobe",
            (Hook::Uprobe, true) => "uretprobe",
            (Hook::Kprobe | Hook::SingleKprobe, false) => "kprobe",
            (Hook::Kprobe | Hook::SingleKprobe, true) => "kretprobe",
            (Hook::Trampoline, false) => "fentry",
            (Hook::Trampoline, true) => "fexit",
        }
    }
}
