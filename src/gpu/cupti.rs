//! Where CUPTI is, for processes that have not loaded it, and what its versions are called.

use std::path::{Path, PathBuf};

use host::Machine;
use linux::proc::{self, Mapping};

/// Begin of the name of CUDA's driver.
pub(super) const DRIVER: &str = "libcuda.so";
/// Begin of the name of CUDA's runtime.
const RUNTIME: &str = "libcudart.so";

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

/// CUPTI as a target, by which `--lib` names its file.
const TARGET: &str = "libcupti";

/// The files of CUPTI that the user has named.
pub fn named(machine: &Machine) -> Vec<PathBuf> {
    machine.named_paths(TARGET)
}

/// Paths at which a process may find CUPTI, the best one first: those that the user has named; else of the same major version as its runtime,
/// beside that.
pub fn paths(pid: u32, named: &[PathBuf]) -> Vec<PathBuf> {
    if !named.is_empty() {
        return named.to_vec();
    }
    let mappings = proc::mappings(pid);
    let of = |name| file_with(&mappings, name).and_then(|found| found.name.path());
    let runtime = of(RUNTIME);
    let major = runtime.and_then(major);
    let folders = [runtime, of("libcuda.so")].into_iter().flatten().filter_map(Path::parent);
    let beside = folders.flat_map(|folder| BESIDE.map(|beside| folder.join(beside)));
    let folders: Vec<PathBuf> = beside.chain(INSTALLED.map(PathBuf::from)).collect();
    let mut names = NAMES;
    names.sort_by_key(|(of, _)| Some(*of) != major);
    let exists = |path: &PathBuf| proc::open_path(pid, path).exists();
    let found = names.iter().flat_map(|(_, name)| folders.iter().map(move |folder| folder.join(name)));
    // The loader looks for bare names in the folders that the process has set.
    let bare = names.iter().map(|(_, name)| PathBuf::from(name));
    found.filter(exists).chain(bare).collect()
}

/// How a process gets CUPTI that has none: the package for its runtime, and how the file is named.
pub fn way_out(pid: u32) -> String {
    let mappings = proc::mappings(pid);
    let runtime = file_with(&mappings, RUNTIME).and_then(|found| found.name.path());
    install(runtime.and_then(major))
}

/// The package for a major version of CUDA, if that is known, and how its file is named.
fn install(major: Option<u32>) -> String {
    let package = match major {
        Some(major @ ..=12) => format!("`pip install nvidia-cuda-cupti-cu{major}`"),
        Some(_) => "`pip install nvidia-cuda-cupti`".into(),
        None => "`pip install nvidia-cuda-cupti` (for CUDA 12 `nvidia-cuda-cupti-cu12`)".into(),
    };
    format!("install one by {package}, and name its file by `--lib {TARGET}=PATH`")
}

/// The first mapping of a file whose name begins so.
pub(super) fn file_with<'m>(mappings: &'m [Mapping], name: &str) -> Option<&'m Mapping> {
    mappings.iter().find(|mapping| is_of_file(mapping, name))
}

/// Whether a mapping is of a file whose name begins so.
pub(super) fn is_of_file(mapping: &Mapping, name: &str) -> bool {
    mapping.name.path().is_some_and(|path| is_named(path, name))
}

/// Whether the name of a file begins so.
pub(super) fn is_named(path: &Path, name: &str) -> bool {
    path.file_name().is_some_and(|file| file.to_string_lossy().starts_with(name))
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

/// Fault of a `CUPTI_API_VERSION` that a traced program may notice; NVIDIA's release notes have it.
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

/// Version of an installed CUPTI, from the package that it is in: of a wheel (`nvidia_cuda_cupti-13.0.85.dist-info` beside it), else of the
/// toolkit (`/usr/local/cuda-13.0/...`), without the last number. It is not loaded: it may belong to another user's process.
pub fn installed_version(file: &Path) -> Option<String> {
    let file = std::fs::canonicalize(file).ok()?;
    let of_wheel =
        |folder: &Path| std::fs::read_dir(folder).ok()?.flatten().find_map(|entry| wheel(&entry.file_name()));
    let of_toolkit = |part: std::path::Component<'_>| {
        let version = part.as_os_str().to_str()?.strip_prefix("cuda-")?;
        version.starts_with(|c: char| c.is_ascii_digit()).then(|| version.to_owned())
    };
    let folders = file.ancestors().skip(1).take(4);
    folders
        .filter(|folder| folder.ends_with("site-packages"))
        .find_map(of_wheel)
        .or_else(|| file.components().find_map(of_toolkit))
}

