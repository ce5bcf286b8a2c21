//! The order in which bodies are checked: bodies that assign to a map come before bodies that read it. Most bodies are then
//! checked once, independent of their order in the script.
//!
//! ```text
//! END { print(@live[1].bytes) }                      second
//! cuda:alloc { @live[pid] = (bytes = args.bytes) }   first
//! ```

use rustc_hash::FxHashMap;

use crate::check::{Body, Checker};
use crate::source::span::Span;
use crate::syntax::ast::{Expr, ExprKind, Name, Stmt, StmtKind};
use crate::syntax::visit::look;

/// Upper bound of groups; longer scripts are checked in the order of the text.
const MAX_GROUPS: usize = u128::BITS as usize;

/// The order of checking.
#[derive(Copy, Clone, PartialEq, Eq)]
pub(super) enum Order {
    /// Writers of a map before its readers.
    Maps,
    /// The order of the script.
    Text,
}

/// The bodies of one clause, with the ids of maps that they read and write.
struct GroupUses {
    bodies: Vec<usize>,
    reads: Vec<usize>,
    writes: Vec<usize>,
}

/// Strongly connected components of bodies, as indices, in topological order. Maps get their ids in the order of the script.
pub(super) fn components(checker: &mut Checker, bodies: &[Body]) -> Vec<Vec<usize>> {
    let uses = uses(checker, bodies);
    if uses.len() > MAX_GROUPS {
        return vec![(0..bodies.len()).collect()];
    }
    // Dependence is transitive: the set of a body contains the sets of the bodies it depends on.
    let dependencies = dependencies(&uses, checker.maps.len());
    let mut order: Vec<(u128, GroupUses)> = dependencies.into_iter().zip(uses).collect();
    order.sort_by_key(|(dependencies, _)| (dependencies.count_ones(), *dependencies));
    let component = |component: &[(u128, GroupUses)]| {
        let mut bodies: Vec<usize> = component.iter().flat_map(|(_, uses)| &uses.bodies).copied().collect();
        bodies.sort_unstable();
        bodies
    };
    order.chunk_by(|a, b| a.0 == b.0).map(component).collect()
}

/// By group: the set of groups that it depends on, transitively and including itself.
fn dependencies(uses: &[GroupUses], maps: usize) -> Vec<u128> {
    let mut writes = vec![0u128; maps];
    for (at, uses) in uses.iter().enumerate() {
        uses.writes.iter().for_each(|map| writes[*map] |= 1 << at);
    }
    let of = |(at, uses): (usize, &GroupUses)| {
        uses.reads.iter().fold(1 << at, |groups, map| groups | writes[*map])
    };
    let mut dependencies: Vec<u128> = uses.iter().enumerate().map(of).collect();
    for through in 0..uses.len() {
        let more = dependencies[through];
        dependencies
            .iter_mut()
            .filter(|groups| **groups >> through & 1 != 0)
            .for_each(|groups| *groups |= more);
    }
    dependencies
}

/// By group, in the order of the script.
fn uses(checker: &mut Checker, bodies: &[Body]) -> Vec<GroupUses> {
    let mut groups: Vec<GroupUses> = Vec::new();
    let mut known: FxHashMap<Span, usize> = FxHashMap::default();
    for (at, body) in bodies.iter().enumerate() {
        let span = body.clause.clause.body.span;
        if !body.first {
            groups[known[&span]].bodies.push(at);
            continue;
        }
        known.insert(span, groups.len());
        let mut uses = GroupUses { bodies: vec![at], reads: Vec::new(), writes: Vec::new() };
        look::clause(body.clause.clause, &mut Finder { checker, uses: &mut uses });
        groups.push(uses);
    }
    groups
}

struct Finder<'f, 'c, 'a> {
    checker: &'c mut Checker<'a>,
    uses: &'f mut GroupUses,
}

impl look::Visit for Finder<'_, '_, '_> {
    fn before_expr(&mut self, e: &Expr) {
        match &e.kind {
            ExprKind::Map { name, .. } => self.reads(name, e.span),
            ExprKind::IncDec { target, .. } => {
                if let ExprKind::Map { name, .. } = &target.kind {
                    let map = self.number(name, target.span);
                    add(&mut self.uses.writes, map);
                }
            }
            _ => {}
        }
    }

    /// The value of an assignment comes first, then its target.
    fn before_stmt(&mut self, stmt: &Stmt) -> bool {
        let StmtKind::Assign { target, value, .. } = &stmt.kind else { return true };
        look::expr(value, self);
        self.target(target);
        false
    }

    fn map(&mut self, name: &Name) {
        self.reads(&name.node, name.span);
    }
}

impl Finder<'_, '_, '_> {
    fn target(&mut self, target: &Expr) {
        match &target.kind {
            ExprKind::Map { name, keys } => {
                let map = self.number(name, target.span);
                add(&mut self.uses.writes, map);
                keys.iter().flatten().for_each(|key| look::expr(key, self));
            }
            _ => look::expr(target, self),
        }
    }

    fn reads(&mut self, name: &str, span: Span) {
        let map = self.number(name, span);
        add(&mut self.uses.reads, map);
    }

    fn number(&mut self, name: &str, span: Span) -> usize {
        self.checker.map_number(name, span).0 as usize
    }
}

/// Adds a map without duplicates; lists are short.
fn add(list: &mut Vec<usize>, map: usize) {
    if !list.contains(&map) {
        list.push(map);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uses(reads: &[usize], writes: &[usize]) -> GroupUses {
        GroupUses { bodies: vec![], reads: reads.to_vec(), writes: writes.to_vec() }
    }

    #[test]
    fn readers_of_a_map_depend_on_its_writers() {
        let report = uses(&[2], &[]);
        let counts = uses(&[1], &[2]);
        let (there, back) = (uses(&[0], &[1]), uses(&[1], &[0]));
        assert_eq!(dependencies(&[report, counts, there, back], 3), [0b1111, 0b1110, 0b1100, 0b1100]);
    }
}
