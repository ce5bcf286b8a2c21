//! The libraries that a script can name: file names and script names.
//!
//! A new library is one row of [`LIBRARIES`]. Not here: the location of its file on this machine (`host`).

/// A CUDA library that scripts can name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Library {
    /// `libcuda.so.1`, the driver API
    Driver,
    /// `libcudart.so.N`, the runtime API
    Runtime,
    /// `libnccl.so.2`
    Nccl,
    /// `libcublas.so.N`
    Cublas,
    /// `libcublasLt.so.N`
    CublasLt,
    /// `libcudnn.so.N`
    Cudnn,
    /// `libnvrtc.so.N`
    Nvrtc,
    /// `libcufft.so.N`
    Cufft,
    /// `libcusparse.so.N`
    Cusparse,
    /// `libcusolver.so.N`
    Cusolver,
    /// `libcurand.so.N`
    Curand,
    /// `libnvidia-ml.so.1`
    Nvml,
    /// `libcupti.so.N`
    Cupti,
    /// `libnvToolsExt.so.1`
    Nvtx,
}

struct Row {
    library: Library,
    /// The canonical name in scripts, then other names. The prefix `lib` is optional in all of them.
    aliases: &'static [&'static str],
    soname_stem: &'static str,
}

const fn row(library: Library, aliases: &'static [&'static str], soname_stem: &'static str) -> Row {
    Row { library, aliases, soname_stem }
}

/// In the order of [`Library`].
static LIBRARIES: [Row; 14] = [
    row(Library::Driver, &["libcuda"], "libcuda.so"),
    row(Library::Runtime, &["libcudart"], "libcudart.so"),
    row(Library::Nccl, &["libnccl"], "libnccl.so"),
    row(Library::Cublas, &["libcublas"], "libcublas.so"),
    row(Library::CublasLt, &["libcublasLt", "libcublaslt"], "libcublasLt.so"),
    row(Library::Cudnn, &["libcudnn"], "libcudnn.so"),
    row(Library::Nvrtc, &["libnvrtc"], "libnvrtc.so"),
    row(Library::Cufft, &["libcufft"], "libcufft.so"),
    row(Library::Cusparse, &["libcusparse"], "libcusparse.so"),
    row(Library::Cusolver, &["libcusolver"], "libcusolver.so"),
    row(Library::Curand, &["libcurand"], "libcurand.so"),
    row(Library::Nvml, &["libnvml", "libnvidia-ml"], "libnvidia-ml.so"),
    row(Library::Cupti, &["libcupti"], "libcupti.so"),
    row(Library::Nvtx, &["libnvtx", "libnvToolsExt"], "libnvToolsExt.so"),
];

impl Library {
    /// All libraries, in the order of the enum.
    pub fn all() -> impl Iterator<Item = Library> {
        LIBRARIES.iter().map(|row| row.library)
    }

    /// The library and its major version, from the last component of a path.
    ///
    /// `libcudart.so.12` is (Runtime, 12), `libcudart-d0da41ae.so.11.0` (a copy inside a Python wheel) is
    /// (Runtime, 11). The version is `None` if the name has none, and for `libcuda`, whose number is a driver
    /// version and not an API version.
    pub fn from_soname(file_name: &str) -> Option<(Library, Option<u32>)> {
        let (stem, version) = file_name.split_once(".so")?;
        if !(version.is_empty() || version.starts_with('.')) {
            return None;
        }
        let library = LIBRARIES.iter().find(|row| is_copy_of(stem, row.soname_stem))?.library;
        let major = version.split('.').nth(1).and_then(|digits| digits.parse().ok());
        Some((library, if library == Library::Driver { None } else { major }))
    }

    /// The library that `libcuda`, `cudart` or `nccl` names in a script. Plain `cuda` is not a library but a
    /// provider.
    pub fn from_alias(script_name: &str) -> Option<Library> {
        let is_named = |alias: &&str| {
            *alias == script_name || (script_name != "cuda" && alias.strip_prefix("lib") == Some(script_name))
        };
        LIBRARIES.iter().find(|row| row.aliases.iter().any(is_named)).map(|row| row.library)
    }

    /// The name in scripts and messages: `libcuda`.
    pub fn alias(self) -> &'static str {
        LIBRARIES[self as usize].aliases[0]
    }

    /// The file name without version: `libcuda.so`.
    pub fn soname_stem(self) -> &'static str {
        LIBRARIES[self as usize].soname_stem
    }
}

/// `libcudart` or `libcudart-<hash>`, as auditwheel renames bundled copies.
fn is_copy_of(stem: &str, soname_stem: &str) -> bool {
    let name = soname_stem.trim_end_matches(".so");
    stem.strip_prefix(name).is_some_and(|rest| {
        rest.is_empty()
            || rest.strip_prefix('-').is_some_and(|hash| hash.bytes().all(|b| b.is_ascii_hexdigit()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_stand_in_the_order_of_the_enum() {
        for (at, row) in LIBRARIES.iter().enumerate() {
            assert_eq!(row.library as usize, at);
        }
    }

    #[test]
    fn file_names() {
        let cases = [
            ("libcuda.so.1", Some((Library::Driver, None))),
            ("libcuda.so.580.159.04", Some((Library::Driver, None))),
            ("libcudart.so", Some((Library::Runtime, None))),
            ("libcudart.so.12", Some((Library::Runtime, Some(12)))),
            ("libcudart-d0da41ae.so.11.0", Some((Library::Runtime, Some(11)))),
            ("libcublasLt.so.13", Some((Library::CublasLt, Some(13)))),
            ("libnvidia-ml.so.1", Some((Library::Nvml, Some(1)))),
            ("libcudart_static.a", None),
            ("libcudart-stub.so", None),
            ("libcudadebugger.so.1", None),
            ("libcuda.sofa", None),
            ("libc.so.6", None),
            ("", None),
        ];
        for (name, expected) in cases {
            assert_eq!(Library::from_soname(name), expected, "{name}");
        }
    }

    #[test]
    fn script_names() {
        assert_eq!(Library::from_alias("libcuda"), Some(Library::Driver));
        assert_eq!(Library::from_alias("cuda"), None, "`cuda:` is the provider");
        assert_eq!(Library::from_alias("cudart"), Some(Library::Runtime));
        assert_eq!(Library::from_alias("libcudart"), Some(Library::Runtime));
        assert_eq!(Library::from_alias("nccl"), Some(Library::Nccl));
        assert_eq!(Library::from_alias("nvidia-ml"), Some(Library::Nvml));
        assert_eq!(Library::from_alias("libc"), None);
        for library in Library::all() {
            assert_eq!(Library::from_alias(library.alias()), Some(library));
            assert_eq!(Library::from_soname(library.soname_stem()), Some((library, None)));
        }
    }
}
