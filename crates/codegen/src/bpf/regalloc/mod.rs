//! Assigns each virtual register a machine register or a stack slot, and each stack slot an offset.
//!
//! ```text
//! selected code -> live ranges -> linear scan -> (spill code, and again) -> superfluous moves removed -> frame
//! ```
//!
//! A spilled register is on the stack; each use loads it into a short-lived register. [`check`] checks the result value by value
//! in debug builds and tests.

pub mod check;
mod frame;
mod linear_scan;
mod liveness;
mod move_elim;
#[cfg(test)]
mod random_tests;
mod spill;

pub use frame::{Frame, MAX_STACK};

use crate::bpf::mir::{Function, R};
use linear_scan::Assignment;
use liveness::Liveness;

/// A function whose registers are all machine registers.
#[derive(Clone, Debug)]
pub struct AllocatedFunction {
    /// Code.
    pub function: Function,
    /// Layout of its stack frame.
    pub frame: Frame,
}

/// Assigns machine registers and stack slots.
pub fn allocate(selected: Function) -> AllocatedFunction {
    #[cfg(debug_assertions)]
    let original = selected.clone();
    let mut conflicts = frame::Conflicts::of(&selected);
    let vregs = selected.vregs;
    let mut liveness = Liveness::of(&selected);
    let mut function = selected;
    let assignment = loop {
        let assignment = linear_scan::assign(&function, &liveness, vregs);
        if assignment.spilled.is_empty() {
            break assignment;
        }
        spill::spill(&mut function, &assignment.spilled);
        liveness.forget(&assignment.spilled);
    };
    apply(&mut function, &assignment);
    move_elim::remove_superfluous_moves(&mut function);
    #[cfg(debug_assertions)]
    if let Err(error) = check::check(&original, &function) {
        panic!("bug: register allocation: {error}");
    }
    conflicts.add_spills(&function);
    let frame = Frame::layout(&conflicts, &function.slots);
    AllocatedFunction { function, frame }
}

fn apply(function: &mut Function, assignment: &Assignment) {
    let mut set = |reg: &mut R, _| {
        if let R::Virt(virt) = *reg {
            *reg = R::Phys(assignment.of(virt));
        }
    };
    for block in &mut function.blocks {
        block.insts.iter_mut().for_each(|placed| placed.inst.rewrite(&mut set));
        block.end.rewrite(&mut set);
    }
}
