//! Maps of a program.

use crate::hir::types::Type;
use crate::source::span::Span;
use wire::manifest::Metric;
use wire::map::Agg;

/// Index into [`Program::maps`].
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct MapId(pub u32);

/// A map.
#[derive(Clone, Debug, PartialEq)]
pub struct Map {
    /// Without the sigil; empty for `@`.
    pub name: String,
    /// Types of the key's parts; empty for a scalar map.
    pub key: Vec<Type>,
    /// What a cell holds.
    pub value: MapValue,
    /// Keys at most.
    pub max_entries: u32,
    /// `lruhash`: where there is no room, a new key takes the place of one that was not used for long.
    pub evicts: bool,
    /// `processhash`: the key begins with a process id, and is deleted when that process has ended.
    pub by_process: bool,
    /// How it is exported as a metric.
    pub metric: Metric,
    /// First use.
    pub span: Span,
}

/// What a cell of a map holds.
#[derive(Clone, Debug, PartialEq)]
pub enum MapValue {
    /// `@x = e`
    Plain(Type),
    /// `@x = count()`
    Agg(Agg),
}
