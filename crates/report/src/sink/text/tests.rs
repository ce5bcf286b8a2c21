//! Output of the text sink.

use super::*;
use crate::testing::{Fake, manifest, map};
use wire::CounterKind;
use wire::manifest::{Event, EventKind, Piece, ProbeList, SourceFile};
use wire::map::{Agg, hist_buckets};

fn written(manifest: &Manifest, outputs: &[Output]) -> (String, String) {
    let (mut out, mut notices) = (Vec::new(), Vec::new());
    let mut sink = TextSink::new(&mut out, &mut notices, false);
    outputs.iter().for_each(|output| sink.output(manifest, &Fake, output).unwrap());
    (String::from_utf8(out).unwrap(), String::from_utf8(notices).unwrap())
}

fn one_map(value: MapValue, entries: Vec<(Vec<Value>, Cell)>, top: u32, div: u32) -> String {
    let manifest = Manifest { maps: vec![map("x", value)], ..manifest() };
    written(&manifest, &[Output::Map(Snapshot { map: 0, entries, top, div })]).0
}

fn int(value: i64) -> Value {
    Value::Int(value, 8)
}

fn plain() -> MapValue {
    MapValue::Plain(wire::Type::Int { bytes: 8, signed: true })
}

#[test]
fn maps() {
    let number = |bits| Cell::Number { bits, signed: true };
    assert_eq!(one_map(plain(), vec![(vec![], Cell::Plain(int(5)))], 0, 0), "@x: 5\n");
    let entries = || {
        vec![
            (vec![int(1), int(2)], number(30)),
            (vec![int(2), int(2)], number(10)),
            (vec![int(3), int(3)], number(20)),
        ]
    };
    assert_eq!(
        one_map(MapValue::Agg(Agg::Count), entries(), 0, 0),
        "@x[2, 2]: 10\n@x[3, 3]: 20\n@x[1, 2]: 30\n"
    );
    assert_eq!(one_map(MapValue::Agg(Agg::Count), entries(), 2, 10), "@x[3, 3]: 2\n@x[1, 2]: 3\n");
    let stats = Cell::Stats { count: 2, total: -9, signed: true };
    assert_eq!(
        one_map(MapValue::Agg(Agg::Stats { signed: true }), vec![(vec![], stats)], 0, 0),
        "@x: { .count = 2, .average = -4, .total = -9 }\n"
    );
    let pair = Value::Tuple(vec![int(1), Value::Str("g".into(), false)]);
    assert_eq!(one_map(plain(), vec![(vec![], Cell::Plain(pair))], 0, 0), "@x: (1, g)\n");
    assert_eq!(one_map(plain(), vec![], 0, 0), "");
}

#[test]
fn histograms() {
    let mut buckets = vec![0; hist_buckets(0) as usize];
    (buckets[3], buckets[4]) = (2, 4);
    let text = |key: Vec<Value>, div| {
        one_map(
            MapValue::Agg(Agg::Hist { bits: 0, summed: false }),
            vec![(key, Cell::Buckets { counts: buckets.clone(), sum: None })],
            0,
            div,
        )
    };
    let rows = |a, b| {
        format!(
            "[2, 4)          {a:>8} |{}|\n[4, 8)          {b:>8} |{}|\n",
            "@".repeat(26) + &" ".repeat(26),
            "@".repeat(52)
        )
    };
    assert_eq!(text(vec![], 0), format!("@x:\n{}", rows(2, 4)));
    assert_eq!(text(vec![Value::Str("a\nb".into(), false)], 2), format!("@x[a\\nb]:\n{}", rows(1, 2)));
}

#[test]
fn events_and_the_end() {
    let event =
        |kind| Event { kind, record: Default::default(), place: Place { source: 0, line: 1, column: 1 } };
    let manifest = Manifest {
        events: vec![
            event(EventKind::Printf { format: vec![Piece::Text(b"hi\n".to_vec())] }),
            event(EventKind::Print),
            event(EventKind::PrintEntry { map: 0 }),
            event(EventKind::Time { format: "%T".into() }),
        ],
        maps: vec![map("x", plain())],
        print_maps_on_exit: true,
        ..manifest()
    };
    let event = |event, values, cell| Output::Event {
        header: Header { event, cpu: 0, time_ns: 7, tgid: 1, tid: 1 },
        values,
        cell,
    };
    let (out, notices) = written(
        &manifest,
        &[
            Output::Attached { probes: 1 },
            event(0, vec![], None),
            event(1, vec![Value::Str("\x1b".into(), false)], None),
            event(2, vec![int(1)], Some(Cell::Plain(int(3)))),
            event(2, vec![int(2)], None),
            event(3, vec![], None),
            event(99, vec![], None),
            Output::End,
            Output::Losses(vec![Loss {
                kind: CounterKind::LostEvent(0),
                count: 3,
                place: Place { source: 0, line: 2, column: 5 },
            }]),
        ],
    );
    assert_eq!(out, "hi\n\\x1b\n@x[1]: 3\n@x[2]: 0\n[%T 1007]\n\n");
    assert_eq!(notices, "Attached 1 probe\nwarning: t.ct:2:5: lost 3 events: the ring buffer was full\n");
}

