//! Parsed scripts as text: `tests/golden/parse/*.ct`. A file is a script, then sections that each show one
//! stage: `==== ast` the tree, `==== print` the canonical text, `==== errors` the findings as they are drawn.
//! `BLESS=1` rewrites the sections.

use std::path::Path;

use lang::diagnostics::render;
use lang::syntax::print;
use lang::{Diagnostics, Source};

#[test]
fn golden_files() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/parse");
    golden_files::compare(golden_files::files(&folder, "ct", 20).into_iter().map(|path| {
        let now = shown(&std::fs::read_to_string(&path).unwrap());
        (path, now)
    }));
}

/// The current contents of a golden file.
fn shown(text: &str) -> String {
    let (script, sections) = text.split_once("==== ").expect("a file has a section");
    let first = sections.lines().next().into_iter();
    let names = first.chain(sections.lines().filter_map(|line| line.strip_prefix("==== ")));
    let stages: String = names.map(|name| format!("==== {name}\n{}", stage(name, script))).collect();
    format!("{script}{stages}")
}

fn stage(name: &str, script: &str) -> String {
    let source = Source::new("t.ct", script);
    let mut diags = Diagnostics::default();
    let ast = lang::parse(&source, &[], &mut diags);
    let findings = render::render(&diags.list, &source, false);
    match (name, ast) {
        ("errors", _) => findings,
        ("ast", Some(ast)) => print::dump(&ast),
        ("print", Some(ast)) => print::print(&ast),
        _ => findings,
    }
}
