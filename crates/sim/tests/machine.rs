//! Hand-written programs on the BPF machine: results and traps.

use sim::machine::{Fault, Hit, Insn, Machine, MapDef, MapKind, Object, Trap};
use sim::world::{Memory, Moment, Regs};

const MOMENT: Moment = Moment {
    time_ns: 9_000_000_000,
    tgid: 100,
    tid: 101,
    uid: 0,
    gid: 0,
    cpu: 1,
    comm: String::new(),
    cgroup: 0,
    user_stack: vec![],
    kernel_stack: vec![],
};

fn insn(opcode: u8, dst: u8, src: u8, offset: i16, imm: i32) -> Insn {
    Insn { opcode, dst, src, offset, imm }
}
fn mov(dst: u8, imm: i32) -> Insn {
    insn(0xb7, dst, 0, 0, imm)
}
fn copy(dst: u8, src: u8) -> Insn {
    insn(0xbf, dst, src, 0, 0)
}
fn add(dst: u8, imm: i32) -> Insn {
    insn(0x07, dst, 0, 0, imm)
}
fn call(helper: i32) -> Insn {
    insn(0x85, 0, 0, 0, helper)
}
fn map(dst: u8, index: i32) -> [Insn; 2] {
    [insn(0x18, dst, 1, 0, index), insn(0, 0, 0, 0, 0)]
}
/// `*(u64 *)(dst + offset) = src`
fn store(dst: u8, offset: i16, src: u8) -> Insn {
    insn(0x7b, dst, src, offset, 0)
}
/// `dst = *(u64 *)(src + offset)`
fn load(dst: u8, src: u8, offset: i16) -> Insn {
    insn(0x79, dst, src, offset, 0)
}
const EXIT: Insn = Insn { opcode: 0x95, dst: 0, src: 0, offset: 0, imm: 0 };

fn hash() -> MapDef {
    MapDef { name: "m".into(), kind: MapKind::Hash, key_size: 8, value_size: 8, max_entries: 2 }
}
fn ring() -> MapDef {
    MapDef { name: "r".into(), kind: MapKind::Ring, key_size: 0, value_size: 0, max_entries: 64 }
}

fn machine(code: &[Insn], maps: Vec<MapDef>) -> Machine {
    Machine::new(Object::of_code(code, maps), 2, 7)
}

fn run(machine: &mut Machine) -> Result<u64, Fault> {
    let context = sim::machine::context(&Regs::default());
    let user = Memory::default();
    machine.run("program", &Hit { moment: &MOMENT, user: &user, context, cookie: 5, session: None })
}

fn result(code: &[Insn]) -> Result<u64, Trap> {
    run(&mut machine(code, vec![hash(), ring()])).map_err(|fault| fault.trap)
}

#[test]
fn arithmetic_is_that_of_the_instruction_set() {
    // 32-bit operations clear the upper half; an arithmetic shift keeps the sign; modulo by zero keeps the dividend.
    assert_eq!(result(&[mov(0, -1), insn(0x04, 0, 0, 0, 1), EXIT]), Ok(0));
    assert_eq!(result(&[mov(0, -8), insn(0xc7, 0, 0, 0, 1), EXIT]), Ok(-4i64 as u64));
    assert_eq!(result(&[mov(0, 9), mov(1, 0), insn(0x9f, 0, 1, 0, 0), EXIT]), Ok(9));
    assert_eq!(result(&[mov(0, 9), mov(1, 0), insn(0x3f, 0, 1, 0, 0), EXIT]), Ok(0));
    // if r1 s< 0 skip
    assert_eq!(result(&[mov(0, 1), mov(1, -1), insn(0xc5, 1, 0, 1, 0), mov(0, 2), EXIT]), Ok(1));
    assert_eq!(result(&[mov(0, 1), mov(1, -1), insn(0xa5, 1, 0, 1, 0), mov(0, 2), EXIT]), Ok(2));
}

#[test]
fn unwritten_registers_and_stack_cannot_be_read() {
    assert_eq!(result(&[EXIT]), Err(Trap::Register(0)));
    assert_eq!(result(&[copy(0, 2), EXIT]), Err(Trap::Register(2)));
    let stack = Trap::Unwritten { region: "the stack".into(), offset: 504 };
    assert_eq!(result(&[load(0, 10, -8), EXIT]), Err(stack));
    // r1 is the context at the start, and undefined after a call.
    assert_eq!(result(&[call(8), copy(0, 1), EXIT]), Err(Trap::Register(1)));
}

