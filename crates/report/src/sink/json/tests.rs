//! Output of the JSON sink: the exact line, and that it is valid JSON.

use super::*;
use crate::testing::{Fake, manifest, map};
use wire::CounterKind;
use wire::manifest::{Event, EventKind, Piece};
use wire::map::hist_buckets;

fn written(manifest: &Manifest, output: Output) -> String {
    let mut out = Vec::new();
    JsonSink::new(&mut out, false).output(manifest, &Fake, &output).unwrap();
    let text = String::from_utf8(out).unwrap();
    for line in text.lines() {
        serde_json::from_str::<serde_json::Value>(line).unwrap_or_else(|error| panic!("{line}: {error}"));
    }
    text.trim_end().to_owned()
}

fn one_map(value: MapValue, entries: Vec<(Vec<Value>, Cell)>) -> String {
    let manifest = Manifest { maps: vec![map("x", value)], ..manifest() };
    written(&manifest, Output::Map(Snapshot { map: 0, entries, top: 0, div: 0 }))
}

fn print(value: Value) -> String {
    let event = Event {
        kind: EventKind::Print,
        record: Default::default(),
        place: Place { source: 0, line: 1, column: 1 },
    };
    let manifest = Manifest { events: vec![event], ..manifest() };
    let header = Header { event: 0, cpu: 0, time_ns: 7, tgid: 1, tid: 1 };
    written(&manifest, Output::Event { header, values: vec![value], cell: None })
}

fn int(value: i64) -> Value {
    Value::Int(value, 8)
}

fn text(text: &str) -> Value {
    Value::Str(text.into(), false)
}

