//! Operators of PyTorch in probes that run in a thread of the program: the agent keeps a table of the operators in which threads are now, whose
//! address it passes on once.
//!
//! ```text
//! cuda:alloc { @[torch_op] = sum(args.bytes) }
//!
//! gpu:__operator_table { @__torch_table[pid] = corr }
//! cuda:alloc { @[{ $name = word of this thread in @__torch_table[pid]; $name == 0 ? "" : str($name) }] = sum(args.bytes) }
//! ```
//!
//! With `forward` a frame of Python is kept for each operator, too, by the operator's id: work of the backward pass has the id of the forward
//! operator that it belongs to.
//!
//! ```text
//! cuda:alloc { @[pyline(forward)] = sum(args.bytes) }
//!
//! gpu:__forward { @__torch_pyline[pid, corr] = pyline(own) }
//! cuda:alloc { @[{ $id = word of this thread; has_key(@__torch_pyline, (pid, $id)) ? @__torch_pyline[pid, $id] : pyline(own) }] = ... }
//! ```
//!
//! Records of a GPU have the operator and the id of their launch themselves: [`super::gpu`], [`super::gpu_launches`].

use std::collections::BTreeMap;

use cuda::gpu::{FORWARD, OPERATOR_TABLE, operator_table as table};

use crate::expand::const_eval;
use crate::expand::gpu::PROVIDER;
use crate::expand::template::{RenameVariables, added, expression, hide_calls};
use crate::source::span::Span;
use crate::syntax::ast::{Clause, Expr, ExprKind, Item};
use crate::syntax::visit::change::{self as visit, Visit};

/// Forward operators whose work in the backward pass has not come yet.
const OPERATORS: u32 = 65_536;
/// Processes with PyTorch.
const PROCESSES: u32 = 4096;
/// The built-in that has no frame of no library: a module's is that of a library.
const MODULE: &str = "torch_module";
/// The argument of a frame that asks for that of the forward operator.
const OF_FORWARD: &str = "forward";

/// The frames of forward operators, and the table, that the clauses of a script use.
#[derive(Default)]
pub(super) struct OperatorUse {
    /// `pyline`, `pyfunc` and `torch_module`, with a position.
    frames: BTreeMap<String, Span>,
    table: Option<Span>,
}

impl OperatorUse {
    /// Replaces operators in a clause whose probes run in threads of the program.
    pub(super) fn replace(&mut self, clause: &mut Clause) {
        visit::clause(clause, &mut Replace { used: self });
    }

    /// Names the map of the frames at forward operators.
    pub(super) fn map_of_frames(&mut self, function: &str, span: Span) -> String {
        self.frames.insert(function.to_owned(), span);
        format!("@__torch_{function}")
    }

    /// The clauses that keep what was used.
    pub(super) fn clauses(&self) -> Vec<Item> {
        let frames = self.frames.iter().map(|(function, span)| {
            let (map, kind) = (format!("@__torch_{function}"), FORWARD.name);
            let text = format!(
                "let {map} = lruhash({OPERATORS}); {PROVIDER}:{kind} {{ {map}[pid, corr] = {}; }}",
                of_thread_itself(function)
            );
            added(&text, *span)
        });
        let table = self.table.map(|span| {
            let kind = OPERATOR_TABLE.name;
            let text = format!(
                "let @__torch_table = lruhash({PROCESSES}); {PROVIDER}:{kind} {{ @__torch_table[pid] = corr; }}"
            );
            added(&text, span)
        });
        frames.chain(table).flatten().collect()
    }
}

/// `pyline` for `pyline(forward)`.
pub(super) fn forward_frame(e: &Expr) -> Option<&str> {
    let ExprKind::Call { name, args } = &e.kind else { return None };
    let [Expr { kind: ExprKind::Ident(word), .. }] = &args[..] else { return None };
    let is_frame = ["pyline", "pyfunc", MODULE].contains(&name.node.as_str());
    (is_frame && word == OF_FORWARD).then_some(&name.node)
}

/// The frame that a thread executes itself, for `function(forward)`.
pub(super) fn of_thread_itself(function: &str) -> String {
    if function == MODULE { function.to_owned() } else { format!("{function}(own)") }
}

/// Replaces operators, but not where an option of the script excludes them: each operator of the program is slower with them.
struct Replace<'u> {
    used: &'u mut OperatorUse,
}

impl Visit for Replace<'_> {
    fn enters(&self, condition: &Expr) -> bool {
        const_eval::truth(condition) != Some(false)
    }

    fn expr(&mut self, e: &mut Expr) {
        let text = match &e.kind {
            ExprKind::Ident(name) if name == "torch_op" => {
                of_thread(table::NAME, "$word == 0 ? \"\" : str((uint8 *)$word)")
            }
            ExprKind::Ident(name) if name == "torch_backward" => of_thread(table::FORWARD, "$word != 0"),
            _ => match forward_frame(e).map(str::to_owned) {
                Some(frame) => {
                    let map = self.used.map_of_frames(&frame, e.span);
                    let own = of_thread_itself(&frame);
                    let value = format!("has_key({map}, (pid, $word)) ? {map}[pid, $word] : {own}");
                    of_thread(table::FORWARD, &value)
                }
                None => return,
            },
        };
        self.used.table.get_or_insert(e.span);
        let mut value = expression(&text, e.span);
        visit::expr(&mut value, &mut RenameVariables { suffix: "torch".into() });
        hide_calls(&mut value);
        *e = value;
    }
}

/// A value that is made of `$word`, a word of this thread in the table; 0 without one.
fn of_thread(offset: u64, value: &str) -> String {
    let (bits, factor, places, size, tries) =
        (table::BITS, table::FACTOR, table::PLACES, table::PLACE, table::TRIES);
    let owner = table::THREAD;
    format!(
        "{{ let $word: uint64 = 0; let $table: uint64 = @__torch_table[pid]; \
           if ($table != 0) {{ \
             let $thread: uint64 = __thread_pointer(0) >> {bits}; \
             let $first: uint64 = ($thread & 0xffffffff) * {factor} & 0xffffffff; \
             let $tries: uint64 = 0; \
             while ($tries < {tries}) {{ \
               let $place: uint64 = $table + ($first + $tries) % {places} * {size}; \
               let $owner: uint64 = *(uint64 *)($place + {owner}); \
               if ($owner == $thread) {{ $word = *(uint64 *)($place + {offset}); break; }} \
               if ($owner == 0) {{ break; }} \
               $tries++; \
             }} \
           }} \
           {value} }}"
    )
}
