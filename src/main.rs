//! `cudatrace`: the command line.
fn main() {}
