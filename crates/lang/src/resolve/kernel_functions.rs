//! `kprobe:vfs_*`, `kretprobe:nvidia:nvidia_open`, `fentry:vfs_read`: functions of the kernel and its modules.
//!
//! Functions at their first instruction share one link. Offsets in functions have a perf event each, and so have functions that the
//! kernel's function tracer does not reach: those marked `notrace`, and those of prebuilt objects, which NVIDIA's modules contain.
//! Most kernels refuse probes on such functions (all without CONFIG_KPROBE_EVENTS_ON_NOTRACE), so patterns skip them.

use std::collections::BTreeSet;

use crate::catalog::debug_info::Absent;
use crate::catalog::{KERNEL, KernelFunction, Place, VMLINUX};
use crate::diagnostics::Diagnostic;
use crate::diagnostics::wording::did_you_mean;
use crate::hir::{Hook, NameKind, Site};
use crate::resolve::declaration::FunctionDeclaration;
use crate::resolve::finder::Finder;
use crate::resolve::pattern::{FunctionPattern, NamePattern};
use crate::resolve::provider::{Provider, ProviderProperties};
use crate::resolve::spot::{Call, Miss, Spot, Spots, finding, wrong};
use crate::source::span::Span;
use crate::syntax::ast::{ProbeSpec, text};
use crate::syntax::glob::{glob, is_pattern};

/// A function, which may be a pattern, after the name of its module or not.
pub(super) const KPROBES: ProviderProperties = ProviderProperties {
    patterns: true,
    words: |catalog, _, parts| words(catalog.kernel_functions(), parts),
    ..ProviderProperties::PLAIN
};

/// The same for functions at which trampolines can be.
pub(super) const TRAMPOLINES: ProviderProperties =
    ProviderProperties { words: |catalog, _, parts| words(catalog.trampoline_functions(), parts), ..KPROBES };

/// Modules and functions, or the functions of a module.
fn words(all: &[KernelFunction], parts: &[&str]) -> Vec<String> {
    let name = |function: &KernelFunction| function.name.to_owned();
    match parts {
        [module, _] => all.iter().filter(|function| function.module == *module).map(name).collect(),
        _ => {
            let modules: BTreeSet<&str> = all.iter().map(|function| function.module).collect();
            modules.iter().map(|module| format!("{module}:")).chain(all.iter().map(name)).collect()
        }
    }
}

/// An attach point of kernel functions.
pub(super) struct KernelSpec<'s> {
    pub hook: Hook,
    pub returns: bool,
    /// `vmlinux`, `nvidia*`; `None`: all modules.
    pub module: Option<&'s str>,
    pub name: NamePattern,
    /// Bytes from the first instruction.
    pub offset: u64,
    pub written: &'s str,
    pub at: Span,
}

impl<'s> KernelSpec<'s> {
    fn parse(
        spec: &'s ProbeSpec,
        provider: &Provider,
        hook: Hook,
        returns: bool,
    ) -> Result<KernelSpec<'s>, Miss> {
        let (module, function) = match spec.parts.as_slice() {
            [function] => (None, function),
            [module, function] => (Some(text(&module.node)), function),
            _ => return provider.malformed(spec.span, "expected the name of a function of the kernel"),
        };
        let (name, offset) = match FunctionPattern::parse(&function.node) {
            Ok(FunctionPattern::Named { name, version: None, offset }) => (name, offset),
            Ok(_) => {
                return provider.malformed(function.span, "functions of the kernel are probed by name");
            }
            Err(reason) => return wrong("E0107", function.span, reason, "", Vec::new()),
        };
        if offset > 0 && (returns || hook == Hook::Trampoline) {
            let message = format!("`{}` takes no offset", provider.names[0]);
            return wrong("E0103", function.span, message, "", vec!["use a `kprobe`".into()]);
        }
        let (written, at) = (text(&function.node), function.span);
        Ok(KernelSpec { hook, returns, module, name, offset, written, at })
    }

    fn kind(&self) -> &'static str {
        self.hook.probe_type(self.returns)
    }

    fn is_in_module(&self, function: &KernelFunction) -> bool {
        self.module.is_none_or(|pattern| glob(pattern, function.module))
    }

    fn matches(&self, function: &KernelFunction) -> bool {
        self.is_in_module(function) && self.name.matches(None, function.name, |_| false)
    }

    /// Whether a pattern skips a function that it matches.
    fn skips(&self, function: &KernelFunction) -> bool {
        self.name.single().is_none() && (!function.traceable || is_generated(function.name))
    }
}

/// Whether the compiler generated the function from a part of another one, or the symbol marks padding.
fn is_generated(name: &str) -> bool {
    name.starts_with("__pfx_") || name.starts_with("__cfi_") || name.ends_with(".cold")
}

