//! The syntax tree: the script as written. Names are text, types are spellings.
//!
//! Each variant shows the text that it is parsed from. Every node has its span.

use crate::source::span::{Span, WithSpan};
use rustc_hash::FxHashMap;
use std::collections::HashMap;

/// A name with its position.
pub type Name = WithSpan<String>;

/// A whole script.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Script {
    /// Items in source order.
    pub items: Vec<Item>,
    /// Names of the parts of maps' keys, set by expansion.
    pub labels: Labels,
    /// Data of launching calls that records of GPUs need, bits of [`wire::manifest`]; set by the expansion.
    pub gpu_joins: u32,
    /// Positions of texts from the command line, set by expansion.
    pub given: Vec<Span>,
    /// Calls of macros, with the position of the macro's value; set by expansion.
    pub expansions: FxHashMap<Span, Option<Span>>,
}

/// An item at the top level.
#[derive(Clone, Debug, PartialEq)]
pub enum Item {
    /// `uprobe:libcuda:cuMem* /pid == 3/ { @ = count() }`
    Clause(Clause),
    /// `config = { max_map_keys = 1000; }`
    Config(Vec<ConfigEntry>),
    /// `#define NAME 12`
    Define {
        /// `NAME`
        name: Name,
        /// `12`
        value: Expr,
    },
    /// `struct point { int x, y; };` `enum color { RED, GREEN = 3 };` `typedef unsigned long bytes;`
    Declaration(Declaration),
    /// `metric @m = { name = "gpu.cuda.errors"; }`
    Metric {
        /// `@m` without the sigil
        map: Name,
        /// In source order.
        entries: Vec<ConfigEntry>,
    },
    /// `import "common.ct";`
    Import(Name),
    /// `macro twice(a) { a + a }`
    Macro(Macro),
    /// `let @m = lruhash(100);`
    MapDecl {
        /// `@m` without the sigil
        name: Name,
        /// `lruhash`
        kind: Name,
        /// `100`
        max_entries: Expr,
    },
}

/// A C declaration: a type, and with `typedef` the names for it.
#[derive(Clone, Debug, PartialEq)]
pub struct Declaration {
    /// `struct point { ... }`
    pub base: CType,
    /// Names that a `typedef` declares.
    pub names: Vec<Declarator>,
    /// The whole declaration.
    pub span: Span,
}

/// The type at the start of a C declaration.
#[derive(Clone, Debug, PartialEq)]
pub enum CType {
    /// `unsigned int`, `struct point`, `size_t`
    Named(TypeName),
    /// `struct point { int x, y; }`
    Compound(Compound),
    /// `enum color { RED, GREEN = 3 }`
    Enumeration(Enumeration),
}

/// `struct point { int x, y; }`
#[derive(Clone, Debug, PartialEq)]
pub struct Compound {
    /// True for a union.
    pub union: bool,
    /// `point`
    pub name: Option<Name>,
    /// Members in order.
    pub members: Vec<Member>,
    /// `__attribute__((packed))`: members without padding.
    pub packed: bool,
    /// `__attribute__((aligned(16)))`
    pub align: Option<u32>,
    /// The whole definition.
    pub span: Span,
}

/// `int x, y : 3;` of a struct.
#[derive(Clone, Debug, PartialEq)]
pub struct Member {
    /// `int`
    pub base: CType,
    /// Names; if empty, the members of an inner struct or union become members of the outer one.
    pub names: Vec<Declarator>,
}

/// `*next`, `values[4][2]`, `flag : 1`, `(*callback)(int)`
#[derive(Clone, Debug, PartialEq)]
pub struct Declarator {
    /// Name; `None` for unnamed bits, which are padding.
    pub name: Option<Name>,
    /// Number of `*`.
    pub pointers: u32,
    /// `[4][2]`, the outermost first; `None` for `[]`.
    pub dims: Vec<Option<Expr>>,
    /// `: 3`
    pub bits: Option<Expr>,
    /// True for a pointer to a function.
    pub function: bool,
    /// Position.
    pub span: Span,
}

