//! tmp
pub mod gather;
pub mod nads;
pub mod objects;
pub mod pools;
