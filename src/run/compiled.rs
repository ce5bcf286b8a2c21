//! The scripts of a run, compiled for the places where they run.
//!
//! ```text
//! parse -> check -> for_kernel
//!                -> for_processes -> Places (which clauses need the kernel) -> a module of each script for each place
//! ```

use super::compiler::{Compiler, CompilerInputs};
use super::places::Places;
use super::setup;
use crate::Failure;
use crate::cli::Cli;
use crate::console::Messages;
use crate::export::file::cannot_write;
use crate::script::Script;
use anyhow::Context;
use cuda::Library;
use lang::SessionState;
use runtime::{Kernel, PatchCount};
use std::path::{Path, PathBuf};
use wire::manifest::{Attach, CompiledScript};
use wire::{Features, Manifest};

/// Compiled scripts.
pub struct CompiledScripts {
    /// Modules; those for the traced processes come first.
    pub modules: Vec<CompiledScript>,
    /// Features of the kernel, or of code in the traced processes.
    pub features: Features,
    /// True if programs run in the traced processes.
    pub in_process: bool,
    /// True if the links filter by process.
    pub by_link: bool,
    /// Clauses that run in the kernel while the rest runs in the traced processes: a line for the end.
    pub in_kernel: Option<String>,
    /// Why the kernel runs scripts that were to run in the traced processes.
    pub why_kernel: Option<String>,
}

/// Compiles scripts for the kernel. `traced`: number of processes that the user has named.
pub fn for_kernel(compilers: &mut [Compiler], cli: &Cli, traced: usize) -> Result<CompiledScripts, Failure> {
    let kernel = setup::kernel(cli)?;
    let by_link = cli.no_children
        && traced == 1
        && compilers.iter().all(Compiler::runs_by_calls_alone)
        && setup::link_filters(&kernel);
    let modules = compile(compilers, &kernel.features, by_link, None).map_err(Failure::wrong)?;
    Ok(CompiledScripts {
        modules,
        features: kernel.features,
        in_process: false,
        by_link,
        in_kernel: None,
        why_kernel: None,
    })
}

/// Compiles scripts for the traced processes, and for the kernel what cannot run there. The inner error is the reason why the kernel must
/// run all of it. A function that cannot be patched is no reason without the right to use the kernel: it is left out then.
pub fn for_processes<'a>(
    inputs: CompilerInputs<'_>,
    compilers: &mut Vec<Compiler<'a>>,
) -> Result<Result<CompiledScripts, String>, Failure> {
    let CompilerInputs { machine, cli, messages } = inputs;
    let has_rights = Kernel::probe().is_ok();
    let unknown = |target: &&str| Library::from_alias(target).is_none();
    if let Some(target) = compilers.iter().flat_map(Compiler::waits_for).find(unknown).filter(|_| has_rights)
    {
        return Ok(Err(format!("`{target}` is not loaded yet, so its functions are not known")));
    }
    let features = Features::IN_PROCESS;
    let whole = modules_of(compilers, None, |compiler, base| compiler.generate(&features, true, base));
    // An error comes after the stages up to it.
    let whole = whole.or_else(|_| compile(compilers, &features, true, None)).map_err(Failure::wrong)?;
    let places = Places::of(machine, compilers, &whole, has_rights).map_err(Failure::wrong)?;
    if let Some(error) = places.contradiction() {
        return Err(Failure::wrong(error));
    }
    if let Some(reason) = places.all_in_kernel() {
        return Ok(Err(reason));
    }
    let (mut modules, others, further) = match places.need_kernel() {
        false => {
            let mut all = compilers.iter().zip(&whole);
            all.try_for_each(|(compiler, module)| compiler.print(module)).map_err(Failure::wrong)?;
            (whole, Vec::new(), Vec::new())
        }
        true => {
            let kernel = setup::kernel(cli).inspect_err(|_| places.explain_kernel(messages))?.features;
            let mut others = divide(compilers, &places, kernel.percpu_lookup).map_err(Failure::wrong)?;
            let modules = compile(compilers, &features, true, None).map_err(Failure::wrong)?;
            let base = modules.last().map(|module| &module.manifest);
            let further = compile(&mut others, &kernel, false, base).map_err(Failure::wrong)?;
            (modules, others, further)
        }
    };
    if let Some(reason) = modules.iter().find_map(runtime::why_not_in_process) {
        return Ok(Err(reason));
    }
    modules.iter().for_each(|module| list_places(module, messages));
    places.list_kernel(messages);
    compilers.extend(others);
    modules.extend(further);
    // A link would leave the children out of what runs in the kernel: the programs filter there.
    let (by_link, in_kernel) = (false, places.in_kernel());
    Ok(Ok(CompiledScripts { modules, features, in_process: true, by_link, in_kernel, why_kernel: None }))
}

