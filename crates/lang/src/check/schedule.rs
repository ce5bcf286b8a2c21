//! The order in which bodies are checked: bodies that assign to a map come before bodies that read it. Most bodies are then
//! checked once, independent of their order in the script.
//!
//! ```text
//! END { print(@live[1].bytes) }                      second
//! cuda:alloc { @live[pid] = (bytes = args.bytes) }   first, in each of its ways
//! ```

use rustc_hash::FxHashMap;

use crate::check::{Body, Checker};
use crate::source::span::Span;
use crate::syntax::ast::{Expr, ExprKind, Name, Stmt, StmtKind};
use crate::syntax::visit::look;

/// Groups at most, that is what is written as one: whoever writes more can wait for a round more.
const MOST: usize = u128::BITS as usize;

/// How bodies are gone through.
#[derive(Copy, Clone, PartialEq, Eq)]
pub(super) enum Order {
    /// As said above.
    Maps,
    /// From the top.
    Text,
}

/// What bodies that were written as one do with maps, by the numbers of these.
struct Uses {
    bodies: Vec<usize>,
    looks_at: Vec<usize>,
    says: Vec<usize>,
}

/// Indices of bodies that follow from each other, in the order in which they are best checked. Maps get their numbers in the order of
/// the script.
pub(super) fn knots(checker: &mut Checker, bodies: &[Body]) -> Vec<Vec<usize>> {
    let uses = uses(checker, bodies);
    if uses.len() > MOST {
        return vec![(0..bodies.len()).collect()];
    }
    // Dependence is transitive: the set of a body contains the sets of the bodies it depends on.
    let follows = follows(&uses, checker.maps.len());
    let mut order: Vec<(u128, Uses)> = follows.into_iter().zip(uses).collect();
    order.sort_by_key(|(follows, _)| (follows.count_ones(), *follows));
    let knot = |knot: &[(u128, Uses)]| {
        let mut bodies: Vec<usize> = knot.iter().flat_map(|(_, uses)| &uses.bodies).copied().collect();
        bodies.sort_unstable();
        bodies
    };
    order.chunk_by(|a, b| a.0 == b.0).map(knot).collect()
}

/// By group: from which ones it follows, in however many steps; itself among them.
fn follows(uses: &[Uses], maps: usize) -> Vec<u128> {
    let mut says = vec![0u128; maps];
    for (at, uses) in uses.iter().enumerate() {
        uses.says.iter().for_each(|map| says[*map] |= 1 << at);
    }
    let of =
        |(at, uses): (usize, &Uses)| uses.looks_at.iter().fold(1 << at, |groups, map| groups | says[*map]);
    let mut follows: Vec<u128> = uses.iter().enumerate().map(of).collect();
    for through in 0..uses.len() {
        let more = follows[through];
        follows.iter_mut().filter(|groups| **groups >> through & 1 != 0).for_each(|groups| *groups |= more);
    }
    follows
}

/// By group, in the order of the script.
fn uses(checker: &mut Checker, bodies: &[Body]) -> Vec<Uses> {
    let mut groups: Vec<Uses> = Vec::new();
    let mut known: FxHashMap<Span, usize> = FxHashMap::default();
    for (at, body) in bodies.iter().enumerate() {
        let span = body.clause.clause.body.span;
        if !body.first {
            groups[known[&span]].bodies.push(at);
            continue;
        }
        known.insert(span, groups.len());
        let mut uses = Uses { bodies: vec![at], looks_at: Vec::new(), says: Vec::new() };
        look::clause(body.clause.clause, &mut Finder { checker, uses: &mut uses });
        groups.push(uses);
    }
    groups
}

struct Finder<'f, 'c, 'a> {
    checker: &'c mut Checker<'a>,
    uses: &'f mut Uses,
}

impl look::Visit for Finder<'_, '_, '_> {
    fn before_expr(&mut self, e: &Expr) {
        match &e.kind {
            ExprKind::Map { name, .. } => self.looks_at(name, e.span),
            ExprKind::IncDec { target, .. } => {
                if let ExprKind::Map { name, .. } = &target.kind {
                    let map = self.number(name, target.span);
                    add(&mut self.uses.says, map);
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
        self.looks_at(&name.node, name.span);
    }
}

impl Finder<'_, '_, '_> {
    fn target(&mut self, target: &Expr) {
        match &target.kind {
            ExprKind::Map { name, keys } => {
                let map = self.number(name, target.span);
                add(&mut self.uses.says, map);
                keys.iter().flatten().for_each(|key| look::expr(key, self));
            }
            _ => look::expr(target, self),
        }
    }

    fn looks_at(&mut self, name: &str, span: Span) {
        let map = self.number(name, span);
        add(&mut self.uses.looks_at, map);
    }

    fn number(&mut self, name: &str, span: Span) -> usize {
        self.checker.map_id(name, span).0 as usize
    }
}

/// Each once; they are few.
fn add(list: &mut Vec<usize>, map: usize) {
    if !list.contains(&map) {
        list.push(map);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uses(looks_at: &[usize], says: &[usize]) -> Uses {
        Uses { bodies: vec![], looks_at: looks_at.to_vec(), says: says.to_vec() }
    }

    #[test]
    fn bodies_follow_from_those_who_say_what_their_maps_hold() {
        let report = uses(&[2], &[]);
        let counts = uses(&[1], &[2]);
        let (there, back) = (uses(&[0], &[1]), uses(&[1], &[0]));
        assert_eq!(follows(&[report, counts, there, back], 3), [0b1111, 0b1110, 0b1100, 0b1100]);
    }
}
