//! The state of lowering one program, the entry or the return side of a clause, and its prologue. Values that the whole body uses (the attach
//! cookie, the thread, the address of the scratch memory and others) are computed once, in the earliest of three stages that needs them:
//!
//! ```text
//! guard:      is the process traced, and has the script not ended yet?
//! predicate:  the values that the predicate needs first, then its test
//! body:       the values that only the body needs, then its statements
//! ```
//!
//! A callback of `bpf_loop` is another function and has none of these registers. The program stores the values in a stack slot, the frame, and
//! passes its address to the callback.

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

/// Blocks to which statements of a loop's body jump.
pub(super) struct LoopExits {
    /// Target of `break`.
    pub stop: BlockId,
    /// Target of `continue`.
    pub next: BlockId,
}

/// A function under construction: the program or one of its callbacks.
pub(super) struct Fun {
    pub b: Builder,
    pub temps: Temps,
    /// The enclosing loops, innermost last.
    pub loops: Vec<LoopExits>,
    /// Target of `return`.
    pub leave: BlockId,
    /// Address of the frame, in a callback.
    pub frame: Option<VReg>,
    counter_key: Option<SlotId>,
    /// The argument of the callbacks of walks of stacks, and the pages that walks know.
    walk_argument: Option<SlotId>,
    walk_memory: Option<SlotId>,
}

/// State of lowering a program; see the module documentation.
pub(super) struct Body<'c, 'p> {
    pub cx: &'c mut Cx<'p>,
    pub probe: &'p hir::Probe,
    /// Locations by case and parameter.
    places: Vec<Vec<Vec<abi::Piece>>>,
    /// Bit set of the cases of the current arm; all cases outside of arms: see [`Body::by_case`].
    pub cases: u64,
    pub cookie: CookieLayout,
    pub entry: Entry,
    pub span: Span,
    pub stage: Stage,
    pub pros: BTreeMap<Pro, PrologueValue>,
    pub fns: Vec<Fun>,
    pub homes: Vec<Home>,
    /// Stack slot of the program that callbacks access.
    pub frame: Option<SlotId>,
    /// Used bytes of the frame; the first word is set when the body has been left.
    pub frame_bytes: u32,
    pub scratch_at: u32,
    pub scratch_max: u32,
    /// Symbol of the program; callbacks append a number.
    pub symbol: String,
    pub ctx: VReg,
    /// Target if no scratch cell is free.
    pub without_scratch: BlockId,
    /// Target if the predicate does not hold.
    pub refused: BlockId,
    /// Start time of the current call, if it is on the thread's stack of calls.
    pub started: Option<VReg>,
    /// The loop over the records of a batch, if the body is in one.
    pub record: Option<RecordLoop>,
    /// In a loop that contains loops: location of the number of iterations that these have left.
    pub iterations_left: Option<Place>,
}

/// Offset in the frame of the word that is set if `return` or `exit` ran in a callback.
pub(super) const FRAME_LEFT: u32 = 0;

/// Value of the word: the clause has been left.
pub(super) const LEFT_CLAUSE: i64 = 1;

/// Value of the word: the work on the current record has ended, by `return` in a loop.
pub(super) const LEFT_RECORD: i64 = 2;

/// The iteration over the records of a batch.
#[derive(Copy, Clone)]
pub(super) struct RecordLoop {
    /// Number of the current function, a callback, among [`Body::fns`].
    pub level: usize,
    /// Index of the record, in that function.
    pub index: VReg,
    /// Block that goes on with the next record.
    pub next: BlockId,
}

impl Fun {
    pub(super) fn new(mut b: Builder, budget: u32) -> Fun {
        let leave = b.block();
        Fun {
            b,
            temps: Temps::new(budget),
            loops: vec![],
            leave,
            frame: None,
            counter_key: None,
            walk_argument: None,
            walk_memory: None,
        }
    }

    /// The slot of a kind of which a function needs one, however often.
    fn only_slot(&mut self, kind: impl Fn(&mut Fun) -> &mut Option<SlotId>, bytes: u32) -> SlotId {
        match *kind(self) {
            Some(slot) => slot,
            None => {
                let slot = self.b.func_mut().slot(bytes, bytes.min(8));
                *kind(self).insert(slot)
            }
        }
    }
}

