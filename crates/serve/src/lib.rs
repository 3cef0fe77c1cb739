//! What a program needs that is asked for its metrics: a small HTTP server, and Prometheus' text format.

pub mod exposition;
pub mod listen;
pub mod shared;
