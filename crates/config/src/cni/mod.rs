//! The two sides of a CNI call: its request (environment, stdin) and its answer (result, error, version).
//!
//! Everything here is pure: values in, values out.

pub mod address;
pub mod args;
pub mod error;
pub mod json;
pub mod previous;
pub mod request;
pub mod result;
pub mod section;
pub mod verb;
pub mod version;

pub use error::{Code, Error};
pub use json::Json;
pub use request::{Environment, Request};
pub use section::Section;
pub use verb::Verb;
pub use version::Version;