/// `enum color { RED, GREEN = 3 }`
#[derive(Clone, Debug, PartialEq)]
pub struct Enumeration {
    /// `color`
    pub name: Option<Name>,
    /// Names and their values; a name without a value has that of the previous name plus one.
    pub values: Vec<(Name, Option<Expr>)>,
    /// The whole definition.
    pub span: Span,
}

/// `max_map_keys = 1000`
#[derive(Clone, Debug, PartialEq)]
pub struct ConfigEntry {
    /// Key as written.
    pub key: Name,
    /// An integer, string or bare word.
    pub value: Expr,
}

/// `macro swap($a, $b) { let $old = $a; $a = $b; $b = $old; }`
#[derive(Clone, Debug, PartialEq)]
pub struct Macro {
    /// `swap`
    pub name: Name,
    /// Parameters in order.
    pub params: Vec<MacroParam>,
    /// Statements before the value.
    pub body: Block,
    /// The last expression, if no `;` follows it.
    pub value: Option<Expr>,
}

/// A parameter of a macro.
#[derive(Clone, Debug, PartialEq)]
pub enum MacroParam {
    /// `a`: any expression, which replaces the name.
    Expr(Name),
    /// `$v`: a variable.
    Var(Name),
    /// `@m`: a map.
    Map(Name),
}

impl MacroParam {
    /// Name without sigil.
    pub fn name(&self) -> &Name {
        match self {
            MacroParam::Expr(name) | MacroParam::Var(name) | MacroParam::Map(name) => name,
        }
    }
}

/// `probe[,probe...] [/predicate/] { body }`
#[derive(Clone, Debug, PartialEq)]
pub struct Clause {
    /// `allocs = uprobe:...`: a name for documentation.
    pub name: Option<Name>,
    /// At least one.
    pub probes: Vec<ProbeSpec>,
    /// `/expr/`
    pub predicate: Option<Expr>,
    /// `{ ... }` or `< ... >`
    pub body: Block,
    /// The whole clause.
    pub span: Span,
}

/// An attach point as written, split at its colons: `uprobe:libcuda:cuMem*` has provider `uprobe` and two parts.
/// `BEGIN` has none. In `uprobe:libcuda:cuInit,cuMemAlloc` the second spec is `uprobe:libcuda:cuMemAlloc`.
#[derive(Clone, Debug, PartialEq)]
pub struct ProbeSpec {
    /// `uprobe`, `u`, `BEGIN`, `interval` ... as written.
    pub provider: Name,
    /// Parts, one per colon.
    pub parts: Vec<WithSpan<SpecPart>>,
    /// The whole spec.
    pub span: Span,
}

/// A part of an attach point.
#[derive(Clone, Debug, PartialEq)]
pub enum SpecPart {
    /// `libcuda`, `cuMem*`, `/usr/lib/*/libcuda.so*`, `cudaMalloc@libcudart.so.12`, `1`, `f+16`; positional parameters are substituted.
    Text(String),
    /// `"cuMemAlloc"`: an exact name.
    Quoted(String),
    /// `"cuMemAlloc"+16`: an offset in bytes from an exact name.
    QuotedAt(String, String),
    /// `/cu(Mem|Ctx).*/` as the function: a regular expression over whole names.
    Regex(String),
    /// `getopt("interval", 0)`: the value of an option. Expansion replaces it.
    Option(Box<Expr>),
}

/// Statements between braces.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Block {
    /// Statements in order.
    pub stmts: Vec<Stmt>,
    /// Position including the delimiters.
    pub span: Span,
}

/// A statement.
#[derive(Clone, Debug, PartialEq)]
pub struct Stmt {
    /// Kind.
    pub kind: StmtKind,
    /// Position.
    pub span: Span,
}

