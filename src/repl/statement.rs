//! Input that is no clause: the name of a map, an expression, or statements. It is executed at once.
//!
//! ```text
//! @bytes                the map, as `:show @bytes`
//! @bytes["python3"]     BEGIN { print(@bytes["python3"]) }
//! clear(@bytes)         BEGIN { clear(@bytes) }
//! ```

use lang::builtins::table;
use lang::builtins::table::Kind;
use lang::syntax::ast::{Expr, ExprKind, Item, Script, Stmt, StmtKind};
use lang::{Diagnostics, Source};

/// Action for an entered statement.
#[derive(Debug, PartialEq, Eq)]
pub enum Statement {
    /// Print a map.
    Map(String),
    /// Run these statements.
    Run(String),
    /// Report an unknown word in lower case, most likely a misspelled command.
    Unknown(String),
}

/// The statement in a text; `None` if the text is a script. `defined` has the previous definitions.
pub fn of(text: &str, defined: &str) -> Option<Statement> {
    if parsed(text).is_some() {
        return None;
    }
    let script = parsed(&format!("BEGIN {{\n{text}\n}}"))?;
    let [Item::Clause(clause)] = &script.items[..] else { return None };
    let statement = text.trim().trim_end_matches(';');
    let is_word = statement.chars().all(|letter| letter.is_ascii_lowercase());
    if is_word && table::find(statement).is_none() && !defined.contains(statement) {
        return Some(Statement::Unknown(statement.to_owned()));
    }
    Some(match &clause.body.stmts[..] {
        [Stmt { kind: StmtKind::Expr(Expr { kind: ExprKind::Map { name, keys: None }, .. }), .. }] => {
            Statement::Map(format!("@{name}"))
        }
        [Stmt { kind: StmtKind::Expr(value), .. }] if is_value(value) => {
            // The statement is on a separate line, so that messages show it alone.
            Statement::Run(format!("print(\n{statement}\n)"))
        }
        _ => Statement::Run(text.to_owned()),
    })
}

fn parsed(text: &str) -> Option<Script> {
    lang::parse(&Source::new("repl", text), &[], &mut Diagnostics::default())
}

/// Whether an expression is entered for its value.
fn is_value(expr: &Expr) -> bool {
    match &expr.kind {
        ExprKind::IncDec { .. } => false,
        ExprKind::Call { name, .. } => table::find(&name.node)
            .is_some_and(|builtin| matches!(builtin.kind, Kind::Function | Kind::Variable)),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_are_no_statements() {
        for text in ["BEGIN { @ = 1 }", "#define A 1", "config = { max_map_keys = 3 }", "uprobe:a:b { "] {
            assert_eq!(of(text, ""), None, "{text}");
        }
    }

    #[test]
    fn maps_are_shown_and_values_printed() {
        let run = |text: &str| Some(Statement::Run(text.into()));
        assert_eq!(of("@", ""), Some(Statement::Map("@".into())));
        assert_eq!(of("@bytes;", ""), Some(Statement::Map("@bytes".into())));
        assert_eq!(of("1 + 2", ""), run("print(\n1 + 2\n)"));
        assert_eq!(of("@bytes[3]", ""), run("print(\n@bytes[3]\n)"));
        assert_eq!(of("print(@)", ""), run("print(@)"));
        assert_eq!(of("@n++", ""), run("@n++"));
        assert_eq!(of("ls", ""), Some(Statement::Unknown("ls".into())));
        assert_eq!(of("size", "#define size 4\n"), run("print(\nsize\n)"));
        assert_eq!(of("clear(@a); @b = 0", ""), run("clear(@a); @b = 0"));
    }
}
