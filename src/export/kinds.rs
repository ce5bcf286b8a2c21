//! The kinds of `--export KIND=DEST`: the formats of files, which are rows of `report::export::FORMATS`, and servers.

use super::file::{Destination, FileOwner, size_in_bytes};
use super::otlp::destination::{OtlpDestination, environment, without_credentials};
use anyhow::{Context, Result, bail};
use lang::diagnostics::suggest::similar;
use report::export::otlp::traces::Per;
use report::export::{Exporter, FORMATS, Format, Run};
use std::path::Path;
use std::sync::{Arc, LazyLock};

/// A parsed `--export` option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportRequest {
    /// `jsonl`
    pub kind: &'static Kind,
    /// `trace.jsonl`
    pub dest: String,
    /// True if the user did not choose the name, so that the file must be new.
    pub only_new: bool,
}

/// A kind of export.
#[derive(Copy, Clone, Debug)]
pub struct Kind {
    /// Name before the `=`.
    pub name: &'static str,
    /// Notation of the destination after the `=`.
    pub dest: &'static str,
    /// One line of help.
    pub doc: &'static str,
    /// Opens the exporter; `None` if the kind does not process records.
    pub open: Option<Open>,
    /// True if it exports maps as metrics, periodically or on request.
    pub metrics: bool,
    /// True if it has a default destination.
    pub optional: bool,
    /// How to view its file `FILE`.
    pub look: Option<&'static str>,
}

/// Makes an exporter that sends to a server.
pub type Connect = fn(&Destination, &Arc<Run>) -> Result<Box<dyn Exporter>>;

/// The way in which an export is opened. It is opened again for the next file when one has reached its limit.
#[derive(Copy, Clone, Debug)]
pub enum Open {
    /// A file in a format.
    File(&'static Format),
    /// An exporter that sends its data itself.
    Server(Connect),
}

impl Open {
    /// Opens the export.
    pub fn open(self, dest: &Destination, run: &Arc<Run>) -> Result<Box<dyn Exporter>> {
        match self {
            Open::File(format) => Ok((format.create)(dest.create_with_end(format.end)?, run)?),
            Open::Server(open) => open(dest, run),
        }
    }
}

impl Kind {
    /// The kind of a format of files.
    fn of(format: &'static Format) -> Kind {
        let Format { name, file, doc, look, .. } = *format;
        let open = Some(Open::File(format));
        Kind { name, dest: file, doc, open, metrics: false, optional: false, look }
    }

    /// Whether its exports can go to a destination, as far as that is seen without opening it.
    fn check(&self, dest: &str) -> Result<()> {
        match self.open {
            Some(Open::File(_)) => super::file::check_folder(Path::new(dest)),
            Some(Open::Server(_)) => match OtlpDestination::new(dest, &environment)? {
                OtlpDestination::File => {
                    super::file::check_folder(Path::new(dest.strip_prefix("file:").unwrap_or(dest)))
                }
                OtlpDestination::Server { .. } => Ok(()),
            },
            None => Ok(()),
        }
    }

