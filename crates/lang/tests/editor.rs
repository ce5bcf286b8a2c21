//! `docs/editor/cudatrace.tmLanguage.json` is written from the tables: keywords of the grammar, built-ins, kinds of probe.
//! `BLESS=1 cargo test -p cudatrace-lang --test editor` rewrites it.

use std::collections::BTreeSet;
use std::path::Path;

use lang::builtins::table::{self, Kind};
use lang::resolve::providers::PROVIDERS;
use serde_json::{Value, json};

const GRAMMAR: &str = include_str!("../src/syntax/grammar.pest");

/// The keywords of the grammar: those of its `kw_` rules and of `keyword`.
fn keywords() -> BTreeSet<&'static str> {
    let rule = |line: &&str| line.starts_with("kw_");
    let of_rule = GRAMMAR.lines().filter(rule).filter_map(|line| line.split('"').nth(1));
    let list = GRAMMAR.split_once("\nkeyword ").and_then(|(_, rest)| rest.split_once('}')).expect("a list").0;
    of_rule.chain(list.split('"').skip(1).step_by(2)).collect()
}

fn builtins(kinds: &[Kind]) -> BTreeSet<&'static str> {
    let names = table::all().filter(|builtin| kinds.contains(&builtin.kind)).map(|builtin| builtin.name);
    names.map(|name| if name == "argN" { "arg[0-9]+" } else { name }).collect()
}

fn providers() -> BTreeSet<&'static str> {
    PROVIDERS.iter().flat_map(|provider| provider.names).copied().collect()
}

fn any<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    words.into_iter().collect::<Vec<_>>().join("|")
}

fn whole(words: &BTreeSet<&str>) -> String {
    format!("\\b({})\\b", any(words.iter().copied()))
}

fn rule(name: &str, pattern: &str) -> Value {
    json!({ "name": format!("{name}.cudatrace"), "match": pattern })
}

fn grammar() -> Value {
    let strings = json!({
        "name": "string.quoted.double.cudatrace", "begin": "\"", "end": "\"|$",
        "patterns": [
            rule("constant.character.escape", r"\\([0-7]{1,3}|x[0-9a-fA-F]{1,2}|.)"),
            rule("constant.other.placeholder", "%[-+ #0]*[0-9]*(\\.[0-9]+)?(hh|h|ll|l|z|j)?[a-zA-Z]|%%"),
        ],
    });
    let comment = json!({ "name": "comment.block.cudatrace", "begin": "/\\*", "end": "\\*/" });
    let probe = json!({
        "match": format!("(?i:\\b({}))(:[^\\s,{{]+)", any(providers())),
        "captures": {
            "1": { "name": "storage.type.probe.cudatrace" },
            "2": { "name": "entity.name.function.probe.cudatrace" },
        },
    });
    json!({
        "$schema": "https://raw.githubusercontent.com/martinring/tmlanguage/master/tmlanguage.json",
        "name": "cudatrace",
        "scopeName": "source.cudatrace",
        "fileTypes": ["ct", "bt"],
        "firstLineMatch": "^#!.*\\b(cudatrace|bpftrace)\\b",
        "patterns": [
            rule("comment.line.double-slash", "//.*$"),
            comment,
            rule("comment.line.shebang", "\\A#!.*$"),
            rule("meta.preprocessor", "^\\s*#\\s*(define|include)\\b.*$"),
            strings,
            probe,
            rule("storage.type.probe", "\\b(?i:begin|end)\\b"),
            rule("keyword.control", &whole(&keywords())),
            rule("support.function", &whole(&builtins(&[Kind::Function, Kind::Action, Kind::Aggregation]))),
            rule("variable.language", &whole(&builtins(&[Kind::Variable]))),
            rule("variable.other.map", "@\\w*"),
            rule("variable.other", "\\$(\\w+|#)"),
            rule("storage.type", "\\b(struct|union|enum|typedef|u?int(8|16|32|64)?(_t)?|bool|char|short|long|void|unsigned|signed|size_t|string)\\b"),
            rule("constant.other", "\\b(CUDA_|CU_|cuda[A-Z]|nccl[A-Z])\\w*\\b"),
            rule("constant.numeric", "\\b(0[xX][0-9a-fA-F_]+|[0-9][0-9_]*(e[0-9]+|ns|us|ms|s|m|h|d|[uUlL]+)?)\\b"),
            rule("keyword.operator", "->|\\+\\+|--|<<|>>|[=!<>]=|&&|\\|\\||[-+*/%&|^~!<>=?:]"),
        ],
    })
}

#[test]
fn highlighting_is_in_step_with_the_tables() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/editor/cudatrace.tmLanguage.json");
    let now = serde_json::to_string_pretty(&grammar()).unwrap() + "\n";
    golden_files::compare([(path, now)]);
}

#[test]
fn words_of_the_language_are_found() {
    let keywords = keywords();
    for word in ["if", "else", "while", "for", "let", "return", "sizeof", "config"] {
        assert!(keywords.contains(word), "{word} is not in {keywords:?}");
    }
    assert!(providers().contains("uprobe") && builtins(&[Kind::Action]).contains("printf"));
}