impl Finder<'_, '_> {
    /// `kprobe:…`, `kretprobe:…`
    pub(super) fn kprobe(&mut self, spec: &ProbeSpec, provider: &Provider, returns: bool) -> Spots {
        let wanted = KernelSpec::parse(spec, provider, Hook::Kprobe, returns)?;
        self.in_kernel(&wanted, self.setting.catalog.kernel_functions())
    }

    /// `fentry:…`, `fexit:…`
    pub(super) fn trampoline(&mut self, spec: &ProbeSpec, provider: &Provider, returns: bool) -> Spots {
        let wanted = KernelSpec::parse(spec, provider, Hook::Trampoline, returns)?;
        if let Some(span) = self.enclosing.named {
            let message = "`fentry` and `fexit` do not have the enclosing calls".to_string();
            return wrong("E0103", span, message, "", vec!["use `kprobe` or `kretprobe`".into()]);
        }
        self.in_kernel(&wanted, self.setting.catalog.trampoline_functions())
    }

    fn in_kernel(&mut self, wanted: &KernelSpec, functions: &[KernelFunction]) -> Spots {
        let absent = match self.setting.catalog.kernel_hook(wanted.hook) {
            Err(reason) => self.no_hook(wanted, &reason),
            Ok(()) => match self.kernel_spots(wanted, functions) {
                none if none.is_empty() => self.no_kernel_function(wanted),
                spots => return Ok(spots),
            },
        };
        if !self.setting.for_other_machine {
            return Err(Miss::Absent(absent));
        }
        self.assume(*absent);
        Ok(self.assumed_spots(wanted))
    }

    fn kernel_spots(&mut self, wanted: &KernelSpec, functions: &[KernelFunction]) -> Vec<Spot> {
        let matching = starting(functions, wanted.name.beginning())
            .filter(|function| wanted.matches(function) && !wanted.skips(function));
        matching.map(|function| self.kernel_spot(wanted, function, &probe_name(wanted, function))).collect()
    }

    /// The spots that another kernel may have: those of this kernel's functions, or of the function that the script names.
    fn assumed_spots(&mut self, wanted: &KernelSpec) -> Vec<Spot> {
        let traceable = |function: &KernelFunction| KernelFunction { traceable: true, ..*function };
        let all = starting(self.setting.catalog.kernel_functions(), wanted.name.beginning());
        let all: Vec<KernelFunction> = all.map(traceable).collect();
        let spots = self.kernel_spots(wanted, &all);
        match wanted.name.single() {
            Some(name) if spots.is_empty() => {
                let module = wanted.module.filter(|module| !is_pattern(module)).unwrap_or(VMLINUX);
                // Names of functions are never freed.
                let lasting = |text: &str| -> &'static str { String::leak(text.to_owned()) };
                let function = assumed_function(lasting(name), lasting(module));
                vec![self.kernel_spot(wanted, &function, &probe_name(wanted, &function))]
            }
            _ => spots,
        }
    }

    /// The spot at a function; `name` is the value of `probe`.
    pub(super) fn kernel_spot(&mut self, wanted: &KernelSpec, function: &KernelFunction, name: &str) -> Spot {
        let hook = match wanted.hook {
            Hook::Kprobe if wanted.offset > 0 || !function.traceable => Hook::SingleKprobe,
            hook => hook,
        };
        let known = self.function(function.name, None);
        // After the first instruction the registers may not hold the arguments.
        let declared = match self.typed && wanted.offset == 0 {
            true => self.setting.catalog.declared(KERNEL, function.address, function.name).map_err(Some),
            false => Err(None),
        };
        let (signature, absent) = match declared {
            Ok(declared) => (Some(FunctionDeclaration::Debug(declared)), None),
            Err(absent) => (None, absent.map(|why: Absent| (function.module.to_owned(), why))),
        };
        let place = Place { offset: function.address + wanted.offset, stack_shift: 0 };
        let probe = self.names.intern(NameKind::Probe, name);
        Spot::Call(Call {
            hook,
            returns: wanted.returns,
            site: Site {
                file: Some(KERNEL),
                module: function.module,
                place,
                semaphore: 0,
                case: 0,
                func: known.func,
                api: known.api,
                probe,
            },
            symbol: function.name.to_owned(),
            signature,
            undeclared_yet: false,
            absent,
            by_name: wanted.name.single().is_some(),
            passed: None,
        })
    }

    /// The kernel has no such probes.
    fn no_hook(&self, wanted: &KernelSpec, reason: &str) -> Box<Diagnostic> {
        let catalog = self.setting.catalog;
        let mut help = Vec::new();
        if wanted.hook == Hook::Trampoline && catalog.kernel_hook(Hook::Kprobe).is_ok() {
            let instead = Hook::Kprobe.probe_type(wanted.returns);
            help.push(format!("use `{instead}:{}`", wanted.written));
        } else if let Some(call) = system_call(wanted.written) {
            let side = if wanted.returns { "exit" } else { "enter" };
            help.push(format!("use `tracepoint:syscalls:sys_{side}_{call}`"));
        } else {
            help.push("use `tracepoint:CATEGORY:EVENT` for events of the kernel; `cudatrace -l 'tracepoint:*:*'` lists them".into());
        }
        let [entry, at_return] = [false, true].map(|returns| wanted.hook.probe_type(returns));
        finding(
            "E0118",
            wanted.at,
            format!("this kernel has neither `{entry}` nor `{at_return}` probes: {reason}"),
            "",
            help,
        )
    }

