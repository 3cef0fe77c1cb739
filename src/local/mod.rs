//! What a run knows and keeps on its own node: who and when it is, the spool of frees that could
//! not be carried out, and the highest revision of the store that was seen here.

pub mod core;
pub mod files;
pub mod mark;
pub mod node;
pub mod setup;
pub mod spool;
pub mod state;
pub mod stdin;
