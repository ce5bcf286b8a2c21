//! Events to records: resolves ids to text, on the thread that reads events, where symbolization is possible.

use std::hash::Hash;
use std::rc::Rc;
use std::sync::Arc;

use foldhash::{HashMap, HashMapExt, HashSet, HashSetExt};
use wire::decode::Header;
use wire::manifest::{Export, HiddenValue};
use wire::map::{Agg, MapValue};
use wire::{Manifest, NameKind, Value};

use super::Run;
use super::recent::LaunchIds;
use super::record::{
    CORR, Data, Enumerator, FieldNames, Fields, GpuStream, Kind, Record, Row, Site, Span, Status, Table,
    Text, Thread, WAITED, status_of,
};
use crate::losses::findings;
use crate::map_order::{shown, wide};
use crate::printed::{ExportValues, RecordOutput};
use crate::printf::printf;
use crate::value::{Context, key_parts};
use crate::{Cell, Frame, Output, Snapshot, hist};

/// Largest size of a table of shared objects; if it is full, it is cleared.
const SHARED: usize = 8192;
/// Number of streams of GPUs that are told apart.
const STREAMS: usize = 4096;
/// Placeholder for the id of a name that a record lacks.
const NO_NAME: u32 = u32::MAX;

/// Converts output to records; see the module documentation. Values that many records share are cached: the reader
/// thread converts up to half a million records a second.
pub struct Recorder {
    run: Arc<Run>,
    texts: HashMap<Vec<u8>, Arc<str>>,
    /// Attach points by the ids of function, API and probe.
    sites: HashMap<[u32; 3], Arc<Site>>,
    threads: HashMap<ThreadKey, Arc<Thread>>,
    /// Enum values by enum and value.
    enumerators: HashMap<(u32, i64), Arc<Enumerator>>,
    /// Statements by event.
    statements: HashMap<u32, Rc<Statement>>,
    launches: LaunchIds,
    /// Streams of GPUs, by process and number.
    streams: HashSet<(u32, u32)>,
    none: Arc<str>,
    last_ns: u64,
}

/// A thread in the table of threads.
#[derive(PartialEq, Eq, Hash)]
struct ThreadKey {
    pid: u32,
    tid: u32,
    /// The record has no name of the thread.
    unnamed: bool,
}

/// Adds an object to a table of shared objects.
fn keep<K: Eq + Hash, T: Clone>(table: &mut HashMap<K, T>, key: K, made: T) -> T {
    if table.len() >= SHARED {
        table.clear();
    }
    table.insert(key, made.clone());
    made
}

impl Recorder {
    /// Creates the state for a run.
    pub fn new(run: Arc<Run>) -> Recorder {
        Recorder {
            run,
            texts: HashMap::new(),
            sites: HashMap::new(),
            threads: HashMap::new(),
            enumerators: HashMap::new(),
            statements: HashMap::new(),
            launches: LaunchIds::default(),
            streams: HashSet::new(),
            none: "".into(),
            last_ns: 0,
        }
    }

    /// Converts an output to records; most outputs make one. `context` is that of the session.
    pub fn records(&mut self, context: Context, output: &Output, each: &mut dyn FnMut(Record)) {
        let mut each = |record: Record| each(record.within_limits());
        match output {
            Output::Attached { .. } | Output::Script(_) | Output::Tests(_) | Output::End => {}
            Output::Event { header, values, cell } => {
                self.last_ns = header.time_ns;
                if let Some(record) = self.event(context, header, values, cell.as_ref()) {
                    each(record);
                }
            }
            Output::Fetched { text, .. } => {
                let (kind, text) = match text {
                    Ok(text) => (Text::Output, String::from_utf8_lossy(text).into_owned()),
                    Err(reason) => (Text::Warning, reason.clone()),
                };
                each(self.text(kind, text, self.last_ns, None));
            }
            Output::Table(header, table) => {
                for line in table.draw(context).lines() {
                    each(self.printed(context, header, Text::Output, line.to_owned()));
                }
            }
            Output::Map(snapshot) => each(self.table(context, snapshot, self.last_ns)),
            Output::Losses(losses) => {
                for found in findings(context.manifest, losses) {
                    each(self.text(Text::Loss(found.count), found.message, self.last_ns, None));
                }
            }
        }
    }

