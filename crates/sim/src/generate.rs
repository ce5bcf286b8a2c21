//! Scripts made up at random: correct in their types, odd in all else.
//!
//! Maps and variables have fixed names and types, so that any statement may stand anywhere:
//!
//! ```text
//! @i[int64] int64   @u uint64   @t[int64, string] string    plain
//! @c[uint64] count  @d sum      @m[int64] min  @h hist      aggregations
//! $a $b int64   $u uint64   $n uint8   $k int16   $s string
//! ```

use crate::rng::Rng;

/// Expressions nest so deeply at most.
const DEPTH: u32 = 4;

const PROBES: [&str; 7] = [
    "uprobe:libcuda:cuInit",
    "uprobe:libcuda:cuMem*",
    "uprobe:libcudart:cudaMemcpy",
    "uretprobe:libcuda:cuMemAlloc",
    "uretprobe:libcuda:cu*",
    "interval:s:1",
    "profile:hz:99",
];

/// Gives every map something, so that each has a type.
const FIRST: &str = "BEGIN { @i[0] = 1; @u = (uint64)5; @t[1, comm] = comm; @c[(uint64)0] = count(); @d = sum((int64)1); \
                     @m[0] = min((int64)5); @x[comm] = max((uint64)1); @h = hist((int64)3, 1); }";

/// The script of a seed.
pub fn script(seed: u64) -> String {
    let mut maker = Maker {
        rng: Rng::new(seed),
        text: String::new(),
        indent: 0,
        loops: 0,
        side: Side::Timer,
        variables: false,
    };
    maker.line(FIRST);
    let clauses = 1 + maker.rng.below(3);
    for _ in 0..clauses {
        maker.clause();
    }
    maker.text
}

/// What a clause may ask for.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Side {
    Timer,
    Entry,
    Return,
}

struct Maker {
    rng: Rng,
    text: String,
    indent: usize,
    /// Loops around the statement being made.
    loops: u32,
    side: Side,
    /// The clause has set its variables.
    variables: bool,
}

impl Maker {
    fn line(&mut self, text: &str) {
        self.text.push_str(&"  ".repeat(self.indent));
        self.text.push_str(text);
        self.text.push('\n');
    }

    fn clause(&mut self) {
        let probe = *self.rng.pick(&PROBES);
        self.side = match probe {
            p if p.starts_with("uprobe") => Side::Entry,
            p if p.starts_with("uretprobe") => Side::Return,
            _ => Side::Timer,
        };
        self.variables = false;
        let predicate =
            if self.rng.chance(30) { format!(" / {} /", self.condition(2)) } else { String::new() };
        self.line(&format!("{probe}{predicate} {{"));
        self.indent += 1;
        self.line("let $a: int64 = 1; let $b: int64 = -3; let $u: uint64 = 7; let $n: uint8 = 250; let $k: int16 = -5;");
        self.line("$s = \"\"; $s = comm;");
        self.variables = true;
        self.block();
        self.line("printf(\"%d %d %u %d %d %s\", $a, $b, $u, $n, $k, $s);");
        self.indent -= 1;
        self.line("}");
    }

    fn block(&mut self) {
        for _ in 0..1 + self.rng.below(5) {
            self.statement();
        }
    }

    fn nested(&mut self, head: &str) {
        self.line(&format!("{head} {{"));
        self.indent += 1;
        self.block();
        self.indent -= 1;
        self.line("}");
    }

    fn statement(&mut self) {
        let deep = self.indent > 3;
        match self.rng.below(if deep { 14 } else { 19 }) {
            0 | 1 => self.assign_variable(),
            2 => self.update_variable(),
            3 => self.assign_map(),
            4 => self.update_map(),
            5..=7 => self.aggregate(),
            8 | 9 => self.say(),
            10 => self.delete(),
            11 if self.loops > 0 => {
                let condition = self.condition(2);
                let jump = *self.rng.pick(&["break", "continue"]);
                self.line(&format!("if ({condition}) {{ {jump} }}"));
            }
            12 if self.rng.chance(15) => {
                let condition = self.condition(2);
                self.line(&format!("if ({condition}) {{ return }}"));
            }
            11..=13 => self.aggregate(),
            14..=16 => self.branch(),
            _ => self.repeat(),
        }
    }

    fn assign_variable(&mut self) {
        let line = match self.rng.below(6) {
            0 | 1 => format!("$a = {};", self.signed(DEPTH)),
            2 => format!("$b = {};", self.signed(DEPTH)),
            3 => format!("$u = {};", self.unsigned(DEPTH)),
            4 => format!("$n = (uint8){};", self.signed(2)),
            _ => format!("$s = {};", self.string(2)),
        };
        self.line(&line);
    }

