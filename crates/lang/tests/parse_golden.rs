//! What scripts parse to, as text: `tests/golden/parse/*.ct`. A file is a script, then sections that each show one
//! stage: `==== ast` the tree, `==== print` the canonical text, `==== errors` the findings as they are drawn.
//! `BLESS=1` rewrites the sections.

use std::path::Path;

use lang::diagnostics::render;
use lang::syntax::{parse, print};
use lang::{Diagnostics, Source};

#[test]
fn golden_files() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/parse");
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(paths.len() > 20, "the golden files are gone");
    let wrong: Vec<String> = paths.iter().filter_map(|path| check(path)).collect();
    assert!(wrong.is_empty(), "{}\nBLESS=1 accepts what is printed now", wrong.join("\n"));
}

/// The difference between a file and what the parser does now.
fn check(path: &Path) -> Option<String> {
    let text = std::fs::read_to_string(path).unwrap();
    let (script, sections) = text.split_once("==== ").expect("a file has a section");
    let names = sections
        .lines()
        .next()
        .into_iter()
        .chain(sections.lines().filter_map(|line| line.strip_prefix("==== ")));
    let shown: String = names.map(|name| format!("==== {name}\n{}", stage(name, script))).collect();
    let now = format!("{script}{shown}");
    if now != text && std::env::var_os("BLESS").is_some() {
        std::fs::write(path, &now).unwrap();
        return None;
    }
    (now != text).then(|| format!("---- {}\n{now}", path.display()))
}

fn stage(name: &str, script: &str) -> String {
    let source = Source::new("t.ct", script);
    let mut diags = Diagnostics::default();
    let ast = parse::parse(&source, &[], &mut diags);
    let findings = render::render(&diags.list, &source, false);
    match (name, ast) {
        ("errors", _) => findings,
        ("ast", Some(ast)) => print::dump(&ast),
        ("print", Some(ast)) => print::print(&ast),
        _ => findings,
    }
}
