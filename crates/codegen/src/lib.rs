//! Checked program to relocatable BPF object and manifest. Pure: no I/O, no CUDA knowledge (`abi` knows the machine's
//! calling convention, the checked program the types).
//!
//! ```text
//! hir::Program -> merge -> lower -> ir::Module -> opt -> select + regalloc -> BPF instructions -> object (ELF, BTF, line info)
//! ```

pub mod bpf;
mod dataflow;
pub mod ir;
pub mod lower;
mod merge;
pub mod opt;
mod parallel;

pub use bpf::code::AsmError as Error;
use bpf::code::Assembly;
use bpf::{link, object};
use lower::StackShare;

use lang::{Source, hir};
use wire::Features;
use wire::manifest::{Compiled, Manifest};

/// The machine that the probed functions run on.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Arch {
    /// System V on x86-64.
    #[default]
    X86_64,
    /// AAPCS64.
    Aarch64,
}

/// What to compile for.
#[derive(Clone, Debug)]
pub struct Options {
    /// Machine.
    pub arch: Arch,
    /// Kernel.
    pub features: Features,
    /// Possible CPUs, for choosing between arrays and hashes.
    pub cpus: u32,
    /// Drop calls of processes that are not in `ct_pids`.
    pub pid_filter: bool,
    /// The tracer's own process, if it calls functions that are probed: to print one of its calls is to make another one.
    pub own_process: Option<u32>,
    /// With `pid_filter`: also programs that follow forks and exits, by the tracepoints' field offsets.
    pub follow: Option<Follow>,
    /// Programs walk user stacks themselves, by unwind tables; else the kernel does, by frame pointers.
    pub unwind: Option<Unwind>,
    /// Device and inode of the tracer's pid namespace, if it is not the initial one: pids are said in it.
    pub pid_namespace: Option<(u64, u64)>,
    /// Which optimisations run.
    pub optimise: Passes,
    /// What heads the script's output beside that of others; empty if it is alone.
    pub script: String,
    /// Manifest of the running session that this module extends.
    pub base: Option<wire::Manifest>,
    /// Histograms keep the sum of their samples besides: somebody reads maps as metrics. Costs an addition for each sample.
    pub sums: bool,
    /// The object has its manifest in a section, for whoever finds the file.
    pub self_describing: bool,
}

impl Options {
    /// All optimisations, for a new session that traces every process of an x86-64 machine with so many possible CPUs.
    pub fn new(features: Features, cpus: u32) -> Options {
        Options {
            arch: Arch::X86_64,
            features,
            cpus,
            pid_filter: false,
            own_process: None,
            follow: None,
            unwind: None,
            pid_namespace: None,
            optimise: Passes::All,
            script: String::new(),
            base: None,
            sums: false,
            self_describing: false,
        }
    }
}

/// Where the tracepoints keep their fields, in bytes from the start of the record.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Follow {
    /// `pid` of task:task_newtask.
    pub pid: u32,
    /// `clone_flags` of task:task_newtask.
    pub clone_flags: u32,
}

/// How programs walk user stacks. Needs `bpf_loop` and kernel BTF, and x86-64.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Unwind {
    /// Where the kernel keeps the return addresses that return probes have replaced; without it walks stop at them.
    pub returns: Option<ReturnChain>,
}

/// Offsets of the kernel's fields that lead to replaced return addresses, in bytes.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct ReturnChain {
    /// `task_struct::utask`
    pub utask: u32,
    /// `uprobe_task::return_instances`
    pub instances: u32,
    /// `return_instance::stack`: where the return address lay.
    pub stack: u32,
    /// `return_instance::orig_ret_vaddr`
    pub original: u32,
    /// `return_instance::next`
    pub next: u32,
}

/// Which optimisations run; all by default, some in tests.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Passes {
    /// All, in their order.
    All,
    /// None.
    None,
    /// Only the one with this index in `opt::PASSES`.
    Only(usize),
}

/// A stage of the compiler, to be looked at.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Stage {
    /// IR as lowered.
    Ir,
    /// IR behind the optimiser.
    Opt,
    /// Instructions, script lines between them.
    Bpf,
}

/// Compiles a checked program. Fails only if a probe is too large for the kernel: its stack, or its code.
pub fn compile(program: &hir::Program, src: &Source, options: &Options) -> Result<Compiled, Error> {
    let (assembly, manifest) = assembled(program, src, options)?;
    let described = options.self_describing.then_some(&manifest);
    Ok(Compiled { elf: object::write(&assembly, described, src), manifest })
}

/// Operations of a probe, as far as can be guessed.
const OPERATIONS: usize = 50;

/// Where spills and temporaries are too large for the stack together, temporaries leave it.
fn assembled(program: &hir::Program, src: &Source, options: &Options) -> Result<(Assembly, Manifest), Error> {
    let attempt = |share| {
        let finish = |mut func: ir::Func| {
            link::check_size(&func)?;
            opt::settle(&mut func, options.optimise, |_, _| ());
            let part = link::part(&func, options.features.private_stack)?;
            Ok((func, part))
        };
        let lower = |emit: &mut dyn FnMut(ir::Func)| lower::lower_to(program, src, options, share, emit);
        let expected = OPERATIONS * program.probes.len();
        let ((mut module, manifest), done) =
            parallel::pipeline(expected, lower, ir::Func::operations, finish);
        let (funcs, parts) = done.into_iter().collect::<Result<Vec<_>, Error>>()?.into_iter().unzip();
        module.funcs = funcs;
        debug_assert_eq!(ir::verify::verify(&module), Ok(()), "a rule of the IR is broken: look at `-d opt`");
        Ok((link::join(&module, parts)?, manifest))
    };
    match attempt(StackShare::USUAL) {
        Err(Error::Stack { .. }) => attempt(StackShare::NONE),
        result => result,
    }
}

/// The text of a stage.
pub fn dump(program: &hir::Program, src: &Source, options: &Options, stage: Stage) -> Result<String, Error> {
    Ok(match stage {
        Stage::Ir => lower::lower(program, src, options, StackShare::USUAL).0.to_string(),
        Stage::Opt => optimised(program, src, options, StackShare::USUAL)?.0.to_string(),
        Stage::Bpf => bpf::disasm::listing(&assembled(program, src, options)?.0, src),
    })
}

fn optimised(
    program: &hir::Program,
    src: &Source,
    options: &Options,
    share: StackShare,
) -> Result<(ir::Module, Manifest), Error> {
    let (mut module, manifest) = lower::lower(program, src, options, share);
    module.funcs.iter().try_for_each(link::check_size)?;
    opt::run(&mut module, options.optimise);
    Ok((module, manifest))
}
