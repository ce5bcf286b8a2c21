//! `docs/language.md` says what is so: its scripts compile, its messages are the checker's, its tables those of the sources.
//!
//! A fenced block whose first word is `ct` is a script:
//!
//! ```text
//! ct                    no error, no warning
//! ct warned             warnings, no error
//! ct refused            an error; a `text` block right behind it is what is said
//! ct params 7 name      the words behind `params` are $1, $2
//! ct tests              its tests and benches are checked too
//! ct run PROGRAM ARGS   a `text` block right behind it is printed when this program is traced
//! ```
//!
//! A `text` block behind a script that is accepted is output. Such pairs are the cases of `tests/live/docs.test`, which run
//! through the kernel. `BLESS=1` rewrites that file, and the tables between `<!-- table NAME -->` and `<!-- end -->`.
//!
//! The machine is a literal, with all functions that the real libraries export: what a wildcard of the manual finds here
//! it finds there.

#[path = "common/declared.rs"]
mod declared;
#[path = "common/record.rs"]
mod record;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use lang::builtins::table;
use lang::builtins::table::Kind;
use lang::catalog::debug_info::{Absent, TypeId};
use lang::catalog::{
    Catalog, DeviceDriver, File, FileId, Function, KERNEL, KernelFunction, Marker, Place, TargetError,
    Tracepoint, VMLINUX, debug_info,
};
use lang::check::config;
use lang::diagnostics::{Diagnostic, codes, render};
use lang::hir::Hook;
use lang::limits;
use lang::resolve::providers;
use lang::{Diagnostics, Options, Run, Severity, Source, compile};

/// Names in scripts, path, known library, exported functions and their version.
type Library =
    (&'static [&'static str], &'static str, Option<(cuda::Library, u32)>, &'static str, Option<&'static str>);

static LIBRARIES: &[Library] = &[
    (
        &["libcuda", "libcuda.so.1", "/usr/lib/*/libcuda.so*"],
        "/usr/lib/x86_64-linux-gnu/libcuda.so.1",
        Some((cuda::Library::Driver, 0)),
        include_str!("../../cuda/tests/libcuda-580.159.04.functions"),
        None,
    ),
    (
        &["libcudart", "cudart", "libcudart.so.12"],
        "/usr/local/cuda-12.9/lib64/libcudart.so.12",
        Some((cuda::Library::Runtime, 12)),
        include_str!("../../cuda/tests/libcudart-12.9.79.functions"),
        Some("libcudart.so.12"),
    ),
    (
        &["libcudart", "cudart", "libcudart.so.13"],
        "/usr/local/cuda-13.0/lib64/libcudart.so.13",
        Some((cuda::Library::Runtime, 13)),
        include_str!("../../cuda/tests/libcudart-13.5.37.functions"),
        Some("libcudart.so.13"),
    ),
    (
        &["libnccl"],
        "/usr/lib/x86_64-linux-gnu/libnccl.so.2",
        Some((cuda::Library::Nccl, 2)),
        "ncclAllReduce ncclBroadcast",
        None,
    ),
    (&["libc"], "/usr/lib/x86_64-linux-gnu/libc.so.6", None, "dlsym free malloc open", None),
    (
        &["./train"],
        "/home/me/train",
        None,
        "cudaMalloc main serve serve_all totals _ZN2nn6Linear7forwardEl",
        None,
    ),
    (&["./recurse"], "/home/me/recurse", None, "traced_recurse", None),
    // No target: the last file is the agent.
    (
        &[],
        "/usr/lib/libcudatrace_agent.so",
        None,
        "cudatrace_gpu_graph cudatrace_gpu_idle cudatrace_gpu_kernel cudatrace_gpu_launch cudatrace_gpu_memcpy cudatrace_gpu_memset \
         cudatrace_gpu_overhead cudatrace_gpu_sync cudatrace_gpu_operator cudatrace_gpu_forward cudatrace_gpu_operator_table \
         cudatrace_gpu_annotation",
        None,
    ),
];

struct Machine(Vec<Vec<Function>>, Vec<Marker>);

