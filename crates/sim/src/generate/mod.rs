//! Random scripts: well-typed, otherwise arbitrary.
//!
//! Maps and variables have fixed names and types, so that any statement can be placed anywhere:
//!
//! ```text
//! @i[int64] int64   @u uint64   @t[int64, string] string    plain
//! @p[int64] struct  @r[int64] record  @v[int64] tuple        plain, of several parts
//! @c[uint64] count  @d sum      @m[int64] min  @h hist      aggregations
//! @z hash(3)  @l lruhash(5)  @pc percpulruhash(4)           maps that are full soon
//! $a $b int64   $u uint64   $n uint8   $k int16   $s $long string   $e enum   $p struct   $r record   $v tuple
//! ```

mod declarations;
mod live;
mod phrases;
mod statements;

use crate::rng::Rng;
use declarations::{DECLARATIONS, FIRST, FIRST_TIMES, PROBES, Probe, SETTINGS, Side};
use phrases::{Phrase, TABLES};

pub use live::{LiveScript, live_script};

/// The script for a seed.
pub fn script(seed: u64) -> String {
    let mut maker = Maker::new(seed, None);
    if maker.rng.chance(20) {
        let settings: &&str = maker.rng.pick(SETTINGS);
        maker.text.push_str(settings);
    }
    maker.text.push_str(DECLARATIONS);
    maker.line(&format!("BEGIN {{ {FIRST} {FIRST_TIMES} }}"));
    let clauses = 1 + maker.rng.below(3);
    for _ in 0..clauses {
        maker.clause();
    }
    maker.text
}

struct Maker {
    rng: Rng,
    text: String,
    /// Number of the functions that the next clause probes, for a script that traces a real process.
    slot: Option<usize>,
    indent: usize,
    /// Number of loops that enclose the current statement.
    loops: u32,
    probe: &'static Probe,
    /// True if the clause has set its variables.
    variables: bool,
    /// True inside a loop over a map, which the body must not change.
    looped: bool,
}

impl Maker {
    fn new(seed: u64, slot: Option<usize>) -> Maker {
        Maker {
            rng: Rng::new(seed),
            text: String::new(),
            slot,
            indent: 0,
            loops: 0,
            probe: &PROBES[0],
            variables: false,
            looped: false,
        }
    }

    fn line(&mut self, text: &str) {
        self.text.push_str(&"  ".repeat(self.indent));
        self.text.push_str(text);
        self.text.push('\n');
    }

    fn clause(&mut self) {
        self.probe = self.rng.pick(if self.slot.is_some() { live::PROBES } else { PROBES });
        self.variables = false;
        let predicate =
            if self.rng.chance(30) { format!(" / {} /", self.phrase('c', 2)) } else { String::new() };
        let probe =
            self.slot.map_or(self.probe.name.into(), |slot| live::attach_point(self.probe.name, slot));
        self.line(&format!("{probe}{predicate} {{"));
        self.indent += 1;
        self.line("let $a: int64 = 1; let $b: int64 = -3; let $u: uint64 = 7; let $n: uint8 = 250; let $k: int16 = -5;");
        self.line(
            "$s = \"\"; $s = comm; $long = str(0); $e = GREEN; $v = ((int64)2, comm, ((uint8)3, (uint64)4));",
        );
        let parts =
            self.fill("$p = *(struct point *)`p`; $r = (a = `i`, b = comm, c = (x = $u, y = $k));", 2);
        self.line(&parts);
        self.variables = true;
        self.block();
        self.line("printf(\"%d %d %u %d %d %s %s\", $a, $b, $u, $n, $k, $s, $e); print(($p, $r, $v));");
        self.indent -= 1;
        self.line("}");
    }

    /// Whether a phrase with this requirement, a letter, is allowed at this point.
    fn allows(&mut self, need: char) -> bool {
        let Probe { side, result, .. } = *self.probe;
        let called = matches!(side, Side::Entry | Side::Return);
        match need {
            // Variables of the clause, side effects and reads of memory: not in a predicate.
            'v' => self.variables,
            // Maps that may be changed.
            'm' => !self.looped,
            // A function probe.
            'c' => called,
            // Arguments by number.
            'a' => called && !self.probe.is_operation(),
            // The entry of a single function.
            'f' => side == Side::Entry && !self.probe.name.contains(['*', ',']) && !self.probe.is_operation(),
            // An operation.
            'o' => called && self.probe.is_operation(),
            // A probe that is not on a function.
            't' => !called,
            // A return.
            'r' => side == Side::Return,
            // A result.
            'R' => result,
            // A probe that interrupts something.
            'n' => !matches!(side, Side::Ends | Side::Test),
            // A test, which may return a value.
            'T' => side == Side::Test,
            // Divisions and reads of memory, which may fail. Parts of the predicate of a return probe are
            // evaluated at entry: a call that never returns would count its division by zero. If such a part
            // fails, the parts before it are not evaluated.
            'd' => self.variables || side != Side::Return,
            // An enclosing loop.
            'l' => self.loops > 0,
            // Rare.
            'x' => self.rng.chance(20),
            other => panic!("nobody knows what `{other}` needs"),
        }
    }

