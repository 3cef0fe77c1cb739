//! How the members of manifests/ begin, with real etcds: each is the program that a pod runs, which becomes etcd.

use std::fs;

use crate::nodes::{Nodes, Pod, run_all};
use etcd_client::UserAddOptions;

#[test]
fn three_empty_members_begin_and_begin_again_with_and_without_their_data() {
    let nodes = Nodes::new(1);
    // One after the other: none begins alone.
    let [mut first, second] = nodes.start_all([1, 2]);
    first.says(&format!("waits for {}", nodes.ip(3)));
    first.still_waits();
    let pods = run_all([first, second, nodes.start(3)]);
    nodes.put(1, "first");
    let ids = nodes.members(&[1, 2, 3]);
    drop(pods);

    // Each with its data, and nobody waits for anybody.
    let alone = nodes.start(1);
    alone.runs();
    let pods = nodes.start_all([2, 3]);
    nodes.put(2, "second");
    assert_eq!(nodes.members(&[1, 2, 3]), ids);
    (1..=3).for_each(|node| nodes.assert_has(node, "first"));
    drop((alone, pods));

    // All is lost.
    (1..=3).for_each(|node| nodes.wipe(node));
    let _pods = run_all(nodes.start_all([1, 2, 3]));
    nodes.put(1, "third");
    nodes.members(&[1, 2, 3]);
    assert!(nodes.has(1, "first").is_err());
}

/// Empties the disk of node 3 of a running etcd, and starts it again.
#[track_caller]
fn replace_disk<'a>(nodes: &'a Nodes, third: Pod<'_>, start: impl FnOnce(&'a Nodes) -> Pod<'a>) -> Pod<'a> {
    let old = nodes.members(&[1, 2, 3]);
    drop(third);
    nodes.put(1, "while it was away");
    nodes.wipe(3);
    let third = start(nodes);
    third.runs();
    let new = nodes.members(&[1, 2, 3]);
    assert_eq!(new[..2], old[..2]);
    assert_ne!(new[2], old[2], "{}", third.log());
    for key in ["before", "while it was away"] {
        nodes.assert_has(3, key);
    }
    third
}

#[test]
fn a_member_whose_disk_is_emptied_joins_again() {
    let nodes = Nodes::new(2);
    let [_first, _second, third] = run_all(nodes.start_all([1, 2, 3]));
    nodes.put(1, "before");
    let third = replace_disk(&nodes, third, |nodes| nodes.start(3));
    // Its pod has joined before: under that id it must not begin once more with nothing.
    replace_disk(&nodes, third, |nodes| nodes.start_again(3, "metes"));
}

/// Whatever has become of metes.conf: somebody may be writing it.
#[test]
fn a_container_that_starts_again_with_its_data_asks_nobody() {
    let nodes = Nodes::new(8);
    let [_first, _second, third] = run_all(nodes.start_all([1, 2, 3]));
    let ids = nodes.members(&[1, 2, 3]);
    drop(third);
    nodes.put(1, "while it was away");
    fs::write(nodes.path("metes.conf"), "{").expect("a file can be written");
    let third = nodes.start_again(3, "metes");
    nodes.assert_has(3, "while it was away");
    nodes.name_members(&[1, 2, 4]);
    assert_eq!(nodes.members(&[1, 2, 3]), ids);
    // One that was removed does not come back by itself: another node may be in its place.
    drop(third);
    nodes.remove(ids[2]);
    let mut third = nodes.start_again(3, "metes");
    third.ended();
    assert!(nodes.data(3).join("member/wal").is_dir());
    assert_eq!(nodes.members(&[1, 2]), ids[..2]);
}

/// With one member there is nobody who could tell that its data are lost.
#[test]
fn a_single_member_does_not_begin_twice_in_one_pod() {
    let nodes = Nodes::new(9);
    nodes.name_members(&[1]);
    let first = nodes.start(1);
    nodes.put(1, "before");
    drop(first);
    nodes.wipe(1);
    let mut first = nodes.start_again(1, "metes");
    assert!(!first.ended());
    first.says("is empty, and etcd has run in this pod");
}

#[test]
fn it_joins_again_where_etcd_has_users_and_roles() {
    let nodes = Nodes::new(3);
    let [_first, _second, third] = run_all(nodes.start_all([1, 2, 3]));
    nodes.put(1, "before");
    let enabled = nodes.ask(1, async |client| {
        for user in ["root", "metes-etcd-server"] {
            client.user_add(user, "", Some(UserAddOptions::new().with_no_pwd())).await?;
            client.user_grant_role(user, "root").await?;
        }
        client.auth_enable().await
    });
    enabled.expect("users can be added");
    replace_disk(&nodes, third, |nodes| nodes.start(3));
}

#[test]
fn a_node_that_metes_conf_names_instead_of_a_lost_one_takes_its_place() {
    let nodes = Nodes::new(4);
    let [_first, _second, third] = run_all(nodes.start_all([1, 2, 3]));
    nodes.put(1, "before");
    let old = nodes.members(&[1, 2, 3]);
    drop(third);
    nodes.name_members(&[1, 2, 4]);
    let fourth = nodes.start(4);
    fourth.runs();
    assert_eq!(nodes.members(&[1, 2, 4])[..2], old[..2], "{}", fourth.log());
    nodes.assert_has(4, "before");
}

#[test]
fn the_folder_of_a_removed_member_is_moved_aside() {
    let nodes = Nodes::new(5);
    let [_first, _second, third] = run_all(nodes.start_all([1, 2, 3]));
    nodes.put(1, "before");
    let old = nodes.members(&[1, 2, 3]);
    drop(third);
    nodes.remove(old[2]);
    let third = nodes.start(3);
    third.runs();
    third.says("is of a member that was removed from etcd");
    assert!(nodes.path("data-3.removed-1/member/wal").is_dir());
    nodes.members(&[1, 2, 3]);
    nodes.assert_has(3, "before");
}

#[test]
fn an_empty_member_waits_for_the_others_if_they_are_down() {
    let nodes = Nodes::new(6);
    let pods = run_all(nodes.start_all([1, 2, 3]));
    nodes.put(1, "before");
    nodes.members(&[1, 2, 3]);
    drop(pods);
    nodes.wipe(3);
    let mut third = nodes.start(3);
    third.says("start the others");
    // One alone is no majority, and the third must not begin anew beside it.
    let first = nodes.start(1);
    first.runs();
    third.says("It joins them as soon as it is let in");
    third.still_waits();
    let second = nodes.start(2);
    second.runs();
    third.runs();
    nodes.members(&[1, 2, 3]);
    nodes.assert_has(3, "before");
}

#[test]
fn data_of_another_etcd_are_refused() {
    let nodes = Nodes::new(7);
    let [_first, _second, third] = run_all(nodes.start_all([1, 2, 3]));
    nodes.members(&[1, 2, 3]);
    drop(third);
    nodes.wipe(3);
    // One member alone begins at once.
    nodes.name_members(&[3]);
    let alone = nodes.start_with(3, "another");
    alone.runs();
    nodes.put(3, "other");
    drop(alone);
    nodes.name_members(&[1, 2, 3]);
    // The others can be asked: those that cannot keep nobody from starting.
    nodes.put(1, "own");
    let mut third = nodes.start(3);
    assert!(!third.ended());
    third.says("is of another etcd");
    assert!(nodes.data(3).join("member").is_dir());
}
