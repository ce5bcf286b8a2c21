//! Functions that give way to a jump, and functions that do not.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use host::ElfFile;
use host::patch::{Author, Body, PatchPlace, Refusal, patch_place};
use iced_x86::{Decoder, DecoderOptions, Instruction, OpKind};

fn body(code: &[u8]) -> Body<'_> {
    Body { code, before: &[], size: code.len() as u64, next_symbol: u64::MAX }
}

fn place(parts: &[&[u8]]) -> Result<PatchPlace, Refusal> {
    patch_place(body(&parts.concat()), Author::Compiler)
}

/// A place after a `push`.
fn at(bytes: u64, len: u8, first: u8) -> Result<PatchPlace, Refusal> {
    Ok(PatchPlace { bytes, len, first, undo: 8 })
}

const ENDBR: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
/// `push %rbp`
const PUSH: [u8; 1] = [0x55];
/// `push %r15`
const PUSH_R15: [u8; 2] = [0x41, 0x57];
/// `mov %rsp,%rbp`
const FRAME: [u8; 3] = [0x48, 0x89, 0xe5];
/// `sub $24,%rsp`
const SUB: [u8; 4] = [0x48, 0x83, 0xec, 0x18];
/// `mov $1,%eax`
const MOV: [u8; 5] = [0xb8, 1, 0, 0, 0];
const RET: [u8; 1] = [0xc3];

#[test]
fn the_jump_is_after_the_first_push() {
    assert_eq!(place(&[&PUSH, &FRAME, &SUB, &RET]), at(1, 7, 1));
    assert_eq!(place(&[&ENDBR, &PUSH_R15, &MOV, &RET]), at(6, 5, 2));
    assert_eq!(place(&[&PUSH, &[0x53], &[0x50], &[0x51], &[0x52], &[0x56], &RET]), at(1, 5, 1));
    assert_eq!(place(&[&[0x66, 0x55], &MOV, &RET]), Err(Refusal::First), "push %bp");
    assert_eq!(place(&[&[0x6a, 1], &MOV, &RET]), Err(Refusal::First), "push $1");
}

#[test]
fn the_first_instruction_may_be_undone_or_executed_twice() {
    let after = |first: &[u8]| place(&[first, &MOV, &RET]);
    let twice = |first: &[u8]| {
        Ok(PatchPlace { bytes: first.len() as u64, len: 5, first: first.len() as u8, undo: 0 })
    };
    assert_eq!(after(&SUB), Ok(PatchPlace { bytes: 4, len: 5, first: 4, undo: 24 }));
    let repeated: [(&str, &[u8]); 6] = [
        ("mov $1,%eax", &MOV),
        ("xor %eax,%eax", &[0x31, 0xc0]),
        ("test %rdi,%rdi", &[0x48, 0x85, 0xff]),
        ("mov %rdi,%rax", &[0x48, 0x89, 0xf8]),
        ("mov (%rdi),%rax", &[0x48, 0x8b, 0x07]),
        ("lea 8(%rdi,%rsi),%rax", &[0x48, 0x8d, 0x44, 0x37, 0x08]),
    ];
    for (text, first) in repeated {
        assert_eq!(after(first), twice(first), "{text}");
    }
    let unknown = |first: &[u8]| patch_place(body(&[first, &MOV, &RET].concat()), Author::Unknown);
    assert_eq!(unknown(&SUB), Err(Refusal::First));
    assert_eq!(unknown(&PUSH), at(1, 5, 1));
    assert_eq!(unknown(&MOV), Err(Refusal::First), "code of a person may jump behind it");
    let refused: [(&str, &[u8]); 8] = [
        ("add $1,%rax", &[0x48, 0x83, 0xc0, 0x01]),
        ("mov (%rax),%rax", &[0x48, 0x8b, 0x00]),
        ("mov %edi,%edi", &[0x89, 0xff]),
        ("xor %esi,%esi", &[0x31, 0xf6]),
        ("mov %rax,(%rdi)", &[0x48, 0x89, 0x07]),
        ("mov %rax,%rsp", &[0x48, 0x89, 0xc4]),
        ("sub %rax,%rsp", &[0x48, 0x29, 0xc4]),
        ("movups (%rdi),%xmm0", &[0x0f, 0x10, 0x07]),
    ];
    for (text, first) in refused {
        assert_eq!(after(first), Err(Refusal::First), "{text}");
    }
}

