//! A syntax error before it has a message.

/// A syntax error that has been reported.
#[derive(Copy, Clone, Debug)]
pub(super) struct Mistake {
    /// Offset in the item at which parsing failed.
    pub at: usize,
    /// True if a `;` is missing there.
    pub separator: bool,
}

/// An item with a syntax error; parts with other errors may have been removed.
pub(crate) struct BrokenItem {
    /// Text of the item.
    pub(crate) item: String,
    /// Offset of the item in the script.
    pub(crate) base: usize,
    /// True for the last item.
    pub(crate) last: bool,
    /// True if an unterminated string may contain brackets.
    pub(crate) swallowed: bool,
}
