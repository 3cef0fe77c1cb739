//! `metes-install` as pods and people run it.

mod care;
mod certificates;
mod install;
mod member;
mod metrics;
mod nodes;
mod revoke;
mod snapshots;
mod support;
