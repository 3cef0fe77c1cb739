//! Generates the Helm chart from what kustomize makes of `manifests/`, so that there is one source for both.
//!
//! A value of the chart stands for an edit of the kustomizations that docs/install.md tells an operator to make
//! ([`choices`]). kustomize renders the manifests for each combination of choices that matters to an object
//! ([`render`]); the lines that all of these texts have in common stand in the object's template once, and the others
//! behind a condition ([`merge`]). Values that are no choices, like names of images, are rendered as marks, which the
//! template replaces by expressions ([`template`]).

pub mod chart;
pub mod choices;
pub mod merge;
pub mod render;
pub mod template;

/// Why a chart cannot be generated.
pub type Error = Box<dyn std::error::Error>;
