//! Guards: documents, layout and code agree.

mod corpus;
mod install_doc;
mod layout;
mod promises;
mod readme;
mod reconciler;
mod samples;
