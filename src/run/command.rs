//! The command that a run traces: started, and held until the probes are there. The prompt starts its program in the same way.

use super::plan::{Plan, Target};
use super::unwinder::walks_stacks;
use crate::console::Messages;
use crate::symbolize::process_facts;
use crate::{Failure, gpu};
use host::Machine;
use runtime::started::{Child, Command, FileState, MappingScope, SpawnError};
use wire::Manifest;

/// Starts a command that is held until it is released. Files that are known already are not reported when it maps them.
pub fn start_held(machine: &Machine, command: Command, messages: &Messages) -> Result<Child, SpawnError> {
    let files = machine.files_taken();
    let known = files.iter().filter_map(|file| FileState::of(machine.open_path(file.id)).ok()).collect();
    let command = Command { watch_mappings: true, known, ..command };
    let child = Child::spawn(&command)?;
    process_facts::expect(child.pid(), &command.argv);
    if let Some(error) = &child.unwatched {
        messages.warning(&format!(
            "libraries that the program maps later cannot be attached before their first call: {error}"
        ));
    }
    Ok(child)
}

/// Starts the command of a run.
pub fn start(plan: &Plan) -> Result<Option<Child>, Failure> {
    let Target { argv, .. } = &plan.target;
    let Some(argv) = argv.clone().filter(|_| !plan.cli.dry_run) else { return Ok(None) };
    warn_of_behaviour(plan);
    let manifest = plan.manifest();
    let reported = match walks_stacks(manifest) {
        _ if plan.in_process => MappingScope::All,
        true => MappingScope::Fixed,
        false => MappingScope::New,
    };
    let for_agent = plan
        .records
        .map_or_else(Vec::new, |wanted| gpu::Agents::environment(wanted.file, wanted.kinds, plan.messages));
    let command = Command {
        argv,
        environment: [plan.cli.environment.clone(), for_agent].concat(),
        user: plan.cli.user.clone(),
        watch_ends: prints_symbols(manifest),
        reported,
        captured: false,
        ..Command::default()
    };
    start_held(plan.machine, command, plan.messages).map(Some).map_err(Failure::wrong)
}

/// Warns of an unexpected behaviour of the command.
fn warn_of_behaviour(plan: &Plan) {
    if let Some(name) = plan.cli.sudoer.as_ref().filter(|_| plan.cli.user == plan.cli.sudoer) {
        plan.messages
            .note(&format!("the command runs as {name}, who has called sudo; `--user root` runs it as root"));
    }
}

/// Whether a script may print user-space addresses.
fn prints_symbols(manifest: &Manifest) -> bool {
    fn has_usym(ty: &wire::Type) -> bool {
        match ty {
            wire::Type::Usym => true,
            wire::Type::Tuple(parts) | wire::Type::Record(_, parts) | wire::Type::Either(parts) => {
                parts.iter().any(has_usym)
            }
            _ => false,
        }
    }
    let in_keys = manifest.maps.iter().flat_map(|map| &map.key).any(has_usym);
    let in_values =
        manifest.maps.iter().any(|map| matches!(&map.value, wire::map::MapValue::Plain(ty) if has_usym(ty)));
    in_keys || in_values || manifest.stacks.iter().any(|stack| stack.user)
}

#[cfg(test)]
mod tests {
    use super::super::plan::tests::plan;
    use super::prints_symbols;

    #[test]
    fn addresses_in_keys_and_values_need_names() {
        let prints = |text, expected| {
            plan(text, |plan| assert_eq!(prints_symbols(plan.manifest()), expected, "{text}"))
        };
        prints("BEGIN { @ = 1; @text[str(0)] = count() }", false);
        prints("BEGIN { @ = usym(1) }", true);
        prints("BEGIN { @[1, usym(1)] = count() }", true);
    }
}
