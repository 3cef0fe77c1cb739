//! Promises for any input: one function for each way in which foreign bytes come in. libFuzzer looks for an input that
//! breaks a promise (`hack/fuzz`). `tests/docs/corpus.rs` replays the inputs that it has found interesting.
//!
//! A function panics exactly if a promise is broken.

mod args;
mod choice;
mod config;
mod definitions;
mod dice;
mod host;
mod lists;
mod node_files;
mod pem;
mod pools;
mod previous;
mod results;
mod stdin;
mod stored;
mod verdict;

/// A function that takes any bytes.
pub type Target = fn(&[u8]);

/// Every target by its name, which is also that of its corpus.
pub const TARGETS: [(&str, Target); 13] = [
    ("args", args::args),
    ("choice", choice::choice),
    ("definitions", definitions::definitions),
    ("host", host::host),
    ("lists", lists::lists),
    ("node_files", node_files::node_files),
    ("pem", pem::pem),
    ("pools", pools::pools),
    ("previous", previous::previous),
    ("results", results::results),
    ("stdin", stdin::stdin),
    ("stored", stored::stored),
    ("verdict", verdict::verdict),
];

/// The target of this name.
#[must_use]
pub fn target(name: &str) -> Target {
    let (_, target) = TARGETS.iter().find(|(known, _)| *known == name).expect("a target of this name");
    *target
}
