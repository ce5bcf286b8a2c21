//! Forms that are said in smaller terms: what comes out has none of them.
//!
//! ```text
//! twice(pid)                 ->  pid + pid, after `macro twice(a) { a + a }`
//! getopt("top", 10)          ->  10, or what `--top=20` on the command line says
//! cuda:free { ... }          ->  a clause for each way in which the driver's functions say what is freed
//! ```
//!
//! Works on the text's tree alone: types and probes are not known yet. What is expanded keeps the places of what was
//! written.

pub mod blocks;
pub mod codes;
mod constant;
pub mod devices;
pub mod getopt;
pub mod import;
pub mod kernels;
pub mod labels;
mod lookup;
pub mod macros;
pub mod operations;
pub mod scope;
mod stacks;
mod times;
pub mod walk;

use crate::ast::{Expr, ExprKind, Script};
use crate::diagnostic::Diagnostics;
use getopt::Given;

/// Expands all forms of a script; `given` are the options behind it on the command line.
pub fn expand(mut script: Script, given: &[Given], diags: &mut Diagnostics) -> Script {
    macros::expand(&mut script, diags);
    getopt::expand(&mut script, given, diags);
    script.labels = labels::find(&mut script);
    blocks::expand(&mut script);
    operations::expand(&mut script, diags);
    kernels::expand(&mut script);
    devices::expand(&mut script);
    stacks::measure(&mut script);
    stacks::share(&mut script);
    script
}

/// Whether an expanded script has stacks of user space somewhere.
pub fn mentions_user_stacks(script: &Script) -> bool {
    let mut found = false;
    let see = |e: &mut Expr| {
        let name = match &e.kind {
            ExprKind::Ident(name) => name,
            ExprKind::Call { name, .. } => &name.node,
            _ => return,
        };
        found |= name == "ustack" || name == "dw_ustack";
    };
    walk::script(&mut script.clone(), &mut walk::Exprs(see));
    found
}
