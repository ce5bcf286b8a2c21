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

/// What a tracepoint passes on, as if by a kernel.
pub fn passed() -> Vec<RecordField> {
    let field = |at: u32, name: &str, kind| RecordField { name: name.into(), offset: 8 * at, kind };
    vec![
        field(0, "preempt", RecordKind::Int { bytes: 1, signed: false }),
        field(1, "prev", RecordKind::Pointer { text: false }),
        field(2, "next", RecordKind::Pointer { text: false }),
        field(3, "prev_state", RecordKind::Int { bytes: 4, signed: false }),
    ]
}