#[test]
fn a_size_must_be_known_and_its_bytes_given() {
    let code = [&PUSH[..], &MOV, &RET].concat();
    assert_eq!(patch_place(Body { size: 0, ..body(&code) }, Author::Compiler), Err(Refusal::UnknownSize));
    assert_eq!(patch_place(Body { size: 100, ..body(&code) }, Author::Compiler), Err(Refusal::UnknownSize));
    assert_eq!(patch_place(Body { size: 2 << 20, ..body(&code) }, Author::Compiler), Err(Refusal::TooLarge));
    assert_eq!(patch_place(body(&[]), Author::Compiler), Err(Refusal::UnknownSize));
}

#[test]
fn a_short_function_may_use_the_padding_after_it() {
    let short = |after: &[u8], next_symbol| {
        let code = [&PUSH[..], &[0x5d], &RET, after].concat();
        patch_place(Body { size: 3, next_symbol, ..body(&code) }, Author::Compiler)
    };
    assert_eq!(short(&[0xcc; 3], 6), at(1, 5, 1));
    assert_eq!(short(&[0x0f, 0x1f, 0x00], 16), at(1, 5, 1), "one nop");
    assert_eq!(short(&[0x66, 0x90, 0x0f, 0x1f, 0x00], 16), at(1, 7, 1), "the second nop is longer");
    assert_eq!(short(&[0x66, 0x90, 0x0f, 0x1f, 0x00], 7), Err(Refusal::TooShort), "and belongs to a symbol");
    assert_eq!(short(&[0xcc; 3], 5), Err(Refusal::TooShort), "the padding ends at a symbol");
    assert_eq!(short(&PUSH, 16), Err(Refusal::TooShort), "a function without a symbol");
    assert_eq!(short(&[], 16), Err(Refusal::TooShort), "the end of the file");
    // The code after a `ret` within the function is reached by a branch.
    assert_eq!(place(&[&PUSH, &[0x5d], &RET, &MOV, &RET]), Err(Refusal::TooShort));
    assert_eq!(place(&[&PUSH, &[0x5d], &RET, &[0x90; 5], &MOV, &RET]), at(1, 5, 1));
    // The last instruction reaches into another function.
    let code = [&PUSH[..], &MOV, &RET].concat();
    assert_eq!(patch_place(Body { next_symbol: 5, ..body(&code) }, Author::Compiler), Err(Refusal::TooShort));
}

#[test]
fn a_branch_to_the_first_instructions_is_refused() {
    // push; L: mov; jne L
    assert_eq!(place(&[&PUSH, &MOV, &[0x75, 0xf9], &RET]), Err(Refusal::Branch));
    // push; xor %eax,%eax; L: mov; jmp L
    assert_eq!(place(&[&PUSH, &[0x31, 0xc0], &MOV, &[0xe9], &(-10i32).to_le_bytes()]), Err(Refusal::Branch));
    // A branch to the instruction after them, and one to the start of the function.
    assert_eq!(place(&[&PUSH, &MOV, &[0x90], &[0x75, 0xfd], &RET]), at(1, 5, 1));
    assert_eq!(place(&[&PUSH, &MOV, &[0x5d], &[0x75, 0xf7], &RET]), at(1, 5, 1));
    // A branch to the `push` after `endbr64`.
    assert_eq!(place(&[&ENDBR, &PUSH, &MOV, &[0x75, 0xf8], &RET]), Err(Refusal::Branch));
}

#[test]
fn the_cold_half_of_a_function_is_searched_too() {
    // push; mov; jne cold; ret | cold: jmp back to `mov`
    let mut code = [&PUSH[..], &MOV, &[0x0f, 0x85, 1, 0, 0, 0], &RET].concat();
    let size = code.len() as u64;
    code.push(0xe9);
    code.extend((1 - 18i32).to_le_bytes());
    assert_eq!(patch_place(Body { size, ..body(&code) }, Author::Compiler), Err(Refusal::Branch));
    let before = [&[0xcc, 0xe9][..], &1i32.to_le_bytes()].concat();
    let code = [&PUSH[..], &MOV, &[0x0f, 0x85], &(-5i32 - 12).to_le_bytes(), &RET].concat();
    assert_eq!(patch_place(Body { before: &before, ..body(&code) }, Author::Compiler), Err(Refusal::Branch));
    assert_eq!(
        patch_place(body(&code), Author::Compiler),
        at(1, 5, 1),
        "code that is not there is not searched"
    );
}