    /// Converts a map to a record, for callers that read maps themselves.
    pub fn table(&mut self, context: Context, snapshot: &Snapshot, time_ns: u64) -> Record {
        let map = context.manifest.maps.get(snapshot.map as usize);
        let name = map.map_or(String::from("@"), |map| format!("@{}", map.name));
        let agg = map.and_then(|map| match &map.value {
            MapValue::Agg(agg) => Some(agg.clone()),
            MapValue::Plain(_) => None,
        });
        let div = snapshot.div.max(1);
        let row = |(key, cell): &(Vec<Value>, Cell), recorder: &mut Recorder| Row {
            key: key_parts(key).iter().map(|part| recorder.data(context, part)).collect(),
            value: recorder.cell(context, agg.as_ref(), cell, div),
        };
        let rows = shown(context, snapshot).into_iter().map(|entry| row(entry, self)).collect();
        let name = self.shared(name.as_bytes());
        self.bare(Kind::Table(Table { agg, rows }), time_ns, None, name)
    }

    fn bare(&mut self, kind: Kind, time_ns: u64, thread: Option<Arc<Thread>>, name: Arc<str>) -> Record {
        let site = self.sites.entry([NO_NAME; 3]).or_default().clone();
        Record { kind, time_ns, thread, site, name, fields: Fields::default() }
    }

    fn text(&mut self, kind: Text, text: String, time_ns: u64, thread: Option<Arc<Thread>>) -> Record {
        self.bare(Kind::Text(kind, text), time_ns, thread, self.none.clone())
    }

    fn event(
        &mut self,
        context: Context,
        header: &Header,
        values: &[Value],
        cell: Option<&Cell>,
    ) -> Option<Record> {
        let lossy = |text: &[u8]| String::from_utf8_lossy(text).into_owned();
        let (kind, text) = match RecordOutput::of(context, header, values, cell)? {
            RecordOutput::ExportValues(exported) => return Some(self.exported(context, header, &exported)),
            RecordOutput::Formatted(format, values) => {
                (Text::Output, lossy(&printf(format, values, context)))
            }
            RecordOutput::Heading(text) | RecordOutput::Joined(text) => (Text::Output, lossy(&text)),
            RecordOutput::Error(error) => (Text::Error, lossy(&error.text)),
            RecordOutput::Warning(warning) => (Text::Warning, lossy(&warning.text)),
            RecordOutput::Values(values) => {
                let texts: Vec<String> = values.iter().map(|value| context.text(value)).collect();
                (Text::Output, texts.join(" "))
            }
            RecordOutput::Time(text) => (Text::Output, text),
            RecordOutput::Entry(map, key, cell) => {
                let entry = (key.to_vec(), cell?.clone());
                let snapshot = Snapshot { map, entries: vec![entry], top: 0, div: 0 };
                return Some(self.table(context, &snapshot, header.time_ns));
            }
            RecordOutput::NoRows(text, _) => (Text::Output, lossy(text)),
            // The number of further rows matters only if rows are truncated.
            RecordOutput::MoreRows(_) => return None,
        };
        Some(self.printed(context, header, kind, text))
    }

    /// A record for the text that a statement of the script prints.
    fn printed(&mut self, context: Context, header: &Header, kind: Text, text: String) -> Record {
        let thread = self.thread(context, header, b"");
        let event = context.manifest.events.get(header.event as usize);
        let script = event.map_or("", |event| context.manifest.script_of(event.place));
        let script = self.shared(script.as_bytes());
        Record { name: script, ..self.text(kind, text, header.time_ns, Some(thread)) }
    }

    /// Constant text shared by all records of an event.
    fn statement(&mut self, event: u32, exported: &ExportValues) -> Rc<Statement> {
        if let Some(known) = self.statements.get(&event) {
            return known.clone();
        }
        let statement = Statement {
            name: exported.name.map(|name| self.shared(name.as_bytes())),
            keys: exported.keys.iter().map(|key| self.shared(key.as_bytes())).collect(),
            corr: exported.keys.iter().position(|key| *key == CORR),
        };
        keep(&mut self.statements, event, Rc::new(statement))
    }

