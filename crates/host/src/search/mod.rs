//! Which files match a target's name.
//!
//! `libcuda` and `cudart` are known libraries, `libm` and `nccl` any others, `libcudart.so.12` is a soname, `./prog` and
//! `/usr/lib/*/libc.so.6` are paths, `python3` is a program, `*` stands for all files that traced processes execute. A match depends
//! on the name alone; the [`crate::Machine`] supplies the candidates (mappings, disk).

pub mod folders;
pub(crate) mod ld_cache;
pub(crate) mod target_files;
pub(crate) mod usable;

use std::path::{Path, PathBuf};

use cuda::Library;

use crate::elf::ElfFile;

/// A function that every CUDA runtime defines: a file other than libcudart that has it, and one that does something, is linked with the
/// runtime statically. The linker takes of the runtime what the file uses.
const RUNTIME_FUNCTION: &str = "cudaGetErrorString";
const RUNTIME_WORKS: [&str; 3] = ["cudaLaunchKernel", "cudaMalloc", "cudaMemcpyAsync"];
/// Texts in the data of every CUDA runtime, which remain where symbols are stripped.
const RUNTIME_TEXTS: [&[u8]; 2] = [b"cudaErrorInvalidValue\0", b"libcuda.so.1\0"];

/// A parsed target name.
#[derive(Clone, Debug, PartialEq)]
pub enum TargetName {
    /// `/usr/lib/libfoo.so`, `./prog`: absolute.
    Path(PathBuf),
    /// `/usr/local/cuda*/lib64/libcudart.so*`
    Pattern(glob::Pattern),
    /// `libcudart.so.12`, `libcuda.so`
    Soname(String),
    /// `libcuda`, `cudart`
    Library(Library),
    /// `libm`, `foo`: a library `libfoo`, or a program.
    Name(String),
    /// `*`: all executable files of the traced processes.
    Everything,
}

/// Result of comparing a file's name with a target.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The file matches.
    Yes,
    /// The soname of the file decides.
    IfSoname,
    /// The file does not match.
    No,
}

impl TargetName {
    /// Parses a name; `directory` is the base of relative paths.
    pub fn parse(target: &str, directory: &Path) -> TargetName {
        if target.contains('/') {
            let absolute = without_dots(&directory.join(target));
            let pattern = glob::Pattern::new(&absolute.to_string_lossy()).ok();
            return match pattern.filter(|_| target.contains(['*', '?', '['])) {
                Some(pattern) if !absolute.exists() => TargetName::Pattern(pattern),
                _ => TargetName::Path(absolute),
            };
        }
        match Library::from_alias(target) {
            _ if target == "*" => TargetName::Everything,
            Some(library) => TargetName::Library(library),
            None if target.contains(".so") => TargetName::Soname(target.to_owned()),
            None => TargetName::Name(target.to_owned()),
        }
    }

    /// The library, if it is a known one.
    pub fn library(&self) -> Option<Library> {
        match self {
            TargetName::Library(library) => Some(*library),
            TargetName::Soname(soname) => Library::from_soname(soname).map(|(library, _)| library),
            TargetName::Path(_) | TargetName::Pattern(_) | TargetName::Name(_) | TargetName::Everything => {
                None
            }
        }
    }

    /// Compares a file by its path in the view of its process.
    pub fn judge(&self, path: &Path) -> Verdict {
        let file_name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        // A library that a program has written to a memfd and loaded from there.
        let file_name = file_name.strip_prefix("memfd:").unwrap_or(file_name);
        let yes_if = |holds: bool| if holds { Verdict::Yes } else { Verdict::No };
        match self {
            TargetName::Path(wanted) => yes_if(wanted == path),
            TargetName::Pattern(pattern) => yes_if(pattern.matches_path_with(path, GLOB)),
            TargetName::Library(library) => {
                yes_if(Library::from_soname(file_name).is_some_and(|(found, _)| found == *library))
            }
            TargetName::Name(name) => yes_if(file_name == name || is_library_named(file_name, name)),
            TargetName::Soname(soname) => judge_soname(soname, file_name),
            TargetName::Everything => Verdict::Yes,
        }
    }

