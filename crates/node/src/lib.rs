//! The knowledge that a run keeps on its own node: the node's names, the run's start, the frees that could not be
//! carried out, the highest revision of the store that was seen here, and hints for the next run.

pub mod core;
pub mod errors;
pub mod files;
pub mod mark;
pub mod names;
pub mod node;
pub mod outage;
mod own_file;
pub mod owner_hints;
pub mod recall;
pub mod remember;
pub mod runs;
pub mod runs_reader;
pub mod scope_hints;
pub mod setup;
pub mod spool;
pub mod state;
pub mod stdin;
