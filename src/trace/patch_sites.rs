//! How functions give way to jumps, for programs that run in the traced processes.

use cuda::{Signature, TypeId};
use host::Machine;
use lang::catalog::{Catalog, FileId};
use runtime::{PatchSite, UNKNOWN_ARGUMENTS};
use wire::Manifest;
use wire::manifest::{Attach, Program, Side, Site};

/// More than any function of CUDA's libraries has: the few without a known signature are not documented.
const MAX_STACK_WORDS: u32 = 32;

/// How the function whose first instruction is at an offset of a file gives way to a jump. The error is a text.
pub fn patch_site(machine: &Machine, file: FileId, offset: u64) -> Result<PatchSite, String> {
    if machine.functions(file).iter().all(|function| function.offset != offset) {
        return Err("only the kernel can probe within a function".into());
    }
    let (place, original) = machine.patch_place(file, offset).map_err(|refusal| refusal.to_string())?;
    Ok(PatchSite {
        offset: offset + place.bytes,
        original: original.to_vec(),
        first: machine.code(file, offset + place.bytes - u64::from(place.first), place.first.into()).to_vec(),
        undo: place.undo,
        stack_words: match signature(machine, file, offset) {
            Some(signature) => Some(stack_words(signature)),
            None => machine.library(file).map(|_| MAX_STACK_WORDS),
        },
    })
}

/// Why a program of a module cannot do without the functions that cannot be patched; `None` if it can: of many functions a few are
/// left out.
pub fn why_kernel(machine: &Machine, manifest: &Manifest) -> Option<String> {
    let refused = |program: &Program| {
        let Attach::Functions { side, sites, .. } = &program.attach else { return None };
        let mut reasons = sites.iter().filter_map(|site| Some((site, why_not(machine, site, *side)?)));
        let (first, why) = reasons.next()?;
        let count = 1 + reasons.count();
        let probe = manifest.names.probes.get(first.probe as usize).map_or("a function", String::as_str);
        (count * FEW > sites.len()).then(|| format!("`{probe}` cannot be patched: {why}"))
    };
    manifest.programs.iter().find_map(refused)
}

/// One function of so many may be left out.
const FEW: usize = 20;

fn why_not(machine: &Machine, site: &Site, side: Side) -> Option<String> {
    match patch_site(machine, FileId(site.file), site.offset) {
        Err(reason) => Some(reason),
        Ok(PatchSite { stack_words: None, .. }) if side != Side::Entry => Some(UNKNOWN_ARGUMENTS.to_owned()),
        Ok(_) => None,
    }
}

/// The signature of a function of CUDA.
fn signature(machine: &Machine, file: FileId, offset: u64) -> Option<&'static Signature> {
    let (library, major) = machine.library(file)?;
    let functions = machine.functions(file);
    let function = functions.iter().find(|function| function.offset == offset)?;
    function.names.iter().find_map(|name| cuda::signature(library, major, name))
}

/// Words of a function's arguments that may be on the stack: structs of more than two words, and what exceeds six registers.
/// A struct of two words that does not fit leaves one register empty.
fn stack_words(signature: &Signature) -> u32 {
    let words = |ty: TypeId| ty.size().unwrap_or(0).div_ceil(8);
    let all: Vec<u32> = signature.params.iter().map(|param| words(param.ty)).collect();
    let large: u32 = all.iter().filter(|words| **words > 2).sum();
    let small: u32 = all.iter().filter(|words| **words <= 2).sum();
    let empty = u32::from(all.contains(&2));
    large + (small + empty).saturating_sub(6)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cuda::Library;

    #[test]
    fn arguments_beyond_six_words_are_on_the_stack() {
        let words = |name| stack_words(cuda::signature(Library::Driver, 0, name).expect("a function"));
        assert_eq!(words("cuInit"), 0);
        assert_eq!(words("cuMemAlloc_v2"), 0);
        assert_eq!(words("cuLaunchKernel"), 5);
        // A handle of 64 bytes by value.
        assert_eq!(words("cuIpcOpenMemHandle_v2"), 8);
    }
}
