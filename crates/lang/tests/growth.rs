//! How the time for a script grows with it: about as fast as its length, whatever it repeats and whatever is wrong with it.
//!
//! Each kind of script repeats one thing, and eight times as much of it may take no more than a few times eight as long. What
//! is counted is the thread's processor time, which the load of the machine lengthens little. `GROWTH_BYTES=1000000` makes
//! the scripts as long (`make growth`). Nested and multiplied things have tests of their own.

mod common;

use common::Machine;
use lang::builtins::table::{self, Kind as Builtin};
use lang::diagnostics::render;
use lang::{Diagnostics, Options, Source};
use nix::time::{ClockId, clock_gettime};

/// Name, start, repeated text (`~` is the number of the copy), end.
type Kind = (&'static str, &'static str, &'static str, &'static str);

/// Items at the top level, and statements that use them.
const DECLARATIONS: &[Kind] = &[
    ("clauses", "", "BEGIN { printf(\"hi ~\\n\"); }\n", ""),
    ("maps", "", "BEGIN { @m~ = ~ }\n", ""),
    ("maps keyed", "", "uprobe:libcuda:cuInit { @m~[tid, ~] = count() }\n", ""),
    ("maps one body", "BEGIN {", "@m~ = ~;\n", "}"),
    ("vars", "BEGIN {", "$v~ = ~;\n", "}"),
    ("vars read", "BEGIN {", "$v~ = ~; print($v~);\n", "}"),
    ("let", "BEGIN {", "let $v~ : uint16 = ~;\n", "}"),
    ("let dup", "BEGIN {", "let $v = ~;\n", "}"),
    ("blocks", "BEGIN {", "{ let $v~ = ~; $v~++; }\n", "}"),
    ("same var", "BEGIN {", "$v += ~;\n", "}"),
    ("defines", "", "#define N~ ~\n", ""),
    ("defines used", "", "#define N~ ~\nBEGIN { print(N~) }\n", ""),
    ("defines chain", "#define N 1\n", "#define N~ N\n", "BEGIN{print(N)}"),
    ("structs", "", "struct s~ { int a; char b[~]; struct s~ *next; };\n", ""),
    ("struct used", "", "struct s~ { int a; int b; };\nBEGIN { print(((struct s~ *)0)->b) }\n", ""),
    ("struct members", "struct s {", "int a~;\n", "}; BEGIN { print(sizeof(struct s)) }"),
    (
        "struct members used",
        "",
        "struct s~ { int a~; }; uprobe:libc:malloc { $p~ = (struct s~ *)arg0; print($p~->a~); }\n",
        "",
    ),
    ("struct dup", "", "struct s { int a; };\n", ""),
    ("struct unknown", "BEGIN {", "print(((struct s~ *)0)->b);\n", "}"),
    (
        "member unknown",
        "struct s { int a; int b; } uprobe:libc:malloc {",
        "print(((struct s *)arg0)->b~);\n",
        "}",
    ),
    ("union", "", "union u~ { int a; char b[~]; };\n", ""),
    ("typedef", "", "typedef struct { int a; } t~;\n", ""),
    ("bitfields", "struct s {", "int a~ : 3;\n", "};"),
    ("enums", "", "enum e~ { A~, B~ = 7 };\n", ""),
    ("enum constants", "enum e {", "A~,\n", "Z }; BEGIN { print(Z); print(A1) }"),
    ("enum constants used", "", "enum e~ { A~, B~ = 7 }; BEGIN { print(A~); }\n", ""),
    ("enum dup", "", "enum e { A };\n", ""),
    ("macros", "", "macro m~($a, b) { $a + b }\n", ""),
    ("macros used", "", "macro m~(b) { let $x = b; $x + ~ } BEGIN { print(m~(1)) }\n", ""),
    ("macro used", "macro m(b) { let $x = b; $x + 1 }\nBEGIN {", "print(m(~));\n", "}"),
    ("macro dup", "", "macro m(b) { b }\n", ""),
    ("macro misfit", "macro m(b) { b } BEGIN {", "m();\n", "}"),
    ("macro map", "macro m(b) { ", "@x = ~;", "} BEGIN { m(1) }"),
    ("macro overload", "", "macro m($a, b, c~) { b }\n", ""),
    ("macro valueless", "macro m(b) { b; } BEGIN {", "print(m(1));", "}"),
    ("map decl", "", "let @m~ = hash(100);\n", ""),
    ("map decl used", "", "let @m~ = hash(100);\nBEGIN { @m~[1] = 1; }\n", ""),
    ("config", "config = {", "max_map_keys = 100;\n", "}"),
    ("config unknown", "config = {", "k~ = 100;\n", "}"),
    ("metric", "", "metric @m~ = { type = counter; help = \"x\" }\nBEGIN { @m~[1] = count() }\n", ""),
    ("metric unknown", "", "metric @m~ = { type = counter; help = \"x\" }\n", ""),
];

