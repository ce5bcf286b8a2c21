//! Statements.

use crate::hir::expr::{Expr, VarId};
use crate::hir::map::MapId;
use crate::source::span::Span;
use wire::manifest::{Export, Hidden, Message, Piece};

/// An alternative of an [`ExprKind::ByCase`].
#[derive(Clone, Debug, PartialEq)]
pub struct Arm {
    /// Bit mask: bit n is set if the arm applies to sites with case n.
    pub cases: u64,
    /// The value, in terms of the signature of these cases.
    pub value: Expr,
}

impl Arm {
    /// The first of the arm's cases; the operands have the same locations in all of them.
    pub fn first_case(&self) -> usize {
        self.cases.trailing_zeros() as usize
    }
}

/// A statement.
#[derive(Clone, Debug, PartialEq)]
pub struct Stmt {
    /// The kind, with the operands.
    pub kind: StmtKind,
    /// The source range.
    pub span: Span,
}

/// The kinds of statement.
#[derive(Clone, Debug, PartialEq)]
pub enum StmtKind {
    /// `$x = e;` the types are equal
    SetVar {
        /// The variable.
        var: VarId,
        /// The value.
        value: Expr,
    },
    /// `@m[k] = e;` the types are equal; `key` has one expression for each part of the map's key
    SetMap {
        /// The map.
        map: MapId,
        /// The parts of the key.
        key: Vec<Expr>,
        /// The value.
        value: Expr,
    },
    /// `@m[k] = hist(e);` the function is the map's; `arg` is 64 bits wide, `None` for `count()`
    Aggregate {
        /// The map.
        map: MapId,
        /// The parts of the key.
        key: Vec<Expr>,
        /// The sample.
        arg: Option<Expr>,
    },
    /// An expression evaluated for its effect.
    Expr(Expr),
    /// `if`
    If {
        /// The condition.
        cond: Expr,
        /// Statements if the condition is non-zero.
        then: Vec<Stmt>,
        /// Statements if the condition is zero.
        otherwise: Vec<Stmt>,
    },
    /// `while`; at run time `Config::max_loop_iterations` limits it: at the limit the loop ends and a counter is
    /// incremented.
    While {
        /// The condition.
        cond: Expr,
        /// The body.
        body: Vec<Stmt>,
    },
    /// `unroll(n)`
    Unroll {
        /// Number of copies, 1..=100.
        count: u32,
        /// The body.
        body: Vec<Stmt>,
    },
    /// `for $i : a..b`; both bounds int64, evaluated once
    ForRange {
        /// Loop variable, of type int64.
        var: VarId,
        /// First value.
        start: Expr,
        /// End of the range, exclusive.
        end: Expr,
        /// The body.
        body: Vec<Stmt>,
    },
    /// `for ($kv : @m)`; `var` has type `Tuple([key, value])`, where the key itself is a tuple if it has several
    /// parts. The values of aggregations are summed over all CPUs, as in [`ExprKind::MapGet`].
    ForMap {
        /// Loop variable.
        var: VarId,
        /// The map.
        map: MapId,
        /// The body.
        body: Vec<Stmt>,
    },
    /// `break`
    Break,
    /// `continue`
    Continue,
    /// `return` from the clause; the value is the result of a test.
    Return(Option<Expr>),
    /// `exit(code)`: ends the program; the rest of the body is skipped.
    Exit {
        /// The exit status.
        code: Expr,
    },
    /// `printf(format, args)`
    Printf {
        /// The parsed format.
        format: Vec<Piece>,
        /// The arguments, one for each directive.
        args: Vec<Expr>,
    },
    /// `errorf(format, args)`, `cat(format, args)`: formatted text with a use other than printing.
    Message {
        /// The use of the text.
        what: Message,
        /// The parsed format.
        format: Vec<Piece>,
        /// The arguments, one for each directive.
        args: Vec<Expr>,
    },
    /// `rows(top, "none")`: the lines stored by `row`, in descending order of weight.
    Rows {
        /// Maximum number of rows; 0: all.
        top: u32,
        /// The line to print without rows; empty: no line.
        none: Vec<u8>,
    },
    /// `signal(n)` to the process or thread that the probe interrupted; signals that the kernel did not send are
    /// counted.
    Signal {
        /// The signal number, int64.
        number: Expr,
        /// True to signal only the thread.
        thread: bool,
    },
    /// `print(e)`
    PrintValue(Expr),
    /// `span("name", key = value)` and similar calls: a record for the sinks of `--export`.
    Export {
        /// The kind of record.
        what: Export,
        /// The name, if it is a literal; otherwise the name is in `hidden`, or is that of the function.
        name: Option<Vec<u8>>,
        /// Fields that every such record has, with their values.
        hidden: Vec<(Hidden, Expr)>,
        /// Fields given in the script.
        fields: Vec<(String, Expr)>,
    },
    /// `print(@m[k])` of an aggregation without a single value, such as a histogram
    PrintEntry {
        /// The map.
        map: MapId,
        /// The parts of the key.
        key: Vec<Expr>,
    },
    /// `print(@m, top, div)`
    PrintMap {
        /// The map.
        map: MapId,
        /// Maximum number of entries, the largest first; 0: all.
        top: u32,
        /// Divisor of the values; 0 counts as 1.
        div: u32,
    },
    /// `clear(@m)`
    Clear(MapId),
    /// `zero(@m)`
    Zero(MapId),
    /// `time(format)`
    Time(String),
}
