//! Compiled object to a running session.
