//! Queries the kernel's BTF: functions and their parameters, offsets of fields, arguments of tracepoints, types.
//!
//! libbpf parses all 150 000 types into an index first. One pass over the bytes takes a tenth of the time, and no memory where
//! the kernel's BTF can be mapped (6.15 and later).

mod format;
mod spell;
mod type_index;

use crate::kernel::sys::{self, MemoryMapping};
use format::{
    Head, KIND_FUNC, KIND_STRUCT, KIND_TYPEDEF, offset_of_string, sections, string, text, types,
    types_and_tails, word,
};
use libbpf_sys as bpf;
pub use spell::variable;
use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::{Mutex, OnceLock, PoisonError};
use type_index::TypeIndex;
pub use type_index::{Field, Function, Kind, Type};
use wire::kernel_function;

/// A file per module that has BTF. Types of a module continue those of the kernel.
const FOLDER: &str = "/sys/kernel/btf";
const VMLINUX: &str = "/sys/kernel/btf/vmlinux";

/// Whether the kernel has BTF.
pub fn is_there() -> bool {
    std::path::Path::new(VMLINUX).exists()
}

/// Number of parameters of a kernel function; `None` without such a function or without BTF.
pub fn kernel_function_params(name: &str) -> Option<u32> {
    with_kernel(|btf| function_params(btf, name))
}

/// Id of a kernel function in the kernel's BTF.
pub fn kernel_function_id(name: &str) -> Option<u32> {
    with_kernel(|btf| {
        let (all, strings) = sections(btf)?;
        function_named(all, strings, name).map(|(id, _)| id)
    })
}

/// Offsets in bytes of fields of kernel structs: `("task_struct", "utask")`. `None` if one of them does not exist.
pub fn kernel_fields<const N: usize>(fields: [(&str, &str); N]) -> Option<[u32; N]> {
    with_kernel(|btf| {
        let found: Option<Vec<u32>> = fields.iter().map(|(of, field)| field_offset(btf, of, field)).collect();
        found?.try_into().ok()
    })
}

/// Whether the kernel's BTF contains the name.
pub fn has_name(name: &str) -> bool {
    with_kernel(|btf| offset_of_string(sections(btf)?.1, name)).is_some()
}

/// Names of the functions that the BTF of a module describes, and that a trampoline can call.
pub fn function_names(module: &str) -> HashSet<String> {
    with_kernel(|kernel| {
        let (data, strings) = sections(kernel)?;
        if module == kernel_function::VMLINUX {
            return Some(function_names_of(data, |name| string(strings, name)));
        }
        let own = std::fs::read(format!("{FOLDER}/{module}")).ok()?;
        let (data, own_strings) = sections(&own)?;
        let own_string = |name: u32| match name.checked_sub(strings.len() as u32) {
            Some(name) => string(own_strings, name),
            None => string(strings, name),
        };
        Some(function_names_of(data, own_string))
    })
    .unwrap_or_default()
}

fn function_names_of(data: &[u8], name: impl Fn(u32) -> Option<String>) -> HashSet<String> {
    types(data).filter(|head| head.kind() == KIND_FUNC).filter_map(|head| name(head.name)).collect()
}

/// The declaration of a function; `None` if the module's BTF does not describe it.
pub fn kernel_function(module: &str, name: &str) -> Option<Function> {
    let number = module_number(module);
    module_index(number)?.function(name, |id| u64::from(number) << 32 | u64::from(id))
}

/// Id of a function in the BTF of the kernel or of a module.
pub(crate) fn module_function_id(module: &str, name: &str) -> Option<u32> {
    module_index(module_number(module))?.function_id(name)
}

/// The kernel's object with the BTF of a module.
///
/// # Errors
/// No module with BTF has this name, or the kernel does not permit to list its objects.
pub(crate) fn module_object(module: &str) -> io::Result<OwnedFd> {
    let mut id = 0;
    loop {
        // SAFETY: the kernel writes one number.
        sys::check_libbpf(unsafe { bpf::bpf_btf_get_next_id(id, &mut id) })?;
        // SAFETY: takes a number.
        let object = sys::owned_libbpf(unsafe { bpf::bpf_btf_get_fd_by_id(id) })?;
        if object_name(&object)? == module.as_bytes() {
            return Ok(object);
        }
    }
}

