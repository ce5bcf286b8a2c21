//! The functions of the kernel and its modules, and those that its function tracer reaches.
//!
//! Sources: `/proc/kallsyms`; `available_filter_functions` in tracefs, whose names are those of functions compiled with a call for the
//! tracer, one name per function: `__do_sys_getpid`, not `__x64_sys_getpid`. Several functions may have one name, so on Linux 6.5 and
//! later `available_filter_functions_addrs` is read instead. Without permission to read them, all functions count as reached.

use crate::kernel::{btf, tracefs};
use std::collections::HashSet;
use std::io;
use std::sync::OnceLock;
use wire::kernel_function::{KernelFunction, VMLINUX};

const KALLSYMS: &str = "/proc/kallsyms";

/// All functions, sorted by name, module and address; read once.
///
/// # Errors
/// The file cannot be read, or the addresses are hidden.
pub fn functions() -> Result<&'static [KernelFunction], String> {
    static ALL: OnceLock<Result<Vec<KernelFunction>, String>> = OnceLock::new();
    ALL.get_or_init(read).as_deref().map_err(Clone::clone)
}

/// The text of the file, read once.
fn listing() -> Result<&'static str, String> {
    static TEXT: OnceLock<Result<String, String>> = OnceLock::new();
    let read =
        || std::fs::read_to_string(KALLSYMS).map_err(|error| format!("`{KALLSYMS}` cannot be read: {error}"));
    TEXT.get_or_init(read).as_deref().map_err(Clone::clone)
}

fn read() -> Result<Vec<KernelFunction>, String> {
    let text = listing()?;
    let listed = match tracefs::read("available_filter_functions_addrs") {
        Ok(text) => Ok(Reach::Sites(traced_sites(&text))),
        Err(_) => tracefs::read("available_filter_functions")
            .map(|text| Reach::Names(traced_functions(text.leak()))),
    };
    let traced = match listed {
        Ok(traced) => traced,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Reach::None,
        Err(_) => Reach::Unknown,
    };
    let mut all = parse(text, &traced);
    match all.iter().all(|function| function.address == 0) {
        true => Err("the addresses of its functions are hidden (`kernel.kptr_restrict`)".into()),
        false => {
            all.sort_unstable();
            Ok(all)
        }
    }
}

/// The functions that the tracer reaches.
enum Reach {
    /// Name and module of each.
    Names(HashSet<(&'static str, &'static str)>),
    /// Addresses of their calls for the tracer, sorted.
    Sites(Vec<u64>),
    /// The kernel has no function tracer.
    None,
    /// The list cannot be read.
    Unknown,
}

impl Reach {
    fn has(&self, name: &'static str, module: &'static str, address: u64) -> bool {
        match self {
            Reach::Names(all) => all.contains(&(name, module)),
            Reach::Sites(all) => {
                let next = all.get(all.partition_point(|&site| site < address));
                next.is_some_and(|site| site - address < CALL_WITHIN)
            }
            Reach::None => false,
            Reach::Unknown => true,
        }
    }
}

/// Bytes from the start of a function in which its call for the tracer begins: after an `endbr64`, or two instructions on arm64.
/// Functions are aligned to as many bytes.
const CALL_WITHIN: u64 = 16;

/// `ffffffff81000004 vfs_read`
fn traced_sites(text: &str) -> Vec<u64> {
    let site = |line: &str| u64::from_str_radix(line.split_once(' ')?.0, 16).ok();
    let mut sites: Vec<u64> = text.lines().filter_map(site).collect();
    sites.sort_unstable();
    sites
}

/// `vfs_read`, `nvidia_open [nvidia]`
fn traced_functions(text: &'static str) -> HashSet<(&'static str, &'static str)> {
    text.lines().map(|line| name_and_module(line, ' ')).collect()
}

fn name_and_module(text: &'static str, separator: char) -> (&'static str, &'static str) {
    let module = |rest: &'static str| rest.trim().strip_prefix('[')?.strip_suffix(']');
    match text.split_once(separator) {
        Some((name, rest)) => (name, module(rest).unwrap_or(VMLINUX)),
        None => (text, VMLINUX),
    }
}

/// `ffffffff81000000 T vfs_read`, and for modules a tab and `[nvidia]`.
fn parse(text: &'static str, traced: &Reach) -> Vec<KernelFunction> {
    let function = |line: &'static str| {
        let (address, rest) = line.split_once(' ')?;
        let (kind, rest) = rest.split_once(' ')?;
        let (name, module) = name_and_module(rest, '\t');
        // Code that the kernel generates at run time has pseudo modules.
        let is_code = matches!(kind, "t" | "T" | "w" | "W");
        let is_generated = module == "bpf" || module.starts_with("__builtin__");
        let address = u64::from_str_radix(address, 16).ok()?;
        (is_code && !is_generated).then(|| KernelFunction {
            name,
            module,
            address,
            traceable: traced.has(name, module, address),
        })
    };
    let mut all: Vec<KernelFunction> = text.lines().filter_map(function).collect();
    let reached: HashSet<u64> =
        all.iter().filter(|function| function.traceable).map(|function| function.address).collect();
    for function in &mut all {
        function.traceable |= function.address != 0 && reached.contains(&function.address);
    }
    all
}