    /// Whether a file matches by its path, or otherwise by its soname.
    pub fn accepts(&self, path: &Path, elf: &ElfFile) -> bool {
        match self.judge(path) {
            Verdict::Yes => true,
            Verdict::IfSoname => matches!(self, TargetName::Soname(soname) if elf.soname() == Some(soname)),
            Verdict::No => false,
        }
    }

    /// Whether the target is the CUDA runtime without a version, which programs that have it linked in also match.
    pub fn is_runtime(&self) -> bool {
        *self == TargetName::Library(Library::Runtime)
    }
}

const GLOB: glob::MatchOptions = glob::MatchOptions {
    case_sensitive: true,
    require_literal_separator: true,
    require_literal_leading_dot: false,
};

/// `libcudart.so` matches every version, `libcudart.so.12` also `libcudart.so.12.9.79`.
fn judge_soname(soname: &str, file_name: &str) -> Verdict {
    let versions = file_name.strip_prefix(soname);
    if versions.is_some_and(|rest| rest.is_empty() || rest.starts_with('.')) {
        return Verdict::Yes;
    }
    let stem = soname.split(".so").next().unwrap_or(soname);
    if is_library_named(file_name, stem) { Verdict::IfSoname } else { Verdict::No }
}

/// `libfoo.so.1`, `libfoo-2.31.so`, `libfoo-d0da41ae.so.11.0` for `foo` and `libfoo`.
fn is_library_named(file_name: &str, name: &str) -> bool {
    let Some((stem, version)) = file_name.split_once(".so") else { return false };
    if !(version.is_empty() || version.starts_with('.')) {
        return false;
    }
    let is_copy = |rest: &str| rest.is_empty() || rest.starts_with('-');
    let after = |stem: &str| stem.strip_prefix(name).is_some_and(is_copy);
    after(stem) || stem.strip_prefix("lib").is_some_and(after)
}

/// Whether the file is a stub library for linking, without code worth probing.
pub fn is_stub(path: &Path) -> bool {
    path.components().any(|component| component.as_os_str() == "stubs")
}

/// Whether a CUDA runtime is linked in statically.
pub fn has_static_runtime(path: &Path, elf: &ElfFile) -> bool {
    known_by_name(path, elf).is_none()
        && elf.defines(RUNTIME_FUNCTION)
        && RUNTIME_WORKS.iter().any(|name| elf.defines(name))
}

/// Whether a CUDA runtime is linked in, but the symbols are stripped, so that there is nothing to probe.
pub fn hides_static_runtime(path: &Path, elf: &ElfFile) -> bool {
    known_by_name(path, elf).is_none()
        && !elf.has_symtab()
        && !elf.needed().any(|soname| soname.starts_with("libcudart"))
        && (elf.has_gpu_code() || has_texts_of_runtime(elf))
}

/// A text that is in this program alone, since it is looked for: another run of this tracer has the texts of a runtime, too.
const OWN_TEXT: &[u8] = b"the tracer's tables have the texts of a CUDA runtime";

/// Whether a file without GPU code has the texts of a runtime: the name of a result, and the driver that it opens. Other
/// libraries import no `dlsym`, mostly, and are not searched.
fn has_texts_of_runtime(elf: &ElfFile) -> bool {
    let has = |section: &str, text: &[u8]| {
        elf.named_section(section).is_some_and(|bytes| memchr::memmem::find(bytes, text).is_some())
    };
    has(".dynstr", b"\0dlsym\0")
        && RUNTIME_TEXTS.iter().all(|text| has(".rodata", text))
        && !has(".rodata", OWN_TEXT)
}

