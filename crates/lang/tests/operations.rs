//! Operations of CUDA: each argument compiles at each function, and `docs/cuda.md` has the table as it is (`BLESS=1`
//! rewrites that part).

use std::fmt::Write as _;
use std::path::Path;

use cuda::Library;
use cuda::operations::{APIS, Api, Argument, Operation, OperationVariant};
use lang::catalog::{Catalog, File, FileId, Function, Place, TargetError};
use lang::diagnostics::render;
use lang::hir::Attach;
use lang::{Diagnostics, Options, Source, compile};

/// Libraries with their major versions, and the names that actual libraries export.
const LIBRARIES: [(Library, u32, &str); 4] = [
    (Library::Driver, 0, include_str!("../../cuda/tests/libcuda-580.159.04.functions")),
    (Library::Runtime, 11, include_str!("../../cuda/tests/libcudart-11.8.89.functions")),
    (Library::Runtime, 12, include_str!("../../cuda/tests/libcudart-12.9.79.functions")),
    (Library::Runtime, 13, include_str!("../../cuda/tests/libcudart-13.5.37.functions")),
];

/// A machine with some of these libraries.
struct Machine(Vec<(Library, u32, Vec<Function>)>);

impl Machine {
    fn with(has: impl Fn(Library, u32) -> bool) -> Machine {
        let function = |(at, name): (usize, &str)| Function {
            names: vec![name.into()],
            version: None,
            offset: 0x1000 + 0x10 * at as u64,
        };
        let there = LIBRARIES.iter().filter(|(library, major, _)| has(*library, *major));
        let known = there.map(|(library, major, names)| {
            (*library, *major, names.lines().enumerate().map(function).collect())
        });
        Machine(known.collect())
    }
}

impl Catalog for Machine {
    lang::lacks!(all_but_functions);

    fn files(&self, target: &str) -> Result<Vec<File>, TargetError> {
        let asked = (0u32..).zip(&self.0).filter(|(_, (library, ..))| library.alias() == target);
        let file = |(id, (library, major, _)): (u32, &(Library, u32, Vec<Function>))| File {
            id: FileId(id),
            path: format!("/usr/lib/{}.{major}", library.soname_stem()),
            library: Some((*library, *major)),
        };
        let files: Vec<File> = asked.map(file).collect();
        if files.is_empty() { Err(TargetError::NotYet { looked_in: vec![] }) } else { Ok(files) }
    }

    fn functions(&self, file: FileId) -> &[Function] {
        &self.0[file.0 as usize].2
    }

    fn entry_place(&self, _: FileId, offset: u64) -> Place {
        Place { offset, stack_shift: 0 }
    }

    fn return_place(&self, file: FileId, offset: u64) -> Place {
        self.entry_place(file, offset)
    }
}

/// The functions of the driver that a script attaches to, one entry per attachment.
fn attached(script: &str) -> Vec<String> {
    attached_on(&Machine::with(|library, _| library == Library::Driver), script)
}

fn attached_on(machine: &Machine, script: &str) -> Vec<String> {
    let source = Source::new("t.ct", script);
    let mut diags = Diagnostics::default();
    let checked = compile(&source, &Options::default(), machine, &mut diags);
    assert!(diags.list.is_empty(), "{script}\n{}", render::render(&diags.list, &source, false));
    let program = checked.expect("no finding, so a program").program;
    let sites = |attach: &Attach| attach.sites().to_vec();
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
    for (library, major, _) in LIBRARIES {
        let machine = Machine::with(|l, m| (l, m) == (library, major));
        let api = Api::of_library(library).expect("both have operations");
        for operation in api.operations {
            let name = format!("{}:{}", api.provider, operation.name);
            let script = format!("{name} {{ {} }}", printing(operation.all_args()));
            assert_each_once(&script, attached_on(&machine, &script));
            if operation.fires.has_start() {
                let known = operation.all_args().filter(|arg| !arg.at_return);
                let script = format!("{name}:start {{ @ = count(); {} }}", printing(known));
                assert_each_once(&script, attached_on(&machine, &script));
            }
        }
    }
}