#[test]
fn accesses_stay_inside_and_aligned() {
    let outside = |offset| Trap::Outside { region: "the stack".into(), offset, size: 8, len: 512 };
    assert_eq!(result(&[mov(0, 0), store(10, 0, 0), EXIT]), Err(outside(512)));
    assert_eq!(result(&[mov(0, 0), store(10, -520, 0), EXIT]), Err(outside(-8)));
    let misaligned = Trap::Misaligned { region: "the stack".into(), offset: 500, size: 8 };
    assert_eq!(result(&[mov(0, 0), store(10, -12, 0), EXIT]), Err(misaligned));
    assert_eq!(result(&[mov(0, 0), store(1, 0, 0), EXIT]), Err(Trap::ReadOnly("the context".into())));
    assert_eq!(result(&[mov(1, 0), load(0, 1, 8), EXIT]), Err(Trap::Wild(8)));
}

/// Looks up key 3 and reads the cell without a null check.
#[test]
fn a_missing_key_is_a_null_pointer() {
    let mut code = vec![mov(1, 3), store(10, -8, 1), copy(2, 10), add(2, -8)];
    code.extend(map(1, 0));
    code.extend([call(1), load(0, 0, 0), EXIT]);
    assert_eq!(result(&code), Err(Trap::Wild(0)));
}

#[test]
fn a_hash_takes_as_many_keys_as_it_was_made_for() {
    let mut code = vec![];
    for key in 0..3 {
        code.extend([mov(1, key), store(10, -8, 1), copy(2, 10), add(2, -8), copy(3, 2), mov(4, 0)]);
        code.extend(map(1, 0));
        code.push(call(2));
    }
    code.push(EXIT);
    let mut machine = machine(&code, vec![hash()]);
    assert_eq!(run(&mut machine), Ok(-7i64 as u64), "E2BIG for the third");
    let (map, memory) = machine.map("m").unwrap();
    let keys: Vec<_> = map.keys().iter().map(|k| k[0]).collect();
    assert_eq!(keys, [0, 1]);
    let cell = map.lookup(&[1, 0, 0, 0, 0, 0, 0, 0], 0, memory).unwrap();
    assert_eq!(memory.bytes(cell)[0], 1);
}

#[test]
fn atomics_hand_back_what_was_there() {
    let at = |op: i32| insn(0xdb, 10, 1, -8, op);
    let with = |op: Insn| [mov(1, 5), store(10, -8, 1), mov(1, 3), op, load(0, 10, -8), EXIT];
    assert_eq!(result(&with(at(0x00))), Ok(8));
    assert_eq!(result(&with(at(0xe1))), Ok(3));
    // cmpxchg: r0 is the expected value before, and the old value after.
    let exchange = |expected| [mov(1, 5), store(10, -8, 1), mov(1, 3), mov(0, expected), at(0xf1)];
    let then = |expected, last: Insn| {
        let mut code = exchange(expected).to_vec();
        code.extend([last, EXIT]);
        result(&code)
    };
    assert_eq!(then(5, load(0, 10, -8)), Ok(3));
    assert_eq!(then(4, load(0, 10, -8)), Ok(5));
    assert_eq!(then(4, copy(0, 0)), Ok(5));
}

#[test]
fn a_record_is_written_in_full_and_given_back() {
    let mut reserve: Vec<Insn> = map(1, 1).to_vec();
    reserve.extend([mov(2, 16), mov(3, 0), call(131)]);
    let with = |rest: &[Insn]| result(&[&reserve[..], rest].concat());
    assert_eq!(with(&[mov(0, 0), EXIT]), Err(Trap::Leaked));
    let submit = [mov(2, 0), call(132), mov(0, 0), EXIT];
    let half = [&[mov(1, 7), store(0, 0, 1), copy(1, 0)], &submit[..]].concat();
    let unwritten = Trap::Unwritten { region: "a record of r".into(), offset: 8 };
    assert_eq!(with(&half), Err(unwritten));
    let full = [&[mov(1, 7), store(0, 0, 1), store(0, 8, 1), copy(1, 0)], &submit[..]].concat();
    assert_eq!(with(&full), Ok(0));
    let twice = [
        &[mov(1, 7), store(0, 0, 1), store(0, 8, 1), copy(6, 0), copy(1, 6), mov(2, 0), call(132)][..],
        &[copy(1, 6)],
        &submit,
    ]
    .concat();
    assert!(matches!(with(&twice), Err(Trap::Argument { .. })));
}

#[test]
fn an_endless_loop_and_a_fall_off_the_end_are_noticed() {
    assert_eq!(result(&[insn(0x05, 0, 0, -1, 0)]), Err(Trap::Endless(100_000_000)));
    assert_eq!(result(&[mov(0, 0)]), Err(Trap::Jump(1)));
    assert_eq!(result(&[call(4711), EXIT]), Err(Trap::Helper(4711)));
    let newer = insn(0x3f, 0, 1, 1, 0);
    assert_eq!(
        result(&[mov(0, 1), newer, EXIT]),
        Err(Trap::Instruction(newer.encode())),
        "signed division is of 6.6"
    );
}

#[test]
fn instructions_survive_their_bytes() {
    let insn = insn(0xdb, 10, 1, -8, -2);
    assert_eq!(Insn::decode(insn.encode()), insn);
}