#[test]
fn maps() {
    let plain = || MapValue::Plain(wire::Type::Int { bytes: 8, signed: true });
    assert_eq!(
        one_map(plain(), vec![(vec![], Cell::Plain(int(5)))]),
        r#"{"type": "map", "data": {"@x": 5}}"#
    );
    let keyed = vec![(vec![text("a longer k"), int(2)], Cell::Plain(int(3)))];
    assert_eq!(one_map(plain(), keyed), r#"{"type": "map", "data": {"@x": {"a longer k,2": 3}}}"#);
    let nested = vec![(vec![int(1), Value::Tuple(vec![int(2), int(3)])], Cell::Plain(int(4)))];
    assert_eq!(one_map(plain(), nested), r#"{"type": "map", "data": {"@x": {"1,(2,3)": 4}}}"#);
    assert_eq!(one_map(plain(), vec![]), "");
}

#[test]
fn aggregations() {
    let stats = vec![(vec![], Cell::Stats { count: 1, total: 4, signed: false })];
    assert_eq!(
        one_map(MapValue::Agg(Agg::Stats { signed: false }), stats),
        r#"{"type": "stats", "data": {"@x": {"count": 1, "average": 4, "total": 4}}}"#
    );
    let avg = vec![(vec![int(1)], Cell::Number { bits: 7, signed: true })];
    assert_eq!(
        one_map(MapValue::Agg(Agg::Avg { signed: true }), avg),
        r#"{"type": "stats", "data": {"@x": {"1": 7}}}"#
    );
}

#[test]
fn histograms() {
    let mut buckets = vec![0; hist_buckets(0) as usize];
    (buckets[0], buckets[2]) = (1, 2);
    assert_eq!(
        one_map(
            MapValue::Agg(Agg::Hist { bits: 0, summed: false }),
            vec![(vec![], Cell::Buckets { counts: buckets, sum: None })]
        ),
        r#"{"type": "hist", "data": {"@x": [{"max": -1, "count": 1},{"min": 0, "max": 0, "count": 0},{"min": 1, "max": 1, "count": 2}]}}"#
    );
    let hist = MapValue::Agg(Agg::Hist { bits: 0, summed: false });
    assert_eq!(one_map(hist, vec![]), r#"{"type": "hist", "data": {"@x": []}}"#);
    let lhist = MapValue::Agg(Agg::LHist { min: 0, max: 100, step: 50, summed: false });
    assert_eq!(
        one_map(
            lhist.clone(),
            vec![(vec![text("k")], Cell::Buckets { counts: vec![0, 0, 1, 1], sum: None })]
        ),
        r#"{"type": "hist", "data": {"@x": {"k": [{"min": 50, "max": 99, "count": 1},{"min": 100, "count": 1}]}}}"#
    );
    assert_eq!(
        one_map(lhist, vec![(vec![], Cell::Buckets { counts: vec![0; 4], sum: None })]),
        r#"{"type": "hist", "data": {"@x": []}}"#
    );
}

#[test]
fn values() {
    let data =
        |value| print(value).replace(r#"{"type": "value", "data": "#, "").trim_end_matches('}').to_owned();
    assert_eq!(data(Value::Uint(u64::MAX, 8)), r#""18446744073709551615""#);
    assert_eq!(
        data(Value::Uint(1 << 60, 8)),
        "\"1152921504606846976\"",
        "beyond 2^53, whatever its lower bits"
    );
    assert_eq!(data(Value::Enum(0, 2)), "2");
    assert_eq!(data(Value::Pointer(16)), "16");
    assert_eq!(data(Value::Tuple(vec![int(1), text("a"), Value::Bool(true)])), r#"[1,"a",true]"#);
    assert_eq!(data(text("\u{1b}\"\\\n\u{9b}é")), r#""\u001b\"\\\n\u009bé""#);
    assert_eq!(data(Value::Str(vec![b'a', 0xff], true)), "\"a\u{fffd}..\"");
}

#[test]
fn other_lines() {
    let kind = EventKind::Printf { format: vec![Piece::Text(b"a\n".to_vec())] };
    let manifest = Manifest {
        events: vec![Event {
            kind,
            record: Default::default(),
            place: Place { source: 0, line: 1, column: 1 },
        }],
        ..manifest()
    };
    let header = Header { event: 0, cpu: 0, time_ns: 7, tgid: 1, tid: 1 };
    let printf = Output::Event { header, values: vec![], cell: None };
    assert_eq!(written(&manifest, printf), r#"{"type": "printf", "data": "a\n"}"#);
    assert_eq!(
        written(&manifest, Output::Attached { probes: 2 }),
        r#"{"type": "attached_probes", "count": 2, "data": {"probes": 2}}"#
    );
    let loss = |kind| Loss { kind, count: 3, place: Place { source: 0, line: 2, column: 5 } };
    let losses = vec![
        loss(CounterKind::LostEvent(0)),
        loss(CounterKind::DivisionByZero),
        loss(CounterKind::MissingKey(0)),
    ];
    assert_eq!(
        written(&manifest, Output::Losses(losses)),
        "{\"type\": \"lost_events\", \"count\": 3, \"data\": {\"events\": 3}}\n\
         {\"type\": \"runtime_error\", \"msg\": \"3 divisions by zero, which gave 1\", \"count\": 3, \"filename\": \"t.ct\", \
         \"line\": 2, \"col\": 5}\n\
         {\"type\": \"helper_error\", \"msg\": \"3 deletes of `@@` found no such key\", \"helper\": \"map_delete_elem\", \
         \"retcode\": -2, \"count\": 3, \"filename\": \"t.ct\", \"line\": 2, \"col\": 5}"
    );
}

#[test]
fn kernels_whose_short_names_are_the_same_are_members_of_their_own() {
    let plain = || MapValue::Plain(wire::Type::Int { bytes: 8, signed: true });
    let entry = |id, count| (vec![Value::Lookup(Lookup::Kernel, id), int(1)], Cell::Plain(int(count)));
    assert_eq!(
        one_map(plain(), vec![entry(11, 5), entry(2, 6), entry(21, 7)]),
        r#"{"type": "map", "data": {"@x": {"KernelMangled 11,1": 5, "kernel 2,1": 6, "KernelMangled 21,1": 7}}}"#
    );
}

#[test]
fn keys_that_print_alike_are_all_written() {
    let plain = MapValue::Plain(wire::Type::Int { bytes: 8, signed: true });
    let entry = |key, count| (vec![key], Cell::Plain(int(count)));
    assert_eq!(
        one_map(plain, vec![entry(int(1), 5), entry(Value::Uint(1, 8), 6), entry(int(2), 7)]),
        r#"{"type": "map", "data": {"@x": {"1": 5, "1#2": 6, "2": 7}}}"#
    );
}

#[test]
fn a_table_is_an_array_of_objects() {
    let cells = [
        ("calls", int(3)),
        ("result", Value::Enum(0, 2)),
        ("took", Value::Lookup(Lookup::Time, 950)),
        ("mean", Value::Either(0, Box::new(Value::Str(b"-".into(), false)), Some(Lookup::Time))),
        ("copied_per_s", Value::Str(b"-".into(), false)),
        ("bytes", Value::Lookup(Lookup::Size, 64)),
        ("response", Value::Lookup(Lookup::Time, 5)),
        ("both", Value::Lookup(Lookup::Time, 6)),
        ("both_ns", int(6)),
        ("share_percent", Value::Lookup(Lookup::Percent, 40)),
    ];
    let row = |cells: &[(&str, Value)]| {
        cells.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect()
    };
    let mut table = Table::new("calls", row(&cells));
    let mut other = cells.clone();
    other[4].1 = Value::Lookup(Lookup::Size, 8);
    assert_eq!(table.push(row(&other)), Ok(()));
    let header = Header { event: 0, cpu: 0, time_ns: 7, tgid: 1, tid: 1 };
    assert_eq!(
        written(&manifest(), Output::Table(header, table)),
        "{\"type\": \"table\", \"name\": \"calls\", \"data\": [{\"calls\": 3, \"result\": \"CUDA_ERROR_OUT_OF_MEMORY\", \"took_ns\": 950, \"mean_ns\": null, \
         \"copied_bytes_per_s\": null, \"bytes\": 64, \"response_ns\": 5, \"both\": 6, \"both_ns\": 6, \"share_percent\": 4.0}, {\"calls\": 3, \"result\": \"CUDA_ERROR_OUT_OF_MEMORY\", \
         \"took_ns\": 950, \"mean_ns\": null, \"copied_bytes_per_s\": 8, \"bytes\": 64, \"response_ns\": 5, \"both\": 6, \"both_ns\": 6, \"share_percent\": 4.0}]}"
    );
}
