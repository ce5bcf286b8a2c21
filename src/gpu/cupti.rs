//! Where CUPTI is, for processes that have not loaded it, and what its versions are called.

use std::path::{Path, PathBuf};

use host::process::{self, Mapping};

/// Folders of CUPTI, relative to that of the runtime or of the driver: of wheels, and of NVIDIA's toolkit.
const BESIDE: [&str; 5] =
    ["", "../../cuda_cupti/lib", "../extras/CUPTI/lib64", "../../extras/CUPTI/lib64", "../../cupti/lib"];
/// Folders of NVIDIA's toolkit.
const INSTALLED: [&str; 3] = [
    "/usr/local/cuda/extras/CUPTI/lib64",
    "/usr/local/cuda/targets/x86_64-linux/lib",
    "/usr/lib/x86_64-linux-gnu",
];
/// File names by the major version of CUDA, the newest first.
const NAMES: [(u32, &str); 3] = [(13, "libcupti.so.13"), (12, "libcupti.so.12"), (11, "libcupti.so.11.8")];

/// Paths at which a process may find CUPTI, the best one first: of the same major version as its runtime, beside that.
pub fn paths(pid: u32) -> Vec<PathBuf> {
    let mappings = process::mappings(pid);
    let of = |name| file_with(&mappings, name).and_then(|found| found.name.path());
    let runtime = of("libcudart.so");
    let major = runtime.and_then(major);
    let folders = [runtime, of("libcuda.so")].into_iter().flatten().filter_map(Path::parent);
    let beside = folders.flat_map(|folder| BESIDE.map(|beside| folder.join(beside)));
    let folders: Vec<PathBuf> = beside.chain(INSTALLED.map(PathBuf::from)).collect();
    let mut names = NAMES;
    names.sort_by_key(|(of, _)| Some(*of) != major);
    let exists = |path: &PathBuf| process::open_path(pid, path).exists();
    let found = names.iter().flat_map(|(_, name)| folders.iter().map(move |folder| folder.join(name)));
    // The loader looks for bare names in the folders that the process has set.
    let bare = names.iter().map(|(_, name)| PathBuf::from(name));
    found.filter(exists).chain(bare).collect()
}

/// The first mapping of a file whose name begins so.
pub(super) fn file_with<'m>(mappings: &'m [Mapping], name: &str) -> Option<&'m Mapping> {
    mappings.iter().find(|mapping| {
        let file = mapping.name.path().and_then(Path::file_name);
        file.is_some_and(|file| file.to_string_lossy().starts_with(name))
    })
}

/// `13` of `libcudart.so.13`
fn major(path: &Path) -> Option<u32> {
    let name = path.file_name()?.to_str()?;
    name.strip_prefix("libcudart.so.")?.split('.').next()?.parse().ok()
}

/// The release of CUDA of a `CUPTI_API_VERSION`: 130001 is that of 13.0.1, 28 that of 12.9.
pub fn release(version: u32) -> String {
    match version {
        130_000.. => {
            let (major, minor, update) = (version / 10_000, version / 100 % 100, version % 100);
            match update {
                0 => format!("CUPTI {major}.{minor}"),
                _ => format!("CUPTI {major}.{minor}.{update}"),
            }
        }
        28 => "CUPTI 12.9".into(),
        26 => "CUPTI 12.8".into(),
        24 => "CUPTI 12.6".into(),
        22 => "CUPTI 12.4".into(),
        18 => "CUPTI 11.8".into(),
        17 => "CUPTI 11.7".into(),
        _ => format!("CUPTI, API version {version}"),
    }
}

/// What is wrong with a `CUPTI_API_VERSION` that a traced program may notice; NVIDIA's release notes have it.
pub fn fault(version: u32) -> Option<&'static str> {
    match version {
        // 0: there is none.
        0 => None,
        1..22 => Some("cannot be ended while graphs exist, so that a small price stays after the trace"),
        130_000 => Some("can crash programs that use NVTX"),
        130_200..130_300 => Some("slows programs down more with each call"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_named_as_releases() {
        assert_eq!(release(130_001), "CUPTI 13.0.1");
        assert_eq!(release(130_400), "CUPTI 13.4");
        assert_eq!(release(28), "CUPTI 12.9");
        assert_eq!(release(19), "CUPTI, API version 19");
        assert_eq!(major(Path::new("/x/libcudart.so.12.4.99")), Some(12));
    }
}
