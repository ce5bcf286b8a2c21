//! Display names of GPU kernels.
//!
//! ```text
//! _ZN2at6native29vectorized_elementwise_kernelILi4ENS0_15CUDAFunctor_addIfEESt5arrayIPcLm3EEEEviT0_T1_
//! full:  void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> >(int, ...)
//! short: vectorized_elementwise_kernel<4, CUDAFunctor_add<float>, array<char*, 3>>
//! ```
//!
//! The short form has no result type, no parameters and no namespaces, but for a last name that says nothing alone: `cutlass::Kernel2<...>`.
//! It has as many template arguments as fit in some forty
//! characters, at least one that is no number, with their own arguments only if these are simple. In place of a lambda stands what tells it apart: the
//! function that it is in, or what that one is instantiated for. Two kernels may have one short name. A name that is not mangled (C,
//! Triton, NVRTC) is unchanged.

use cpp_demangle::{DemangleOptions, Symbol};

/// Largest number of characters of template arguments; the first one that is no number may be longer.
const ARGUMENTS: usize = 40;
/// Largest number of characters of the template arguments of an argument.
const INNER: usize = 20;
const MORE: &str = "…";
/// Names that say nothing without their namespace or class, in lower case and without digits at the end.
const BARE: [&str; 16] = [
    "kernel",
    "device_kernel",
    "cuda_kernel",
    "kernel_entry",
    "entry",
    "main",
    "run",
    "apply",
    "launch",
    "execute",
    "invoke",
    "call",
    "compute",
    "impl",
    "body",
    "operator()",
];

/// The full name, as shown by `c++filt`, the C++ library and PyTorch's profiler.
pub fn full(mangled: &str) -> String {
    let bare = demangled(mangled, &DemangleOptions::new().no_return_type());
    let whole = demangled(mangled, &DemangleOptions::new());
    match (bare, whole) {
        (Some(bare), Some(whole)) => suffixed(&format!("{}{bare}", result(&whole, &bare))),
        _ => mangled.to_owned(),
    }
}

/// The text before the name of a template: its result type and a blank. Names of functions inside it have no
/// result type.
fn result<'t>(whole: &'t str, bare: &str) -> &'t str {
    let head = bare.split('<').next().unwrap_or(bare);
    whole.find(head).map_or("", |at| &whole[..at])
}

/// Types of literals, and their suffixes in the C++ library.
static SUFFIXES: &[(&str, &str)] = &[
    ("(unsigned int)", "u"),
    ("(unsigned long)", "ul"),
    ("(unsigned long long)", "ull"),
    ("(long)", "l"),
    ("(long long)", "ll"),
];

/// `(unsigned long)3` becomes `3ul`.
fn suffixed(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(at) = rest.find('(') {
        text.push_str(&rest[..at]);
        rest = &rest[at..];
        let marked = SUFFIXES.iter().find_map(|(ty, suffix)| {
            let behind = rest.strip_prefix(ty)?;
            let digits = behind.find(|c: char| !c.is_ascii_digit() && c != '-').unwrap_or(behind.len());
            (digits > 0).then(|| (behind.split_at(digits), suffix))
        });
        match marked {
            Some(((number, behind), suffix)) => {
                text.extend([number, suffix]);
                rest = behind;
            }
            None => {
                text.push('(');
                rest = &rest[1..];
            }
        }
    }
    text + rest
}

/// A short name, which in most cases is unique among the kernels of a program.
pub fn short(mangled: &str) -> String {
    let options = DemangleOptions::new().no_params().no_return_type().hide_expression_literal_types();
    match demangled(mangled, &options) {
        Some(name) => of_kernel(&name),
        None => mangled.to_owned(),
    }
}

fn demangled(mangled: &str, options: &DemangleOptions) -> Option<String> {
    mangled.starts_with("_Z").then_some(())?;
    Symbol::new(mangled).ok()?.demangle_with_options(options).ok()
}

/// The short form of a demangled name.
fn of_kernel(name: &str) -> String {
    let (spaces, last) = split_last(name.trim());
    let short = shortened(last, ARGUMENTS);
    match telling_space(spaces).filter(|_| is_bare(last)) {
        Some(space) => format!("{}::{short}", shortened(space, INNER)),
        None => short,
    }
}

/// Whether a name without namespaces says nothing.
fn is_bare(last: &str) -> bool {
    let name = arguments(last).map_or(last, |name| name.before);
    let name = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '_');
    BARE.iter().any(|bare| name.eq_ignore_ascii_case(bare))
}

/// The last of the namespaces and classes that has a name.
fn telling_space(spaces: &str) -> Option<&str> {
    let (outer, last) = split_last(spaces);
    match last {
        "" => None,
        "(anonymous namespace)" => telling_space(outer),
        last => Some(last),
    }
}

