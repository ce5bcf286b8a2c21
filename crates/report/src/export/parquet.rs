//! A recording as tables of Apache Parquet, for DuckDB, Spark, Dask, ClickHouse and polars: calls, work of the GPU, and all else.
//!
//! The columns are those of the stream ([`columns`](super::columns)) with all ids, and with columns that tell recordings apart, so that the
//! tables of many ranks can be read as one. A file is complete only at its end, so that a run does not write this form: `cudatrace report`
//! makes it from a recording.

use std::io::{self, Write};
use std::sync::Arc;

use arrow_array::builder::{Int32Builder, StringDictionaryBuilder};
use arrow_array::types::Int32Type;
use arrow_array::{Array, ArrayRef, Int64Array, RecordBatch, TimestampMicrosecondArray};
use arrow_schema::{DataType, Field, Schema, SchemaRef, TimeUnit};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;

use super::arrow::{ROWS, Rows, failure};
use super::columns::{self, CallIds};
use super::format::Out;
use super::record::{Kind, Record};
use super::{End, Exporter, Run, jsonl};

/// Names of the tables, which are files `NAME.parquet`.
pub const TABLES: [&str; 3] = ["calls", "gpu", "events"];
/// Level of compression: a recording is written once and read often.
const LEVEL: i32 = 6;
/// Key of the number of dropped records in a file's metadata.
const DROPPED: &str = "cudatrace.dropped";

/// Exporter of tables.
pub struct Parquet {
    tables: [Table; TABLES.len()],
    ids: CallIds,
}

/// A table with its rows that are not written yet.
struct Table {
    out: ArrowWriter<Out>,
    rows: Rows,
    schema: SchemaRef,
    run: Arc<Run>,
}

impl Parquet {
    /// Opens the tables; `open` makes the file with a name.
    ///
    /// # Errors
    /// Errors of `open`.
    pub fn new(run: &Arc<Run>, mut open: impl FnMut(&str) -> io::Result<Out>) -> io::Result<Parquet> {
        let mut table = |name: &str| Table::new(open(&format!("{name}.parquet"))?, run);
        let [calls, gpu, events] = TABLES;
        Ok(Parquet { tables: [table(calls)?, table(gpu)?, table(events)?], ids: CallIds::new(run.clone()) })
    }
}

impl Exporter for Parquet {
    fn record(&mut self, record: &Record) -> io::Result<()> {
        let at = match (&record.kind, record.gpu_kind()) {
            (Kind::Span(_), None) => 0,
            (Kind::Span(_), Some(_)) => 1,
            _ => 2,
        };
        let table = &mut self.tables[at];
        table.rows.add(record, &self.ids);
        if table.rows.count == ROWS { table.write() } else { Ok(()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn finish(&mut self, end: &End) -> io::Result<()> {
        self.tables.iter_mut().try_for_each(|table| table.finish(end))
    }
}

impl Table {
    fn new(out: Out, run: &Arc<Run>) -> io::Result<Table> {
        let of_records = Arc::new(columns::schema(jsonl::run_line(run).trim_end().to_owned()));
        let fields = of_records.fields().iter().cloned();
        let schema = Schema::new(fields.chain(run_fields().map(Arc::new)).collect::<Vec<_>>());
        let schema = Arc::new(schema.with_metadata(of_records.metadata().clone()));
        let level = ZstdLevel::try_new(LEVEL).map_err(parquet_failure)?;
        let properties = WriterProperties::builder().set_compression(Compression::ZSTD(level)).build();
        let out = ArrowWriter::try_new(out, schema.clone(), Some(properties)).map_err(parquet_failure)?;
        Ok(Table { out, rows: Rows::new(of_records, true), schema, run: run.clone() })
    }

    fn write(&mut self) -> io::Result<()> {
        if self.rows.count == 0 {
            return Ok(());
        }
        let batch = self.rows.take().map_err(failure)?;
        let of_run = self.run_columns(&batch);
        let columns = batch.columns().iter().cloned().chain(of_run).collect();
        let batch = RecordBatch::try_new(self.schema.clone(), columns).map_err(failure)?;
        self.out.write(&batch).map_err(parquet_failure)
    }

    /// The columns of [`run_fields`].
    fn run_columns(&self, batch: &RecordBatch) -> [ArrayRef; 3] {
        let count = batch.num_rows();
        let starts =
            batch.column_by_name("ts").and_then(|column| column.as_any().downcast_ref::<Int64Array>());
        let wall = |start: Option<i64>| i64::try_from(self.run.wall_ns(start? as u64) / 1000).ok();
        let times = starts.into_iter().flatten().map(wall).collect::<TimestampMicrosecondArray>();
        let mut ranks = Int32Builder::with_capacity(count);
        let rank = self.run.rank.and_then(|rank| i32::try_from(rank).ok());
        let mut hosts = StringDictionaryBuilder::<Int32Type>::new();
        (0..count).for_each(|_| {
            ranks.append_option(rank);
            hosts.append_value(&self.run.host);
        });
        [Arc::new(times.with_timezone(UTC)), Arc::new(ranks.finish()), Arc::new(hosts.finish())]
    }

    fn finish(&mut self, end: &End) -> io::Result<()> {
        self.write()?;
        let run = jsonl::run_line(&self.run).trim_end().to_owned();
        let known = [(columns::RUN, run), (DROPPED, end.dropped.to_string())];
        known.into_iter().for_each(|(key, value)| {
            self.out.append_key_value_metadata(KeyValue::new(key.to_owned(), value));
        });
        self.out.finish().map_err(parquet_failure)?;
        self.out.inner_mut().flush()
    }
}

const UTC: &str = "UTC";

/// The columns that a table has beside those of a recording: wall-clock time of the start, rank and host. Spark cannot read times in ns.
fn run_fields() -> [Field; 3] {
    let word = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
    [
        Field::new("time", DataType::Timestamp(TimeUnit::Microsecond, Some(UTC.into())), true),
        Field::new("rank", DataType::Int32, true),
        Field::new("host", word, true),
    ]
}

fn parquet_failure(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(error) => match error.downcast::<io::Error>() {
            Ok(error) => *error,
            Err(error) => io::Error::other(error),
        },
        other => io::Error::other(other),
    }
}
