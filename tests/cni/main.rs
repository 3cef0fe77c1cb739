//! The plugin as a runtime calls it: a real etcd, real CNI plugins, real network namespaces.

mod bad_input;
mod cni_contract;
mod contention;
mod cooldown;
mod deaths;
mod end_to_end;
mod etcd_versions;
mod first_request;
mod foreign;
mod gc;
mod golden;
mod host_file;
mod hostlocal;
mod identity;
mod large_ranges;
mod node_state;
mod ownership;
mod proposals;
mod runs;
mod secrets;
mod static_form;
mod sticky;
mod whereabouts;
