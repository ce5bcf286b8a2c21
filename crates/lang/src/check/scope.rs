//! What a body sees at one point: where it runs, its variables, which of them are set on all paths to here.

use crate::builtin::Where;
use crate::catalog::MarkerArg;
use crate::check::infer::Slot;
use crate::hir::{Attach, NameId, NameKind, Signature, Site, VarId};
use crate::resolve::{Attached, ResolvedClause};
use crate::span::Span;

/// A scratch variable through the rounds.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct VarState {
    pub name: String,
    /// Start of the loop that declares it; 0 for those of the clause.
    pub declared_at: u32,
    pub slot: Slot,
    pub span: Span,
    /// Something reads it.
    pub read: bool,
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

/// Where the body runs and what is known at the present point of it.
#[derive(Debug, Default)]
pub(crate) struct Scope {
    pub at: At,
    pub signature: Option<Signature>,
    pub known: Option<&'static cuda::Signature>,
    /// Pointers of the record are to memory of the kernel; those of system calls are to the process's.
    pub kernel_pointers: bool,
    /// A raw tracepoint, whose values also have numbers.
    pub raw: bool,
    /// Of markers: what they pass on.
    pub passed: Option<Vec<MarkerArg>>,
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
    /// Names in sight, the innermost last.
    visible: Vec<(String, VarId)>,
    /// By variable: set on all paths to here.
    pub assigned: Vec<bool>,
    /// Loops around this point.
    pub loops: u32,
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
        let mut scope = Scope { vars, ..Scope::default() };
        scope.clause_sites = clause.attached.iter().flat_map(sites).cloned().collect();
        scope.probe_type = probe_type(attached);
        match attached {
            Attached::Timed { attach, name, signature } => {
                scope.timed_name = Some(*name);
                scope.signature = signature.clone();
                scope.raw = matches!(attach, Attach::RawTracepoint { .. });
                scope.kernel_pointers = match attach {
                    Attach::Tracepoint { category, .. } => !category.ends_with("syscalls"),
                    attach => matches!(attach, Attach::RawTracepoint { .. }),
                };
                scope.at = match attach {
                    Attach::Begin | Attach::End | Attach::Signal { .. } => At::Ends,
                    Attach::Tracepoint { .. } | Attach::RawTracepoint { .. } => At::Record,
                    Attach::Profile { .. } => At::Sample,
                    _ => At::Timer,
                };
            }
            Attached::Calls { returns, layout } => {
                scope.at = if *returns { At::Return } else { At::Entry };
                scope.sites = layout.sites.clone();
                scope.signature = layout.signature.clone();
                scope.known = layout.known;
                scope.passed = layout.passed.clone();
                scope.symbol = layout.symbol.clone();
            }
        }
        scope.visible = scope.of_clause();
        scope.assigned = vec![false; scope.vars.len()];
        scope
    }

    fn of_clause(&self) -> Vec<(String, VarId)> {
        let all = self.vars.iter().enumerate().filter(|(_, var)| var.declared_at == 0);
        all.map(|(id, var)| (var.name.clone(), VarId(id as u32))).collect()
    }

    /// The variables, for the next round.
    pub fn into_vars(self) -> Vec<VarState> {
        self.vars
    }

    pub fn var(&mut self, id: VarId) -> &mut VarState {
        &mut self.vars[id.0 as usize]
    }

    /// The variable that a name means here.
    pub fn lookup(&self, name: &str) -> Option<VarId> {
        self.visible.iter().rev().find(|(known, _)| known == name).map(|&(_, id)| id)
    }

    /// The variable that an assignment means: a new one of the clause if there is none.
    pub fn lookup_or_add(&mut self, name: &str, span: Span) -> VarId {
        self.lookup(name).unwrap_or_else(|| {
            let id = self.add(name, 0, span);
            self.visible.insert(0, (name.to_string(), id));
            id
        })
    }

    /// Brings a loop's own variable into sight until [`Scope::leave_loop`].
    pub fn enter_loop(&mut self, name: &str, span: Span) -> VarId {
        let at = span.start.max(1);
        let known = self.vars.iter().position(|var| var.name == name && var.declared_at == at);
        let id = match known {
            Some(at) => VarId(at as u32),
            None => self.add(name, at, span),
        };
        self.visible.push((name.to_string(), id));
        self.assigned[id.0 as usize] = true;
        self.loops += 1;
        id
    }

    pub fn leave_loop(&mut self) {
        self.visible.pop();
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

    /// What was set at some point before, the variables found since then not set.
    pub fn restore(&mut self, mut assigned: Vec<bool>) {
        assigned.resize(self.assigned.len(), false);
        self.assigned = assigned;
    }

    fn add(&mut self, name: &str, declared_at: u32, span: Span) -> VarId {
        self.vars.push(VarState { name: name.into(), declared_at, slot: Slot::default(), span, read: false });
        self.assigned.push(false);
        VarId(self.vars.len() as u32 - 1)
    }

    pub fn set(&mut self, id: VarId) {
        self.assigned[id.0 as usize] = true;
    }

    pub fn is_set(&self, id: VarId) -> bool {
        self.assigned[id.0 as usize]
    }

    /// Names in sight, for suggestions.
    pub fn visible_names(&self) -> impl Iterator<Item = &str> {
        self.visible.iter().map(|(name, _)| name.as_str())
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
        Attached::Timed { attach: Attach::Profile { .. }, .. } => "profile",
        Attached::Timed { attach: Attach::Tracepoint { .. }, .. } => "tracepoint",
        Attached::Timed { attach: Attach::RawTracepoint { .. }, .. } => "rawtracepoint",
        Attached::Timed { attach: Attach::Signal { .. }, .. } => "self",
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

/// What is set where two paths meet. A path that ended does not arrive.
pub(crate) fn meet(a: (&[bool], bool), b: (&[bool], bool)) -> Vec<bool> {
    let length = a.0.len().max(b.0.len());
    let set = |side: (&[bool], bool), at: usize| side.1 || side.0.get(at).copied().unwrap_or(false);
    (0..length).map(|at| set(a, at) && set(b, at)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_paths_must_set() {
        assert_eq!(meet((&[true, true], false), (&[true, false], false)), [true, false]);
        assert_eq!(meet((&[true], false), (&[false], true)), [true]);
        assert_eq!(meet((&[true], false), (&[], false)), [false]);
    }
}
