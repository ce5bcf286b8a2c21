//! Statements.

use super::Maker;
use super::declarations::Side;
use super::values::DEPTH;

/// Kinds of statements, each as often as it stands here; the last ones nest.
const FLAT: u64 = 18;
const NESTED: u64 = 6;

impl Maker {
    pub(super) fn block(&mut self) {
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
        match self.rng.below(if deep { FLAT } else { FLAT + NESTED }) {
            0 | 1 => self.assign_variable(),
            2 => self.update_variable(),
            3 | 4 if !self.looped => self.assign_map(),
            5 if !self.looped => self.update_map(),
            3..=5 => self.update_variable(),
            6..=8 => self.aggregate(),
            9 | 10 => self.say(),
            11 if !self.looped => self.delete(),
            12 if self.loops > 0 => {
                let condition = self.condition(2);
                let jump = *self.rng.pick(&["break", "continue"]);
                self.line(&format!("if ({condition}) {{ {jump} }}"));
            }
            13 if self.rng.chance(15) => {
                let condition = self.condition(2);
                let leave = if self.rng.chance(10) { "exit(3)" } else { "return" };
                self.line(&format!("if ({condition}) {{ {leave} }}"));
            }
            11..=14 => self.aggregate(),
            15 => self.assign_parts(),
            16 if !self.looped => self.whole_map(),
            16 | 17 => self.say_parts(),
            18..=20 => self.branch(),
            _ => self.repeat(),
        }
    }

    fn assign_variable(&mut self) {
        let line = match self.rng.below(7) {
            0 | 1 => format!("$a = {};", self.signed(DEPTH)),
            2 => format!("$b = {};", self.signed(DEPTH)),
            3 => format!("$u = {};", self.unsigned(DEPTH)),
            4 => format!("$n = (uint8){};", self.signed(2)),
            5 => format!("$e = {};", self.color()),
            _ => format!("$s = {};", self.string(2)),
        };
        self.line(&line);
    }

    /// Structs, records and tuples.
    fn assign_parts(&mut self) {
        let key = self.key();
        let line = match self.rng.below(if self.looped { 4 } else { 8 }) {
            0 => format!("$p = *(struct point *){};", self.address()),
            1 => format!("$p = ((struct shape *){})->corners[{} & 1];", self.address(), self.signed(1)),
            2 => format!("$r = {};", self.record()),
            3 => format!("$v = {};", self.tuple()),
            4 => format!("@r[{key}] = $r;"),
            5 => format!("@v[{key}] = $v;"),
            6 => format!("@p[{key}] = $p;"),
            _ => format!("$r = @r[{key}]; $v = @v[{key}];"),
        };
        self.line(&line);
    }

    fn update_variable(&mut self) {
        let operator = *self.rng.pick(&["+=", "-=", "*=", "/=", "%=", "&=", "|=", "^="]);
        let line = match self.rng.below(5) {
            0 => format!("$a {operator} {};", self.signed(2)),
            1 => format!("$u {operator} {};", self.unsigned(2)),
            2 => format!("$n {operator} (uint8){};", self.unsigned(2)),
            3 => "swap($a, $b);".into(),
            _ => (*self.rng.pick(&["$a++;", "--$b;", "$n--;", "++$k;", "$u++;", "$a <<= 3;", "$u >>= 2;"]))
                .into(),
        };
        self.line(&line);
    }

    fn assign_map(&mut self) {
        let key = self.key();
        let line = match self.rng.below(6) {
            0 | 1 => format!("@i[{key}] = {};", self.signed(3)),
            2 => format!("@u = {};", self.unsigned(3)),
            3 => format!("@z[{key}] = {};", self.signed(2)),
            4 => format!("@l[{key}] = {};", self.signed(2)),
            _ => format!("@t[{key}, {}] = {};", self.string(1), self.string(2)),
        };
        self.line(&line);
    }

    fn update_map(&mut self) {
        let operator = *self.rng.pick(&["+=", "-=", "*=", "/=", "&=", "|=", "^="]);
        let line = match self.rng.below(6) {
            0 => format!("@i[{}]++;", self.key()),
            1 => format!("@i[{}] {operator} {};", self.key(), self.signed(2)),
            2 => format!("@u {operator} {};", self.unsigned(2)),
            3 => format!("@z[{}] {operator} {};", self.key(), self.signed(1)),
            4 => format!("$a = note(@i, {});", self.key()),
            _ => format!("$a = @i[{}]--;", self.key()),
        };
        self.line(&line);
    }