/// Attach points, valid and invalid.
const CLAUSES: &[Kind] = &[
    ("include", "", "#include <cuda~.h>\n", ""),
    ("import", "", "import \"x~\";\n", ""),
    ("names", "", "n~ = uprobe:libcuda:cuInit { }\n", ""),
    ("predicates", "", "uprobe:libcuda:cuInit /pid == ~/ { @ = count() }\n", ""),
    ("angles", "", "uprobe:libcuda:cuInit <@ = count()>\n", ""),
    ("functions", "uprobe:libcuda:cuInit", ",cuInit", "{ @ = count() }"),
    ("functions unknown", "uprobe:libcuda:cuInit", ",cuInit~", "{ @ = count() }"),
    ("clauses unknown", "", "uprobe:libcuda:cuInitt~ { }\n", ""),
    ("libs unknown", "", "uprobe:libcudaa~:cuInit { }\n", ""),
    ("files unknown", "", "uprobe:/x/y~:cuInit { }\n", ""),
    ("providers unknown", "", "uprob~:libcuda:cuInit { }\n", ""),
    ("probe list", "BEGIN", ",uprobe:libcuda:cuInit+~", "{ @ = count() }"),
    ("wildcards", "", "uprobe:libcuda:cu* { @[func] = count() }\n", ""),
    ("regex", "", "uprobe:libcuda:/cu(Init~|Mem.*)/ { @[func] = count() }\n", ""),
    ("wildcard args", "", "uprobe:libcuda:cu* { @[func] = sum(args.bytesize) }\n", ""),
    ("args unknown", "uprobe:libcuda:cuMemAlloc_v2 {", "print(args.bytesiz~);", "}"),
    ("args unknown clauses", "", "uprobe:libcuda:cuMemAlloc_v2 { print(args.bytesiz~); }\n", ""),
    ("operations", "", "cuda:alloc { @ = sum(args.bytes) }\n", ""),
    ("operations unknown", "", "cuda:allo~ { @ = sum(args.bytes) }\n", ""),
    ("operation args", "cuda:alloc {", "@ = sum(args.bytes);", "}"),
    ("returns", "", "uretprobe:libcuda:cuInit { @[retval] = hist(duration) }\n", ""),
    ("usdt", "", "usdt:./app:app:batch { @ = sum(arg0) }\n", ""),
    ("tracepoint", "", "tracepoint:sched:sched_switch { @[args.prev_comm] = count() }\n", ""),
    ("tracepoint unknown", "", "tracepoint:sched:s~ { @[args.prev_comm] = count() }\n", ""),
    ("timers", "", "interval:ms:~ { @ = count() }\n", ""),
    ("signals", "", "self:signal:SIGUSR1 { @ = count() }\n", ""),
    ("getopt", "BEGIN {", "print(getopt(\"n~\", 1));\n", "}"),
    ("getopt same", "BEGIN {", "print(getopt(\"n\", 1));\n", "}"),
    ("getopt wrong", "BEGIN {", "print(getopt(~));\n", "}"),
];

