//! Facts about resolving and checking that are no matter of text: every example of a built-in is accepted, a running program keeps its ids, every checked program obeys the rules of `hir`.

mod common;

use common::Machine;
use lang::builtins::table;
use lang::catalog::FileId;
use lang::hir::{Attach, Expr, ExprKind, MapValue, NameKind, Program, Type, visit};
use lang::{CheckedScript, Diagnostics, Options, SessionState, Source};

fn compile(script: &str, options: &Options) -> (Option<CheckedScript>, Diagnostics) {
    let mut diags = Diagnostics::default();
    let source = Source::new("t.ct", script);
    let checked = lang::compile(&source, options, &Machine::new(), &mut diags);
    (checked, diags)
}

fn program(script: &str) -> Program {
    let (checked, diags) = compile(script, &Options { unsafe_ok: true, ..Options::default() });
    checked.unwrap_or_else(|| panic!("{script}: {:?}", diags.list)).program
}

#[test]
fn every_example_of_a_builtin_is_accepted() {
    for builtin in table::all() {
        let (checked, diags) = compile(builtin.example, &Options { unsafe_ok: true, ..Options::default() });
        assert!(checked.is_some(), "{}: {:?}", builtin.name, diags.list);
    }
}

#[test]
fn a_running_program_keeps_its_ids_and_types() {
    let first =
        program("uretprobe:libcuda:cuMem* { @[func] = count(); @last = retval } BEGIN { @n = (uint32)1 }");
    let options = Options { known: Some(SessionState::of(&first)), ..Options::default() };
    let (checked, diags) =
        compile("uretprobe:libcuda:cuInit { @last = retval; @new[func] = 1; @n = 5 }", &options);
    let second = checked.unwrap_or_else(|| panic!("{:?}", diags.list)).program;
    assert_eq!(second.maps[..first.maps.len()], first.maps[..]);
    assert_eq!(second.maps.len(), first.maps.len() + 1);
    for kind in [NameKind::Func, NameKind::Api, NameKind::Probe] {
        let old = first.names.table(kind);
        assert_eq!(&second.names.table(kind)[..old.len()], old);
    }
    assert_eq!(second.enums[..first.enums.len()], first.enums[..]);
    let (checked, _) = compile("BEGIN { @n = nsecs }", &options);
    assert!(checked.is_none(), "a uint64 does not fit the running program's uint32");
}

#[test]
fn another_script_may_declare_other_types_by_names_of_a_running_program() {
    let point = "struct point { struct point *next; struct { int x; } at; };";
    let first =
        program(&format!("{point} enum how {{ SLOW = 1 }}; BEGIN {{ @p = *(struct point *)1; @h = SLOW }}"));
    let known = SessionState::of(&first);
    let findings = |script: &str| {
        let options = Options { known: Some(known.clone()), ..Options::default() };
        compile(script, &options).1.list.into_iter().map(|finding| finding.message).collect::<Vec<_>>()
    };
    let none: [&str; 0] = [];
    assert_eq!(
        findings(&format!("{point} enum how {{ SLOW = 1 }}; BEGIN {{ @p = *(struct point *)1; @h = SLOW }}")),
        none
    );
    assert_eq!(findings("enum how { SLOW = 3, FAST }; BEGIN { @other = SLOW; print((enum how)4) }"), none);
    let longer = "struct point { long v[9]; };";
    assert_eq!(findings(&format!("{longer} BEGIN {{ @q = *(struct point *)1 }}")), none);
    let kept = "`@p` holds `point` with the members of an earlier declaration";
    assert_eq!(findings(&format!("{longer} BEGIN {{ @p = *(struct point *)1 }}")), [kept]);
    assert_eq!(findings("enum how { A }; enum how { B }; BEGIN { @other = A }"), ["`how` is declared twice"]);
}

