//! Addresses of probes in hand-assembled and in compiled functions.

mod common;

use std::path::Path;
use std::process::Command;

use common::gcc;
use host::prologue::{Body, CodePosition, entry_place, return_place};
use host::{Machine, Scope};
use lang::Catalog;

fn body(code: &[u8]) -> Body<'_> {
    Body { code, before: &[], size: code.len() as u64, next_symbol: u64::MAX }
}

fn entry(code: &[u8]) -> (u64, u32) {
    let place = entry_place(body(code));
    (place.bytes, place.stack_shift)
}

fn ret(code: &[u8]) -> u64 {
    let place = return_place(body(code));
    assert_eq!(place.stack_shift, 0);
    place.bytes
}

const ENDBR: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
const PUSH: [u8; 1] = [0x55];
const RET: [u8; 1] = [0xc3];

fn code(parts: &[&[u8]]) -> Vec<u8> {
    parts.concat()
}

#[test]
fn a_cheap_first_instruction_keeps_the_probe() {
    for first in [
        &[0x55][..],
        &[0x41, 0x57],
        &[0x90],
        &[0x0f, 0x1f, 0x44, 0, 0],
        &[0x66, 0x90],
        &[0xe9, 0x10, 0, 0, 0],
        &[0xeb, 2],
        &[0xe8, 1, 0, 0, 0],
    ] {
        let code = code(&[first, &PUSH, &RET]);
        assert_eq!((entry(&code), ret(&code)), ((0, 0), 0), "{first:02x?}");
    }
}

#[test]
fn a_landing_pad_is_passed_for_both() {
    let code = code(&[&ENDBR, &PUSH, &RET]);
    assert_eq!((entry(&code), ret(&code)), ((4, 0), 4));
}

#[test]
fn a_landing_pad_before_a_dear_instruction_is_no_gain_for_a_return() {
    // endbr64; sub $24,%rsp; push %rbp
    let code = code(&[&ENDBR, &[0x48, 0x83, 0xec, 0x18], &PUSH, &RET]);
    assert_eq!((entry(&code), ret(&code)), ((8, 24), 0));
}

#[test]
fn changes_of_the_stack_pointer_are_accounted_for() {
    // sub $0x100,%rsp; nop
    assert_eq!(entry(&code(&[&[0x48, 0x81, 0xec, 0, 1, 0, 0], &[0x90], &RET])), (7, 0x100));
    // lea -16(%rsp),%rsp; nop
    assert_eq!(entry(&code(&[&[0x48, 0x8d, 0x64, 0x24, 0xf0], &[0x90], &RET])), (5, 16));
    // push $1 (not emulated); push %rbp
    assert_eq!(entry(&code(&[&[0x6a, 1], &PUSH, &RET])), (2, 8));
    // and $-64,%rsp: the distance is unknown
    assert_eq!(entry(&code(&[&[0x48, 0x83, 0xe4, 0xc0], &PUSH, &RET])), (0, 0));
    // add $8,%rsp, mov %rax,%rsp
    assert_eq!(entry(&code(&[&[0x48, 0x83, 0xc4, 8], &PUSH, &RET])), (0, 0));
    assert_eq!(entry(&code(&[&[0x48, 0x89, 0xc4], &PUSH, &RET])), (0, 0));
}

#[test]
fn arguments_stay_what_they_were() {
    let stays: [&[u8]; 8] = [
        &[0x48, 0x89, 0xf7],             // mov %rsi,%rdi
        &[0x31, 0xc9],                   // xor %ecx,%ecx
        &[0x41, 0xb0, 1],                // mov $1,%r8b
        &[0x0f, 0x28, 0xc1],             // movaps %xmm1,%xmm0
        &[0x48, 0x89, 0x07],             // mov %rax,(%rdi)
        &[0x48, 0x89, 0x44, 0x24, 0x08], // mov %rax,8(%rsp): a stack argument
        &[0x48, 0x89, 0x04, 0x24],       // mov %rax,(%rsp): the return address
        &[0x48, 0x87, 0xfb],             // xchg %rdi,%rbx
    ];
    for first in stays {
        assert_eq!(entry(&code(&[first, &PUSH, &RET])), (0, 0), "{first:02x?}");
    }
    let moves: [&[u8]; 6] = [
        &[0x48, 0x89, 0xe5],             // mov %rsp,%rbp
        &[0x31, 0xc0],                   // xor %eax,%eax
        &[0x4c, 0x8d, 0x54, 0x24, 8],    // lea 8(%rsp),%r10
        &[0x48, 0x85, 0xff],             // test %rdi,%rdi
        &[0x48, 0x8b, 0x07],             // mov (%rdi),%rax
        &[0x48, 0x89, 0x5c, 0x24, 0xf8], // mov %rbx,-8(%rsp): below the stack
    ];
    for first in moves {
        assert_eq!(entry(&code(&[first, &PUSH, &RET])), (first.len() as u64, 0), "{first:02x?}");
    }
}

