//! Properties over a corpus, and the limits. Golden files for single scripts are in `tests/golden/parse`.

use super::*;
use crate::syntax::print::{dump, print};

/// Scripts that cover the whole grammar.
const CORPUS: &[&str] = &[
    "BEGIN { printf(\"hi\\n\"); }",
    "begin,END{exit()}",
    "uprobe:libcuda:cuInit,cuMemAlloc,uretprobe:libcuda:\"cuMemFree_v2\" { @[func] = count() }",
    "uprobe:/usr/lib/*/libcuda.so*:/cu(Mem|Ctx){1,2}.*\\/x/ /pid == 3 && args->bytesize / 2 > 1/ { @n++ }",
    "u:./prog:f+0x10 / @x[tid] /\n{ }",
    "uprobe:libcudart:cudaMalloc@libcudart.so.12 < printf(\"%d >\\n\", args->size); if (1 > 0) { $x = 2 > 1 } @ = (3 >> 1); >",
    "interval:s:1 < @x = hist(args.f > 1 ? 2 : 3) > END { }",
    "interval:s:1/pid/{ print(@, 10); clear(@) }",
    "config = { max_map_keys = 1000; stack_mode = perf max_strlen=64 }\nBEGIN{}",
    "#!/usr/bin/cudatrace\n#define LIMIT (1 << 20)\n#include <cuda.h>\nlet @m = lruhash(100);\nBEGIN { @m[1] = LIMIT }",
    "BEGIN { $a = 1 + 2 * 3 - 4 % 5 << 1 | 7 & ~1 ^ !0; $b = ($a ? 1 : 2) ?: 3; $c = $a ? $b ? 1 : 2 : $a ? 3 : 4 }",
    "BEGIN { $x = (uint8[8])1; $y = (struct CUlaunchConfig *)arg0; $z = (CUresult)retval; $w = (pid) - 1; $v = (uint32)-1 }",
    "BEGIN { let $x; let $y: uint16 = 3; let $p: char * = 0; $x = -(-1); $x += - -1; --$x; @m[1]--; _ = $x++; }",
    "BEGIN { for $i : 0..10 { if $i == 3 { break } else if ($i) > 4 { continue; } else { return } } }",
    "BEGIN { for ($kv : @m) { print(($kv.0, $kv.1.0)); } while ($x < 3) { $x++ } unroll(3) { @ = sum(1) } }",
    "BEGIN { $t = (1,); $u = (1, \"a\\x00\\xff\", (2, 3)); print($t.0); print(\"abc\"[1]); print(sizeof(uint32) + sizeof($t)); }",
    "BEGIN { print(nsecs(monotonic)); @[ustack(perf, 3), comm()] = lhist(1, 0, 10ms, 1e3); print(@m[1][2]); print((@m)[2]) }",
    "BEGIN { $p = *(int32 *)arg0; $q = &$p; $r = args.grid.x; $s = a->b->c[1].d; @x = stats(1UL) }",
    "BEGIN {\n// comment }\n/* { */ $x = 18446744073709551615; $y = 0x1f; { $z = 017; } ; ; }",
    "p:hz:99 { @[kstack] = count(); } i:ms:10 { } usdt:libx:ns:name { } cuda:alloc,free { } cuda:alloc:start { }",
    "BEGIN { delete(@m[1]); delete(@m, 1, 2); $x = has_key(@m, (1, 2)) || strncmp(\"a\", \"b\", 1) != 0 }",
];

fn read(text: &str, params: &[&str]) -> (Option<Script>, Diagnostics) {
    let mut diags = Diagnostics::default();
    let params: Vec<String> = params.iter().map(|p| p.to_string()).collect();
    let script = crate::parse(&Source::new("t.ct", text), &params, &mut diags);
    (script, diags)
}

fn good(text: &str) -> Script {
    let (script, diags) = read(text, &[]);
    script.unwrap_or_else(|| panic!("{text}\n{:#?}", diags.list))
}

/// Codes of the diagnostics, with the text of their spans.
fn bad(text: &str) -> Vec<(&'static str, &str)> {
    let (script, diags) = read(text, &[]);
    assert_eq!(script, None, "{text}");
    let slice = |span: Span| &text[span.start as usize..span.end as usize];
    diags.list.iter().map(|d| (d.code, slice(d.span))).collect()
}

