//! `:help` and `help NAME`, from the tables of the language, of CUDA and of the commands.

use super::commands::{self, COMMANDS};
use super::did_you_mean;
use crate::commands::list;
use anyhow::{Result, bail};
use cuda::operations::{APIS, Api};
use cuda::{Library, Signature};
use lang::builtin::{self, BUILTINS};
use lang::resolve::providers::{self, Found, PROVIDERS, Provider};
use std::fmt::Write;

/// What there is to say on a topic; on none: the commands.
///
/// # Errors
/// Nobody knows the topic.
pub fn on(topic: &str) -> Result<String> {
    if topic.is_empty() {
        return Ok(overview());
    }
    let Some(text) = command(topic)
        .or_else(|| word(topic))
        .or_else(|| operation(topic))
        .or_else(|| call(topic))
        .or_else(|| constant(topic))
    else {
        let calls = Library::all().flat_map(|library| cuda::signatures(library, 0)).map(|call| call.name);
        let named = |api: &'static Api| api.operations.iter().map(|o| format!("{}:{}", api.provider, o.name));
        let operations: Vec<String> = APIS.iter().flat_map(named).collect();
        let names = COMMANDS.iter().map(|c| c.name).chain(BUILTINS.iter().map(|b| b.name)).chain(calls);
        let names = names.chain(operations.iter().map(String::as_str));
        bail!("no help on `{topic}`{}", did_you_mean(topic, names, ""));
    };
    Ok(text)
}

fn overview() -> String {
    let mut text = String::from(
        "A clause is attached as it is typed: uprobe:libcuda:cuMemAlloc { @[comm] = count() }\n\n",
    );
    for command in COMMANDS {
        let usage = format!(":{} {}", command.name, command.args);
        let _ = writeln!(text, "  {usage:<28}  {}", command.doc);
    }
    let probes: Vec<&str> = PROVIDERS.iter().map(|provider| provider.names[0]).collect();
    let _ = writeln!(text, "\nprobes: {}", probes.join(" "));
    let _ = writeln!(text, "Tab completes; Ctrl-C stops what prints; Ctrl-D ends.");
    text
}

fn command(topic: &str) -> Option<String> {
    let colon = topic.starts_with(':');
    let name = topic.trim_start_matches(':');
    // `print` and `clear` are words of the language first; `:clear` is the command.
    let command = commands::find(name).filter(|_| colon || builtin::find(name).is_none())?;
    Some(format!(":{} {}\n    {}\n", command.name, command.args, command.doc))
}

fn word(topic: &str) -> Option<String> {
    if let Some(row) = builtin::find(topic) {
        return Some(format!("{}\n    {}\n    {}\n", row.signature, row.doc, row.example));
    }
    match providers::find(topic) {
        Found::Known(Provider { form, doc, .. }) => Some(format!("{form}\n    {doc}\n")),
        _ => None,
    }
}

/// `cuda:alloc`
fn operation(topic: &str) -> Option<String> {
    let (provider, name) = topic.split_once(':')?;
    let operation = Api::of(provider)?.operation(name)?;
    Some(format!("{topic}\n{}", list::description(operation)))
}

/// `cuMemAlloc` is every form of it.
fn call(topic: &str) -> Option<String> {
    let all = || Library::all().flat_map(|library| cuda::signatures(library, 0));
    let mut text = String::new();
    for signature in all().filter(|signature| signature.name == topic || is_member(signature, topic)) {
        let _ = writeln!(text, "{}:{signature}", signature.library.alias());
        for param in signature.params {
            let _ = writeln!(text, "    args.{:<20} {}", param.name, cuda::ty(param.ty).c_name);
        }
        let _ = writeln!(text, "    {:<25} {}", "retval", cuda::ty(signature.ret).c_name);
    }
    (!text.is_empty()).then_some(text)
}

fn is_member(signature: &Signature, topic: &str) -> bool {
    cuda::base_name(signature.library, signature.name) == topic
}

fn constant(topic: &str) -> Option<String> {
    if let Some((id, value)) = cuda::constant(topic) {
        return Some(format!("{topic} = {value}\n    of enum {}\n", cuda::enum_def(id).name));
    }
    let id = cuda::find_enum(topic);
    let variants = id
        .map(|id| cuda::enum_def(id).variants.iter().map(|(name, value)| format!("    {name} = {value}\n")));
    let listed = variants.map(|lines| format!("enum {topic}\n{}", lines.collect::<String>()));
    listed.or_else(|| cuda::macro_constant(topic).map(|value| format!("{topic} = {value}\n")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_answers() {
        for (topic, part) in [
            ("", ":watch @MAP [SECONDS]"),
            (":clear", "remove a map's keys"),
            ("clear", "clear(@map)"),
            ("list", ":list"),
            ("uretprobe", "when a function returns"),
            ("cuMemAlloc", "args.bytesize"),
            ("cuLaunchKernel", "gridDimX"),
            ("CUDA_ERROR_OUT_OF_MEMORY", "CUDA_ERROR_OUT_OF_MEMORY = 2"),
            ("cudaMemcpyKind", "cudaMemcpyHostToDevice = 1"),
            ("cuda:alloc", "    uint64 bytes: asked for"),
            ("cudart:alloc", "    by cudaMalloc, "),
        ] {
            let text = on(topic).unwrap();
            assert!(text.contains(part), "{topic}: {text}");
        }
    }

    #[test]
    fn slips_get_a_suggestion() {
        assert_eq!(
            on("cuMemAlocc").unwrap_err().to_string(),
            "no help on `cuMemAlocc`: did you mean `cuMemAlloc`?"
        );
    }
}
