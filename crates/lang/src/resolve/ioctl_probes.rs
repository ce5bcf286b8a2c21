//! `ioctl:nvidia:NV_ESC_RM_CONTROL`: ioctls of NVIDIA's driver, already expanded to the attach points of hooks.

use cuda::ioctls::{DEVICES, Device};

use crate::diagnostics::suggest::similar;
use crate::diagnostics::wording::{did_you_mean, listed};
use crate::expand::ioctl_hooks::{HOOKS, IoctlHook, Needs};
use crate::expand::ioctls::{self, ANY_OTHER, COMMON, HookUse, PROVIDER, START};
use crate::hir::{MissingProbes, NameKind};
use crate::resolve::completion;
use crate::resolve::finder::Finder;
use crate::resolve::provider::{Provider, ProviderProperties};
use crate::resolve::spot::{Miss, Spot, Spots, finding, wrong};
use crate::source::span::{Span, WithSpan};
use crate::syntax::ast::{ProbeSpec, SpecPart, text};
use crate::syntax::glob::is_pattern;

/// Largest number of names in a message.
const MOST_NAMES: usize = 6;

/// A device and the name of an ioctl, which may be a pattern.
pub(super) const PROPERTIES: ProviderProperties = ProviderProperties {
    patterns: true,
    spans: true,
    words: |_, _, parts| match parts {
        [device, _] => names(device),
        _ => completion::first_part(parts, DEVICES.iter().map(|device| device.name)),
    },
    args: |_, _, parts| {
        let name = parts.get(1).and_then(|rest| rest.split(':').next()).unwrap_or("");
        let device = parts.first().and_then(|device| Device::of(device));
        let found = device.map(|device| ioctls::matching(device, name)).unwrap_or_default();
        let own = found.iter().flat_map(|ioctl| ioctl.all_fields()).map(|field| field.name);
        own.chain(COMMON.iter().map(|arg| arg.name)).map(str::to_owned).collect()
    },
    ..ProviderProperties::PLAIN
};

/// Names of a device's ioctls, in full and without their prefix.
fn names(device: &str) -> Vec<String> {
    let Some(device) = Device::of(device) else { return Vec::new() };
    let names = device.ioctls.iter().map(|ioctl| ioctl.name);
    let both = names.flat_map(|name| [Some(name), name.strip_prefix(device.prefix)]);
    both.flatten().map(str::to_owned).collect()
}

impl Finder<'_, '_> {
    /// The attach point of a hook, for the first hook that this machine has; `resolve` finds its spots.
    pub(super) fn ioctl(
        &mut self,
        spec: &ProbeSpec,
        provider: &Provider,
        resolve: fn(&mut Self, &ProbeSpec) -> Spots,
    ) -> Spots {
        let Some(HookUse { hook, others, attach_point }) = ioctls::hook_of(spec) else {
            return unknown(spec, provider);
        };
        let visible = &spec.parts[..spec.parts.len() - 1];
        let shown = ProbeSpec { parts: visible.to_vec(), ..spec.clone() };
        let Some(probe) = ioctls::of_spec(&shown) else { return unknown(&shown, provider) };
        if !std::ptr::eq(self.ioctl_hook(probe.device), hook) {
            return Err(Miss::Silent);
        }
        if self.setting.catalog.device(probe.device.name).is_none() {
            self.not_loaded(&shown, probe.device, others)?;
        }
        let inner = attach_point_spec(attach_point, &shown);
        let found = resolve(self, &inner);
        // The clause with the body reports what is missing.
        let mut spots = if spec.span == Span::default() { found.map_err(|_| Miss::Silent)? } else { found? };
        let name = self.names.intern(NameKind::Probe, &probe.name);
        for spot in &mut spots {
            match spot {
                Spot::Event(event) => event.name = name,
                Spot::Call(call) => call.site.probe = name,
            }
        }
        Ok(spots)
    }