    /// The option: `jsonl=t.jsonl`, `otlp`.
    pub fn with(&self, dest: &str) -> String {
        if dest.is_empty() { self.name.into() } else { format!("{}={dest}", self.name) }
    }
}

impl PartialEq for Kind {
    fn eq(&self, other: &Kind) -> bool {
        self.name == other.name
    }
}

impl Eq for Kind {}

/// The kind that is scraped, and sends nothing.
pub const OPENMETRICS: &str = "openmetrics";

/// The kinds with servers.
const SERVERS: [Kind; 2] = [
    Kind {
        name: "otlp",
        dest: "URL|file:FILE",
        doc: "spans and maps to an OpenTelemetry receiver, by gRPC or HTTP, or as JSON lines",
        open: Some(Open::Server(super::otlp::exporter::open)),
        metrics: true,
        optional: true,
        look: None,
    },
    Kind {
        name: OPENMETRICS,
        dest: "[HOST:]PORT",
        doc: "maps to Prometheus, at http://127.0.0.1:PORT/metrics",
        open: None,
        metrics: true,
        optional: true,
        look: None,
    },
];

/// All kinds.
pub static KINDS: LazyLock<Vec<Kind>> =
    LazyLock::new(|| FORMATS.iter().map(Kind::of).chain(SERVERS).collect());

/// The kinds of exports, one per line.
pub fn list() -> String {
    let row = |kind: &Kind| format!("  {:<24} {}", format!("{}={}", kind.name, kind.dest), kind.doc);
    KINDS.iter().map(row).collect::<Vec<_>>().join("\n")
}

/// Parses `jsonl=trace.jsonl`.
pub fn parse(text: &str) -> Result<ExportRequest, String> {
    let (kind, dest) = text.split_once('=').unwrap_or((text, ""));
    let kind = KINDS
        .iter()
        .find(|row| row.name == kind)
        .ok_or_else(|| format!("no kind `{kind}`{}; there are\n{}", meant(kind), list()))?;
    if dest.is_empty() && !kind.optional {
        return Err(format!("expected KIND=DEST: {}={}", kind.name, kind.dest));
    }
    Ok(ExportRequest { kind, dest: dest.into(), only_new: false })
}

/// Refuses destinations of which one sees without opening them that nothing can go there.
pub fn check(requests: &[ExportRequest]) -> Result<()> {
    check_distinct(requests)?;
    requests.iter().try_for_each(|ExportRequest { kind, dest, .. }| {
        kind.check(dest).with_context(|| without_credentials(&format!("--export {}", kind.with(dest))))
    })
}

/// Refuses two exports to one place.
pub fn check_distinct(requests: &[ExportRequest]) -> Result<()> {
    for (at, request) in requests.iter().enumerate() {
        let is_same = |earlier: &ExportRequest| {
            earlier.dest == request.dest && (!request.dest.is_empty() || earlier.kind == request.kind)
        };
        if requests[..at].iter().any(is_same) {
            bail!("--export: two exports go to `{}`", request.dest);
        }
    }
    Ok(())
}

/// Names that users try, with the kind.
const HABITS: [(&str, &str); 7] = [
    ("prometheus", OPENMETRICS),
    ("metrics", OPENMETRICS),
    ("otel", "otlp"),
    ("opentelemetry", "otlp"),
    ("json", "jsonl"),
    ("flamegraph", "folded"),
    ("pytorch", "chrome"),
];

/// The kind that a habit means.
fn habit(kind: &str) -> Option<&'static str> {
    HABITS.iter().find(|(habit, _)| *habit == kind).map(|(_, name)| *name)
}

/// The kind with this name, or that it means.
pub fn named(name: &str) -> Option<&'static Kind> {
    let name = habit(name).unwrap_or(name);
    KINDS.iter().find(|kind| kind.name == name)
}

/// `: did you mean ...?`, or nothing.
fn meant(kind: &str) -> String {
    let habit = habit(kind);
    let near = || similar(kind, KINDS.iter().map(|kind| kind.name)).first().copied();
    habit.or_else(near).map_or(String::new(), |name| format!(": did you mean `{name}`?"))
}

/// Options for all exports.
#[derive(Clone, Debug, Default)]
pub struct ExportOptions {
    /// Size of a file in bytes after which the next one begins.
    pub rotate: Option<u64>,
    /// Condition for starting another trace, for formats with traces.
    pub trace_per: Option<Per>,
    /// User to whom new files are given.
    pub owner: Option<FileOwner>,
}

impl ExportOptions {
    pub fn destination(&self, request: &ExportRequest) -> Destination {
        let dest = Destination::new(&request.dest, self.rotate).with_traces(self.trace_per.clone());
        let dest = dest.owned_by(self.owner);
        if request.only_new { dest.only_new() } else { dest }
    }
}

/// Parses the size of `--rotate`; the error is a message.
pub fn rotate(text: &str) -> Result<u64, String> {
    let least = 1 << 16;
    match size_in_bytes(text) {
        Some(bytes) if bytes >= least => Ok(bytes),
        Some(_) => Err("expected 64KiB at least".into()),
        None => Err("expected a size such as 512MiB or 1GiB".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_parsed() {
        assert_eq!(parse("jsonl=a=b.jsonl").unwrap().dest, "a=b.jsonl");
        assert!(parse("jsonl").unwrap_err().contains("KIND=DEST"));
        assert!(parse("yaml=x").unwrap_err().contains("no kind `yaml`; there are"));
        for (kind, near) in [("prometheus", "openmetrics"), ("perfeto", "perfetto"), ("json", "jsonl")] {
            let error = parse(&format!("{kind}=9400")).unwrap_err();
            assert!(error.starts_with(&format!("no kind `{kind}`: did you mean `{near}`?")), "{error}");
        }
        assert!(parse("jsonl=").is_err());
        assert_eq!(parse("openmetrics").unwrap().dest, "");
        assert_eq!(parse("otlp=http://c:4318").unwrap().dest, "http://c:4318");
    }

    #[test]
    fn sizes_for_rotation() {
        assert_eq!(rotate("1GiB"), Ok(1 << 30));
        assert_eq!(rotate("64k"), Ok(1 << 16));
        assert!(rotate("1").is_err() && rotate("x").is_err());
    }
}
