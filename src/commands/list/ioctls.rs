//! `-l 'ioctl:nvidia:*'`: ioctls of NVIDIA's driver by name, from the tables; with `-v` their arguments.

use super::lister::{ListEntry, Lister, ProviderList};
use anyhow::{Result, bail};
use cuda::ioctls::{DEVICES, Device, Ioctl};
use lang::expand::ioctls::{self, COMMON, PROVIDER, type_name};
use lang::syntax::glob::glob;

pub const LIST: ProviderList = ProviderList {
    providers: &[PROVIDER],
    list: |lister, _, pattern| {
        let (device, name) = split(pattern).unwrap_or(("*", "*"));
        list(lister, device, name)
    },
    all: |_, _| all().collect(),
};

/// Device and name of `ioctl:nvidia:NV_ESC_*`, `ioctl:nvidia`, `ioctl`.
pub fn split(pattern: &str) -> Option<(&str, &str)> {
    let mut parts = pattern.splitn(3, ':');
    parts.next()?.eq_ignore_ascii_case(PROVIDER).then_some(())?;
    Some((parts.next().unwrap_or("*"), parts.next().unwrap_or("*")))
}

fn list(lister: &Lister, device: &str, name: &str) -> Result<Vec<ListEntry>> {
    let name = name.strip_suffix(&format!(":{}", ioctls::START)).unwrap_or(name);
    let devices = DEVICES.iter().filter(|known| glob(device, known.name));
    let found =
        devices.flat_map(|device| ioctls::matching(device, name).into_iter().map(move |i| (device, i)));
    let listed: Vec<ListEntry> =
        found.map(|(device, ioctl)| lister.entry(written(device, ioctl), || arguments(ioctl))).collect();
    if listed.is_empty() {
        bail!("no ioctl matches `{PROVIDER}:{device}:{name}`; `{PROVIDER}:*` lists all");
    }
    Ok(listed)
}

/// Names of all ioctls.
fn all() -> impl Iterator<Item = String> {
    DEVICES.iter().flat_map(|device| device.ioctls.iter().map(|ioctl| written(device, ioctl)))
}

/// Arguments of an ioctl as declarations, those of all ioctls last.
pub fn arguments(ioctl: &Ioctl) -> Vec<String> {
    let own = ioctl.all_fields().map(|field| declared(type_name(field.kind), field.name));
    own.chain(COMMON.iter().map(|arg| format!("{}: {}", declared(arg.ty, arg.name), arg.doc))).collect()
}

fn written(device: &Device, ioctl: &Ioctl) -> String {
    format!("{PROVIDER}:{}:{}", device.name, ioctl.name)
}

/// `uint64 base`, `void *params`
fn declared(ty: &str, name: &str) -> String {
    format!("{ty}{}{name}", if ty.ends_with('*') { "" } else { " " })
}
