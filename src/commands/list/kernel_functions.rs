//! `-l 'kprobe:vfs_*'`: functions of the kernel; with `-v` their parameters.

use super::lister::{ListEntry, Lister, ProviderList};
use super::structs;
use anyhow::{Result, bail};
use host::Machine;
use lang::catalog::{Catalog, KERNEL, KernelFunction, VMLINUX};
use lang::hir::Hook;
use lang::resolve::providers::Provider;
use lang::syntax::glob::glob;

pub const KPROBES: ProviderList = ProviderList {
    providers: &["kprobe", "kretprobe"],
    list: |lister, row, pattern| KernelList { row, hook: Hook::Kprobe }.list(lister, pattern),
    all: |_, _| Vec::new(),
};

pub const TRAMPOLINES: ProviderList = ProviderList {
    providers: &["fentry", "fexit"],
    list: |lister, row, pattern| KernelList { row, hook: Hook::Trampoline }.list(lister, pattern),
    all: |_, _| Vec::new(),
};

/// Lists functions of the kernel.
struct KernelList<'p> {
    row: &'p Provider,
    hook: Hook,
}

impl KernelList<'_> {
    /// `kprobe`
    fn kind(&self) -> &'static str {
        self.row.names[0]
    }

    fn is_trampoline(&self) -> bool {
        self.hook == Hook::Trampoline
    }

    fn list(&self, lister: &Lister, pattern: &str) -> Result<Vec<ListEntry>> {
        if let Err(reason) = lister.machine.kernel_hook(self.hook) {
            bail!("this kernel has no `{}` probes: {reason}", self.kind());
        }
        let all = match self.is_trampoline() {
            true => lister.machine.trampoline_functions(),
            false => lister.machine.kernel_functions(),
        };
        let (module, name) = match pattern.split(':').collect::<Vec<_>>()[..] {
            [_, module, name] => (module, name),
            [_, name] => ("*", name),
            _ => ("*", "*"),
        };
        let fits = |function: &&KernelFunction| glob(module, function.module) && glob(name, function.name);
        let listed: Vec<ListEntry> =
            all.iter().filter(fits).map(|function| self.entry(lister, function)).collect();
        match listed.is_empty() {
            true => bail!("no function of the kernel matches `{name}`"),
            false => Ok(listed),
        }
    }

    fn entry(&self, lister: &Lister, function: &KernelFunction) -> ListEntry {
        let (kind, name) = (self.kind(), function.name);
        let name = match function.module {
            VMLINUX if !self.is_trampoline() => format!("{kind}:{name}"),
            module => format!("{kind}:{module}:{name}"),
        };
        lister.entry(name, || self.parameters(lister.machine, function))
    }

    fn parameters(&self, machine: &Machine, function: &KernelFunction) -> Vec<String> {
        let Ok(declared) = machine.declared(KERNEL, function.address, function.name) else {
            return vec!["parameters not known: arg0, arg1, …".into()];
        };
        // A return probe has the span of the call.
        let result = structs::result(&declared.declared).filter(|_| self.row.properties.spans);
        structs::parameters(&declared.declared).into_iter().chain(result).collect()
    }
}
