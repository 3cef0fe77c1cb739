//! The `metes-reconciler` binary.

fn main() {}
