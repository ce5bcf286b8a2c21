//! C declarations: of a variable, of a function's parameters, of a struct of the kernel.

use anyhow::{Result, bail};
use runtime::kernel::btf;

/// The declaration of `comm` with type `char[16]`: `char comm[16]`.
pub fn variable(declared: &str, name: &str) -> String {
    btf::variable(declared, name)
}

/// The parameters of a function: `const char *s` and `int n` of `long f(const char *s, int n)`.
pub fn parameters(function: &str) -> Vec<String> {
    let Some(list) = function.strip_suffix(')').and_then(|text| Some(&text[opening(text)? + 1..])) else {
        return vec![function.to_owned()];
    };
    let (mut depth, mut all) = (0, vec![String::new()]);
    for letter in list.chars() {
        depth += match letter {
            '(' | '<' => 1,
            ')' | '>' => -1,
            _ => 0,
        };
        match (letter, depth) {
            (',', 0) => all.push(String::new()),
            _ => all.last_mut().expect("one from the start").push(letter),
        }
    }
    let named = all.iter().map(|parameter| parameter.trim().to_owned());
    named.filter(|parameter| !parameter.is_empty() && parameter != "void").collect()
}

/// The result of a function: `CUresult retval`; `None` for `void`.
pub fn result(function: &str) -> Option<String> {
    let head = &function[..opening(function.strip_suffix(')')?)?];
    let ty = head.trim_end_matches(|letter| !matches!(letter, ' ' | '*')).trim_end();
    (ty != "void").then(|| variable(ty, "retval"))
}

/// Position of the opening parenthesis that matches one after the text.
fn opening(text: &str) -> Option<usize> {
    let mut depth = 0;
    text.char_indices().rev().find_map(|(at, letter)| {
        match letter {
            ')' => depth += 1,
            '(' if depth == 0 => return Some(at),
            '(' => depth -= 1,
            _ => {}
        }
        None
    })
}

/// Keywords before the name of a type.
const TAGS: [&str; 3] = ["struct ", "union ", "enum "];

/// Whether the pattern is a type of the kernel such as `struct task_struct`, not an attach point.
pub fn is_type(pattern: &str) -> bool {
    TAGS.iter().any(|tag| pattern.starts_with(tag))
}

/// The declarations of structs, unions and enums of the kernel, which are separated by commas.
pub fn declarations(patterns: &str, verbose: bool) -> Result<String> {
    patterns.split(',').map(|pattern| declaration(pattern.trim(), verbose)).collect()
}

/// The declaration of a struct, union or enum of the kernel; with `verbose` including its members.
fn declaration(pattern: &str, verbose: bool) -> Result<String> {
    let (_, name) = pattern.split_once(' ').unwrap_or_default();
    match btf::declaration(name.trim()) {
        Some((head, _)) if !verbose => Ok(format!("{head}\n")),
        Some((head, members)) => {
            let lines: String = members.iter().map(|member| format!("    {member}\n")).collect();
            Ok(format!("{head} {{\n{lines}}};\n"))
        }
        None if btf::is_there() => bail!("the kernel's BTF has no `{pattern}`"),
        None => bail!("this kernel has no BTF with its types"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_of_functions_in_c() {
        for (function, expected) in [
            ("int f(int *n, char c)", &["int *n", "char c"][..]),
            ("CUresult cuInit(unsigned int Flags)", &["unsigned int Flags"]),
            ("void f(void)", &[]),
            ("void f()", &[]),
            (
                "void f(int (*call)(int, long), map<int, char> m)",
                &["int (*call)(int, long)", "map<int, char> m"],
            ),
        ] {
            assert_eq!(parameters(function), expected, "{function}");
        }
        assert_eq!(result("int f(int *n, char c)").as_deref(), Some("int retval"));
        assert_eq!(result("struct pool *f(void)").as_deref(), Some("struct pool *retval"));
        assert_eq!(result("void f(int)"), None);
    }
}
