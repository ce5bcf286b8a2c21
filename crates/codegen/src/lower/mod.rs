//! Lowers a checked program to IR and manifest: statements to registers, blocks, helpers and maps.
//!
//! ```text
//! uprobe:libcuda:cuInit { @ = count() }
//!
//! func uprobe0 (uprobe.multi)
//! b0:  store.32 s0, 0; v1 = call map_lookup_elem(m0_, s0); branch v1 == 0, b2, b1
//! b1:  atomic.add.64 [v1], 1; jump b2
//! b2:  return 0
//! ```
//!
//! A probe becomes one program, or two where the kernel has no sessions (`entry_return`). Run-time errors are counted
//! (`counters`), never silent. Every body except END's tests the control cell first. `exit()` sets it, and so does the runtime
//! when it ends before the kernel has removed the probes.
//!
//! Not here: optimisations (`opt`), machine registers and code (`bpf`).

mod abi;
mod aggregate;
mod arithmetic;
mod body;
mod builtin;
mod by_case;
mod call_stack;
mod condition;
mod cookie;
mod cookie_layout;
mod counters;
mod entry_return;
mod event;
mod expr;
mod follow_processes;
mod loop_shape;
mod loops;
mod map;
mod module;
mod operations;
mod place;
mod process_memory;
mod program;
mod prologue;
mod python_lines;
mod python_walk;
mod read_memory;
mod side;
mod space;
mod stack_walk;
mod stmt;
mod storage;
mod string;
mod walk;

pub use place::StackShare;

use crate::ir;
use crate::options::Options;
use lang::Source;
use lang::hir::{Probe, Program};
use module::Cx;
use std::borrow::Cow;
use wire::manifest::Manifest;

/// Lowers the probes of a checked program, merged or not. The manifest begins with the contents of `options.base`.
pub fn lower<'p>(
    program: &'p Program,
    probes: &'p [Cow<'p, Probe>],
    src: &'p Source,
    options: &'p Options,
    share: StackShare,
) -> (ir::Module, Manifest) {
    let mut cx = Cx::new(program, src, options, share);
    cx.declare_maps();
    if options.pid_filter {
        cx.follow_programs();
    }
    if probes.iter().any(|probe| program.is_tracked(probe) || call_stack::begins_event(probe)) {
        cx.forget_stacks();
    }
    probes.iter().for_each(|probe| cx.probe(probe));
    let kinds = probes.iter().filter_map(|probe| probe.records).fold(0, |kinds, of| kinds | 1 << of.kind);
    cx.manifest.gpu_kinds = if kinds == 0 { 0 } else { kinds | program.gpu_joins };
    cx.finish()
}
