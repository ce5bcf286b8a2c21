//! Statements.

use crate::hir::expr::{Expr, VarId};
use crate::hir::map::MapId;
use crate::source::span::Span;
use wire::manifest::{Export, Hidden, Message, Piece};

/// A value of an [`ExprKind::ByCase`].
#[derive(Clone, Debug, PartialEq)]
pub struct Arm {
    /// Bit n: it is that of sites with case n.
    pub cases: u64,
    /// The value, in terms of the signature of these cases.
    pub value: Expr,
}

impl Arm {
    /// One of its cases; what it reads lies at the same places in all.
    pub fn first_case(&self) -> usize {
        self.cases.trailing_zeros() as usize
    }
}

/// A statement.
#[derive(Clone, Debug, PartialEq)]
pub struct Stmt {
    /// What it does.
    pub kind: StmtKind,
    /// Where it was written.
    pub span: Span,
}

/// The kinds of statement.
#[derive(Clone, Debug, PartialEq)]
pub enum StmtKind {
    /// `$x = e;` the types are equal
    SetVar {
        /// Target.
        var: VarId,
        /// Value.
        value: Expr,
    },
    /// `@m[k] = e;` the types are equal; `key` has one expression for each part of the map's key
    SetMap {
        /// Target.
        map: MapId,
        /// Key parts.
        key: Vec<Expr>,
        /// Value.
        value: Expr,
    },
    /// `@m[k] = hist(e);` the function is the map's; `arg` is 64 bits wide, `None` for `count()`
    Aggregate {
        /// Target.
        map: MapId,
        /// Key parts.
        key: Vec<Expr>,
        /// Sample.
        arg: Option<Expr>,
    },
    /// An expression for its effect.
    Expr(Expr),
    /// `if`
    If {
        /// Condition.
        cond: Expr,
        /// When non-zero.
        then: Vec<Stmt>,
        /// When zero.
        otherwise: Vec<Stmt>,
    },
    /// `while`; the run-time limit is `Config::max_loop_iterations`, beyond which the loop ends and a counter tells.
    While {
        /// Condition.
        cond: Expr,
        /// Body.
        body: Vec<Stmt>,
    },
    /// `unroll(n)`
    Unroll {
        /// Copies, 1..=100.
        count: u32,
        /// Body.
        body: Vec<Stmt>,
    },
    /// `for $i : a..b`; both bounds int64, evaluated once
    ForRange {
        /// Loop variable, of type int64.
        var: VarId,
        /// First value.
        start: Expr,
        /// One past the last value.
        end: Expr,
        /// Body.
        body: Vec<Stmt>,
    },
    /// `for ($kv : @m)`; `var` has type `Tuple([key, value])`, key itself a tuple if it has several parts; values of
    /// aggregations arrive summed over CPUs, as in [`ExprKind::MapGet`]
    ForMap {
        /// Loop variable.
        var: VarId,
        /// Map.
        map: MapId,
        /// Body.
        body: Vec<Stmt>,
    },
    /// `break`
    Break,
    /// `continue`
    Continue,
    /// `return`, from the clause; the value is that of a test.
    Return(Option<Expr>),
    /// `exit(code)`: ends the program; the body goes no further.
    Exit {
        /// Exit status.
        code: Expr,
    },
    /// `printf(format, args)`
    Printf {
        /// Parsed format.
        format: Vec<Piece>,
        /// One for each directive.
        args: Vec<Expr>,
    },
    /// `errorf(format, args)`, `cat(format, args)`: the text is not just printed.
    Message {
        /// What becomes of it.
        what: Message,
        /// Parsed format.
        format: Vec<Piece>,
        /// One for each directive.
        args: Vec<Expr>,
    },
    /// `rows(top, "none")`: the lines of `row` that were kept, largest weight first.
    Rows {
        /// Number of rows; 0: all.
        top: u32,
        /// The line where none was kept; empty: none.
        none: Vec<u8>,
    },
    /// `signal(n)`, to what the probe interrupted; a counter tells of those that the kernel did not send.
    Signal {
        /// int64
        number: Expr,
        /// Only to the thread.
        thread: bool,
    },
    /// `print(e)`
    PrintValue(Expr),
    /// `span("name", key = value)` and its like: a record for the sinks of `--export`.
    Export {
        /// Which.
        what: Export,
        /// The name, where it is a literal; else one of `hidden`, or that of the function.
        name: Option<Vec<u8>>,
        /// What the record has without the script's doing.
        hidden: Vec<(Hidden, Expr)>,
        /// What the script adds.
        fields: Vec<(String, Expr)>,
    },
    /// `print(@m[k])` of an aggregation without a single value, such as a histogram
    PrintEntry {
        /// Map.
        map: MapId,
        /// Key parts.
        key: Vec<Expr>,
    },
    /// `print(@m, top, div)`
    PrintMap {
        /// Map.
        map: MapId,
        /// Only so many of the largest; 0: all.
        top: u32,
        /// Values are divided by it; 0 counts as 1.
        div: u32,
    },
    /// `clear(@m)`
    Clear(MapId),
    /// `zero(@m)`
    Zero(MapId),
    /// `time(format)`
    Time(String),
}