#[test]
fn a_jump_table_may_lead_to_what_follows_the_frame_set_up() {
    let (table, marked) = ([0xff, 0xe0], [0x3e, 0xff, 0xe0]);
    assert_eq!(place(&[&PUSH, &MOV, &table]), Err(Refusal::JumpTable));
    // Code with `endbr64` marks jump tables.
    assert_eq!(place(&[&ENDBR, &PUSH, &MOV, &table]), at(5, 5, 1));
    assert_eq!(place(&[&ENDBR, &PUSH, &MOV, &marked]), Err(Refusal::JumpTable));
    // A register that still belongs to the caller is saved only once, the frame pointer set only once.
    assert_eq!(place(&[&PUSH, &FRAME, &PUSH_R15, &table]), at(1, 5, 1));
    assert_eq!(place(&[&PUSH, &MOV, &PUSH_R15, &table]), at(1, 5, 1));
    assert_eq!(place(&[&PUSH, &FRAME, &[0x31, 0xc0], &table]), Err(Refusal::JumpTable));
    // An argument of a call is pushed in a case of the table as well: xor %r15d,%r15d; push %r15
    assert_eq!(place(&[&PUSH, &MOV, &[0x45, 0x31, 0xff], &PUSH_R15, &table]), Err(Refusal::JumpTable));
    assert_eq!(place(&[&PUSH, &MOV, &[0x50], &table]), Err(Refusal::JumpTable), "push %rax");
    // A tail call through a pointer in memory.
    assert_eq!(place(&[&PUSH, &MOV, &[0x5d], &[0xff, 0x25, 0, 0, 0, 0]]), at(1, 5, 1));
}

#[test]
fn a_tail_call_by_a_pointer_uses_no_table() {
    let (load, jump) = ([0x48, 0x8b, 0x47, 0x10], [0xff, 0xe0]);
    let functions: [(&str, &[&[u8]]); 2] = [
        ("mov 16(%rdi),%rax; nop; jmp *%rax", &[&PUSH, &load, &[0x90], &jump]),
        ("mov 16(%rdi),%rax; nop; jmp *16(%rax)", &[&PUSH, &load, &[0x90], &[0xff, 0x60, 0x10]]),
    ];
    let tables: [(&str, &[&[u8]]); 3] = [
        ("jmp *(%rdx,%rax,8)", &[&PUSH, &load, &[0x90], &[0xff, 0x24, 0xc2]]),
        ("mov (%rdx,%rax,8),%rax; jmp *%rax", &[&PUSH, &load, &MOV, &[0x48, 0x8b, 0x04, 0xc2], &jump]),
        (
            "movslq (%rdx,%rax,4),%rax; add %rdx,%rax; jmp *%rax",
            &[&PUSH, &load, &MOV, &[0x48, 0x63, 0x04, 0x82], &[0x48, 0x01, 0xd0], &jump],
        ),
    ];
    for (text, parts) in functions {
        assert_eq!(place(parts), at(1, 5, 1), "{text}");
    }
    for (text, parts) in tables {
        assert_eq!(place(parts), Err(Refusal::JumpTable), "{text}");
    }
    // A person may write a loop whose head is in a table of one entry.
    let by_person = patch_place(body(&functions[1].1.concat()), Author::Unknown);
    assert_eq!(by_person, Err(Refusal::JumpTable));
}

#[test]
fn instructions_that_leave_their_address_behind_stay() {
    let call = [0xe8, 0, 0, 0, 0];
    assert_eq!(place(&[&PUSH, &call, &RET]), at(1, 5, 1));
    assert_eq!(place(&[&PUSH, &FRAME, &call, &RET]), at(1, 8, 1));
    assert_eq!(place(&[&call, &PUSH, &FRAME, &RET]), Err(Refusal::Call));
    assert_eq!(place(&[&PUSH, &FRAME, &[0xff, 0xd0], &RET]), Err(Refusal::Call));
    assert_eq!(place(&[&PUSH, &FRAME, &[0x0f, 0x05], &RET]), Err(Refusal::SystemCall));
    assert_eq!(place(&[&PUSH, &FRAME, &[0xcd, 0x80], &RET]), Err(Refusal::SystemCall));
    assert_eq!(place(&[&PUSH, &ENDBR, &FRAME, &RET]), Err(Refusal::LandingPad));
}

#[test]
fn instructions_that_cannot_be_executed_elsewhere_stay() {
    assert_eq!(place(&[&PUSH, &FRAME, &[0xe2, 0], &RET]), Err(Refusal::Unmovable), "loop");
    assert_eq!(place(&[&PUSH, &FRAME, &[0xe3, 0], &RET]), Err(Refusal::Unmovable), "jrcxz");
    assert_eq!(place(&[&PUSH, &[0xc7, 0xf8, 0, 0, 0, 0], &RET]), Err(Refusal::Unmovable), "xbegin");
    // lea 0(%eip),%rax
    assert_eq!(place(&[&PUSH, &[0x67, 0x48, 0x8d, 0x05, 0, 0, 0, 0], &RET]), Err(Refusal::Unmovable));
    assert_eq!(place(&[&PUSH, &FRAME, &[0x06], &RET]), Err(Refusal::Undecodable));
    assert_eq!(place(&[&PUSH, &MOV, &[0x06], &RET]), Err(Refusal::Undecodable), "later in the function");
}