/// Invalid names, types and values.
const MISTAKES: &[Kind] = &[
    ("unknown ident", "BEGIN {", "print(pidd~);\n", "}"),
    ("unknown ident clauses", "", "BEGIN { print(pidd~); }\n", ""),
    ("unknown stmt", "BEGIN {", "pidd~;\n", "}"),
    ("unknown function", "BEGIN {", "cuont~();\n", "}"),
    ("unknown function 2", "BEGIN {", "@ = cuont~();\n", "}"),
    ("unknown var", "BEGIN {", "print($x~);\n", "}"),
    ("unknown var near", "BEGIN { $x1 = 1;", "print($x~1);\n", "}"),
    ("unknown vars many", "BEGIN {", "$a~ = 1; print($x~);\n", "}"),
    ("unknown map", "BEGIN {", "print(@m~);\n", "}"),
    ("unknown map key", "BEGIN {", "print(@m~[1]);\n", "}"),
    ("unknown maps many", "BEGIN {", "@a~ = 1; print(@m~);\n", "}"),
    ("undefined maps clauses", "", "BEGIN { @a~ = 1; } END { print(@b~) }\n", ""),
    ("self typed var", "BEGIN {", "$x~ = $x~;\n", "}"),
    ("untyped", "BEGIN {", "let $x~; print($x~);\n", "}"),
    ("map chain", "BEGIN { @m = 1; ", "@m~ = @m;\n", "}"),
    ("unused value", "BEGIN {", "~;\n", "}"),
    ("unreachable", "BEGIN { return;", "print(~);\n", "}"),
    ("returns stmt", "BEGIN {", "return;\n", "}"),
    ("type mismatch", "BEGIN { $x = 1;", "$x = \"a~\";\n", "}"),
    ("map mismatch", "BEGIN { @x = 1;", "@x = \"a~\";\n", "}"),
    ("key mismatch", "BEGIN { @x[1] = 1;", "@x[\"a~\"] = 1;\n", "}"),
    ("agg mismatch", "BEGIN { @x[1] = 1;", "@x[~] = count();\n", "}"),
    ("arg counts", "BEGIN {", "printf(\"%d\");\n", "}"),
    ("formats", "BEGIN {", "printf(\"%d ~ %s\\n\", pid, comm);\n", "}"),
    ("format long", "BEGIN { printf(\"", "%d", "\", 1) }"),
    ("format args", "BEGIN { printf(\"%d\"", ", ~", ") }"),
    ("format odd", "BEGIN { printf(\"", "%", "\", 1) }"),
];

/// Valid statements and values.
const BODIES: &[Kind] = &[
    ("ifs", "BEGIN {", "if (pid == ~) { print(1) } else if pid { print(2) } else { print(~) }\n", "}"),
    ("if sets", "BEGIN {", "if (pid == ~) { $x~ = 1 } else { $x~ = 2 } print($x~);\n", "}"),
    ("else ifs", "BEGIN { if (1) {}", "else if (pid == ~) { print(1) }\n", "}"),
    ("loops", "BEGIN {", "for $i : 0..10 { print($i) }\n", "}"),
    ("map loops", "BEGIN { @m[1] = 1; ", "for $kv : @m { print($kv) }\n", "}"),
    ("whiles", "BEGIN {", "while pid { break }\n", "}"),
    ("unrolls", "BEGIN {", "unroll(2) { print(~) }\n", "}"),
    ("breaks", "BEGIN {", "break;\n", "}"),
    ("ternaries", "BEGIN {", "print(pid ? \"a~\" : \"b~\");\n", "}"),
    ("ternary mix", "BEGIN {", "$x~ = pid ? 1 : \"b~\"; print($x~);\n", "}"),
    ("block exprs", "BEGIN {", "$x~ = { let $b = ~; $b + 1 };\n", "}"),
    ("if values", "BEGIN {", "print(if pid { \"a~\" } else { \"b\" });\n", "}"),
    ("tuple", "BEGIN { print((1", ", ~", ")) }"),
    ("tuple var", "BEGIN { $t = (1", ", ~", "); print($t.1) }"),
    ("tuples", "BEGIN {", "$t~ = (~, \"a\"); print($t~.1);\n", "}"),
    ("record", "BEGIN { print((a = 1", ", a~ = ~", ")) }"),
    ("record dup", "BEGIN { print((a = 1", ", a = ~", ")) }"),
    ("records", "BEGIN {", "$t~ = (a = ~, b~ = 1); print($t~.b~);\n", "}"),
    ("call args", "BEGIN { print(1", ", ~", ") }"),
    ("unknown call args", "BEGIN { f(1", ", ~", ") }"),
    ("key parts", "BEGIN { @x[1", ", ~", "] = 1 }"),
    ("sums", "BEGIN { $x = 1", " + ~", "; }"),
    ("ands", "BEGIN { $x = 1", " && ~", "; }"),
    ("concat", "BEGIN { $x = \"\";", "$x = str_concat($x, \"a~\");\n", "}"),
    ("strings", "BEGIN {", "$x~ = \"text ~\"; @s[$x~] = 1;\n", "}"),
    ("stacks", "BEGIN {", "@[ustack(~)] = count();\n", "}"),
    ("hists", "BEGIN {", "@h~ = hist(~); @l~ = lhist(~, 0, 100, 10);\n", "}"),
    ("series", "BEGIN {", "@h~ = tseries(~, 1s, 10);\n", "}"),
    ("casts", "BEGIN {", "print((uint8)~ + (int64)pid);\n", "}"),
    ("casts unknown", "BEGIN {", "print((foo~)pid);\n", "}"),
    ("sizeof", "BEGIN {", "print(sizeof(uint64) + sizeof(struct CUlaunchConfig_st));\n", "}"),
    ("typeof", "BEGIN {", "$x~ = 1; print((typeof($x~))2);\n", "}"),
    ("deletes", "BEGIN {", "@m~[1] = 1; delete(@m~[1]); clear(@m~); zero(@m~);\n", "}"),
    ("spans", "", "uretprobe:libcuda:cuInit { span(k~ = ~) }\n", ""),
    ("rows", "BEGIN {", "row(~, \"%d\", ~); rows();\n", "}"),
    ("events", "BEGIN {", "event(\"x~\", k = ~);\n", "}"),
    ("errorf", "BEGIN {", "errorf(\"x~ %d\", 1);\n", "}"),
    ("asserts", "BEGIN {", "assert(pid, \"x~\");\n", "}"),
    ("func tests", "uprobe:libcuda:cu* {", "if (func == \"cu~\") { print(1) }\n", "}"),
    ("kernel names", "uprobe:libcuda:cuLaunchKernel {", "print(kernel_name(args.f));\n", "}"),
];

