//! The completion of names, in a real bash.

use std::net::TcpListener;
use std::time::Duration;

use serde_json::json;

use support::{Cluster, Node, Outcome, Run, metes, network, report};

/// Completes the words that it is given, as bash does when Tab is pressed at their end.
const TAB: &str = r#"
source <("$METES" completion bash) || exit
registered=$(complete -p metes)
function=${registered#*-F }
COMP_WORDS=("$METES" "$@")
COMP_CWORD=$#
"${function%% *}" "$METES" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
printf '%s\n' "${COMPREPLY[@]}"
"#;

fn tab(node: &Node, line: &str) -> Outcome {
    let run = Run::new("bash").arguments(["--norc", "-c", TAB, "bash"]).arguments(line.split(' '));
    run.env("METES", metes()).env("METES_CONF", node.host_file()).env("PATH", "/usr/bin:/bin").run()
}

#[test]
fn bash_offers_the_names_that_etcd_knows() {
    let cluster = Cluster::new();
    let node = cluster.node("a");
    let pools = "{pool: storage, network: blue, ranges: [{range: 10.56.0.0/24}]}\n---\n\
                 {pool: stock, network: storage, ranges: [{range: 10.57.0.0/24}]}\n";
    assert!(node.pool(&["apply", "--yes", "-f", "-"], pools).succeeded());
    for (container, namespace, pod) in [
        ("c1", "team-a", "web-0"),
        ("c2", "team-a", "db-0"),
        ("c3", "team-b", "web-0"),
        ("c4", "$(false)", "x"),
    ] {
        let config = network(json!({"pool": "storage"}));
        node.add(container).pod(namespace, pod, container).config(&config).run().ok();
    }
    report(
        [
            // A pool and a network have this name.
            ("show sto", "storage stock"),
            ("show stor", "storage"),
            ("show team-", "team-a team-b"),
            ("show team-a/", "team-a/db-0 team-a/web-0"),
            ("usage b", "blue"),
            ("list --network ", "blue storage"),
            ("list --network = st", "storage"),
            ("top --by pod --node ", "a"),
            ("list --namespace ", "team-a team-b"),
            ("list --cluster t", "test"),
            ("release ", "team-a/db-0 team-a/web-0 team-b/web-0"),
            ("pool drain --yes s", "stock storage"),
            ("pool which --namespace team-b", "team-b"),
            // What needs no etcd.
            ("sho", "show"),
            ("pool sho", "show"),
            ("show --netw", "--network"),
            ("list --as na", "namespace"),
        ]
        .map(|(line, expected)| {
            let offered = tab(&node, line);
            let mut expected: Vec<&str> = expected.split(' ').collect();
            expected.sort_unstable();
            let is_right = offered.stdout.lines().eq(expected) && offered.stderr.is_empty();
            (!is_right).then(|| format!("{line}: {offered}"))
        }),
    );
    cluster.assert_clean();
}

#[test]
fn names_are_few_and_nobody_waits_for_them_or_hears_why_there_are_none() {
    let cluster = Cluster::new();
    let node = cluster.node("a");
    let junk = (0..400).map(|at| (format!("v1/pool/p{at}"), b"?".to_vec()));
    cluster.store().put_all(junk);
    let many = node.cli(["__complete", "pool", "show", "p"]);
    assert!(many.succeeded() && many.stdout.lines().count() == 300, "{many}");
    // Nothing answers there, and nothing refuses.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let silent = format!("http://{}", silent.local_addr().expect("it has one"));
    for endpoint in [silent.as_str(), "http://127.0.0.1:1", "nonsense"] {
        let none = node.cli(["__complete", "--endpoints", endpoint, "pool", "show", "p"]);
        let is_silent = none.succeeded() && none.stdout.is_empty() && none.stderr.is_empty();
        assert!(is_silent && none.elapsed < Duration::from_secs(4), "{endpoint}: {none}");
    }
    let none = node.cli(["__complete", "--config", "/nowhere", "pool", "show", "p"]);
    assert!(none.succeeded() && none.stdout.is_empty() && none.stderr.is_empty(), "{none}");
    assert!(!node.cli(["--help"]).stdout.contains("__complete"));
    cluster.leave_unclean();
}
