//! Checked program to relocatable BPF object and manifest.