impl Machine {
    fn new() -> Machine {
        let functions = |library: &Library| {
            let mut names: Vec<&str> = library.3.split_whitespace().collect();
            names.sort_unstable();
            let function = |(at, name): (usize, &&str)| Function {
                names: vec![name.to_string()],
                version: library.4.map(String::from),
                offset: 0x1000 + 0x10 * at as u64,
            };
            names.iter().enumerate().map(function).collect()
        };
        Machine(LIBRARIES.iter().map(functions).collect(), record::markers())
    }
}

impl Catalog for Machine {
    lang::lacks!(later_files, indirect_functions, instructions, source_lines, kernel_types, known_targets);

    fn kernel_symbol(&self, _: &str) -> Option<u64> {
        Some(0xffff_ffff_8100_0000)
    }

    fn device(&self, _: &str) -> Option<DeviceDriver> {
        Some(DeviceDriver { major: 195, release: Some(580) })
    }

    fn agent(&self) -> Option<File> {
        let (_, path, library, ..) = *LIBRARIES.last()?;
        Some(File { id: FileId(LIBRARIES.len() as u32 - 1), path: path.into(), library })
    }

    fn cgroup_id(&self, path: &str) -> Option<u64> {
        (path == "/sys/fs/cgroup").then_some(1)
    }

    fn files(&self, target: &str) -> Result<Vec<File>, TargetError> {
        let file = |(at, library): (usize, &Library)| {
            let file = File { id: FileId(at as u32), path: library.1.into(), library: library.2 };
            library.0.contains(&target).then_some(file)
        };
        let found: Vec<File> = LIBRARIES.iter().enumerate().filter_map(file).collect();
        match found.is_empty() {
            true if target.contains('/') => Err(TargetError::Unusable("no such file".into())),
            true => Err(TargetError::NotYet { looked_in: vec!["/usr/lib".into()] }),
            false => Ok(found),
        }
    }

    fn tracepoint(&self, category: &str, event: &str) -> Result<Tracepoint, String> {
        let fields = record::of(category, event).ok_or("this kernel has none")?;
        Ok(Tracepoint { fields })
    }

    fn tracepoints(&self) -> Vec<(String, String)> {
        vec![("sched".into(), "sched_switch".into())]
    }

    fn kernel_hook(&self, _: Hook) -> Result<(), String> {
        Ok(())
    }

    fn kernel_functions(&self) -> &[KernelFunction] {
        const fn of(name: &'static str, module: &'static str, address: u64) -> KernelFunction {
            KernelFunction { module, name, address, traceable: true }
        }
        const {
            &[
                of("nvidia_open", "nvidia", 0xffff_ffff_c000_1000),
                of("nvidia_unlocked_ioctl", "nvidia", 0xffff_ffff_c000_2000),
                of("rm_ioctl", "nvidia", 0xffff_ffff_c000_3000),
                of("vfs_read", VMLINUX, 0xffff_ffff_8100_4000),
            ]
        }
    }

    fn trampoline_functions(&self) -> &[KernelFunction] {
        self.kernel_functions()
    }

    fn kernel_field(&self, of: &str, field: &str) -> Option<u32> {
        record::kernel_field(of, field)
    }

    fn iterator(&self, items: &str) -> Result<Tracepoint, String> {
        match items {
            "task" => Ok(Tracepoint { fields: record::passed() }),
            _ => Err("this kernel has none".into()),
        }
    }

    fn iterators(&self) -> Vec<String> {
        vec!["task".into()]
    }

    fn raw_tracepoint(&self, event: &str) -> Result<Tracepoint, String> {
        match event {
            "sched_switch" => Ok(Tracepoint { fields: record::passed() }),
            _ => Err("this kernel has none".into()),
        }
    }

    fn raw_tracepoints(&self) -> Vec<String> {
        vec!["sched_switch".into()]
    }

    fn functions(&self, file: FileId) -> &[Function] {
        &self.0[file.0 as usize]
    }

    fn symbol(&self, _: FileId, name: &str) -> Option<(u64, u64)> {
        (name == "counter").then_some((0x9000, 4))
    }

