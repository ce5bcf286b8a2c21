//! The exact machine code of small IR functions.

mod build;

use build::*;
use codegen::bpf::helper::Helper;
use codegen::bpf::{disasm, link};
use codegen::ir::*;
use lang::Source;

fn listing(module: &Module, script: &str) -> String {
    disasm::listing(&link::assemble(module).unwrap(), &Source::new("t.ct", script))
}

#[track_caller]
fn check(module: &Module, expected: &str) {
    let found = listing(module, "uprobe:x:f { }");
    assert_eq!(found.trim(), expected.trim(), "\n{found}");
}

#[test]
fn a_count_by_function_holds_no_register_across_calls() {
    let expected = "
probe0 (uprobe.multi): 13 instructions, 8 bytes of stack
; t.ct:1: uprobe:x:f { }
   0: call bpf_get_attach_cookie#174
   1: *(u32 *)(r10 -8) = r0
   2: r1 = map at_
   4: r2 = r10
   5: r2 += -8
   6: call bpf_map_lookup_elem#1
   7: if r0 == 0 goto 11
   8: r1 = *(u64 *)(r0 +0)
   9: r1 += 1
  10: *(u64 *)(r0 +0) = r1
  11: r0 = 0
  12: exit
";
    check(&count_by_func("uprobe.multi"), expected);
}

#[test]
fn a_count_falls_through_to_its_exit() {
    let expected = "
probe0 (uprobe.multi): 12 instructions, 8 bytes of stack
; t.ct:1: uprobe:x:f { }
   0: r1 = 0
   1: *(u32 *)(r10 -8) = r1
   2: r1 = map at_
   4: r2 = r10
   5: r2 += -8
   6: call bpf_map_lookup_elem#1
   7: if r0 == 0 goto 10
   8: r1 = 1
   9: lock *(u64 *)(r0 +0) += r1
  10: r0 = 0
  11: exit
";
    check(&count("uprobe.multi", 4), expected);
}

/// Searches for a zero byte in at most `rounds` rounds, and emits a record when it is found.
fn search(rounds: i64) -> Module {
    let mut b = Build::new("probe0", program("uprobe.multi"));
    let ctx = b.ctx();
    let at = b.def(|dst| Op::Mov { dst, src: Operand::Const(0) });
    b.term(Term::Jump(BlockId(1)));
    b.block();
    let byte = b.load(ctx, 0, Width::B8);
    b.if_zero(byte, 2, 3);
    b.block();
    let ring = b.map(0);
    let room = b.call(Helper::RingbufReserve, &[ring.into(), 16.into(), 0.into()]);
    b.if_zero(room, 5, 4);
    b.block();
    let update = Op::Bin { op: Bin::Add, dst: at, lhs: at.into(), rhs: 1.into() };
    b.op(update);
    let again = BlockId(if rounds > 1 { 1 } else { 5 });
    b.term(Term::Branch { cmp: Cmp::Ult, lhs: at, rhs: rounds.into(), then: again, otherwise: BlockId(5) });
    b.block();
    b.call(Helper::RingbufSubmit, &[room.into(), 0.into()]);
    b.term(Term::Jump(BlockId(5)));
    b.block();
    Module { funcs: vec![b.0], maps: vec![map("ring", RINGBUF, 0, 0, 4096)], ..Module::default() }
}

#[test]
fn ways_out_of_a_loop_meet_before_each_has_a_record() {
    let expected = "
probe0 (uprobe.multi): 19 instructions, 0 bytes of stack
; t.ct:1: uprobe:x:f { }
   0: r2 = 0
   1: r3 = *(u8 *)(r1 +0)
   2: if r3 != 0 goto 15
   3: r1 = map ring
   5: r2 = 16
   6: r3 = 0
   7: goto 8
   8: call bpf_ringbuf_reserve#131
   9: if r0 == 0 goto 17
  10: r1 = r0
  11: r2 = 0
  12: call bpf_ringbuf_submit#132
  13: r0 = 0
  14: exit
  15: r2 += 1
  16: if r2 < 8 goto 1
  17: r0 = 0
  18: exit
";
    check(&search(8), expected);
    let once = listing(&search(1), "uprobe:x:f { }");
    assert!(once.contains("ringbuf_reserve") && !once.contains(": goto"), "{once}");
}
