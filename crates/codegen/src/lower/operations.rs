//! The operations of lowering that built-ins, strings and arithmetic use. They get these and not the state of the body.

use super::abi::Machine;
use super::body::Body;
use super::place::{Mark, Place};
use super::prologue::Pro;
use super::space::{self, Space};
use crate::Options;
use crate::ir::build::Builder;
use crate::ir::{Bin, BlockId, Cmp, Operand, VReg, Width};
use lang::Span;
use lang::hir::{Environment, Expr, Hook, Type};
use wire::CounterKind;

/// Values of expressions, memory, and control flow.
pub(super) trait Operations: Sized {
    /// The instructions of the current function.
    fn b(&mut self) -> &mut Builder;
    fn options(&self) -> &Options;
    /// Size of a type in bytes.
    fn size(&mut self, ty: &Type) -> u32;
    /// Whether values of a type are sign-extended in registers.
    fn signed(&self, ty: &Type) -> bool;
    /// Width of a scalar in memory.
    fn width(&mut self, ty: &Type) -> Width;
    /// The processor that the program is for.
    fn machine(&self) -> &'static Machine;
    /// Whether the context of the program holds registers.
    fn has_registers(&self) -> bool;
    /// The address of the context as a number.
    fn context_address(&mut self) -> VReg;
    /// The low eight bytes of a vector register.
    fn vector(&mut self, number: u32) -> VReg;
    /// The memory in which an address is.
    fn space(&self, base: &Expr) -> Space;
    /// Whether the program runs in the kernel's code, and not in that of a process.
    fn is_in_kernel(&self) -> bool;
    /// Largest size of a string that is read, in bytes.
    fn max_strlen(&self) -> u32;
    /// Offset of constant data in the data section.
    fn data(&mut self, bytes: &[u8]) -> u32;
    /// A value that the prologue computes.
    fn pro(&mut self, pro: Pro) -> VReg;
    /// A word of the control cell.
    fn control_word(&mut self, offset: u32) -> VReg;
    /// `tgid << 32 | tid` in the initial pid namespace.
    fn host_thread(&mut self) -> VReg;
    /// Pushes an event of the kernel onto the thread's stack of calls; returns its start.
    fn begin_event(&mut self, name: Operand) -> VReg;
    /// Removes that event.
    fn end_event(&mut self);
    /// Address of the current record of a batch.
    fn record_address(&mut self) -> VReg;
    /// The value of a scalar.
    fn scalar(&mut self, expr: &Expr) -> Operand;
    /// The location of a value that is not a scalar.
    fn place(&mut self, expr: &Expr) -> Place;
    /// Stores a value in its memory format.
    fn store_value(&mut self, expr: &Expr, to: Place);
    /// Reserves memory until [`Operations::release`].
    fn temp(&mut self, bytes: u32) -> Place;
    fn mark(&mut self) -> Mark;
    fn release(&mut self, mark: Mark);
    /// The address of a location.
    fn pointer(&mut self, place: Place) -> VReg;
    fn load(&mut self, place: Place, width: Width, signed: bool) -> VReg;
    fn store(&mut self, place: Place, width: Width, value: impl Into<Operand>);
    fn zero(&mut self, place: Place, bytes: u32);
    fn copy_by_helper(&mut self, to: Place, from: VReg, bytes: u32);
    /// Jumps to `different` if the bytes at two locations differ.
    fn compare_memory(&mut self, a: Place, b: Place, bytes: u32, different: BlockId);
    /// Increments a counter.
    fn count(&mut self, kind: CounterKind);
    /// Increments a counter if `lhs cmp rhs` holds.
    fn count_if(&mut self, cmp: Cmp, lhs: VReg, rhs: i64, kind: CounterKind);
    /// Attributes the instructions of `f` to a source range.
    fn at<T>(&mut self, span: Span, f: impl FnOnce(&mut Self) -> T) -> T;

    /// Jumps to `to` if `lhs cmp rhs` holds, otherwise continues.
    fn go_on_unless(&mut self, cmp: Cmp, lhs: VReg, rhs: impl Into<Operand>, to: BlockId) {
        let next = self.b().block();
        self.b().branch(cmp, lhs, rhs, to, next);
        self.b().switch_to(next);
    }

