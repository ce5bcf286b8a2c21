//! The probe that a body runs at: its kind, its sites, and what the body can see of the call or record.

use crate::catalog::MarkerArg;
use crate::expand::gpu::{PROVIDER, kind_of};
use crate::expand::operations;
use crate::hir::{Environment, Hook, NameId, NameKind, Signature, Site, Trigger};
use crate::resolve::ResolvedClause;
use crate::resolve::declaration::FunctionDeclaration;
use crate::resolve::grouping::ProgramGroup;
use crate::resolve::spot::EventSpot;
use cuda::gpu;
use cuda::operations::Operation;

/// The probes in which a built-in may be used.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Where {
    /// All probes.
    Anywhere,
    /// Probes that interrupt something: not `BEGIN` and `END`.
    Running,
    /// `uprobe` and `uretprobe`.
    Calls,
    /// `uretprobe`.
    Returns,
}

/// The kind of probe that a body runs at.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum At {
    #[default]
    Ends,
    Timer,
    /// `profile`: in the middle of what a thread does.
    Sample,
    /// A tracepoint.
    Record,
    Entry,
    Return,
}

impl At {
    pub(crate) fn allows(self, place: Where) -> bool {
        match place {
            Where::Anywhere => true,
            Where::Running => self != At::Ends,
            Where::Calls => matches!(self, At::Entry | At::Return),
            Where::Returns => self == At::Return,
        }
    }
}

/// The probe of a body.
#[derive(Debug, Default)]
pub(crate) struct ProbeContext {
    pub at: At,
    /// How the functions are probed; `None` at other events.
    pub hook: Option<Hook>,
    pub signature: Option<Signature>,
    pub known: Option<FunctionDeclaration>,
    /// Pointers of the record are to memory of the kernel; those of system calls are to the process's.
    pub kernel_pointers: bool,
    /// The operation that the clause is a part of: `cuda:alloc`.
    pub operation: Option<&'static Operation>,
    /// The kind of records that the body runs for, at batches of them.
    pub gpu: Option<&'static gpu::RecordKind>,
    /// A raw tracepoint, whose values also have numbers.
    pub raw: bool,
    /// An iterator, whose item's fields `ctx` has too.
    pub iterates: bool,
    /// Arguments of a USDT marker.
    pub passed: Option<Vec<MarkerArg>>,
    /// For each field of a tracepoint's record, the kernel struct that it points to.
    pub pointees: Vec<Option<String>>,
    /// The function, or marker, for messages.
    pub symbol: String,
    /// Sites of this program.
    pub sites: Vec<Site>,
    /// Sites of all programs of the clause.
    pub clause_sites: Vec<Site>,
    /// Value of `probe` at a timer.
    pub timed_name: Option<NameId>,
    /// Value of `probetype`.
    pub probe_type: &'static str,
}

impl ProbeContext {
    /// The context of one of a clause's bodies.
    pub(crate) fn new(clause: &ResolvedClause, group: &ProgramGroup) -> ProbeContext {
        let gpu = clause.clause.probes.iter().find_map(kind_of);
        let mut context = ProbeContext {
            clause_sites: clause.groups.iter().flat_map(ProgramGroup::sites).cloned().collect(),
            probe_type: if gpu.is_some() { PROVIDER } else { probe_type(group) },
            gpu,
            operation: clause.clause.probes.iter().find_map(operations::of_spec).map(|probe| probe.operation),
            ..ProbeContext::default()
        };
        match group {
            ProgramGroup::Event(EventSpot { trigger, name, signature, pointees }) => {
                context.pointees.clone_from(pointees);
                context.timed_name = Some(*name);
                context.signature = signature.clone();
                context.iterates = trigger.environment() == Environment::Item;
                context.raw = trigger.environment() == Environment::Arguments;
                context.kernel_pointers = match trigger {
                    Trigger::Tracepoint { category, .. } => !category.ends_with("syscalls"),
                    Trigger::Iterator { .. } => true,
                    _ => context.raw,
                };
                context.at = match trigger.environment() {
                    Environment::Tracer => At::Ends,
                    Environment::Timer => At::Timer,
                    Environment::Sample => At::Sample,
                    Environment::Record | Environment::Item | Environment::Arguments => At::Record,
                };
            }
            ProgramGroup::Calls { hook, returns, layout } => {
                context.hook = Some(*hook);
                context.kernel_pointers = hook.is_in_kernel();
                context.at = if *returns { At::Return } else { At::Entry };
                context.sites = layout.sites.clone();
                context.signature = layout.signature.clone();
                context.known = layout.known.clone();
                context.passed = layout.passed.clone();
                context.symbol = layout.symbol.clone();
            }
        }
        context
    }

    /// Names of the sites' functions: those of this program, and of the whole clause.
    pub(crate) fn name_ids(&self, kind: NameKind) -> (Vec<NameId>, Vec<NameId>) {
        (ids(&self.sites, kind), ids(&self.clause_sites, kind))
    }
}

/// The long name of a provider; `special` for `BEGIN` and `END`.
fn probe_type(group: &ProgramGroup) -> &'static str {
    match group {
        ProgramGroup::Event(event) => event.trigger.probe_type(),
        ProgramGroup::Calls { layout, .. } if layout.passed.is_some() => "usdt",
        ProgramGroup::Calls { hook, returns, .. } => hook.probe_type(*returns),
    }
}

fn ids(sites: &[Site], kind: NameKind) -> Vec<NameId> {
    let id = |site: &Site| match kind {
        NameKind::Func => site.func,
        NameKind::Api => site.api,
        NameKind::Probe => site.probe,
    };
    let mut list: Vec<NameId> = sites.iter().map(id).collect();
    list.sort_unstable();
    list.dedup();
    list
}
