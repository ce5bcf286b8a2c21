//! Several scripts in one run: prefixes map names, so that each script has its own maps.
//!
//! ```text
//! @live[args.ptr] = 1     in `memleak`, with other scripts:  @memleak.live[args.ptr] = 1
//! ```
//!
//! Runs on expanded scripts. The maps of preludes are shared by all scripts.

use crate::syntax::ast::{Expr, ExprKind, Item, Name, Script};
use crate::syntax::visit::change::{self as visit, Visit};

/// Prefixes the names of maps with the name of their script.
pub fn maps(script: &mut Script, scope: &str) {
    let mut add_prefix = AddPrefix { scope };
    visit::script(script, &mut add_prefix);
    for item in &mut script.items {
        match item {
            Item::MapDecl { name, .. } => add_prefix.rename(&mut name.node),
            Item::Metric { map, .. } => add_prefix.rename(&mut map.node),
            _ => {}
        }
    }
}

struct AddPrefix<'s> {
    scope: &'s str,
}

impl AddPrefix<'_> {
    fn rename(&self, name: &mut String) {
        if wire::map::is_hidden(name) {
            return;
        }
        *name = if name.is_empty() { self.scope.to_owned() } else { format!("{}.{name}", self.scope) };
    }
}

impl Visit for AddPrefix<'_> {
    fn expr(&mut self, e: &mut Expr) {
        if let ExprKind::Map { name, .. } = &mut e.kind {
            self.rename(name);
        }
    }

    fn map(&mut self, name: &mut Name) {
        self.rename(&mut name.node);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnostics::Diagnostics;
    use crate::parse;
    use crate::source::span::Source;

    #[test]
    fn all_maps_but_those_of_names_are_scoped() {
        let text = "let @d = hash(10); BEGIN { @a[@b] = 1; for ($kv : @c) { print(@) } @__kernel_texts[1] = \"x\"; @d[1] = 1; } metric @h = { name = \"h\"; }";
        let mut script = parse(&Source::new("x", text), &[], &mut Diagnostics::default()).unwrap();
        maps(&mut script, "s");
        let shown = crate::syntax::print::print(&script);
        for name in
            ["@s.a[@s.b]", "@s.c", "print(@s)", "@__kernel_texts", "let @s.d", "@s.d[1]", "metric @s.h"]
        {
            assert!(shown.contains(name), "{name} in {shown}");
        }
    }
}
