//! How functions give way to jumps, for programs that run in the traced processes.

use cuda::gates::is_gate;
use host::patch::{Author, Body, patch_place};
use host::{ElfFile, Machine};
use lang::Catalog;
use lang::catalog::{FileId, Function};
use lang::resolve::jump_targets::is_jumped_to;
use lang::syntax::glob::glob;
use runtime::{FileFunctions, FunctionSite, PatchSite, UnwinderHook};
use std::path::Path;
use wire::Manifest;
use wire::manifest::{Attach, Program, Side, Site};

/// How the function whose first instruction is at an offset of a file gives way to a jump. The error is a text.
pub fn patch_site(machine: &Machine, file: FileId, offset: u64) -> Result<PatchSite, String> {
    let Some(function) = machine.function_at(file, offset) else {
        return Err("only the kernel can probe within a function".into());
    };
    let (place, original) = machine.patch_place(file, offset).map_err(|refusal| refusal.to_string())?;
    Ok(PatchSite {
        offset: offset + place.bytes,
        original: original.to_vec(),
        first: machine.code(file, offset + place.bytes - u64::from(place.first), place.first.into()).to_vec(),
        undo: place.undo,
        no_return: no_return(&function.names),
    })
}

/// The functions of the driver by whose calls a process can be made to load the agent. One that cannot be patched is left out.
pub fn gates(machine: &Machine, driver: FileId) -> FileFunctions {
    let functions = machine.functions(driver).iter();
    let gates = functions.filter(|function| function.names.iter().any(|name| is_gate(name)));
    let sites = gates.filter_map(|function| function_site(machine, driver, function)).collect();
    FileFunctions { file: driver.0, path: machine.open_path(driver).into(), sites }
}

fn function_site(machine: &Machine, file: FileId, function: &Function) -> Option<FunctionSite> {
    let patch = patch_site(machine, file, function.offset).ok()?;
    Some(FunctionSite { offset: function.offset, patch })
}

/// The functions of a file by which unwinders find tables, and how they give way to jumps.
pub fn unwinder_sites(path: &Path) -> Vec<(UnwinderHook, PatchSite)> {
    let Ok(elf) = ElfFile::open(path) else { return vec![] };
    let functions = elf.functions();
    let site = |(hook, symbol): (UnwinderHook, &str)| {
        let function =
            functions.list.iter().find(|function| function.names.iter().any(|name| &**name == symbol))?;
        let body = Body::of(&elf, &functions, function.offset, u64::MAX);
        let place = patch_place(body, Author::Compiler).ok()?;
        let at = function.offset + place.bytes;
        let original = elf.code(at, place.len.into()).to_vec();
        let first = elf.code(at - u64::from(place.first), place.first.into()).to_vec();
        Some((hook, PatchSite { offset: at, original, first, undo: place.undo, no_return: None }))
    };
    UnwinderHook::ALL.into_iter().filter_map(site).collect()
}

/// Functions whose return cannot be traced, with the reason.
const NO_RETURN: [(&[&str], &str); 3] = [
    (
        // `dlsym(RTLD_NEXT, ...)`, for example, searches the libraries after that of its caller.
        &["dlopen", "dlmopen", "dlsym", "dlvsym", "mcount", "_mcount", "__fentry__"],
        "it looks up its caller by the return address, which a probe of the return replaces",
    ),
    (
        // The program may keep the replaced address for longer than it is traced.
        &[
            "setjmp",
            "_setjmp",
            "__sigsetjmp",
            "getcontext",
            "swapcontext",
            "vfork",
            "__vfork",
            "__libc_vfork",
        ],
        "it may return more than once",
    ),
    (&["_dl_start", "_dl_tlsdesc_*", "*.cold.*"], NOT_CALLED),
];
const NOT_CALLED: &str = "it is not called, so it has no return address";

fn no_return(names: &[String]) -> Option<&'static str> {
    let is_one_of = |patterns: &[&str]| names.iter().any(|name| patterns.iter().any(|one| glob(one, name)));
    let found = NO_RETURN.iter().find(|(patterns, _)| is_one_of(patterns)).map(|(_, reason)| *reason);
    found.or_else(|| names.iter().any(|name| is_jumped_to(name)).then_some(NOT_CALLED))
}

/// Why a program cannot do without the functions that cannot be patched; `None` if it can: of many functions a few are left out. More are left
/// out of a clause that probes returns, since the kernel's return probes are a risk for the program.
pub fn why_kernel(
    machine: &Machine,
    manifest: &Manifest,
    program: &Program,
    probes_returns: bool,
) -> Option<String> {
    let Attach::Functions { side, sites, hook } = &program.attach else { return None };
    if hook.is_in_kernel() {
        return None;
    }
    let mut reasons = sites.iter().filter_map(|site| Some((site, why_not(machine, site, *side)?)));
    let (first, why) = reasons.next()?;
    let count = 1 + reasons.count();
    let probe = manifest.names.probes.get(first.probe as usize).map_or("a function", String::as_str);
    let left_out = if probes_returns { sites.len() / 2 } else { sites.len() / FEW };
    (count > left_out).then(|| match sites.len() {
        1 => format!("`{probe}` cannot be patched: {why}"),
        all => format!("{count} of {all} functions cannot be patched, as `{probe}`: {why}"),
    })
}

/// One function of so many may be left out of a clause without returns.
const FEW: usize = 20;

fn why_not(machine: &Machine, site: &Site, side: Side) -> Option<String> {
    match patch_site(machine, FileId(site.file), site.offset) {
        Err(reason) => Some(reason),
        Ok(PatchSite { no_return: Some(reason), .. }) if side != Side::Entry => Some(reason.to_owned()),
        Ok(_) => None,
    }
}
