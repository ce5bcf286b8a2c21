//! The files that a script imports: beside it, by path; a folder means all scripts in it.

use crate::cli::Cli;
use crate::embedded;
use crate::trace::setup;
use lang::forms::import::{Files, Imported};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use target::process;

/// Scripts of this machine, and those that the binary carries.
pub struct Disk<'a>(pub &'a Cli);

/// What scripts' names end in.
const ENDINGS: [&str; 2] = ["ct", "bt"];

impl Files for Disk<'_> {
    fn import(&self, from: &str, path: &str) -> Result<Vec<Imported>, String> {
        if let Some(part) = embedded::part(path) {
            let known = if path == embedded::IOCTLS { opened_before(self.0) } else { String::new() };
            return Ok(vec![Imported { name: format!("{path}.ct"), text: format!("{}{known}", part.text) }]);
        }
        let beside = Path::new(from).parent().unwrap_or(Path::new("")).join(path);
        if !beside.exists()
            && let Some(script) = embedded::find(path)
        {
            return Ok(vec![Imported { name: format!("{path}.ct"), text: script.text.into() }]);
        }
        let found = beside.canonicalize().map_err(|error| format!("{}: {error}", beside.display()))?;
        if found.is_dir() {
            return folder(&found)?.iter().map(|file| script(file)).collect();
        }
        match found.extension().is_some_and(|ending| ["h", "c"].iter().any(|c| ending == *c)) {
            true => {
                Err("C is not read; only scripts can be imported, and the types of CUDA are built in".into())
            }
            false => Ok(vec![script(&found)?]),
        }
    }
}

/// A clause that knows the descriptors of `/dev/nvidia-uvm` that traced processes have already: nobody sees those opened.
fn opened_before(cli: &Cli) -> String {
    let is_uvm = |fd: &std::fs::DirEntry| {
        let file = std::fs::read_link(fd.path());
        file.is_ok_and(|file| file.as_os_str().as_encoded_bytes().starts_with(b"/dev/nvidia-uvm"))
    };
    let number = |fd: std::fs::DirEntry| fd.file_name().to_str()?.parse::<u32>().ok();
    let opened = |pid: &u32| {
        let fds = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten().filter(is_uvm);
        fds.filter_map(number)
            .map(|fd| format!("@uvm[(uint32){pid}, (uint32){fd}] = 1; "))
            .collect::<String>()
    };
    let all: String = running(cli).iter().map(opened).collect();
    if all.is_empty() { all } else { format!("BEGIN {{ {all}}}\n") }
}

/// Processes that run already and are traced.
fn running(cli: &Cli) -> Vec<u32> {
    let starts_one = cli.command.is_some() || !cli.argv.is_empty();
    match cli.pids.is_empty() && !starts_one {
        true => process::all_pids(),
        false => setup::family(cli, &cli.pids),
    }
}

/// The scripts in a folder, by name.
fn folder(path: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = std::fs::read_dir(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let is_script =
        |path: &PathBuf| path.extension().is_some_and(|ending| ENDINGS.iter().any(|e| ending == *e));
    let mut scripts: Vec<PathBuf> = paths.filter(is_script).collect();
    scripts.sort();
    match scripts.is_empty() {
        true => Err(format!("{} has no scripts in it", path.display())),
        false => Ok(scripts),
    }
}

/// Whoever may write a script that root runs is root.
fn script(path: &Path) -> Result<Imported, String> {
    let shown = path.display();
    for place in [Some(path), path.parent()].into_iter().flatten() {
        let mode = place.metadata().map_err(|error| format!("{shown}: {error}"))?.mode();
        let sticky_folder = place.is_dir() && mode & 0o1000 != 0;
        if mode & 0o002 != 0 && !sticky_folder {
            return Err(format!("{} can be written by anybody; `chmod o-w` it", place.display()));
        }
    }
    let text = std::fs::read(path).map_err(|error| format!("{shown}: {error}"))?;
    let text = String::from_utf8(text).map_err(|_| format!("{shown} is not UTF-8 text"))?;
    Ok(Imported { name: shown_name(path), text })
}

/// Relative to where we are, if it lies below.
fn shown_name(path: &Path) -> String {
    let here = std::env::current_dir().unwrap_or_default();
    path.strip_prefix(&here).unwrap_or(path).display().to_string()
}
