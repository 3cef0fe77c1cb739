//! The space that one held address takes in etcd, with names as long as in large clusters.

use etcd_client::{CompactionOptions, GetOptions};
use serde_json::json;

use crate::lab::{Lab, Wire};
use crate::options::{Options, Section};
use crate::results::{Data, Results};
use crate::samples::float;
use support::{Store, in_parallel, network_as};

const NAME: &str = "a-name-of-forty-characters-as-they-are-x";
const AT_A_TIME: usize = 16;

pub(super) fn measure(options: &Options, results: &mut Results) {
    let lab = Lab::new(options, Wire::Plain);
    let node = lab.cluster.node_with(NAME, json!({"cluster": NAME}));
    let config = network_as("1.0.0", NAME, json!({"range": "10.0.0.0/8", "network_name": NAME}));
    let add = |number: usize| {
        let pod = format!("{}-{number:05}", &NAME[..34]);
        let uid = format!("00000000-0000-4000-8000-{number:012}");
        node.add(&format!("{number:064x}")).pod(NAME, &pod, &uid).config(&config).run().ok();
    };
    // The meta record and the first page are there before anything is counted.
    add(options.storm);
    let before = compacted(lab.cluster.store());
    in_parallel(AT_A_TIME, 0..options.storm, add);
    let bytes = compacted(lab.cluster.store()) - before;
    lab.cluster.assert_whole();
    let each = bytes / float(options.storm);
    let what = format!("etcd space per held address, of {}", options.storm);
    results.add(Section::Size, "bytes", what, Data::Number(vec![each], "B"));
}

/// The size of the database after compaction and defragmentation, without leases.
fn compacted(store: &Store) -> f64 {
    let bytes = store.run(async |client| {
        for lease in client.leases().await?.leases() {
            client.lease_revoke(lease.id()).await?;
        }
        let now = client.get("\0", Some(GetOptions::new().with_count_only())).await?;
        let revision = now.header().expect("an answer has a header").revision();
        client.compact(revision, Some(CompactionOptions::new().with_physical())).await?;
        client.defragment().await?;
        Ok(client.status().await?.db_size())
    });
    float(usize::try_from(bytes).expect("a size is not negative"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_has_forty_characters() {
        assert_eq!(NAME.len(), 40);
    }
}
