//! The CUDA libraries that have a function, by the names of their functions and files.

use crate::catalog::File;
use crate::resolve::pattern::NamePattern;

/// The library that has a function of this name.
pub fn cuda_library(function: &str) -> Option<&'static str> {
    let has = |library: &cuda::Library| known_function(*library, function);
    cuda::Library::all().find(has).map(cuda::Library::alias)
}

/// Whether the tables have the function, or its family.
fn known_function(library: cuda::Library, function: &str) -> bool {
    cuda::signatures(library, 0).any(|s| s.name == function || cuda::base_name(library, s.name) == function)
}

/// The library whose tables apply to a symbol of a file. In a program with a static copy of the runtime, the symbol determines
/// it.
pub(super) fn library_of(file: &File, symbol: &str) -> Option<(cuda::Library, u32)> {
    file.library.or_else(|| library_by_symbol(symbol))
}

pub(super) fn library_by_symbol(symbol: &str) -> Option<(cuda::Library, u32)> {
    let library = match symbol {
        s if s.starts_with("cuda") || s.starts_with("__cuda") => cuda::Library::Runtime,
        s if s.starts_with("cu") => cuda::Library::Driver,
        s if s.starts_with("nccl") => cuda::Library::Nccl,
        _ => return None,
    };
    let known = |name: &str| cuda::signature(library, 0, name).is_some();
    let family = cuda::base_name(library, symbol);
    (known(symbol) || known(family) || known(&format!("{family}_v2"))).then_some((library, 0))
}

/// `libcudart`, `cudart`, `/usr/lib/libcudart.so.12`
pub(super) fn library_by_name(target: &str) -> Option<(cuda::Library, u32)> {
    let file_name = target.rsplit('/').next().unwrap_or(target);
    cuda::Library::from_alias(target).map(|library| (library, 0)).or_else(|| {
        cuda::Library::from_soname(file_name).map(|(library, major)| (library, major.unwrap_or(0)))
    })
}

/// Symbols of a library's tables that match a pattern.
pub(super) fn expected(name: &NamePattern, library: cuda::Library, major: u32) -> Vec<String> {
    let known = |symbol: &str| cuda::signature(library, major, symbol).is_some();
    cuda::signatures(library, major)
        .map(|signature| signature.name)
        .filter(|symbol| name.matches(Some(library), symbol, known))
        .map(String::from)
        .collect()
}
