//! An attach point of functions, split into its parts.

use crate::resolve::cuda_libraries::library_by_symbol;
use crate::resolve::pattern::FunctionPattern;
use crate::resolve::provider::Provider;
use crate::resolve::spot::{Miss, wrong};
use crate::source::span::{Span, WithSpan};
use crate::syntax::ast::{ProbeSpec, text};

/// An attach point of functions.
pub(super) struct FunctionSpec<'s> {
    pub provider: &'s Provider,
    pub returns: bool,
    pub pattern: FunctionPattern,
    /// The function as written.
    pub written: &'s str,
    pub at: Span,
    /// The library by whose short name the target is written: `libcudart`.
    pub library: Option<cuda::Library>,
    /// The operation that the functions are a part of: `cuda:alloc`.
    pub operation: Option<&'s str>,
}

impl<'s> FunctionSpec<'s> {
    /// The functions of `uprobe:libcuda:cuInit`, and the target.
    pub(super) fn parse(
        spec: &'s ProbeSpec,
        provider: &'s Provider,
        returns: bool,
    ) -> Result<(FunctionSpec<'s>, WithSpan<&'s str>), Miss> {
        let (target, function, of_cpp) = match spec.parts.as_slice() {
            [target, function] => (target, function, false),
            [target, language, function] if text(&language.node) == "cpp" => (target, function, true),
            _ => return malformed(spec, provider),
        };
        let (file, written, at) = (text(&target.node), text(&function.node), function.span);
        let line = FunctionPattern::line(file, written).filter(|_| !of_cpp);
        let (file, pattern) = match line {
            Some((file, line)) => (file, Ok(line)),
            None if of_cpp => (file, Ok(FunctionPattern::cpp(written))),
            None => (file, FunctionPattern::parse(&function.node)),
        };
        refuse_foreign_target(file, target.span, provider)?;
        let pattern = match pattern {
            Ok(pattern) => pattern,
            Err(reason) => return wrong("E0107", at, reason, "", Vec::new()),
        };
        let library = cuda::Library::from_alias(file);
        let wanted = FunctionSpec { provider, returns, pattern, written, at, library, operation: None };
        if returns && !wanted.is_at_entry() {
            let message = "a return probe needs the name of a function, without offset".to_string();
            return wrong("E0103", at, message, "", Vec::new());
        }
        Ok((wanted, WithSpan { node: file, span: target.span }))
    }

    /// Whether it names functions one by one.
    pub(super) fn by_name(&self) -> bool {
        match &self.pattern {
            FunctionPattern::Named { name, .. } => name.single().is_some(),
            FunctionPattern::Address(_) | FunctionPattern::Line { .. } => true,
        }
    }

    /// Whether it is at the first instruction of functions.
    pub(super) fn is_at_entry(&self) -> bool {
        matches!(self.pattern, FunctionPattern::Named { offset: 0, .. })
    }
}

/// The parts of an attach point without a target or a function.
fn malformed<T>(spec: &ProbeSpec, provider: &Provider) -> Result<T, Miss> {
    let parts: Vec<&str> = spec.parts.iter().map(|part| text(&part.node)).collect();
    match parts.as_slice() {
        [one] => match library_by_symbol(one) {
            Some((library, _)) => {
                let help = vec![format!("write `{}:{}:{one}`", provider.names[0], library.alias())];
                wrong("E0103", spec.span, "the target is missing".into(), "only a function", help)
            }
            None => provider.malformed(spec.span, "expected a target and a function"),
        },
        [target, function, side @ ("entry" | "return" | "exit" | "ret")] => {
            let kind = if *side == "entry" { "uprobe" } else { "uretprobe" };
            let help = vec![format!("write `{kind}:{target}:{function}`")];
            wrong(
                "E0103",
                spec.span,
                format!("leave out `:{side}`: the kind of the probe selects it"),
                "",
                help,
            )
        }
        _ => provider.malformed(spec.span, "expected a target and a function"),
    }
}

/// Refuses targets that only other tracers have.
fn refuse_foreign_target(target: &str, span: Span, provider: &Provider) -> Result<(), Miss> {
    if target.contains(".apk!") || target.contains(".zip!") {
        let help = vec!["unpack the file, and name it".to_string()];
        return wrong("E0103", span, "files in archives cannot be probed".into(), "", help);
    }
    let Some((file, _)) = FunctionPattern::line(target, "1") else { return Ok(()) };
    let kind = provider.names[0];
    let form = format!("write `{kind}:{target}:LINE`, or `{kind}:{file}:FUNCTION`");
    wrong("E0103", span, "expected the number of a line after the source file".into(), "", vec![form])
}
