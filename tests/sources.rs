//! Rules for the source text: comments name their subject, and files of the compiler import each other in one direction.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use regex::Regex;

/// Beginnings that stand in for the subject.
const STAND_INS: [&str; 9] =
    ["Who", "Whoever", "Whom", "Whose", "Those", "So many", "So long", "Likewise", "Of "];

/// Beginnings that stand in for the subject in the first line of a comment.
const FIRST_STAND_INS: [&str; 6] = ["What ", "It ", "They ", "Nobody ", "Nothing ", "Whatever "];

/// Beginnings that stand in for the subject in the name of a test.
const TEST_STAND_INS: [&str; 14] = [
    "what_",
    "whatever_",
    "it_",
    "they_",
    "nobody_",
    "who_",
    "whoever_",
    "whom_",
    "whose_",
    "those_",
    "so_many_",
    "so_long_",
    "likewise_",
    "of_",
];

/// Past participles that do not end in "ed".
const PARTICIPLES: [&str; 14] = [
    "Seen", "Hidden", "Written", "Known", "Given", "Taken", "Shown", "Held", "Kept", "Built", "Found",
    "Sent", "Left", "Lost",
];

/// The rooms of a crate in the order of their imports: files of a room import from those before it. A room is a folder or a file, or what is
/// named of a folder; the rest of that folder is another one.
struct Rooms {
    source: &'static str,
    order: &'static [&'static str],
    /// Imports against that order, each for a reason.
    back: &'static [(&'static str, &'static str)],
}

const ROOMS: [Rooms; 3] = [
    Rooms {
        source: "crates/lang/src",
        order: &[
            "source",
            "diagnostics",
            "catalog",
            "syntax",
            "expand",
            "hir",
            "types",
            "resolve",
            "builtins",
            "check",
        ],
        // Conversions of expressions ask which values a type holds.
        back: &[("hir/make", "types")],
    },
    Rooms {
        source: "crates/runtime/src",
        order: &[
            "error",
            "kernel",
            "remote",
            "started",
            "shared",
            "handles",
            "read",
            "stacks",
            "in_process",
            "gpu",
            "options",
            "load",
            "attach",
            "session",
        ],
        back: &[],
    },
    Rooms {
        source: "src",
        order: &[
            "bundled",
            "imports",
            "timer",
            "mailbox",
            "terminal",
            "python",
            "kernel_catalog",
            "console",
            "symbolize",
            "export",
            "cli",
            "subcommand",
            "arguments",
            "script",
            "patch_sites",
            "gpu",
            "metrics",
            "run",
            // The prompt has these subcommands as commands.
            "commands/explain",
            "commands/list",
            "commands/script_help",
            "repl",
            "commands",
        ],
        back: &[],
    },
];

#[test]
fn comments_and_names_of_tests_begin_with_their_subject() {
    let mut files = Vec::new();
    ["src", "crates", "tests"].iter().for_each(|folder| sources(&root().join(folder), &mut files));
    assert!(files.len() > 400, "{} files", files.len());
    let wrong: Vec<String> =
        files.iter().flat_map(|file| [stand_ins(file), first_stand_ins(file)].concat()).collect();
    assert!(wrong.is_empty(), "these comments and tests lack a subject:\n{}", wrong.join("\n"));
}

/// The name of a type says which thing it is: `Loaded` leaves that open, `LoadedRun` does not.
#[test]
fn names_of_types_end_with_a_noun() {
    static TYPE: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(
            r"^\s*(?:pub(?:\([a-z]+\))? )?(?:struct|enum|union|trait|type) [A-Za-z0-9]*?([A-Z][a-z0-9]*)\b",
        )
        .expect("valid")
    });
    let is_participle =
        |word: &str| PARTICIPLES.contains(&word) || word.ends_with("ed") && !word.ends_with("eed");
    let mut files = Vec::new();
    ["src", "crates", "tests", "benches"].iter().for_each(|folder| sources(&root().join(folder), &mut files));
    let mut wrong = Vec::new();
    for file in &files {
        let text = fs::read_to_string(file).expect("a source file");
        let names =
            text.lines().filter(|line| TYPE.captures(line).is_some_and(|found| is_participle(&found[1])));
        wrong.extend(names.map(|line| format!("{}: {}", file.display(), line.trim())));
    }
    assert!(wrong.is_empty(), "these types are named by a participle:\n{}", wrong.join("\n"));
}

