//! Symbol families: the exported symbols that are one logical call.
//!
//! NVIDIA's headers rename functions by macros. Source code that calls `cuMemAlloc` links to the symbol `cuMemAlloc_v2`; built
//! with per-thread default streams, `cuMemcpyAsync` links to `cuMemcpyAsync_ptsz`. A name in a script therefore stands for a family:
//!
//! ```text
//! cuMemAlloc      cuMemAlloc_v2
//! cuMemcpyAsync   cuMemcpyAsync cuMemcpyAsync_ptsz
//! cuCtxCreate     cuCtxCreate_v2 cuCtxCreate_v3 cuCtxCreate_v4
//! ```
//!
//! Dead symbols are left out: they are still exported, but no program built since CUDA 11.0 calls them (the symbol `cuMemAlloc`
//! takes a 32-bit size). Other libraries have no families: a name is one symbol.

use crate::library::Library;

/// A CUDA version, as (major, minor).
type Version = (u8, u8);

/// Dead symbols of libcuda, and the CUDA version since which headers and `cuGetProcAddress` resolve to the
/// successor. Sorted by symbol.
///
/// Superseded in 3.2: 32-bit sizes and device pointers. Later ones mostly have other semantics with the same
/// parameters. The list ends with CUDA 11.0, the oldest version whose programs are traced. Symbols that were
/// superseded later (`cuMemAdvise` in 12.2, `cuGraphAddNode` in 12.3) are called by programs built with older
/// versions, so they are live together with their successors.
///
/// To check: cudaTypedefs.h names each symbol with the version that introduced it: `PFN_cuMemAlloc_v3020` is
/// `cuMemAlloc_v2`.
static SUPERSEDED: &[(&str, Version)] = &[
    ("cuArray3DCreate", (3, 2)),
    ("cuArray3DGetDescriptor", (3, 2)),
    ("cuArrayCreate", (3, 2)),
    ("cuArrayGetDescriptor", (3, 2)),
    ("cuCtxCreate", (3, 2)),
    ("cuCtxDestroy", (4, 0)),
    ("cuCtxPopCurrent", (4, 0)),
    ("cuCtxPushCurrent", (4, 0)),
    ("cuDevicePrimaryCtxRelease", (11, 0)),
    ("cuDevicePrimaryCtxReset", (11, 0)),
    ("cuDevicePrimaryCtxSetFlags", (11, 0)),
    ("cuDeviceTotalMem", (3, 2)),
    ("cuEventDestroy", (4, 0)),
    ("cuGLCtxCreate", (3, 2)),
    ("cuGLGetDevices", (6, 5)),
    ("cuGLMapBufferObject", (3, 2)),
    ("cuGLMapBufferObjectAsync", (3, 2)),
    ("cuGraphInstantiate", (11, 0)),
    ("cuGraphicsResourceGetMappedPointer", (3, 2)),
    ("cuGraphicsResourceSetMapFlags", (6, 5)),
    ("cuIpcOpenMemHandle", (11, 0)),
    ("cuLinkAddData", (6, 5)),
    ("cuLinkAddFile", (6, 5)),
    ("cuLinkCreate", (6, 5)),
    ("cuMemAlloc", (3, 2)),
    ("cuMemAllocHost", (3, 2)),
    ("cuMemAllocPitch", (3, 2)),
    ("cuMemFree", (3, 2)),
    ("cuMemGetAddressRange", (3, 2)),
    ("cuMemGetInfo", (3, 2)),
    ("cuMemHostGetDevicePointer", (3, 2)),
    ("cuMemHostRegister", (6, 5)),
    ("cuMemcpy2D", (3, 2)),
    ("cuMemcpy2DAsync", (3, 2)),
    ("cuMemcpy2DUnaligned", (3, 2)),
    ("cuMemcpy3D", (3, 2)),
    ("cuMemcpy3DAsync", (3, 2)),
    ("cuMemcpyAtoA", (3, 2)),
    ("cuMemcpyAtoD", (3, 2)),
    ("cuMemcpyAtoH", (3, 2)),
    ("cuMemcpyAtoHAsync", (3, 2)),
    ("cuMemcpyDtoA", (3, 2)),
    ("cuMemcpyDtoD", (3, 2)),
    ("cuMemcpyDtoDAsync", (3, 2)),
    ("cuMemcpyDtoH", (3, 2)),
    ("cuMemcpyDtoHAsync", (3, 2)),
    ("cuMemcpyHtoA", (3, 2)),
    ("cuMemcpyHtoAAsync", (3, 2)),
    ("cuMemcpyHtoD", (3, 2)),
    ("cuMemcpyHtoDAsync", (3, 2)),
    ("cuMemsetD16", (3, 2)),
    ("cuMemsetD2D16", (3, 2)),
    ("cuMemsetD2D32", (3, 2)),
    ("cuMemsetD2D8", (3, 2)),
    ("cuMemsetD32", (3, 2)),
    ("cuMemsetD8", (3, 2)),
    ("cuModuleGetGlobal", (3, 2)),
    ("cuStreamBeginCapture", (10, 1)),
    ("cuStreamDestroy", (4, 0)),
    ("cuTexRefGetAddress", (3, 2)),
    ("cuTexRefSetAddress", (3, 2)),
    ("cuTexRefSetAddress2D", (3, 2)),
    ("cuTexRefSetAddress2D_v2", (4, 1)),
    ("cuVDPAUCtxCreate", (3, 2)),
];

/// The only name whose macro expands to a symbol that is not a numbered variant of it. Since CUDA 12.0, source
/// code that uses the first name calls the second symbol.
const RENAMED: (&str, &str) = ("cuGraphInstantiate", "cuGraphInstantiateWithFlags");

