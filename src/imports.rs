//! Files that a script imports: by path, relative to the script; a folder imports all scripts in it.

use crate::bundled;
use lang::expand::import::{Files, ImportedScript};
use std::fs::Metadata;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Imports of script files.
pub struct Disk;

/// Extensions of script files.
const ENDINGS: [&str; 2] = ["ct", "bt"];

impl Files for Disk {
    fn import(&self, from: &str, path: &str) -> Result<Vec<ImportedScript>, String> {
        let beside = Path::new(from).parent().unwrap_or(Path::new("")).join(path);
        if !beside.exists()
            && let Some((name, text)) = bundled::imported(path)
        {
            return Ok(vec![ImportedScript { name, text: text.into() }]);
        }
        let found = beside.canonicalize().map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => {
                format!("`{}` does not exist, and there is no such bundled script", beside.display())
            }
            _ => error.to_string(),
        })?;
        let trust = Trust::of(from);
        trust.folders_of(&beside)?;
        if found.is_dir() {
            return folder(&found)?.iter().map(|file| script(file, &trust)).collect();
        }
        match found.extension().is_some_and(|ending| ["h", "c"].iter().any(|c| ending == *c)) {
            true => Err("C is not read; only scripts can be imported, and CUDA's types are built in".into()),
            false => Ok(vec![script(&found, &trust)?]),
        }
    }
}

/// The scripts in a folder, sorted by name.
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

/// Reads a script that `from` imports. It runs with the rights of this process, so only users who could have
/// written `from` may have written it.
fn script(path: &Path, trust: &Trust) -> Result<ImportedScript, String> {
    let shown = path.display();
    let failed = |error: std::io::Error| format!("{shown}: {error}");
    trust.folders_of(path)?;
    let file = host::untrusted_file::open(path).map_err(failed)?;
    trust.allows(path, &file.metadata().map_err(failed)?)?;
    let mut text = Vec::new();
    file.take(MOST_BYTES).read_to_end(&mut text).map_err(failed)?;
    let text = String::from_utf8(text).map_err(|_| format!("{shown} is not UTF-8 text"))?;
    Ok(ImportedScript { name: shown_name(path), text })
}

/// Largest size of a script in bytes.
const MOST_BYTES: u64 = 64 << 20;

/// Users and groups whose files are imported: root, the current user, the caller of sudo, the owner of the
/// importing script, and the group that may write it.
#[derive(Default)]
struct Trust {
    users: Vec<u32>,
    groups: Vec<u32>,
}

impl Trust {
    fn of(from: &str) -> Trust {
        let mut trust = Trust::of_caller();
        if let Some(importer) = Path::new(from).metadata().ok().filter(|_| !from.is_empty()) {
            trust.users.push(importer.uid());
            trust.groups.extend((importer.mode() & 0o020 != 0).then_some(importer.gid()));
        }
        trust
    }

    fn of_caller() -> Trust {
        let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let set = |name: &str| std::env::var(name).ok()?.parse().ok();
        let users = [Some(0), Some(user), set("SUDO_UID"), set("PKEXEC_UID")];
        let groups = [Some(0), Some(group), set("SUDO_GID")];
        Trust { users: users.into_iter().flatten().collect(), groups: groups.into_iter().flatten().collect() }
    }

    /// The other users who may write a file or folder, and the remedy.
    fn other_writers(&self, metadata: &Metadata) -> Option<(String, &'static str)> {
        let (mode, group) = (metadata.mode(), metadata.gid());
        match (mode & 0o002 != 0, mode & 0o020 != 0 && !self.groups.contains(&group)) {
            (true, _) => Some(("all users".into(), "chmod o-w")),
            (_, true) => Some((format!("group {group}"), "chmod g-w")),
            _ => None,
        }
    }

    /// Checks that no other user can have written or replaced the file.
    fn allows(&self, place: &Path, metadata: &Metadata) -> Result<(), String> {
        let shown = place.display();
        // In a sticky folder, users can replace only their own files.
        let is_shared = metadata.is_dir() && metadata.mode() & 0o1000 != 0;
        if let Some((writers, way_out)) = self.other_writers(metadata).filter(|_| !is_shared) {
            return Err(format!("{shown} can be written by {writers}; `{way_out}` it"));
        }
        match self.users.contains(&metadata.uid()) {
            true => Ok(()),
            false => Err(format!(
                "{shown} belongs to user {}, who could change what this script does; copy it, or `chown` it",
                metadata.uid()
            )),
        }
    }

