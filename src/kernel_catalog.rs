//! The kernel's tracepoints and types, for the catalog.

use lang::catalog::debug_info::{Absent, TypeId};
use lang::catalog::{KERNEL, KernelFunction, RecordField, RecordKind, Tracepoint, VMLINUX, debug_info};
use lang::hir::Hook;
use runtime::kernel::btf::{TracepointArg, TracepointArgKind};
use runtime::kernel::tracefs::TracepointField;
use runtime::kernel::{btf, features, symbols, tracefs};
use std::io;
use std::sync::{Mutex, PoisonError};

#[derive(Debug)]
pub struct RunningKernel;

impl host::Kernel for RunningKernel {
    fn tracepoint(&self, category: &str, event: &str) -> Result<Tracepoint, String> {
        let format = tracefs::tracepoint_format(category, event).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => "this kernel has none".to_string(),
            io::ErrorKind::PermissionDenied => "only root may read tracefs".to_string(),
            _ => error.to_string(),
        })?;
        // Programs may not read the common header of records.
        let own = format.fields.into_iter().filter(|field| !field.name.starts_with("common_"));
        Ok(Tracepoint { fields: own.map(field).collect() })
    }

    fn tracepoints(&self) -> Vec<(String, String)> {
        tracefs::tracepoints().unwrap_or_default()
    }

    fn raw_tracepoint(&self, event: &str) -> Result<Tracepoint, String> {
        let passed = btf::raw_tracepoint(event).ok_or_else(no_arguments)?;
        Ok(Tracepoint { fields: passed_fields(passed, 0) })
    }

    fn raw_tracepoints(&self) -> Vec<String> {
        btf::raw_tracepoints()
    }

    fn iterator(&self, items: &str) -> Result<Tracepoint, String> {
        let passed = btf::iterator(items).ok_or_else(no_arguments)?;
        // The first field describes the iteration.
        Ok(Tracepoint { fields: passed_fields(passed, 8) })
    }

    fn iterators(&self) -> Vec<String> {
        btf::iterators()
    }

    fn hook(&self, hook: Hook) -> Result<(), String> {
        symbols::functions()?;
        match hook {
            Hook::Uprobe => Ok(()),
            Hook::Kprobe | Hook::SingleKprobe => features::kprobes(),
            Hook::Trampoline => features::trampolines(),
        }
    }

    fn functions(&self) -> &[KernelFunction] {
        symbols::functions().unwrap_or_default()
    }

    fn trampoline_functions(&self) -> &[KernelFunction] {
        symbols::trampoline_functions()
    }

    fn declared(&self, address: u64, symbol: &str) -> Result<debug_info::Function, Absent> {
        let is_it = |function: &&KernelFunction| function.address == address && function.name == symbol;
        let all = self.functions();
        let start = all.partition_point(|function| function.name < symbol);
        let module = all[start..].iter().find(is_it).map_or(VMLINUX, |function| function.module);
        let found = btf::kernel_function(module, symbol).ok_or_else(|| match btf::is_there() {
            true => Absent::NotDescribed,
            false => Absent::Unusable("the kernel has no BTF".into()),
        })?;
        let id = |at: u64| TypeId { file: KERNEL, at };
        let param = |(name, ty): (String, u64)| debug_info::Param { name, ty: id(ty) };
        Ok(debug_info::Function {
            declared: found.declared,
            params: found.params.into_iter().map(param).collect(),
            ret: found.ret.map(id),
            hidden: false,
            unsure: None,
        })
    }

    fn field(&self, of: &str, field: &str) -> Option<u32> {
        let known = &mut FIELDS.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = known.iter().find(|known| known.of == of && known.field == field) {
            return found.offset;
        }
        let offset = btf::kernel_fields([(of, field)]).map(|[offset]| offset);
        known.push(FieldOffset { of: of.to_owned(), field: field.to_owned(), offset });
        offset
    }

    fn symbol(&self, name: &str) -> Option<u64> {
        symbols::address(name)
    }

    fn type_named(&self, name: &str) -> Option<u64> {
        btf::kernel_type_named(name).map(u64::from)
    }

    fn enum_with(&self, constant: &str) -> Option<u64> {
        btf::kernel_enum_with(constant).map(u64::from)
    }

    fn declared_type(&self, at: u64) -> Option<debug_info::Type> {
        btf::kernel_type(at).map(|ty| declared(ty, at))
    }
}

fn no_arguments() -> &'static str {
    match btf::is_there() {
        true => "this kernel has none",
        false => "this kernel has no BTF with its arguments",
    }
}

/// Fields of 8 bytes each; `start` is the offset of the first.
fn passed_fields(passed: Vec<TracepointArg>, start: u32) -> Vec<RecordField> {
    let field = |(at, passed): (usize, TracepointArg)| RecordField {
        name: passed.name,
        offset: start + 8 * at as u32,
        kind: match passed.kind {
            TracepointArgKind::Int { bytes, signed } => RecordKind::Int { bytes, signed },
            TracepointArgKind::Pointer(Some(name)) => RecordKind::PointerTo(name),
            TracepointArgKind::Pointer(None) => RecordKind::Pointer { text: false },
            TracepointArgKind::Other => RecordKind::Other("struct".into()),
        },
    };
    passed.into_iter().enumerate().map(field).collect()
}

