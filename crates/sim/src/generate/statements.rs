//! Statements that contain other statements.

use super::Maker;

/// Largest nesting depth of expressions.
pub(super) const DEPTH: u32 = 4;

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
        match self.rng.below(24) {
            18..=20 if !deep => self.branch(),
            21..=23 if !deep => self.repeat(),
            _ => {
                let line = self.phrase(';', DEPTH + 1);
                self.line(&line);
            }
        }
    }

    fn branch(&mut self) {
        let condition = self.phrase('c', 3);
        self.nested(&format!("if ({condition})"));
        if self.rng.chance(20) {
            let condition = self.phrase('c', 2);
            self.nested(&format!("else if {condition}"));
        }
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
            // The order of keys differs between maps of the kernel and of the process: only sums are equal.
            2 | 3 if !self.looped && self.slot.is_some() => {
                self.line("for ($kv : @i) { $a += $kv.1 ^ $kv.0; } for ($kv : @v) { $b -= $kv.1.0; }");
            }
            0 => {
                let head = self.fill("unroll(`1..4`)", 1);
                self.nested(&head);
            }
            1 => {
                // The condition increments the counter, so that `continue` cannot make the loop endless.
                let counter = format!("$w{}", self.loops);
                self.line(&format!("{counter} = 0;"));
                let head = self.fill(&format!("while ({counter}++ < 4 && `c`)"), 2);
                self.nested(&head);
            }
            2 | 3 if !self.looped => self.over_map(),
            _ => {
                let head = self.fill(&format!("for $i{} : `0..3`..(`i` % `3..6`)", self.loops), 2);
                self.nested(&head);
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
            ("@e", "row($kv.1, \"%s\", $kv.0);"),
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