#[test]
fn files_of_a_crate_import_each_other_in_one_direction() {
    let mut circles = Vec::new();
    for (name, source) in crates() {
        let mut left = Crate::read(&source).imports();
        // Files that import nothing that is left are in no circle, nor are those that nothing imports that is left.
        loop {
            let used: BTreeSet<String> = left.values().flatten().cloned().collect();
            let is_outside =
                |(file, to): &(&String, &BTreeSet<String>)| to.is_empty() || !used.contains(*file);
            let Some(done) = left.iter().find(is_outside).map(|(file, _)| file.clone()) else { break };
            left.remove(&done);
            left.values_mut().for_each(|to| to.retain(|file| *file != done));
        }
        circles.extend(left.into_iter().map(|(file, to)| format!("{name}: {file} imports {to:?}")));
    }
    assert!(circles.is_empty(), "these files import each other in circles:\n{}", circles.join("\n"));
}

/// The crates' names and folders of sources; the agent's library is a crate of its own.
fn crates() -> Vec<(String, PathBuf)> {
    let entries = fs::read_dir(root().join("crates")).expect("a folder").flatten();
    let inside =
        entries.map(|entry| (entry.file_name().to_string_lossy().into_owned(), entry.path().join("src")));
    let mut all: Vec<_> = inside.filter(|(_, source)| source.is_dir()).collect();
    all.extend([
        ("cudatrace".to_owned(), root().join("src")),
        ("agent's library".to_owned(), root().join("crates/agent/src/library")),
    ]);
    assert!(all.len() > 10, "{all:?}");
    all
}

#[test]
fn rooms_import_earlier_ones() {
    for Rooms { source, order, back } in ROOMS {
        // The longest name counts.
        let room = |file: &str| {
            let is_in = |room: &str| {
                file.strip_prefix(room).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            };
            let rooms = order.iter().enumerate().filter(|(_, room)| is_in(room));
            rooms.max_by_key(|(_, room)| room.len()).map(|(at, _)| at)
        };
        let imports = Crate::read(&root().join(source)).imports();
        let arrows =
            imports.iter().flat_map(|(from, all)| all.iter().map(move |to| (from.as_str(), to.as_str())));
        let against =
            arrows.filter(|(from, to)| room(from).zip(room(to)).is_some_and(|(from, to)| from < to));
        assert_eq!(against.collect::<BTreeSet<_>>(), back.iter().copied().collect(), "{source}");
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
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

/// Comments whose first line lacks its subject, and tests whose name does: `fn what_is_no_integer`.
fn first_stand_ins(file: &Path) -> Vec<String> {
    let text = fs::read_to_string(file).expect("a source file");
    let begins = |text: &str, stand_ins: &[&str]| stand_ins.iter().any(|start| text.starts_with(start));
    let (mut in_comment, mut is_test) = (false, false);
    let mut wrong = Vec::new();
    for (at, line) in text.lines().map(str::trim).enumerate() {
        let comment = line.strip_prefix("//").map(|rest| rest.trim_start_matches(['/', '!', ' ']));
        let function = line.strip_prefix("fn ");
        let is_first = !in_comment && comment.is_some_and(|text| begins(text, &FIRST_STAND_INS));
        if is_first || is_test && function.is_some_and(|name| begins(name, &TEST_STAND_INS)) {
            wrong.push(format!("{}:{}: {line}", file.display(), at + 1));
        }
        in_comment = comment.is_some();
        // Other attributes may follow `#[test]`.
        is_test = line == "#[test]" || is_test && function.is_none();
    }
    wrong
}

/// A path in an import, and whether it is exported again.
type Import = (bool, Vec<String>);

/// The modules of a crate by path, each with its text and imports; `hir` is `hir/mod.rs`.
struct Crate {
    modules: BTreeMap<Vec<String>, (String, Vec<Import>)>,
}

impl Crate {
    fn read(src: &Path) -> Crate {
        let mut files = Vec::new();
        sources(src, &mut files);
        // The agent's library is a crate of its own in the folder of the agent.
        files.retain(|file| src.ends_with("library") || !file.starts_with(src.join("library")));
        files.retain(|file| !file.ends_with("tests.rs"));
        let all: BTreeSet<Vec<String>> = files.iter().map(|file| module_of(file, src)).collect();
        let modules = files.iter().map(|file| {
            let module = module_of(file, src);
            let text = code_of(&fs::read_to_string(file).expect("a source file"));
            let imports = imports_in(&text, &module, &all);
            (module, (text, imports))
        });
        Crate { modules: modules.collect() }
    }

    /// For each file the files that it uses, without its re-exports.
    fn imports(&self) -> BTreeMap<String, BTreeSet<String>> {
        let of = |(module, (_, imports)): (&Vec<String>, &(String, Vec<Import>))| {
            let used = imports.iter().filter(|(public, _)| !public).map(|(_, path)| self.defining(path));
            (
                module.join("/"),
                used.filter(|to| to != module && !to.is_empty()).map(|to| to.join("/")).collect(),
            )
        };
        self.modules.iter().filter(|(module, _)| !module.is_empty()).map(of).collect()
    }

    /// The module that defines the last name of a path, past re-exports.
    fn defining(&self, path: &[String]) -> Vec<String> {
        let depth = (0..=path.len()).rev().find(|&depth| self.modules.contains_key(&path[..depth]));
        let (module, rest) = path.split_at(depth.expect("the crate's root"));
        let Some(name) = rest.first().filter(|name| *name != "self" && *name != "*") else {
            return module.to_vec();
        };
        for (_, exported) in self.modules[module].1.iter().filter(|(public, _)| *public) {
            let (last, parent) = exported.split_last().expect("a name");
            if last == name && exported.as_slice() != path {
                return self.defining(exported);
            }
            if last == "*" && self.modules.get(parent).is_some_and(|(text, _)| defines(text, name)) {
                return parent.to_vec();
            }
        }
        module.to_vec()
    }
}

/// `pub struct NAME {`
fn defines(text: &str, name: &str) -> bool {
    ["fn", "struct", "enum", "trait", "const", "static", "type"].iter().any(|keyword| {
        let item = format!("{keyword} {name}");
        let mut ends = text.match_indices(&item).map(|(at, item)| at + item.len());
        ends.any(|end| !text[end..].starts_with(|c: char| c.is_alphanumeric() || c == '_'))
    })
}

/// The text without comments and unit tests.
fn code_of(text: &str) -> String {
    let tests = ["#[cfg(test)]\nmod tests {", "#[cfg(test)]\npub(super) mod tests {"];
    let end = tests.iter().filter_map(|start| text.find(start)).min().unwrap_or(text.len());
    let text = &text[..end];
    text.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

static USES: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(?m)^[ \t]*(pub(?:\([^)]*\))? )?use ([\w:{},*\s]+);").expect("an expression")
});
static PATHS: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"\b(?:crate|super)(?:::\w+)+").expect("an expression"));

