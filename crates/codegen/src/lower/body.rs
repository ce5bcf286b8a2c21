//! The state of lowering one side of one program, and its prologue: values that the body needs throughout (cookie,
//! thread, scratch cell ...) are computed once, in the earliest stage that uses them.
//!
//! ```text
//! guard:      pid filter, exit test
//! predicate:  what it needs, then its test
//! body:       what else it needs, the statements
//! ```
//!
//! Inside a callback of `bpf_loop` the same values are read from the frame, a stack slot of the program whose address
//! the callback is given.

use super::cookie_layout::CookieLayout;
use super::module::Cx;
use super::place::{Base, Home, Place, Temps};
use super::prologue::{Entry, Pro, PrologueValue, Stage};
use super::{abi, walk};
use crate::ir::build::Builder;
use crate::ir::{BlockId, SlotId, VReg};
use lang::Span;
use lang::hir::{self, Expr, ExprKind, StmtKind};
use std::collections::BTreeMap;

/// A function being written: the program or a callback in it.
pub(super) struct Fun {
    pub b: Builder,
    pub temps: Temps,
    /// Break and continue of the loops around, innermost last.
    pub loops: Vec<(BlockId, BlockId)>,
    /// Where `return` goes.
    pub leave: BlockId,
    /// In a callback: the frame's address.
    pub frame: Option<VReg>,
    counter_key: Option<SlotId>,
}

/// See the module.
pub(super) struct Body<'c, 'p> {
    pub cx: &'c mut Cx<'p>,
    pub probe: &'p hir::Probe,
    /// By case and parameter.
    places: Vec<Vec<Vec<abi::Piece>>>,
    /// The cases of the arm in hand, all if there is none: see [`Body::by_case`].
    pub cases: u64,
    pub cookie: CookieLayout,
    pub entry: Entry,
    pub span: Span,
    pub stage: Stage,
    pub pros: BTreeMap<Pro, PrologueValue>,
    pub fns: Vec<Fun>,
    pub homes: Vec<Home>,
    /// The program's own slot that callbacks see.
    pub frame: Option<SlotId>,
    /// Bytes of the frame in use; the first word says that the body was left.
    pub frame_bytes: u32,
    pub scratch_at: u32,
    pub scratch_max: u32,
    /// Name of the program, and of its callbacks with a number.
    pub symbol: String,
    pub ctx: VReg,
    /// Where a program goes that finds no scratch cell.
    pub without_scratch: BlockId,
    /// Where a program goes whose predicate does not hold.
    pub refused: BlockId,
    /// When the call in hand began, if it has been entered among the tracked ones.
    pub started: Option<VReg>,
    /// In a loop that has others in it: where the rounds are that those may still have.
    pub rounds_left: Option<Place>,
}

/// Offset in the frame of the word that says that `return` or `exit` ran in a callback.
pub(super) const FRAME_LEFT: u32 = 0;

impl Fun {
    pub fn new(mut b: Builder, budget: u32) -> Fun {
        let leave = b.block();
        Fun { b, temps: Temps::new(budget), loops: vec![], leave, frame: None, counter_key: None }
    }
}

impl<'c, 'p> Body<'c, 'p> {
    /// Starts a program's first side.
    pub fn new(cx: &'c mut Cx<'p>, probe: &'p hir::Probe, mut b: Builder, symbol: String) -> Body<'c, 'p> {
        let places = match &probe.attach {
            hir::Attach::Tracepoint { offsets, .. } | hir::Attach::RawTracepoint { offsets, .. } => {
                vec![offsets.iter().map(|&offset| vec![abi::Piece::Reg(offset as i16)]).collect()]
            }
            _ => cx.places(probe),
        };
        let ctx = b.ctx();
        let fun = Fun::new(b, cx.share.program);
        Body {
            cx,
            probe,
            places,
            cases: u64::MAX,
            cookie: CookieLayout::default(),
            entry: Entry::Direct { shift: 0 },
            span: probe.span,
            stage: Stage::Guard,
            pros: BTreeMap::new(),
            fns: vec![fun],
            homes: vec![],
            frame: None,
            frame_bytes: 8,
            scratch_at: 0,
            scratch_max: 0,
            symbol,
            ctx,
            without_scratch: BlockId(0),
            refused: BlockId(0),
            started: None,
            rounds_left: None,
        }
    }