/// A name or type without namespaces, with at most `room` characters of template arguments.
fn shortened(name: &str, room: usize) -> String {
    let (_, name) = split_last(origin(name.trim()));
    let Some(TemplateName { before, inside, behind }) = arguments(name) else { return literal(name) };
    let inner = if room == ARGUMENTS { INNER } else { 0 };
    let all: Vec<String> = split(inside).into_iter().map(|arg| shortened(arg, inner)).collect();
    let mut shown = String::new();
    for (at, arg) in all.iter().enumerate() {
        let fits = shown.len() + arg.len() <= room;
        let tells = all[..at].iter().any(|arg| !is_number(arg));
        if !fits && (tells || room < ARGUMENTS) {
            shown.push_str(if at > 0 { ", " } else { "" });
            shown.push_str(MORE);
            break;
        }
        shown.push_str(if at > 0 { ", " } else { "" });
        shown.push_str(arg);
    }
    format!("{before}<{shown}>{behind}")
}

/// The part of the name of a lambda that tells it apart; other names are themselves.
///
/// ```text
/// at::native::gpu_kernel_impl<at::native::AddFunctor<float>>(at::TensorIteratorBase&)::{lambda(int)#1}    at::native::AddFunctor<float>
/// at::native::copy_kernel(at::TensorIteratorBase&)::{lambda()#3}::operator()() const::{lambda(float)#1}   copy_kernel
/// ```
fn origin(name: &str) -> &str {
    let is_of_lambda = |part: &str| part.starts_with("{lambda") || part.starts_with("operator()");
    let (mut outer, mut function) = split_last(name);
    if !function.starts_with("{lambda") {
        return name;
    }
    while is_of_lambda(function) {
        if outer.is_empty() {
            return name;
        }
        (outer, function) = split_last(outer);
    }
    let bare = function.find(['<', '(']).map_or(function, |end| &function[..end]);
    let is_template = function[bare.len()..].starts_with('<');
    let parts = arguments(function).filter(|_| is_template).map_or(vec![], |template| split(template.inside));
    let tells = |part: &&str| part.contains("::") || part.contains(['<', '{']);
    parts.into_iter().find(tells).map_or(bare, |part| origin(part.trim()))
}

/// `3ul` becomes 3.
fn literal(text: &str) -> String {
    let digits = text.trim_end_matches(['u', 'l']);
    if is_number(digits) { digits.to_owned() } else { text.to_owned() }
}

fn is_number(text: &str) -> bool {
    let digits = text.trim_start_matches('-');
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// The parts before and after the last `::` outside of brackets.
fn split_last(name: &str) -> (&str, &str) {
    let mut last = None;
    at_top(name, |at, rest| {
        if rest.starts_with("::") {
            last = Some(at);
        }
    });
    last.map_or(("", name), |at| (&name[..at], &name[at + 2..]))
}

/// A name with template arguments.
struct TemplateName<'n> {
    /// Text before the first pair of angle brackets.
    before: &'n str,
    /// Text between the brackets.
    inside: &'n str,
    /// Text after them.
    behind: &'n str,
}

/// The parts of a name with template arguments; `None` for other names.
fn arguments(name: &str) -> Option<TemplateName<'_>> {
    let open = name.find('<').filter(|open| !name[..*open].ends_with("operator"))?;
    let mut close = None;
    let mut depth = 0usize;
    for (at, byte) in name.bytes().enumerate().skip(open) {
        match byte {
            b'<' | b'(' | b'[' | b'{' => depth += 1,
            b'>' | b')' | b']' | b'}' => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    close = Some(at);
                    break;
                }
            }
            _ => {}
        }
    }
    let close = close?;
    Some(TemplateName { before: &name[..open], inside: &name[open + 1..close], behind: &name[close + 1..] })
}

/// Splits at commas outside of brackets.
fn split(list: &str) -> Vec<&str> {
    let (mut parts, mut start) = (Vec::new(), 0);
    at_top(list, |at, rest| {
        if rest.starts_with(',') {
            parts.push(&list[start..at]);
            start = at + 1;
        }
    });
    parts.push(&list[start..]);
    parts
}

