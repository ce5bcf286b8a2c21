//! The scope at one point of a body: its variables, and which of them are set on all paths to the point.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::check::slots::Slot;
use crate::check::tracked::TrackedFact;
use crate::hir::{Type, VarId};
use crate::source::span::Span;

/// The blocks around a block that has a value.
pub(crate) struct Nesting {
    /// Another block with a value is around it.
    in_value: bool,
    /// Number of loops around it.
    loops: u32,
}

/// A scratch variable, kept between rounds.
#[derive(Clone, Debug)]
pub(crate) struct VarState {
    pub name: String,
    /// Start of the loop or `let` that declares it; 0 for variables of the clause.
    pub declared_at: u32,
    pub slot: TrackedFact<Slot>,
    pub span: Span,
    pub read: bool,
    /// All addresses assigned to it are kernel addresses; `None` without such an assignment.
    pub kernel: Option<bool>,
}

/// One path through a branch.
pub(crate) struct Path {
    set: Vec<VarId>,
    ended: bool,
}

/// The state at the current point of a body.
#[derive(Debug, Default)]
pub(crate) struct Scope {
    vars: Vec<VarState>,
    /// The visible variables of each name, the innermost last.
    visible: FxHashMap<String, Vec<VarId>>,
    /// The variables of loops and those that `let` declares, by name and position.
    declared: FxHashMap<(String, u32), VarId>,
    /// Names that `let` has declared in the blocks around this point.
    of_blocks: Vec<String>,
    /// By variable: set on all paths to here.
    assigned: Vec<bool>,
    /// Stack of set variables. The end of a path pops what the path set, at a cost independent of the clause's size.
    set_so_far: Vec<VarId>,
    /// Number of variables that no script can name.
    hidden: u32,
    /// Loops around this point.
    pub loops: u32,
    /// Number of copies that the unrolled loops around this point make, and their statements in total.
    pub unrolled: (u64, u64),
    /// Dead code: a constant condition excludes this point.
    pub dead: bool,
    /// A condition of `comptime` was not decided, since types may still widen.
    pub undecided: bool,
    /// Some expression since the last reset has no type yet.
    pub has_unknown: bool,
    /// Inside a block that has a value.
    pub in_value: bool,
    /// The rest of the block is unreachable.
    pub ended: bool,
}

impl Scope {
    /// The scope at the start of a body, with the variables that earlier rounds found.
    pub(crate) fn enter(vars: Vec<VarState>) -> Scope {
        let mut scope = Scope { vars, unrolled: (1, 0), ..Scope::default() };
        scope.assigned = vec![false; scope.vars.len()];
        (0..scope.vars.len()).for_each(|at| scope.add_name(VarId(at as u32)));
        scope
    }

    /// Adds a variable of an earlier round to the name tables.
    fn add_name(&mut self, id: VarId) {
        let var = &self.vars[id.0 as usize];
        match var.declared_at {
            0 => self.visible.entry(var.name.clone()).or_default().push(id),
            at => drop(self.declared.insert((var.name.clone(), at), id)),
        }
    }

    /// The variables, for the next round.
    pub(crate) fn into_vars(self) -> Vec<VarState> {
        self.vars
    }

    pub(crate) fn vars(&self) -> &[VarState] {
        &self.vars
    }

    pub(crate) fn var(&mut self, id: VarId) -> &mut VarState {
        &mut self.vars[id.0 as usize]
    }

    /// The visible variable of a name.
    pub(crate) fn lookup(&self, name: &str) -> Option<VarId> {
        self.visible.get(name)?.last().copied()
    }

    /// The visible variable of a name, or a new one of the clause.
    pub(crate) fn lookup_or_add(&mut self, name: &str, span: Span) -> VarId {
        self.lookup(name).unwrap_or_else(|| self.add(name, 0, span))
    }

    /// A variable that no script can name.
    pub(crate) fn hidden(&mut self, span: Span, ty: Type) -> VarId {
        let id = self.lookup_or_add(&format!("?:{}", self.hidden), span);
        self.hidden += 1;
        self.var(id).slot.set(Slot::fixed(ty));
        self.set(id);
        id
    }

    /// Declares a loop's variable, visible until [`Scope::leave_loop`].
    pub(crate) fn enter_loop(&mut self, name: &str, span: Span) -> VarId {
        let id = self.declare(name, span);
        self.loops += 1;
        id
    }