    /// Checks all folders above a file and those of the links to it.
    fn folders_of(&self, path: &Path) -> Result<(), String> {
        let written = std::path::absolute(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let real = path.canonicalize().map_err(|error| format!("{}: {error}", path.display()))?;
        for place in written.ancestors().chain(real.ancestors().skip(1)) {
            let failed = |error: std::io::Error| format!("{}: {error}", place.display());
            let metadata = place.symlink_metadata().map_err(failed)?;
            if !metadata.is_symlink() {
                self.allows(place, &metadata)?;
            } else if !self.users.contains(&metadata.uid()) {
                return Err(format!("the link {} belongs to user {}", place.display(), metadata.uid()));
            }
        }
        Ok(())
    }
}

/// A warning for root before it runs a script that other users may change. The user has named the script, so it is
/// not refused: on file systems without owners all files are like that.
pub fn warning_of_script(path: &Path) -> Option<String> {
    let metadata = path.metadata().ok().filter(|metadata| metadata.is_file())?;
    let (writers, way_out) = Trust::of_caller().other_writers(&metadata)?;
    let shown = path.display();
    Some(format!("`{shown}` can be written by {writers}, and runs with root's rights: `{way_out} {shown}`"))
}

/// The path relative to the working directory, if it is below it.
fn shown_name(path: &Path) -> String {
    let here = std::env::current_dir().unwrap_or_default();
    path.strip_prefix(&here).unwrap_or(path).display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    const NOBODY: Option<u32> = Some(65534);

    /// Imports a file by `from`, in a separate folder below a sticky one.
    fn imported(from: &Path, path: &Path) -> Result<ImportedScript, String> {
        let trust = Trust::of(from.to_str().expect("UTF-8"));
        script(path, &trust)
    }

    #[test]
    fn scripts_that_other_users_can_write_are_not_imported() {
        if !rustix::process::geteuid().is_root() {
            return eprintln!("skipped: needs root");
        }
        let dir = tempfile::tempdir().expect("a directory");
        let shared = dir.path().join("shared");
        fs::create_dir(&shared).expect("made");
        fs::set_permissions(&shared, fs::Permissions::from_mode(0o1777)).expect("ours");
        let file = |name: &str| {
            let path = shared.join(name);
            fs::write(&path, "let @a = hash(10);").expect("written");
            path
        };
        let (main, own, other) = (file("main.ct"), file("own.ct"), file("other.ct"));
        chown(&other, NOBODY, None).expect("root may");
        assert!(imported(&main, &own).is_ok());
        assert!(imported(&main, &other).expect_err("of another user").contains("belongs to user 65534"));
        assert!(imported(&other, &other).is_ok(), "who was named by the user is believed");

        let link = shared.join("link.ct");
        symlink(&own, &link).expect("linked");
        assert!(imported(&main, &link).is_ok());
        std::os::unix::fs::lchown(&link, NOBODY, None).expect("root may");
        assert!(imported(&main, &link).is_err());

        fs::set_permissions(&own, fs::Permissions::from_mode(0o666)).expect("ours");
        assert!(imported(&main, &own).expect_err("writable").contains("chmod o-w"));
        assert!(warning_of_script(&own).expect("writable").contains("all users"));
    }

    #[test]
    fn a_group_may_write_what_is_imported_only_if_it_may_write_the_script() {
        if !rustix::process::geteuid().is_root() {
            return eprintln!("skipped: needs root");
        }
        let dir = tempfile::tempdir().expect("a directory");
        let file = |name: &str, mode: u32, group: Option<u32>| {
            let path = dir.path().join(name);
            fs::write(&path, "let @a = hash(10);").expect("written");
            chown(&path, None, group).expect("root may");
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("ours");
            path
        };
        let main = file("main.ct", 0o644, NOBODY);
        let (open, own) = (file("open.ct", 0o664, NOBODY), file("own.ct", 0o664, None));
        assert!(imported(&main, &open).expect_err("of a group").contains("group 65534; `chmod g-w`"));
        assert!(imported(&main, &own).is_ok(), "our own group");
        assert!(imported(&open, &open).is_ok(), "the same group may change the script");
        assert!(warning_of_script(&open).expect("of a group").contains("chmod g-w"));
        assert_eq!(warning_of_script(&main), None);
    }

    #[test]
    fn a_pipe_is_no_script() {
        let dir = tempfile::tempdir().expect("a directory");
        let pipe = dir.path().join("pipe.ct");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::from(0o600)).expect("a named pipe");
        assert!(imported(&pipe, &pipe).is_err());
    }
}
