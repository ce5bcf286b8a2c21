//! Machine, kernel and session that a script is compiled for.

use wire::Features;

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