    fn update_variable(&mut self) {
        let operator = *self.rng.pick(&["+=", "-=", "*=", "/=", "%=", "&=", "|=", "^="]);
        let line = match self.rng.below(4) {
            0 => format!("$a {operator} {};", self.signed(2)),
            1 => format!("$u {operator} {};", self.unsigned(2)),
            2 => format!("$n {operator} (uint8){};", self.unsigned(2)),
            _ => (*self.rng.pick(&["$a++;", "--$b;", "$n--;", "++$k;", "$u++;"])).into(),
        };
        self.line(&line);
    }

    fn assign_map(&mut self) {
        let line = match self.rng.below(4) {
            0 | 1 => format!("@i[{}] = {};", self.key(), self.signed(3)),
            2 => format!("@u = {};", self.unsigned(3)),
            _ => format!("@t[{}, {}] = {};", self.key(), self.string(1), self.string(2)),
        };
        self.line(&line);
    }

    fn update_map(&mut self) {
        let operator = *self.rng.pick(&["+=", "-=", "*=", "/=", "&=", "|=", "^="]);
        let line = match self.rng.below(4) {
            0 => format!("@i[{}]++;", self.key()),
            1 => format!("@i[{}] {operator} {};", self.key(), self.signed(2)),
            2 => format!("@u {operator} {};", self.unsigned(2)),
            _ => format!("$a = @i[{}]--;", self.key()),
        };
        self.line(&line);
    }

    fn aggregate(&mut self) {
        let line = match self.rng.below(5) {
            0 => format!("@c[{}] = count();", self.unsigned(2)),
            1 => format!("@d = sum({});", self.signed(3)),
            2 => format!("@m[{}] = min({});", self.key(), self.signed(3)),
            3 => format!("@x[{}] = max({});", self.string(1), self.unsigned(2)),
            _ => format!("@h = hist({}, 1);", self.signed(2)),
        };
        self.line(&line);
    }

    fn say(&mut self) {
        let line = match self.rng.below(4) {
            0 => format!("printf(\"%d %s\", {}, {});", self.signed(DEPTH), self.string(2)),
            1 => format!("printf(\"%x\", {});", self.unsigned(DEPTH)),
            2 => format!("print(({}, {}));", self.signed(2), self.string(1)),
            _ => format!("print({});", self.unsigned(3)),
        };
        self.line(&line);
    }

    fn delete(&mut self) {
        let line = format!("delete(@i, {});", self.key());
        self.line(&line);
    }

    fn branch(&mut self) {
        let condition = self.condition(3);
        self.nested(&format!("if ({condition})"));
        if self.rng.chance(40) {
            self.nested("else");
        }
    }

    fn repeat(&mut self) {
        if self.loops == 2 {
            return self.branch();
        }
        self.loops += 1;
        match self.rng.below(4) {
            0 => self.nested("unroll(2)"),
            1 => {
                // The counter is the condition's, so that `continue` cannot make it endless.
                let counter = format!("$w{}", self.loops);
                self.line(&format!("{counter} = 0;"));
                let condition = self.condition(1);
                self.nested(&format!("while ({counter}++ < 4 && {condition})"));
            }
            _ => {
                let (name, end) = (format!("$i{}", self.loops), self.signed(1));
                let start = self.rng.below(3);
                self.nested(&format!("for {name} : {start}..({end} % 5)"));
            }
        }
        self.loops -= 1;
    }

    /// Few different keys, so that they meet.
    fn key(&mut self) -> String {
        format!("({} & 7)", self.signed(1))
    }

    fn number(&mut self) -> String {
        match self.rng.interesting() {
            i64::MIN => "(-9223372036854775807 - 1)".into(),
            n if n < 0 => format!("({n})"),
            n => n.to_string(),
        }
    }

    fn argument(&mut self) -> String {
        match self.side {
            Side::Timer => "nsecs".into(),
            Side::Entry => format!("arg{}", self.rng.below(8)),
            Side::Return => (*self.rng.pick(&["duration", "arg0", "arg1", "(uint64)retval"])).into(),
        }
    }