#[test]
fn a_local_store_behind_a_sub_is_told_from_a_stack_argument() {
    let sub = [0x48, 0x83, 0xec, 0x18];
    // movq $0,16(%rsp) ends below the return address; 24(%rsp) is the return address, 32(%rsp) the first argument.
    let store = |at: u8| [0x48, 0xc7, 0x44, 0x24, at, 0, 0, 0, 0];
    assert_eq!(entry(&code(&[&sub, &store(16), &PUSH, &RET])), (13, 24));
    assert_eq!(entry(&code(&[&sub, &store(24), &PUSH, &RET])), (0, 0));
    assert_eq!(entry(&code(&[&sub, &store(32), &PUSH, &RET])), (0, 0));
}

#[test]
fn a_loop_to_the_new_place_forbids_it() {
    // endbr64; L: dec %edi; jne L
    let onto = code(&[&ENDBR, &[0x90], &[0xff, 0xcf], &[0x75, 0xfb], &RET]);
    assert_eq!((entry(&onto), ret(&onto)), ((0, 0), 0));
    // ... and a loop to the start, or to a later instruction, does not.
    let start = code(&[&ENDBR, &[0x90], &[0xff, 0xcf], &[0x75, 0xf7], &RET]);
    assert_eq!((entry(&start), ret(&start)), ((4, 0), 4));
    let behind = code(&[&ENDBR, &[0x90], &[0xff, 0xcf], &[0x75, 0xfc], &RET]);
    assert_eq!((entry(&behind), ret(&behind)), ((4, 0), 4));
    // A loop into the bytes that an entry probe skips still permits the position of the return probe.
    let between = code(&[&ENDBR, &[0x31, 0xc0], &[0x90], &[0x75, 0xfb], &RET]);
    assert_eq!((entry(&between), ret(&between)), ((0, 0), 0));
}

#[test]
fn the_cold_half_of_a_function_is_searched_too() {
    // endbr64; push %rbp; jne cold; ret | padding | cold: jmp back to endbr64 + 4
    let mut hot = code(&[&ENDBR, &PUSH, &[0x0f, 0x85, 0, 0, 0, 0], &RET]);
    let size = hot.len() as u64;
    hot.extend([0xcc; 4]);
    let cold = hot.len() as i32;
    hot[7..11].copy_from_slice(&(cold - 11).to_le_bytes());
    hot.push(0xe9);
    hot.extend((4 - (cold + 5)).to_le_bytes());
    let place = |code: &[u8]| entry_place(Body { size, ..body(code) });
    assert_eq!(place(&hot), CodePosition::default());
    let at = hot.len() - 4;
    hot[at..].copy_from_slice(&(-(cold + 5)).to_le_bytes());
    assert_eq!(place(&hot).bytes, 4, "a jump to the start is harmless");
}

#[test]
fn a_cold_half_in_front_is_searched_too() {
    // The code starts eight bytes before the function: jmp to start + 4.
    let mut before = vec![0xcc, 0xcc, 0xcc, 0xe9];
    before.extend(4i32.to_le_bytes());
    // endbr64; push %rbp; jne -5; ret
    let hot = code(&[&ENDBR, &PUSH, &[0x0f, 0x85], &(-5i32 - 11).to_le_bytes(), &RET]);
    assert_eq!(entry_place(Body { before: &before, ..body(&hot) }), CodePosition::default());
    assert_eq!(entry_place(body(&hot)).bytes, 4, "code that is not there is not searched");
}

#[test]
fn jump_tables_are_told_from_tail_calls() {
    let nop = [0x90];
    // jmp *%rax; with `notrack` it uses a jump table, if the compiler marks them.
    assert_eq!(entry(&code(&[&ENDBR, &nop, &[0xff, 0xe0]])), (4, 0));
    assert_eq!(entry(&code(&[&ENDBR, &nop, &[0x3e, 0xff, 0xe0]])), (0, 0));
    // No case of a jump table begins with the `push` of the prologue.
    assert_eq!(entry(&code(&[&ENDBR, &PUSH, &[0x3e, 0xff, 0xe0]])), (4, 0));
    // mov %rsp,%rbp; push %rbx; jmp *%rax, in code without `notrack`
    assert_eq!(entry(&code(&[&[0x48, 0x89, 0xe5], &[0x53], &[0xff, 0xe0]])), (0, 0));
}

#[test]
fn the_next_symbol_is_never_reached() {
    let code = code(&[&ENDBR, &PUSH, &RET]);
    for next_symbol in [1, 4] {
        assert_eq!(entry_place(Body { next_symbol, ..body(&code) }), CodePosition::default());
    }
    assert_eq!(entry_place(Body { next_symbol: 5, ..body(&code) }).bytes, 4);
    assert_eq!(
        entry_place(Body { size: 4, ..body(&code) }).bytes,
        0,
        "what falls through to another function"
    );
}

