//! Compiles a checked program to a relocatable BPF object and its manifest, without I/O and without facts of CUDA: `abi` has the
//! calling convention of the machine, the checked program has the types.
//!
//! ```text
//! hir::Program -> merge -> lower -> ir::Module -> opt -> bpf: select, regalloc, emit, link -> object (ELF, BTF, line info)
//! ```

#![forbid(unsafe_code)]

pub mod bpf;
mod dataflow;
pub mod ir;
pub mod lower;
mod merge;
pub mod opt;
mod options;

pub use bpf::code::AsmError as Error;
pub use options::{Arch, Follow, Options, Part, Passes, ReturnChain, Unwind};

use bpf::object::ObjectNotes;
use bpf::{disasm, object};
use lang::{Source, hir};
use lower::StackShare;
use wire::manifest::CompiledScript;

/// A stage of the compiler, for dumps.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Stage {
    /// IR as lowered.
    Ir,
    /// IR after the optimiser.
    Opt,
    /// Instructions, with script lines between them.
    Bpf,
}

/// Compiles a checked program. Fails only if the stack or the code of a probe is too large for the kernel.
pub fn compile(program: &hir::Program, src: &Source, options: &Options) -> Result<CompiledScript, Error> {
    observed(program, src, options, &mut |_, _| ())
}

/// Text of a stage, from a compilation that reaches this stage.
pub fn dump(program: &hir::Program, src: &Source, options: &Options, stage: Stage) -> Result<String, Error> {
    let mut dump = None;
    let compiled = observed(program, src, options, &mut |at, text| {
        if at == stage {
            dump = Some(text());
        }
    });
    dump.ok_or_else(|| compiled.expect_err("a finished compilation has been through all stages"))
}

/// Callback that gets each stage of a compilation, and a function that prints it.
type Observer<'o> = &'o mut dyn FnMut(Stage, &dyn Fn() -> String);

/// Compiles a program. If spills and temporaries together exceed the stack, it compiles again with the temporaries
/// in scratch memory.
fn observed(
    program: &hir::Program,
    src: &Source,
    options: &Options,
    observe: Observer<'_>,
) -> Result<CompiledScript, Error> {
    match stages(program, src, options, StackShare::USUAL, observe) {
        Err(Error::Stack { .. }) => stages(program, src, options, StackShare::NONE, observe),
        result => result,
    }
}

/// Runs the stages of the compiler.
fn stages(
    program: &hir::Program,
    src: &Source,
    options: &Options,
    share: StackShare,
    observe: Observer<'_>,
) -> Result<CompiledScript, Error> {
    let mut probes = merge::merge(program, options.optimise);
    probes.retain(|probe| options.has_clause(probe.clause));
    let (mut module, manifest) = lower::lower(program, &probes, src, options, share);
    observe(Stage::Ir, &|| module.to_string());
    bpf::link::check_size(&module)?;
    opt::optimise(&mut module, options.optimise);
    observe(Stage::Opt, &|| module.to_string());
    let assembly = bpf::link::assemble(&module)?;
    observe(Stage::Bpf, &|| disasm::listing(&assembly, src));
    let embedded = options.self_describing.then_some(&manifest);
    let notes = ObjectNotes { license: program.config.license, manifest: embedded };
    Ok(CompiledScript { elf: object::write(&assembly, notes, src), manifest })
}
