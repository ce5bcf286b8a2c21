//! Built-ins of maps, which the checker itself implements.

use crate::builtins::args::{Core, CoreAction};
use crate::builtins::row::{BuiltinSpec, Check, MANY, call};
use Check::{Action, Function};

pub(super) static ROWS: &[BuiltinSpec] = &[
    call(
        Function(|c, f| c.core(Core::Len, f)),
        1..=1,
        "len(@map), len(ustack), len(kstack)",
        "number of keys, or of frames, uint64",
        "interval:s:1 { print(len(@start)) } uprobe:libcuda:cuInit { @start[tid] = nsecs }",
    ),
    call(
        Function(|c, f| c.core(Core::IsScalar, f)),
        1..=1,
        "is_scalar(@map)",
        "whether the map has one value and no keys, a constant bool",
        "uprobe:libcuda:cuInit { @calls[pid] = count(); print(is_scalar(@calls)) }",
    ),
    call(
        Function(|c, f| c.core(Core::HasKey, f)),
        2..=2,
        "has_key(@map, key)",
        "whether the map has the key",
        "uretprobe:libcuda:cuInit / has_key(@start, tid) / { @ = count() } uprobe:libcuda:cuInit { @start[tid] = 1 }",
    ),
    call(
        Function(|c, f| c.core(Core::Find, f)),
        3..=3,
        "find(@map, key, $value)",
        "whether the map has the key; if so, the variable is set to its value",
        "uprobe:libcuda:cuInit { @start[tid] = nsecs; if (find(@start, tid, $then)) { print($then) } }",
    ),
    call(
        Function(|c, f| c.core(Core::Delete, f)),
        1..=MANY,
        "delete(@map, key)",
        "removes a key; true if it existed",
        "uprobe:libcuda:cuInit { @start[tid] = nsecs; delete(@start, tid) }",
    ),
    call(
        Action(|c, f, _| c.core_action(CoreAction::Print, f)),
        1..=3,
        "print(value), print(@map[, top[, divisor]])",
        "prints a value, or the contents of a map at the time of printing",
        "interval:s:1 { print(@, 10) } uprobe:libcuda:cu* { @[func] = count() }",
    ),
    call(
        Action(|c, f, _| c.core_action(CoreAction::Clear, f)),
        1..=1,
        "clear(@map)",
        "removes all keys",
        "interval:s:1 { clear(@) } uprobe:libcuda:cu* { @[func] = count() }",
    ),
    call(
        Action(|c, f, _| c.core_action(CoreAction::Zero, f)),
        1..=1,
        "zero(@map)",
        "sets all values to 0",
        "interval:s:1 { zero(@) } uprobe:libcuda:cu* { @[func] = count() }",
    ),
];
