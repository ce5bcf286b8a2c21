//! A syntax error before it has a message.

/// A mistake that has been reported.
#[derive(Copy, Clone, Debug)]
pub struct Mistake {
    /// The furthest place that was read to, in the item.
    pub at: usize,
    /// A `;` is missing there.
    pub separator: bool,
}

/// An item with a mistake, perhaps after others have been taken out of it.
pub(crate) struct Broken {
    /// The item's text.
    pub(crate) item: String,
    /// Where it begins in the script.
    pub(crate) base: usize,
    /// Nothing follows it.
    pub(crate) last: bool,
    /// A string without end may have hidden brackets.
    pub(crate) swallowed: bool,
}