/// `13.0.85` of `nvidia_cuda_cupti-13.0.85.dist-info` and `nvidia_cuda_cupti_cu12-12.8.90.dist-info`
fn wheel(name: &std::ffi::OsStr) -> Option<String> {
    let name = name.to_str()?.strip_prefix("nvidia_cuda_cupti")?.strip_suffix(".dist-info")?;
    Some(name.split_once('-')?.1.to_owned())
}

/// The `CUPTI_API_VERSION` of a package's version, as far as faults depend on it.
pub fn api_version(version: &str) -> u32 {
    let mut numbers = version.split('.').map(|number| number.parse().unwrap_or(0));
    // Without the last number it may be the newest one.
    let [major, minor, patch] = [0, 0, u32::MAX].map(|unknown| numbers.next().unwrap_or(unknown));
    match (major, minor) {
        // The first release of 13.0 is 13.0.48, the second 13.0.85.
        (13.., _) => major * 10_000 + minor * 100 + u32::from(patch > 48),
        // That of 12.4 is 12.4.99.
        (12, 5..) => 24,
        (12, 4) if patch > 99 => 22,
        (12, 4) => 21,
        (1.., _) => 18,
        (0, _) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_packages_tell_their_faults() {
        let fault = |version| fault(api_version(version));
        assert_eq!(["13.0.85", "13.0", "13.1", "12.8.90", "12.4.127"].map(fault), [None; 5]);
        assert_eq!(fault("13.0.48"), Some("can crash programs that use NVTX"));
        assert_eq!(fault("13.2.23"), Some("slows programs down more with each call"));
        assert!(fault("12.4.99").is_some() && fault("11.8.87").is_some());
    }

    #[test]
    fn the_version_is_that_of_the_package_around_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let packages = folder.path().join("site-packages");
        std::fs::create_dir_all(packages.join("nvidia/cu13/lib")).unwrap();
        let file = packages.join("nvidia/cu13/lib/libcupti.so.13");
        std::fs::write(&file, "").unwrap();
        assert_eq!(installed_version(&file), None);
        std::fs::create_dir(packages.join("nvidia_cuda_cupti-13.0.85.dist-info")).unwrap();
        assert_eq!(installed_version(&file).as_deref(), Some("13.0.85"));
        let toolkit = folder.path().join("cuda-12.6/extras/CUPTI/lib64");
        std::fs::create_dir_all(&toolkit).unwrap();
        std::fs::write(toolkit.join("libcupti.so.12"), "").unwrap();
        assert_eq!(installed_version(&toolkit.join("libcupti.so.12")).as_deref(), Some("12.6"));
    }

    #[test]
    fn the_package_is_that_of_the_runtime() {
        let of = |major, package: &str| {
            let wanted = format!("install one by {package}, and name its file by `--lib libcupti=PATH`");
            assert_eq!(install(major), wanted);
        };
        of(Some(13), "`pip install nvidia-cuda-cupti`");
        of(Some(12), "`pip install nvidia-cuda-cupti-cu12`");
        of(None, "`pip install nvidia-cuda-cupti` (for CUDA 12 `nvidia-cuda-cupti-cu12`)");
    }

    #[test]
    fn versions_are_named_as_releases() {
        assert_eq!(release(130_001), "CUPTI 13.0.1");
        assert_eq!(release(130_400), "CUPTI 13.4");
        assert_eq!(release(28), "CUPTI 12.9");
        assert_eq!(release(19), "CUPTI, API version 19");
        assert_eq!(major(Path::new("/x/libcudart.so.12.4.99")), Some(12));
    }
}
