//! What the machines of several tests say of a tracepoint.

use lang::catalog::{RecordField, RecordKind};

/// The record of `sched:sched_switch`, with a field of each kind.
pub fn record() -> Vec<RecordField> {
    let int = |bytes, signed| RecordKind::Int { bytes, signed };
    let kinds = [
        ("prev_comm", 8, RecordKind::Text(16)),
        ("prev_pid", 24, int(4, true)),
        ("prev_state", 32, int(8, false)),
        ("name", 40, RecordKind::LocatedText),
        ("path", 48, RecordKind::Pointer { text: true }),
        ("args", 56, RecordKind::Other("unsigned long[6]".into())),
    ];
    kinds.map(|(name, offset, kind)| RecordField { name: name.into(), offset, kind }).into()
}
