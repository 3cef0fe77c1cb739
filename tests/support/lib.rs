//! The support of every black-box test: a real etcd, nodes that run the real binary, network namespaces, a real
//! kube-apiserver and the real reconciler.
//!
//! The normal way is one etcd for a whole test process and one [`Cluster`] (a key prefix, a folder and host
//! files of its own) for each test. Tests that stop, fill or secure a store start an [`Etcd`] of their own.

#![allow(missing_docs, reason = "used by tests alone, and most names say it")]
#![allow(clippy::new_without_default, reason = "each new one is another server, folder or namespace")]

mod api_proxy;
pub mod chaos_proxies;
mod cluster;
mod cnitool;
mod etcd;
mod http;
mod kube;
mod kube_objects;
mod kubectl;
mod kv;
mod library;
mod mutate;
mod netns;
mod outcome;
mod process;
mod reconcile;
mod run;
mod serve;
mod shown;
mod slow_links;
mod stopping;
mod store;
mod tls;
mod tool;
mod trio;
mod wait;
mod world;

pub use api_proxy::{ApiProxy, Asked, Rule};
pub use cluster::{Cluster, Node};
pub use cnitool::Cnitool;
pub use etcd::{Etcd, EtcdOptions, Learner, free_ports};
pub use kube::{Access, Answer, KUBELET, KubeApi, Reachable};
pub use kube_objects::{KubeNode, Pod, PodBuilder};
pub use kubectl::{Kubectl, Manifests};
pub use library::{plain_store, range_set};
pub use mutate::{Dice, mutate_bytes, mutate_json};
pub use netns::{Bridge, Netns, bridge_plugin};
pub use outcome::Outcome;
pub use process::{spawn_bound, temporary, temporary_in_memory};
pub use reconcile::Reconciler;
pub use run::{Run, Running};
pub use serve::{Metrics, Server, serve, serve_through, start, view};
pub use shown::{Block, Shown, normalized};
pub use slow_links::{Relays, SlowTrio};
pub use stopping::Stopping;
pub use store::Store;
pub use tls::Tls;
pub use tool::{failing_metes, failing_reconciler, metes, metes_install, reconciler, root, tool};
pub use trio::{MEMBERS, Trio};
pub use wait::{alone, in_parallel, wait_for};
pub use world::{Pass, World};

use serde_json::{Value, json};

/// A network configuration around `ipam`, whose `type` is filled in.
pub fn network(ipam: Value) -> Value {
    network_as("1.0.0", "net", ipam)
}

/// The same in a given CNI version and under a given CNI network name.
pub fn network_as(cni_version: &str, name: &str, mut ipam: Value) -> Value {
    let keys = ipam.as_object_mut().expect("ipam is an object");
    keys.entry("type").or_insert_with(|| json!("metes"));
    json!({"cniVersion": cni_version, "name": name, "type": "bridge", "ipam": ipam})
}

/// Every case that failed, by its name.
#[track_caller]
pub fn report(failures: impl IntoIterator<Item = Option<String>>) {
    let failures: Vec<String> = failures.into_iter().flatten().collect();
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}
