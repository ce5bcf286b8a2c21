//! Maps of the checked program.

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
    /// Name without the sigil; empty for `@`.
    pub name: String,
    /// Types of the parts of the key; empty for a scalar map.
    pub key: Vec<Type>,
    /// The kind of the values.
    pub value: MapValue,
    /// Maximum number of keys.
    pub max_entries: u32,
    /// `lruhash`: if the map is full, a new key replaces one that has been unused for long.
    pub evicts: bool,
    /// `processhash`: the key begins with a process id and is deleted after that process has ended.
    pub by_process: bool,
    /// The metric as which the map is exported.
    pub metric: Metric,
    /// Source range of the first use.
    pub span: Span,
}

/// The kind of a map's values.
#[derive(Clone, Debug, PartialEq)]
pub enum MapValue {
    /// `@x = e`
    Plain(Type),
    /// `@x = count()`
    Agg(Agg),
}
