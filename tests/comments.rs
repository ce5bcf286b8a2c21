//! The wording of comments: a comment names its subject, so that it can be understood alone and found with grep.

use std::fs;
use std::path::{Path, PathBuf};

/// Beginnings that stand in for the subject.
const STAND_INS: [&str; 9] =
    ["Who", "Whoever", "Whom", "Whose", "Those", "So many", "So long", "Likewise", "Of "];

#[test]
fn comments_begin_with_their_subject() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    ["src", "crates"].iter().for_each(|folder| sources(&root.join(folder), &mut files));
    assert!(files.len() > 400, "{} files", files.len());
    let wrong: Vec<String> = files.iter().flat_map(|file| stand_ins(file)).collect();
    assert!(wrong.is_empty(), "these comments lack a subject:\n{}", wrong.join("\n"));
}

fn sources(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder").flatten() {
        match entry.path() {
            path if path.is_dir() => sources(&path, files),
            path if path.extension().is_some_and(|extension| extension == "rs") => files.push(path),
            _ => {}
        }
    }
}

fn stand_ins(file: &Path) -> Vec<String> {
    let text = fs::read_to_string(file).expect("a source file");
    let lines = text.lines().enumerate().filter(|(_, line)| lacks_subject(line));
    lines.map(|(at, line)| format!("{}:{}: {}", file.display(), at + 1, line.trim())).collect()
}

/// `/// Of a histogram.`
fn lacks_subject(line: &str) -> bool {
    let comment = line.trim_start().strip_prefix("//").map(|rest| rest.trim_start_matches(['/', '!']));
    let text = comment.and_then(|rest| rest.strip_prefix(' '));
    text.is_some_and(|text| STAND_INS.iter().any(|start| text.starts_with(start)))
}
