//! Expressions of `#if` and `#elif`: integers, C's operators, `defined(NAME)`, and names that `#define` gave a value.
//!
//! ```text
//! defined(FAST) && LIMIT >= 10        LINUX_VERSION_CODE >= KERNEL_VERSION(5, 8, 0)
//! ```

use std::collections::HashMap;

/// Limit of nested definitions whose values are expressions.
const MOST_NESTED: usize = 32;

/// Binary operators by precedence, the lowest first.
const OPERATORS: &[&[&str]] = &[
    &["||"],
    &["&&"],
    &["|"],
    &["^"],
    &["&"],
    &["==", "!="],
    &["<=", ">=", "<", ">"],
    &["<<", ">>"],
    &["+", "-"],
    &["*", "/", "%"],
];

/// Evaluates a condition. An undefined name is 0, as in C.
///
/// # Errors
/// The condition is invalid; the error is the reason.
pub(crate) fn holds(text: &str, defined: &HashMap<String, String>) -> Result<bool, String> {
    value(text, defined, 0).map(|value| value != 0)
}

/// The names and numbers in a text.
pub(crate) fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !is_word(c)).filter(|word| !word.is_empty())
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

fn value(text: &str, defined: &HashMap<String, String>, depth: usize) -> Result<i64, String> {
    if depth > MOST_NESTED {
        return Err("it is nested too deeply".into());
    }
    let mut reader = Reader { rest: text.trim(), defined, depth };
    let value = reader.ternary()?;
    match reader.rest {
        "" => Ok(value),
        rest => Err(format!("unexpected `{rest}`")),
    }
}

struct Reader<'a> {
    rest: &'a str,
    defined: &'a HashMap<String, String>,
    depth: usize,
}

impl<'a> Reader<'a> {
    fn eat(&mut self, mark: &str) -> bool {
        let Some(rest) = self.rest.strip_prefix(mark) else { return false };
        self.rest = rest.trim_start();
        true
    }

    fn expect(&mut self, mark: &str) -> Result<(), String> {
        if self.eat(mark) { Ok(()) } else { Err(format!("`{mark}` is missing")) }
    }

    fn word(&mut self) -> &'a str {
        let rest = self.rest;
        let (word, rest) = rest.split_at(rest.find(|c| !is_word(c)).unwrap_or(rest.len()));
        self.rest = rest.trim_start();
        word
    }

    fn ternary(&mut self) -> Result<i64, String> {
        let condition = self.binary(0)?;
        if !self.eat("?") {
            return Ok(condition);
        }
        let yes = self.ternary()?;
        self.expect(":")?;
        let no = self.ternary()?;
        Ok(if condition != 0 { yes } else { no })
    }

    fn binary(&mut self, level: usize) -> Result<i64, String> {
        let Some(operators) = OPERATORS.get(level) else { return self.unary() };
        let mut left = self.binary(level + 1)?;
        while let Some(operator) = operators.iter().find(|operator| self.is_next(operator)) {
            self.eat(operator);
            let right = self.binary(level + 1)?;
            left = apply(operator, left, right)?;
        }
        Ok(left)
    }

    /// Whether the text begins with an operator: `|` is not the start of `||`, nor `<` of `<<`.
    fn is_next(&self, operator: &str) -> bool {
        let longer = |other: &&str| other.len() > operator.len() && self.rest.starts_with(*other);
        self.rest.starts_with(operator) && !OPERATORS.iter().flat_map(|level| level.iter()).any(longer)
    }

    fn unary(&mut self) -> Result<i64, String> {
        self.depth += 1;
        if self.depth > MOST_NESTED {
            return Err("it is nested too deeply".into());
        }
        let value = self.operand();
        self.depth -= 1;
        value
    }

    fn operand(&mut self) -> Result<i64, String> {
        if self.eat("!") {
            return Ok(i64::from(self.unary()? == 0));
        }
        if self.eat("-") {
            return Ok(self.unary()?.wrapping_neg());
        }
        if self.eat("~") {
            return Ok(!self.unary()?);
        }
        if self.eat("+") {
            return self.unary();
        }
        if self.eat("(") {
            let value = self.ternary()?;
            return self.expect(")").map(|()| value);
        }
        match self.word() {
            "" if self.rest.is_empty() => Err("an operand is missing".into()),
            "" => Err(format!("unexpected `{}`", self.rest)),
            "defined" => self.is_defined(),
            "KERNEL_VERSION" => self.kernel_version(),
            word if word.starts_with(|c: char| c.is_ascii_digit()) => number(word),
            word => match self.defined.get(word) {
                Some(text) => value(text, self.defined, self.depth + 1),
                None => Ok(0),
            },
        }
    }

    fn is_defined(&mut self) -> Result<i64, String> {
        let brackets = self.eat("(");
        let name = self.word();
        if brackets {
            self.expect(")")?;
        }
        Ok(i64::from(self.defined.contains_key(name)))
    }

    /// `KERNEL_VERSION(a, b, c)`: the number for comparison with `LINUX_VERSION_CODE`.
    fn kernel_version(&mut self) -> Result<i64, String> {
        self.expect("(")?;
        let major = self.ternary()?;
        self.expect(",")?;
        let minor = self.ternary()?;
        self.expect(",")?;
        let patch = self.ternary()?;
        self.expect(")")?;
        Ok((major << 16) + (minor << 8) + patch.min(255))
    }
}

