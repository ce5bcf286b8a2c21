//! Names for the parts of map keys, taken from the expressions with which the keys are first used.
//!
//! ```text
//! @[func, args.kind, kernel_name(args.kernel), $x / 2]    func, kind, kernel_name, key3
//! ```
//!
//! Runs before the other expansions, whose output has no such names.

use crate::syntax::ast;
use crate::syntax::ast::{ExprKind, Labels, Script};
use crate::syntax::visit::look;

/// Finds the names for the keys of all maps.
pub fn find(script: &Script) -> Labels {
    let mut found = Labels::new();
    let mut see = look::Exprs(|e: &ast::Expr| {
        if let ExprKind::Map { name, keys: Some(keys) } = &e.kind
            && !found.contains_key(name)
        {
            found.insert(name.clone(), labels(keys));
        }
    });
    look::script(script, &mut see);
    found
}

/// A unique name per part of a key.
fn labels(keys: &[ast::Expr]) -> Vec<String> {
    let parts = match keys {
        [ast::Expr { kind: ExprKind::Tuple(parts), .. }] => parts,
        keys => keys,
    };
    let mut names: Vec<String> = Vec::new();
    for (at, part) in parts.iter().enumerate() {
        let name = label(part).filter(|name| !names.contains(name));
        names.push(name.unwrap_or_else(|| format!("key{at}")));
    }
    names
}

/// `func`; `kind` of `args.kind`; `kernel_name` of `kernel_name(args.kernel)`; `None` for other expressions.
fn label(e: &ast::Expr) -> Option<String> {
    match &e.kind {
        ExprKind::Ident(name) | ExprKind::Var(name) => Some(name.clone()),
        ExprKind::Field { name, .. } => Some(name.node.clone()),
        ExprKind::Call { name, args } if name.node == "str" => args.first().and_then(label),
        ExprKind::Call { name, .. } => Some(name.node.clone()),
        ExprKind::Cast { expr, .. } | ExprKind::Unary { expr, .. } => label(expr),
        _ => None,
    }
}
