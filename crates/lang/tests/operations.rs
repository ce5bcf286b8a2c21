//! Operations of CUDA: each argument compiles at each function, and `docs/cuda.md` has the table as it is (`BLESS=1`
//! rewrites that part).

use std::fmt::Write as _;
use std::path::Path;

use cuda::operations::{Argument, OPERATIONS, Operation};
use lang::catalog::{Catalog, File, FileId, Function, Place, TargetError};
use lang::hir::Attach;
use lang::{Diagnostics, Options, Source, compile_front, render};

/// A machine with nothing but a driver, which exports what the real one does.
struct Driver(Vec<Function>);

impl Driver {
    fn new() -> Driver {
        let names = include_str!("../../cuda/tests/libcuda-580.159.04.functions");
        let function = |(at, name): (usize, &str)| Function {
            names: vec![name.into()],
            version: None,
            offset: 0x1000 + 0x10 * at as u64,
        };
        Driver(names.lines().enumerate().map(function).collect())
    }
}

impl Catalog for Driver {
    fn files(&self, target: &str) -> Result<Vec<File>, TargetError> {
        let library = Some((cuda::Library::Driver, 0));
        match target {
            "libcuda" => Ok(vec![File { id: FileId(0), path: "/usr/lib/libcuda.so.1".into(), library }]),
            _ => Err(TargetError::NotYet { looked_in: vec![] }),
        }
    }

    fn functions(&self, _: FileId) -> &[Function] {
        &self.0
    }

    fn entry_place(&self, _: FileId, offset: u64) -> Place {
        Place { offset, stack_shift: 0 }
    }

    fn return_place(&self, file: FileId, offset: u64) -> Place {
        self.entry_place(file, offset)
    }
}

/// The functions that a script is attached to, each time that it is.
fn attached(script: &str) -> Vec<String> {
    let source = Source::new("t.ct", script);
    let mut diags = Diagnostics::default();
    let checked = compile_front(&source, &[], &Options::default(), &Driver::new(), &mut diags);
    assert!(diags.list.is_empty(), "{script}\n{}", render::render(&diags.list, &source, false));
    let program = checked.expect("no finding, so a program").program;
    let sites = |attach: &Attach| match attach {
        Attach::Entry(sites) | Attach::Return(sites) => sites.clone(),
        _ => Vec::new(),
    };
    let all = program.probes.iter().flat_map(|probe| sites(&probe.attach));
    all.map(|site| program.names.funcs[site.func.0 as usize].clone()).collect()
}

fn printing<'a>(args: impl Iterator<Item = &'a Argument>) -> String {
    args.map(|arg| format!("print(args.{0}); @{0}[args.{0}] = count(); ", arg.name)).collect()
}

fn assert_each_once(what: &str, mut functions: Vec<String>) {
    functions.sort();
    let all = functions.len();
    functions.dedup();
    assert!(all > 0 && functions.len() == all, "{what}: {functions:?}");
}

#[test]
fn every_argument_is_there_at_every_function() {
    for operation in OPERATIONS {
        let script = format!("cuda:{} {{ {} }}", operation.name, printing(operation.all_args()));
        assert_each_once(&script, attached(&script));
        if operation.when.is_none() {
            let known = operation.all_args().filter(|arg| !arg.at_return);
            let script = format!("cuda:{}:start {{ @ = count(); {} }}", operation.name, printing(known));
            assert_each_once(&script, attached(&script));
        }
    }
}

#[test]
fn live_forms_alone_are_probed() {
    let functions = attached("cuda:free { @ = count() }");
    let expected = [
        "cuArrayDestroy",
        "cuIpcCloseMemHandle",
        "cuMemFreeAsync",
        "cuMemFreeAsync_ptsz",
        "cuMemFreeHost",
        "cuMemFree_v2",
        "cuMemHostUnregister",
        "cuMemRelease",
        "cuMipmappedArrayDestroy",
    ];
    let mut found: Vec<&str> = functions.iter().map(String::as_str).collect();
    found.sort_unstable();
    assert_eq!(found, expected);
}

#[test]
fn calls_leave_out_what_says_little() {
    let functions = attached("cuda:call { @[func] = count() }");
    assert!(functions.len() > 550, "{}", functions.len());
    for quiet in ["cuCtxGetDevice", "cuGetProcAddress_v2", "cudbgMain"] {
        assert!(!functions.iter().any(|name| name == quiet), "{quiet}");
    }
}

#[test]
fn what_forms_hear_of_a_library_that_is_not_there_has_its_type() {
    attached("uretprobe:libcudart:cudaLaunchKernel { @[kernel_name(args.func)] = count() }");
}

fn section(operation: &'static Operation) -> String {
    let mut text = format!("### `cuda:{}`\n\n{}.\n\n", operation.name, capital(operation.doc));
    text.push_str("| argument | type | is |\n|---|---|---|\n");
    for arg in operation.all_args() {
        let when = if arg.at_return { "" } else { " (at `:start` too)" };
        let _ = writeln!(text, "| `args.{}` | {} | {}{when} |", arg.name, arg.ty, arg.doc);
    }
    text.push_str("\n| function | where it has them |\n|---|---|\n");
    for feed in operation.feeds {
        let has = |(name, from): &(&str, &str)| format!("`{name}` = `{}`", from.replace('|', "\\|"));
        let args: Vec<String> = feed.args.iter().map(has).collect();
        let functions: Vec<String> = feed.functions.iter().map(|name| format!("`{name}`")).collect();
        let _ = writeln!(text, "| {} | {} |", functions.join(", "), args.join("<br>"));
    }
    text + "\n"
}

fn capital(text: &str) -> String {
    text[..1].to_uppercase() + &text[1..]
}

#[test]
fn the_manual_has_the_table() {
    const MARK: &str = "<!-- operations, from crates/cuda/src/operations.rs -->\n";
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cuda.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let (written, _) = text.split_once(MARK).expect("the mark");
    let now = format!("{written}{MARK}\n{}", OPERATIONS.iter().map(section).collect::<String>());
    let now = format!("{}\n", now.trim_end());
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, now).unwrap();
    } else {
        assert_eq!(text, now, "BLESS=1 rewrites the table");
    }
}
