//! `driver:open`, `driver:*`, `driver:ioctl:start`: what NVIDIA's kernel driver does, by the function that does it in the loaded modules.
//!
//! The table `cuda::kernel_driver` has the functions of each event, newest first: the first one that the kernel has is probed, by a
//! trampoline if it has one, otherwise by a kprobe.

use crate::catalog::{Catalog, KernelFunction};
use crate::diagnostics::wording::did_you_mean;
use crate::diagnostics::{Diagnostic, suggest::similar};
use crate::expand::operations::START;
use crate::hir::Hook;
use crate::resolve::completion;
use crate::resolve::finder::Finder;
use crate::resolve::kernel_functions::{KernelSpec, assumed_function, named};
use crate::resolve::pattern::NamePattern;
use crate::resolve::provider::{Provider, ProviderProperties};
use crate::resolve::spot::{Miss, Spot, Spots, finding, wrong};
use crate::source::span::Span;
use crate::syntax::ast::{ProbeSpec, text};
use crate::syntax::glob::glob;
use cuda::kernel_driver::{self, DriverBuild, EVENTS, Event};

/// An event, which may be a pattern.
pub(super) const PROPERTIES: ProviderProperties = ProviderProperties {
    patterns: true,
    spans: true,
    words: |_, _, parts| completion::only_part(parts, EVENTS.iter().map(|event| event.name)),
    ..ProviderProperties::PLAIN
};

/// A function of the driver, and the best hook that reaches it.
struct HookedFunction {
    hook: Hook,
    function: KernelFunction,
}

impl Finder<'_, '_> {
    /// `driver:EVENT`, `driver:EVENT:start`
    pub(super) fn driver(&mut self, spec: &ProbeSpec, provider: &Provider) -> Spots {
        let parts: Vec<&str> = spec.parts.iter().map(|part| text(&part.node)).collect();
        let (name, returns) = match parts[..] {
            [name] => (name, true),
            [name, START] => (name, false),
            _ => return provider.malformed(spec.span, "expected the name of an event"),
        };
        let events: Vec<&Event> = EVENTS.iter().filter(|event| glob(name, event.name)).collect();
        let span = spec.parts[0].span;
        if events.is_empty() {
            let help = match did_you_mean(&similar(name, EVENTS.iter().map(|event| event.name))) {
                near if near.is_empty() => vec!["`cudatrace -l 'driver:*'` lists its events".into()],
                near => near,
            };
            return wrong("E0119", span, format!("the driver has no event `{name}`"), "", help);
        }
        let absent = match self.no_hook_of_driver(span) {
            Some(no_hook) => no_hook,
            None => {
                let found = events.iter().filter_map(|event| Some((*event, self.function_of(event)?)));
                let found: Vec<(&Event, HookedFunction)> = found.collect();
                let spots =
                    found.iter().map(|(event, at)| self.event_spot(event, at, returns, spec)).collect();
                match found.is_empty() {
                    true => self.no_functions_of(&events, spec),
                    false => return Ok(spots),
                }
            }
        };
        if !self.setting.for_other_machine {
            return Err(Miss::Absent(absent));
        }
        self.assume(*absent);
        let mut assumed = |event: &&Event| {
            let first = &event.functions[0];
            let at = HookedFunction {
                hook: Hook::Kprobe,
                function: assumed_function(first.name, first.module.name()),
            };
            self.event_spot(event, &at, returns, spec)
        };
        Ok(events.iter().map(&mut assumed).collect())
    }

    /// The reason why this kernel can probe none of the driver's functions.
    fn no_hook_of_driver(&self, span: Span) -> Option<Box<Diagnostic>> {
        let catalog = self.setting.catalog;
        let reason = catalog.kernel_hook(Hook::Kprobe).err()?;
        catalog.kernel_hook(Hook::Trampoline).err()?;
        let message = format!("this kernel cannot probe the driver's functions: {reason}");
        let help = vec!["`ioctl:nvidia:*` probes ioctls by tracepoints".into()];
        Some(finding("E0118", span, message, "", help))
    }

    fn event_spot(&mut self, event: &Event, at: &HookedFunction, returns: bool, spec: &ProbeSpec) -> Spot {
        let function = &at.function;
        let wanted = KernelSpec {
            hook: at.hook,
            returns,
            module: Some(function.module),
            name: NamePattern::Exact(function.name.into()),
            offset: 0,
            written: text(&spec.parts[0].node),
            at: spec.parts[0].span,
        };
        let side = if returns { "" } else { ":start" };
        self.kernel_spot(&wanted, function, &format!("driver:{}{side}", event.name))
    }

    /// Whether a function of the event can be probed.
    pub(super) fn has_driver_event(&self, name: &str) -> bool {
        kernel_driver::event(name).is_some_and(|event| self.function_of(event).is_some())
    }

    /// The function of an event that the kernel has, and the best hook that reaches it: modules may lack BTF, which trampolines need.
    fn function_of(&self, event: &Event) -> Option<HookedFunction> {
        let catalog = self.setting.catalog;
        let among = |all: &[KernelFunction]| {
            let of = |function: &kernel_driver::Function| {
                named(all, function.name)
                    .find(|found| found.module == function.module.name() && found.traceable)
            };
            event.functions.iter().find_map(of).copied()
        };
        let by = |hook: Hook, all: fn(&dyn Catalog) -> &[KernelFunction]| {
            catalog.kernel_hook(hook).ok()?;
            Some(HookedFunction { hook, function: among(all(catalog))? })
        };
        let trampoline = match self.enclosing.named {
            None => by(Hook::Trampoline, |catalog| catalog.trampoline_functions()),
            Some(_) => None,
        };
        trampoline.or_else(|| by(Hook::Kprobe, |catalog| catalog.kernel_functions()))
    }

    fn no_functions_of(&self, events: &[&Event], spec: &ProbeSpec) -> Box<Diagnostic> {
        let &[event] = events else {
            let message = "the kernel has none of the driver's functions: its modules are not loaded, or are older than 515";
            return finding("E0105", spec.parts[0].span, message.into(), "", Vec::new());
        };
        let names: Vec<String> =
            event.functions.iter().map(|function| format!("`{}`", function.name)).collect();
        let message = format!("no function of `driver:{}` can be probed: {}", event.name, names.join(", "));
        let module = event.functions[0].module.name();
        let is_loaded =
            self.setting.catalog.kernel_functions().iter().any(|function| function.module == module);
        let prebuilt = event.functions.iter().all(|function| function.built == DriverBuild::Before);
        let why = match (is_loaded, prebuilt) {
            (false, _) => format!("the module `{module}` is not loaded"),
            (true, true) => "it is in an object that NVIDIA compiles, which most kernels refuse to probe; the ioctls of the \
                             same work can be probed: `ioctl:nvidia:RM_ALLOC`"
                .into(),
            (true, false) => "the loaded driver has other functions".into(),
        };
        let mut diagnostic = finding("E0105", spec.parts[0].span, message, "", Vec::new());
        diagnostic.notes.push(why);
        diagnostic
    }
}
