//! Script text to checked program.
