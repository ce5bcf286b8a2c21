//! Links a module: selection, register allocation and code for each function, references between them.

use super::code::{AsmError, Assembly, Code, MAX_JUMP, Part, Target};
use super::emit::Emitter;
use super::mir::Kfunc;
use super::no_preempt::Shield;
use super::regalloc::{self, MAX_STACK};
use super::select::select;
use crate::ir::{self, FuncKind, Module, Op};

/// Limit of a function's operations. Optimisation cannot reduce a larger number to [`MAX_JUMP`] instructions.
const MAX_OPERATIONS: usize = 4 * MAX_JUMP as usize;

/// Refuses a function that is far too long, before it costs time and memory.
pub fn check_size(module: &Module) -> Result<(), AsmError> {
    module.funcs.iter().try_for_each(|func| match func.operations() {
        operations if operations > MAX_OPERATIONS => {
            Err(AsmError::Size { name: func.name.clone(), operations, span: func.span })
        }
        _ => Ok(()),
    })
}

/// Assembles a module to machine code.
pub fn assemble(module: &Module) -> Result<Assembly, AsmError> {
    let parts: Vec<Part> =
        module.funcs.iter().map(|func| part(func, module.private_stack)).collect::<Result<_, _>>()?;
    check_stack(&parts)?;
    let mut kfuncs: Vec<Kfunc> = Vec::new();
    let codes = parts.into_iter().map(|part| {
        let mut code = part.code;
        for (_, target) in &mut code.targets {
            if let Target::Kfunc(at) = target {
                *at = entered(&mut kfuncs, &part.kfuncs[*at as usize]);
            }
        }
        code
    });
    let codes = codes.collect();
    Ok(Assembly { codes, maps: module.maps.clone(), data: module.data.clone(), kfuncs })
}

/// Assembles one function. `private_stack` is explained in [`Module`].
fn part(func: &ir::Func, private_stack: bool) -> Result<Part, AsmError> {
    let mut kfuncs = kfuncs(func);
    let allocated = regalloc::allocate(select(func, &kfuncs));
    let (section, params) = match &func.kind {
        FuncKind::Program { section, .. } => (Some(section.clone()), 1),
        FuncKind::Callback { args } => (None, *args),
    };
    let shield = (private_stack && Shield::is_needed(func, &allocated)).then(|| Shield::enter(&mut kfuncs));
    let mut emitter = Emitter::emit(&allocated, shield);
    let offsets = emitter.link(func)?;
    let Emitter { insns, spans, targets, .. } = emitter;
    let mut bytes = Vec::with_capacity(offsets[insns.len()] as usize);
    insns.iter().for_each(|insn| insn.encode(&mut bytes));
    let (name, frame, shielded) = (func.name.clone(), allocated.frame.size, shield.is_some());
    let code = Code { name, section, params, insns, offsets, bytes, spans, targets, frame, shielded };
    Ok(Part { code, kfuncs, span: func.span })
}

/// Index of a kernel function in a list without duplicates; appends it if it is new.
fn entered(kfuncs: &mut Vec<Kfunc>, kfunc: &Kfunc) -> u32 {
    let known = kfuncs.iter().position(|known| known.name == kfunc.name);
    known.unwrap_or_else(|| {
        kfuncs.push(kfunc.clone());
        kfuncs.len() - 1
    }) as u32
}

/// The kernel functions that a function calls, without duplicates.
fn kfuncs(func: &ir::Func) -> Vec<Kfunc> {
    let mut kfuncs: Vec<Kfunc> = Vec::new();
    for inst in func.blocks.iter().flat_map(|block| &block.ops) {
        if let Op::Kfunc { name, args, .. } = &inst.op {
            entered(&mut kfuncs, &Kfunc { name: name.clone(), args: args.len() as u8 });
        }
    }
    kfuncs
}

/// Checks the stack size. A program and its callbacks share one stack; the kernel rounds each frame up to 32
/// bytes.
fn check_stack(parts: &[Part]) -> Result<(), AsmError> {
    // Calls nest at most 8 deep (MAX_CALL_FRAMES), so the recursion ends even for cyclic references.
    fn depth(parts: &[Part], at: usize, nesting: u32) -> u32 {
        let below = parts[at].code.targets.iter().filter_map(|(_, target)| match target {
            Target::Func(func) if nesting > 0 => Some(depth(parts, func.0 as usize, nesting - 1)),
            _ => None,
        });
        parts[at].code.frame.max(1).next_multiple_of(32) + below.max().unwrap_or(0)
    }
    for (at, part) in parts.iter().enumerate() {
        let bytes = part.code.frame.max(depth(parts, at, 8));
        if bytes > MAX_STACK {
            return Err(AsmError::Stack { name: part.code.name.clone(), bytes, span: part.span });
        }
    }
    Ok(())
}
