//! Names of numbers: errnos, signals, system calls, users, processes, cgroups.

use nix::unistd::{Uid, User};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use wire::types::Lookup;

const CGROUPS: &str = "/sys/fs/cgroup";

/// Text for values that no traced process has provided.
pub const UNKNOWN: &str = "?";

/// The text for a number. It is empty for processes and cgroups that no longer exist, and the number itself for
/// other unknown values.
pub fn text(what: Lookup, number: i64) -> String {
    match what {
        Lookup::Comm => comm(number),
        Lookup::CgroupPath => cgroup_path(number),
        Lookup::Mac => mac(number),
        Lookup::Ksym => format!("{number:#x}"),
        Lookup::Error => error(number),
        Lookup::DriverResult => result(&cuda::errors::DRIVER, number),
        Lookup::RuntimeResult => result(&cuda::errors::RUNTIME, number),
        Lookup::Signal => lang::builtins::posix::signal_text(number).into(),
        Lookup::Syscall => syscall(number).unwrap_or_else(|| number.to_string()),
        Lookup::Float => report::units::float(number),
        Lookup::Double => report::units::double(number),
        Lookup::Size => report::units::size(number),
        Lookup::Time => report::units::time(number),
        Lookup::Percent => report::units::percent(number),
        Lookup::Kernel | Lookup::KernelFull | Lookup::KernelMangled => format!("<kernel {number:#x}>"),
        Lookup::DeviceUuid => UNKNOWN.into(),
        Lookup::DevicePci => pci(number),
        Lookup::User => user(number).unwrap_or_else(|| number.to_string()),
    }
}

/// The first byte of the address is the lowest byte of the number.
fn mac(number: i64) -> String {
    let bytes = &number.to_le_bytes()[..6];
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":")
}

/// `0000:1b:00.0`
fn pci(number: i64) -> String {
    if number < 0 {
        return UNKNOWN.into();
    }
    let (domain, bus, slot) = (number >> 16, number >> 8 & 0xff, number & 0xff);
    format!("{domain:04x}:{bus:02x}:{:02x}.{}", slot >> 3, slot & 7)
}

fn comm(pid: i64) -> String {
    let pid = u32::try_from(pid).ok();
    let name = pid.and_then(linux::proc::comm).unwrap_or_default();
    name.trim_end_matches('\n').to_owned()
}

/// Description of the result of a CUDA call.
fn result(results: &cuda::errors::Results, number: i64) -> String {
    results.text(number).map_or_else(|| format!("unknown result {number}"), str::to_owned)
}

fn error(number: i64) -> String {
    let Ok(errno) = i32::try_from(number) else { return format!("Unknown error {number}") };
    // The message of the C library, without Rust's suffix.
    let text = std::io::Error::from_raw_os_error(errno).to_string();
    text.trim_end_matches(&format!(" (os error {errno})")).to_owned()
}

fn syscall(number: i64) -> Option<String> {
    let call = syscalls::Sysno::new(usize::try_from(number).ok()?)?;
    Some(call.name().to_owned())
}

fn user(uid: i64) -> Option<String> {
    let uid = Uid::from_raw(u32::try_from(uid).ok()?);
    Some(User::from_uid(uid).ok()??.name)
}

/// `unified:/system.slice`, including the hierarchy, as bpftrace prints it.
fn cgroup_path(id: i64) -> String {
    match find_cgroup(Path::new(CGROUPS), id as u64) {
        Some(path) => format!("unified:/{}", path.strip_prefix(CGROUPS).unwrap_or(&path).display()),
        None => String::new(),
    }
}

/// The directory whose inode number is the id.
fn find_cgroup(from: &Path, id: u64) -> Option<PathBuf> {
    if fs::symlink_metadata(from).ok()?.ino() == id {
        return Some(from.to_owned());
    }
    let entries = fs::read_dir(from).ok()?.filter_map(Result::ok);
    let mut directories = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    directories.find_map(|entry| find_cgroup(&entry.path(), id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_names_or_stay_numbers() {
        let cases = [
            (Lookup::Error, 2, "No such file or directory"),
            (Lookup::DriverResult, 0, "no error"),
            (Lookup::RuntimeResult, 4242, "unknown result 4242"),
            (Lookup::Error, 12, "Cannot allocate memory"),
            (Lookup::Error, 0, "Success"),
            (Lookup::Error, 4242, "Unknown error 4242"),
            (Lookup::Signal, 9, "Killed"),
            (Lookup::Signal, 4242, "N/A"),
            (Lookup::User, 0, "root"),
            (Lookup::User, -1, "-1"),
            (Lookup::Comm, -1, ""),
            (Lookup::CgroupPath, -1, ""),
            (Lookup::DevicePci, 0x0001_1b00, "0001:1b:00.0"),
            (Lookup::DevicePci, 0x0a, "0000:00:01.2"),
            (Lookup::DevicePci, -1, "?"),
            (Lookup::Mac, 0x0100_4f3e_1600, "00:16:3e:4f:00:01"),
        ];
        for (what, number, expected) in cases {
            assert_eq!(text(what, number), expected, "{what:?} {number}");
        }
        assert_eq!(text(Lookup::Syscall, libc::SYS_openat), "openat");
    }
}