    fn offset_to_address(&self, _: FileId, offset: u64) -> Option<u64> {
        Some(offset + 0x100)
    }

    /// Markers of the program.
    fn markers(&self, file: FileId) -> &[Marker] {
        if LIBRARIES[file.0 as usize].0.contains(&"./train") { &self.1 } else { &[] }
    }

    fn declared(&self, file: FileId, _: u64, symbol: &str) -> Result<Arc<debug_info::Function>, Absent> {
        if file == KERNEL {
            return declared::kernel_function(symbol);
        }
        match LIBRARIES[file.0 as usize].0 {
            ["./train"] | ["./recurse"] => declared::function(file, symbol),
            _ => Err(Absent::NoInformation { looked_for: Vec::new() }),
        }
    }

    fn declared_type(&self, id: TypeId) -> Arc<debug_info::Type> {
        declared::ty(id)
    }

    fn declared_type_named(&self, file: FileId, name: &str) -> Option<TypeId> {
        (file != KERNEL && LIBRARIES[file.0 as usize].0 == ["./train"])
            .then(|| declared::named(file, name))?
    }

    fn entry_place(&self, _: FileId, offset: u64) -> Place {
        Place { offset, stack_shift: 0 }
    }

    fn return_place(&self, _: FileId, offset: u64) -> Place {
        Place { offset, stack_shift: 0 }
    }

    fn address_to_offset(&self, _: FileId, address: u64) -> Option<u64> {
        Some(address)
    }
}

/// A script in the manual.
#[derive(Default)]
struct Example {
    /// Heading of its section, and its number there.
    heading: String,
    number: usize,
    line: usize,
    /// Words after `ct`.
    words: Vec<String>,
    script: String,
    /// The `text` block directly after it.
    says: Option<String>,
}

impl Example {
    fn is(&self, word: &str) -> bool {
        self.words.first().is_some_and(|first| first == word)
    }

    /// The words after this one, if it is the first.
    fn after(&self, word: &str) -> &[String] {
        if self.is(word) { &self.words[1..] } else { &[] }
    }

    fn compile(&self) -> (bool, Vec<Diagnostic>) {
        let (source, mut diags) = (Source::new("stdin", self.script.as_str()), Diagnostics::default());
        let machine = Machine::new();
        let run = if self.is("tests") { Run::Everything } else { Run::Traces };
        let params = self.after("params").to_vec();
        let options = Options { unsafe_ok: self.is("unsafe"), run, params, ..Options::default() };
        let checked = compile(&source, &options, &machine, &mut diags);
        let pending = checked.iter().flat_map(|checked| &checked.pending);
        pending.for_each(|pending| pending.refuse(&machine, &mut diags));
        (checked.is_some(), diags.list)
    }

    fn rendered(&self, findings: &[Diagnostic]) -> String {
        render::render(findings, &Source::new("stdin", self.script.as_str()), false)
    }