/// Address of a function or variable of the kernel or its modules; `None` if it is not listed, or addresses are hidden. Of a variable
/// of each CPU the offset in the CPU's area. Most kernels list variables (CONFIG_KALLSYMS_ALL).
pub fn address(name: &str) -> Option<u64> {
    address_in(listing().ok()?, name)
}

fn address_in(text: &str, name: &str) -> Option<u64> {
    let of = |line: &str| {
        let mut words = line.split_whitespace();
        let (address, _, symbol) = (words.next()?, words.next()?, words.next()?);
        (symbol == name).then(|| u64::from_str_radix(address, 16).ok())?
    };
    let found = text.lines().find_map(of)?;
    let is_hidden = found == 0 && !text.lines().any(|line| !line.starts_with("0000000000000000"));
    (!is_hidden).then_some(found)
}

/// The functions at which trampolines can be: reached by the tracer, and described by BTF; sorted, read once.
pub fn trampoline_functions() -> &'static [KernelFunction] {
    static ALL: OnceLock<Vec<KernelFunction>> = OnceLock::new();
    ALL.get_or_init(|| {
        let all = functions().unwrap_or_default();
        let mut modules: Vec<&'static str> = all.iter().map(|function| function.module).collect();
        modules.sort_unstable();
        modules.dedup();
        let described: Vec<(&str, HashSet<String>)> =
            modules.into_iter().map(|module| (module, btf::function_names(module))).collect();
        let is_described = |function: &&KernelFunction| {
            let of_module = described.binary_search_by_key(&function.module, |(module, _)| module);
            function.traceable && of_module.is_ok_and(|at| described[at].1.contains(function.name))
        };
        all.iter().filter(is_described).copied().collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_of_the_kernel_and_of_modules() {
        let traced = Reach::Names(traced_functions("vfs_read\nnvidia_open [nvidia]\n"));
        let text = "ffffffff81000000 T vfs_read\nffffffff81000100 d jiffies\nffffffff81000200 t rm_ioctl\t[nvidia]\n\
                    ffffffff81000300 t nvidia_open\t[nvidia]\nffffffff81000400 t bpf_prog_1\t[bpf]\n";
        let found: Vec<_> =
            parse(text, &traced).into_iter().map(|f| (f.name, f.module, f.traceable)).collect();
        assert_eq!(
            found,
            [("vfs_read", "vmlinux", true), ("rm_ioctl", "nvidia", false), ("nvidia_open", "nvidia", true)]
        );
    }

    #[test]
    fn addresses_of_symbols() {
        let text = "0000000000000000 A fixed_percpu_data\nffffffff81000000 T vfs_read\n";
        assert_eq!(address_in(text, "vfs_read"), Some(0xffff_ffff_8100_0000));
        assert_eq!(address_in(text, "fixed_percpu_data"), Some(0));
        assert_eq!(address_in(text, "vfs"), None);
        assert_eq!(address_in("0000000000000000 T vfs_read\n", "vfs_read"), None);
    }

    #[test]
    fn names_of_one_function_are_reached_if_one_is() {
        let traced = Reach::Names(traced_functions("__do_sys_getpid\n"));
        let text = "a0 T __x64_sys_getpid\na0 t __do_sys_getpid\nb0 T other\n";
        let reached: Vec<_> = parse(text, &traced).into_iter().map(|f| (f.name, f.traceable)).collect();
        assert_eq!(reached, [("__x64_sys_getpid", true), ("__do_sys_getpid", true), ("other", false)]);
    }

    #[test]
    fn one_of_two_functions_with_the_same_name_may_be_traceable() {
        let traced = Reach::Sites(traced_sites("a4 alloc_page\nc0 free_page [nvidia]\n"));
        let text = "90 t alloc_page\na0 t alloc_page\nb0 T last\nc0 t free_page\t[nvidia]\nd0 T end\n";
        let reached: Vec<_> = parse(text, &traced).into_iter().map(|f| (f.address, f.traceable)).collect();
        assert_eq!(reached, [(0x90, false), (0xa0, true), (0xb0, false), (0xc0, true), (0xd0, false)]);
    }

    #[test]
    fn without_the_list_all_functions_count_as_reached() {
        let text = "1 T a\n";
        assert!(parse(text, &Reach::Unknown)[0].traceable);
        assert!(!parse(text, &Reach::None)[0].traceable);
    }
}