fn object_name(object: &OwnedFd) -> io::Result<Vec<u8>> {
    // MODULE_NAME_LEN
    let mut name = [0u8; 64];
    let mut info = bpf::bpf_btf_info {
        name: name.as_mut_ptr() as u64,
        name_len: name.len() as u32,
        ..bpf::bpf_btf_info::default()
    };
    let mut size = size_of::<bpf::bpf_btf_info>() as u32;
    // SAFETY: the kernel writes no more than `size` bytes, and `name_len` bytes at `name`.
    sys::check_libbpf(unsafe { bpf::bpf_btf_get_info_by_fd(object.as_raw_fd(), &mut info, &mut size) })?;
    let end = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
    Ok(name[..end].to_vec())
}

/// Id in the kernel's BTF of the struct, union or enum of this name.
pub fn kernel_type_named(name: &str) -> Option<u32> {
    type_index()?.named(name)
}

/// The enum with this constant.
pub fn kernel_enum_with(constant: &str) -> Option<u32> {
    type_index()?.enum_with(constant)
}

/// One level of the type with this number: the number of a module, and an id in its BTF. Types refer to others by their ids.
pub fn kernel_type(number: u64) -> Option<Type> {
    module_index((number >> 32) as u32)?.describe(number as u32)
}

/// The modules whose types were used, in the order of their numbers from 1; 0 is the kernel itself.
static MODULES: Mutex<Vec<(String, Option<&'static TypeIndex<'static>>)>> = Mutex::new(Vec::new());

/// The number of a module, whose BTF is read when it gets the number.
fn module_number(module: &str) -> u32 {
    if module == kernel_function::VMLINUX {
        return 0;
    }
    let mut modules = MODULES.lock().unwrap_or_else(PoisonError::into_inner);
    let at = modules.iter().position(|(known, _)| known == module).unwrap_or_else(|| {
        let index = std::fs::read(format!("{FOLDER}/{module}")).ok().and_then(|own| {
            let kernel = type_index()?;
            TypeIndex::of_module(kernel, &own).map(|index| &*Box::leak(Box::new(index)))
        });
        modules.push((module.to_owned(), index));
        modules.len() - 1
    });
    at as u32 + 1
}

fn module_index(number: u32) -> Option<&'static TypeIndex<'static>> {
    match number.checked_sub(1) {
        None => type_index(),
        Some(at) => MODULES.lock().unwrap_or_else(PoisonError::into_inner).get(at as usize)?.1,
    }
}

/// The C declaration of a struct, union or enum: `struct task_struct`, and its members, `char comm[16];`.
pub fn declaration(name: &str) -> Option<(String, Vec<String>)> {
    type_index()?.declaration(name)
}

/// The index of all types, which is created once.
fn type_index() -> Option<&'static TypeIndex<'static>> {
    static BYTES: OnceLock<Option<Vec<u8>>> = OnceLock::new();
    static ALL: OnceLock<Option<TypeIndex<'static>>> = OnceLock::new();
    let bytes = BYTES.get_or_init(|| std::fs::read(VMLINUX).ok());
    ALL.get_or_init(|| TypeIndex::of(bytes.as_deref()?)).as_ref()
}

/// An argument that a tracepoint passes to its programs, in 8 bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TracepointArg {
    /// `prev_state`
    pub name: String,
    /// Kind.
    pub kind: TracepointArgKind,
}

/// Kind of an argument of a tracepoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TracepointArgKind {
    /// A number.
    Int {
        /// 1, 2, 4 or 8.
        bytes: u8,
        /// Two's complement.
        signed: bool,
    },
    /// Kernel address, with the name of the struct if it is one's.
    Pointer(Option<String>),
    /// A struct, a floating-point number.
    Other,
}

/// Arguments of a tracepoint; `None` without such a tracepoint or without BTF.
pub fn raw_tracepoint(name: &str) -> Option<Vec<TracepointArg>> {
    with_kernel(|btf| tracepoint_args(btf, name))
}