    /// Makes a new variable visible.
    fn declare(&mut self, name: &str, span: Span) -> VarId {
        let at = span.start.max(1);
        let known = self.declared.get(&(name.to_string(), at)).copied();
        let id = known.unwrap_or_else(|| self.add(name, at, span));
        self.visible.entry(name.to_string()).or_default().push(id);
        self.set(id);
        id
    }

    /// `let $x`: a new variable, visible until [`Scope::leave_block`].
    pub(crate) fn declare_in_block(&mut self, name: &str, span: Span) -> VarId {
        self.of_blocks.push(name.to_string());
        self.declare(name, span)
    }

    /// Marks the start of a block.
    pub(crate) fn enter_block(&self) -> usize {
        self.of_blocks.len()
    }

    /// Hides the variables of the block that began at `start`.
    pub(crate) fn leave_block(&mut self, start: usize) {
        for name in self.of_blocks.split_off(start) {
            self.visible.get_mut(&name).map(Vec::pop);
        }
    }

    pub(crate) fn leave_loop(&mut self, name: &str) {
        self.visible.get_mut(name).map(Vec::pop);
        self.loops -= 1;
    }

    /// Enters a block that has a value; `break` and `continue` in it do not reach the loops around.
    pub(crate) fn enter_value(&mut self) -> Nesting {
        Nesting {
            in_value: std::mem::replace(&mut self.in_value, true),
            loops: std::mem::take(&mut self.loops),
        }
    }

    pub(crate) fn leave_value(&mut self, outer: Nesting) {
        (self.in_value, self.loops) = (outer.in_value, outer.loops);
        self.ended = false;
    }

    /// Marks the start of a path.
    pub(crate) fn fork(&self) -> usize {
        self.set_so_far.len()
    }

    /// Restores the state at the start of the path.
    pub(crate) fn rewind(&mut self, fork: usize) -> Path {
        let set = self.set_so_far.split_off(fork);
        set.iter().for_each(|id| self.assigned[id.0 as usize] = false);
        Path { set, ended: self.ended }
    }

    /// Joins two paths: variables that both set are set. A path that ended is ignored.
    pub(crate) fn join(&mut self, a: Path, b: Path) {
        let on_both: FxHashSet<VarId> = a.set.iter().copied().collect();
        let is_set = |id: &VarId| a.ended || on_both.contains(id);
        match b.ended && !a.ended {
            true => a.set.into_iter().for_each(|id| self.set(id)),
            false => b.set.into_iter().filter(is_set).for_each(|id| self.set(id)),
        }
        self.ended = a.ended && b.ended;
    }

    fn add(&mut self, name: &str, declared_at: u32, span: Span) -> VarId {
        self.vars.push(VarState {
            name: name.into(),
            declared_at,
            slot: TrackedFact::default(),
            span,
            read: false,
            kernel: None,
        });
        self.assigned.push(false);
        let id = VarId(self.vars.len() as u32 - 1);
        self.add_name(id);
        id
    }

    pub(crate) fn set(&mut self, id: VarId) {
        if !std::mem::replace(&mut self.assigned[id.0 as usize], true) {
            self.set_so_far.push(id);
        }
    }

    /// Whether a variable is set on all paths; unreachable code counts as set.
    pub(crate) fn is_set(&self, id: VarId) -> bool {
        self.ended || self.assigned[id.0 as usize]
    }

    /// Visible names, for suggestions.
    pub(crate) fn visible_names(&self) -> impl Iterator<Item = &str> {
        self.visible.iter().filter(|(_, ids)| !ids.is_empty()).map(|(name, _)| name.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Which of `$a` and `$b` are set after a branch; a path lists the variables it sets, and may end with `return`.
    fn set_after(paths: [&str; 2]) -> Vec<&'static str> {
        let mut scope = Scope::default();
        let names = ["a", "b"];
        let ids = names.map(|name| scope.lookup_or_add(name, Span::default()));
        let [first, second] = paths.map(|path| {
            let fork = scope.fork();
            (0..2).filter(|&at| path.contains(names[at])).for_each(|at| scope.set(ids[at]));
            scope.ended = path.contains("return");
            scope.rewind(fork)
        });
        scope.join(first, second);
        (0..2).filter(|&at| scope.is_set(ids[at])).map(|at| names[at]).collect()
    }

    #[test]
    fn both_paths_must_set() {
        assert_eq!(set_after(["a b", "a"]), ["a"]);
        assert_eq!(set_after(["a", "return"]), ["a"]);
        assert_eq!(set_after(["b return", "a"]), ["a"]);
        assert_eq!(set_after(["a", ""]), [""; 0]);
        assert_eq!(set_after(["return", "return"]), ["a", "b"]);
    }
}
