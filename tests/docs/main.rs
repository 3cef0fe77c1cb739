//! Guards: documents, layout and code agree.

mod corpus;
mod install_doc;
mod layout;
mod marks;
mod promises;
mod readme;
mod reconciler;
mod samples;