    /// `span(...)`, `event(...)`, `counter(...)`
    fn exported(&mut self, context: Context, header: &Header, exported: &ExportValues) -> Record {
        let statement = self.statement(header.event, exported);
        let site = self.site(context, exported);
        let thread = match exported.hidden(HiddenValue::Comm) {
            Some(Value::Str(comm, _)) => self.thread(context, header, comm),
            _ => self.thread(context, header, b""),
        };
        let name = self.name(context, exported, &statement, &site);
        let values: Vec<Data> = exported.own().iter().map(|value| self.data(context, value)).collect();
        let corr = statement.corr.and_then(|at| values.get(at)?.number()).unwrap_or(0) as u64;
        let fields = Fields::new(&statement.keys, values);
        let (kind, time_ns) = match exported.what {
            Export::Instant => {
                let parent_id = self.call_id(header, exported.parent_start());
                (Kind::Instant { parent_id }, header.time_ns)
            }
            Export::Counter => {
                let value = exported.hidden(HiddenValue::Number).map(|value| self.data(context, value));
                (Kind::Counter { value: value.unwrap_or(Data::None) }, header.time_ns)
            }
            Export::Span => self.span(context, header, exported, &site),
        };
        let mut record = Record { kind, time_ns, thread: Some(thread), site, name, fields };
        match record.gpu_kind() {
            Some(_) => self.join(&mut record, corr),
            None => {
                leave_wait_out(context, header.tid, &mut record);
                self.keep_launch(&record, corr);
            }
        }
        record
    }

    /// Keeps which call has a correlation id.
    fn keep_launch(&mut self, record: &Record, corr: u64) {
        let (Kind::Span(span), Some(thread), 1..) = (&record.kind, &record.thread, corr) else { return };
        self.launches.insert((thread.pid, corr), span.span_id);
    }

    /// Moves work of a GPU to its stream, and names the call that launched it.
    fn join(&mut self, record: &mut Record, corr: u64) {
        let number = |name: &str| Some(record.field(name)?.number()? as u32);
        let (device, stream, thread) = (number("device"), number("stream"), record.thread.clone());
        let idle = device.filter(|_| record.is_idle()).map(GpuStream::idle);
        let (Some(thread), Kind::Span(span)) = (thread, &mut record.kind) else { return };
        span.launch_id = self.launches.get(&(thread.pid, corr)).unwrap_or(0);
        if let Some(stream) = idle.or_else(|| Some(GpuStream { device: device?, stream: stream? })) {
            let stream = self.known_stream(thread.pid, stream);
            span.span_id = self.run.span_id(thread.pid, stream.tid(), record.time_ns);
            record.thread = Some(self.stream(&thread, stream));
        }
    }

    /// The stream, or the one for all others: a process can write any number of streams and devices.
    fn known_stream(&mut self, pid: u32, stream: GpuStream) -> GpuStream {
        let key = (pid, stream.tid());
        let is_new = !self.streams.contains(&key);
        if !stream.is_known() || is_new && self.streams.len() >= STREAMS {
            return GpuStream::other();
        }
        self.streams.insert(key);
        stream
    }

    /// The thread that stands for a stream.
    fn stream(&mut self, of: &Thread, stream: GpuStream) -> Arc<Thread> {
        let (pid, tid) = (of.pid, stream.tid());
        let key = ThreadKey { pid, tid, unnamed: false };
        if let Some(known) = self.threads.get(&key)
            && known.program == of.program
        {
            return known.clone();
        }
        let comm = self.shared(stream.to_string().as_bytes());
        keep(&mut self.threads, key, Arc::new(Thread { pid, tid, comm, program: of.program.clone() }))
    }

