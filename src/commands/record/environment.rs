//! The surroundings of a recorded program: driver, devices, commit of the working directory, and versions of the libraries that it has mapped.

use linux::proc;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Names with their values.
pub type Environment = BTreeMap<String, String>;

/// Packages of Python whose versions are told; those of NVIDIA have the CUDA version in their names: `nvidia-nccl-cu13`.
const PACKAGES: [&str; 18] = [
    "accelerate",
    "deepspeed",
    "flash-attn",
    "jax",
    "jaxlib",
    "lightning",
    "numba",
    "numpy",
    "nvidia-cublas",
    "nvidia-cuda-runtime",
    "nvidia-cudnn",
    "nvidia-nccl",
    "sglang",
    "tensorflow",
    "torch",
    "transformers",
    "triton",
    "vllm",
];
/// Libraries whose file names have their versions.
const LIBRARIES: [&str; 5] = ["libcublas.so.", "libcuda.so.", "libcudart.so.", "libcudnn.so.", "libnccl.so."];
/// Folders of Python's packages.
const FOLDERS: [&str; 2] = ["site-packages", "dist-packages"];

/// Driver, devices and kernel of this machine, and the commit in the working directory of the traced program.
pub fn of_machine(pid: Option<u32>) -> Environment {
    let folder = match pid {
        Some(pid) => proc::directory(pid),
        None => std::env::current_dir().ok(),
    };
    let folder = folder.as_deref();
    let known = [
        ("driver", driver()),
        ("kernel", trimmed("/proc/sys/kernel/osrelease")),
        ("folder", folder.map(|folder| folder.display().to_string())),
        ("commit", folder.and_then(commit)),
    ];
    let known = known.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    known.chain(devices()).collect()
}

fn trimmed(path: impl AsRef<Path>) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

/// Version of NVIDIA's driver in the kernel: the word behind `Kernel Module`.
fn driver() -> Option<String> {
    let text = fs::read_to_string("/proc/driver/nvidia/version").ok()?;
    version_of(&text).map(str::to_owned)
}

fn version_of(text: &str) -> Option<&str> {
    text.lines()
        .next()?
        .split_whitespace()
        .find(|word| word.contains('.') && word.starts_with(|c: char| c.is_ascii_digit()))
}

/// The machine's GPUs by their places on the bus.
fn devices() -> Environment {
    let Ok(entries) = fs::read_dir("/proc/driver/nvidia/gpus") else { return Environment::new() };
    let device = |folder: PathBuf| {
        let text = fs::read_to_string(folder.join("information")).ok()?;
        let value = |key: &str| {
            let line = text.lines().find(|line| line.starts_with(key))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        };
        let place = folder.file_name()?.to_string_lossy().into_owned();
        Some((
            format!("gpu {place}"),
            format!("{} {}", value("Model")?, value("GPU UUID").unwrap_or_default()),
        ))
    };
    entries.filter_map(|entry| device(entry.ok()?.path())).collect()
}

/// The commit that is checked out in a folder or in one around it.
fn commit(folder: &Path) -> Option<String> {
    let git = folder.ancestors().map(|folder| folder.join(".git")).find(|git| git.exists())?;
    // In a further work tree it is a file that names the folder.
    let git = match trimmed(&git).as_deref().and_then(|text| text.strip_prefix("gitdir: ")) {
        Some(place) => git.parent()?.join(place),
        None => git,
    };
    let head = trimmed(git.join("HEAD"))?;
    let Some(name) = head.strip_prefix("ref: ") else { return Some(head) };
    let common = trimmed(git.join("commondir")).map_or(git.clone(), |place| git.join(place));
    let packed = || {
        let text = fs::read_to_string(common.join("packed-refs")).ok()?;
        let line = text.lines().find(|line| line.ends_with(&format!(" {name}")))?;
        line.split_once(' ').map(|(commit, _)| commit.to_owned())
    };
    let commit = trimmed(common.join(name)).or_else(packed)?;
    Some(format!("{commit} ({})", name.trim_start_matches("refs/heads/")))
}

