//! What a run knows and keeps on its own node: who the node is, when the run began, the frees that could not be carried
//! out, and the highest revision of the store that was seen here.

pub mod core;
pub mod files;
pub mod mark;
pub mod node;
pub mod setup;
pub mod spool;
pub mod state;
pub mod stdin;
