//! The pages: all are part of the site, and no link leads nowhere.

use regex::Regex;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// All pages of the repository.
fn pages() -> Vec<PathBuf> {
    let folders = [
        "",
        "docs",
        "docs/editor",
        "scripts",
        "examples/cuda",
        "examples/llm",
        "examples/observability",
        "crates/cuda/gen",
    ];
    let files =
        folders.iter().flat_map(|folder| fs::read_dir(root().join(folder)).expect("a folder").flatten());
    let pages: Vec<PathBuf> =
        files.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|e| e == "md")).collect();
    assert!(pages.len() > 20, "{pages:?}");
    pages
}

/// Lines outside of blocks of code.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut is_code = false;
    text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    })
}

/// Targets of the links of a page.
fn links(text: &str) -> Vec<String> {
    static LINK: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\]\(([^)\s]+)\)").expect("an expression"));
    static CODE: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"`[^`]*`").expect("an expression"));
    // The text of a link may be code; its target is not.
    let all = prose(text).collect::<Vec<_>>().join("\n");
    let all = CODE.replace_all(&all, "`");
    LINK.captures_iter(&all).map(|found| found[1].to_owned()).collect()
}

/// The anchors of a page's headings, as readers of Markdown make them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    let headings = prose(text).filter(|line| line.starts_with('#'));
    headings
        .map(|line| {
            let kept = |c: char| match c {
                ' ' => Some('-'),
                '-' | '_' => Some(c),
                c => c.is_alphanumeric().then(|| c.to_ascii_lowercase()),
            };
            let anchor: String = line.trim_start_matches('#').trim().chars().filter_map(kept).collect();
            let count = seen.entry(anchor.clone()).or_default();
            *count += 1;
            if *count == 1 { anchor } else { format!("{anchor}-{}", *count - 1) }
        })
        .collect()
}

#[test]
fn each_link_leads_to_a_file_and_a_heading() {
    let mut wrong = vec![];
    for page in pages() {
        let text = fs::read_to_string(&page).expect("a page");
        for link in links(&text).into_iter().filter(|link| !link.contains("://")) {
            let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let to = if file.is_empty() { page.clone() } else { page.parent().expect("a folder").join(file) };
            let has_anchor = || anchors(&fs::read_to_string(&to).unwrap_or_default()).contains(anchor);
            if !to.exists() || !anchor.is_empty() && !has_anchor() {
                wrong.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn each_page_is_part_of_the_site_once() {
    let docs = root().join("docs");
    let listed = links(&fs::read_to_string(docs.join("SUMMARY.md")).expect("the list of pages"));
    let files = fs::read_dir(&docs).expect("a folder").flatten();
    let names = files.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let pages: BTreeSet<String> =
        names.filter(|name| name.ends_with(".md") && name != "SUMMARY.md").collect();
    assert_eq!(listed.iter().cloned().collect::<BTreeSet<_>>(), pages);
    assert_eq!(listed.len(), pages.len(), "a page is listed twice");
}
