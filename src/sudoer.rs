//! The user who has called sudo. A started command runs as that user, and recordings belong to that user.
//!
//! The rule: what is traced gets no more rights than it has without cudatrace, and the environment is the one that it has without cudatrace.
//! sudo replaces the environment by root's, which is right for cudatrace itself, but a command would miss PATH, virtual environment and
//! CUDA_VISIBLE_DEVICES of the user's shell. The process of sudo still has what the shell gave it; cudatrace passes that on to the command, and uses
//! it to find the command's files, but not for itself. `--user root` runs the command as root, with root's environment.

use crate::cli::Cli;
use linux::proc;
use std::collections::HashMap;
use std::ffi::OsString;

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
        cli.environment = environment_of_sudo(std::process::id()).into_iter().flatten().collect();
    }
}

/// The environment of the nearest ancestor that is sudo.
fn environment_of_sudo(pid: u32) -> Option<HashMap<OsString, OsString>> {
    let sudo = proc::with_ancestors(pid).skip(1).take(MOST_BETWEEN).find(|pid| {
        std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim_end() == "sudo")
    })?;
    Some(proc::environment(sudo))
}