/// `hir/mod.rs` is `hir`.
fn module_of(file: &Path, src: &Path) -> Vec<String> {
    let path = file.strip_prefix(src).expect("below src").with_extension("");
    let names = path.iter().map(|name| name.to_string_lossy().into_owned());
    names.filter(|name| !matches!(name.as_str(), "mod" | "lib" | "main")).collect()
}

/// `use` items and paths of a module's text, as paths from the crate's root.
fn imports_in(text: &str, module: &[String], modules: &BTreeSet<Vec<String>>) -> Vec<Import> {
    let trees = USES.captures_iter(text).map(|found| (found.get(1).is_some(), found[2].to_owned()));
    let rest = USES.replace_all(text, "");
    let inline = PATHS.find_iter(&rest).map(|found| (false, found.as_str().to_owned()));
    let all =
        trees.chain(inline).flat_map(|(public, tree)| leaves(&tree).into_iter().map(move |p| (public, p)));
    all.filter_map(|(public, path)| Some((public, from_root(&path, module, modules)?))).collect()
}

/// `a::{b, c::d as e}` is `a::b` and `a::c::d`.
fn leaves(tree: &str) -> Vec<Vec<String>> {
    let Some((prefix, inner)) = tree.trim().split_once('{') else {
        let path = tree.split(" as ").next().unwrap_or_default().trim();
        return vec![path.split("::").map(|name| name.trim().to_owned()).collect()];
    };
    let prefix: Vec<String> =
        prefix.split("::").map(|name| name.trim().to_owned()).filter(|n| !n.is_empty()).collect();
    let (mut depth, mut parts) = (0, vec![String::new()]);
    for c in inner[..inner.rfind('}').expect("a closed tree")].chars() {
        depth += i32::from(c == '{') - i32::from(c == '}');
        match c {
            ',' if depth == 0 => parts.push(String::new()),
            c => parts.last_mut().expect("a part").push(c),
        }
    }
    let parts = parts.iter().filter(|part| !part.trim().is_empty());
    parts.flat_map(|part| leaves(part)).map(|leaf| [prefix.clone(), leaf].concat()).collect()
}

/// The path from the crate's root; `None` for other crates. A folder's `mod.rs` names the files beside it without a prefix.
fn from_root(path: &[String], module: &[String], modules: &BTreeSet<Vec<String>>) -> Option<Vec<String>> {
    match path[0].as_str() {
        child if modules.contains(&[module, &[child.to_owned()]].concat()) => Some([module, path].concat()),
        "crate" => Some(path[1..].to_vec()),
        "self" => Some([module, &path[1..]].concat()),
        "super" => {
            let ups = path.iter().take_while(|name| *name == "super").count();
            Some([&module[..module.len().checked_sub(ups)?], &path[ups..]].concat())
        }
        _ => None,
    }
}
