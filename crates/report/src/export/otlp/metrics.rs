//! Metric families as an OTLP request: cumulative since the attachment, with names and units as declared in the script.

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint, ResourceMetrics,
    ScopeMetrics, Sum, Summary, SummaryDataPoint, metric, number_data_point,
};

use super::{Attributes, Encoding, Request, SCHEMA, SCOPE, Signal, attribute, resource, scope};
use crate::export::Run;
use crate::metrics::{Family, Kind, Labels, Number, Point, Reading};

/// Start and end of a period, as wall-clock ns since 1970.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Period {
    /// Time when the probes were attached.
    pub start_ns: u64,
    /// Time when the maps were read.
    pub end_ns: u64,
}

/// Encodes all families as one request.
pub fn request(
    families: &[Family],
    period: Period,
    run: &Run,
    given: &Attributes,
    encoding: Encoding,
) -> Request {
    let metrics: Vec<Metric> = families.iter().map(|family| metric(family, period)).collect();
    let scope_metrics = vec![ScopeMetrics { scope: scope(), metrics, schema_url: SCHEMA.into() }];
    let resource = Some(resource(run, SCOPE, 0, [], given));
    let of_resource = ResourceMetrics { resource, scope_metrics, schema_url: SCHEMA.into() };
    let message = ExportMetricsServiceRequest { resource_metrics: vec![of_resource] };
    let items = families.iter().map(|family| family.points.len() as u64).sum();
    Request { signal: Signal::Metrics, body: encoding.encode(&message), items }
}

fn metric(family: &Family, period: Period) -> Metric {
    let (name, description) = (family.name.clone(), family.help.clone());
    let cumulative = AggregationTemporality::Cumulative as i32;
    let points = || family.points.iter();
    let data = match family.kind {
        Kind::Counter => metric::Data::Sum(Sum {
            data_points: points().filter_map(|point| number(point, period)).collect(),
            aggregation_temporality: cumulative,
            is_monotonic: true,
        }),
        Kind::UpDownCounter => metric::Data::Sum(Sum {
            data_points: points().filter_map(|point| number(point, period)).collect(),
            aggregation_temporality: cumulative,
            is_monotonic: false,
        }),
        Kind::Gauge => metric::Data::Gauge(Gauge {
            data_points: points().filter_map(|point| number(point, period)).collect(),
        }),
        Kind::Histogram => metric::Data::Histogram(Histogram {
            data_points: points().filter_map(|point| histogram(point, period)).collect(),
            aggregation_temporality: cumulative,
        }),
        Kind::Summary => metric::Data::Summary(Summary {
            data_points: points().filter_map(|point| summary(point, period)).collect(),
        }),
    };
    Metric { name, description, unit: family.unit.clone(), data: Some(data), ..Metric::default() }
}

fn attributes(labels: &Labels) -> Vec<opentelemetry_proto::tonic::common::v1::KeyValue> {
    labels.iter().map(|(name, value)| attribute(name, label(name, value))).collect()
}

/// Value of a label: a process id is a number, other labels are text.
fn label(name: &str, value: &str) -> any_value::Value {
    match value.parse() {
        Ok(pid) if name == "process.pid" => any_value::Value::IntValue(pid),
        _ => any_value::Value::StringValue(value.to_owned()),
    }
}

fn number(point: &Point, period: Period) -> Option<NumberDataPoint> {
    let Reading::Number(number) = &point.value else { return None };
    Some(NumberDataPoint {
        attributes: attributes(&point.labels),
        start_time_unix_nano: period.start_ns,
        time_unix_nano: period.end_ns,
        value: Some(value(*number)),
        ..NumberDataPoint::default()
    })
}

/// Value of a point, as an integer if an int64 can represent it.
fn value(number: Number) -> number_data_point::Value {
    match i64::try_from(number.whole) {
        Ok(whole) if number.divisor == 1 => number_data_point::Value::AsInt(whole),
        _ => number_data_point::Value::AsDouble(number.as_f64()),
    }
}

