//! The page's data is read back from its HTML.

use super::columns::tests::{read, values};
use super::testing::{call, with};
use super::{Page, SPANS};
use crate::export::{Data, GpuStream, Kind, Record, Site, Status, Thread};
use crate::recording::Recording;
use crate::recording::summary::Summary;
use serde_json::Value;
use std::sync::Arc;

/// The page of records.
fn page(limit: usize, records: &[Record]) -> String {
    let (mut page, mut summary) = (Page { limit, ..Page::default() }, Summary::default());
    for record in records {
        page.add(record);
        summary.add(record);
    }
    page.html("</script><b>", &Recording::default(), &summary)
}

fn data(html: &str) -> Value {
    let (_, rest) = html.split_once("const DATA = ").unwrap();
    serde_json::from_str(rest.split_once(";</script>").unwrap().0).unwrap()
}

fn bytes(html: &str, name: &str) -> Vec<u8> {
    let (_, rest) = html.split_once(&format!("id=\"column-{name}\">")).unwrap_or_else(|| panic!("no {name}"));
    read(rest.split_once("</script>").unwrap().0)
}

fn column(html: &str, name: &str, count: usize) -> Vec<u64> {
    let bytes = bytes(html, name);
    let (values, rest) = values(&bytes, count);
    assert!(rest.is_empty(), "{name}");
    values
}

/// Texts of ASCII.
fn texts(html: &str, name: &str, count: usize) -> Vec<String> {
    let bytes = bytes(html, name);
    let (lengths, text) = values(&bytes, count);
    let mut at = 0;
    let next = |length: u64| {
        at += length as usize;
        String::from_utf8(text[at - length as usize..at].to_vec()).unwrap()
    };
    lengths.into_iter().map(next).collect()
}

/// A launch of thread 2 and its kernel on a stream of device 0.
fn launch(start: u64, kernel: &str) -> [Record; 2] {
    let corr = ("corr", Data::Uint(start));
    let launch =
        with(call("cuLaunchKernel", start, 10), &[("kernel", Data::Text(kernel.into())), corr.clone()]);
    let id = launch.span().unwrap().span_id;
    let mut work = with(call(kernel, start + 20, 100), &[("gpu", Data::Uint(77)), corr]);
    let stream = GpuStream { device: 0, stream: 7 };
    let thread = Thread { pid: 1, tid: stream.tid(), comm: stream.to_string().into(), program: "app".into() };
    work.thread = Some(Arc::new(thread));
    work.site = Arc::new(Site { probe: "gpu:kernel".into(), ..Site::default() });
    let Kind::Span(span) = &mut work.kind else { unreachable!() };
    (span.launch_id, span.status) = (id, Status::Unset);
    [launch, work]
}

