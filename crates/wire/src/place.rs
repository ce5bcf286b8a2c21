//! Positions in scripts.

use serde::{Deserialize, Serialize};

/// A file of a script.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceFile {
    /// Name of the script that precedes its lines of output; empty for a single script.
    pub script: String,
    /// Name of the file in messages.
    pub file: String,
}

/// A position in a script.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Place {
    /// Index in [`crate::Manifest::sources`].
    pub source: u32,
    /// Line from 1; 0: no position.
    pub line: u32,
    /// Column from 1.
    pub column: u32,
}
