//! Expressions, by type.

use super::Maker;
use super::declarations::Side;

/// Expressions nest so deeply at most.
pub const DEPTH: u32 = 4;

/// Members of the declared structs: what stands before the address, and behind it.
const MEMBERS: [(&str, &str); 12] = [
    ("((struct bits *)", ")->low"),
    ("((struct bits *)", ")->mid"),
    ("((struct bits *)", ")->high"),
    ("((struct bits *)", ")->wide"),
    ("((struct point *)", ")->y"),
    ("((struct point *)", ")->tag"),
    ("((struct shape *)", ")->corners[1].x"),
    ("((struct shape *)", ")->name[2]"),
    ("((struct shape *)", ")->next->corners[0].y"),
    ("((struct odd *)", ")->l"),
    ("((struct odd *)", ")->s"),
    ("((union both *)", ")->bytes[SIX]"),
];

impl Maker {
    /// Few different keys, so that they meet.
    pub(super) fn key(&mut self) -> String {
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
        if !self.probe.args.is_empty() && self.rng.chance(40) {
            return (*self.rng.pick(self.probe.args)).into();
        }
        match self.side() {
            Side::Timer => "nsecs".into(),
            Side::Entry if self.probe.name.starts_with("cuda:") => "args.bytes".into(),
            Side::Entry => format!("arg{}", self.rng.below(8)),
            Side::Return if self.probe.name.starts_with("cuda:") => "args.bytes".into(),
            Side::Return => (*self.rng.pick(&["duration", "arg0", "arg1", "(uint64)retval"])).into(),
        }
    }

    /// Where memory may be.
    pub(super) fn address(&mut self) -> String {
        match self.side() {
            Side::Timer => "nsecs".into(),
            _ if self.probe.name.starts_with("cuda:") => "args.bytes".into(),
            _ => format!("arg{}", self.rng.below(4)),
        }
    }