    /// The best hook of this machine for a device.
    fn ioctl_hook(&self, device: &Device) -> &'static IoctlHook {
        let has_types = || self.setting.catalog.kernel_type_named("fdtable").is_some();
        let event = if device.magic == 0 { "uvm_ioctl" } else { "ioctl" };
        let has = |hook: &&IoctlHook| match hook.needs {
            Needs::DriverFunction => has_types() && self.has_driver_event(event),
            Needs::KernelTypes => has_types(),
            Needs::Nothing => true,
        };
        HOOKS.iter().find(has).expect("the last hook needs nothing")
    }

    /// The driver has not registered its devices. If that is no error, the clause is checked, and then dropped as its condition
    /// is false. A clause without position is for another one, which reports it.
    fn not_loaded(&mut self, spec: &ProbeSpec, device: &'static Device, others: &str) -> Result<(), Miss> {
        let others_exist = others == ANY_OTHER
            || others.split(',').any(|other| self.setting.catalog.device(other).is_some());
        let is_error = self.setting.missing == MissingProbes::Error && !others_exist;
        if spec.span == Span::default() {
            return if is_error { Err(Miss::Silent) } else { Ok(()) };
        }
        let message = format!("no driver has devices named `{}`", device.name);
        let help = match device.magic {
            0 => {
                "load it: `modprobe nvidia-uvm`, or `nvidia-modprobe -c0 -u`; the first CUDA program loads it too"
            }
            _ => "load NVIDIA's driver: `modprobe nvidia`",
        };
        if is_error {
            return Err(Miss::Absent(finding("E0127", spec.span, message, "", vec![help.into()])));
        }
        if self.setting.missing != MissingProbes::Ignore && !self.unloaded.contains(&device.name) {
            self.unloaded.push(device.name);
            self.diags.warning("W0154", spec.span, message).help(help);
        }
        Ok(())
    }
}

/// An attach point of a hook, at the position of the script's.
fn attach_point_spec(written: &str, at: &ProbeSpec) -> ProbeSpec {
    let mut parts = written.split(':').map(str::to_owned);
    let provider = WithSpan { node: parts.next().unwrap_or_default(), span: at.provider.span };
    let part = |text| WithSpan { node: SpecPart::Text(text), span: at.span };
    ProbeSpec { provider, parts: parts.map(part).collect(), span: at.span }
}

/// The message about an attach point that is none.
fn unknown(spec: &ProbeSpec, provider: &Provider) -> Spots {
    let parts: Vec<&str> = spec.parts.iter().map(|part| text(&part.node)).collect();
    let devices = || DEVICES.iter().map(|device| device.name);
    let (device, name) = match parts[..] {
        [device, name] | [device, name, START] => (device, name),
        [_, _, _] => {
            let help =
                vec![format!("write `{}`, or `{}:{START}` for the entry", provider.form, provider.form)];
            return wrong("E0126", spec.span, "an ioctl cannot be followed by that".into(), "", help);
        }
        _ => return provider.malformed(spec.span, "expected a device and the name of an ioctl"),
    };
    let Some(device) = Device::of(device) else {
        let message = format!("the ioctls of `{device}` are not known by name");
        let help = match &did_you_mean(&similar(device, devices()))[..] {
            [] => vec![format!("devices are {}", listed(devices(), MOST_NAMES))],
            near => near.to_vec(),
        };
        return wrong("E0126", spec.span, message, "", help);
    };
    let message = format!("no ioctl `{PROVIDER}:{}:{name}`", device.name);
    wrong("E0126", spec.span, message, "", near_names(device, name))
}

/// Names of a device's ioctls that resemble a word, or the device that has one of this name.
fn near_names(device: &'static Device, name: &str) -> Vec<String> {
    let elsewhere = DEVICES.iter().find(|other| !ioctls::matching(other, name).is_empty());
    if let Some(other) = elsewhere.filter(|_| !is_pattern(name)) {
        return did_you_mean(&[format!("{PROVIDER}:{}:{name}", other.name)]);
    }
    let full = device.ioctls.iter().map(|ioctl| ioctl.name);
    let short = full.clone().map(|known| known.strip_prefix(device.prefix).unwrap_or(known));
    let upper = name.to_uppercase();
    let near = match name.starts_with(device.prefix) {
        true => similar(&upper, full),
        false => similar(&upper, short),
    };
    match did_you_mean(&near) {
        help if help.is_empty() => vec![format!("`cudatrace -l '{PROVIDER}:{}:*'` lists them", device.name)],
        help => help,
    }
}