/// Names of all tracepoints, sorted.
pub fn raw_tracepoints() -> Vec<String> {
    with_kernel(|btf| {
        let (_, strings) = sections(btf)?;
        let each = strings.split(|byte| *byte == 0).filter_map(|name| name.strip_prefix(b"btf_trace_"));
        let mut names: Vec<String> = each.map(|name| String::from_utf8_lossy(name).into_owned()).collect();
        names.sort();
        Some(names)
    })
    .unwrap_or_default()
}

/// Functions whose parameters are the fields of an iterator's items, after the description of the iteration.
const ITERATOR: &str = "bpf_iter_";

/// Fields of the items of an iterator; `None` without such an iterator or without BTF.
pub fn iterator(items: &str) -> Option<Vec<TracepointArg>> {
    let all = type_index()?;
    all.named(&format!("bpf_iter__{items}"))?;
    let (function, _) = all.at(all.function_id(&format!("{ITERATOR}{items}"))?)?;
    Some(arguments(all, parameters(all, function.type_id)?))
}

/// Names of all iterators, sorted: those whose context is a struct of the kernel.
pub fn iterators() -> Vec<String> {
    let functions = function_names(kernel_function::VMLINUX);
    let items = functions.iter().filter_map(|name| name.strip_prefix(ITERATOR));
    let mut items: Vec<String> = items
        .filter(|items| kernel_type_named(&format!("bpf_iter__{items}")).is_some())
        .map(String::from)
        .collect();
    items.sort();
    items
}

fn with_kernel<T>(f: impl FnOnce(&[u8]) -> Option<T>) -> Option<T> {
    let file = File::open(VMLINUX).ok()?;
    let len = file.metadata().ok()?.len() as usize;
    match MemoryMapping::read_only(file.as_fd(), len) {
        // SAFETY: a mapping of this length, of a file that never changes.
        Ok(map) => f(unsafe { std::slice::from_raw_parts(map.bytes(), len) }),
        Err(_) => f(&std::fs::read(VMLINUX).ok()?),
    }
}

fn field_offset(btf: &[u8], of: &str, field: &str) -> Option<u32> {
    /// A member: name, type, bits from the start.
    const MEMBER: usize = 12;
    /// The upper bits are the size of a bit-field.
    const BIT_OFFSET: u32 = 0xff_ffff;
    let (all, strings) = sections(btf)?;
    let (of, field) = (offset_of_string(strings, of)?, offset_of_string(strings, field)?);
    let (head, tail) =
        types_and_tails(all).find(|(head, _)| head.name == of && head.kind() == KIND_STRUCT)?;
    let mut members = (0..head.members() as usize).map(|member| tail + MEMBER * member);
    let member = members.find(|&at| word(all, at) == Some(field))?;
    Some((word(all, member + 8)? & BIT_OFFSET) / 8)
}

/// Id and fixed part of the function with this name.
fn function_named(all: &[u8], strings: &[u8], name: &str) -> Option<(u32, Head)> {
    let name = offset_of_string(strings, name)?;
    (1..).zip(types(all)).find(|(_, head)| head.name == name && head.kind() == KIND_FUNC)
}

fn function_params(btf: &[u8], name: &str) -> Option<u32> {
    let (all, strings) = sections(btf)?;
    let (_, function) = function_named(all, strings, name)?;
    types(all).nth(function.type_id.checked_sub(1)? as usize).map(|prototype| prototype.members())
}

/// By the empty function of the tracepoint or, on older kernels, the one that calls programs. The first parameter of each
/// belongs to the tracepoint.
fn tracepoint_args(btf: &[u8], name: &str) -> Option<Vec<TracepointArg>> {
    let all = TypeIndex::of(btf)?;
    let function = ["__probestub_", CALLER]
        .iter()
        .find_map(|prefix| function_named(all.data, all.strings, &format!("{prefix}{name}")));
    let args = match function {
        Some((_, function)) => parameters(&all, function.type_id)?,
        None => args_of_class(&all, name)?,
    };
    Some(arguments(&all, args))
}

fn arguments(all: &TypeIndex<'_>, args: Vec<(String, u32)>) -> Vec<TracepointArg> {
    args.into_iter().map(|(name, ty)| TracepointArg { name, kind: arg_kind(all, ty) }).collect()
}

