//! The `metes` binary.

fn main() {}
