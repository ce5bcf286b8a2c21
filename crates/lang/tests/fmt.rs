//! `cudatrace fmt`: golden files show the style (`tests/golden/fmt/*.ct`, `BLESS=1` rewrites what is below `====`), and every
//! script of the repository keeps its meaning and its comments, and is left alone the second time.

use std::path::{Path, PathBuf};

use lang::syntax::format;
use lang::{Diagnostics, Source};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn files(folder: &str, end: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(root().join(folder)).unwrap().map(|entry| entry.unwrap().path());
    let mut paths: Vec<_> =
        entries.filter(|path| path.extension().is_some_and(|found| found == end)).collect();
    paths.sort();
    assert!(!paths.is_empty(), "no scripts in {folder}");
    paths
}

fn formatted(script: &str) -> Result<String, format::Failure> {
    lang::format(&Source::new("t.ct", script), &mut Diagnostics::default())
}

#[test]
fn golden_files() {
    golden_files::compare(files("crates/lang/tests/golden/fmt", "ct").into_iter().map(|path| {
        let text = std::fs::read_to_string(&path).unwrap();
        let script = text.split("====\n").next().unwrap();
        let now = format!("{script}====\n{}", formatted(script).unwrap());
        (path, now)
    }));
}

#[test]
fn bundled_scripts_are_formatted() {
    for path in files("scripts", "ct").into_iter().chain(files("scripts/lib", "ct")) {
        let script = std::fs::read_to_string(&path).unwrap();
        assert!(formatted(&script).unwrap() == script, "cudatrace fmt {}", path.display());
    }
}

/// The scripts of the repository: files, the parts above `====` in golden files, and those in the manual.
fn scripts() -> Vec<String> {
    let mut scripts = Vec::new();
    for folder in
        ["scripts", "tests/agree", "crates/lang/tests/golden/parse", "crates/lang/tests/golden/check"]
    {
        for path in files(folder, "ct") {
            let text = std::fs::read_to_string(path).unwrap();
            scripts.push(text.split("====").next().unwrap().to_string());
        }
    }
    for path in files("docs", "md") {
        let text = std::fs::read_to_string(path).unwrap();
        scripts.extend(text.split("```ct").skip(1).filter_map(|block| {
            let (_, script) = block.split_once('\n')?;
            Some(script.split("```").next()?.to_string())
        }));
    }
    for path in files("tests/live", "test") {
        let text = std::fs::read_to_string(path).unwrap().replace("\n         ", "\u{1}");
        let lines = text.lines().filter_map(|line| line.strip_prefix("SCRIPT"));
        scripts.extend(lines.map(|script| script.trim().replace('\u{1}', "\n")));
    }
    scripts.extend(lang::builtins::table::all().map(|builtin| builtin.example.to_string()));
    scripts
}

/// Comments in order, without surrounding blanks.
fn comments(script: &str) -> Vec<&str> {
    let whole = script.lines().map(str::trim).filter(|line| line.starts_with("//") || line.starts_with("/*"));
    whole.collect()
}

/// Asserts that formatting a valid script is idempotent.
fn check(script: &str) -> bool {
    let params = vec!["1".to_string(); 64];
    if lang::parse(&Source::new("t.ct", script), &params, &mut Diagnostics::default()).is_none() {
        return false;
    }
    let once = formatted(script).unwrap_or_else(|failure| panic!("{failure:?}\n{script}"));
    let twice = formatted(&once).unwrap_or_else(|failure| panic!("{failure:?}\n{once}"));
    assert_eq!(once, twice, "formatted again it changes:\n{script}");
    let kept = comments(&once);
    assert!(comments(script).iter().all(|comment| kept.contains(comment)), "{script}\n{once}");
    assert!(once.lines().all(|line| line.trim_end() == line), "{once}");
    true
}

#[test]
fn every_script_is_formatted_once_and_for_all() {
    let scripts = scripts();
    let read = scripts.iter().filter(|script| check(script)).count();
    assert!(read > 200, "{read} of {}", scripts.len());
}

/// Blanks of a script change the result of formatting only in its line breaks.
#[test]
fn blanks_do_not_matter() {
    let words = |text: &str| text.split_whitespace().collect::<String>().replace(';', "");
    for script in scripts().iter().filter(|script| !script.contains("//") && !script.contains('#')) {
        let wide = script.replace('\n', "\n\n\n  ");
        if let (Ok(plain), Ok(wide)) = (formatted(script), formatted(&wide)) {
            assert_eq!(words(&plain), words(&wide), "{script}");
        }
    }
}

#[test]
fn mistakes_are_reported() {
    let mut diags = Diagnostics::default();
    let result = lang::format(&Source::new("t.ct", "BEGIN { $x = ; }"), &mut diags);
    assert_eq!((result, diags.list[0].code), (Err(format::Failure::Wrong), "E0001"));
}
