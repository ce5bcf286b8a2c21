//! Attaches the programs that run in the traced processes.

use super::own_programs::TimerProgram;
use super::{AttachResult, probe_error};
use crate::error::{AttachError, SiteError, SiteFailure};
use crate::handles::LoadedProgram;
use crate::in_process::{PatchSiteFinders, UserSpace};
use crate::options::AttachOptions;
use linux::timer::Timer;
use std::io;
use std::path::PathBuf;
use std::time::Duration;
use wire::Manifest;
use wire::manifest::{Attach, Program, Site};
use wire::trigger::Trigger;

/// Adds a program to the user space of a session.
pub(crate) fn attach(
    user: &mut UserSpace,
    manifest: &Manifest,
    program: &Program,
    options: &AttachOptions<'_>,
    timers: &mut Vec<TimerProgram>,
    loaded: &LoadedProgram,
) -> Result<AttachResult, AttachError> {
    let mut result = AttachResult::default();
    match &program.attach {
        Attach::Functions { side, sites, .. } => {
            let nowhere = |_: u32, _: u64| Err("no information about the function".to_owned());
            let patch =
                options.patch.unwrap_or(PatchSiteFinders { functions: &nowhere, unwinder: |_| vec![] });
            let refused = user.add_probe(program, *side, sites, options.files, patch);
            result.attached = sites.len() - refused.len();
            result.failures = refused
                .into_iter()
                .map(|(site, errno)| failure(manifest, site, errno, options.files))
                .collect();
        }
        Attach::ProcessEnd => {
            user.add_process_end(&loaded.handle);
            result.attached = 1;
        }
        Attach::Event(Trigger::Interval { period_ns }) => {
            let failed = |errno| probe_error(manifest, program, "the timer cannot be created", errno);
            let period = Duration::from_nanos(*period_ns);
            let timer = Timer::new(period, period);
            let made =
                timer.and_then(|timer| Ok(TimerProgram { timer, program: loaded.handle.try_clone()? }));
            timers.push(made.map_err(failed)?);
            result.attached = 1;
        }
        _ => result.attached = 1,
    }
    Ok(result)
}

/// The failure of a site, for messages.
fn failure(manifest: &Manifest, site: Site, errno: io::Error, path: &dyn Fn(u32) -> PathBuf) -> SiteFailure {
    let shown = manifest.files.iter().find(|file| file.id == site.file).map(|file| PathBuf::from(&file.path));
    let path = shown.unwrap_or_else(|| path(site.file));
    let probe = manifest.names.probes.get(site.probe as usize).cloned().unwrap_or_default();
    SiteFailure { probe, position: Some((path, site.offset)), error: SiteError::Errno(errno) }
}