/// Calls `see` with each position outside of brackets.
fn at_top<'t>(text: &'t str, mut see: impl FnMut(usize, &'t str)) {
    let mut depth = 0i32;
    for (at, c) in text.char_indices() {
        match c {
            '<' | '(' | '[' | '{' => depth += 1,
            '>' | ')' | ']' | '}' => depth -= 1,
            _ if depth == 0 => see(at, &text[at..]),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_names_stay() {
        for name in ["fill", "triton_poi_fused_add_0", "_Z", "_Zwhatever", "", "<unknown kernel>"] {
            assert_eq!((short(name), full(name)), (name.to_owned(), name.to_owned()));
        }
    }

    #[test]
    fn functions_lose_their_parameters() {
        assert_eq!(short("_Z4fillPffi"), "fill");
        assert_eq!(full("_Z4fillPffi"), "fill(float*, float, int)");
        assert_eq!(short("_ZN12_GLOBAL__N_14spinEl"), "spin");
    }

    #[test]
    fn templates_keep_what_tells_them_apart() {
        let add = "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_15CUDAFunctor_addIfEESt5arrayIPcLm3EEEEviT0_T1_";
        assert_eq!(short(add), "vectorized_elementwise_kernel<4, CUDAFunctor_add<float>, array<char*, 3>>");
        assert!(full(add).starts_with(
            "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>"
        ));
        let cutlass = "_ZN7cutlass7Kernel2I66cutlass_80_wmma_tensorop_f16_s161616gemm_f16_16x16_128x2_tn_align8EEvNT_6ParamsE";
        assert_eq!(
            short(cutlass),
            "cutlass::Kernel2<cutlass_80_wmma_tensorop_f16_s161616gemm_f16_16x16_128x2_tn_align8>"
        );
    }

    #[test]
    fn a_lambda_is_named_by_its_function_or_what_that_is_for() {
        let add = "_ZN2at6native18elementwise_kernelILi128ELi2EZNS0_22gpu_kernel_impl_nocastINS0_15CUDAFunctor_addIfEEEEvRNS_18TensorIteratorBaseERKT_EUliE_EEviT1_";
        assert_eq!(short(add), "elementwise_kernel<128, 2, CUDAFunctor_add<float>>");
        let product = "_ZN2at6native18elementwise_kernelILi128ELi4EZNS0_22gpu_kernel_impl_nocastINS0_13BinaryFunctorIfffNS0_15binary_internal10MulFunctorIfEEEEEEvRNS_18TensorIteratorBaseERKT_EUliE_EEviT1_";
        assert_eq!(short(product), "elementwise_kernel<128, 4, BinaryFunctor<float, float, float, …>>");
        let copy = "_ZN2at6native18elementwise_kernelILi128ELi4EZNS0_22gpu_kernel_impl_nocastIZZZNS0_23direct_copy_kernel_cudaERNS_18TensorIteratorBaseEENKUlvE1_clEvENKUlvE5_clEvEUlfE_EEvS4_RKT_EUliE_EEviT1_";
        assert_eq!(short(copy), "elementwise_kernel<128, 4, direct_copy_kernel_cuda>");
        assert_eq!(origin("{lambda(int)#1}"), "{lambda(int)#1}");
        assert_eq!(origin("f<float, 4>(int)::{lambda(int)#1}"), "f");
    }

    #[test]
    fn a_name_that_says_nothing_keeps_its_last_namespace() {
        let gemv = "_ZN8internal5gemvx6kernelIiifEEvT_T0_T1_";
        assert_eq!(short(gemv), "gemvx::kernel<int, int, float>");
        assert_eq!(short("_ZN2at6native12_GLOBAL__N_16kernelEi"), "native::kernel");
        assert_eq!(short("_ZN4gemmIfLi128EE3runEv"), "gemm<float, 128>::run");
        assert_eq!(short("_ZNK3fooclEi"), "foo::operator()");
        assert_eq!(short("_ZN7cutlass13device_kernelI4gemmEEvT_"), "cutlass::device_kernel<gemm>");
        // Without a namespace, or with a name that says something.
        assert_eq!(short("_Z6kerneli"), "kernel");
        assert_eq!(short("_ZN12_GLOBAL__N_16kernelEi"), "kernel");
        assert_eq!(short("_ZN8internal11gemv_kernelEi"), "gemv_kernel");
    }

    /// Compares full names with the output of `c++filt`.
    #[test]
    fn full_names_are_those_of_the_library() {
        let inner = "_ZN2at6native18elementwise_kernelILi128ELi2EZNS0_22gpu_kernel_impl_nocastINS0_15CUDAFunctor_addIfEEEEvRNS_18TensorIteratorBaseERKT_EUliE_EEviT1_";
        assert_eq!(
            full(inner),
            "void at::native::elementwise_kernel<128, 2, at::native::gpu_kernel_impl_nocast<at::native::CUDAFunctor_add<float> >(at::TensorIteratorBase&, at::native::CUDAFunctor_add<float> const&)::{lambda(int)#1}>(int, at::native::gpu_kernel_impl_nocast<at::native::CUDAFunctor_add<float> >(at::TensorIteratorBase&, at::native::CUDAFunctor_add<float> const&)::{lambda(int)#1})"
        );
        assert_eq!(full("_Z1fILj3ELm4ELln5ELi6EEvv"), "void f<3u, 4ul, -5l, 6>()");
        assert_eq!(full("_ZN12_GLOBAL__N_11fIfEEvT_"), "void (anonymous namespace)::f<float>(float)");
        assert_eq!(full("_Z1fILy3ELx4EEvPFvjE"), "void f<3ull, 4ll>(void (*)(unsigned int))");
    }

    #[test]
    fn long_lists_are_cut() {
        assert_eq!(
            shortened("a::f<x::first_argument, y::second_argument_of_it, third>", ARGUMENTS),
            "f<first_argument, second_argument_of_it, …>"
        );
        assert_eq!(shortened("f<g<h<i>, 1ul> const&>", ARGUMENTS), "f<g<h<…>, 1> const&>");
        assert_eq!(shortened("f<{lambda(int)#1}>", ARGUMENTS), "f<{lambda(int)#1}>");
    }

    #[test]
    fn odd_brackets_do_not_panic() {
        for name in
            ["f<", "f>", "f<a,<", "a::b::<>", "operator<", "f<(>)>", ")::x", "é<é,é>", "::run", "a::::run"]
        {
            of_kernel(name);
        }
    }
}
