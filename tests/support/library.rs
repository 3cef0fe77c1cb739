//! The support of tests and measurements that run the library's own verbs instead of the binary.

use std::time::Duration;

use metes_core::pool::{NetworkName, Range, RangeSet, RangeSpec};
use metes_etcd::client::{Access, Etcd};

/// The library's connection to an etcd without TLS, which gives up after `give_up` where nobody listens.
pub fn plain_store(endpoint: &str, give_up: Duration) -> Etcd {
    let (endpoints, prefix) = (vec![endpoint.to_owned()], String::new());
    Etcd::new(Access { endpoints, tls: None, user: None, prefix, patience: give_up.into() })
}

/// A set of one range of the default network.
pub fn range_set(subnet: &str, first: &str, last: &str) -> RangeSet {
    let spec = RangeSpec {
        network: NetworkName::default(),
        subnet: subnet.parse().expect("a prefix"),
        first: first.parse().expect("an address"),
        last: last.parse().expect("an address"),
        excludes: Vec::new(),
        never: Vec::new(),
        gateway: None,
    };
    RangeSet::new(vec![Range::new(spec).expect("a range")]).expect("a set")
}
