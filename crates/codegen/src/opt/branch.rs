//! Simplifies control flow: jumps to jumps, branches with one target, unreachable blocks, and blocks with a single
//! predecessor.

use crate::ir::{Block, BlockId, Func, Term, build};

/// `b0: jump b1; b1: jump b2` becomes `b0: jump b2`.
pub(super) fn branch(func: &mut Func) -> bool {
    let before: Vec<Term> = func.blocks.iter().map(|block| block.term).collect();
    thread(func);
    let mut changed = before.iter().zip(&func.blocks).any(|(old, block)| *old != block.term);
    changed |= merge(func);
    changed | build::drop_unreached(func)
}

/// The final target of a jump to `to`.
fn destination(func: &Func, mut to: BlockId) -> BlockId {
    // A loop of empty blocks has no end: one step per block visits all of it.
    for _ in 0..func.blocks.len() {
        match func.blocks[to.0 as usize] {
            Block { ref ops, term: Term::Jump(next), .. } if ops.is_empty() && next != to && next.0 != 0 => {
                to = next
            }
            _ => break,
        }
    }
    to
}

fn thread(func: &mut Func) {
    let destinations: Vec<BlockId> =
        (0..func.blocks.len()).map(|block| destination(func, BlockId(block as u32))).collect();
    for at in 0..func.blocks.len() {
        let term = &mut func.blocks[at].term;
        term.map_targets(|to| destinations[to.0 as usize]);
        if let Term::Branch { then, otherwise, .. } = *term
            && then == otherwise
        {
            *term = Term::Jump(then);
        }
        if let Term::Jump(to) = func.blocks[at].term
            && let Block { ref ops, term: end @ Term::Return(_), .. } = func.blocks[to.0 as usize]
            && ops.is_empty()
        {
            func.blocks[at].term = end;
        }
    }
}

/// Appends a block to its only predecessor, if that has no other successor.
fn merge(func: &mut Func) -> bool {
    let mut leading = vec![0u32; func.blocks.len()];
    let reached = build::reachable(func);
    for (block, _) in func.blocks.iter().zip(&reached).filter(|(_, reached)| **reached) {
        block.term.successors().for_each(|to| leading[to.0 as usize] += 1);
    }
    let mut changed = false;
    for at in (0..func.blocks.len()).filter(|at| reached[*at]) {
        while let Term::Jump(to) = func.blocks[at].term
            && leading[to.0 as usize] == 1
            && to.0 as usize != at
        {
            let tail = std::mem::replace(&mut func.blocks[to.0 as usize], empty());
            leading[to.0 as usize] = 0;
            let block = &mut func.blocks[at];
            block.ops.extend(tail.ops);
            (block.term, block.span) = (tail.term, tail.span);
            changed = true;
        }
    }
    changed
}

fn empty() -> Block {
    Block { ops: vec![], term: Term::Return(0.into()), span: Default::default() }
}