/// Divides the scripts; returns compilers for the parts in the kernel.
fn divide<'a>(
    compilers: &mut [Compiler<'a>],
    places: &Places,
    percpu_lookup: bool,
) -> anyhow::Result<Vec<Compiler<'a>>> {
    let mut for_kernel = Vec::new();
    let mut known = compilers.last().map_or_else(SessionState::default, Compiler::session_state);
    for (number, compiler) in compilers.iter_mut().enumerate() {
        if let Some(other) = compiler.divide(places.part(number, percpu_lookup), known.clone())? {
            known = other.session_state();
            for_kernel.push(other);
        }
    }
    Ok(for_kernel)
}

/// Parses the scripts.
pub fn parse<'a>(scripts: Vec<Script>, inputs: CompilerInputs<'a>) -> anyhow::Result<Vec<Compiler<'a>>> {
    let mut compilers: Vec<Compiler> =
        scripts.into_iter().map(|script| Compiler::new(script, inputs)).collect();
    compilers.iter_mut().try_for_each(Compiler::parse)?;
    Ok(compilers)
}

/// Checks the scripts for the place where they run; each gets the state of the previous ones.
pub fn check(compilers: &mut [Compiler], in_process: bool) -> anyhow::Result<()> {
    let mut known = SessionState::default();
    for compiler in compilers {
        compiler.check_for(in_process, known)?;
        known = compiler.session_state();
    }
    Ok(())
}

/// Compiles a module of each script, based on the previous modules; `base` is the manifest of the first of these.
fn compile(
    compilers: &mut [Compiler],
    features: &Features,
    by_link: bool,
    base: Option<&Manifest>,
) -> anyhow::Result<Vec<CompiledScript>> {
    modules_of(compilers, base, |compiler, base| compiler.compile(features, by_link, base))
}

fn modules_of<'a>(
    compilers: &mut [Compiler<'a>],
    base: Option<&Manifest>,
    mut compile: impl FnMut(&mut Compiler<'a>, Option<&Manifest>) -> anyhow::Result<CompiledScript>,
) -> anyhow::Result<Vec<CompiledScript>> {
    let mut modules: Vec<CompiledScript> = Vec::new();
    for compiler in compilers {
        let before = modules.last().map(|module| &module.manifest).or(base);
        modules.push(compile(compiler, before)?);
    }
    Ok(modules)
}

/// Says of each clause where it runs.
fn list_places(module: &CompiledScript, messages: &Messages) {
    for program in module.manifest.programs.iter().filter(|program| !program.auxiliary) {
        let place = match &program.attach {
            Attach::Functions { sites, .. } => {
                format!("in the traced process, at {}", functions(sites.len()))
            }
            Attach::ProcessEnd => "in cudatrace, at the end of a traced process".to_owned(),
            Attach::Event(_) | Attach::Follow { .. } => "in cudatrace".to_owned(),
        };
        messages.detail(|| format!("`{}` runs {place}", program.text));
    }
}

/// The line about functions that were traced without the kernel, and about what the kernel has traced.
pub fn where_it_ran(patched: PatchCount, in_kernel: Option<&str>) -> String {
    let (count, all) = (patched.processes, functions(patched.functions));
    let es = if count == 1 { "" } else { "es" };
    let kernel = in_kernel.map_or_else(String::new, |clauses| format!("; {clauses}"));
    format!("Traced {all} in {count} process{es}, without the kernel{kernel}")
}

fn functions(count: usize) -> String {
    format!("{count} function{}", if count == 1 { "" } else { "s" })
}

/// Writes the objects of the scripts; several scripts go to separate files: `x.kernels.o`.
pub fn emit<'m>(
    path: &Path,
    objects: impl Iterator<Item = (String, &'m CompiledScript)>,
    messages: &Messages,
) -> anyhow::Result<()> {
    for (heading, compiled) in objects {
        let to = if heading.is_empty() { path.to_owned() } else { beside(path, &heading) };
        std::fs::write(&to, &compiled.elf).map_err(|error| cannot_write(&to, &error)).context("--emit")?;
        if !heading.is_empty() {
            messages.note(&format!("wrote {}", to.display()));
        }
    }
    Ok(())
}

/// The file for the object of script `kernels`: `x.kernels.o`.
fn beside(path: &Path, heading: &str) -> PathBuf {
    let word = heading.trim_start_matches('-');
    match path.extension() {
        Some(extension) => path.with_extension(format!("{word}.{}", extension.display())),
        None => path.with_extension(word),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_of_several_scripts_lie_beside_each_other() {
        let beside = |path: &str, heading| beside(Path::new(path), heading).display().to_string();
        assert_eq!(beside("/tmp/x.o", "kernels"), "/tmp/x.kernels.o");
        assert_eq!(beside("/tmp/x", "kernels2"), "/tmp/x.kernels2");
        assert_eq!(beside("x.o", "-e"), "x.e.o");
    }
}
