//! What a run knows and keeps on its own node: who the node is, when the run began, the frees that could not be carried
//! out, the highest revision of the store that was seen here, and hints for the next run.

pub mod core;
pub mod errors;
pub mod files;
pub mod mark;
pub mod names;
pub mod node;
mod own_file;
pub mod recall;
pub mod remember;
pub mod scope_hints;
pub mod setup;
pub mod spool;
pub mod state;
pub mod stdin;