    /// One of them. No division, the first two, in the predicate of a return probe: parts of that are evaluated when the
    /// call begins, and a call that never returns would count its division by zero all the same.
    fn operator(&mut self, operators: &[&'static str]) -> &'static str {
        let predicate = self.side() == Side::Return && !self.variables;
        let from = if predicate { &operators[2..] } else { operators };
        let picked: &&str = self.rng.pick(from);
        picked
    }

    /// An int64.
    pub(super) fn signed(&mut self, depth: u32) -> String {
        if depth == 0 {
            return match self.rng.below(5) {
                0 if self.variables => "$a".into(),
                1 if self.variables => "$b".into(),
                2 => format!("(int64){}", self.argument()),
                _ => format!("(int64){}", self.number()),
            };
        }
        let d = depth - 1;
        match self.rng.below(15) {
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
            9 if self.variables && !self.looped && self.rng.chance(30) => {
                let updates =
                    ["$a++", "(--$b)", "(int64)$n++", "(int64)(++$k)", "@i[3]++", "(--@i[5])", "note(@i, 2)"];
                (*self.rng.pick(&updates)).into()
            }
            9 => format!("@i[{}]", self.key()),
            10 if self.variables => {
                let parts = [
                    "$n", "$k", "pid", "cpu", "@d", "$s[2]", "$p.x", "$p.tag", "$r.a", "$r.c.y", "$v.2.0",
                    "$v.0",
                ];
                format!("(int64){}", *self.rng.pick(&parts))
            }
            11 if self.variables => self.member(),
            12 if self.variables => self.text_number(),
            13 if self.variables => self.computed(d),
            _ => self.signed(0),
        }
    }

    /// What memory has at a member of a declared struct.
    fn member(&mut self) -> String {
        let (before, behind) = *self.rng.pick(&MEMBERS);
        format!("(int64){before}{}{behind}", self.address())
    }

    /// Numbers that text has.
    pub(super) fn text_number(&mut self) -> String {
        match self.rng.below(6) {
            0 => format!("(int64)strlen({})", self.made()),
            1 => {
                format!("(int64)strstr({}, \"{}\")", self.string(1), *self.rng.pick(&["", "a", "100", "xpy"]))
            }
            2 => format!("(int64)strncmp({}, {}, {})", self.string(0), self.string(0), 1 + self.rng.below(9)),
            3 => {
                format!("(int64)strcontains({}, \"{}\")", self.string(1), *self.rng.pick(&["i", "ma", "zz"]))
            }
            4 => format!("(int64)strcap({})", self.string(0)),
            _ => format!("(int64)len({})", *self.rng.pick(&["@i", "@z", "@r"])),
        }
    }

    /// By macros, blocks and reading functions.
    fn computed(&mut self, depth: u32) -> String {
        match self.rng.below(7) {
            0 => format!("clamp({}, (int64)-9, (int64)99)", self.signed(depth)),
            1 => format!("(int64)digits({} & 65535)", self.unsigned(depth)),
            2 => format!("({{ $q = {}; $q * 2 }})", self.signed(depth)),
            3 => format!("(int64)bswap((uint32){})", self.unsigned(depth)),
            4 => format!("(int64)((uint8[8]){})[{} & 7]", self.unsigned(depth), self.signed(0)),
            5 => (*self.rng.pick(&["@m[2]", "@a[1]", "@c[(uint64)3]", "@x[comm]"]))
                .replacen('@', "(int64)@", 1),
            _ => "(int64)(sizeof(struct shape) + offsetof(struct shape, label))".into(),
        }
    }

    /// An enum.
    pub(super) fn color(&mut self) -> String {
        match self.rng.below(4) {
            0 => "$e".into(),
            1 => format!("((struct shape *){})->color", self.address()),
            2 => format!("(enum color){}", self.signed(1)),
            _ => (*self.rng.pick(&["RED", "GREEN", "BLUE"])).into(),
        }
    }

    pub(super) fn record(&mut self) -> String {
        let (a, b) = (self.signed(2), self.string(1));
        let (x, y) = (self.unsigned(1), self.signed(1));
        format!("(a = {a}, b = {b}, c = (x = {x}, y = (int16){y}))")
    }

    pub(super) fn tuple(&mut self) -> String {
        let (a, b) = (self.signed(2), self.string(1));
        let (x, y) = (self.signed(1), self.unsigned(1));
        format!("({a}, {b}, ((uint8){x}, {y}))")
    }

    /// Text made of text.
    pub(super) fn made(&mut self) -> String {
        let text = self.string(1);
        match self.rng.below(4) {
            0 => format!("toupper({text})"),
            1 => format!("tolower({text})"),
            2 => format!("str_concat({text}, {})", self.string(0)),
            _ => format!("str_concat({text}, \"-\")"),
        }
    }

    /// A uint64.
    pub(super) fn unsigned(&mut self, depth: u32) -> String {
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

    pub(super) fn string(&mut self, depth: u32) -> String {
        match self.rng.below(if depth == 0 { 3 } else { 6 }) {
            0 => "comm".into(),
            1 if self.variables => "$s".into(),
            1 | 2 => format!("\"{}\"", *self.rng.pick(&["", "x", "main100", "fifteen letters", "saxpy"])),
            3 => format!("@t[{}, {}]", self.key(), self.string(0)),
            4 => format!("({} ? {} : {})", self.condition(1), self.string(0), self.string(0)),
            _ => {
                let address = self.address();
                format!("str({address}, {})", 1 + self.rng.below(15))
            }
        }
    }

    pub(super) fn condition(&mut self, depth: u32) -> String {
        let d = depth.saturating_sub(1);
        let compare = *self.rng.pick(&["==", "!=", "<", "<=", ">", ">="]);
        match self.rng.below(12) {
            0..=2 => format!("{} {compare} {}", self.signed(d), self.signed(d)),
            3 => format!("{} {compare} {}", self.unsigned(d), self.unsigned(d)),
            4 if depth > 0 => format!("({} && {})", self.condition(d), self.condition(d)),
            5 if depth > 0 => format!("({} || {})", self.condition(d), self.condition(d)),
            6 if depth > 0 => format!("!({})", self.condition(d)),
            7 => format!("{} == {}", self.string(0), self.string(0)),
            8 => format!("has_key(@i, {})", self.key()),
            9 if self.variables => format!("{} == {}", self.color(), self.color()),
            10 if self.probe.result => {
                let result =
                    *self.rng.pick(&["CUDA_SUCCESS", "CUDA_ERROR_OUT_OF_MEMORY", "CUDA_ERROR_INVALID_VALUE"]);
                format!("retval == {result}")
            }
            10 | 11 if self.side() != Side::Timer => (*self.rng.pick(&[
                "func == \"cuMemAlloc_v2\"",
                "strcontains(func, \"Mem\")",
                "strncmp(func, \"cuMem\", 5) != 0",
                "api == \"cuInit\"",
            ]))
            .into(),
            _ => format!("tid % {} == 0", 1 + self.rng.below(3)),
        }
    }
}
