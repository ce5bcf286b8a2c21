//! The scope at one point of a body: the attach points, the variables, and which variables are set on all paths to the point.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::builtins::table::Where;
use crate::catalog::MarkerArg;
use crate::check::slots::Slot;
use crate::check::tracked::Watched;
use crate::expand::operations;
use crate::hir::{Attach, Counter, NameId, NameKind, Signature, Site, Trial, Type, VarId};
use crate::resolve::ResolvedClause;
use crate::resolve::grouping::Attached;
use crate::resolve::signature::Declared;
use crate::source::span::Span;
use cuda::operations::Operation;

/// A scratch variable through the rounds.
#[derive(Clone, Debug)]
pub(crate) struct VarState {
    pub name: String,
    /// Start of the loop or `let` that declares it; 0 for those of the clause.
    pub declared_at: u32,
    pub slot: Watched<Slot>,
    pub span: Span,
    /// Something reads it.
    pub read: bool,
    /// All addresses that it was given are the kernel's; `None`: it was given none.
    pub kernel: Option<bool>,
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
    pub fn allows(self, place: Where) -> bool {
        match place {
            Where::Anywhere => true,
            Where::Running => self != At::Ends,
            Where::Calls => matches!(self, At::Entry | At::Return),
            Where::Returns => self == At::Return,
        }
    }
}

/// One of the ways through a branch.
pub(crate) struct Path {
    set: Vec<VarId>,
    ended: bool,
}

/// Where the body runs and what is known at the present point of it.
#[derive(Debug, Default)]
pub(crate) struct Scope {
    pub at: At,
    pub signature: Option<Signature>,
    pub known: Option<Declared>,
    /// Pointers of the record are to memory of the kernel; those of system calls are to the process's.
    pub kernel_pointers: bool,
    /// The operation that the clause is a part of: `cuda:alloc`.
    pub operation: Option<&'static Operation>,
    /// A raw tracepoint, whose values also have numbers.
    pub raw: bool,
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
    /// What `probe` is at a timer.
    pub timed_name: Option<NameId>,
    /// What `probetype` is.
    pub probe_type: &'static str,
    vars: Vec<VarState>,
    /// The variables in sight of each name, the innermost last.
    visible: FxHashMap<String, Vec<VarId>>,
    /// The variables of loops and those that `let` declares, by name and place.
    declared: FxHashMap<(String, u32), VarId>,
    /// Names that `let` has declared in the blocks around this point.
    of_blocks: Vec<String>,
    /// By variable: set on all paths to here.
    assigned: Vec<bool>,
    /// Variables that are set, in order: at the end of a path, what the path set is removed, at a cost independent of the clause's size.
    set_so_far: Vec<VarId>,
    /// Variables so far that no script can name.
    hidden: u32,
    /// Loops around this point.
    pub loops: u32,
    /// Copies that the loops around this point unroll to, and statements that they have in all.
    pub unrolled: (u64, u64),
    /// A condition that is known when compiling leaves this out.
    pub left_out: bool,
    /// Inside a block that has a value.
    pub in_value: bool,
    /// Nothing after this point of the block is reached.
    pub ended: bool,
}

impl Scope {
    /// At the start of a body, with the variables that earlier rounds found.
    pub fn enter(clause: &ResolvedClause, attached: &Attached, vars: Vec<VarState>) -> Scope {
        let mut scope = Scope { vars, unrolled: (1, 0), ..Scope::default() };
        scope.clause_sites = clause.attached.iter().flat_map(sites).cloned().collect();
        scope.probe_type = probe_type(attached);
        scope.operation =
            clause.clause.probes.iter().find_map(operations::asked).map(|asked| asked.operation);
        match attached {
            Attached::Timed { attach, name, signature, pointees } => {
                scope.pointees.clone_from(pointees);
                scope.timed_name = Some(*name);
                scope.signature = signature.clone();
                scope.raw = matches!(attach, Attach::RawTracepoint { .. });
                scope.kernel_pointers = match attach {
                    Attach::Tracepoint { category, .. } => !category.ends_with("syscalls"),
                    attach => matches!(attach, Attach::RawTracepoint { .. }),
                };
                scope.at = match attach {
                    Attach::Begin | Attach::End | Attach::Signal { .. } | Attach::Trial { .. } => At::Ends,
                    Attach::Tracepoint { .. } | Attach::RawTracepoint { .. } => At::Record,
                    Attach::Profile { .. } => At::Sample,
                    _ => At::Timer,
                };
            }
            Attached::Calls { returns, layout } => {
                scope.at = if *returns { At::Return } else { At::Entry };
                scope.sites = layout.sites.clone();
                scope.signature = layout.signature.clone();
                scope.known = layout.known.clone();
                scope.passed = layout.passed.clone();
                scope.symbol = layout.symbol.clone();
            }
        }
        scope.assigned = vec![false; scope.vars.len()];
        (0..scope.vars.len()).for_each(|at| scope.recall(VarId(at as u32)));
        scope
    }

