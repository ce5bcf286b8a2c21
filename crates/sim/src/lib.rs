//! A BPF machine and a reference interpreter, for tests.