#[test]
fn printing_and_reading_gives_the_same_tree() {
    for text in CORPUS {
        let first = good(text);
        let printed = print(&first);
        let second = good(&printed);
        assert_eq!(dump(&first), dump(&second), "{text}\n{printed}");
        assert_eq!(print(&second), printed);
    }
}

#[test]
fn any_prefix_and_any_gap_is_an_error_with_a_place_and_not_a_panic() {
    for text in CORPUS {
        for cut in (0..text.len()).filter(|&cut| text.is_char_boundary(cut)) {
            check_broken(&text[..cut]);
            check_broken(&format!("{}{}", &text[..cut], &text[cut + 1..]));
            check_broken(&format!("{}\u{1}{}", &text[..cut], &text[cut..]));
        }
    }
}

fn check_broken(text: &str) {
    let (script, diags) = read(text, &[]);
    assert_eq!(script.is_none(), diags.has_errors(), "{text}");
    for diag in &diags.list {
        assert!(diag.span.start <= diag.span.end && diag.span.end as usize <= text.len(), "{text}: {diag:?}");
        assert!(!diag.message.contains("something else"), "{text}: {diag:?}");
        assert!(crate::diagnostics::codes::find(diag.code).is_some(), "{diag:?}");
    }
}

#[test]
fn each_broken_clause_has_its_message() {
    assert_eq!(
        bad("BEGIN { print(1 }\nuprobe:a:b { $x = ; }\nEND { print(2) }\nEND { ( }"),
        [("E0001", "}"), ("E0001", ";"), ("E0001", "}")]
    );
}

#[test]
fn a_body_in_angles_ends_where_the_rule_says() {
    for text in
        ["BEGIN < $x = args->y > END { }", "BEGIN < print(\">\") /* > */ > END { }", "BEGIN < $x-- > END { }"]
    {
        assert_eq!(good(text).items.len(), 2, "{text}");
    }
    for text in
        ["BEGIN < $x = 3 >= 2; >", "BEGIN < $x = 3 > 2; >", "BEGIN < $x = 3 >> 2; >", "BEGIN < $x >>= 2; >"]
    {
        assert_eq!(bad(text), [("E0013", ">")], "{text}");
    }
    good("BEGIN < if $x { $y = 3 > 2 } @[1 > 0] = 2; $z = (4 > 3); f(1 > 2) >");
}

#[test]
fn deep_nesting_is_refused() {
    let deep = |open: &str, close: &str, count: usize| {
        format!("BEGIN {{ $x = {}1{}; }}", open.repeat(count), close.repeat(count))
    };
    for text in [
        deep("(", ")", 10_000),
        deep("!", "", 10_000),
        deep("-(", ")", 10_000),
        deep("1 + ", "", 10_000),
        deep("1 ? ", " : 2", 10_000),
        deep("1 ? 2 : ", "", 10_000),
        deep("f(", ")", 10_000),
        deep("@[", "]", 10_000),
        deep("(uint8)", "", 10_000),
        deep("", ".a", 10_000),
        deep("", "[0]", 10_000),
        format!("BEGIN {{ {}{} }}", "if 1 {".repeat(10_000), "}".repeat(10_000)),
        format!("BEGIN {{ if 1 {{ }} {} }}", "else if 1 { }".repeat(10_000)),
        format!("BEGIN {{ {}{} }}", "{".repeat(10_000), "}".repeat(10_000)),
    ] {
        let (script, diags) = read(&text, &[]);
        assert!(script.is_none());
        assert_eq!(diags.list.iter().map(|d| d.code).collect::<Vec<_>>(), ["E0007"], "{}", &text[..40]);
    }
}

#[test]
fn reasonable_nesting_is_accepted() {
    good(&format!("BEGIN {{ $x = {}1{}; }}", "(".repeat(60), ")".repeat(60)));
    good(&format!("BEGIN {{ if {} {{ }} }}", ["pid == 3"; 60].join(" || ")));
}

#[test]
fn time_grows_with_length_only() {
    let clause =
        "uprobe:libcuda:cuMemAlloc /pid == 3/ { @x[func, (tid, 2)] = hist((nsecs - @start[tid]) / 1000); }\n";
    let time = |text: &str| {
        let start = std::time::Instant::now();
        let _ = read(text, &[]);
        start.elapsed().as_secs_f64()
    };
    let small = time(&clause.repeat(1_000)).max(0.001);
    let large = time(&clause.repeat(10_000));
    assert!(large < small * 40.0, "{small} s for 0.1 MB, {large} s for 1 MB");
    let broken = clause.replace("== 3", "==");
    let large = time(&broken.repeat(10_000));
    assert!(large < small * 400.0, "{small} s, with mistakes {large} s");
}