#[test]
fn clauses_at_records_of_gpus_are_added_to_a_running_program() {
    let script =
        "gpu:kernel { @ = sum(args.duration); @memory = args.graph; } gpu:memcpy { @kind = args.src_kind }";
    let options = Options { known: Some(SessionState::of(&program(script))), ..Options::default() };
    let (checked, diags) = compile(script, &options);
    let probes = checked.unwrap_or_else(|| panic!("{:?}", diags.list)).program.probes;
    assert!(diags.list.is_empty(), "{:?}", diags.list);
    let kinds: Vec<_> = probes.iter().map(|probe| probe.records.map(|records| records.kind)).collect();
    assert_eq!(kinds, [Some(0), Some(1)]);
}

#[test]
fn late_libraries_get_only_their_calls() {
    let script =
        "BEGIN { @ = count() } uprobe:*:cudaMalloc { @ = count() } uprobe:libnccl:ncclSend { @ = count() }";
    let options = Options { only_files: Some(vec![FileId(1)]), ..Options::default() };
    let (checked, diags) = compile(script, &options);
    let checked = checked.unwrap_or_else(|| panic!("{:?}", diags.list));
    assert!(checked.pending.is_empty());
    let [probe] = checked.program.probes.as_slice() else { panic!("{:?}", checked.program.probes) };
    let Attach::Entry(_, sites) = &probe.attach else { panic!("{:?}", probe.attach) };
    assert_eq!((sites.len(), sites[0].file, probe.clause), (1, Some(FileId(1)), 1));
}

#[test]
fn one_function_is_probed_once() {
    let program = program(
        "uprobe:libcuda:cuMem*,cuMemAlloc_v2,uprobe:/usr/lib/libcuda.so.1:cuMemAlloc { @ = count() }",
    );
    let [probe] = program.probes.as_slice() else { panic!() };
    let Attach::Entry(_, sites) = &probe.attach else { panic!() };
    let mut offsets: Vec<u64> = sites.iter().map(|site| site.place.offset).collect();
    offsets.dedup();
    assert_eq!((sites.len(), offsets.len()), (6, 6));
}

#[test]
fn findings_of_all_layouts_are_said_once() {
    let (_, diags) =
        compile("uprobe:libcuda:cuMem*,cuInit { pid; @[args.nothing] = count() }", &Options::default());
    let mut seen: Vec<_> = diags.list.iter().map(|d| (d.code, d.span)).collect();
    seen.dedup();
    assert_eq!(seen.len(), diags.list.len());
}

#[test]
fn unsafe_functions_need_the_gate_open() {
    let codes = |unsafe_ok| -> Vec<_> {
        let options = Options { unsafe_ok, ..Options::default() };
        let script =
            "uprobe:libcuda:cuInit { system(\"id\"); signal(9); signal_thread(\"INT\"); override(1) }";
        compile(script, &options).1.list.iter().map(|d| d.code).collect()
    };
    assert_eq!(codes(false), ["E0224", "E0224", "E0224", "E0223"]);
    assert_eq!(codes(true), ["E0223"]);
}

/// Checked programs satisfy the invariants that their documentation states.
#[test]
fn checked_programs_obey_their_rules() {
    let examples = table::all().map(|b| b.example);
    let more = [
        "uretprobe:libcuda:cu* { if (retval != CUDA_SUCCESS && duration > 10) { @[func, retval] = hist(duration, 2) } }",
        "BEGIN { $x = 1; $x += pid; $y = (1, \"a\", $x); print($y.2 * 3 / 2); @m[pid, comm] = \"long text\"; @m[1, \"b\"] = \"x\" }",
        "interval:s:1 { for ($kv : @m) { @n[$kv.0] = $kv.1 } @m[pid, comm]++; unroll(3) { @m[1, \"\"] -= 2 } }",
        "uprobe:libcuda:cuLaunchKernelEx { @[args.config->gridDimX, args.config.hStream] = count() }",
        "uprobe:libcudart:cudaLaunchKernel { @[args.gridDim.x * args.gridDim.y] = count() }",
        "profile:hz:99 { @[ustack(3), kstack] = count(); $i = pid > 3 ? \"a\" : \"bcd\"; print($i) }",
    ];
    for script in examples.chain(more) {
        let program = program(script);
        assert!(program.maps.iter().all(|map| map.value != MapValue::Plain(Type::Void)), "{script}");
        visit::visit(&program, &mut |e| obey(e, script));
    }
}