fn number(word: &str) -> Result<i64, String> {
    let digits = word.trim_end_matches(['u', 'U', 'l', 'L']);
    let parsed = match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        Some(hex) => u64::from_str_radix(hex, 16),
        None if digits.len() > 1 && digits.starts_with('0') => u64::from_str_radix(&digits[1..], 8),
        None => digits.parse(),
    };
    parsed.map(|value| value as i64).map_err(|_| format!("`{word}` is not an integer"))
}

fn apply(operator: &str, a: i64, b: i64) -> Result<i64, String> {
    Ok(match operator {
        "||" => i64::from(a != 0 || b != 0),
        "&&" => i64::from(a != 0 && b != 0),
        "|" => a | b,
        "^" => a ^ b,
        "&" => a & b,
        "==" => i64::from(a == b),
        "!=" => i64::from(a != b),
        "<=" => i64::from(a <= b),
        ">=" => i64::from(a >= b),
        "<" => i64::from(a < b),
        ">" => i64::from(a > b),
        "<<" => a.wrapping_shl(b as u32),
        ">>" => a.wrapping_shr(b as u32),
        "+" => a.wrapping_add(b),
        "-" => a.wrapping_sub(b),
        "*" => a.wrapping_mul(b),
        _ if b == 0 => return Err("division by zero".into()),
        "/" => a.wrapping_div(b),
        _ => a.wrapping_rem(b),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_have_the_values_of_c() {
        let defined: HashMap<String, String> =
            [("N", "4"), ("M", "(N + 1)"), ("EMPTY", ""), ("LOOP", "LOOP")]
                .map(|(n, v)| (n.into(), v.into()))
                .into();
        for (text, wanted) in [
            ("1 + 2 * 3 == 7", 1),
            ("(1 + 2) * 3", 9),
            ("1 << 4 | 1", 17),
            ("2 > 1 && 0 || !0", 1),
            ("M * 2", 10),
            ("defined(N) + defined M + defined(X)", 2),
            ("UNKNOWN", 0),
            ("-1 < 0 ? 0x1f : 017", 31),
            ("KERNEL_VERSION(5, 8, 0) == 0x50800", 1),
            ("10 % 4 - 1UL", 1),
        ] {
            assert_eq!(value(text, &defined, 0), Ok(wanted), "{text}");
        }
        for wrong in ["", "1 +", "(1", "1 2", "1 / 0", "EMPTY", "LOOP", "\"a\"", "1.5"] {
            assert!(value(wrong, &defined, 0).is_err(), "{wrong}");
        }
    }
}