/// Few but long tokens.
const TEXT: &[Kind] = &[
    ("semicolons", "BEGIN {", ";", "}"),
    ("comments", "", "// comment ~\n", ""),
    ("block comments", "", "/* comment ~ */", ""),
    ("blanks", "BEGIN { ", " ", "}"),
    ("newlines", "BEGIN { ", "\n", "}"),
    ("long string", "BEGIN { print(\"", "abcdefgh", "\") }"),
    ("long escapes", "BEGIN { print(\"", "\\x41\\n", "\") }"),
    ("long name", "BEGIN { print(", "abcdefgh", ") }"),
    ("long var", "BEGIN { $", "abcdefgh", " = 1 }"),
    ("long map", "BEGIN { @", "abcdefgh", " = 1 }"),
    ("long number", "BEGIN { print(", "12345678", ") }"),
    ("long float", "BEGIN { print(1.", "12345678", ") }"),
    ("long function", "uprobe:libcuda:", "abcdefgh", "{ }"),
    ("long wildcard", "uprobe:libcuda:", "*a", "{ }"),
    ("long regex", "uprobe:libcuda:/", "(a|b)*", "/ { }"),
    ("long target", "uprobe:", "/abcdefgh", ":x { }"),
    ("long provider", "", "abcdefgh", ":x { }"),
    ("sets", "uprobe:libcuda:", "[a-z]", " { }"),
    ("define long", "#define X ", "1 + ", "1\nBEGIN{print(X)}"),
    ("define tuple", "#define X (1", ", 2", ")\nBEGIN{print(X)}"),
    ("pointer chain", "uprobe:libc:malloc { print(", "*", "arg0) }"),
    ("stars type", "uprobe:libc:malloc { print((int ", "*", ")arg0) }"),
    ("dims", "uprobe:libc:malloc { print((int", "[2]", ")arg0) }"),
];