    fn place(&self) -> String {
        format!("docs/language.md:{}", self.line)
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn examples() -> Vec<Example> {
    let (mut examples, mut heading) = (Vec::<Example>::new(), String::new());
    let text = read("docs/language.md");
    let mut lines = text.lines().enumerate();
    // Whether only blank lines have followed the script.
    let mut behind = false;
    while let Some((at, line)) = lines.next() {
        if let Some(title) = line.strip_prefix("## ").or(line.strip_prefix("### ")) {
            heading = title.to_string();
        }
        let Some(info) = line.strip_prefix("```") else {
            behind &= line.is_empty();
            continue;
        };
        let body: Vec<&str> =
            lines.by_ref().map(|(_, line)| line).take_while(|line| !line.starts_with("```")).collect();
        let body = body.join("\n") + "\n";
        let mut words = info.split_whitespace().map(String::from);
        match words.next().as_deref() {
            Some("ct") => {
                let number = 1 + examples.iter().filter(|example| example.heading == heading).count();
                let (heading, words) = (heading.clone(), words.collect());
                examples.push(Example { heading, number, line: at + 1, words, script: body, says: None });
                behind = true;
            }
            Some("text") if behind => {
                examples.last_mut().unwrap().says = Some(body);
                behind = false;
            }
            _ => behind = false,
        }
    }
    examples
}

#[test]
fn scripts_are_accepted_or_refused_as_the_manual_says() {
    let examples = examples();
    assert!(examples.len() > 30, "the manual is gone");
    let wrong: Vec<String> = examples.iter().filter_map(contradiction).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The checker's result, if it differs from the manual.
fn contradiction(example: &Example) -> Option<String> {
    let (accepted, findings) = example.compile();
    let warned = findings.iter().any(|finding| finding.severity == Severity::Warning);
    let text = example.rendered(&findings);
    let as_marked = accepted != example.is("refused") && (accepted && warned) == example.is("warned");
    let as_shown = accepted || example.says.as_ref().is_none_or(|says| *says == text);
    (!as_marked || !as_shown).then(|| format!("{}\n{}\n{text}", example.place(), example.script))
}

/// Parsing a printed script yields the same script.
#[test]
fn scripts_survive_printing() {
    for example in examples().iter().filter(|example| !example.is("refused")) {
        let reparsed = |text: &str| {
            let mut diags = Diagnostics::default();
            let script = lang::parse(&Source::new("stdin", text), example.after("params"), &mut diags);
            script.unwrap_or_else(|| panic!("{}: {text}: {:?}", example.place(), diags.list))
        };
        let printed = lang::syntax::print::print(&reparsed(&example.script));
        assert_eq!(lang::syntax::print::print(&reparsed(&printed)), printed, "{}", example.place());
    }
}

#[test]
fn outputs_are_cases_of_the_live_tests() {
    let header = "# The scripts of docs/language.md whose output it shows. Written by `BLESS=1 cargo test -p cudatrace-lang --test docs`.\n";
    let shown = examples().into_iter().filter(|example| !example.is("refused") && example.says.is_some());
    let cases: Vec<String> = shown.map(|example| live_case(&example)).collect();
    assert!(cases.len() > 10, "the manual shows no output");
    golden_files::compare([(root().join("tests/live/docs.test"), format!("{header}\n{}", cases.join("\n")))]);
}

/// A test case for live tests. A line that begins with blanks continues the previous one; `./NAME` is the path of
/// an example program.
fn live_case(example: &Example) -> String {
    let script: Vec<&str> = example.script.lines().filter(|line| !line.trim().is_empty()).collect();
    let mut case = format!("NAME     {}, {}\n", example.heading, example.number);
    let params = example.after("params").join(" ");
    if !params.is_empty() {
        case += &format!("ARGS     {params}\n");
    }
    let program = example.after("run").join(" ");
    let path = program.split(' ').next().unwrap_or_default();
    let beside = format!("./{}", path.rsplit('/').next().unwrap_or_default());
    case += &format!("SCRIPT   {}\n", script.join("\n         ").replace(&beside, path));
    if !program.is_empty() {
        case += &format!("RUN      {program}\n");
    }
    let says = example.says.as_deref().unwrap_or_default();
    let lines = says.lines().filter(|line| !line.trim().is_empty());
    lines.for_each(|line| case += &format!("EXPECT   {line}\n"));
    case
}

#[test]
fn tables_are_those_of_the_sources() {
    let tables = [
        ("probes", probes()),
        ("variables", builtins(Kind::Variable)),
        ("functions", builtins(Kind::Function)),
        ("actions", builtins(Kind::Action)),
        ("aggregations", builtins(Kind::Aggregation)),
        ("limits", limits_table()),
        ("records", records_table()),
        ("absent probes", absent_probes()),
        ("absent built-ins", absent_builtins()),
    ];
    let mut text = read("docs/language.md");
    for (name, rows) in tables {
        let start = format!("<!-- table {name} -->\n");
        let at =
            text.find(&start).unwrap_or_else(|| panic!("the manual has no `{}`", start.trim())) + start.len();
        let end = at + text[at..].find("<!-- end -->").expect("a table ends");
        text.replace_range(at..end, &format!("\n{rows}\n"));
    }
    golden_files::compare([(root().join("docs/language.md"), text)]);
}

fn table(head: [&str; 2], rows: impl Iterator<Item = [String; 2]>) -> String {
    let row = |[a, b]: [String; 2]| format!("| {} | {} |\n", a.replace('|', "\\|"), b.replace('|', "\\|"));
    let rows: String = rows.map(row).collect();
    format!("| {} | {} |\n|---|---|\n{rows}", head[0], head[1])
}

fn probes() -> String {
    let row = |provider: &providers::Provider| {
        let short = provider.names.get(1).map_or(String::new(), |name| format!(", `{name}`"));
        [format!("`{}`{short}", provider.form), provider.doc.to_string()]
    };
    table(["attach point", "when the body runs"], providers::PROVIDERS.iter().map(row))
}

fn builtins(kind: Kind) -> String {
    let row = |builtin: &table::BuiltinSpec| {
        [format!("`{}`", builtin.signature), format!("{}<br>`{}`", builtin.doc, builtin.example)]
    };
    table(["written", "is"], table::all().filter(|builtin| builtin.kind == kind).map(row))
}

/// Each kind of records of a GPU, and its arguments.
fn records_table() -> String {
    let arg = |arg: &cuda::gpu::Argument| format!("`{}` {}", arg.name, arg.description());
    let shared = || cuda::gpu::COMMON.iter().chain(cuda::gpu::OF_DEVICE);
    let row = |kind: &cuda::gpu::RecordKind| {
        let is_shared = |arg: &&cuda::gpu::Argument| shared().any(|shared| shared.name == arg.name);
        let args: Vec<String> = kind.args().filter(|arg| !is_shared(arg)).map(arg).collect();
        [format!("`gpu:{}`<br>{}", kind.name, kind.doc), args.join("<br>")]
    };
    let rows = [("all", cuda::gpu::COMMON), ("all but `gpu:range`", cuda::gpu::OF_DEVICE)];
    let common =
        rows.map(|(kinds, args)| [kinds.to_string(), args.iter().map(arg).collect::<Vec<_>>().join("<br>")]);
    table(["kind", "`args.`"], common.into_iter().chain(cuda::gpu::KINDS.iter().map(row)))
}

fn limits_table() -> String {
    let rows: [(&str, i64); 11] = [
        ("keys of a map", limits::MAP_ENTRIES),
        ("bytes of a key", limits::KEY_BYTES.into()),
        ("bytes of a value", limits::VALUE_BYTES.into()),
        ("bytes of a string, its NUL included", limits::STRING_BYTES),
        ("values in a tuple or record", limits::TUPLE_VALUES as i64),
        ("frames of a stack", limits::FRAMES),
        ("`bits` of `hist`", limits::HIST_BITS),
        ("buckets of `lhist`", limits::LHIST_BUCKETS),
        ("copies by `unroll`", limits::UNROLL),
        ("statements that `unroll` makes in a clause", limits::UNROLLED as i64),
        ("levels of brackets, operators and blocks", limits::MAX_DEPTH as i64),
    ];
    table(["what", "at most"], rows.iter().map(|(what, number)| [what.to_string(), number.to_string()]))
}

fn absent_probes() -> String {
    let name = |names: &[&str]| names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    let rows = providers::ABSENT.iter().map(|(names, way_out)| [name(names), way_out.to_string()]);
    table(["not here", "instead"], rows)
}

fn absent_builtins() -> String {
    let rows = table::ABSENT.iter().map(|(name, way_out)| [format!("`{name}`"), way_out.to_string()]);
    table(["not here", "instead"], rows)
}

#[test]
fn every_setting_is_in_the_manual() {
    let text = read("docs/language.md");
    let explained = codes::find("E0108").expect("unknown settings have a code").explanation;
    for setting in config::names() {
        assert!(explained.contains(&format!("`{setting}`")), "`{setting}` is not explained");
        assert!(text.contains(&format!("| `{setting}` |")), "`{setting}` is not in the manual");
    }
}