/// The known library that a file is or contains, with its major version.
pub fn known_library(path: &Path, elf: &ElfFile) -> Option<(Library, u32)> {
    match known_by_name(path, elf) {
        Some((Library::Runtime, None)) => Some((Library::Runtime, runtime_major(elf))),
        Some((library, major)) => Some((library, major.unwrap_or(0))),
        None if has_static_runtime(path, elf) => Some((Library::Runtime, runtime_major(elf))),
        None => None,
    }
}

/// The known library by the file's soname, otherwise by its name.
fn known_by_name(path: &Path, elf: &ElfFile) -> Option<(Library, Option<u32>)> {
    let by_file_name = || Library::from_soname(path.file_name()?.to_str()?);
    elf.soname().and_then(Library::from_soname).or_else(by_file_name)
}

/// Major version of a runtime without a version: 12.0 removed texture references, 13.0 the `cudaThread` functions.
fn runtime_major(elf: &ElfFile) -> u32 {
    match () {
        () if elf.defines("cudaBindTexture") => 11,
        () if elf.defines("cudaThreadExit") => 12,
        () => 13,
    }
}

/// Removes `.` and `..` from an absolute path, without accessing the file system.
fn without_dots(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            std::path::Component::CurDir => {}
            std::path::Component::ParentDir => {
                plain.pop();
            }
            other => plain.push(other),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(target: &str) -> TargetName {
        TargetName::parse(target, Path::new("/work dir"))
    }

    #[test]
    fn a_library_in_memory_has_its_name() {
        let path = Path::new("/memfd:libcuda.so.1");
        assert_eq!(parse("libcuda").judge(path), Verdict::Yes);
        assert_eq!(parse("libcuda.so").judge(path), Verdict::Yes);
        assert_eq!(parse("libcudart").judge(path), Verdict::No);
    }

    #[test]
    fn names_are_understood() {
        assert_eq!(parse("libcuda"), TargetName::Library(Library::Driver));
        assert_eq!(parse("cudart"), TargetName::Library(Library::Runtime));
        assert_eq!(parse("libcudart.so.12"), TargetName::Soname("libcudart.so.12".into()));
        assert_eq!(parse("libm"), TargetName::Name("libm".into()));
        assert_eq!(parse("./a/../prog"), TargetName::Path("/work dir/prog".into()));
        assert!(matches!(parse("/lib/*/libcuda.so*"), TargetName::Pattern(_)));
        assert_eq!(
            parse("/usr/bin/[x"),
            TargetName::Path("/usr/bin/[x".into()),
            "an unclosed bracket is no pattern"
        );
    }

    #[test]
    fn file_names_are_judged() {
        let cases = [
            ("libcuda", "/usr/lib/libcuda.so.580.159.04", Verdict::Yes),
            ("libcuda", "/usr/lib/libcudart.so.12", Verdict::No),
            ("libcudart", "/x.libs/libcudart-d0da41ae.so.11.0", Verdict::Yes),
            ("libcudart.so.12", "/a/libcudart.so.12.9.79", Verdict::Yes),
            ("libcudart.so.12", "/a/libcudart.so.13", Verdict::IfSoname),
            ("libcudart.so.1", "/a/libcudart.so.13", Verdict::IfSoname),
            ("libcudart.so", "/a/libcudart.so.13", Verdict::Yes),
            ("libcuda.so.1", "/a/libcuda.so.580.159.04", Verdict::IfSoname),
            ("libc", "/lib/libc.so.6", Verdict::Yes),
            ("libc", "/lib/libc-2.31.so", Verdict::Yes),
            ("libc", "/lib/libcap.so.2", Verdict::No),
            ("c", "/lib/libc.so.6", Verdict::Yes),
            ("python3.11", "/usr/bin/python3.11", Verdict::Yes),
            ("/usr/*/x", "/usr/a/x", Verdict::Yes),
            ("/usr/*/x", "/usr/a/b/x", Verdict::No),
            ("/usr/x", "/usr/x", Verdict::Yes),
        ];
        for (target, path, verdict) in cases {
            assert_eq!(parse(target).judge(Path::new(path)), verdict, "{target} {path}");
        }
    }
}