#[test]
fn every_span_comes_back_with_its_name_arguments_and_launch() {
    let mut records: Vec<Record> = (0..1000).flat_map(|at| launch(1_000_000 + at * 1000, "fill")).collect();
    let result = Data::Text("CUDA_ERROR_INVALID_VALUE".into());
    let mut failed =
        with(call("cuMemAlloc", 5_000_000, 7), &[("ptr", Data::Handle(u64::MAX)), ("by", Data::Int(-3))]);
    let Kind::Span(span) = &mut failed.kind else { unreachable!() };
    (span.status, span.result) = (Status::Error, Some(result));
    records.push(failed);
    let range = with(call("step", 1_000_000, 5000), &[("category", Data::Text("nvtx".into()))]);
    records.push(range);
    records.push(Record { kind: Kind::Counter { value: Data::Int(-5) }, ..call("queue", 1_000_500, 0) });
    let html = page(SPANS, &records);
    let data = data(&html);
    assert_eq!((&data["title"], &data["spans"]), (&"</script><b>".into(), &2002.into()));
    // The stream belongs to a device, and is no thread.
    let rows: Vec<(&str, u64)> = data["rows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| (row[0].as_str().unwrap(), row[2].as_u64().unwrap()))
        .collect();
    assert_eq!(rows, [("t", 2), ("s", 7), ("n", 2)]);
    assert_eq!(data["devices"], serde_json::json!(["GPU 0"]));
    assert_eq!(data["tracks"], serde_json::json!([[0, 0, 1001], [1, 0, 1000], [2, 0, 1]]));
    // Times by gaps between spans.
    let (gaps, durations) = (column(&html, "gap", 2002), column(&html, "duration", 2002));
    let mut end = 0i64;
    let starts: Vec<i64> = gaps
        .iter()
        .zip(&durations)
        .map(|(gap, duration)| {
            let start = end + ((gap >> 1) as i64 ^ -((gap & 1) as i64));
            end = start + *duration as i64;
            start
        })
        .collect();
    assert_eq!((starts[0], starts[999], starts[1000], starts[1001]), (0, 999_000, 4_000_000, 20));
    assert_eq!((durations[0], durations[1000], durations[1001], durations[2001]), (10, 7, 100, 5000));
    // Names by kinds.
    let names = texts(&html, "names", data["names"].as_u64().unwrap() as usize);
    let kinds = data["span_kinds"].as_u64().unwrap() as usize;
    let (kind, of) =
        (column(&html, "kind", 2002), |name: &str| column(&html, &format!("kind-{name}"), kinds));
    let (name, label, result, is_failed) = (of("name"), of("label"), of("result"), of("failed"));
    let text = |of: &[u64], span: usize| names[of[kind[span] as usize] as usize].as_str();
    assert_eq!((text(&name, 0), text(&label, 0), text(&result, 0)), ("cuLaunchKernel", "fill", ""));
    assert_eq!((text(&name, 1000), text(&result, 1000)), ("cuMemAlloc", "CUDA_ERROR_INVALID_VALUE"));
    assert_eq!((is_failed[kind[0] as usize], is_failed[kind[1000] as usize]), (0, 1));
    // The kernels are in the order of their launches.
    let launches = column(&html, "launch", 2002);
    assert!(launches[..1001].iter().all(|launch| *launch == 0));
    assert!((0..1000).all(|at| launches[1001 + at] == at as u64 + 1));
    // Arguments: columns of the fields of each shape.
    assert_eq!(data["shapes"][0], serde_json::json!([["kernel", "l"], ["corr", "u"]]));
    assert_eq!(column(&html, "a0.1", 1000)[999], 1_999_000);
    assert_eq!(data["shapes"][2], serde_json::json!([["ptr", "h"], ["by", "s"]]));
    assert_eq!((column(&html, "a2.0", 1), column(&html, "a2.1", 1)), (vec![u64::MAX], vec![5]));
    assert_eq!(texts(&html, "values", 1), ["nvtx"]);
    assert_eq!(data["areas"], serde_json::json!([["counter", "queue", 1, false]]));
    assert_eq!((column(&html, "area-time", 1), column(&html, "area-value", 1)), (vec![1000], vec![9]));
}

#[test]
fn spans_beyond_the_limit_are_counted_and_their_time_is_kept() {
    let records: Vec<Record> = (0..1000).map(|at| call("cuInit", 5_000_000 + at * 1000, 400)).collect();
    let html = page(600, &records);
    let data = data(&html);
    assert_eq!((&data["spans"], &data["density"]["spans"]), (&600.into(), &400.into()));
    let bins = data["density"]["bins"].as_u64().unwrap() as usize;
    assert_eq!(column(&html, "density-spans", bins).iter().sum::<u64>(), 400);
    assert_eq!(column(&html, "density-busy", bins).iter().sum::<u64>(), 400 * 400);
    assert!(column(&html, "density-row", bins).iter().all(|row| *row == 0));
    let (width, start) =
        (data["density"]["width"].as_u64().unwrap() as i64, data["density"]["start"].as_i64().unwrap());
    let first = start + column(&html, "density-bin", bins)[0] as i64 * width;
    assert!((first..first + width).contains(&600_000), "the first bin begins at {first}");
}
