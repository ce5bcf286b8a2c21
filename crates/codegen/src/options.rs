//! Machine, kernel and session that a script is compiled for.

use std::collections::BTreeSet;
use wire::Features;

/// Architecture of the probed functions.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Arch {
    /// System V on x86-64.
    #[default]
    X86_64,
    /// AAPCS64.
    Aarch64,
}

/// Target and settings of a compilation.
#[derive(Clone, Debug)]
pub struct Options {
    /// Architecture.
    pub arch: Arch,
    /// Features of the kernel.
    pub features: Features,
    /// Number of possible CPUs, for the choice between arrays and hashes.
    pub cpus: u32,
    /// Ignore calls of processes that are not in `ct_pids`.
    pub pid_filter: bool,
    /// The tracer's own process, if it calls probed functions: printing one of its calls would cause another call.
    pub own_process: Option<u32>,
    /// With `pid_filter`: adds programs that follow forks and exits. Contains field offsets of the tracepoints.
    pub follow: Option<Follow>,
    /// Programs walk user stacks themselves, with unwind tables; otherwise the kernel walks them by frame
    /// pointers.
    pub unwind: Option<Unwind>,
    /// Offset in bytes of `task_struct::thread.fsbase`, by which programs in the kernel find the control block of their thread.
    pub thread_base: Option<u32>,
    /// Device and inode of the tracer's pid namespace, if it is not the initial one; pids are of this namespace.
    pub pid_namespace: Option<(u64, u64)>,
    /// Optimisations that run.
    pub optimise: Passes,
    /// The division of the script; `None`: the object has all of it.
    pub part: Option<Part>,
    /// Name of the script in the output among several scripts; empty for a single script.
    pub script: String,
    /// Manifest of the running session that this module extends.
    pub base: Option<wire::Manifest>,
    /// Histograms also keep the sum of their samples, for maps that are exported as metrics. The cost is one
    /// addition per sample.
    pub sums: bool,
    /// The object has a section with its manifest, so that the file is self-contained.
    pub self_describing: bool,
}

impl Options {
    /// All optimisations, for a new session that traces every process of an x86-64 machine with `cpus` possible
    /// CPUs.
    pub fn new(features: Features, cpus: u32) -> Options {
        Options {
            arch: Arch::X86_64,
            features,
            cpus,
            pid_filter: false,
            own_process: None,
            follow: None,
            unwind: None,
            thread_base: None,
            pid_namespace: None,
            optimise: Passes::All,
            part: None,
            script: String::new(),
            base: None,
            sums: false,
            self_describing: false,
        }
    }

    /// Whether the object has this clause.
    pub fn has_clause(&self, clause: u32) -> bool {
        self.part.as_ref().is_none_or(|part| part.kernel.contains(&clause) != self.in_process())
    }

    /// Whether the object has this map, by its name.
    pub fn has_map(&self, name: &str) -> bool {
        self.part.as_ref().is_none_or(|part| part.process_maps.contains(name) == self.in_process())
    }

    /// Whether programs of the object use stacks of this kind, if any do.
    pub fn has_stacks(&self, user: bool) -> bool {
        let is_in_kernel = |part: &Part| !user || part.kernel_walks;
        self.part.as_ref().is_none_or(|part| is_in_kernel(part) != self.in_process())
    }

    /// Whether the programs run in the traced processes.
    pub fn in_process(&self) -> bool {
        self.features == Features::IN_PROCESS
    }
}

/// How a script is divided into clauses that run in the kernel and clauses that run in the traced processes. Each place has an object of its
/// own; all maps are in both manifests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// Numbers of the clauses in the kernel.
    pub kernel: BTreeSet<u32>,
    /// Names of the maps that the traced processes have.
    pub process_maps: BTreeSet<String>,
    /// Whether programs in the kernel can look up cells of other CPUs.
    pub percpu_lookup: bool,
    /// Whether the clauses that walk user stacks are in the kernel.
    pub kernel_walks: bool,
}

/// Offsets of fields of the tracepoints, in bytes from the start of the record.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Follow {
    /// `pid` of task:task_newtask.
    pub pid: u32,
    /// `clone_flags` of task:task_newtask.
    pub clone_flags: u32,
}

/// Walks over user stacks by programs. They need `bpf_loop`, kernel BTF and x86-64.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Unwind {
    /// Location of the return addresses that return probes have replaced; without it walks stop at them.
    pub returns: Option<ReturnChain>,
}

/// Offsets of the kernel's fields that lead to replaced return addresses, in bytes.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct ReturnChain {
    /// `task_struct::utask`
    pub utask: u32,
    /// `uprobe_task::return_instances`
    pub instances: u32,
    /// `return_instance::stack`: address of the return address.
    pub stack: u32,
    /// `return_instance::orig_ret_vaddr`
    pub original: u32,
    /// `return_instance::next`
    pub next: u32,
}

/// Set of optimisations; by default all, a single one in tests.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Passes {
    /// All passes, in their order.
    All,
    /// No pass.
    None,
    /// Only the pass with this index in `opt::PASSES`.
    Only(usize),
}