    fn no_kernel_function(&self, wanted: &KernelSpec) -> Box<Diagnostic> {
        let catalog = self.setting.catalog;
        let of_module = wanted.module.map_or(String::new(), |module| format!(" of `{module}`"));
        let message =
            format!("no function `{}`{of_module} that `{}` can probe", wanted.written, wanted.kind());
        let mut diagnostic = finding("E0105", wanted.at, message, "not found in the kernel", Vec::new());
        let all = catalog.kernel_functions();
        if let Some(misnomer) = cuda::kernel_driver::misnomer(wanted.written) {
            diagnostic.notes.extend(Some(misnomer.reason.to_owned()).filter(|reason| !reason.is_empty()));
            let instead: Vec<String> =
                misnomer.instead.iter().map(|name| format!("`kprobe:nvidia:{name}`")).collect();
            diagnostic
                .help
                .push(format!("use {}, or `ioctl:nvidia:*` for ioctls by name", instead.join(" or ")));
            return diagnostic;
        }
        let exact = |function: &&KernelFunction| {
            function.name == wanted.written || stem(function.name) == wanted.written
        };
        match all.iter().find(exact) {
            Some(function) if function.name != wanted.written => {
                diagnostic.help.push(format!(
                    "the compiler has changed the function's arguments and its name: `kprobe:\"{}\"`",
                    function.name
                ));
            }
            Some(function) if !wanted.is_in_module(function) => {
                diagnostic.help.push(format!("`{}` has it", function.module));
            }
            Some(_) if wanted.hook == Hook::Trampoline => {
                let why = "the kernel's BTF does not describe it, or it is marked `notrace`";
                diagnostic.notes.push(why.into());
                diagnostic.help.push(format!("use `kprobe:{}`", wanted.written));
            }
            _ if self.diags.are_many() => {}
            _ => {
                let names = all.iter().map(|function| function.name);
                // A pattern is no misspelled name.
                let near = wanted.name.single().map_or_else(Vec::new, |name| self.diags.similar(name, names));
                match near.is_empty() {
                    false => diagnostic.help.extend(did_you_mean(&near)),
                    true => diagnostic.help.push(format!(
                        "it is inlined, or in a module that is not loaded; `cudatrace -l 'kprobe:{}*'` lists functions",
                        wanted.name.beginning()
                    )),
                }
            }
        }
        diagnostic
    }
}

/// A function that this kernel lacks, in a script that is only checked.
pub(super) fn assumed_function(name: &'static str, module: &'static str) -> KernelFunction {
    KernelFunction { name, module, address: 0, traceable: true }
}

/// The functions whose names begin with a text, of a list that is sorted by name.
fn starting<'f>(
    functions: &'f [KernelFunction],
    beginning: &'f str,
) -> impl Iterator<Item = &'f KernelFunction> {
    let start = functions.partition_point(|function| function.name < beginning);
    functions[start..].iter().take_while(move |function| function.name.starts_with(beginning))
}

/// The functions with this name.
pub(super) fn named<'f>(
    functions: &'f [KernelFunction],
    name: &'f str,
) -> impl Iterator<Item = &'f KernelFunction> {
    starting(functions, name).filter(move |function| function.name == name)
}

/// The value of `probe`, with the names of bpftrace.
fn probe_name(wanted: &KernelSpec, function: &KernelFunction) -> String {
    let (kind, KernelFunction { module, name, .. }) = (wanted.kind(), function);
    let offset = if wanted.offset > 0 { format!("+{}", wanted.offset) } else { String::new() };
    match wanted.hook {
        Hook::Trampoline => format!("{kind}:{module}:{name}"),
        _ if *module == VMLINUX => format!("{kind}:{name}{offset}"),
        _ => format!("{kind}:{module}:{name}{offset}"),
    }
}

/// The name in the source of a function whose name the compiler has extended: `foo.isra.0`.
fn stem(name: &str) -> &str {
    name.split('.').next().unwrap_or(name)
}

/// The system call that a function implements: `openat` of `__x64_sys_openat` and `do_sys_openat`.
fn system_call(function: &str) -> Option<&str> {
    ["__x64_sys_", "__arm64_sys_", "__se_sys_", "do_sys_", "ksys_", "sys_"]
        .iter()
        .find_map(|prefix| function.strip_prefix(prefix))
        .filter(|call| !is_pattern(call))
}
