//! A node that is shut out, with a real etcd as a pod runs it and the container that cares for it.

use std::fs;
use std::process::Command;

use etcd_client::UserAddOptions;
use serde_json::json;

use crate::care::{Care, one_member, succeeds, verb};
use crate::nodes::Nodes;

/// Seconds since 1970: long after every test.
const LATER: i64 = 4_000_000_000;

fn openssl(nodes: &Nodes, arguments: &[&str]) {
    let run = Command::new("openssl").args(arguments).current_dir(nodes.path("")).output().expect("it runs");
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
}

fn user(node: &str) -> String {
    format!("metes-node/c1/{node}")
}

/// Gives a node what the signer gives it: a user, a certificate with this serial, and a record of that.
fn admit(nodes: &Nodes, node: &str, serial: &str) {
    fs::create_dir(nodes.path(node)).expect("a folder can be made");
    let file = |name: &str| format!("{node}/{name}");
    fs::copy(nodes.path("metes-ca/tls.crt"), nodes.path(&file("ca.crt"))).expect("it can be copied");
    let subject = format!("/CN={}", user(node).replace('/', "\\/"));
    let (key, request) = (file("tls.key"), file("request"));
    let made =
        ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-keyout", &key, "-out", &request];
    openssl(nodes, &[&["req", "-new", "-nodes", "-subj", &subject][..], &made].concat());
    let signer =
        ["-CA", "metes-ca/tls.crt", "-CAkey", "metes-ca/tls.key", "-set_serial", &format!("0x{serial}")];
    fs::write(nodes.path("usage"), "extendedKeyUsage = clientAuth\n").expect("a file can be written");
    let signed = ["-days", "2", "-extfile", "usage", "-out", &file("tls.crt")];
    openssl(nodes, &[&["x509", "-req", "-in", &request][..], &signer, &signed].concat());
    let record = json!({"node": node, "issued": [{"serial": serial, "not_after": LATER}]}).to_string();
    let admitted = nodes.ask(1, async |client| {
        let options = UserAddOptions::new().with_no_pwd();
        client.auth_client().user_add(user(node), "", Some(options)).await?;
        client.auth_client().user_grant_role(user(node), "metes-node").await?;
        client.put(format!("/metes-signer/node/{}", user(node)), record, None).await
    });
    admitted.expect("the members' user may");
}

/// What a node may do, each over a new connection: with a role, and without one.
fn reached(nodes: &Nodes, node: &str) -> Vec<(&'static str, Result<(), String>)> {
    vec![
        (
            "put",
            nodes.ask_as(node, 1, async |client| client.put("/metes/v1/fence/x", "", None).await.map(drop)),
        ),
        ("grant", nodes.ask_as(node, 1, async |client| client.lease_grant(60, None).await.map(drop))),
        ("members", nodes.ask_as(node, 1, async |client| client.member_list().await.map(drop))),
    ]
}

fn revoke(nodes: &Nodes, node: &str) -> String {
    let mut command = verb(nodes, "revoke", 1);
    command.arg(node);
    succeeds(command)
}

fn roles(nodes: &Nodes, node: &str) -> Vec<String> {
    let found = nodes.ask(1, async |client| client.auth_client().user_get(user(node)).await);
    found.expect("there is a user").roles().to_vec()
}

#[test]
fn a_revoked_node_reaches_nothing_and_another_one_all() {
    let nodes = Nodes::new(17);
    let _pod = one_member(&nodes);
    let care = Care::of(&nodes, 1);
    care.says("switched authentication on");
    // With and without a first bit, and with zeros in front.
    admit(&nodes, "n1", "00ff3a5c0000000000000000000000a7");
    admit(&nodes, "n2", "5f000000000000000000000000000001");
    for node in ["n1", "n2"] {
        for (what, answer) in reached(&nodes, node) {
            answer.unwrap_or_else(|e| panic!("{node}: {what}: {e}"));
        }
    }
    let said = revoke(&nodes, "n1");
    for words in
        ["took the role metes-node", "revoked 1 certificates", "kubectl delete node n1", "metes check"]
    {
        assert!(said.contains(words), "{words}: {said}");
    }
    assert_eq!(roles(&nodes, "n1"), ["metes-revoked"]);
    care.says("etcd refuses 1 revoked certificates");
    for (what, answer) in reached(&nodes, "n1") {
        answer.expect_err(what);
    }
    for (what, answer) in reached(&nodes, "n2") {
        answer.unwrap_or_else(|e| panic!("n2: {what}: {e}"));
    }
    let said = revoke(&nodes, "n1");
    assert!(said.contains("was revoked before") && said.contains("revoked 1 certificates"), "{said}");

    // A name that etcd does not know is blocked, too.
    let said = revoke(&nodes, "n9");
    assert!(said.contains("etcd knew no node n9") && said.contains("revoked 0 certificates"), "{said}");
    assert_eq!(roles(&nodes, "n9"), ["metes-revoked"]);
}

/// A certificate that has ended needs no place in the list: its key ends with its lease.
#[test]
fn the_list_follows_the_keys() {
    let nodes = Nodes::new(18);
    let _pod = one_member(&nodes);
    let key = |serial: &str| format!("/metes-signer/revoked/{serial}");
    for serial in ["0a", "0b"] {
        nodes.ask(1, async |client| client.put(key(serial), user("n1"), None).await).expect("it is written");
    }
    let empty = fs::read(nodes.path("data-1.crl")).expect("etcd had one from its beginning");
    let care = Care::of(&nodes, 1);
    care.says("etcd refuses 2 revoked certificates");
    nodes.ask(1, async |client| client.delete(key("0a"), None).await).expect("it is deleted");
    care.says("etcd refuses 1 revoked certificates");
    assert!(fs::read(nodes.path("data-1.crl")).expect("it is there").len() > empty.len());
}

/// The certificates of nodes are of another authority than those of members.
#[test]
fn members_trust_the_authority_of_nodes_where_there_is_one() {
    let nodes = Nodes::new(19);
    openssl(
        &nodes,
        &[
            "req",
            "-x509",
            "-nodes",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-days",
            "2",
            "-subj",
            "/CN=metes node authority",
            "-keyout",
            "node-ca.key",
            "-out",
            "node-ca.crt",
        ],
    );
    let read = |name: &str| fs::read_to_string(nodes.path(name)).expect("it is there");
    let members = read("metes-ca/tls.crt");
    let both = format!("{members}{}", read("node-ca.crt"));
    fs::write(nodes.path("metes-etcd-server/clients.crt"), both).expect("a file can be written");
    let _pod = one_member(&nodes);
    for (from, to) in [("node-ca.crt", "metes-ca/tls.crt"), ("node-ca.key", "metes-ca/tls.key")] {
        fs::copy(nodes.path(from), nodes.path(to)).expect("it can be copied");
    }
    succeeds(verb(&nodes, "etcd-roles", 1));
    admit(&nodes, "n1", "5f");
    // The authority of members alone has signed etcd's own certificate.
    fs::write(nodes.path("n1/ca.crt"), members).expect("a file can be written");
    for (what, answer) in reached(&nodes, "n1") {
        answer.unwrap_or_else(|e| panic!("{what}: {e}"));
    }
}
