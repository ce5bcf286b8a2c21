//! The contract between a BPF program and its reader: layouts, manifest, decoding.
