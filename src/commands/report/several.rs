//! `cudatrace report A B` and `cudatrace report traces/*_rank*.arrows`: several recordings beside each other.

use super::{COLUMNS, Conversion, ReportOptions, check_table, dropped, files, heading, outputs, print, read};
use crate::cli::{Cli, Format};
use crate::terminal;
use anyhow::{Result, bail};
use report::export::{Record, Run, json};
use report::recording::Reader;
use report::recording::difference::Difference;
use report::recording::ranks::{Rank, Ranks};
use report::recording::summary::Summary;
use report::recording::summary_tables::Table;
use std::path::PathBuf;

/// Prints the differences of two recordings.
pub fn compare(cli: &Cli, options: &ReportOptions, recordings: [Vec<PathBuf>; 2]) -> Result<u8> {
    check_outputs(cli, options)?;
    if options.parquet.is_some() {
        bail!("--parquet is of one recording, or of the ranks of a job: name one file");
    }
    let mut summaries = [Summary::default(), Summary::default()];
    let mut headings = Vec::new();
    for (summary, parts) in summaries.iter_mut().zip(&recordings) {
        headings.push(heading(&read(parts, &mut SummaryReader(summary))?));
    }
    let [before, after] = &summaries;
    let difference = Difference::of(before, after);
    let [one, other] = recordings.map(|parts| files::title(&parts));
    print_tables(
        cli,
        options,
        &[difference.table()],
        &[("before", &one), ("after", &other), ("verdict", &difference.verdict())],
        || {
            format!(
                "before  {one}: {}after   {other}: {}\n{}\n{}",
                headings[0],
                headings[1],
                terminal::wrap(&difference.verdict(), columns(), 0),
                difference.text(columns())
            )
        },
    )
}

/// Prints the ranks of a job.
pub fn ranks(cli: &Cli, options: &ReportOptions, recordings: Vec<Vec<PathBuf>>) -> Result<u8> {
    check_outputs(cli, options)?;
    let (mut ranks, mut headings) = (Vec::new(), String::new());
    for parts in &recordings {
        let folder = options.parquet.clone();
        let mut reader = RankReader { folder, ..RankReader::default() };
        let recording = read(parts, &mut reader)?;
        if let Some(tables) = reader.tables {
            tables?.finish(dropped(&recording))?;
        }
        // All ranks run one command: only what is wrong with one is worth a line.
        if headings.is_empty()
            || recording.ended == report::recording::RecordingEnd::Cut
            || recording.unreadable.is_some()
        {
            headings += &format!("{}: {}", files::title(parts), heading(&recording));
        }
        ranks.extend(reader.rank);
    }
    let ranks = Ranks::of(ranks);
    print_tables(
        cli,
        options,
        &[ranks.table(), ranks.spread_table()],
        &[("verdict", &ranks.verdict())],
        || format!("{headings}{} ranks\n\n{}", recordings.len(), ranks.text(columns())),
    )
}

/// Refuses outputs that are of one recording.
fn check_outputs(cli: &Cli, options: &ReportOptions) -> Result<()> {
    if options.html.is_some() || options.open {
        bail!("a page is of one recording: name one file");
    }
    if !outputs(cli, options).is_empty() {
        bail!("one recording is converted at a time: name one file");
    }
    Ok(())
}

/// Prints tables as CSV or JSON, or the text.
fn print_tables(
    cli: &Cli,
    options: &ReportOptions,
    tables: &[Table],
    texts: &[(&str, &str)],
    text: impl Fn() -> String,
) -> Result<u8> {
    let names: Vec<&str> = tables.iter().map(|table| table.name).collect();
    check_table(options, &names)?;
    let named = options.csv.as_ref().and_then(|name| tables.iter().find(|table| table.name == *name));
    let out = match (named, cli.format) {
        (Some(table), _) => table.csv(),
        (None, Format::Json) => all_json(tables, texts),
        (None, _) => text().lines().map(|line| report::value::escape(line.as_bytes()) + "\n").collect(),
    };
    print(&out)?;
    Ok(0)
}

/// An object with the texts and the tables by their names.
fn all_json(tables: &[Table], texts: &[(&str, &str)]) -> String {
    let mut out = String::from("{");
    for (name, text) in texts {
        json::string(&mut out, name);
        out.push(':');
        json::string(&mut out, text);
        out.push(',');
    }
    for (at, table) in tables.iter().enumerate() {
        out += if at == 0 { "\"" } else { ",\"" };
        out += table.name;
        out += "\":";
        table.json(&mut out);
    }
    out + "}\n"
}

fn columns() -> usize {
    terminal::known_columns().unwrap_or(COLUMNS)
}

/// Reads records into a summary.
struct SummaryReader<'s>(&'s mut Summary);

impl Reader for SummaryReader<'_> {
    fn begin(&mut self, _: &Run) {}

    fn record(&mut self, record: Record) {
        self.0.add(&record);
    }
}

/// Reads the records of a rank.
#[derive(Default)]
struct RankReader {
    rank: Option<Rank>,
    /// The folder for a folder of tables.
    folder: Option<PathBuf>,
    tables: Option<Result<Conversion>>,
}

impl Reader for RankReader {
    fn begin(&mut self, run: &Run) {
        if self.rank.is_some() {
            return;
        }
        self.rank = Rank::of(run);
        let number = run.rank.unwrap_or_default();
        let folder = self.folder.iter().map(|folder| folder.join(format!("rank{number}")));
        self.tables = folder.map(|folder| Conversion::to_parquet(&folder, run)).next();
    }

    fn record(&mut self, record: Record) {
        self.rank.iter_mut().for_each(|rank| rank.add(&record));
        if let Some(Ok(tables)) = &mut self.tables
            && let Err(error) = tables.record(&record)
        {
            self.tables = Some(Err(error));
        }
    }
}