/// The name of the logical call: `cuMemAlloc` for `cuMemAlloc_v2`, `cuMemcpyAsync` for `cuMemcpyAsync_ptsz`,
/// without `@VERSION`. Scripts see it as `api`.
pub fn base_name(library: Library, symbol: &str) -> &str {
    let symbol = without_elf_version(symbol);
    if has_families(library) { strip_number(strip_stream_suffix(symbol)) } else { symbol }
}

/// Whether a symbol is superseded and not called by current programs, in a file that also has its successor.
/// `exported` tests whether the file exports a symbol.
pub fn is_dead(library: Library, symbol: &str, exported: impl Fn(&str) -> bool) -> bool {
    let symbol = without_elf_version(symbol);
    let form = strip_stream_suffix(symbol);
    library == Library::Driver && superseded_since(form).is_some() && exported(&successor(form, symbol))
}

/// Whether a plain name in a script selects this symbol: `cuMemAlloc` selects `cuMemAlloc_v2`, but not the dead
/// `cuMemAlloc`. A name with a suffix selects only that symbol.
pub fn is_live_member(library: Library, family: &str, symbol: &str, exported: impl Fn(&str) -> bool) -> bool {
    // This test alone excludes most symbols of a file.
    let begins_alike = symbol.starts_with(without_elf_version(family));
    if !begins_alike && (library != Library::Driver || family != RENAMED.0) {
        return false;
    }
    if base_name(library, family) != family {
        return without_elf_version(symbol) == without_elf_version(family);
    }
    let base = base_name(library, symbol);
    let is_member = base == family || (library == Library::Driver && (family, base) == RENAMED);
    is_member && !is_dead(library, symbol, exported)
}

/// The CUDA version that superseded a driver function, if it is older than all traced programs.
pub fn superseded_since(symbol: &str) -> Option<(u8, u8)> {
    let at = SUPERSEDED.binary_search_by(|&(name, _)| name.cmp(symbol)).ok()?;
    Some(SUPERSEDED[at].1)
}

/// Removes `_ptsz` (per-thread default stream) or `_ptds` (the same for functions without stream). These suffixes
/// change the meaning of stream 0, not the parameters.
pub(crate) fn strip_stream_suffix(symbol: &str) -> &str {
    symbol.strip_suffix("_ptsz").or_else(|| symbol.strip_suffix("_ptds")).unwrap_or(symbol)
}

fn has_families(library: Library) -> bool {
    matches!(library, Library::Driver | Library::Runtime)
}

fn without_elf_version(symbol: &str) -> &str {
    symbol.split('@').next().unwrap_or(symbol)
}

/// `cuCtxCreate_v4` -> `cuCtxCreate`
fn strip_number(symbol: &str) -> &str {
    numbered(symbol).map_or(symbol, |(base, _)| base)
}

/// `cuCtxCreate_v4` -> (`cuCtxCreate`, 4)
fn numbered(symbol: &str) -> Option<(&str, u32)> {
    let named = symbol.trim_end_matches(|c: char| c.is_ascii_digit());
    let base = named.strip_suffix("_v")?;
    Some((base, symbol[named.len()..].parse().ok()?))
}

/// The next numbered variant, with the stream suffix of `symbol`: `cuStreamBeginCapture_ptsz` ->
/// `cuStreamBeginCapture_v2_ptsz`.
fn successor(form: &str, symbol: &str) -> String {
    let (base, number) = numbered(form).unwrap_or((form, 1));
    format!("{base}_v{}{}", number + 1, &symbol[form.len()..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted() {
        assert!(SUPERSEDED.is_sorted_by(|a, b| a.0 < b.0));
    }

    #[test]
    fn base_names() {
        let cases = [
            ("cuMemAlloc_v2", "cuMemAlloc"),
            ("cuCtxCreate_v4", "cuCtxCreate"),
            ("cuMemcpyHtoDAsync_v2_ptsz", "cuMemcpyHtoDAsync"),
            ("cuMemcpy_ptds", "cuMemcpy"),
            ("cuLaunchKernel", "cuLaunchKernel"),
            ("cuMem_v", "cuMem_v"),
            ("cuMem_vx2", "cuMem_vx2"),
            ("cuMemAlloc_v99999999999", "cuMemAlloc_v99999999999"),
            ("", ""),
        ];
        for (symbol, base) in cases {
            assert_eq!(base_name(Library::Driver, symbol), base);
        }
        assert_eq!(base_name(Library::Runtime, "cudaMalloc@@libcudart.so.13"), "cudaMalloc");
        assert_eq!(base_name(Library::Cublas, "cublasSgemm_v2"), "cublasSgemm_v2");
    }

    #[test]
    fn a_form_without_successor_in_the_file_is_alive() {
        assert!(is_dead(Library::Driver, "cuMemAlloc", |s| s == "cuMemAlloc_v2"));
        assert!(!is_dead(Library::Driver, "cuMemAlloc", |_| false));
        assert!(is_dead(Library::Driver, "cuTexRefSetAddress2D_v2", |s| s == "cuTexRefSetAddress2D_v3"));
        assert!(
            is_dead(Library::Driver, "cuStreamBeginCapture_ptsz", |s| s == "cuStreamBeginCapture_v2_ptsz")
        );
        assert!(!is_dead(Library::Runtime, "cuMemAlloc", |_| true));
    }

    #[test]
    fn a_name_with_a_suffix_is_exact() {
        let member = |family, symbol| is_live_member(Library::Driver, family, symbol, |_| true);
        assert!(member("cuCtxCreate_v3", "cuCtxCreate_v3"));
        assert!(!member("cuCtxCreate_v3", "cuCtxCreate_v4"));
        assert!(member("cuCtxCreate", "cuCtxCreate_v4"));
        assert!(!member("cuMemAlloc", "cuMemAllocHost_v2"));
    }
}