/// Syntax errors.
const BROKEN: &[Kind] = &[
    ("no semi", "BEGIN {", "print(~) print(~)\n", "}"),
    ("no value", "BEGIN {", "$x = ;\n", "}"),
    ("no paren", "BEGIN {", "print((~;\n", "}"),
    ("no bracket", "BEGIN {", "@m[~ = 1;\n", "}"),
    ("quote", "BEGIN {", "print(\"~);\n", "}"),
    ("single quotes", "BEGIN {", "print('~');\n", "}"),
    ("brace more", "", "BEGIN { } }\n", ""),
    ("brace less", "", "BEGIN { print(~);\n", ""),
    ("comment open", "", "BEGIN { /* print(~);\n", ""),
    ("float", "BEGIN {", "print(~ / 1000000.0);\n", "}"),
    ("number", "BEGIN {", "print(~kb);\n", "}"),
    ("condition", "BEGIN {", "if (pid = ~) { }\n", "}"),
    ("predicate", "", "uprobe:libcuda:cuInit /pid =/ { }\n", ""),
    ("predicate open", "", "uprobe:libcuda:cuInit /pid { }\n", ""),
    ("no body", "", "uprobe:libcuda:cuInit\n", ""),
    ("no function", "", "uprobe:libcuda { }\n", ""),
    ("words", "", "foo ~ bar\n", ""),
    ("for", "BEGIN {", "for (int i = 0; i < ~; i++) { print(i) }\n", "}"),
    ("python", "BEGIN {", "if pid == ~:\n  print(~)\n", "}"),
    ("keyword name", "BEGIN {", "$if = ~; let = 3;\n", "}"),
    ("control", "BEGIN {", "\u{1} print(~);\n", "}"),
    ("assign", "BEGIN {", "~ = 3; pid = 4;\n", "}"),
    ("config", "config = {", "a b c;\n", "}"),
    ("struct", "", "struct s~ { int ; a b c d; }\n", ""),
    ("struct open", "", "struct s~ { int a;\n", ""),
    ("enum", "", "enum e~ { 1, 2 };\n", ""),
    ("macro", "", "macro m~ { 1 }\n", ""),
    ("let", "", "let @m~ = foo(1);\n", ""),
    ("let2", "", "let @m~ = hash(0);\n", ""),
    ("define", "", "#define ~ 1\n", ""),
    ("define2", "", "#define N~ 1 +\n", ""),
    ("non ascii", "", "é", ""),
    ("params", "BEGIN {", "print($~);\n", "}"),
    ("param probes", "", "uprobe:libcuda:$~ { }\n", ""),
    ("address", "BEGIN { $x = 1;", "print(&$x);\n", "}"),
    ("no such", "BEGIN {", "print(kaddr(\"x~\")); print(curtask);\n", "}"),
    ("probe absent", "", "kprobe:f~ { }\n", ""),
    ("retval", "BEGIN {", "print(retval); print(args.x~);\n", "}"),
    ("types", "BEGIN {", "print(\"a\" + ~); print(-\"a\");\n", "}"),
];

/// Text before and after an expression that nests it.
const AROUND: &[[&str; 2]] = &[
    ["(", ")"],
    ["!", ""],
    ["-", ""],
    ["1 + ", ""],
    ["1 && ", ""],
    ["(uint8)", ""],
    ["(", ", 1).0"],
    ["(", ", 1)[0]"],
    ["(a = ", ").a"],
    ["sizeof(", ")"],
    ["@m[", "]"],
    ["@n[1, ", "]++"],
    ["(pid ? ", " : 1)"],
    ["(pid ? 1 : ", ")"],
    ["(pid ? \"a\" : ", ")"],
    ["(", " ? 2 : 1)"],
    ["(", " ?: 1)"],
    ["(1 ?: ", ")"],
    ["{ let $a = 1; ", " }"],
    ["{ $b = ", "; 1 }"],
    ["{ @a = ", "; 1 }"],
    ["{ @s = sum(", "); 1 }"],
    ["{ if (", ") { @c++ } 1 }"],
    ["{ for $i : 0..", " { @c++ } 1 }"],
    ["{ printf(\"%d\", ", "); 1 }"],
    ["(if pid { ", " } else { 1 })"],
    ["(if ", " { 1 } else { 1 })"],
    ["*(int8 *)(", ")"],
    ["((typeof(", "))1)"],
    ["delete(@m, ", ")"],
    ["kernel_name(", ")"],
    ["alloc_size(", ")"],
    ["nothing(", ")"],
    ["nothing.", ""],
];

