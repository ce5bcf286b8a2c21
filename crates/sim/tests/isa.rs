//! Compares the BPF machine with `rbpf` on random programs of arithmetic and forward jumps.

use sim::machine::{Hit, Insn, Machine, Object};
use sim::rng::Rng;
use sim::world::{Memory, Moment};

const MOMENT: Moment = Moment {
    time_ns: 0,
    tgid: 1,
    tid: 1,
    uid: 0,
    gid: 0,
    cpu: 0,
    comm: String::new(),
    cgroup: 0,
    user_stack: vec![],
    kernel_stack: vec![],
};

fn insn(opcode: u8, dst: u8, src: u8, offset: i16, imm: i32) -> Insn {
    Insn { opcode, dst, src, offset, imm }
}

/// A program that sets all registers, computes with them, and returns their sum.
fn program(rng: &mut Rng) -> Vec<Insn> {
    let mut code = Vec::new();
    for reg in 0..10 {
        let value = rng.interesting();
        code.push(insn(0x18, reg, 0, 0, value as i32));
        code.push(insn(0, 0, 0, 0, (value >> 32) as i32));
    }
    let count = 40;
    for at in 0..count {
        let (dst, src) = (rng.below(10) as u8, rng.below(10) as u8);
        let by_register = 8 * rng.below(2) as u8;
        let imm = rng.interesting() as i32;
        code.push(if rng.chance(75) {
            arithmetic(rng, dst, src, by_register, imm)
        } else {
            let condition = *rng.pick(&[0x10, 0x20, 0x30, 0x40, 0x50, 0x60, 0x70, 0xa0, 0xb0, 0xc0, 0xd0]);
            let class = *rng.pick(&[5, 6]);
            let offset = rng.below(count - at) as i16;
            let src = if by_register == 0 { 0 } else { src };
            // The kernel sign-extends the constant of a 64-bit jump; rbpf does so for signed conditions only.
            let imm = if class == 5 { imm & i32::MAX } else { imm };
            insn(condition | by_register | class, dst, src, offset, imm)
        });
    }
    code.extend((1..10).map(|reg| insn(0x0f, 0, reg, 0, 0)));
    code.push(insn(0x95, 0, 0, 0, 0));
    code
}

fn arithmetic(rng: &mut Rng, dst: u8, src: u8, by_register: u8, imm: i32) -> Insn {
    let class = *rng.pick(&[4, 7]);
    let code = *rng.pick(&[0x00, 0x10, 0x20, 0x30, 0x40, 0x50, 0x60, 0x70, 0x80, 0x90, 0xa0, 0xb0, 0xc0]);
    let imm = match code {
        0x30 | 0x90 => imm.max(1),
        0x60 | 0x70 | 0xc0 => imm & if class == 4 { 31 } else { 63 },
        _ => imm,
    };
    // A 32-bit remainder by zero clears the upper half in the kernel, but not in rbpf.
    let class = if code == 0x90 && by_register != 0 { 7 } else { class };
    match (code, by_register) {
        // rbpf overflows when it negates the smallest 64-bit number.
        (0x80, _) => insn(code | 4, dst, 0, 0, 0),
        (_, 0) => insn(code | class, dst, 0, 0, imm),
        _ => insn(code | class | 8, dst, src, 0, 0),
    }
}

#[test]
fn arithmetic_and_jumps_agree_with_rbpf() {
    let mut rng = Rng::new(2026);
    for round in 0..2000 {
        let code = program(&mut rng);
        let bytes: Vec<u8> = code.iter().flat_map(|insn| insn.encode()).collect();
        let theirs = rbpf::EbpfVmNoData::new(Some(&bytes)).and_then(|vm| vm.execute_program());
        let mut machine = Machine::new(Object::of_code(&code, vec![]), 1, 0);
        let user = Memory::default();
        let hit = Hit { moment: &MOMENT, user: &user, context: vec![], cookie: 0, session: None };
        let ours = machine.run("program", &hit);
        assert_eq!(ours.ok(), theirs.ok(), "round {round}: {code:x?}");
    }
}