/// A histogram: counts per bucket, one more than there are bounds.
fn histogram(point: &Point, period: Period) -> Option<HistogramDataPoint> {
    let Reading::Histogram { buckets, count, sum } = &point.value else { return None };
    let mut before = 0;
    let ends = buckets.iter().map(|(_, up_to)| *up_to).chain([*count]);
    let bucket_counts = ends.map(|up_to| up_to - std::mem::replace(&mut before, up_to)).collect();
    Some(HistogramDataPoint {
        attributes: attributes(&point.labels),
        start_time_unix_nano: period.start_ns,
        time_unix_nano: period.end_ns,
        count: *count,
        sum: sum.map(Number::as_f64),
        bucket_counts,
        explicit_bounds: buckets.iter().map(|(bound, _)| bound.as_f64()).collect(),
        ..HistogramDataPoint::default()
    })
}

fn summary(point: &Point, period: Period) -> Option<SummaryDataPoint> {
    let Reading::Summary { count, sum } = &point.value else { return None };
    Some(SummaryDataPoint {
        attributes: attributes(&point.labels),
        start_time_unix_nano: period.start_ns,
        time_unix_nano: period.end_ns,
        count: *count,
        sum: sum.as_f64(),
        ..SummaryDataPoint::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::Data;

    fn family(kind: Kind, value: Reading) -> Family {
        let labels = vec![("cuda.kind".to_owned(), "a\"b\n\u{1b}".to_owned())];
        let points = vec![Point { labels, value }];
        Family { name: "gpu.cuda.x".into(), unit: "By".into(), help: "Words".into(), kind, points }
    }

    fn json(family: Family) -> serde_json::Value {
        let period = Period { start_ns: 1_700_000_000_000_000_001, end_ns: 1_700_000_000_000_000_002 };
        let of = vec![("service.name".to_owned(), Data::Text("train".into()))];
        let request = request(&[family], period, &Run::default(), &of, Encoding::Json);
        serde_json::from_slice(&request.body).expect("JSON")
    }

    #[test]
    fn a_counter_in_json() {
        let number = Number { whole: (1 << 60) + 1, divisor: 1 };
        let json = json(family(Kind::Counter, Reading::Number(number)));
        let of = &json["resourceMetrics"][0];
        let service = serde_json::json!({"key": "service.name", "value": {"stringValue": "train"}});
        let resource = of["resource"]["attributes"].as_array().unwrap();
        let services: Vec<_> = resource.iter().filter(|one| one["key"] == service["key"]).collect();
        assert_eq!((services.len(), &services[0]["value"]), (1, &service["value"]), "what is given wins");
        let metric = &of["scopeMetrics"][0]["metrics"][0];
        assert_eq!((&metric["name"], &metric["unit"]), (&"gpu.cuda.x".into(), &"By".into()));
        assert_eq!(metric["sum"]["aggregationTemporality"], 2);
        assert_eq!(metric["sum"]["isMonotonic"], true);
        let point = &metric["sum"]["dataPoints"][0];
        assert_eq!(point["asInt"], "1152921504606846977", "64 bits are a string");
        assert_eq!(point["startTimeUnixNano"], "1700000000000000001");
        assert_eq!(point["attributes"][0]["value"]["stringValue"], "a\"b\n\u{1b}");
    }

    #[test]
    fn a_histogram_has_one_count_more_than_bounds() {
        let number = |whole| Number { whole, divisor: 1 };
        let buckets = vec![(number(0), 1), (number(1), 1), (number(3), 4)];
        let json =
            json(family(Kind::Histogram, Reading::Histogram { buckets, count: 9, sum: Some(number(70)) }));
        let point =
            &json["resourceMetrics"][0]["scopeMetrics"][0]["metrics"][0]["histogram"]["dataPoints"][0];
        assert_eq!(point["bucketCounts"], serde_json::json!(["1", "0", "3", "5"]));
        assert_eq!(point["explicitBounds"], serde_json::json!([0.0, 1.0, 3.0]));
        assert_eq!((&point["count"], &point["sum"]), (&"9".into(), &70.0.into()));
    }
}