#[test]
fn positional_parameters() {
    let text = "uprobe:$1:cu$2* { print(($2, $1, str($2), $3, str($3), $#, str($1, 4))); }";
    let (script, diags) = read(text, &["libcuda", "12"]);
    let script = script.unwrap_or_else(|| panic!("{diags:?}"));
    let same = "uprobe:libcuda:cu12* { print((12, \"libcuda\", \"12\", 0, \"\", 2, \"lib\")); }";
    assert_eq!(dump(&script), dump(&good(same)));
    let (script, _) = read("BEGIN { print($1) }", &["-0x10"]);
    assert_eq!(dump(&script.unwrap()), dump(&good("BEGIN { print(-16) }")));
    let (script, diags) = read("uprobe:a:$2 { }", &["x"]);
    assert_eq!((script, diags.list[0].code), (None, "E0010"));
}

#[test]
fn lists_of_probes_inherit_the_target() {
    let long = "uprobe:libcuda:cuInit { } uprobe:libcuda:/a.b/ { } uprobe:libcuda:\"x\" { } END { }";
    let Item::Clause(clause) = &good("uprobe:libcuda:cuInit , /a.b/,\"x\",\nEND { }").items[0] else {
        panic!()
    };
    let specs: Vec<String> = clause.probes.iter().map(crate::syntax::print::spec).collect();
    let expected: Vec<String> = good(long)
        .items
        .iter()
        .flat_map(|item| match item {
            Item::Clause(clause) => clause.probes.iter().map(crate::syntax::print::spec).collect(),
            _ => Vec::new(),
        })
        .collect();
    assert_eq!(specs, expected);
}

#[test]
fn spans_cover_what_was_written() {
    let text = "BEGIN /pid  ==  3 / { print( $x + f(1) . a ) ; }";
    let Item::Clause(clause) = &good(text).items[0] else { panic!() };
    let slice = |span: Span| &text[span.start as usize..span.end as usize];
    assert_eq!(clause.predicate.as_ref().map(|e| slice(e.span)), Some("pid  ==  3"));
    assert_eq!(slice(clause.body.stmts[0].span), "print( $x + f(1) . a )");
    assert_eq!(slice(clause.span), text);
}

#[test]
fn division_and_predicate() {
    let text = "BEGIN /8 / 4 / 2 == 1/ { $x = 8 / 4 /* c */ / 2; $x /= 2 }";
    let Item::Clause(clause) = &good(text).items[0] else { panic!() };
    assert_eq!(crate::syntax::print::print_expr(clause.predicate.as_ref().unwrap()), "8 / 4 / 2 == 1");
    assert_eq!(clause.body.stmts.len(), 2);
}

#[test]
fn terse_and_old_forms_are_accepted() {
    for text in [
        "uprobe:*:cuInit{}",
        "uprobe:libcuda:cuInit/pid==1/{}",
        "uprobe:libcuda:cuMem[A-F]* { }",
        "Uprobe:libcuda:cuInit { } INTERVAL:s:1 { }",
        "BEGIN{@x=1}END{print(@x)}",
        "BEGIN{if(pid==1){exit()}}",
        "BEGIN { $x = pid()/2; $x; }",
        "BEGIN { $a = -1 - -1; $b = !$a && ~$a; }",
        "uprobe:libcuda:cu* <@[func]=count()>interval:s:1<print(@)>",
        "uprobe:a:b /args.x > 2/ <@=hist(args.x)>",
        "uprobe:a:b /args.x < 2/ <@=hist(args.x)>",
        "uretprobe:libcuda:cuMemAlloc / *args.dptr > 0 / { }",
        "uprobe:a:f,\nuprobe:b:g\n/@s[tid]/\n{\n\tif ((int8)retval >= 1) { @ = (nsecs - @s[tid]) / 1e6; }\n}\n",
        "",
        "// nothing\n",
    ] {
        good(text);
    }
}

#[test]
fn a_position_of_a_number_prints_in_parentheses() {
    let (script, _) = read("BEGIN { print($1.1.5) }", &["7"]);
    let script = script.unwrap();
    assert_eq!(dump(&script), dump(&good(&print(&script))));
}
