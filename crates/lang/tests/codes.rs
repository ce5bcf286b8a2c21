//! Each code of `lang::diagnostics::codes` keeps its word: its example shows this code and no other, its repaired example shows nothing,
//! and `tests/golden/codes/CODE.txt` has the finding as it is drawn (`BLESS=1` rewrites it).

mod common;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use common::Machine;
use lang::diagnostics::{Code, codes, render};
use lang::expand::import;
use lang::expand::import::{Files, ImportedScript};
use lang::{Diagnostics, Options, Severity, Source, compile};

/// Imported scripts for an example.
struct Neighbours;

const NEIGHBOURS: &[(&str, &str)] = &[
    ("common.ct", "#define LIMIT 10"),
    ("settings.ct", "config = { max_strlen = 64 }"),
    ("circle.ct", "import \"circle.ct\";"),
];

impl Files for Neighbours {
    fn import(&self, _: &str, path: &str) -> Result<Vec<ImportedScript>, String> {
        let (name, text) = NEIGHBOURS.iter().find(|(name, _)| *name == path).ok_or("no such file")?;
        Ok(vec![ImportedScript { name: name.to_string(), text: text.to_string() }])
    }
}

/// The diagnostics of a script for `code`. Missing targets are accepted, unless the code is about them.
fn findings(code: &Code, script: &str) -> (Diagnostics, Source) {
    let mut source = Source::new("t.ct", script);
    let mut diags = Diagnostics::default();
    import::load(&mut source, &Neighbours, &mut diags);
    let checked = compile(&source, &Options::default(), &Machine::new(), &mut diags);
    let pending = checked.iter().flat_map(|checked| &checked.pending).filter(|_| code.code == "E0111");
    pending.for_each(|pending| pending.refuse(&Machine::new(), &mut diags));
    (diags, source)
}

fn all() -> impl Iterator<Item = &'static Code> {
    codes::TABLES.iter().copied().flatten()
}

#[test]
fn examples_show_their_code_alone() {
    let found = |code: &Code| -> BTreeSet<&str> {
        findings(code, code.example).0.list.iter().map(|d| d.code).collect()
    };
    let wrong: Vec<_> = all().filter(|code| found(code) != BTreeSet::from([code.code])).collect();
    let said = |code: &&Code| format!("{}: {}\n{:?}", code.code, code.example, found(code));
    assert!(wrong.is_empty(), "{}", wrong.iter().map(said).collect::<Vec<_>>().join("\n"));
}

#[test]
fn repaired_examples_show_nothing() {
    let said = |code: &Code| {
        let (diags, source) = findings(code, code.repaired);
        (!diags.list.is_empty())
            .then(|| format!("{}\n{}", code.code, render::render(&diags.list, &source, false)))
    };
    let wrong: Vec<String> = all().filter_map(said).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn codes_are_unique_and_their_letter_says_how_bad_they_are() {
    let mut seen = BTreeSet::new();
    for code in all() {
        assert!(seen.insert(code.code), "{} is there twice", code.code);
        for diag in findings(code, code.example).0.list.iter().filter(|diag| diag.code == code.code) {
            let letter = if diag.severity == Severity::Error { "E" } else { "W" };
            assert!(code.code.starts_with(letter), "{}: {:?}", code.code, diag.severity);
        }
    }
}

#[test]
fn golden_files() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/codes");
    golden_files::compare(all().map(|code| {
        let (diags, source) = findings(code, code.example);
        let now = render::render(&diags.list, &source, false);
        (folder.join(format!("{}.txt", code.code)), now)
    }));
}

/// Every Rust file below `folder`.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let below = |path: PathBuf| if path.is_dir() { sources(&path) } else { vec![path] };
    entries.flat_map(below).filter(|path| path.extension().is_some_and(|end| end == "rs")).collect()
}

#[test]
fn every_finding_of_the_sources_is_explained() {
    let is_code = |text: &&str| {
        text.len() == 5 && text.starts_with(['E', 'W']) && text[1..].bytes().all(|b| b.is_ascii_digit())
    };
    let mut used = BTreeSet::new();
    for path in sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src")) {
        let text = std::fs::read_to_string(path).unwrap();
        used.extend(text.split('"').filter(is_code).map(String::from));
    }
    let explained: BTreeSet<String> = all().map(|code| code.code.to_string()).collect();
    assert_eq!(used, explained, "codes in the sources and in the tables differ");
}
