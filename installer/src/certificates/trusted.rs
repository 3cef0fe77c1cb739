//! The ConfigMap with what nodes go by: it has no key, so each node's installer may read it.

use k8s_openapi::api::core::v1::ConfigMap;

use super::Authorities;
use crate::kubernetes::{config_map, text};

pub(super) const NAME: &str = "metes-ca";
/// Whom nodes trust to be etcd.
pub(super) const FILE: &str = "ca.crt";
/// Who signs the identities of nodes: an installer tells by it that its node has one of an authority that is gone.
pub(super) const OF_NODES: &str = "nodes.crt";

pub(super) fn object(authorities: &Authorities, namespace: &str) -> ConfigMap {
    let files = [(FILE, &*authorities.all.certificate), (OF_NODES, &*authorities.of_nodes.certificate)];
    config_map(namespace, NAME, &files)
}

/// Those that a person has added stay: an authority is replaced by having both for a while.
pub(super) fn is_good(found: &ConfigMap, authorities: &Authorities) -> bool {
    let has = |name, wanted: &str| text(found, name).is_some_and(|there| there.contains(wanted.trim()));
    has(FILE, &authorities.all.certificate) && has(OF_NODES, &authorities.of_nodes.certificate)
}