/// Scripts of the golden files.
fn golden_scripts() -> Vec<String> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let files = ["check", "resolve"].iter().flat_map(|name| std::fs::read_dir(folder.join(name)).unwrap());
    let mut paths: Vec<_> = files.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let script = |path| std::fs::read_to_string(path).unwrap().split("====").next().unwrap().to_string();
    paths.into_iter().map(script).collect()
}

/// Words, numbers and single punctuation characters.
fn tokens(script: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = script;
    while let Some(first) = rest.chars().next() {
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let length = match first {
            c if is_word(c) => rest.find(|c| !is_word(c)).unwrap_or(rest.len()),
            c => c.len_utf8(),
        };
        tokens.push(&rest[..length]);
        rest = &rest[length..];
    }
    tokens
}

/// Scripts with one token removed or replaced: there is never a panic, there are errors if and only if there is no
/// program, and every program satisfies the invariants.
#[test]
fn damaged_scripts_are_checked_or_refused() {
    let scripts = golden_scripts();
    let mut accepted = 0;
    for (at, script) in scripts.iter().enumerate() {
        let own = tokens(script);
        let foreign = tokens(&scripts[(at * 7 + 3) % scripts.len()]);
        for place in (at % 4..own.len()).step_by(4) {
            let other = foreign[(place * 13) % foreign.len()];
            for replacement in ["", other] {
                let mut damaged = own.clone();
                damaged[place] = replacement;
                let damaged = damaged.concat();
                let (checked, diags) = compile(&damaged, &Options::default());
                assert_eq!(checked.is_none(), diags.has_errors(), "{damaged}");
                if let Some(checked) = checked {
                    accepted += 1;
                    visit::visit(&checked.program, &mut |e| obey(e, &damaged));
                }
            }
        }
    }
    assert!(accepted > 300, "{accepted}");
}

fn obey(e: &Expr, script: &str) {
    assert!(e.ty != Type::Void, "{script}: {e:?}");
    if let ExprKind::Binary { op, lhs, rhs } = &e.kind {
        use lang::hir::BinaryOp::*;
        let is_word = |ty: &Type| matches!(ty, Type::Int { bytes: 8, .. });
        match op {
            And | Or => assert_eq!(e.ty, Type::Bool, "{script}"),
            Eq | Ne | Lt | Gt | Le | Ge => {
                assert_eq!((&lhs.ty, &e.ty), (&rhs.ty, &Type::Bool), "{script}: {e:?}")
            }
            _ => assert!(lhs.ty == rhs.ty && is_word(&lhs.ty) && e.ty == lhs.ty, "{script}: {e:?}"),
        }
    }
}

#[test]
fn expressions_written_once_are_computed_once() {
    for statement in [
        "@x[{ @n++; (1, 2) }] = 1",
        "@x[{ @n++; (1, 2) }]++",
        "@x[1, 2] = 1; print(has_key(@x, { @n++; (1, 2) }))",
        "@x[1, 2] = 1; delete(@x, { @n++; (1, 2) })",
        "@x[1, 2] = 1; print(@x[{ @n++; (1, 2) }])",
        "@x = { @n++; pid } ?: 2",
        "@x = sum({ @n++; pid })",
        "@x = hist({ @n++; pid }, 2)",
        "print({ @n++; (1, (2, 3)) }.1.0)",
        "@x = { @n++; \"abc\" } == \"abc\"",
        "$x = (uint8[8]){ @n++; pid }",
        "for $i : { @n++; 0 }..5 { @i = $i }",
    ] {
        let program = program(&format!("BEGIN {{ {statement} }}").replace("pid", "nsecs"));
        let mut updates = 0;
        let mut see = |e: &Expr| {
            if let ExprKind::UpdateMap { map, .. } = &e.kind {
                updates += usize::from(program.maps[map.0 as usize].name == "n");
            }
        };
        program.probes.iter().for_each(|probe| visit::visit_probe(probe, &mut see));
        assert_eq!(updates, 1, "{statement}");
    }
}
