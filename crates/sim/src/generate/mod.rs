//! Scripts made up at random: correct in their types, odd in all else.
//!
//! Maps and variables have fixed names and types, so that any statement may stand anywhere:
//!
//! ```text
//! @i[int64] int64   @u uint64   @t[int64, string] string    plain
//! @p[int64] struct  @r[int64] record  @v[int64] tuple        plain, of several parts
//! @c[uint64] count  @d sum      @m[int64] min  @h hist      aggregations
//! @z hash(3)  @l lruhash(5)  @pc percpulruhash(4)           maps that are full soon
//! $a $b int64   $u uint64   $n uint8   $k int16   $s string   $e enum   $p struct   $r record   $v tuple
//! ```

mod declarations;
mod statements;
mod values;

use crate::rng::Rng;
use declarations::{DECLARATIONS, FIRST, PROBES, Probe, Side};

/// The script of a seed.
pub fn script(seed: u64) -> String {
    let mut maker = Maker {
        rng: Rng::new(seed),
        text: String::new(),
        indent: 0,
        loops: 0,
        probe: &PROBES[0],
        variables: false,
        looped: false,
    };
    maker.text.push_str(DECLARATIONS);
    maker.line(FIRST);
    let clauses = 1 + maker.rng.below(3);
    for _ in 0..clauses {
        maker.clause();
    }
    maker.text
}

struct Maker {
    rng: Rng,
    text: String,
    indent: usize,
    /// Loops around the statement being made.
    loops: u32,
    probe: &'static Probe,
    /// The clause has set its variables.
    variables: bool,
    /// In a loop over a map, which it must not change.
    looped: bool,
}

impl Maker {
    fn side(&self) -> Side {
        self.probe.side
    }

    fn line(&mut self, text: &str) {
        self.text.push_str(&"  ".repeat(self.indent));
        self.text.push_str(text);
        self.text.push('\n');
    }

    fn clause(&mut self) {
        self.probe = self.rng.pick(PROBES);
        self.variables = false;
        let predicate =
            if self.rng.chance(30) { format!(" / {} /", self.condition(2)) } else { String::new() };
        self.line(&format!("{}{predicate} {{", self.probe.name));
        self.indent += 1;
        self.line("let $a: int64 = 1; let $b: int64 = -3; let $u: uint64 = 7; let $n: uint8 = 250; let $k: int16 = -5;");
        self.line("$s = \"\"; $s = comm; $e = GREEN; $v = ((int64)2, comm, ((uint8)3, (uint64)4));");
        let (address, number) = (self.address(), self.signed(1));
        self.line(&format!(
            "$p = *(struct point *){address}; $r = (a = {number}, b = comm, c = (x = $u, y = $k));"
        ));
        self.variables = true;
        self.block();
        self.line("printf(\"%d %d %u %d %d %s %s\", $a, $b, $u, $n, $k, $s, $e); print(($p, $r, $v));");
        self.indent -= 1;
        self.line("}");
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
