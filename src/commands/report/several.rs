//! `cudatrace report A B` and `cudatrace report traces/*_rank*.arrows`: several recordings beside each other.

use super::{
    CHANGES, COLUMNS, Conversion, ReportOptions, check_table, files, finish_page, heading, outputs,
    page_path, print, read, refuse_read_files, warn_of_missing, write_page,
};
use crate::cli::{Cli, Format};
use crate::console::Messages;
use crate::terminal;
use anyhow::{Result, bail};
use report::export::{Record, Run, json};
use report::recording::Reader;
use report::recording::difference::Difference;
use report::recording::page::{Page, pair};
use report::recording::ranks::{Rank, Ranks};
use report::recording::summary::Summary;
use report::recording::summary_tables::Table;
use std::path::PathBuf;

/// Prints the differences of two recordings, or writes a page of both.
pub fn compare(
    cli: &Cli,
    options: &ReportOptions,
    messages: &Messages,
    recordings: [Vec<PathBuf>; 2],
) -> Result<u8> {
    check_outputs(cli, options)?;
    if options.parquet.is_some() {
        bail!("--parquet is of one recording, or of the ranks of a job: name one file");
    }
    check_table(options, &[CHANGES])?;
    let page_path = pair_path(options, &recordings)?;
    refuse_read_files(cli, options, page_path.as_deref(), &recordings.concat())?;
    let has_page = page_path.is_some();
    let mut both = [(); 2].map(|()| OneOfTwo::new(has_page));
    let mut read_ones = Vec::new();
    for (reader, parts) in both.iter_mut().zip(&recordings) {
        let recording = read(parts, reader)?;
        warn_of_missing(parts, &recording, messages);
        read_ones.push(recording);
    }
    let [before, after] = &both;
    let difference = Difference::of(&before.summary, &after.summary);
    let titles = recordings.map(|parts| files::title(&parts));
    let html = |at: usize| {
        both[at].page.as_ref().map(|page| page.html(&titles[at], &read_ones[at], &both[at].summary))
    };
    if let (Some(path), Some(one), Some(other)) = (&page_path, html(0), html(1)) {
        let pages = [(titles[0].as_str(), one.as_str()), (titles[1].as_str(), other.as_str())];
        write_page(path, &pair(pages, &difference.verdict(), &difference.text(COLUMNS)))?;
        finish_page(path, options, messages);
        if prints_text(cli, options) {
            return Ok(0);
        }
    }
    let headings: Vec<String> = read_ones.iter().map(heading).collect();
    let [one, other] = titles;
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
pub fn ranks(
    cli: &Cli,
    options: &ReportOptions,
    messages: &Messages,
    recordings: Vec<Vec<PathBuf>>,
) -> Result<u8> {
    check_outputs(cli, options)?;
    if options.html.is_some() || options.open {
        match recordings.len() {
            2 => bail!("--diff compares these two ranks in a page; without it they are ranks of one job"),
            _ => bail!("a page is of one recording, or of two that are compared: name them"),
        }
    }
    let (mut ranks, mut headings) = (Vec::new(), String::new());
    for parts in &recordings {
        let folder = options.parquet.clone();
        let mut reader = RankReader { folder, ..RankReader::default() };
        let recording = read(parts, &mut reader)?;
        warn_of_missing(parts, &recording, messages);
        if let Some(tables) = reader.tables {
            tables?.finish(&recording)?;
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
    if let Some(folder) = &options.parquet {
        messages.note(&format!("wrote {}", folder.display()));
        if prints_text(cli, options) {
            return Ok(0);
        }
    }
    print_tables(
        cli,
        options,
        &[ranks.table(), ranks.spread_table()],
        &[("verdict", &ranks.verdict())],
        || format!("{headings}{} ranks\n\n{}", recordings.len(), ranks.text(columns())),
    )
}

/// Whether the text is printed, and no table: there is none if another output is requested, as for one recording.
fn prints_text(cli: &Cli, options: &ReportOptions) -> bool {
    options.csv.is_none() && cli.format != Format::Json
}

/// Path of the page of two recordings: from the command line, or next to the second one if it is only to be opened.
fn pair_path(options: &ReportOptions, recordings: &[Vec<PathBuf>; 2]) -> Result<Option<PathBuf>> {
    let [one, other] = recordings;
    let path = page_path(options, other)?;
    Ok(match options.html {
        Some(_) => path,
        None => path
            .map(|page| page.with_file_name(format!("{}_and_{}.html", files::stem(one), files::stem(other)))),
    })
}

/// Refuses outputs that are of one recording.
fn check_outputs(cli: &Cli, options: &ReportOptions) -> Result<()> {
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

/// A recording that is compared, and its page if there is one.
struct OneOfTwo {
    summary: Summary,
    page: Option<Page>,
}

impl OneOfTwo {
    fn new(has_page: bool) -> OneOfTwo {
        OneOfTwo { summary: Summary::default(), page: has_page.then(Page::default) }
    }
}

impl Reader for OneOfTwo {
    fn begin(&mut self, _: &Run) {}

    fn record(&mut self, record: Record) {
        self.page.iter_mut().for_each(|page| page.add(&record));
        self.summary.add(&record);
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