#[test]
fn an_empty_line_is_between_parts_and_after_the_output_of_the_script() {
    let histogram = MapValue::Agg(Agg::Hist { bits: 0, summed: false });
    let manifest = Manifest {
        events: vec![Event {
            kind: EventKind::Printf { format: vec![Piece::Text(b"hi\n".to_vec())] },
            record: Default::default(),
            place: Place::default(),
        }],
        maps: vec![map("h", histogram), map("x", plain())],
        print_maps_on_exit: true,
        ..manifest()
    };
    let mut counts = vec![0; hist_buckets(0) as usize];
    counts[3] = 1;
    let of = |map, cell| Output::Map(Snapshot { map, entries: vec![(vec![], cell)], top: 0, div: 0 });
    let hist = of(0, Cell::Buckets { counts, sum: None });
    let plain = of(1, Cell::Plain(int(3)));
    let header = Header { event: 0, cpu: 0, time_ns: 7, tgid: 1, tid: 1 };
    let hi = Output::Event { header, values: vec![], cell: None };
    let drawn = format!("@h:\n[2, 4)                 1 |{}|\n", "@".repeat(52));
    let end = || Output::End;
    assert_eq!(written(&manifest, &[end()]).0, "");
    assert_eq!(written(&manifest, &[end(), hist.clone(), plain.clone()]).0, format!("{drawn}\n@x: 3\n"));
    assert_eq!(written(&manifest, &[hi.clone(), end()]).0, "hi\n\n");
    assert_eq!(written(&manifest, &[hi, end(), plain, hist.clone()]).0, format!("hi\n\n@x: 3\n{drawn}"));
    assert_eq!(written(&manifest, &[hist.clone(), end()]).0, format!("{drawn}\n"));
    assert_eq!(written(&manifest, &[hist.clone(), hist]).0, format!("{drawn}\n{drawn}"));
}

#[test]
fn each_line_of_several_scripts_says_whose_it_is() {
    let printf = |text: &[u8]| Event {
        kind: EventKind::Printf { format: vec![Piece::Text(text.to_vec())] },
        record: Default::default(),
        place: Place::default(),
    };
    let source = |script: &str| SourceFile { script: script.into(), file: String::new() };
    let events = vec![printf(b"a\n"), printf(b"b\n\nc"), printf(b" d\n")];
    let manifest = Manifest { events, sources: vec![source("kernels"), source("-e")], ..manifest() };
    let event = |event| Output::Event {
        header: Header { event, cpu: 0, time_ns: 7, tgid: 1, tid: 1 },
        values: vec![],
        cell: None,
    };
    let from = |name: &str| Output::Script(name.into());
    let outputs = [
        from("kernels"),
        event(0),
        event(1),
        event(2),
        from("-e"),
        event(1),
        from("kernels"),
        event(0),
        Output::End,
    ];
    assert_eq!(
        written(&manifest, &outputs).0,
        "kernels | a\nkernels | b\nkernels |\nkernels | c d\n-e      | b\n-e      |\n-e      | c\nkernels | a\n"
    );
}

#[test]
fn findings_name_the_file_of_their_script() {
    let source = |script: &str, file: &str| SourceFile { script: script.into(), file: file.into() };
    let sources = vec![source("kernels", "kernels.ct"), source("-e", "stdin")];
    // The probe is of the first of two scripts, which are separate modules.
    let place = Place { source: 0, line: 2, column: 5 };
    let earlier = vec![ProbeList { clause: 0, place, text: "cuda:launch".into() }];
    let manifest = Manifest { sources, earlier, ..manifest() };
    let loss = |source, kind, count| Loss { kind, count, place: Place { source, line: 2, column: 5 } };
    let losses = [
        loss(0, CounterKind::UserRead, 1),
        loss(1, CounterKind::UserRead, 2),
        loss(0, CounterKind::Entered(0), 2),
    ];
    assert_eq!(
        written(&manifest, &[Output::Losses(losses.to_vec())]).1,
        "warning: kernels.ct:2:5: 1 read of the program's memory failed, and gave 0 or \"\" (an invalid address, or \
         a page that is not loaded yet: a return probe can read what its function has touched)\n\
         warning: stdin:2:5: 2 reads of the program's memory failed, and gave 0 or \"\"\n\
         note: kernels.ct:2:5: 2 calls of `cuda:launch` were still running when tracing stopped, or never returned\n"
    );
}

#[test]
fn losses_have_no_position_in_files_that_the_user_has_not_written() {
    let source = |script: &str, file: &str| SourceFile { script: script.into(), file: file.into() };
    let sources = vec![source("kernels", "kernels.ct"), source("-e", "-e")];
    let manifest = Manifest { sources, ..manifest() };
    let loss =
        |source| Loss { kind: CounterKind::LostStack, count: 1, place: Place { source, line: 2, column: 5 } };
    let (mut out, mut notices) = (Vec::new(), Vec::new());
    let mut sink = TextSink::new(&mut out, &mut notices, false).omit_places_in(vec!["kernels.ct".to_owned()]);
    sink.output(&manifest, &Fake, &Output::Losses(vec![loss(0), loss(1)])).unwrap();
    assert_eq!(
        String::from_utf8(notices).unwrap(),
        "warning: kernels: 1 stack could not be stored\nwarning: -e:2:5: 1 stack could not be stored\n"
    );
}

#[test]
fn ignored_returns_are_an_error() {
    let loss = Loss { kind: CounterKind::NoCallSlot, count: 2, place: Place::default() };
    let manifest = Manifest { in_process: true, ..manifest() };
    assert_eq!(
        written(&manifest, &[Output::Losses(vec![loss])]).1,
        "error: 2 calls had no memory for values of the entry: the return was ignored, and results are incomplete; trace fewer functions, \
         or without `--in-process`\n"
    );
}
