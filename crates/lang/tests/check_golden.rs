//! Checked programs as text: `tests/golden/resolve/*.ct` (where probes go) and `tests/golden/check/*.ct` (types and
//! names). A file is a script, then sections: `==== hir` the checked program, `==== findings` errors and warnings as they
//! are drawn, `==== pending` targets that are waited for. `BLESS=1` rewrites the sections.

mod common;

use std::path::Path;

use common::Machine;
use lang::diagnostics::render;
use lang::hir::print;
use lang::{Diagnostics, Options, Source, compile};

#[test]
fn resolve_golden_files() {
    folder("resolve", 10);
}

#[test]
fn check_golden_files() {
    folder("check", 20);
}

fn folder(name: &str, least: usize) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    golden_files::compare(golden_files::files(&folder, "ct", least).into_iter().map(|path| {
        let text = std::fs::read_to_string(&path).unwrap();
        let (script, _) = text.split_once("====").unwrap_or((&text, ""));
        let now = format!("{script}{}", sections(script));
        (path, now)
    }));
}

/// Non-empty sections.
fn sections(script: &str) -> String {
    let source = Source::new("t.ct", script);
    let mut diags = Diagnostics::default();
    let params = vec!["7".to_string(), "name".to_string()];
    // The first line of a script may enable functions that change the system.
    let options = Options { unsafe_ok: script.starts_with("// --unsafe"), params, ..Options::default() };
    let checked = compile(&source, &options, &Machine::new(), &mut diags);
    assert_eq!(checked.is_none(), diags.has_errors(), "{script}");
    let pending = checked.iter().flat_map(|checked| &checked.pending);
    let pending: String =
        pending.map(|p| format!("{} not in {}\n", p.target, p.looked_in.join(", "))).collect();
    let hir = checked.as_ref().map(|checked| print::print(&checked.program)).unwrap_or_default();
    let findings = render::render(&diags.list, &source, false);
    let shown = [("hir", hir), ("findings", findings), ("pending", pending)];
    shown
        .iter()
        .filter(|(_, text)| !text.is_empty())
        .map(|(name, text)| format!("==== {name}\n{text}"))
        .collect()
}