    /// Makes a variable that is known be found.
    fn recall(&mut self, id: VarId) {
        let var = &self.vars[id.0 as usize];
        match var.declared_at {
            0 => self.visible.entry(var.name.clone()).or_default().push(id),
            at => drop(self.declared.insert((var.name.clone(), at), id)),
        }
    }

    /// The variables, for the next round.
    pub fn into_vars(self) -> Vec<VarState> {
        self.vars
    }

    pub fn vars(&self) -> &[VarState] {
        &self.vars
    }

    pub fn var(&mut self, id: VarId) -> &mut VarState {
        &mut self.vars[id.0 as usize]
    }

    /// The variable that a name means here.
    pub fn lookup(&self, name: &str) -> Option<VarId> {
        self.visible.get(name)?.last().copied()
    }

    /// The variable that an assignment means: a new one of the clause if there is none.
    pub fn lookup_or_add(&mut self, name: &str, span: Span) -> VarId {
        self.lookup(name).unwrap_or_else(|| self.add(name, 0, span))
    }

    /// A variable that no script can name.
    pub fn hidden(&mut self, span: Span, ty: Type) -> VarId {
        let id = self.lookup_or_add(&format!("?:{}", self.hidden), span);
        self.hidden += 1;
        self.var(id).slot.set(Slot::fixed(ty));
        self.set(id);
        id
    }

    /// Brings a loop's own variable into sight until [`Scope::leave_loop`].
    pub fn enter_loop(&mut self, name: &str, span: Span) -> VarId {
        let id = self.declare(name, span);
        self.loops += 1;
        id
    }

    /// Brings a new variable into sight.
    fn declare(&mut self, name: &str, span: Span) -> VarId {
        let at = span.start.max(1);
        let known = self.declared.get(&(name.to_string(), at)).copied();
        let id = known.unwrap_or_else(|| self.add(name, at, span));
        self.visible.entry(name.to_string()).or_default().push(id);
        self.set(id);
        id
    }

    /// `let $x`: a new variable, in sight until [`Scope::leave_block`].
    pub fn declare_in_block(&mut self, name: &str, span: Span) -> VarId {
        self.of_blocks.push(name.to_string());
        self.declare(name, span)
    }

    /// Where a block begins.
    pub fn enter_block(&self) -> usize {
        self.of_blocks.len()
    }

    /// Takes the variables of the block that began there out of sight.
    pub fn leave_block(&mut self, start: usize) {
        for name in self.of_blocks.split_off(start) {
            self.visible.get_mut(&name).map(Vec::pop);
        }
    }

    pub fn leave_loop(&mut self, name: &str) {
        self.visible.get_mut(name).map(Vec::pop);
        self.loops -= 1;
    }

    /// Enters a block that has a value; `break` and `continue` in it do not reach the loops around.
    pub fn enter_value(&mut self) -> (bool, u32) {
        (std::mem::replace(&mut self.in_value, true), std::mem::take(&mut self.loops))
    }

    pub fn leave_value(&mut self, outer: (bool, u32)) {
        (self.in_value, self.loops) = outer;
        self.ended = false;
    }

    /// Where a path begins.
    pub fn fork(&self) -> usize {
        self.set_so_far.len()
    }

    /// Goes back to where the path began.
    pub fn go_back(&mut self, fork: usize) -> Path {
        let set = self.set_so_far.split_off(fork);
        set.iter().for_each(|id| self.assigned[id.0 as usize] = false);
        Path { set, ended: self.ended }
    }