/// Text before and after a statement that nests it.
const AROUND_STATEMENTS: &[[&str; 2]] = &[
    ["{", "}"],
    ["if pid {", "}"],
    ["if pid {} else {", "}"],
    ["for $i : 0..3 {", "}"],
    ["for $kv : @m {", "}"],
    ["while pid {", "}"],
    ["unroll(1) {", "}"],
];

fn script((_, head, each, tail): &Kind, bytes: usize) -> String {
    let mut text = head.to_string();
    let mut copies = 0;
    while text.len() + tail.len() < bytes {
        text.push_str(&each.replace('~', &copies.to_string()));
        copies += 1;
    }
    text + tail
}

/// CPU time of this thread in seconds.
fn clock() -> f64 {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap();
    time.tv_sec() as f64 + time.tv_nsec() as f64 / 1e9
}

/// Compiles a script; returns the codes of its diagnostics, and the time.
fn compile(text: &str) -> (Vec<&'static str>, f64) {
    let start = clock();
    let (mut diags, source) = (Diagnostics::default(), Source::new("t.ct", text));
    let options = Options { unsafe_ok: true, ..Options::default() };
    lang::compile(&source, &options, &Machine::new(), &mut diags);
    render::render(&diags.list, &source, false);
    (diags.list.iter().map(|d| d.code).collect(), clock() - start)
}

fn compile_time(text: &str) -> f64 {
    compile(text).1
}

fn format_time(text: &str) -> f64 {
    let start = clock();
    let _ = lang::format(&Source::new("t.ct", text), &mut Diagnostics::default());
    clock() - start
}

/// The clock is coarse, and other work runs on the machine: actual growth occurs in each attempt.
fn grows(small: &str, large: &str, time: fn(&str) -> f64, most: f64) -> Option<f64> {
    let growth = || time(large) / time(small).max(0.000_5);
    (0..3).map(|_| growth()).find(|growth| *growth < most).is_none().then(growth)
}

fn bytes() -> usize {
    std::env::var("GROWTH_BYTES").map_or(32_000, |bytes| bytes.parse().expect("a number of bytes"))
}