    fn aggregate(&mut self) {
        let line = match self.rng.below(15) {
            0 => format!("@c[{}] = count();", self.unsigned(2)),
            1 => format!("@d = sum({});", self.signed(3)),
            2 => format!("@m[{}] = min({});", self.key(), self.signed(3)),
            3 => format!("@x[{}] = max({});", self.string(1), self.unsigned(2)),
            4 => format!("@h = hist({}, 1);", self.signed(2)),
            5 => format!("@hk[{}] = hist({});", self.key(), self.signed(2)),
            6 => format!("@a[{}] = avg({});", self.key(), self.signed(2)),
            7 => format!("@s[{}] = stats({});", self.key(), self.signed(2)),
            8 => format!("@lh = lhist({}, -10, 100, 7);", self.signed(2)),
            9 => format!("@lk[{}] = lhist({}, 0, 8, 1);", self.string(0), self.signed(2)),
            10 => format!("@pc[{}] = count();", self.key()),
            11 => format!("@ph[{}] = sum({});", self.key(), self.unsigned(2)),
            12 => format!("@e[{}] = count();", self.color()),
            13 => format!("@made[{}] = count();", self.made()),
            _ => self.named(),
        };
        self.line(&line);
    }

    /// By what was called, if something was, or by where the kernel is.
    fn named(&mut self) -> String {
        let stacks = ["@st[kstack(2)] = count();", "@us[ustack(3), len(ustack)] = count();"];
        let names = ["@f[func] = count();", "@api[api] = count();", "@on[probe] = count();"];
        let called = self.side() != Side::Timer && self.rng.chance(60);
        (*if called { self.rng.pick(&names) } else { self.rng.pick(&stacks) }).into()
    }

    fn say(&mut self) {
        let line = match self.rng.below(7) {
            0 => format!("printf(\"%d %s\", {}, {});", self.signed(DEPTH), self.string(2)),
            1 => format!("printf(\"%x\", {});", self.unsigned(DEPTH)),
            2 => format!("print(({}, {}));", self.signed(2), self.string(1)),
            3 => format!("print({});", self.unsigned(3)),
            4 => format!("printf(\"%s %d\", {}, {});", self.made(), self.text_number()),
            5 => format!(
                "printf(\"%r %rx\", buf({}, {}), {});",
                self.address(),
                1 + self.rng.below(20),
                self.string(1)
            ),
            _ => format!("print(({}, strerror({}), {}));", self.color(), self.signed(1), self.condition(2)),
        };
        self.line(&line);
    }

    /// Structs, records and tuples, and what memory has of them.
    fn say_parts(&mut self) {
        let at = self.address();
        let line = match self.rng.below(7) {
            0 => "print($p);".into(),
            1 => format!("print(({}, $r.c));", self.record()),
            2 => format!("print(({}, $v.2));", self.tuple()),
            3 => format!("print(*(struct shape *){at});"),
            4 => format!("$o = *(struct odd *){at}; print(($o, $o.words[{} & 1], $o.f));", self.signed(1)),
            5 => format!("print(((union both *){at})->bits);"),
            _ => format!("print(((uint8[8]){}, ((struct shape *){at})->label));", self.unsigned(1)),
        };
        self.line(&line);
    }

    fn whole_map(&mut self) {
        let line = *self.rng.pick(&[
            "print(@i);",
            "print(@c, 3);",
            "print(@r);",
            "print(@h);",
            "print(@a, 2, 10);",
            "clear(@hk);",
            "clear(@i);",
            "zero(@c);",
            "zero(@z);",
            "clear(@l);",
        ]);
        self.line(line);
    }

    fn delete(&mut self) {
        let key = self.key();
        let map = *self.rng.pick(&["@i", "@z", "@l", "@r", "@a"]);
        self.line(&format!("delete({map}, {key});"));
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
        match self.rng.below(6) {
            0 => self.nested("unroll(2)"),
            1 => {
                // The counter is the condition's, so that `continue` cannot make it endless.
                let counter = format!("$w{}", self.loops);
                self.line(&format!("{counter} = 0;"));
                let condition = self.condition(1);
                self.nested(&format!("while ({counter}++ < 4 && {condition})"));
            }
            2 | 3 if !self.looped => self.over_map(),
            _ => {
                let (name, end) = (format!("$i{}", self.loops), self.signed(1));
                let start = self.rng.below(3);
                self.nested(&format!("for {name} : {start}..({end} % 5)"));
            }
        }
        self.loops -= 1;
    }

    fn over_map(&mut self) {
        let (map, use_of_it) = *self.rng.pick(&[
            ("@i", "$a += $kv.1 ^ $kv.0;"),
            ("@t", "print(($kv.0.0, $kv.1));"),
            ("@r", "$r = $kv.1;"),
            ("@c", "$u += (uint64)$kv.1;"),
            ("@a", "print($kv);"),
            ("@v", "$b -= $kv.1.0;"),
        ]);
        self.looped = true;
        self.line(&format!("for ($kv : {map}) {{ {use_of_it}"));
        self.indent += 1;
        self.block();
        self.indent -= 1;
        self.line("}");
        self.looped = false;
    }
}