    /// Goes on where two paths meet: what both set is set. A path that ended does not arrive.
    pub fn meet(&mut self, a: Path, b: Path) {
        let on_both: FxHashSet<VarId> = a.set.iter().copied().collect();
        let arrives = |id: &VarId| a.ended || on_both.contains(id);
        match b.ended && !a.ended {
            true => a.set.into_iter().for_each(|id| self.set(id)),
            false => b.set.into_iter().filter(arrives).for_each(|id| self.set(id)),
        }
        self.ended = a.ended && b.ended;
    }

    fn add(&mut self, name: &str, declared_at: u32, span: Span) -> VarId {
        self.vars.push(VarState {
            name: name.into(),
            declared_at,
            slot: Watched::default(),
            span,
            read: false,
            kernel: None,
        });
        self.assigned.push(false);
        let id = VarId(self.vars.len() as u32 - 1);
        self.recall(id);
        id
    }

    pub fn set(&mut self, id: VarId) {
        if !std::mem::replace(&mut self.assigned[id.0 as usize], true) {
            self.set_so_far.push(id);
        }
    }

    /// Where nothing arrives, nothing is missing.
    pub fn is_set(&self, id: VarId) -> bool {
        self.ended || self.assigned[id.0 as usize]
    }

    /// Names in sight, for suggestions.
    pub fn visible_names(&self) -> impl Iterator<Item = &str> {
        self.visible.iter().filter(|(_, ids)| !ids.is_empty()).map(|(name, _)| name.as_str())
    }

    /// Names of the sites' functions: those of this program, and of the whole clause.
    pub fn name_ids(&self, kind: NameKind) -> (Vec<NameId>, Vec<NameId>) {
        (ids(&self.sites, kind), ids(&self.clause_sites, kind))
    }
}

/// The long name of a provider; what runs once is special.
fn probe_type(attached: &Attached) -> &'static str {
    match attached {
        Attached::Timed { attach: Attach::Interval { .. }, .. } => "interval",
        Attached::Timed { attach: Attach::Profile { counter: Counter::CPU_CLOCK, .. }, .. } => "profile",
        Attached::Timed { attach: Attach::Profile { counter, .. }, .. } => counter.provider(),
        Attached::Timed { attach: Attach::Tracepoint { .. }, .. } => "tracepoint",
        Attached::Timed { attach: Attach::RawTracepoint { .. }, .. } => "rawtracepoint",
        Attached::Timed { attach: Attach::Signal { .. }, .. } => "self",
        Attached::Timed { attach: Attach::Trial { kind: Trial::Test, .. }, .. } => "test",
        Attached::Timed { attach: Attach::Trial { kind: Trial::Bench, .. }, .. } => "bench",
        Attached::Timed { .. } => "special",
        Attached::Calls { layout, .. } if layout.passed.is_some() => "usdt",
        Attached::Calls { returns: false, .. } => "uprobe",
        Attached::Calls { returns: true, .. } => "uretprobe",
    }
}

fn sites(attached: &Attached) -> &[Site] {
    match attached {
        Attached::Timed { .. } => &[],
        Attached::Calls { layout, .. } => &layout.sites,
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Which of `$a` and `$b` are set behind a branch; a path sets those it names, and ends if it says so.
    fn behind(paths: [&str; 2]) -> Vec<&'static str> {
        let mut scope = Scope::default();
        let names = ["a", "b"];
        let ids = names.map(|name| scope.lookup_or_add(name, Span::default()));
        let [first, second] = paths.map(|path| {
            let fork = scope.fork();
            (0..2).filter(|&at| path.contains(names[at])).for_each(|at| scope.set(ids[at]));
            scope.ended = path.contains("return");
            scope.go_back(fork)
        });
        scope.meet(first, second);
        (0..2).filter(|&at| scope.is_set(ids[at])).map(|at| names[at]).collect()
    }

    #[test]
    fn both_paths_must_set() {
        assert_eq!(behind(["a b", "a"]), ["a"]);
        assert_eq!(behind(["a", "return"]), ["a"]);
        assert_eq!(behind(["b return", "a"]), ["a"]);
        assert_eq!(behind(["a", ""]), [""; 0]);
        assert_eq!(behind(["return", "return"]), ["a", "b"]);
    }
}
