//! Scripts that define variables and functions of scripts, such as `kernel_name` and `device`, by calls of CUDA.
//!
//! A macro replaces each use; the clauses and maps are added to the script that uses one. A clause with a name is added only
//! where a macro, or an option, of this name is used. `getopt("NAME")` is true under the same condition. Names that begin with
//! `__` are internal: a call of `__text_hash` that is no macro is a function that other scripts cannot call.

/// A script of definitions.
#[derive(Debug)]
pub struct Prelude {
    /// Its name, which is part of the names of its variables.
    pub name: &'static str,
    /// Its text.
    pub text: &'static str,
}

/// `alloc_size(p)`
pub static ALLOCATIONS: Prelude = Prelude { name: "alloc", text: include_str!("../prelude/allocations.ct") };
/// `kernel_name(handle)`
pub static KERNEL_NAMES: Prelude =
    Prelude { name: "kernel", text: include_str!("../prelude/kernel_names.ct") };
/// `device`
pub static DEVICES: Prelude = Prelude { name: "device", text: include_str!("../prelude/devices.ct") };