    /// A call, and its start time.
    fn span(
        &mut self,
        context: Context,
        header: &Header,
        exported: &ExportValues,
        site: &Site,
    ) -> (Kind, u64) {
        let suspended = self.run.suspended_ns;
        let start = match exported.number(HiddenValue::BootStart) {
            Some(boot) => boot.saturating_sub(suspended),
            None => [HiddenValue::Start, HiddenValue::EventStart]
                .into_iter()
                .find_map(|kind| exported.number(kind))
                .unwrap_or(0),
        };
        let result = exported.hidden(HiddenValue::Result).map(|value| self.data(context, value));
        let status = match &result {
            Some(Data::Enum(result)) => status_of(&site.func, result.name.as_deref(), result.value),
            _ => Status::Unset,
        };
        let span_id = self.run.span_id(header.tgid, header.tid, start);
        // A parent cannot begin after the call.
        let parent_id = self.call_id(header, exported.parent_start().filter(|parent| *parent < start));
        let duration_ns = exported.number(HiddenValue::Duration).unwrap_or(0);
        (
            Kind::Span(Span { duration_ns, span_id, parent_id, status, result, launch_id: 0 }),
            start.saturating_add(suspended),
        )
    }

    /// The name from the script, otherwise that of the function.
    fn name(
        &mut self,
        context: Context,
        exported: &ExportValues,
        statement: &Statement,
        site: &Site,
    ) -> Arc<str> {
        match (&statement.name, exported.hidden(HiddenValue::Name)) {
            (Some(name), _) => name.clone(),
            (None, Some(value)) => match self.data(context, value) {
                Data::Text(text) => text,
                _ => self.shared(context.text(value).as_bytes()),
            },
            (None, None) => site.func.clone(),
        }
    }

    /// The id of the call that this thread began at `start`; 0 without a start.
    fn call_id(&self, header: &Header, start: Option<u64>) -> u64 {
        start.map_or(0, |start| self.run.span_id(header.tgid, header.tid, start))
    }

    fn site(&mut self, context: Context, exported: &ExportValues) -> Arc<Site> {
        let id = |which: HiddenValue| match exported.hidden(which) {
            Some(Value::Name(_, id)) => *id,
            _ => NO_NAME,
        };
        let ids = [id(HiddenValue::Func), id(HiddenValue::Api), id(HiddenValue::Probe)];
        if let Some(known) = self.sites.get(&ids) {
            return known.clone();
        }
        let names = &context.manifest.names;
        let mut named =
            |kind: NameKind, id: u32| self.shared(names.get(kind, id).unwrap_or_default().as_bytes());
        let site = Site {
            func: named(NameKind::Func, ids[0]),
            api: named(NameKind::Api, ids[1]),
            probe: named(NameKind::Probe, ids[2]),
        };
        keep(&mut self.sites, ids, Arc::new(site))
    }

    /// Returns the thread that wrote a record. An empty `comm` means that the record has no name.
    fn thread(&mut self, context: Context, header: &Header, comm: &[u8]) -> Arc<Thread> {
        let (pid, tid) = (header.tgid, header.tid);
        let program = context.names.program(pid);
        let key = ThreadKey { pid, tid, unnamed: comm.is_empty() };
        if let Some(known) = self.threads.get(&key)
            && known.comm.as_bytes() == comm
            && program.as_ref().is_none_or(|program| *program == known.program)
        {
            return known.clone();
        }
        let comm = self.shared(comm);
        // If the program is unknown, the name of the thread is the best substitute.
        let program = program.unwrap_or_else(|| comm.clone());
        keep(&mut self.threads, key, Arc::new(Thread { pid, tid, comm, program }))
    }

    fn enumerator(&mut self, manifest: &Manifest, id: u32, value: i64) -> Arc<Enumerator> {
        if let Some(known) = self.enumerators.get(&(id, value)) {
            return known.clone();
        }
        let declared = manifest.enums.get(id as usize);
        let ty = self.shared(declared.map_or(&[], |declared| declared.name.as_bytes()));
        let name = declared.and_then(|declared| declared.name_of(value));
        let name = name.map(|name| self.shared(name.as_bytes()));
        keep(&mut self.enumerators, (id, value), Arc::new(Enumerator { ty, name, value }))
    }

