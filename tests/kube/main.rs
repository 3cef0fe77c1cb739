//! The reconciler, the webhook and the manifests, on a real kube-apiserver.

mod adopt;
mod certificates;
mod chart;
mod identities;
mod import;
mod kube_api;
mod manifests;
mod manifests_api;
mod monitoring;
mod node_identity;
mod operators;
mod rbac;
mod reconcile;
mod reconcile_faults;
mod reconcile_races;
mod serve;
mod signer;
mod sticky;
mod webhook;
