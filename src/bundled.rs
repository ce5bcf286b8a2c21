//! Bundled scripts: `cudatrace NAME` runs `scripts/NAME.ct`.

use lang::expand::options::{self, ScriptOption};
use lang::{Diagnostics, Source};

/// An embedded script.
pub struct BundledScript {
    /// Name on the command line.
    pub name: &'static str,
    /// Source text.
    pub text: &'static str,
}

macro_rules! scripts {
    ($($name:literal),*) => { &[$(BundledScript { name: $name, text: include_str!(concat!("../scripts/", $name, ".ct")) }),*] };
}

/// All embedded scripts, sorted by name.
pub const SCRIPTS: &[BundledScript] = scripts![
    "bandwidth",
    "calls",
    "churn",
    "copies",
    "delay",
    "doublefree",
    "errors",
    "events",
    "gpu",
    "gpuprobe",
    "graphs",
    "idle",
    "ioctls",
    "kernels",
    "latency",
    "launchgap",
    "lines",
    "memcpy",
    "memleak",
    "memory",
    "metrics",
    "modules",
    "nccl",
    "nvtx",
    "offcpu",
    "oom",
    "pipeline",
    "silent",
    "steps",
    "streams",
    "summary",
    "sync",
    "top",
    "uvm",
    "xid"
];

/// All embedded scripts, grouped by the question that they answer.
pub const BY_QUESTION: &[(&str, &[&str])] = &[
    ("What does it do?", &["summary", "top", "calls", "events", "gpuprobe"]),
    (
        "Why is it slow?",
        &[
            "steps",
            "launchgap",
            "sync",
            "kernels",
            "latency",
            "graphs",
            "streams",
            "modules",
            "nccl",
            "offcpu",
            "pipeline",
            "ioctls",
        ],
    ),
    ("What did the GPU do?", &["gpu", "lines", "idle", "copies", "delay", "nvtx"]),
    ("Memory", &["memory", "memleak", "oom", "churn", "doublefree"]),
    ("Copies", &["bandwidth", "memcpy", "uvm"]),
    ("Errors", &["errors", "silent", "xid"]),
    ("Many machines, for days", &["metrics"]),
];

/// Macros that scripts import, by path.
const LIBRARIES: &[(&str, &str)] = &[("lib/percentiles.ct", include_str!("../scripts/lib/percentiles.ct"))];

/// An import without a file: a library by its path, or a script by its name. Its file name in messages, and its text.
pub fn imported(path: &str) -> Option<(String, &'static str)> {
    let library = LIBRARIES.iter().find(|(name, _)| *name == path);
    let script = || find(path).map(|script| (format!("{path}.ct"), script.text));
    library.map(|(name, text)| ((*name).to_owned(), *text)).or_else(script)
}

/// The script with this name.
pub fn find(name: &str) -> Option<&'static BundledScript> {
    SCRIPTS.iter().find(|script| script.name == name)
}

/// Whether an embedded script has an option of this name.
pub fn has_option(name: &str) -> bool {
    SCRIPTS.iter().flat_map(BundledScript::options).any(|option| option.name == name)
}

impl BundledScript {
    /// Its options.
    pub fn options(&self) -> Vec<ScriptOption> {
        let source = Source::new(self.name, self.text);
        let ast = lang::parse(&source, &[], &mut Diagnostics::default());
        ast.map_or(Vec::new(), |ast| options::known(&ast))
    }

    /// The question that the script answers.
    pub fn summary(&self) -> &'static str {
        summary(self.text)
    }
}

/// The first comment line of a script.
pub fn summary(text: &str) -> &str {
    text.lines().find_map(|line| line.strip_prefix("// ")).unwrap_or("")
}

/// The initial comment of a script without its first line: examples of its use, and notes.
pub fn header(text: &str) -> (Vec<&str>, Vec<&str>) {
    let comment = text.lines().skip_while(|line| line.starts_with("#!"));
    let lines = comment.map_while(|line| line.strip_prefix("// ")).skip(1);
    let (mut examples, mut notes) = (Vec::new(), Vec::new());
    for line in lines {
        match line.strip_prefix("Usage: ").or_else(|| line.strip_prefix("       ")) {
            Some(example) => examples.push(example),
            None => notes.push(line),
        }
    }
    (examples, notes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_script_in_the_folder_is_embedded_and_has_its_question() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts");
        let mut files: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .filter_map(|entry| entry.unwrap().file_name().to_str()?.strip_suffix(".ct").map(String::from))
            .collect();
        files.sort();
        assert_eq!(files, SCRIPTS.iter().map(|s| s.name).collect::<Vec<_>>());
        assert!(SCRIPTS.iter().all(|s| !s.summary().is_empty()));
    }

    #[test]
    fn a_header_has_examples_and_notes() {
        let text = "#!/usr/bin/env cudatrace\n// What?\n// Usage: cudatrace x\n//        cudatrace x -p 1\n// Note\n// this.\n\n// not";
        assert_eq!(header(text), (vec!["cudatrace x", "cudatrace x -p 1"], vec!["Note", "this."]));
        assert_eq!(header("BEGIN { }"), (vec![], vec![]));
        assert!(SCRIPTS.iter().all(|script| !header(script.text).0.is_empty()));
    }

    #[test]
    fn every_script_has_its_place_in_the_manual_and_a_live_case() {
        let manual = include_str!("../docs/scripts.md");
        let cases = include_str!("../tests/live/scripts.test");
        for script in SCRIPTS {
            let name = script.name;
            assert!(manual.contains(&format!("\n### {name}\n")), "docs/scripts.md lacks `{name}`");
            assert!(cases.contains(&format!("\nARGS     {name}")), "no live case for `{name}`");
        }
    }
}