/// Versions of the libraries and of the packages of Python that a process has mapped.
pub fn of_process(pid: u32) -> BTreeMap<String, String> {
    let mappings = proc::mappings(pid);
    let files: BTreeSet<Cow<str>> =
        mappings.iter().filter_map(|mapping| Some(mapping.name.path()?.to_string_lossy())).collect();
    let root = proc::root_prefix(pid);
    let mut found = BTreeMap::new();
    let mut folders = BTreeSet::new();
    for file in files {
        let (folder, name) = file.rsplit_once('/').unwrap_or_default();
        if let Some(library) = LIBRARIES.iter().find(|library| name.starts_with(**library)) {
            found.insert(library.trim_end_matches(".so.").to_owned(), name[library.len()..].to_owned());
        }
        let is_packages = |part: &&str| FOLDERS.contains(part);
        if let Some(part) = folder.split('/').find(is_packages)
            && let Some((before, _)) = folder.split_once(part)
        {
            folders.insert(format!("{}{before}{part}", root.display()));
        }
    }
    folders.iter().for_each(|folder| found.extend(packages(Path::new(folder))));
    found
}

/// The packages of a folder that are of interest, by the names of their `NAME-VERSION.dist-info`.
fn packages(folder: &Path) -> BTreeMap<String, String> {
    let Ok(entries) = fs::read_dir(folder) else { return BTreeMap::new() };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.filter_map(|name| package(&name)).collect()
}

fn package(folder: &str) -> Option<(String, String)> {
    let (name, version) = folder.strip_suffix(".dist-info")?.rsplit_once('-')?;
    let name = name.to_lowercase().replace(['_', '.'], "-");
    let is_known = |known: &str| {
        name == known
            || name.strip_prefix(known).is_some_and(|rest| rest.starts_with("-cu"))
            || name.starts_with("cupy")
    };
    PACKAGES.into_iter().any(is_known).then(|| (name.clone(), version.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_are_known_by_their_folders() {
        let of = |folder: &str| package(folder).map(|(name, version)| format!("{name} {version}"));
        assert_eq!(of("torch-2.11.0+cu130.dist-info").as_deref(), Some("torch 2.11.0+cu130"));
        assert_eq!(of("nvidia_nccl_cu13-2.28.9.dist-info").as_deref(), Some("nvidia-nccl-cu13 2.28.9"));
        assert_eq!(of("cupy_cuda13x-13.6.0.dist-info").as_deref(), Some("cupy-cuda13x 13.6.0"));
        assert_eq!(
            (of("torchvision-0.25.dist-info"), of("torch"), of("requests-2.0.dist-info")),
            (None, None, None)
        );
    }

    #[test]
    fn the_drivers_version_is_a_word_of_a_line() {
        let closed = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.86.15  Fri Jan  1 00:00:00 UTC 2026\nGCC version: 12.2.0";
        let open = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build";
        assert_eq!((version_of(closed), version_of(open)), (Some("570.86.15"), Some("580.159.04")));
        assert_eq!(version_of(""), None);
    }

    #[test]
    fn the_commit_of_a_folder_is_found_from_within() {
        let dir = tempfile::tempdir().expect("a directory");
        let (git, inner) = (dir.path().join(".git"), dir.path().join("a/b"));
        fs::create_dir_all(git.join("refs/heads")).expect("made");
        fs::create_dir_all(&inner).expect("made");
        fs::write(git.join("HEAD"), "ref: refs/heads/main\n").expect("written");
        assert_eq!(commit(&inner), None);
        fs::write(git.join("packed-refs"), "# pack-refs\n1234 refs/heads/main\n").expect("written");
        assert_eq!(commit(&inner).as_deref(), Some("1234 (main)"));
        fs::write(git.join("refs/heads/main"), "abcd\n").expect("written");
        assert_eq!(commit(&inner).as_deref(), Some("abcd (main)"));
        fs::write(git.join("HEAD"), "5678\n").expect("written");
        assert_eq!(commit(&inner).as_deref(), Some("5678"));
    }

    #[test]
    fn mapped_libraries_have_the_versions_of_their_names() {
        // The C library is none of them.
        assert!(of_process(std::process::id()).keys().all(|name| name != "libc"));
        assert!(of_process(u32::MAX).is_empty());
    }
}