/// The kinds of statement.
#[derive(Clone, Debug, PartialEq)]
pub enum StmtKind {
    /// `f(x);`, `@n++;`, `_ = expr;`
    Expr(Expr),
    /// `let $x;` `let $x: uint16 = 3;`
    Let {
        /// Name without the sigil.
        name: Name,
        /// `uint16`
        ty: Option<TypeName>,
        /// `3`
        value: Option<Expr>,
    },
    /// `$x = e;` `@m[k] += e;` (`op` is the operator without `=`; the target is a `Var` or a `Map`)
    Assign {
        /// Left side.
        target: Expr,
        /// `None` for plain `=`.
        op: Option<BinaryOp>,
        /// Right side.
        value: Expr,
    },
    /// `if c { } else { }`; `else if` is a block with one `if`.
    If {
        /// Condition.
        cond: Expr,
        /// Statements for a non-zero condition.
        then: Block,
        /// Statements otherwise.
        otherwise: Option<Block>,
    },
    /// `while (c) { }`
    While {
        /// Condition, tested before each round.
        cond: Expr,
        /// Body.
        body: Block,
    },
    /// `unroll(8) { }`
    Unroll {
        /// A literal or positional parameter.
        count: Expr,
        /// Body.
        body: Block,
    },
    /// `for $i : 0..10 { }`
    ForRange {
        /// Name without the sigil.
        var: Name,
        /// First value.
        start: Expr,
        /// One past the last value.
        end: Expr,
        /// Body.
        body: Block,
    },
    /// `for ($kv : @m) { }`
    ForMap {
        /// Name without the sigil.
        var: Name,
        /// Map without the sigil.
        map: Name,
        /// Body.
        body: Block,
    },
    /// `{ ... }`
    Block(Block),
    /// `break;`
    Break,
    /// `continue;`
    Continue,
    /// `return;` `return 1;`
    Return(Option<Expr>),
}

/// A name that stands for a value whose absence was reported. No script can write it.
pub const ABSENT: &str = "@absent";

/// An expression.
#[derive(Clone, Debug, PartialEq)]
pub struct Expr {
    /// Kind.
    pub kind: ExprKind,
    /// Position.
    pub span: Span,
}

impl Expr {
    /// Whether this is `args`.
    pub fn is_args(&self) -> bool {
        matches!(&self.kind, ExprKind::Ident(name) if name == "args")
    }
}

/// The kinds of expression.
#[derive(Clone, Debug, PartialEq)]
pub enum ExprKind {
    /// `12`, `0x1f`, `1e6`, `1_000`, `10ms`. `unsigned` when it does not fit int64 or has a `u` suffix.
    Int {
        /// Bits of the value.
        value: u64,
        /// True if the value does not fit int64 or has a `u` suffix.
        unsigned: bool,
    },
    /// `"text"`, escapes resolved; bytes because `\xff` may be written.
    Str(Vec<u8>),
    /// `true`
    Bool(bool),
    /// `pid`, `args`, `CUDA_SUCCESS`, `arg0`, `count`
    Ident(String),
    /// `$x`
    Var(String),
    /// `@`, `@m`, `@m[k, 2]`; `keys` is `None` without brackets.
    Map {
        /// Name without the sigil; empty for `@`.
        name: String,
        /// The list in brackets.
        keys: Option<Vec<Expr>>,
    },
    /// `$1`, only in `str($1)`: elsewhere the parser replaces set parameters by their values and unset ones by
    /// `Int` 0.
    Positional(u32),
    /// `$#`
    PositionalCount,
    /// `f(a, b)`
    Call {
        /// Function name.
        name: Name,
        /// Arguments.
        args: Vec<Expr>,
    },
    /// `e.field`, `e->field`
    Field {
        /// Left side.
        base: Box<Expr>,
        /// Field name.
        name: Name,
        /// True if written with `->`.
        arrow: bool,
    },
    /// `e.0`
    TupleIndex {
        /// Left side.
        base: Box<Expr>,
        /// Position from 0.
        index: u32,
    },
    /// `e[i]`
    Index {
        /// Left side.
        base: Box<Expr>,
        /// Position.
        index: Box<Expr>,
    },
    /// `-e` `!e` `~e` `*e` `&e`
    Unary {
        /// Operator.
        op: UnaryOp,
        /// Operand.
        expr: Box<Expr>,
    },
    /// `$x++` `--@m[k]`
    IncDec {
        /// A `Var` or `Map`.
        target: Box<Expr>,
        /// `+1` or `-1`.
        delta: i8,
        /// True if the value of the expression is the old one.
        postfix: bool,
    },
    /// `a + b`
    Binary {
        /// Operator.
        op: BinaryOp,
        /// Left.
        lhs: Box<Expr>,
        /// Right.
        rhs: Box<Expr>,
    },
    /// `c ? a : b`; `then` is `None` in `c ?: b`.
    Ternary {
        /// Condition.
        cond: Box<Expr>,
        /// Value when non-zero.
        then: Option<Box<Expr>>,
        /// Value otherwise.
        otherwise: Box<Expr>,
    },
    /// `(uint32)e`
    Cast {
        /// Type between the parentheses.
        ty: TypeName,
        /// Operand.
        expr: Box<Expr>,
    },
    /// `(1, "a")`, `(1,)`
    Tuple(Vec<Expr>),
    /// `{ let $b = 1; $b + 1 }`; without `value` only as a statement, after the expansion of a macro.
    Block {
        /// Statements before the value.
        body: Block,
        /// The last expression.
        value: Option<Box<Expr>>,
    },
    /// `(a = 1, b = "x")`
    Record(Vec<(Name, Expr)>),
    /// `typeof(uint32)`, only as an argument of macros.
    Type(TypeName),
    /// `typeinfo(uint32)`; `typeinfo($x)` has the expression in `of`.
    TypeInfo(TypeName),
    /// `sizeof(uint32)`, `sizeof(struct dim3)`
    SizeofType(TypeName),
    /// `sizeof(e)`
    SizeofExpr(Box<Expr>),
    /// `offsetof(struct point, corner.x)`
    OffsetOf {
        /// `struct point`
        ty: TypeName,
        /// `corner.x`
        path: Vec<Name>,
    },
}