#[test]
fn operations_of_all_copies_of_the_runtime_are_probed() {
    let machine = Machine::with(|library, _| library == Library::Runtime);
    let script = "cudart:hint { @[func, args.bytes, args.kind] = count() }";
    let mut functions = attached_on(&machine, script);
    functions.retain(|name| name.starts_with("cudaMemAdvise"));
    functions.sort();
    assert_eq!(functions, ["cudaMemAdvise", "cudaMemAdvise", "cudaMemAdvise", "cudaMemAdvise_v2"]);
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
fn values_from_an_absent_library_have_their_type() {
    attached("uretprobe:libcudart:cudaLaunchKernel { @[kernel_name(args.func)] = count() }");
}

/// The section of an operation: its description in each API, its arguments, and its functions grouped by constant
/// values.
fn section(name: &str) -> String {
    let operations: Vec<_> = APIS.iter().filter_map(|api| Some((api, api.operation(name)?))).collect();
    let names: Vec<String> = operations.iter().map(|(api, _)| format!("`{}:{name}`", api.provider)).collect();
    let mut text = format!("### {}\n\n", names.join(", "));
    let mut docs: Vec<String> = operations.iter().map(|(_, operation)| capital(operation.doc)).collect();
    docs.dedup();
    text += &format!("{}.\n", docs.join(".\n"));
    let args = operations[0].1.args;
    if !args.is_empty() {
        text.push_str(&arguments(args));
        text.push_str(&functions(&operations));
    }
    text + "\n"
}

fn arguments(args: &[Argument]) -> String {
    let mut text = String::from("\n| argument | type | is |\n|---|---|---|\n");
    for arg in args {
        let when = if arg.at_return { " (not at `:start`)" } else { "" };
        let _ = writeln!(text, "| `args.{}` | {} | {}{when} |", arg.name, arg.ty, arg.doc);
    }
    text
}

fn functions(operations: &[(&'static Api, &'static Operation)]) -> String {
    let columns: Vec<String> = operations.iter().map(|(api, _)| format!("`{}:`", api.provider)).collect();
    let constants: Vec<String> = constants(operations[0].1).map(|arg| format!("`{}`", arg.name)).collect();
    let mut text = format!("\n| {} | {} |\n", constants.join(", "), columns.join(" | "));
    text += &format!("|---|{}\n", "---|".repeat(columns.len()));
    let mut rows: Vec<(String, Vec<Vec<String>>)> = Vec::new();
    for (column, (_, operation)) in operations.iter().enumerate() {
        for variant in operation.variants {
            let label = label(operation, variant);
            let at = rows.iter().position(|(known, _)| *known == label).unwrap_or_else(|| {
                rows.push((label, vec![Vec::new(); columns.len()]));
                rows.len() - 1
            });
            rows[at].1[column].extend(variant.functions.iter().map(|name| format!("`{name}`")));
        }
    }
    for (label, cells) in rows {
        let cells: Vec<String> = cells.iter().map(|names| names.join(", ")).collect();
        let _ = writeln!(text, "| {label} | {} |", cells.join(" | "));
    }
    text
}

/// The arguments that are constant in most functions.
fn constants(operation: &'static Operation) -> impl Iterator<Item = &'static Argument> {
    operation.args.iter().filter(|arg| matches!(arg.ty, "string" | "bool"))
}

/// `` `HtoD`, `linear`, async ``
fn label(operation: &'static Operation, variant: &OperationVariant) -> String {
    let value = |arg: &'static Argument| match variant.value(arg) {
        "false" => None,
        "true" => Some(arg.name.to_string()),
        text => {
            let literal = text.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
            Some(
                literal
                    .filter(|text| !text.contains('"'))
                    .map_or("varies".into(), |text| format!("`{text}`")),
            )
        }
    };
    constants(operation).filter_map(value).collect::<Vec<_>>().join(", ")
}

fn capital(text: &str) -> String {
    text[..1].to_uppercase() + &text[1..]
}

#[test]
fn the_manual_has_the_table() {
    const MARK: &str = "<!-- operations, from crates/cuda/src/operations.rs -->\n";
    let mut names: Vec<&str> = Vec::new();
    for operation in APIS.iter().flat_map(|api| api.operations) {
        if !names.contains(&operation.name) {
            names.push(operation.name);
        }
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cuda.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let (written, _) = text.split_once(MARK).expect("the mark");
    let now = format!("{written}{MARK}\n{}", names.into_iter().map(section).collect::<String>());
    let now = format!("{}\n", now.trim_end());
    golden_files::compare([(path, now)]);
}
