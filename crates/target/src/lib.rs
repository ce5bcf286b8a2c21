//! This machine: ELF files, processes, libraries, stacks.