/// A type as spelled in a cast, `let` or `sizeof`: `uint32`, `struct CUlaunchConfig *`, `CUresult`, `char *`, `uint8[8]`.
#[derive(Clone, Debug, PartialEq)]
pub struct TypeName {
    /// Base name, including `struct`/`union`/`enum`: `struct dim3`. Empty if there is `of`.
    pub name: String,
    /// `typeof($x)`
    pub of: Option<Box<Expr>>,
    /// Number of `*`.
    pub pointers: u32,
    /// `[8]`, the outermost first.
    pub dims: Vec<u32>,
    /// Position.
    pub span: Span,
}

impl TypeName {
    /// An empty type name with a position.
    pub fn bare(span: Span) -> TypeName {
        TypeName { name: String::new(), of: None, pointers: 0, dims: Vec::new(), span }
    }
}

/// Prefix operators.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum UnaryOp {
    /// `-`
    Neg,
    /// `!`
    Not,
    /// `~`
    BitNot,
    /// `*`
    Deref,
    /// `&`
    AddressOf,
    /// `comptime e`
    Comptime,
}

/// Infix operators, lowest precedence first.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum BinaryOp {
    /// `||`
    Or,
    /// `&&`
    And,
    /// `|`
    BitOr,
    /// `^`
    BitXor,
    /// `&`
    BitAnd,
    /// `==`
    Eq,
    /// `!=`
    Ne,
    /// `<`
    Lt,
    /// `>`
    Gt,
    /// `<=`
    Le,
    /// `>=`
    Ge,
    /// `<<`
    Shl,
    /// `>>`
    Shr,
    /// `+`
    Add,
    /// `-`
    Sub,
    /// `*`
    Mul,
    /// `/`
    Div,
    /// `%`
    Rem,
}

/// For each map with a key, the names of the key's parts.
pub type Labels = HashMap<String, Vec<String>>;

/// The text of a part of an attach point.
pub fn text(part: &SpecPart) -> &str {
    match part {
        SpecPart::Text(text)
        | SpecPart::Quoted(text)
        | SpecPart::QuotedAt(text, _)
        | SpecPart::Regex(text) => text,
        SpecPart::Option(_) => unreachable!("options of probes have been expanded"),
    }
}
