//! Libraries are traced whatever linker has made them, and however their segments lie in the file and in memory.

mod common;

use common::{can_trace, cudatrace, skip, stderr, stdout, text};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A layout of a library: its name, the linker, and options for the linker.
type Layout = (&'static str, &'static str, &'static [&'static str]);

const LAYOUTS: [Layout; 21] = [
    ("usual", "bfd", &[]),
    // NVIDIA's libcudart.so.13.
    ("nvidia", "bfd", &["max-page-size=0x200000", "noseparate-code", "norelro"]),
    (
        "nvidia-old-hash",
        "bfd",
        &["max-page-size=0x200000", "noseparate-code", "norelro", "--hash-style=sysv"],
    ),
    ("2m-relro", "bfd", &["max-page-size=0x200000", "noseparate-code"]),
    ("2m-separate", "bfd", &["max-page-size=0x200000", "separate-code"]),
    ("4k", "bfd", &["max-page-size=0x1000", "separate-code", "--hash-style=gnu"]),
    ("4k-one-text", "bfd", &["max-page-size=0x1000", "noseparate-code", "--hash-style=sysv"]),
    ("64k", "bfd", &["max-page-size=0x10000", "separate-code"]),
    ("64k-one-text", "bfd", &["max-page-size=0x10000", "noseparate-code", "norelro"]),
    ("1g", "bfd", &["max-page-size=0x40000000", "noseparate-code", "norelro"]),
    ("far-segments", "bfd", &["max-page-size=0x1000", "script"]),
    ("far-segments-2m", "bfd", &["max-page-size=0x200000", "script", "--hash-style=sysv"]),
    ("gold", "gold", &[]),
    ("gold-2m", "gold", &["max-page-size=0x200000", "norelro", "--hash-style=sysv"]),
    ("gold-64k", "gold", &["max-page-size=0x10000"]),
    ("lld", "lld", &[]),
    ("lld-one-text", "lld", &["noseparate-code", "--no-rosegment", "max-page-size=0x200000"]),
    ("lld-64k", "lld", &["separate-loadable-segments", "max-page-size=0x10000", "--hash-style=sysv"]),
    ("mold", "mold", &[]),
    ("mold-2m", "mold", &["max-page-size=0x200000", "norelro", "--hash-style=sysv"]),
    ("mold-one-text", "mold", &["noseparate-code"]),
];

#[test]
fn libraries_of_all_layouts_are_traced() {
    if !can_trace() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    for layout in LAYOUTS {
        let Some(programs) = Programs::build(folder.path(), layout) else { continue };
        for in_process in [true, false] {
            programs.check(in_process);
        }
    }
}

/// A library, and the programs that call it.
struct Programs {
    name: &'static str,
    library: PathBuf,
    /// One that is linked with the library, and one that opens it.
    callers: [PathBuf; 2],
}

impl Programs {
    /// Builds a layout; `None` if its linker is not installed.
    fn build(folder: &Path, (name, linker, options): Layout) -> Option<Programs> {
        if Command::new(format!("ld.{linker}")).arg("--version").stdout(Stdio::null()).status().is_err() {
            skip(&format!("layout {name}: ld.{linker} is not installed"));
            return None;
        }
        let library = folder.join(format!("lib{name}.so"));
        let mut flags = vec!["-shared", "-fPIC", "-DLIBRARY", "-nostartfiles", "-fno-schedule-insns2"];
        let linker = format!("-fuse-ld={linker}");
        flags.push(&linker);
        let options: Vec<String> = options.iter().map(|option| of_linker(option)).collect();
        flags.extend(options.iter().map(String::as_str));
        compile(&library, &flags);
        let callers = [folder.join(format!("{name}-linked")), folder.join(format!("{name}-opens"))];
        // The library comes before the C library, so that it is mapped before.
        compile(&callers[0], &[text(&library)]);
        compile(&callers[1], &["-DLATE"]);
        Some(Programs { name, library, callers })
    }

    fn check(&self, in_process: bool) {
        for caller in &self.callers {
            let script = format!(
                "uprobe:{0}:layout_* {{ @in[func] = count() }} uretprobe:{0}:layout_* {{ @out[func] = count() }}",
                text(&self.library)
            );
            let mut command = cudatrace();
            command.args(in_process.then_some("--in-process")).args(["-e", &script, "--"]);
            command.args([caller, &self.library]);
            let output = command.output().expect("cudatrace starts");
            let (printed, messages) = (stdout(&output), stderr(&output));
            let what = format!("{}, in process {in_process}, {caller:?}: {printed}{messages}", self.name);
            assert!(output.status.success(), "{what}");
            for (function, count) in truth(&printed) {
                for side in ["in", "out"] {
                    let line = format!("@{side}[{function}]: {count}");
                    assert!(printed.lines().any(|printed| printed == line), "{line}: {what}");
                }
            }
            // A page of two segments is in memory twice, and so are its functions.
            let is_in_process = messages.lines().any(|line| line.ends_with("1 process, without the kernel"));
            assert_eq!(is_in_process, in_process, "{what}");
        }
    }
}

/// `-Wl,-z,norelro`; options that begin with a dash have no `-z`.
fn of_linker(option: &str) -> String {
    match option {
        "script" => {
            let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/layout.ld");
            format!("-Wl,-T,{}", text(&script))
        }
        option if option.starts_with('-') => format!("-Wl,{option}"),
        option => format!("-Wl,-z,{option}"),
    }
}

fn compile(to: &Path, flags: &[&str]) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/layout.c");
    let built = Command::new("gcc").args(["-O1", "-o"]).arg(to).arg(source).args(flags).output();
    let built = built.expect("gcc is installed");
    assert!(built.status.success(), "{flags:?}: {}", stderr(&built));
}

/// The lines `count NAME N` of the program: two.
fn truth(output: &str) -> [(&str, &str); 2] {
    let words = output.lines().filter_map(|line| line.strip_prefix("count ")?.split_once(' '));
    let counts: Vec<_> = words.collect();
    counts.try_into().unwrap_or_else(|_| panic!("two counts: {output}"))
}
