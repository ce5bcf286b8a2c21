//! Expansions: rewrites syntactic sugar into smaller terms. The output contains none of it.
//!
//! ```text
//! twice(pid)                 ->  pid + pid, after `macro twice(a) { a + a }`
//! getopt("top", 10)          ->  10, or 20 with `--top=20` on the command line
//! cuda:free { ... }          ->  a clause per group of driver functions with the same arguments
//! ```
//!
//! Works on the syntax tree alone: types and attach points are not known yet. Expanded nodes keep the spans of the source.

mod const_eval;
mod durations;
pub mod gpu;
mod gpu_launches;
pub mod import;
pub mod ioctl_hooks;
pub mod ioctls;
pub mod key_labels;
pub mod macros;
pub mod map_prefix;
pub mod operations;
mod operators;
pub mod options;
mod prelude;
pub mod shared_stacks;
pub mod template;

use crate::diagnostics::Diagnostics;
use crate::syntax::FindBuiltin;
use crate::syntax::ast::{Clause, Expr, ExprKind, Name, Script};
use crate::syntax::visit::{Preorder, look};
use options::OptionValue;
use std::collections::BTreeSet;

/// Expands a script; `given` are its options on the command line.
pub fn expand(
    mut script: Script,
    given: &[OptionValue],
    builtins: FindBuiltin,
    diags: &mut Diagnostics,
) -> Script {
    macros::expand(&mut script, builtins, diags);
    options::expand(&mut script, given, diags);
    script.labels = key_labels::find(&script);
    prelude::allocations(&mut script);
    gpu_launches::expand(&mut script);
    operations::expand(&mut script, diags);
    ioctls::expand(&mut script, diags);
    gpu::expand(&mut script, diags);
    prelude::kernel_names(&mut script);
    prelude::devices(&mut script);
    shared_stacks::measure(&mut script);
    shared_stacks::share(&mut script);
    script
}

/// Names of the maps that a clause may use: not those in branches that are never taken.
pub fn maps_of(clause: &Clause) -> BTreeSet<String> {
    match clause.predicate.as_ref().and_then(const_eval::truth) {
        Some(false) => BTreeSet::new(),
        _ => map_names(clause, false),
    }
}

/// Names of the maps in a clause; with `all`, also those in branches that are never taken.
pub fn map_names(clause: &Clause, all: bool) -> BTreeSet<String> {
    struct Names {
        found: BTreeSet<String>,
        all: bool,
    }
    impl look::Visit for Names {
        fn enters(&self, condition: &Expr) -> bool {
            self.all || const_eval::truth(condition) != Some(false)
        }

        fn before_expr(&mut self, e: &Expr) {
            if let ExprKind::Map { name, .. } = &e.kind {
                self.found.insert(name.clone());
            }
        }

        fn map(&mut self, name: &Name) {
            self.found.insert(name.node.clone());
        }
    }
    let mut names = Names { found: BTreeSet::new(), all };
    look::clause(clause, &mut names);
    names.found
}

/// Whether an expanded script uses user stacks.
pub fn mentions_user_stacks(script: &Script) -> bool {
    mentions(script, |e| shared_stacks::user_stack(e).is_some())
}

/// Whether a script may use native frames of user stacks, not only those of Python.
pub fn mentions_native_stacks(script: &Script) -> bool {
    mentions(script, |e| shared_stacks::user_stack(e) == Some(shared_stacks::UserStack::Native))
}

fn mentions(script: &Script, mut is_one: impl FnMut(&Expr) -> bool) -> bool {
    let mut found = false;
    let see = |e: &Expr| found |= is_one(e);
    look::script(script, &mut Preorder(see));
    found
}
