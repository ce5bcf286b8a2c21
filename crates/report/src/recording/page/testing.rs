//! Records for tests of the page.

use crate::export::{Data, Fields, Kind, Record, Site, Span, Status, Thread};
use std::sync::Arc;

/// A successful call of thread 2 of process 1.
pub(super) fn call(name: &str, start: u64, duration_ns: u64) -> Record {
    let span = Span {
        duration_ns,
        span_id: start + 1,
        parent_id: 0,
        status: Status::Ok,
        result: None,
        launch_id: 0,
    };
    let thread = Thread { pid: 1, tid: 2, comm: "app".into(), program: "app".into() };
    let site = Site { func: name.into(), api: name.into(), probe: "".into() };
    Record {
        kind: Kind::Span(span),
        time_ns: start,
        thread: Some(Arc::new(thread)),
        site: Arc::new(site),
        name: name.into(),
        fields: Fields::default(),
    }
}

/// The record with these arguments.
pub(super) fn with(record: Record, fields: &[(&str, Data)]) -> Record {
    let fields = fields.iter().map(|(name, value)| (Arc::from(*name), value.clone())).collect();
    Record { fields, ..record }
}
