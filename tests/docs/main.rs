//! Guards: documents, layout and code agree.

mod corpus;
mod install_doc;
mod layout;
mod messages;
mod promises;
mod readme;
mod reconciler;
mod samples;

use std::fs;
use std::path::Path;

/// A file of the repository, by its path from the root.
fn read(file: impl AsRef<Path>) -> String {
    let file = support::root().join(file);
    fs::read_to_string(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()))
}
