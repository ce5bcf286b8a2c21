//! Tracepoints, as the machines of several tests describe them.

use lang::catalog::{Marker, MarkerArg, MarkerPlace, RecordField, RecordKind};

/// The record of a tracepoint: that of `sched:sched_switch` has a field of each kind.
pub(crate) fn of(category: &str, event: &str) -> Option<Vec<RecordField>> {
    let bytes = |count| RecordKind::Array { bytes: 1, signed: false, count };
    let fields = match (category, event) {
        ("sched", "sched_switch") => return Some(record()),
        ("tcp", "tcp_retransmit_skb") => vec![
            ("family", 8, RecordKind::Int { bytes: 2, signed: false }),
            ("daddr", 10, bytes(4)),
            ("daddr_v6", 14, bytes(16)),
        ],
        ("sched", "sched_process_exit") => vec![("pid", 8, RecordKind::Int { bytes: 4, signed: true })],
        ("syscalls", "sys_enter_ioctl") => {
            let passed = |name, offset| (name, offset, RecordKind::Int { bytes: 8, signed: false });
            vec![passed("fd", 16), passed("cmd", 24), passed("arg", 32)]
        }
        ("syscalls", "sys_exit_ioctl" | "sys_exit_openat") => {
            vec![("ret", 16, RecordKind::Int { bytes: 8, signed: true })]
        }
        ("syscalls", "sys_enter_openat") => vec![("filename", 24, RecordKind::Pointer { text: true })],
        ("syscalls", "sys_enter_close") => vec![("fd", 16, RecordKind::Int { bytes: 8, signed: false })],
        ("timer", "timer_expire_entry") => vec![("function", 8, RecordKind::Pointer { text: false })],
        _ => return None,
    };
    Some(
        fields
            .into_iter()
            .map(|(name, offset, kind)| RecordField { name: name.into(), offset, kind })
            .collect(),
    )
}

/// Offset of a field of a kernel struct.
pub(crate) fn kernel_field(of: &str, field: &str) -> Option<u32> {
    let fields = [("real_parent", 100), ("tgid", 200), ("comm", 300), ("group_leader", 400)];
    fields.into_iter().find(|(name, _)| of == "task_struct" && field == *name).map(|(_, offset)| offset)
}

fn record() -> Vec<RecordField> {
    let int = |bytes, signed| RecordKind::Int { bytes, signed };
    let kinds = [
        ("prev_comm", 8, RecordKind::Text(16)),
        ("prev_pid", 24, int(4, true)),
        ("prev_state", 32, int(8, false)),
        ("name", 40, RecordKind::LocatedText),
        ("path", 48, RecordKind::Pointer { text: true }),
        ("args", 56, RecordKind::Array { bytes: 8, signed: false, count: 6 }),
        ("regs", 104, RecordKind::Other("struct pt_regs".into())),
    ];
    kinds.map(|(name, offset, kind)| RecordField { name: name.into(), offset, kind }).into()
}

/// The arguments of a raw tracepoint.
pub(crate) fn passed() -> Vec<RecordField> {
    let field = |at: u32, name: &str, kind| RecordField { name: name.into(), offset: 8 * at, kind };
    vec![
        field(0, "preempt", RecordKind::Int { bytes: 1, signed: false }),
        field(1, "prev", RecordKind::Pointer { text: false }),
        field(2, "next", RecordKind::Pointer { text: false }),
        field(3, "prev_state", RecordKind::Int { bytes: 4, signed: false }),
    ]
}

/// Markers of a program: one at two positions with different locations of its values, and one with each kind of
/// value.
pub(crate) fn markers() -> Vec<Marker> {
    let register = |name: &str| MarkerPlace::Register(name.into());
    let memory = |base: &str, index: Option<(&str, u8)>, offset| MarkerPlace::Memory {
        base: Some(base.into()),
        index: index.map(|(name, scale)| (name.to_owned(), scale)),
        offset,
    };
    let arg = |bytes, signed, place| MarkerArg { bytes, signed, place };
    let marker = |name: &str, offset, semaphore, args| Marker {
        provider: "app".into(),
        name: name.into(),
        offset,
        semaphore,
        args,
    };
    let first = vec![arg(8, false, register("ax")), arg(4, true, register("dx"))];
    let second = vec![arg(8, false, memory("bp", None, -16)), arg(4, true, MarkerPlace::Constant(-1))];
    let kinds = vec![
        arg(4, false, memory("ax", Some(("cx", 4)), 8)),
        arg(8, false, MarkerPlace::Unreadable("8f@%xmm0".into())),
    ];
    vec![
        marker("batch", 0x2000, 0, first),
        marker("batch", 0x2100, 0, second),
        marker("kinds", 0x2200, 0x3000, kinds),
    ]
}