    /// The shared text for these bytes.
    fn shared(&mut self, bytes: &[u8]) -> Arc<str> {
        if let Some(known) = self.texts.get(bytes) {
            return known.clone();
        }
        keep(&mut self.texts, bytes.to_vec(), String::from_utf8_lossy(bytes).into())
    }

    /// The value with ids resolved to names.
    pub fn data(&mut self, context: Context, value: &Value) -> Data {
        match value {
            Value::Bool(value) => Data::Bool(*value),
            Value::Int(value, _) => Data::Int(*value),
            Value::Uint(value, _) => Data::Uint(*value),
            Value::Pointer(value) => Data::Handle(*value),
            Value::Enum(id, value) => Data::Enum(self.enumerator(context.manifest, *id, *value)),
            Value::Str(bytes, cut) => Data::Text(self.string(context.manifest, bytes, *cut)),
            Value::Tuple(parts) | Value::Array(parts) => {
                Data::List(parts.iter().map(|part| self.data(context, part)).collect())
            }
            Value::Record(members) => {
                let member = |(name, value): &(String, Value), recorder: &mut Recorder| {
                    (recorder.shared(name.as_bytes()), recorder.data(context, value))
                };
                Data::Map(members.iter().map(|one| member(one, self)).collect())
            }
            Value::Name(kind, id) => match context.manifest.names.get(*kind, *id) {
                Some(name) => Data::Text(self.shared(name.as_bytes())),
                None => Data::Uint(u64::from(*id)),
            },
            Value::Stack { mode, .. } if mode.is_one_frame() => {
                Data::Text(self.shared(context.text(value).as_bytes()))
            }
            Value::Stack { map, id, tgid, .. } => Data::Stack(stack(context, *map, *id, *tgid)),
            Value::Either(_, value, _) => self.data(context, value),
            Value::Usym { .. }
            | Value::Timestamp(..)
            | Value::Lookup(..)
            | Value::Buf(_)
            | Value::Inet(..) => Data::Text(self.shared(context.text(value).as_bytes())),
        }
    }

    fn string(&mut self, manifest: &Manifest, bytes: &[u8], cut: bool) -> Arc<str> {
        if !cut {
            return self.shared(bytes);
        }
        self.shared(&[bytes, manifest.truncation_trailer.as_bytes()].concat())
    }

    fn cell(&mut self, context: Context, agg: Option<&Agg>, cell: &Cell, div: u32) -> Data {
        let number = |bits: i64, signed: bool| {
            let value = wide(bits, signed) / i128::from(div);
            if signed { Data::Int(value as i64) } else { Data::Uint(value as u64) }
        };
        match cell {
            Cell::Plain(Value::Int(value, _)) => number(*value, true),
            Cell::Plain(Value::Uint(value, _)) => number(*value as i64, false),
            Cell::Plain(value) => self.data(context, value),
            Cell::Number { bits, signed } => number(*bits, *signed),
            Cell::Stats { count, total, signed } => {
                let average = wide(*total, *signed) / i128::from(div) / i128::from((*count).max(1));
                let average = if *signed { Data::Int(average as i64) } else { Data::Uint(average as u64) };
                let members =
                    [("count", Data::Uint(*count)), ("average", average), ("total", number(*total, *signed))];
                Data::Map(members.map(|(name, value)| (self.shared(name.as_bytes()), value)).to_vec())
            }
            Cell::Series(points) => {
                let point = |point: &crate::Point| {
                    Data::List(vec![Data::Uint(point.start_ns), number(point.bits, point.signed)])
                };
                Data::List(points.iter().map(point).collect())
            }
            Cell::Buckets { counts, .. } => {
                let rows = agg.map_or(Vec::new(), |agg| hist::rows(agg, counts));
                let scale = if matches!(agg, Some(Agg::Hist { .. })) { u64::from(div) } else { 1 };
                Data::List(rows.iter().map(|row| bucket(row, scale)).collect())
            }
        }
    }
}

/// `[low, high, count]`, both bounds inclusive.
fn bucket(row: &hist::Row, scale: u64) -> Data {
    let bound = |bound: Option<i64>| bound.map_or(Data::None, Data::Int);
    let high = row.high.map(|high| high - 1);
    Data::List(vec![bound(row.low), bound(high), Data::Uint(row.count / scale)])
}

