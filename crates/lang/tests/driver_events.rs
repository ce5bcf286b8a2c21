//! Events of the kernel driver on kernels that have trampolines, whose modules may lack the BTF that these need.

use lang::catalog::{Catalog, File, FileId, Function, KernelFunction, Place, TargetError};
use lang::hir::{Attach, Hook};
use lang::{Diagnostics, Options, Source, compile};

const FUNCTIONS: &[KernelFunction] = &[KernelFunction {
    name: "nvidia_open",
    module: "nvidia",
    address: 0xffff_ffff_c000_1000,
    traceable: true,
}];

/// A kernel with kprobes and trampolines, and the functions that trampolines reach.
struct Kernel(&'static [KernelFunction]);

impl Catalog for Kernel {
    lang::lacks!(later_files, indirect_functions, markers, instructions, code_addresses, code_offsets);
    lang::lacks!(
        variables,
        debug_information,
        source_lines,
        kernel_types,
        kernel_fields,
        cgroups,
        devices,
        agent
    );
    lang::lacks!(records, tracepoints, known_targets, kernel_symbols, iterators);

    fn files(&self, _: &str) -> Result<Vec<File>, TargetError> {
        Err(TargetError::NotYet { looked_in: Vec::new() })
    }

    fn functions(&self, _: FileId) -> &[Function] {
        &[]
    }

    fn entry_place(&self, _: FileId, offset: u64) -> Place {
        Place { offset, stack_shift: 0 }
    }

    fn return_place(&self, _: FileId, offset: u64) -> Place {
        Place { offset, stack_shift: 0 }
    }

    fn kernel_hook(&self, _: Hook) -> Result<(), String> {
        Ok(())
    }

    fn kernel_functions(&self) -> &[KernelFunction] {
        FUNCTIONS
    }

    fn trampoline_functions(&self) -> &[KernelFunction] {
        self.0
    }
}

fn hook(script: &str, kernel: &Kernel) -> Option<Hook> {
    let mut diags = Diagnostics::default();
    let checked = compile(&Source::new("t.ct", script), &Options::default(), kernel, &mut diags);
    assert!(!diags.has_errors(), "{:?}", diags.list);
    let [probe] = &checked.unwrap().program.probes[..] else { panic!("one probe") };
    assert!(matches!(probe.attach, Attach::Return(..)));
    probe.attach.hook()
}

#[test]
fn the_best_hook_that_reaches_the_function_is_used() {
    let script = "driver:open { @ = count() }";
    assert_eq!(hook(script, &Kernel(FUNCTIONS)), Some(Hook::Trampoline));
    assert_eq!(hook(script, &Kernel(&[])), Some(Hook::Kprobe), "the module has no BTF");
}

#[test]
fn enclosing_calls_need_a_kprobe() {
    let script = "driver:open { @[call_depth] = count() }";
    assert_eq!(hook(script, &Kernel(FUNCTIONS)), Some(Hook::Kprobe));
}

#[test]
fn a_trampoline_has_no_registers() {
    let mut diags = Diagnostics::default();
    let source = Source::new("t.ct", "fentry:nvidia_open { @ = reg(\"ax\") }");
    assert!(compile(&source, &Options::default(), &Kernel(FUNCTIONS), &mut diags).is_none());
    assert_eq!(diags.list[0].code, "E0211", "{:?}", diags.list);
    let mut diags = Diagnostics::default();
    let source = Source::new("t.ct", "kprobe:nvidia_open { @ = reg(\"ax\") }");
    assert!(compile(&source, &Options::default(), &Kernel(FUNCTIONS), &mut diags).is_some());
}
