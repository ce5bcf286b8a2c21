//! Values that depend on the site that was hit: see `merge`. Constants are in a table, other values after branches.
//!
//! ```text
//! by case { 0, 2: a, 1: b }     branch (0b101 >> case) & 1 == 0, b2, b1;  b1: v = a;  b2: v = b
//! by case { 0: "HtoD", ... }    v = table[case]
//! ```

use super::body::Body;
use super::place::{Place, is_scalar};
use crate::ir::{Bin, BlockId, Cmp, Operand, VReg, Width};
use lang::hir::{Arm, Expr, ExprKind, Type};

/// The arms with a constant value.
struct Constants<'e> {
    /// Bit n is set if the value of case n is constant.
    cases: u64,
    arms: Vec<&'e Arm>,
}

impl<'e> Constants<'e> {
    fn of(arms: &'e [Arm]) -> Constants<'e> {
        let is_constant = |arm: &&Arm| matches!(arm.value.kind, ExprKind::Int(_) | ExprKind::Str(_));
        let arms: Vec<&Arm> = arms.iter().filter(is_constant).collect();
        Constants { cases: arms.iter().fold(0, |cases, arm| cases | arm.cases), arms }
    }
}

impl Body<'_, '_> {
    /// A scalar value by case.
    pub(super) fn scalar_by_case(&mut self, arms: &[Arm]) -> VReg {
        let result = self.b().vreg();
        let ty = &arms[0].value.ty;
        let load = |body: &mut Self, at: VReg| {
            let value = body.load(Place::behind(at), Width::B64, false);
            body.b().set(result, value);
        };
        let set = |body: &mut Self, value: &Expr| {
            let value = body.scalar(value);
            body.b().set(result, value);
        };
        self.by_case(arms, ty, &mut { load }, &mut { set });
        result
    }

    /// Stores an aggregate value by case.
    pub(super) fn store_by_case(&mut self, arms: &[Arm], to: Place) {
        let ty = &arms[0].value.ty;
        let size = self.cx.size(ty);
        let copy = |body: &mut Self, at: VReg| body.copy(to, Place::behind(at), size);
        let store = |body: &mut Self, value: &Expr| body.store_value(value, to);
        self.by_case(arms, ty, &mut { copy }, &mut { store });
    }

    /// Runs `constant` with an address in the table of constants, or `other` with the value of an arm, in the
    /// cases of each.
    fn by_case(
        &mut self,
        arms: &[Arm],
        ty: &Type,
        constant: &mut dyn FnMut(&mut Self, VReg),
        other: &mut dyn FnMut(&mut Self, &Expr),
    ) {
        let constants = Constants::of(arms);
        if constants.arms.len() < 2 {
            let case = self.case();
            return self.each_arm(case, &arms.iter().collect::<Vec<_>>(), other);
        }
        let others: Vec<&Arm> = arms.iter().filter(|arm| arm.cases & constants.cases == 0).collect();
        let [here, next, after] = std::array::from_fn(|_| self.b().block());
        let case = self.case();
        match others.is_empty() {
            true => self.b().jump(here),
            false => self.branch_on_cases(case, constants.cases, here, next),
        }
        self.b().switch_to(here);
        let at = self.table_entry(&constants, ty, case);
        constant(self, at);
        self.b().jump(after);
        if !others.is_empty() {
            self.b().switch_to(next);
            self.each_arm(case, &others, other);
            self.b().jump(after);
        }
        self.b().switch_to(after);
    }

    /// The saved value of each arm, see `entry_return`.
    pub(super) fn entry_value_by_case(
        &mut self,
        arms: &[Arm],
        value: impl Fn(&mut Self, &Expr) -> VReg,
    ) -> VReg {
        let (result, case) = (self.b().vreg(), self.case());
        self.each_arm(case, &arms.iter().collect::<Vec<_>>(), &mut |body, arm| {
            let value = value(body, arm);
            body.b().set(result, value);
        });
        result
    }

    /// Runs `f` with the value of each arm, in code that runs for its cases.
    fn each_arm(&mut self, case: VReg, arms: &[&Arm], f: &mut dyn FnMut(&mut Self, &Expr)) {
        let outer = self.cases;
        let after = self.b().block();
        let (last, others) = arms.split_last().expect("a value for each case");
        for arm in others {
            let [here, next] = std::array::from_fn(|_| self.b().block());
            self.branch_on_cases(case, arm.cases, here, next);
            self.b().switch_to(here);
            self.arm(arm, f);
            self.b().jump(after);
            self.b().switch_to(next);
        }
        self.arm(last, f);
        self.cases = outer;
        self.b().jump(after);
        self.b().switch_to(after);
    }

    fn arm(&mut self, arm: &Arm, f: &mut dyn FnMut(&mut Self, &Expr)) {
        self.cases = arm.cases;
        let mark = self.mark();
        f(self, &arm.value);
        self.release(mark);
    }

    fn branch_on_cases(&mut self, case: VReg, cases: u64, then: BlockId, otherwise: BlockId) {
        let b = self.b();
        if cases.is_power_of_two() {
            return b.branch(Cmp::Eq, case, i64::from(cases.trailing_zeros()), then, otherwise);
        }
        let cases = b.copy(cases.cast_signed());
        let first = b.bin(Bin::Shr, cases, case);
        let holds = b.bin(Bin::And, first, 1);
        b.branch(Cmp::Ne, holds, 0, then, otherwise);
    }

    /// Address of a case's constant in the table: 8 bytes for a scalar, otherwise the value as it is in memory.
    fn table_entry(&mut self, constants: &Constants, ty: &Type, case: VReg) -> VReg {
        // The table has an entry for each value of the case id, so the kernel's verifier accepts all accesses.
        let entries = self.probe.cases.len().next_power_of_two();
        let bytes = if is_scalar(ty) { 8 } else { self.cx.size(ty).next_multiple_of(8) };
        let mut table = vec![0; entries * bytes as usize];
        for arm in &constants.arms {
            let value = self.constant_bytes(&arm.value);
            for case in (0..entries).filter(|&case| arm.cases >> case & 1 == 1) {
                table[case * bytes as usize..][..value.len()].copy_from_slice(&value);
            }
        }
        let offset = self.cx.data(&table);
        let b = self.b();
        let case = b.bin(Bin::And, case, entries as i64 - 1);
        let at = b.bin(Bin::Mul, case, i64::from(bytes));
        let base = b.data_addr(offset);
        b.bin(Bin::Add, base, at)
    }

    fn constant_bytes(&mut self, value: &Expr) -> Vec<u8> {
        match &value.kind {
            ExprKind::Str(text) => text.clone(),
            _ => match self.scalar(value) {
                Operand::Const(word) => word.to_le_bytes().to_vec(),
                Operand::Reg(_) => unreachable!("a literal is a constant"),
            },
        }
    }
}
