//! `metes-install` as pods and people run it.

mod certificates;
mod install;
mod member;
mod snapshots;
mod support;
