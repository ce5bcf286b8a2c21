//! What small IR becomes, to the instruction: the code that a careful person would write.

mod build;

use build::*;
use codegen::bpf::{asm, disasm};
use codegen::ir::*;
use lang::Source;

fn listing(module: &Module, script: &str) -> String {
    disasm::listing(&asm::assemble(module).unwrap(), &Source::new("t.ct", script))
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
