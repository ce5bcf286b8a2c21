//! Metrics as text: OpenMetrics 1.0, or the older text format of Prometheus if the reader requests it.
//!
//! ```text
//! # TYPE gpu_cuda_memory_copies_bytes histogram
//! # UNIT gpu_cuda_memory_copies_bytes bytes
//! # HELP gpu_cuda_memory_copies_bytes Bytes of each copy
//! gpu_cuda_memory_copies_bytes_bucket{cuda_memcpy_kind="HtoD",le="4095.0"} 2
//! ```
//!
//! Facts: the OpenMetrics specification 1.0 (a counter's family has no `_total` and its samples have it; bounds are floats,
//! `4095.0`; a unit ends the name; the text ends with `# EOF`), Prometheus' text format 0.0.4 (the family of a counter is its
//! sample's name; neither unit nor end).
//!
//! Not here: HTTP.

use std::fmt::Write as _;

use crate::metrics::prometheus::{label, name, unit};
use crate::metrics::{Family, Kind, Labels, Point, Reading};

/// A text format.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Form {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// Prometheus' text format 0.0.4.
    Prometheus,
}

impl Form {
    /// Value of the Content-Type header.
    pub fn content_type(self) -> &'static str {
        match self {
            Form::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Form::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// The format that an Accept header prefers. Without a header, and if any format is accepted, it is
    /// Prometheus' older format, which every reader supports.
    pub fn accepted(accept: &str) -> Form {
        let weight = |media: &str| accept.split(',').filter_map(|range| weight(range, media)).max();
        match weight("application/openmetrics-text") {
            Some(open) if open > 0 && Some(open) >= weight("text/plain") => Form::OpenMetrics,
            _ => Form::Prometheus,
        }
    }
}

/// The weight of a media range, in thousandths, if it includes this type. Another version is another type.
fn weight(range: &str, media: &str) -> Option<u32> {
    let mut parts = range.split(';').map(str::trim);
    if !parts.next()?.eq_ignore_ascii_case(media) {
        return None;
    }
    let mut weight = 1000;
    for (name, value) in parts.filter_map(|part| part.split_once('=')) {
        match name.trim().to_ascii_lowercase().as_str() {
            "q" => weight = (value.trim().parse::<f32>().unwrap_or(0.0).clamp(0.0, 1.0) * 1000.0) as u32,
            "version"
                if media.ends_with("openmetrics-text") && !matches!(value.trim(), "1.0.0" | "0.0.1") =>
            {
                return None;
            }
            _ => {}
        }
    }
    Some(weight)
}

/// Formats families as text.
pub fn render(families: &[Family], form: Form) -> String {
    let mut text = Text { out: String::new(), form };
    families.iter().for_each(|family| text.family(family));
    if form == Form::OpenMetrics {
        text.out.push_str("# EOF\n");
    }
    text.out
}

struct Text {
    out: String,
    form: Form,
}

impl Text {
    fn family(&mut self, family: &Family) {
        let name = name(family);
        let open = self.form == Form::OpenMetrics;
        let shown =
            if family.kind == Kind::Counter && !open { format!("{name}_total") } else { name.clone() };
        let (help, unit) = (escape(&family.help, open), unit(family));
        // Writing to a string cannot fail.
        let _ = match (open, unit.is_empty()) {
            (true, true) => writeln!(self.out, "# TYPE {shown} {}\n# HELP {shown} {help}", word(family.kind)),
            (true, false) => writeln!(
                self.out,
                "# TYPE {shown} {}\n# UNIT {shown} {unit}\n# HELP {shown} {help}",
                word(family.kind)
            ),
            (false, _) => writeln!(self.out, "# HELP {shown} {help}\n# TYPE {shown} {}", word(family.kind)),
        };
        family.points.iter().for_each(|point| self.point(family.kind, &name, point));
    }

    fn point(&mut self, kind: Kind, name: &str, point: &Point) {
        match &point.value {
            Reading::Number(number) => {
                let suffix = if kind == Kind::Counter { "_total" } else { "" };
                self.sample(name, suffix, &point.labels, None, number);
            }
            Reading::Summary { count, sum } => {
                self.sample(name, "_count", &point.labels, None, count);
                self.sample(name, "_sum", &point.labels, None, sum);
            }
            Reading::Histogram { buckets, count, sum } => {
                for (bound, up_to) in buckets {
                    let bound = float(bound.as_f64());
                    self.sample(name, "_bucket", &point.labels, Some(&bound), up_to);
                }
                self.sample(name, "_bucket", &point.labels, Some("+Inf"), count);
                // A sum is not allowed with negative bounds, and OpenMetrics requires both count and sum or
                // neither.
                let negative = buckets.first().is_some_and(|(bound, _)| bound.whole < 0);
                if let Some(sum) = sum.filter(|_| !negative) {
                    self.sample(name, "_count", &point.labels, None, count);
                    self.sample(name, "_sum", &point.labels, None, &sum);
                } else if self.form == Form::Prometheus {
                    self.sample(name, "_count", &point.labels, None, count);
                }
            }
        }
    }

    fn sample(
        &mut self,
        name: &str,
        suffix: &str,
        labels: &Labels,
        le: Option<&str>,
        value: &dyn std::fmt::Display,
    ) {
        let own = labels.iter().map(|(name, value)| (label(name), escape(value, true)));
        let pairs: Vec<String> = distinct(own.collect())
            .into_iter()
            .chain(le.map(|le| ("le".to_owned(), le.to_owned())))
            .map(|(name, value)| format!("{name}=\"{value}\""))
            .collect();
        let labels = if pairs.is_empty() { String::new() } else { format!("{{{}}}", pairs.join(",")) };
        let _ = writeln!(self.out, "{name}{suffix}{labels} {value}");
    }
}

/// Renames duplicate labels, which would make the whole text invalid. `le` is reserved for histograms.
fn distinct(mut labels: Vec<(String, String)>) -> Vec<(String, String)> {
    for at in 0..labels.len() {
        while labels[at].0 == "le" || labels[..at].iter().any(|(name, _)| *name == labels[at].0) {
            labels[at].0.push('_');
        }
    }
    labels
}

fn word(kind: Kind) -> &'static str {
    match kind {
        Kind::Counter => "counter",
        Kind::UpDownCounter | Kind::Gauge => "gauge",
        Kind::Histogram => "histogram",
        Kind::Summary => "summary",
    }
}

/// A float with a decimal point, as OpenMetrics requires for bounds.
fn float(value: f64) -> String {
    let text = value.to_string();
    if text.contains('.') { text } else { format!("{text}.0") }
}

/// Escapes backslashes and newlines; with `quotes` also quotes, in label values and in OpenMetrics' help.
fn escape(text: &str, quotes: bool) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '"' if quotes => out.push_str("\\\""),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests;