/// The function that calls the programs of a tracepoint or, on older kernels, of a class of tracepoints.
const CALLER: &str = "__bpf_trace_";

/// Arguments of an event that shares the function of its class, `__bpf_trace_softirq`. The typedef of the event has the types of the
/// arguments without names, and nothing refers to the class. The names are those of the class with these types that is
/// called most alike; a class without a common word counts only if no other has the types.
fn args_of_class(all: &TypeIndex<'_>, event: &str) -> Option<Vec<(String, u32)>> {
    let typedef = offset_of_string(all.strings, &format!("btf_trace_{event}"))?;
    let typedef = types(all.data).find(|head| head.name == typedef && head.kind() == KIND_TYPEDEF)?;
    let (pointer, _) = all.at(typedef.type_id)?;
    let args = parameters(all, pointer.type_id)?;
    let types_of = |args: &[(String, u32)]| args.iter().map(|(_, ty)| *ty).collect::<Vec<u32>>();
    let mut classes: Vec<(usize, Vec<(String, u32)>)> = types(all.data)
        .filter(|head| head.kind() == KIND_FUNC)
        .filter_map(|head| Some((text(all.strings, head.name)?.strip_prefix(CALLER)?, head.type_id)))
        .filter_map(|(class, id)| Some((common_words(class, event), parameters(all, id)?)))
        .filter(|(_, of_class)| types_of(of_class) == types_of(&args))
        .collect();
    classes.sort_by_key(|(common, _)| std::cmp::Reverse(*common));
    match classes.first() {
        Some((common, _)) if *common > 0 || classes.len() == 1 => Some(classes.swap_remove(0).1),
        _ => Some((0..).zip(args).map(|(n, (_, ty))| (format!("arg{n}"), ty)).collect()),
    }
}

/// How many words both names begin with: 2 of `mm_vmscan_wakeup` and `mm_vmscan_write`.
fn common_words(one: &str, other: &str) -> usize {
    one.split('_').zip(other.split('_')).take_while(|(one, other)| one == other).count()
}

/// Names and types of the parameters of a prototype, without the first.
fn parameters(all: &TypeIndex<'_>, prototype: u32) -> Option<Vec<(String, u32)>> {
    /// A parameter: name, type.
    const PARAMETER: usize = 8;
    let (prototype, tail) = all.at(prototype)?;
    let parameter = |n: usize| {
        let (name, ty) = (word(all.data, tail + PARAMETER * n)?, word(all.data, tail + PARAMETER * n + 4)?);
        Some((string(all.strings, name)?, ty))
    };
    (1..prototype.members() as usize).map(parameter).collect()
}

