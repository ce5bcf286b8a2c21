//! Values that depend on the site that was hit: see `fuse`.
//!
//! ```text
//! by case { 0, 2: a, 1: b }    branch (0b101 >> case) & 1 == 0, b2, b1;  b1: v = a;  b2: v = b
//! ```

use super::body::Body;
use crate::ir::{Bin, BlockId, Cmp, VReg};
use lang::hir::{Arm, Expr};

impl Body<'_, '_> {
    /// Runs `f` with the value of each arm, where its cases are.
    pub(super) fn by_case(&mut self, arms: &[Arm], f: &mut dyn FnMut(&mut Self, &Expr)) {
        let outer = self.cases;
        let after = self.b().block();
        let case = self.case();
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

    /// The same for scalars: the value of the arm, by what `f` makes of it.
    pub(super) fn scalar_by_case(&mut self, arms: &[Arm], f: impl Fn(&mut Self, &Expr) -> VReg) -> VReg {
        let result = self.b().vreg();
        self.by_case(arms, &mut |body, value| {
            let value = f(body, value);
            body.b().set(result, value);
        });
        result
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
}
