//! Errors of reading an object.

/// The reason why an object cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// Not an ELF file.
    #[error("not an object: {0}")]
    Elf(#[from] goblin::error::Error),
    /// Invalid BTF.
    #[error("bad BTF: {0}")]
    Btf(&'static str),
    /// Unsupported kind of map.
    #[error("no map kind {0} here")]
    MapKind(u32),
    /// A relocation with an unknown target.
    #[error(
        "the relocation at {at} of {section} refers to `{symbol}`, which is no map, function, constant or kfunc"
    )]
    Reference {
        /// Section of the instruction.
        section: String,
        /// Offset in the section in bytes.
        at: u64,
        /// Target symbol.
        symbol: String,
    },
}
