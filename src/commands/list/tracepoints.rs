//! `-l 'tracepoint:sched:*'`, `-l 'rawtracepoint:sched_*'`: tracepoints of the kernel; with `-v` the fields of their records.

use super::lister::{ListEntry, Lister, ProviderList, after_provider};
use super::structs;
use anyhow::{Result, bail};
use lang::catalog::{Catalog, Tracepoint};
use lang::syntax::glob::glob;
use runtime::kernel::tracefs;

pub const LIST: ProviderList = ProviderList {
    providers: &["tracepoint"],
    list: |lister, _, pattern| {
        let (category, event) =
            after_provider(pattern).split_once(':').unwrap_or((after_provider(pattern), "*"));
        list(lister, category, event)
    },
    all: |machine, _| {
        machine
            .tracepoints()
            .into_iter()
            .map(|(category, event)| format!("tracepoint:{category}:{event}"))
            .collect()
    },
};

pub const RAW_LIST: ProviderList = ProviderList {
    providers: &["rawtracepoint"],
    list: |lister, _, pattern| list_raw(lister, after_provider(pattern)),
    all: |machine, _| {
        machine.raw_tracepoints().iter().map(|event| format!("rawtracepoint:{event}")).collect()
    },
};

fn list(lister: &Lister, category: &str, event: &str) -> Result<Vec<ListEntry>> {
    let matches = |(c, e): &(String, String)| glob(category, c) && glob(event, e);
    let found: Vec<_> = lister.machine.tracepoints().into_iter().filter(matches).collect();
    if found.is_empty() {
        // Some tracepoint exists in each kernel: none is found if tracefs cannot be read.
        match lister.machine.tracepoints().is_empty() {
            true => bail!(
                "no tracepoint can be listed: `/sys/kernel/tracing` is not mounted, or only root may read it"
            ),
            false => {
                bail!("no tracepoint matches `{category}:{event}`; `cudatrace -l 'tracepoint:*'` lists all")
            }
        }
    }
    let entry = |(category, event): (String, String)| {
        lister.entry(format!("tracepoint:{category}:{event}"), || record(&category, &event))
    };
    Ok(found.into_iter().map(entry).collect())
}

fn list_raw(lister: &Lister, wanted: &str) -> Result<Vec<ListEntry>> {
    let found: Vec<String> =
        lister.machine.raw_tracepoints().into_iter().filter(|event| glob(wanted, event)).collect();
    if found.is_empty() {
        bail!("no raw tracepoint matches `{wanted}`; `rawtracepoint:*` lists all, from the kernel's BTF");
    }
    let entry = |event: String| {
        lister.entry(format!("rawtracepoint:{event}"), || fields(lister.machine.raw_tracepoint(&event)))
    };
    Ok(found.into_iter().map(entry).collect())
}

/// The fields of a tracepoint's record as C declarations, without the common header.
fn record(category: &str, event: &str) -> Vec<String> {
    let fields = tracefs::tracepoint_format(category, event).map(|format| format.fields).unwrap_or_default();
    let own = fields.iter().filter(|field| !field.name.starts_with("common_"));
    own.map(|field| structs::variable(&field.declared, &field.name)).collect()
}

/// The arguments of a raw tracepoint.
pub(super) fn fields(found: Result<Tracepoint, String>) -> Vec<String> {
    let fields = found.map(|found| found.fields).unwrap_or_default();
    fields.iter().map(|field| structs::variable(&field.kind.to_string(), &field.name)).collect()
}
