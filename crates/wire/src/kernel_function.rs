//! Functions of the kernel, as the runtime reads them and scripts name them.

/// The module of the kernel itself.
pub const VMLINUX: &str = "vmlinux";

/// A function of the kernel or of a module. The order is by name, module and address.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KernelFunction {
    /// Symbol.
    pub name: &'static str,
    /// Its module; [`VMLINUX`] for the kernel itself.
    pub module: &'static str,
    /// Address of the first instruction.
    pub address: u64,
    /// Whether the kernel's function tracer reaches it.
    pub traceable: bool,
}
