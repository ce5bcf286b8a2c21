//! The memory in which an address is.
//!
//! In programs at functions of the kernel a pointer may be one of the kernel or of the process: `args.file->f_path.dentry`,
//! `str(args.filename)`. Addresses of the kernel are negative numbers on all architectures, so the address decides.

use lang::hir::{Expr, Hook};

/// The memory in which an address is.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Space {
    /// Memory of the process.
    User,
    /// Memory of the kernel.
    Kernel,
    /// Decided by the address when the program runs.
    ByAddress,
}

/// The memory in which the address `base` is, in a program with this hook. Variables of a program in the traced process are in its memory.
pub(super) fn space(base: &Expr, hook: Option<Hook>, in_process: bool) -> Space {
    match hook {
        _ if in_process => Space::User,
        _ if base.in_kernel() => Space::Kernel,
        Some(hook) if hook.is_in_kernel() => Space::ByAddress,
        _ => Space::User,
    }
}
