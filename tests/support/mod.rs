//! What every black-box test uses: a real etcd, nodes that run the real binary, network namespaces, a real
//! kube-apiserver and the real reconciler.
//!
//! The normal way is one etcd for a whole test process and one [`Cluster`] (a key prefix, a folder and host
//! files of its own) for each test. Tests that stop, fill or secure a store start an [`Etcd`] of their own.

#![allow(dead_code, unused_imports, unused_macros, reason = "each test file uses a part of it")]

mod api_proxy;
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
mod store;
mod tls;
mod tool;
mod trio;
mod wait;
mod world;

pub(crate) use api_proxy::{ApiProxy, Asked, Rule};
pub(crate) use cluster::{Cluster, Node};
pub(crate) use cnitool::Cnitool;
pub(crate) use etcd::{Etcd, EtcdOptions, Learner, free_ports};
pub(crate) use kube::{Access, Answer, KubeApi, Reachable};
pub(crate) use kube_objects::{KubeNode, Pod, PodBuilder};
pub(crate) use kubectl::{Kubectl, Manifests};
pub(crate) use kv::left_to_etcd;
pub(crate) use library::{plain_store, range_set};
pub(crate) use mutate::{Dice, mutate_bytes, mutate_json};
pub(crate) use netns::{Bridge, Netns, bridge_plugin};
pub(crate) use outcome::Outcome;
pub(crate) use process::spawn_bound;
pub(crate) use reconcile::Reconciler;
pub(crate) use run::{Run, Running};
pub(crate) use serve::{Metrics, Server, serve, serve_through, start};
pub(crate) use shown::{Block, Shown, normalized};
pub(crate) use slow_links::{Relays, SlowTrio};
pub(crate) use store::Store;
pub(crate) use tls::Tls;
pub(crate) use tool::{failing_metes, failing_reconciler, metes, reconciler, tool};
pub(crate) use trio::{MEMBERS, Trio};
pub(crate) use wait::{in_parallel, wait_for};
pub(crate) use world::{Pass, World};

use serde_json::{Value, json};

/// A network configuration around `ipam`, whose `type` is filled in.
pub(crate) fn network(ipam: Value) -> Value {
    network_as("1.0.0", "net", ipam)
}

/// The same in a given CNI version and under a given CNI network name.
pub(crate) fn network_as(cni_version: &str, name: &str, mut ipam: Value) -> Value {
    let keys = ipam.as_object_mut().expect("ipam is an object");
    keys.entry("type").or_insert_with(|| json!("metes"));
    json!({"cniVersion": cni_version, "name": name, "type": "bridge", "ipam": ipam})
}

/// Every case that failed, by its name.
#[track_caller]
pub(crate) fn report(failures: impl IntoIterator<Item = Option<String>>) {
    let failures: Vec<String> = failures.into_iter().flatten().collect();
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}