fn stack(context: Context, map: u32, id: u32, tgid: u32) -> Arc<[Frame]> {
    if id == u32::MAX {
        return [].into();
    }
    let addresses = context.names.stack_addresses(map, id);
    let user = context.manifest.stacks.get(map as usize).is_none_or(|stack| stack.user);
    context.names.stack(user, tgid, &addresses).into()
}

/// Excludes the delay by the tracer from a call. The call then begins after the delay: libraries are loaded before
/// their functions are called, so nested calls come later. The call keeps the id of its original start, which
/// nested calls refer to.
fn leave_wait_out(context: Context, tid: u32, record: &mut Record) {
    let Kind::Span(span) = &mut record.kind else { return };
    let end = record.time_ns.saturating_add(span.duration_ns);
    let waited = context.names.waited_ns(tid, record.time_ns, end);
    if waited == 0 {
        return;
    }
    record.time_ns = record.time_ns.saturating_add(waited);
    span.duration_ns -= waited.min(span.duration_ns);
    let own = record.fields.iter().map(|(name, value)| (name.clone(), value.clone()));
    record.fields = own.chain([(WAITED.into(), Data::Uint(waited))]).collect();
}

/// Constant text of a `span`, an `event` or a `counter`.
struct Statement {
    /// The name, if it is constant.
    name: Option<Arc<str>>,
    /// Names of the values from the script.
    keys: FieldNames,
    /// The value that is a correlation id of CUPTI.
    corr: Option<usize>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Fake;

    /// A machine on which thread 7 was delayed from 100 to 190.
    struct DelayedThread;

    impl crate::Names for DelayedThread {
        fn user_symbol(&self, tgid: u32, address: u64) -> String {
            Fake.user_symbol(tgid, address)
        }

        fn stack(&self, user: bool, tgid: u32, addresses: &[u64]) -> Vec<Frame> {
            Fake.stack(user, tgid, addresses)
        }

        fn file_place(&self, tgid: u32, address: u64) -> Option<(String, u64)> {
            Fake.file_place(tgid, address)
        }

        fn stack_addresses(&self, map: u32, id: u32) -> Vec<u64> {
            Fake.stack_addresses(map, id)
        }

        fn wall_clock_ns(&self, boot_ns: u64) -> i128 {
            Fake.wall_clock_ns(boot_ns)
        }

        fn strftime(&self, format: &str, wall_ns: i128) -> String {
            Fake.strftime(format, wall_ns)
        }

        fn lookup(&self, what: wire::types::Lookup, number: i64) -> String {
            Fake.lookup(what, number)
        }

        fn waited_ns(&self, tid: u32, from_ns: u64, to_ns: u64) -> u64 {
            if tid == 7 { 190u64.min(to_ns).saturating_sub(from_ns.max(100)) } else { 0 }
        }
    }

    #[test]
    fn waits_for_the_tracer_precede_the_call() {
        let manifest = Manifest::default();
        let context = Context { manifest: &manifest, names: &DelayedThread, verbatim: false };
        let call = |tid: u32, time_ns: u64, duration_ns: u64| {
            let span = Span {
                duration_ns,
                span_id: 1,
                parent_id: 0,
                status: Status::Ok,
                result: None,
                launch_id: 0,
            };
            let mut record = Record {
                kind: Kind::Span(span),
                time_ns,
                thread: None,
                site: Arc::default(),
                name: "cudaMalloc".into(),
                fields: Fields::default(),
            };
            leave_wait_out(context, tid, &mut record);
            (record.time_ns, record.duration_ns(), record.waited_ns())
        };
        // The outer call, and the call in it that loads the library, are still nested.
        assert_eq!(call(7, 90, 120), (180, 30, Some(90)));
        assert_eq!(call(7, 95, 100), (185, 10, Some(90)));
        assert_eq!(call(7, 191, 5), (191, 5, None));
        assert_eq!(call(8, 90, 120), (90, 120, None));
    }
}