    /// One of them. No division, the first two, in the predicate of a return probe: parts of that are evaluated when the
    /// call begins, and a call that never returns would count its division by zero all the same.
    fn operator(&mut self, operators: &[&'static str]) -> &'static str {
        let predicate = self.side == Side::Return && !self.variables;
        let from = if predicate { &operators[2..] } else { operators };
        let picked: &&str = self.rng.pick(from);
        picked
    }

    /// An int64.
    fn signed(&mut self, depth: u32) -> String {
        if depth == 0 {
            return match self.rng.below(5) {
                0 if self.variables => "$a".into(),
                1 if self.variables => "$b".into(),
                2 => format!("(int64){}", self.argument()),
                _ => format!("(int64){}", self.number()),
            };
        }
        let d = depth - 1;
        match self.rng.below(12) {
            0..=3 => {
                let operator = self.operator(&["/", "%", "+", "-", "*", "&", "|", "^"]);
                format!("({} {operator} {})", self.signed(d), self.signed(d))
            }
            4 => {
                let operator = *self.rng.pick(&["<<", ">>"]);
                format!("({} {operator} (int64){})", self.signed(d), self.rng.below(64))
            }
            5 => format!("({} ? {} : {})", self.condition(d), self.signed(d), self.signed(d)),
            6 => format!("(-{})", self.signed(d)),
            7 => format!("(~{})", self.signed(d)),
            8 => {
                let width =
                    *self.rng.pick(&["int8", "uint8", "int16", "uint16", "int32", "uint32", "uint64"]);
                format!("(int64)({width}){}", self.signed(d))
            }
            9 if self.variables && self.rng.chance(30) => {
                (*self.rng.pick(&["$a++", "(--$b)", "(int64)$n++", "(int64)(++$k)", "@i[3]++", "(--@i[5])"]))
                    .into()
            }
            9 => format!("@i[{}]", self.key()),
            10 if self.variables => {
                format!("(int64){}", *self.rng.pick(&["$n", "$k", "pid", "cpu", "@d", "$s[2]"]))
            }
            _ => self.signed(0),
        }
    }

    /// A uint64.
    fn unsigned(&mut self, depth: u32) -> String {
        if depth == 0 {
            return match self.rng.below(4) {
                0 if self.variables => "$u".into(),
                1 => format!("(uint64){}", self.number()),
                _ => format!("(uint64){}", self.argument()),
            };
        }
        let d = depth - 1;
        match self.rng.below(8) {
            0..=2 => {
                let operator = self.operator(&["/", "%", "+", "*", "&", "|", "^"]);
                format!("({} {operator} {})", self.unsigned(d), self.unsigned(d))
            }
            3 => {
                let operator = *self.rng.pick(&["<<", ">>"]);
                format!("({} {operator} (uint64){})", self.unsigned(d), self.rng.below(64))
            }
            4 => format!("(uint64){}", self.signed(d)),
            5 => "@u".into(),
            6 => format!("({} ? {} : {})", self.condition(d), self.unsigned(d), self.unsigned(d)),
            _ => self.unsigned(0),
        }
    }

    fn string(&mut self, depth: u32) -> String {
        match self.rng.below(if depth == 0 { 3 } else { 6 }) {
            0 => "comm".into(),
            1 if self.variables => "$s".into(),
            1 | 2 => format!("\"{}\"", *self.rng.pick(&["", "x", "main100", "fifteen letters", "saxpy"])),
            3 => format!("@t[{}, {}]", self.key(), self.string(0)),
            4 => format!("({} ? {} : {})", self.condition(1), self.string(0), self.string(0)),
            _ => {
                let address = self.argument();
                format!("str({address}, {})", 1 + self.rng.below(15))
            }
        }
    }

    fn condition(&mut self, depth: u32) -> String {
        let d = depth.saturating_sub(1);
        let compare = *self.rng.pick(&["==", "!=", "<", "<=", ">", ">="]);
        match self.rng.below(9) {
            0..=2 => format!("{} {compare} {}", self.signed(d), self.signed(d)),
            3 => format!("{} {compare} {}", self.unsigned(d), self.unsigned(d)),
            4 if depth > 0 => format!("({} && {})", self.condition(d), self.condition(d)),
            5 if depth > 0 => format!("({} || {})", self.condition(d), self.condition(d)),
            6 if depth > 0 => format!("!({})", self.condition(d)),
            7 => format!("{} == {}", self.string(0), self.string(0)),
            8 => format!("has_key(@i, {})", self.key()),
            _ => format!("tid % {} == 0", 1 + self.rng.below(3)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lang::{Diagnostics, Source, fmt};

    #[test]
    fn scripts_are_formatted_once_and_for_all() {
        let format = |text: &str| fmt::format(&Source::new("t.ct", text), &mut Diagnostics::default());
        for seed in 0..40 {
            let text = script(seed);
            let once = format(&text).unwrap_or_else(|failure| panic!("{failure:?}\n{text}"));
            assert_eq!(format(&once).as_ref(), Ok(&once), "{text}");
        }
    }
}