impl<'c, 'p> Body<'c, 'p> {
    /// Starts the first side of a program.
    pub(super) fn new(
        cx: &'c mut Cx<'p>,
        probe: &'p hir::Probe,
        mut b: Builder,
        symbol: String,
    ) -> Body<'c, 'p> {
        let places = match (&probe.attach, &probe.signature) {
            (hir::Attach::Event(_), Some(record)) => {
                vec![record.offsets.iter().map(|&offset| vec![abi::Piece::Reg(offset as i16)]).collect()]
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
            record: None,
            iterations_left: None,
        }
    }

    /// The current function.
    pub(super) fn fun(&mut self) -> &mut Fun {
        self.fns.last_mut().expect("the program itself")
    }

    /// Builder of the current function.
    pub(super) fn b(&mut self) -> &mut Builder {
        &mut self.fun().b
    }

    /// Location of a parameter in the current cases.
    pub(super) fn places_of(&self, param: u32) -> &[abi::Piece] {
        &self.places[self.cases.trailing_zeros() as usize][param as usize]
    }

    /// Whether the current function is the program itself, not a callback.
    pub(super) fn in_program(&self) -> bool {
        self.fns.len() == 1
    }

    /// Runs `f` with another span.
    pub(super) fn at<T>(&mut self, span: Span, f: impl FnOnce(&mut Self) -> T) -> T {
        let outer = std::mem::replace(&mut self.span, span);
        self.b().set_span(span);
        let result = f(self);
        self.span = outer;
        self.b().set_span(outer);
        result
    }

    /// Drops the prologue values and variables of the previous side.
    pub(super) fn new_side(&mut self, entry: Entry) {
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

    /// The register of a prologue value.
    pub(super) fn pro(&mut self, pro: Pro) -> VReg {
        if !self.pros.contains_key(&pro) {
            let reg = self.fns[0].b.vreg();
            self.pros.insert(pro, PrologueValue { reg, stage: self.stage, given: false, frame: None });
        }
        if self.in_program() {
            return self.pros[&pro].reg;
        }
        let bytes = self.frame_bytes;
        let value = self.pros.get_mut(&pro).expect("inserted above");
        let offset = *value.frame.get_or_insert(bytes);
        self.frame_bytes = bytes.max(offset + 8);
        self.load(Place { base: Base::Frame, off: offset as i32 }, crate::ir::Width::B64, false)
    }

    /// Registers `reg` as a prologue value that is already computed.
    pub(super) fn give(&mut self, pro: Pro, reg: VReg) {
        self.pros.insert(pro, PrologueValue { reg, stage: Stage::Guard, given: true, frame: None });
    }

    /// The stack slot for keys of the counters' map.
    pub(super) fn counter_slot(&mut self) -> SlotId {
        self.fun().only_slot(|fun| &mut fun.counter_key, 4)
    }

    /// The stack slot for the argument of callbacks of walks: one or two words.
    pub(super) fn walk_argument_slot(&mut self, words: u32) -> SlotId {
        self.fun().only_slot(|fun| &mut fun.walk_argument, 8 * words)
    }

    /// The stack slot for what walks know of the memory that they read.
    pub(super) fn walk_memory_slot(&mut self, bytes: u32) -> SlotId {
        self.fun().only_slot(|fun| &mut fun.walk_memory, bytes)
    }

    /// Whether the body of the probe walks user stacks.
    pub(super) fn walks_stacks(&self) -> bool {
        let mut walks = false;
        walk::each_of(self.probe, &mut |e| walks |= self.is_walk(e));
        walks
    }

    /// Whether an expression walks a stack.
    pub(super) fn has_walk(&self, expr: &Expr) -> bool {
        walk::any(expr, &mut |e| self.is_walk(e))
    }

    fn is_walk(&self, e: &Expr) -> bool {
        self.cx.walks(match &e.kind {
            ExprKind::Stack => matches!(&e.ty, hir::Type::Stack { user: true, .. }),
            ExprKind::StackLen { user, .. } => *user,
            _ => false,
        })
    }

    /// Whether the body of the probe has loops that become callbacks.
    pub(super) fn has_loops(&self) -> bool {
        self.probe.records.is_some()
            || walk::any_stmt(&self.probe.body, &mut |stmt| match &stmt.kind {
                StmtKind::ForMap { .. } | StmtKind::While { .. } => true,
                StmtKind::ForRange { start, end, body, .. } => {
                    super::loop_shape::short_range(start, end, body).is_none()
                }
                _ => false,
            })
    }
}
