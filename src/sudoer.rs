//! The user who has called sudo. A started command runs as that user, and recordings belong to that user.
//!
//! The rule: what is traced gets no more rights than it has without cudatrace, and the environment is the one that it has without cudatrace.
//! sudo replaces the environment by root's, which is right for cudatrace itself, but a command would miss PATH, virtual environment and
//! CUDA_VISIBLE_DEVICES of the user's shell. The process of sudo still has what the shell gave it; cudatrace passes that on to the command, and uses
//! it to find the command's files, but not for itself. `--user root` runs the command as root, with root's environment.

use crate::cli::Cli;
use linux::proc;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

/// Processes between this one and sudo: sudo's monitor, `env`, a wrapper of the user.
const MOST_BETWEEN: usize = 4;

/// Makes the user who has called sudo the user of the command, unless the command line names one.
pub fn choose_user(cli: &mut Cli) {
    let is_root = runtime::kernel::features::is_root();
    cli.sudoer = std::env::var("SUDO_USER").ok().filter(|name| is_root && !name.is_empty() && name != "root");
    if cli.starts_command() && cli.user.is_none() {
        cli.user = cli.sudoer.clone();
    }
    if cli.sudoer.is_some() && cli.user == cli.sudoer {
        cli.environment = environment_of_sudo(std::process::id()).unwrap_or_default();
    }
}

/// The environment of the nearest ancestor that is sudo.
fn environment_of_sudo(pid: u32) -> Option<Vec<(OsString, OsString)>> {
    let sudo = proc::with_ancestors(pid).skip(1).take(MOST_BETWEEN).find(|pid| {
        std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim_end() == "sudo")
    })?;
    Some(variables(&std::fs::read(format!("/proc/{sudo}/environ")).ok()?))
}

/// The variables of a block of `NAME=VALUE`, each with a zero byte at its end.
fn variables(block: &[u8]) -> Vec<(OsString, OsString)> {
    let split = |entry: &[u8]| {
        let at = entry.iter().position(|&byte| byte == b'=').filter(|&at| at > 0)?;
        let text = |bytes| OsStr::from_bytes(bytes).to_owned();
        Some((text(&entry[..at]), text(&entry[at + 1..])))
    };
    block.split(|&byte| byte == 0).filter_map(split).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_have_a_name_and_any_value() {
        let found = variables(b"PATH=/venv/bin:/bin\0EMPTY=\0A=b=c\0=odd\0broken\0\0");
        let pair = |name: &str, value: &str| (OsString::from(name), OsString::from(value));
        assert_eq!(found, [pair("PATH", "/venv/bin:/bin"), pair("EMPTY", ""), pair("A", "b=c")]);
    }
}