    /// A phrase of a kind, nested at most `depth` deep.
    fn phrase(&mut self, letter: char, depth: u32) -> String {
        let table = TABLES.iter().find(|table| table.letter == letter).expect("a table for each letter");
        let deep = if depth > 0 && !table.deep.is_empty() { table.deep } else { table.leaves };
        let is_live = self.slot.is_some();
        let allowed: Vec<&Phrase> = deep
            .iter()
            .filter(|(_, needs, text)| {
                needs.chars().all(|need| self.allows(need)) && !(is_live && live::varies(text))
            })
            .collect();
        let mut place = self.rng.below(allowed.iter().map(|(often, ..)| u64::from(*often)).sum());
        let (.., text) = allowed
            .into_iter()
            .find(|(often, ..)| {
                let here = place < u64::from(*often);
                place = place.wrapping_sub(u64::from(*often));
                here
            })
            .expect("a place below the sum");
        self.fill(text, depth.saturating_sub(1))
    }

    /// Replaces the placeholders between backticks.
    fn fill(&mut self, text: &str, depth: u32) -> String {
        let parts: Vec<&str> = text.split('`').collect();
        let part = |(at, part): (usize, &&str)| {
            if at % 2 == 1 { self.blank(part, depth) } else { (*part).to_owned() }
        };
        parts.iter().enumerate().map(part).collect()
    }

    fn blank(&mut self, what: &str, depth: u32) -> String {
        match what {
            "number" => return self.number(),
            "arg" => return self.argument(),
            "of" => return (*self.rng.pick(self.probe.of)).into(),
            _ => {}
        }
        if let Some((from, to)) = what.split_once("..")
            && let (Ok(from), Ok(to)) = (from.parse::<u64>(), to.parse::<u64>())
        {
            return (from + self.rng.below(to - from)).to_string();
        }
        let mut chars = what.chars();
        match (chars.next(), chars.as_str().parse::<u32>()) {
            (Some(letter), most) if what.len() <= 2 && letter.is_ascii_lowercase() => {
                self.phrase(letter, most.map_or(depth, |most| most.min(depth)))
            }
            _ => {
                let is_live = self.slot.is_some();
                let words = what.split_whitespace().filter(|word| !(is_live && live::word_varies(word)));
                (*self.rng.pick(&words.collect::<Vec<_>>())).into()
            }
        }
    }

    fn number(&mut self) -> String {
        match self.rng.interesting() {
            i64::MIN => "(-9223372036854775807 - 1)".into(),
            n if n < 0 => format!("({n})"),
            n => n.to_string(),
        }
    }

    /// An integer argument of the probe.
    fn argument(&mut self) -> String {
        let may_fail = self.allows('d');
        if !self.probe.args.is_empty() && self.rng.chance(40) {
            let arg = *self.rng.pick(self.probe.args);
            if may_fail || !arg.starts_with('*') && !self.probe.is_operation() {
                return arg.into();
            }
        }
        match self.probe.side {
            Side::Timer | Side::Ends | Side::Test => "nsecs".into(),
            _ if self.probe.is_operation() && may_fail => "args.bytes".into(),
            _ if self.probe.is_operation() => (*self.rng.pick(&["duration", "started"])).into(),
            Side::Entry => format!("arg{}", self.rng.below(8)),
            Side::Return if self.slot.is_some() => {
                (*self.rng.pick(&["arg0", "arg1", "arg2", "(uint64)retval"])).into()
            }
            Side::Return => {
                (*self.rng.pick(&["duration", "started", "arg0", "arg1", "(uint64)retval"])).into()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lang::{Diagnostics, Source};

    #[test]
    fn scripts_are_formatted_once_and_for_all() {
        let format = |text: &str| lang::format(&Source::new("t.ct", text), &mut Diagnostics::default());
        for seed in 0..40 {
            let text = script(seed);
            let once = format(&text).unwrap_or_else(|failure| panic!("{failure:?}\n{text}"));
            assert_eq!(format(&once).as_ref(), Ok(&once), "{text}");
        }
    }

    /// Built-ins that no generated script uses, with the reason.
    const LEFT_OUT: &[(&str, &str)] = &[
        ("argN", "`arg0` and its like are there"),
        ("kptr", "worlds have no memory of the kernel"),
        ("ksym", "nor symbols of it"),
        ("kaddr", "nor symbols of it"),
        ("percpu_kaddr", "nor symbols of it"),
        ("curtask", "nor tasks"),
        ("ppid", "nor tasks"),
        ("pcomm", "nor tasks"),
        ("corr", "only beside records of GPUs, which have scripts of their own"),
        ("nvtx", "only at records of GPUs"),
        ("torch_op", "only at records of GPUs"),
        ("torch_backward", "only at records of GPUs"),
        ("pyline", "worlds have no Python"),
        ("pyfunc", "worlds have no Python"),
        ("torch_module", "worlds have no Python"),
        ("source_line", "worlds have no Python"),
        ("ctx", "an address that differs between the interpreter and the machine"),
    ];

    #[test]
    fn every_built_in_is_in_some_script() {
        let scripts: String = (0..600).map(script).collect();
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let words: std::collections::HashSet<&str> = scripts.split(|c| !is_name(c)).collect();
        for builtin in lang::builtins::table::all() {
            let left_out = LEFT_OUT.iter().any(|(name, _)| *name == builtin.name);
            assert_ne!(words.contains(builtin.name), left_out, "`{}`", builtin.name);
        }
    }
}
