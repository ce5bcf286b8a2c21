//! The columns of a recording in Arrow's form, which its writer and its reader share.
//! docs/export.md has what each of them holds, in "The columns of a recording".
//!
//! A word is a text of a dictionary, which each batch has for itself. The schema's metadata has the description of the run under
//! [`RUN`], as the first of the JSON lines has it.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema};

use super::recent::LaunchIds;
use super::record::{CORR, Data, Record, Thread};
use super::run::Run;

/// Name of the last row of a part that a later part continues.
pub(crate) const GOES_ON: &str = "goes on";
/// Key of the description of the run in the schema's metadata.
pub(crate) const RUN: &str = "cudatrace.run";

/// Values of scripts that have columns of their own, as long as they are unsigned numbers.
pub(crate) const NUMBERS: [&str; 6] = ["bytes", CORR, "stream", "device", "ptr", "context"];

/// The value of scripts with a column of its own that is a text.
pub(crate) const KERNEL: &str = "kernel";

/// The value of scripts with a column of its own that is a stack, as JSON.
pub(crate) const STACK: &str = "stack";

/// The columns in their order.
pub(crate) fn schema(run: String) -> Schema {
    let word = || DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
    let number = |name: &str| Field::new(name, DataType::UInt64, true);
    let words = |names: &[&str]| names.iter().map(|name| Field::new(*name, word(), true)).collect::<Vec<_>>();
    let time = |name: &str| Field::new(name, DataType::Int64, true);
    let mut fields = vec![Field::new("type", word(), false), time("ts"), time("dur")];
    fields.extend(["pid", "tid"].map(|name| Field::new(name, DataType::UInt32, true)));
    fields.extend(words(&["comm", "program", "name", "func", "api", "probe"]));
    fields.extend(["id", "parent", "launch"].map(number));
    fields.push(time("parent_ts"));
    fields.extend(words(&["status", "result_type", "result"]));
    fields.push(Field::new("result_value", DataType::Int64, true));
    fields.extend(NUMBERS.map(number));
    fields.extend(words(&[KERNEL, STACK, "schema", "args"]));
    fields.push(number("count"));
    fields.extend(["text", "value"].map(|name| Field::new(name, DataType::Utf8, true)));
    Schema::new(fields).with_metadata(HashMap::from([(RUN.to_owned(), run)]))
}

/// The number of a value that has a column.
pub(crate) fn number(data: &Data) -> Option<u64> {
    match data {
        Data::Uint(value) | Data::Handle(value) => Some(*value),
        Data::Int(value) => u64::try_from(*value).ok(),
        _ => None,
    }
}

/// Ids of calls, which are functions of thread and start: most need not be stored.
pub(crate) struct CallIds {
    run: Arc<Run>,
    launches: LaunchIds,
}

impl CallIds {
    /// The ids of the calls of a run.
    pub(crate) fn new(run: Arc<Run>) -> CallIds {
        CallIds { run, launches: LaunchIds::default() }
    }

    /// The id of a call that a thread began then; 0 without a thread.
    pub(crate) fn of(&self, thread: Option<&Thread>, boot_ns: u64) -> u64 {
        let start = boot_ns.wrapping_sub(self.run.suspended_ns);
        thread.map_or(0, |thread| self.run.span_id(thread.pid, thread.tid, start))
    }

    /// The start of the call of a thread with this id, if it is the id of one.
    pub(crate) fn start(&self, thread: Option<&Thread>, id: u64) -> Option<u64> {
        let thread = thread?;
        let start = self.run.span_start(thread.pid, thread.tid, id).wrapping_add(self.run.suspended_ns);
        (self.of(Some(thread), start) == id).then_some(start)
    }

    /// The call that launched the work of a record, by the correlation ids that were noted.
    pub(crate) fn launch(&self, record: &Record) -> Option<u64> {
        self.launches.get(&key(record)?)
    }

    /// Notes a call that tells its correlation id.
    pub(crate) fn note(&mut self, record: &Record) {
        if let (None, Some(span), Some(key)) = (record.gpu_kind(), record.span(), key(record)) {
            self.launches.insert(key, span.span_id);
        }
    }
}

/// Process and correlation id of a record.
fn key(record: &Record) -> Option<(u32, u64)> {
    Some((record.thread.as_ref()?.pid, number(record.field(CORR)?)?))
}