/// Converts a BTF type to the catalog's type; `number` is its own.
fn declared(mut ty: btf::Type, number: u64) -> debug_info::Type {
    // BTF distinguishes `char` from numbers only by its name.
    if let (btf::Kind::Int { bytes: 1, signed }, "char") = (&mut ty.kind, ty.name.as_str()) {
        *signed = true;
    }
    // The upper half is the number of the module.
    let module = number >> 32 << 32;
    ty.map_ids(|at| TypeId { file: KERNEL, at: module | u64::from(at) })
}

/// The offset of a field that was queried.
struct FieldOffset {
    of: String,
    field: String,
    offset: Option<u32>,
}

/// Cache, since each query scans all types of the kernel.
static FIELDS: Mutex<Vec<FieldOffset>> = Mutex::new(Vec::new());

fn field(field: TracepointField) -> RecordField {
    let declared = field.declared.as_str();
    let stars = declared.matches('*').count();
    let kind = match field.size {
        size if declared.starts_with("char[") => RecordKind::Text(size),
        _ if declared == "__data_loc char[]" => RecordKind::LocatedText,
        _ if declared.contains('[') => array(&field).unwrap_or(RecordKind::Other(field.declared)),
        8 if struct_pointed_to(declared).is_some() => {
            RecordKind::PointerTo(struct_pointed_to(declared).unwrap_or_default())
        }
        8 if declared.ends_with('*') && declared.contains("char") && stars == 2 => RecordKind::Texts,
        8 if declared.ends_with('*') => RecordKind::Pointer { text: declared.contains("char") && stars == 1 },
        8 if let Some(&(_, bytes, signed)) = narrow(declared) => RecordKind::Int { bytes, signed },
        size @ (1 | 2 | 4 | 8) => RecordKind::Int { bytes: size as u8, signed: field.signed },
        _ => RecordKind::Other(field.declared),
    };
    RecordField { name: field.name, offset: field.offset, kind }
}

/// Types of arguments of system calls that are smaller than their slot of 8 bytes, with size and sign. The rest of the slot is what the
/// program had in the register.
static NARROW: &[(&str, u8, bool)] = &[
    ("int", 4, true),
    ("pid_t", 4, true),
    ("clockid_t", 4, true),
    ("timer_t", 4, true),
    ("key_t", 4, true),
    ("key_serial_t", 4, true),
    ("mqd_t", 4, true),
    ("qid_t", 4, true),
    ("rwf_t", 4, true),
    ("s32", 4, true),
    ("__s32", 4, true),
    ("unsigned", 4, false),
    ("unsigned int", 4, false),
    ("uid_t", 4, false),
    ("gid_t", 4, false),
    ("u32", 4, false),
    ("__u32", 4, false),
    ("umode_t", 2, false),
    ("short", 2, true),
    ("unsigned short", 2, false),
    ("unsigned char", 1, false),
];

fn narrow(declared: &str) -> Option<&'static (&'static str, u8, bool)> {
    let name = declared.strip_prefix("const ").unwrap_or(declared);
    NARROW.iter().find(|(narrow, ..)| *narrow == name)
}

/// The name of the struct or union in a declaration: `x` for `const struct x *`
fn struct_pointed_to(declared: &str) -> Option<String> {
    let declared = declared.strip_prefix("const ").unwrap_or(declared);
    let name = declared.strip_prefix("struct ").or(declared.strip_prefix("union "))?;
    let name = name.strip_suffix('*')?.trim_end().trim_end_matches("__user").trim_end();
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    is_name.then(|| name.to_owned())
}

/// `unsigned long[6]`
fn array(field: &TracepointField) -> Option<RecordKind> {
    let (_, dimension) = field.declared.split_once('[')?;
    let count: u32 = dimension.strip_suffix(']')?.parse().ok().filter(|&count| count > 0)?;
    let bytes = field.size / count;
    let whole = matches!(bytes, 1 | 2 | 4 | 8) && bytes * count == field.size;
    whole.then_some(RecordKind::Array { bytes: bytes as u8, signed: field.signed, count })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn declarations_of_c_have_their_kinds() {
        let kind = |declared: &str, size| {
            let (name, declared) = ("x".into(), declared.to_string());
            field(TracepointField { name, offset: 8, size, signed: true, declared }).kind
        };
        assert_eq!(kind("char[16]", 16), RecordKind::Text(16));
        assert_eq!(kind("__data_loc char[]", 4), RecordKind::LocatedText);
        assert_eq!(kind("const char *", 8), RecordKind::Pointer { text: true });
        assert_eq!(kind("const char *const *", 8), RecordKind::Texts);
        assert_eq!(kind("pid_t", 4), RecordKind::Int { bytes: 4, signed: true });
        // Slots of arguments of system calls.
        assert_eq!(kind("int", 8), RecordKind::Int { bytes: 4, signed: true });
        assert_eq!(kind("umode_t", 8), RecordKind::Int { bytes: 2, signed: false });
        assert_eq!(kind("size_t", 8), RecordKind::Int { bytes: 8, signed: true });
        assert_eq!(kind("long[6]", 48), RecordKind::Array { bytes: 8, signed: true, count: 6 });
        assert_eq!(kind("struct x[2]", 48), RecordKind::Other("struct x[2]".into()));
        assert_eq!(kind("__data_loc u8[]", 4), RecordKind::Other("__data_loc u8[]".into()));
    }
}