    /// Runs `f` with 0, 1, ... below `count`, as a loop that the verifier can bound.
    fn counted_loop(&mut self, count: u32, f: impl FnOnce(&mut Self, VReg)) {
        let [head, inside, after] = std::array::from_fn(|_| self.b().block());
        let index = self.b().copy(0);
        self.b().fall_into(head);
        self.b().branch(Cmp::Ult, index, i64::from(count), inside, after);
        self.b().switch_to(inside);
        f(self, index);
        self.b().update(Bin::Add, index, 1);
        self.b().jump(head);
        self.b().switch_to(after);
    }
}

impl Operations for Body<'_, '_> {
    fn b(&mut self) -> &mut Builder {
        Body::b(self)
    }

    fn begin_event(&mut self, name: Operand) -> VReg {
        Body::begin_event(self, name)
    }

    fn end_event(&mut self) {
        Body::end_event(self);
    }

    fn record_address(&mut self) -> VReg {
        Body::record_address(self)
    }

    fn options(&self) -> &Options {
        self.cx.options
    }

    fn size(&mut self, ty: &Type) -> u32 {
        self.cx.size(ty)
    }

    fn signed(&self, ty: &Type) -> bool {
        Body::signed(self, ty)
    }

    fn width(&mut self, ty: &Type) -> Width {
        Body::width(self, ty)
    }

    fn machine(&self) -> &'static Machine {
        Body::machine(self)
    }

    fn has_registers(&self) -> bool {
        self.probe.attach.environment().is_some_and(Environment::has_registers)
    }

    fn context_address(&mut self) -> VReg {
        Body::context_address(self)
    }

    fn vector(&mut self, number: u32) -> VReg {
        Body::vector(self, number)
    }

    fn space(&self, base: &Expr) -> Space {
        space::space(base, self.probe.attach.hook(), self.cx.runs_in_process())
    }

    fn is_in_kernel(&self) -> bool {
        self.probe.attach.hook().is_some_and(Hook::is_in_kernel)
    }

    fn max_strlen(&self) -> u32 {
        self.cx.program.config.max_strlen
    }

    fn data(&mut self, bytes: &[u8]) -> u32 {
        self.cx.data(bytes)
    }

    fn pro(&mut self, pro: Pro) -> VReg {
        Body::pro(self, pro)
    }

    fn control_word(&mut self, offset: u32) -> VReg {
        Body::control_word(self, offset)
    }

    fn host_thread(&mut self) -> VReg {
        Body::host_thread(self)
    }

    fn scalar(&mut self, expr: &Expr) -> Operand {
        Body::scalar(self, expr)
    }

    fn place(&mut self, expr: &Expr) -> Place {
        Body::place(self, expr)
    }

    fn store_value(&mut self, expr: &Expr, to: Place) {
        Body::store_value(self, expr, to);
    }

    fn temp(&mut self, bytes: u32) -> Place {
        Body::temp(self, bytes)
    }

    fn mark(&mut self) -> Mark {
        Body::mark(self)
    }

    fn release(&mut self, mark: Mark) {
        Body::release(self, mark);
    }

    fn pointer(&mut self, place: Place) -> VReg {
        Body::pointer(self, place)
    }

    fn load(&mut self, place: Place, width: Width, signed: bool) -> VReg {
        Body::load(self, place, width, signed)
    }

    fn store(&mut self, place: Place, width: Width, value: impl Into<Operand>) {
        Body::store(self, place, width, value);
    }

    fn zero(&mut self, place: Place, bytes: u32) {
        Body::zero(self, place, bytes);
    }

    fn copy_by_helper(&mut self, to: Place, from: VReg, bytes: u32) {
        Body::copy_by_helper(self, to, from, bytes);
    }

    fn compare_memory(&mut self, a: Place, b: Place, bytes: u32, different: BlockId) {
        Body::compare_memory(self, a, b, bytes, different);
    }

    fn count(&mut self, kind: CounterKind) {
        Body::count(self, kind);
    }

    fn count_if(&mut self, cmp: Cmp, lhs: VReg, rhs: i64, kind: CounterKind) {
        Body::count_if(self, cmp, lhs, rhs, kind);
    }

    fn at<T>(&mut self, span: Span, f: impl FnOnce(&mut Self) -> T) -> T {
        Body::at(self, span, f)
    }
}