#[test]
fn without_a_size_only_a_landing_pad_is_passed() {
    let unknown = |code: &[u8]| entry_place(Body { size: 0, ..body(code) });
    assert_eq!(unknown(&code(&[&ENDBR, &PUSH, &RET])).bytes, 4);
    assert_eq!(unknown(&code(&[&[0x31, 0xc0], &PUSH, &RET])).bytes, 0);
    assert_eq!(unknown(&code(&[&ENDBR, &[0x31, 0xc0], &PUSH, &RET])).bytes, 0);
}

#[test]
fn any_bytes_are_acceptable() {
    let mut state = 1u64;
    for round in 0..20_000 {
        let mut bytes = if round % 2 == 0 { ENDBR.to_vec() } else { Vec::new() };
        for _ in 0..round % 40 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            bytes.push((state >> 33) as u8);
        }
        let whole = body(&bytes);
        for body in [
            whole,
            Body { size: 0, ..whole },
            Body { size: u64::MAX, ..whole },
            Body { next_symbol: 0, ..whole },
        ] {
            assert!(entry_place(body).bytes <= 64);
            assert!(return_place(body).bytes <= 4);
        }
    }
}

/// Compiled functions with different kinds of prologues.
const FUNCTIONS: &str = r#"
    extern int printf(const char *, ...);
    int leaf(int a) { return a + 1; }
    int calls(int a, char *b) { return printf("%d %s\n", a, b) + a; }
    int many(int a, int b, int c, int d, int e, int f, int g, long h) { char x[256]; return printf("%p", x) + a + b + c + d + e + f + g + h; }
    int loop(int n) { int s = 0; do { s += n; } while (n--); return s; }
    unsigned long spin(volatile unsigned long *p) { while (*p) ; return 0; }
    int table(int x) { switch (x) { case 0: return printf("a"); case 1: return printf("bb") + 4; case 2: return 7; case 3: return printf("d"); case 4: return 11; case 5: return printf("e"); default: return 0; } }
"#;

/// Compares the positions with the output of a disassembler: they are at instruction boundaries, and no argument
/// is overwritten before them.
#[test]
fn compiled_functions_get_places_on_instruction_boundaries() {
    let dir = tempfile::tempdir().expect("a directory");
    for (index, flags) in [
        &["-O0"][..],
        &["-O2"],
        &["-O2", "-fno-omit-frame-pointer"],
        &["-Os"],
        &["-O3", "-fstack-protector-all"],
    ]
    .iter()
    .enumerate()
    {
        let path = dir.path().join(format!("libp{index}.so"));
        let mut all = vec!["-shared", "-fPIC", "-fcf-protection=full"];
        all.extend(*flags);
        gcc(FUNCTIONS, &path, &all);
        check_places(&path, flags);
    }
}

fn check_places(path: &Path, flags: &[&str]) {
    let machine = Machine::new(Scope::default());
    let file = machine.files(path.to_str().expect("text")).expect("found").remove(0).id;
    for name in ["leaf", "calls", "many", "loop", "spin", "table"] {
        let function =
            machine.functions(file).iter().find(|f| f.names.contains(&name.to_owned())).expect(name).clone();
        let listing = disassembly(path, name);
        assert!(listing[0].1.starts_with("endbr64"), "{listing:?}");
        let first = listing[0].0;
        let (entry, ret) =
            (machine.entry_place(file, function.offset), machine.return_place(file, function.offset));
        let on = |offset: u64| {
            listing
                .iter()
                .find(|(at, _)| at - first == offset - function.offset)
                .map(|(_, text)| text.clone())
        };
        for place in [entry.offset, ret.offset] {
            assert!(on(place).is_some(), "{flags:?} {name}: {place:x} in {listing:?}");
        }
        assert!([0, 4].contains(&(ret.offset - function.offset)));
        if listing[1].1.starts_with("push") {
            assert_eq!(
                (entry.offset, ret.offset),
                (function.offset + 4, function.offset + 4),
                "{flags:?} {name}"
            );
            assert_eq!(entry.stack_shift, 0);
        }
        if entry.offset > function.offset {
            let text = on(entry.offset).expect("seen above");
            let cheap = ["push", "nop", "j", "call", "xchg"].iter().any(|start| text.starts_with(start));
            assert!(cheap, "{flags:?} {name}: moved to {text}");
        }
    }
}

/// (address, text) of each instruction, from objdump.
fn disassembly(path: &Path, function: &str) -> Vec<(u64, String)> {
    let output = Command::new("objdump")
        .args(["--no-show-raw-insn", &format!("--disassemble={function}")])
        .arg(path)
        .output()
        .expect("objdump runs");
    let text = String::from_utf8(output.stdout).expect("text");
    let line = |line: &str| {
        let (address, rest) = line.trim_start().split_once(":\t")?;
        Some((u64::from_str_radix(address, 16).ok()?, rest.trim().to_owned()))
    };
    text.lines().filter_map(line).collect()
}