#[test]
fn a_function_that_jumps_to_many_places_is_refused() {
    const PLACES: usize = 1025;
    let mut code = [&PUSH[..], &MOV].concat();
    let size = code.len() + 6 * PLACES;
    for n in 0..PLACES {
        code.extend([0x0f, 0x85]);
        code.extend(((size + n) as i32 - code.len() as i32 - 4).to_le_bytes());
    }
    code.extend([0xc3; PLACES]);
    assert_eq!(
        patch_place(Body { size: size as u64, ..body(&code) }, Author::Compiler),
        Err(Refusal::TooManyParts)
    );
}

#[test]
fn any_bytes_are_acceptable() {
    let mut state = 1u64;
    for round in 0..40_000 {
        let mut bytes = if round % 2 == 0 { [&ENDBR[..], &PUSH].concat() } else { PUSH.to_vec() };
        for _ in 0..round % 40 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            bytes.push((state >> 33) as u8);
        }
        let whole = body(&bytes);
        for body in [whole, Body { size: u64::MAX, ..whole }, Body { next_symbol: 0, ..whole }] {
            if let Ok(place) = patch_place(body, Author::Compiler) {
                assert!(
                    place.len >= 5 && place.bytes >= u64::from(place.first) && place.first > 0,
                    "{place:?}"
                );
                assert!(place.bytes + u64::from(place.len) <= body.next_symbol);
            }
        }
    }
}

/// The functions of a file: refusals by their kind, and the ranges that give way, from the second byte of the function on.
struct Survey {
    elf: ElfFile,
    refused: BTreeMap<Refusal, usize>,
    ranges: Vec<Range<u64>>,
}

impl Survey {
    fn of(path: &Path) -> Survey {
        let elf = ElfFile::open(path).expect("an ELF file");
        let functions = elf.functions();
        let (mut refused, mut ranges) = (BTreeMap::new(), Vec::new());
        for function in &functions.list {
            let start = elf.code_address(function.offset).expect("code");
            match patch_place(Body::of(&elf, &functions, function.offset, u64::MAX), Author::Unknown) {
                Ok(place) => ranges.push(start + 1..start + place.bytes + u64::from(place.len)),
                Err(refusal) => *refused.entry(refusal).or_insert(0) += 1,
            }
        }
        ranges.sort_unstable_by_key(|range| range.start);
        Survey { elf, refused, ranges }
    }

    /// Branches of the whole text, of any function, that lead into a range.
    fn branches_into_ranges(&self) -> Vec<(u64, u64)> {
        let text = self.elf.named_section(".text").expect("code");
        let address = self.elf.section_address(".text").expect("code");
        let branch = |i: Instruction| {
            let is_near = i.op_count() > 0 && i.op_kind(0) == OpKind::NearBranch64;
            let target = i.near_branch_target();
            let before = self.ranges.partition_point(|range| range.start <= target).checked_sub(1)?;
            (is_near && self.ranges[before].contains(&target)).then_some((i.ip(), target))
        };
        Decoder::with_ip(64, text, address, DecoderOptions::NONE).into_iter().filter_map(branch).collect()
    }
}

/// Functions that begin with a `push` and no call can be patched, except few: jump tables and branches are rare there.
#[test]
fn nearly_all_functions_of_libraries_that_begin_with_a_push_can_be_patched() {
    let folder = Path::new("/usr/lib/x86_64-linux-gnu");
    let names = ["libc.so.6", "libcrypto.so.3", "libstdc++.so.6", "libgcc_s.so.1"];
    let files: Vec<_> =
        names.map(|name| folder.join(name)).into_iter().filter(|file| file.exists()).collect();
    if files.is_empty() {
        eprintln!("skipped: no library in {}", folder.display());
    }
    for file in files {
        let survey = Survey::of(&file);
        let (patched, refused) = (survey.ranges.len(), &survey.refused);
        println!("{}: {patched} patched, refused {refused:?}", file.display());
        let other = refused
            .iter()
            .filter(|(why, _)| !matches!(why, Refusal::First | Refusal::Call | Refusal::SystemCall));
        let other: usize = other.map(|(_, count)| count).sum();
        assert!(patched > 20 * other && patched > 10, "{}: {patched} {refused:?}", file.display());
        // The search of one function does not see the branches of others.
        assert_eq!(survey.branches_into_ranges(), [], "{}", file.display());
    }
}