fn arg_kind(all: &TypeIndex<'_>, id: u32) -> TracepointArgKind {
    let struct_name = |id: u32| {
        let (head, _) = all.at(id).filter(|(head, _)| head.kind() == KIND_STRUCT && head.name != 0)?;
        string(all.strings, head.name)
    };
    match all.describe(id).map(|ty| ty.kind) {
        Some(Kind::Bool) => TracepointArgKind::Int { bytes: 1, signed: false },
        Some(Kind::Int { bytes, signed } | Kind::Enum { bytes, signed, .. }) => {
            TracepointArgKind::Int { bytes, signed }
        }
        Some(Kind::Pointer(to)) => TracepointArgKind::Pointer(to.and_then(struct_name)),
        _ => TracepointArgKind::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::format::file;
    use super::*;

    /// `int f(int, int)` after an int and a struct of one member.
    fn sample() -> Vec<u8> {
        let strings = b"\0int\0f\0ff\0";
        let mut types: Vec<u32> = vec![1, 1 << 24, 4, 32]; // 1: int
        types.extend([0, 4 << 24 | 1, 4, 0, 1, 0]); // 2: struct { int }
        types.extend([0, 13 << 24 | 2, 1, 0, 1, 0, 1]); // 3: prototype
        types.extend([5, 12 << 24, 3]); // 4: f
        file(strings, &types)
    }

    #[test]
    fn a_function_is_found_by_its_whole_name() {
        assert_eq!(function_params(&sample(), "f"), Some(2));
        assert_eq!(function_params(&sample(), "ff"), None);
        assert_eq!(function_params(&sample(), "g"), None);
    }

    #[test]
    fn truncated_or_foreign_bytes_have_no_function() {
        let whole = sample();
        for len in 0..whole.len() - 1 {
            assert_eq!(function_params(&whole[..len], "f"), None, "{len}");
        }
        assert_eq!(function_params(&[0xff; 64], "f"), None);
    }

    #[test]
    fn a_field_is_found_by_struct_and_name() {
        let strings = b"\0s\0a\0b\0";
        let types: Vec<u32> = vec![1, 4 << 24 | 2, 16, 3, 0, 0, 5, 0, 64];
        let btf = file(strings, &types);
        assert_eq!(field_offset(&btf, "s", "a"), Some(0));
        assert_eq!(field_offset(&btf, "s", "b"), Some(8));
        assert_eq!(field_offset(&btf, "a", "b"), None);
    }

    #[test]
    fn the_first_parameter_is_not_an_argument_of_the_tracepoint() {
        let strings = b"\0int\0__probestub_t\0pid\0task\0";
        let mut types: Vec<u32> = vec![1, 1 << 24, 4, 1 << 24 | 32]; // 1: int
        types.extend([0, 2 << 24, 0]); // 2: void *
        types.extend([0, 10 << 24, 1]); // 3: const int
        types.extend([0, 13 << 24 | 3, 0, 0, 2, 19, 3, 23, 2]); // 4: prototype
        types.extend([5, 12 << 24, 4]); // 5: __probestub_t
        let btf = file(strings, &types);
        let expected = [
            TracepointArg { name: "pid".into(), kind: TracepointArgKind::Int { bytes: 4, signed: true } },
            TracepointArg { name: "task".into(), kind: TracepointArgKind::Pointer(None) },
        ];
        assert_eq!(tracepoint_args(&btf, "t").as_deref(), Some(&expected[..]));
        assert_eq!(tracepoint_args(&btf, "u"), None);
    }

    /// `softirq_entry` and `timer_init` of classes that others share their types with.
    #[test]
    fn an_event_without_a_function_has_the_arguments_of_its_class() {
        let strings = b"\0u32\0__bpf_trace_clock\0__bpf_trace_softirq\0rate\0vec_nr\0btf_trace_softirq_entry\0btf_trace_user\0";
        let at = |name: &str| offset_of_string(strings, name).unwrap();
        let mut types: Vec<u32> = vec![1, 1 << 24, 4, 32]; // 1: u32
        types.extend([0, 2 << 24, 0]); // 2: void *
        for name in ["rate", "vec_nr"] {
            types.extend([0, 13 << 24 | 2, 0, 0, 2, at(name), 1]); // 3, 4: prototypes of the classes
        }
        types.extend([at("__bpf_trace_clock"), 12 << 24, 3]); // 5
        types.extend([at("__bpf_trace_softirq"), 12 << 24, 4]); // 6
        types.extend([0, 13 << 24 | 2, 0, 0, 2, 0, 1]); // 7: prototype of the events
        types.extend([0, 2 << 24, 7]); // 8: pointer to it
        types.extend([at("btf_trace_softirq_entry"), 8 << 24, 8]);
        types.extend([at("btf_trace_user"), 8 << 24, 8]);
        let btf = file(strings, &types);
        let names = |event| {
            tracepoint_args(&btf, event)
                .map(|args| args.into_iter().map(|arg| (arg.name, arg.kind)).collect::<Vec<_>>())
        };
        let kind = TracepointArgKind::Int { bytes: 4, signed: false };
        assert_eq!(names("softirq_entry"), Some(vec![("vec_nr".into(), kind.clone())]));
        assert_eq!(names("user"), Some(vec![("arg0".into(), kind)]), "two classes, neither is named alike");
        assert_eq!(names("softirq_exit"), None);
    }

    #[test]
    fn the_running_kernels_functions_are_found() {
        if !is_there() {
            eprintln!("skipped: no kernel BTF");
            return;
        }
        assert_eq!(kernel_function_params("bpf_prog_put"), Some(1));
        assert_eq!(kernel_function_params("no_such_function_of_the_kernel"), None);
    }
}