    /// The function in hand.
    pub fn fun(&mut self) -> &mut Fun {
        self.fns.last_mut().expect("the program itself")
    }

    /// Its builder.
    pub fn b(&mut self) -> &mut Builder {
        &mut self.fun().b
    }

    /// Where a parameter lies in the cases in hand.
    pub fn places_of(&self, param: u32) -> &[abi::Piece] {
        &self.places[self.cases.trailing_zeros() as usize][param as usize]
    }

    /// In the program itself, not in a callback.
    pub fn in_program(&self) -> bool {
        self.fns.len() == 1
    }

    /// Runs `f` with another span.
    pub fn at<T>(&mut self, span: Span, f: impl FnOnce(&mut Self) -> T) -> T {
        let outer = std::mem::replace(&mut self.span, span);
        self.b().set_span(span);
        let result = f(self);
        self.span = outer;
        self.b().set_span(outer);
        result
    }

    /// Forgets the prologue values and variables of the side before.
    pub fn new_side(&mut self, entry: Entry) {
        self.pros.clear();
        self.homes.clear();
        self.entry = entry;
        self.stage = Stage::Guard;
        self.frame = None;
        self.frame_bytes = 8;
        self.started = None;
        let reg = self.ctx;
        self.pros.insert(Pro::Ctx, PrologueValue { reg, stage: Stage::Guard, given: true, frame: None });
    }

    /// The register with a prologue value.
    pub fn pro(&mut self, pro: Pro) -> VReg {
        if !self.pros.contains_key(&pro) {
            let reg = self.fns[0].b.vreg();
            self.pros.insert(pro, PrologueValue { reg, stage: self.stage, given: false, frame: None });
        }
        if self.in_program() {
            return self.pros[&pro].reg;
        }
        let bytes = self.frame_bytes;
        let made = self.pros.get_mut(&pro).expect("inserted above");
        let offset = *made.frame.get_or_insert(bytes);
        self.frame_bytes = bytes.max(offset + 8);
        self.load(Place { base: Base::Frame, off: offset as i32 }, crate::ir::Width::B64, false)
    }

    /// Says that `reg` holds a prologue value already.
    pub fn give(&mut self, pro: Pro, reg: VReg) {
        self.pros.insert(pro, PrologueValue { reg, stage: Stage::Guard, given: true, frame: None });
    }

    /// The stack slot for keys of the counters' map.
    pub fn counter_slot(&mut self) -> SlotId {
        let fun = self.fun();
        match fun.counter_key {
            Some(slot) => slot,
            None => {
                let slot = fun.b.func_mut().slot(4, 4);
                *fun.counter_key.insert(slot)
            }
        }
    }

    /// Whether user stacks are walked in the probe's body.
    pub fn walks_stacks(&self) -> bool {
        let mut walks = false;
        walk::each_of(self.probe, &mut |e| walks |= self.is_walk(e));
        walks
    }

    /// Whether a stack is walked in an expression.
    pub fn has_walk(&self, expr: &Expr) -> bool {
        walk::any(expr, &mut |e| self.is_walk(e))
    }

    fn is_walk(&self, e: &Expr) -> bool {
        self.cx.walks(match &e.kind {
            ExprKind::Stack => matches!(&e.ty, hir::Type::Stack { user: true, .. }),
            ExprKind::StackLen { user, .. } => *user,
            _ => false,
        })
    }

    /// Whether the probe's body has loops that become callbacks.
    pub fn has_loops(&self) -> bool {
        walk::any_stmt(&self.probe.body, &mut |stmt| match &stmt.kind {
            StmtKind::ForMap { .. } | StmtKind::While { .. } => true,
            StmtKind::ForRange { start, end, body, .. } => {
                super::loop_shape::short_range(start, end, body).is_none()
            }
            _ => false,
        })
    }
}
