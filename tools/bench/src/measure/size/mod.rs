//! The costs that must not grow: the time of an ADD with the number of held addresses and with other queues, and the
//! space for each address.

pub(in crate::measure) mod fill;
mod large;
mod queues;
mod space;

use std::time::Duration;

use serde_json::Value;

use crate::lab::of_pod;
use crate::options::Options;
use crate::results::Results;
use support::Node;

pub(crate) fn measure(options: &Options, results: &mut Results) {
    large::measure(options, results);
    queues::measure(options, results);
    space::measure(options, results);
}

/// Adds and deletes. Returns the time of the ADD.
fn add_and_del(node: &Node, id: &str, config: &Value) -> Duration {
    let added = of_pod(node.add(id), id).config(config).run();
    added.ok();
    of_pod(node.del(id), id).config(config).run().silent();
    added.elapsed
}