fn linear(kinds: &[Kind], time: fn(&str) -> f64) {
    let bytes = bytes();
    let grown = |kind: &Kind| {
        let growth = grows(&script(kind, bytes / 8), &script(kind, bytes), time, 20.0)?;
        Some(format!("{}: 8 times as much takes {growth:.0} times as long", kind.0))
    };
    let wrong: Vec<String> = kinds.iter().filter_map(grown).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn declarations() {
    linear(DECLARATIONS, compile_time);
}

#[test]
fn clauses() {
    linear(CLAUSES, compile_time);
}

#[test]
fn mistakes() {
    linear(MISTAKES, compile_time);
}

#[test]
fn bodies() {
    linear(BODIES, compile_time);
}

#[test]
fn text() {
    linear(TEXT, compile_time);
}

#[test]
fn broken() {
    linear(BROKEN, compile_time);
}

#[test]
fn formatted() {
    let every = [DECLARATIONS, CLAUSES, BODIES, TEXT, BROKEN].concat();
    linear(&every.iter().copied().step_by(8).collect::<Vec<_>>(), format_time);
}

/// No level is processed twice, which would double the time with each level.
#[test]
fn nesting() {
    let functions = table::all().filter(|builtin| builtin.kind == Builtin::Function);
    let calls = functions.map(|builtin| [format!("{}(", builtin.name), ")".to_string()]);
    let fixed = AROUND.iter().map(|around| around.map(String::from));
    let expressions = fixed.chain(calls).map(|[open, close]| [open, "1".into(), close, "$x = ".into()]);
    let statements = AROUND_STATEMENTS.iter().map(|around| around.map(String::from));
    let statements = statements.map(|[open, close]| [open, "@c++".into(), close, String::new()]);
    for [open, inner, close, before] in expressions.chain(statements) {
        let nested = |levels| {
            let (open, close) = (open.repeat(levels), close.repeat(levels));
            format!("uprobe:libc:malloc {{ {before}{open}{inner}{close}; }}")
        };
        let growth = grows(&nested(6), &nested(18), compile_time, 200.0);
        assert_eq!(growth, None, "{}", nested(6));
    }
}

/// Lines that each use the previous one, from the second to the last.
fn chain(first: &str, line: &str, count: usize, last: &str) -> String {
    let line = |at: usize| line.replace("NEXT", &at.to_string()).replace("LAST", &(at - 1).to_string());
    first.to_string() + &(1..count).map(line).collect::<String>() + last
}

/// Definitions that double in size with each use, and excessive nesting that would overflow the stack, are refused
/// quickly.
#[test]
fn multiplied() {
    let twice_40 = "m(".repeat(40) + "1" + &")".repeat(40);
    let deep = format!(
        "macro m(a) {{ {}a }} BEGIN {{ print({}1{}) }}",
        "!".repeat(200),
        "m(".repeat(90),
        ")".repeat(90)
    );
    let unrolled = format!("BEGIN {{ {}@c++{} }}", "unroll(100) { ".repeat(5), " }".repeat(5));
    let of_struct = "uprobe:libc:malloc { print(*(struct s NAME *)arg0) }";
    let cases = [
        (format!("macro m(a) {{ a + a }} BEGIN {{ print({twice_40}) }}"), "E0033"),
        (
            chain("macro m0() { 1 }", "macro mNEXT() { mLAST() + mLAST() }", 40, "BEGIN { print(m39()) }"),
            "E0033",
        ),
        (deep, "E0033"),
        (chain("#define N0 1\n", "#define NNEXT (NLAST + NLAST)\n", 40, "BEGIN { print(N39) }"), "E0007"),
        (chain("#define N0 1\n", "#define NNEXT NLAST\n", 4000, "BEGIN { print(N3999) }"), "E0007"),
        (chain("BEGIN { $t0 = (1, 2);", "$tNEXT = ($tLAST, $tLAST);", 40, "print($t39.0) }"), "E0227"),
        (
            chain("BEGIN { $t0 = (a = 1);", "$tNEXT = (a = $tLAST, b = $tLAST);", 40, "print($t39.a) }"),
            "E0227",
        ),
        (
            chain("BEGIN { $s0 = \"ab\";", "$sNEXT = str_concat($sLAST, $sLAST);", 40, "print($s39) }"),
            "E0227",
        ),
        (
            chain(
                "struct s0 { int a; };",
                "union sNEXT { struct sLAST a; struct sLAST b; };",
                60,
                &of_struct.replace(" NAME", "59"),
            ),
            "E0227",
        ),
        (
            chain(
                "struct s0 { int a; };",
                "struct sNEXT { struct sLAST a; };",
                4000,
                &of_struct.replace(" NAME", "3999"),
            ),
            "E0007",
        ),
        (
            chain(
                "typedef int *t0;",
                "typedef tLAST *tNEXT;",
                4000,
                "uprobe:libc:malloc { print((t3999)arg0) }",
            ),
            "E0007",
        ),
        (format!("uprobe:libc:malloc {{ print((int {})arg0) }}", "*".repeat(20_000)), "E0007"),
        (unrolled, "E0222"),
    ];
    for (text, code) in cases {
        let (codes, seconds) = compile(&text);
        assert!(codes.contains(&code), "{codes:?}: {text:.200}");
        assert!(seconds < 20.0, "{seconds} s: {text:.200}");
    }
}

/// The depth of a chain of `||` or `&&` is that of its deepest operand, however many operands there are.
#[test]
fn a_long_chain_of_conditions_is_no_nesting() {
    let chain = |op: &str, part: &str| {
        (0..2000).map(|n| part.replace('~', &n.to_string())).collect::<Vec<_>>().join(op)
    };
    for condition in [
        chain(" || ", "pid == ~"),
        chain(" && ", "pid != ~"),
        chain(" || ", "pid == ~ && tid > ~"),
        chain(" && ", "(pid != ~ || tid > ~)"),
    ] {
        let (codes, seconds) = compile(&format!("uprobe:libc:malloc / {condition} / {{ @n = count() }}"));
        assert_eq!(codes, [""; 0], "{condition:.60}");
        assert!(seconds < 20.0, "{seconds} s: {condition:.60}");
    }
    let sum = format!("BEGIN {{ print({}) }}", chain(" + ", "pid"));
    assert!(compile(&sum).0.contains(&"E0007"), "a sum is as deep as it is long");
}
