//! `metes validate`: it finds an error exactly where an ADD is refused before etcd is asked, because both read with one
//! parser, and it compares networks with each other.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use support::{Cluster, Dice, Node, Outcome, Run, in_parallel, metes, mutate_json, network, report};

const WORKERS: usize = 4;
/// The number of mutants of each configuration.
const MUTANTS: u64 = 9;
/// With fewer of either kind, the mutants are too wild or too tame to prove anything.
const OF_EACH_KIND: usize = 250;

/// A file or folder of the repository.
fn of_repository(path: &str) -> PathBuf {
    support::root().join(path)
}

/// `metes validate` with this host file.
fn validate(host_file: &Path, arguments: &[&str], stdin: &str) -> Outcome {
    Run::new(metes())
        .env("METES_CONF", host_file)
        .arguments(["validate"])
        .arguments(arguments)
        .stdin(stdin)
        .run()
}

/// All files below a folder whose names end like this.
fn files(folder: &Path, ends: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(files(&path, ends));
        } else if ends.iter().any(|end| path.to_string_lossy().ends_with(end)) {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// The configurations that stand in a text: all objects in braces that are JSON and have metes for a plugin.
fn configurations(text: &str) -> Vec<Value> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find('{') {
        let mut values = serde_json::Deserializer::from_str(&rest[at..]).into_iter::<Value>();
        match values.next() {
            Some(Ok(value)) => {
                rest = &rest[at + values.byte_offset()..];
                if value["kind"] == "NetworkAttachmentDefinition" {
                    found.extend(configurations(value["spec"]["config"].as_str().unwrap_or_default()));
                } else if value["type"] == "metes" && value.get("ipam").is_none() {
                    found.push(network(value));
                } else if !delegated(&value).is_empty() {
                    found.push(value);
                }
            }
            _ => rest = &rest[at + 1..],
        }
    }
    found
}

/// The configuration that a runtime gives to each plugin whose `ipam` is metes: with the list's name and version.
fn delegated(config: &Value) -> Vec<Value> {
    let plugins = config["plugins"].as_array().cloned().unwrap_or_else(|| vec![config.clone()]);
    let of_metes = plugins.into_iter().filter(|plugin| plugin["ipam"]["type"] == "metes");
    of_metes
        .map(|mut plugin| {
            plugin["name"] = config.get("name").cloned().unwrap_or_else(|| json!("nad"));
            if let Some(version) = config.get("cniVersion") {
                plugin["cniVersion"] = version.clone();
            }
            plugin
        })
        .collect()
}

/// Every configuration that the repository shows, apart from those of flannel, which writes the ranges itself.
fn examples() -> Vec<Value> {
    let mut texts = files(&of_repository("manifests"), &[".yaml", ".conflist"]);
    texts.extend(files(&of_repository("docs"), &[".md"]));
    texts.extend(files(&of_repository("fuzz/seeds/definitions"), &[""]));
    texts.push(of_repository("README.md"));
    let read = |path: &PathBuf| fs::read_to_string(path).unwrap_or_default();
    let mut found: Vec<Value> = texts.iter().flat_map(|path| configurations(&read(path))).collect();
    let gateway = json!([{"dst": "10.0.0.0/8", "gw": "10.1.0.1"}]);
    found.extend(
        [
            json!({"range": "10.1.0.0/24", "exclude": ["10.1.0.4/30"], "gateway": "10.1.0.1"}),
            json!({"range": "10.1.0.0/16", "range_start": "10.1.0.9", "range_end": "10.1.9.9"}),
            json!({"range": "10.1.0.5-10.1.0.50/24", "network_name": "blue", "order": "spread"}),
            json!({"range": "10.1.0.0/24", "pick_addresses": ["10.1.0.7", "10.1.0.5"], "cooldown": "1m"}),
            json!({"ipRanges": [{"range": "10.1.0.0/24"}, {"range": "fd00::/64", "exclude": ["fd00::/120"]}],
                "enable_overlapping_ranges": false}),
            json!({"range": "10.1.0.0/24", "gateway": "10.2.0.1"}),
            json!({"subnet": "10.1.0.0/24", "gateway": "10.2.0.1"}),
            json!({"subnet": "10.1.0.0/24", "rangeStart": "10.1.0.9", "routes": gateway}),
            json!({"ranges": [[{"subnet": "10.1.0.0/24"}, {"subnet": "10.2.0.0/24", "gateway": "10.2.0.9"}]]}),
            json!({"range": "010.001.0.0/24", "addresses": [{"address": "fd00::7/64"}]}),
            json!({"addresses": [{"address": "10.1.0.9/24", "gateway": "10.1.0.1"}], "routes": gateway,
                "dns": {"nameservers": ["10.1.0.3"], "search": ["example.com"]}}),
        ]
        .map(network),
    );
    // Nor is a file of this machine judged here.
    found.retain(|config| {
        let plugins = delegated(config);
        plugins.iter().all(|plugin| plugin["type"] != "flannel") && !config.to_string().contains("resolvConf")
    });
    assert!(found.len() > 40, "{} configurations", found.len());
    found
}

/// Mutants of which metes is still a part.
fn mutants(config: &Value, seed: u64) -> Vec<Value> {
    let mut dice = Dice::new(seed);
    let mutant = |dice: &mut Dice| {
        let mut text = config.to_string().into_bytes();
        for _ in 0..1 + dice.below(2) {
            text = mutate_json(dice, &text);
        }
        serde_json::from_slice::<Value>(&text).expect("it stays JSON")
    };
    let all = std::iter::repeat_with(|| mutant(&mut dice)).take(4 * MUTANTS as usize);
    // Parts that no plugin is given, and files of the node, are nobody's to judge here.
    let is_judged = |mutant: &Value| {
        let text = mutant.to_string();
        let count = delegated(mutant).len();
        count > 0 && text.matches(r#""type":"metes""#).count() == count && !text.contains("resolvConf")
    };
    all.filter(is_judged).take(MUTANTS as usize).collect()
}

/// Mutations of text: a key that stands twice is lost in a tree.
const TWICE: [&str; 3] = [
    r#""range":"10.1.0.0/24","range":"10.2.0.0/24""#,
    r#""range":"10.1.0.0/24","Range":null"#,
    r#""range":"10.1.0.0/24","routes":[{"dst":"10.0.0.0/8","gw":"10.1.0.1","gw":"10.1.0.2"}]"#,
];

fn definition(config: &str) -> String {
    json!({"kind": "NetworkAttachmentDefinition", "metadata": {"name": "nad"}, "spec": {"config": config}})
        .to_string()
}

/// The codes of ADDs that were refused before etcd was asked.
fn codes(node: &Node, number: usize, stdins: &[String]) -> Vec<u64> {
    let run = |(at, stdin): (usize, &String)| {
        // An address for a pod's name needs one.
        let container = format!("c{number}-{at}");
        let outcome = node.add(&container).pod("ns", &container, "u1").stdin(stdin.as_str()).run();
        let code = outcome.error_code().filter(|code| [1, 6, 7].contains(code))?;
        // A pool is looked for in etcd.
        (!outcome.stdout.contains("there is no pool") && !outcome.stdout.contains("no pool is for"))
            .then_some(code)
    };
    stdins.iter().enumerate().filter_map(run).collect()
}

#[test]
fn it_finds_an_error_exactly_where_an_add_is_refused() {
    let cluster = Cluster::new();
    let plain = cluster.node("a");
    let bound = cluster.node_with("b", json!({"allowed": {"default": ["10.0.0.0/9", "fd00::/16"]}}));
    let folder = support::temporary();
    let shown = examples();
    let mutants = shown.iter().enumerate().flat_map(|(at, config)| mutants(config, at as u64));
    let trees: Vec<Value> = shown.iter().cloned().chain(mutants).collect();
    let mut cases: Vec<(String, Vec<String>)> = trees
        .iter()
        .map(|config| (config.to_string(), delegated(config).iter().map(Value::to_string).collect()))
        .collect();
    cases.extend(TWICE.map(|keys| {
        let text = format!(r#"{{"cniVersion":"1.0.0","name":"n","ipam":{{"type":"metes",{keys}}}}}"#);
        (text.clone(), vec![text])
    }));
    let paths: Vec<String> = (0..cases.len())
        .map(|at| {
            let path = folder.path().join(format!("{at}.json"));
            fs::write(&path, definition(&cases[at].0)).expect("a file");
            path.display().to_string()
        })
        .collect();
    let mut counts = (0, 0);
    for node in [&plain, &bound] {
        let arguments: Vec<&str> =
            ["-o", "json"].into_iter().chain(paths.iter().map(String::as_str)).collect();
        let outcome = validate(&node.host_file(), &arguments, "");
        assert_eq!(outcome.status.code(), Some(1), "{outcome}");
        let answer = outcome.json();
        let mut found: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
        for one in
            answer["findings"].as_array().expect("findings").iter().filter(|one| one["severity"] == "error")
        {
            let code = one["code"].as_u64().unwrap_or_default();
            found.entry(one["file"].as_str().expect("a file")).or_default().push(code);
        }
        let judged = in_parallel(WORKERS, cases.iter().enumerate(), |(at, (config, stdins))| {
            (at, config, codes(node, at, stdins))
        });
        let none = Vec::new();
        let refused = judged.iter().filter(|(.., codes)| !codes.is_empty()).count();
        report(judged.iter().map(|(at, config, codes)| {
            let found = found.get(paths[*at].as_str()).unwrap_or(&none);
            (found != codes).then(|| format!("case {at}: ADD {codes:?}, validate {found:?}: {config}"))
        }));
        counts = (counts.0 + refused, counts.1 + cases.len() - refused);
    }
    assert!(counts.0 >= OF_EACH_KIND && counts.1 >= OF_EACH_KIND, "refused and served: {counts:?}");
    cluster.leave_unclean();
}

const NETWORKS: &str = r##"apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: storage, namespace: team-a}
spec:
  config: |
    {
      "cniVersion": "1.0.0",
      "type": "bridge",
      "bridge": "br0",
      "capabilities": {"ips": true},
      "ipam": {
        "type": "metes",
        "range": "10.56.0.0/16",
        "excludes": ["10.56.0.0/28"],
        "routes": [{"via": "x", "dst": "10.0.0.0/8"}]
      }
    }
---
apiVersion: v1
kind: List
items:
- kind: NetworkAttachmentDefinition
  metadata: {name: a, namespace: x}
  spec:
    config: '{"cniVersion":"1.0.0","type":"bridge","bridge":"br0","ipam":{"type":"metes","range":"10.0.0.0/24",
      "gateway":"10.0.0.1"}}'
- kind: NetworkAttachmentDefinition
  metadata: {name: b, namespace: x}
  spec:
    config: |-
      {"cniVersion":"1.0.0","name":"b","plugins": [{"type":"bridge","bridge":"br0","capabilities":{"ips":true},
        "ipam":{"type":"metes","range":"10.0.0.0/25"}}]}
- kind: NetworkAttachmentDefinition
  metadata: {name: c, namespace: x}
  spec:
    config: |
      {"cniVersion":"1.0.0","type":"bridge","bridge":"br0","capabilities":{"ips":true},
       "ipam":{"type":"metes","subnet":"10.0.0.0/25","network_name":"other","dataDir":"/x"}}
- kind: NetworkAttachmentDefinition
  metadata: {name: vlan, namespace: x}
  spec:
    config: |
      {"cniVersion":"1.0.0","type":"bridge","bridge":"br0","vlan":7,"capabilities":{"ips":true},
       "ipam":{"type":"metes","subnet":"10.0.0.0/25","network_name":"third"}}
- kind: NetworkAttachmentDefinition
  metadata: {name: d, namespace: x}
  spec:
    config: |
      {"cniVersion":"1.0.0",
       "name":"d",
      }
- kind: NetworkAttachmentDefinition
  metadata: {name: whereabouts, namespace: x}
  spec: {config: '{"type":"bridge","ipam":{"type":"whereabouts","rnage":"x"}}'}
- kind: Pod
- kind: NetworkAttachmentDefinition
  metadata: {name: e, namespace: x}
- kind: NetworkAttachmentDefinition
  metadata: {name: f, namespace: x}
  spec:
    conf: '{"type":"bridge","ipam":{"type":"metes","range":"10.0.0.0/24"}}'
- kind: NetworkAttachmentDefinition
  metadata: {name: g, namespace: x}
  spec:
  # No text.
    config: {type: bridge}
- kind: NetworkAttachmentDefinition
  metadata: {name: h, namespace: x}
  spec:
    config: |
      {"type":"bridge", "ipam": {"type": "mets", "range": "10.0.0.0/24"}}
- kind: NetworkAttachmentDefinition
  metadata: {name: i, namespace: x}
  spec:
    config: |
      {"type":"ptp", "capabilities":{"ips":true}, "ipam": {"type": "metes", "network_name": "i",
        "range": "10.4.0.0/24", "gateway": "10.9.0.1"}}
- kind: NetworkAttachmentDefinition
  metadata: {name: j, namespace: x}
  spec:
    config: |
      {"type":"ptp", "capabilities":{"ips":true}, "ipam": {"type": "metes", "network_name": "j",
        "range": "10.5.0.0/24", "range_start": "10.5.0.9",
        "exclude": ["10.5.0.1/32", "10.5.0.0/29", "10.6.0.0/30"], "gateway": "fd00::1"}}
---
pool: p
ranges:
- range: 10.0.1.0/24
  gateway: 10.9.0.1
---
pool: q
ranges: [{range: 10.0.0.65-10.0.0.80/26, exclude: [10.0.0.64/28, 10.0.1.64/28]}]
---
kind: NetworkAttachmentDefinition
metadata: {name: kept, namespace: x}
spec:
  config: |
    {"type":"ptp", "capabilities":{"ips":true},
      "ipam": {"type": "metes", "network_name": "k", "range": "10.7.0.0/24", "sticky": "pod"}}
---
kind: StatefulSet
metadata: {name: db, namespace: x}
spec: {template: {metadata: {annotations: {k8s.v1.cni.cncf.io/networks: kept}}}}
---
kind: Deployment
metadata: {name: web, namespace: x}
spec: {template: {metadata: {annotations: {k8s.v1.cni.cncf.io/networks: "a, kept@net7"}}}}
"##;

fn found(outcome: &Outcome) -> Vec<String> {
    let answer = outcome.json();
    let findings = answer["findings"].as_array().expect("findings").iter();
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    findings
        .map(|one| {
            assert!(!text(&one["remedy"]).is_empty() && !text(&one["what"]).is_empty(), "{one}");
            let place = format!("{}:{}", one["line"], one["column"]);
            format!("{place} {} {} {}", text(&one["severity"]), text(&one["id"]), text(&one["object"]))
        })
        .collect()
}

#[test]
fn each_finding_has_its_place() {
    let cluster = Cluster::new();
    let host_file = cluster.node("a").host_file();
    let json = validate(&host_file, &["-o", "json"], NETWORKS);
    assert_eq!(json.status.code(), Some(1), "{json}");
    let expected = [
        "14:9 error refused team-a/storage",
        "15:21 warning unknown-key team-a/storage",
        "25:5 note no-ips-capability x/a",
        "32:9 warning ranges-differ x/b",
        "38:8 warning subnet-in-two-networks x/c",
        "38:77 note no-effect x/c",
        "51:7 error not-json x/d",
        "54:10 note not-of-metes x/whereabouts",
        "56:3 note no-configuration x/e",
        "61:5 warning misplaced-configuration x/f",
        "66:5 warning misplaced-configuration x/g",
        "71:34 warning almost-metes x/h",
        "77:33 warning gateway-outside x/i",
        "84:51 warning exclude-outside x/j",
        "84:67 warning gateway-outside x/j",
        "89:3 error invalid-pool -",
        "92:1 warning ranges-differ pool q",
        "92:66 warning exclude-outside pool q",
        "107:30 warning random-names Deployment x/web",
    ];
    let (found, mut left): (Vec<String>, Vec<&str>) = (found(&json), expected.to_vec());
    left.retain(|line| !found.iter().any(|one| one == line));
    assert!(left.is_empty() && found.len() == expected.len(), "{left:#?} are not in {found:#?}");
    let counts = json!({"files": 1, "networks": 12, "ignored": 2, "host_files": 0, "pools": 2});
    assert_eq!(json.json()["counts"], counts);

    let table = validate(&host_file, &["-"], NETWORKS);
    for words in [
        "stdin:14:9: error refused (team-a/storage)\n  unknown key `ipam.excludes`; did you mean `exclude`?\n  to do: ",
        "10.0.0.0/25 without a gateway overlaps 10.0.0.0/24 with gateway 10.0.0.1 of x/a, and both are in network \
         default: pods get addresses of one range with different prefix lengths and gateways, and one may get the \
         gateway of the other\n  to do: write the same prefix length and gateway, or another `network_name` if",
        // Neither has a gateway.
        "10.0.0.64/26 without a gateway overlaps 10.0.0.0/25 without a gateway of x/b, and both are in network \
         default: pods get addresses of one range with different prefix lengths\n  to do: write the same prefix length \
         and gateway, or another `network` if these are two links",
        "10.0.0.0/25 is in network other, and 10.0.0.0/25 of x/b is in network default, on one link (bridge, \
         bridge br0)",
        "`spec.conf` is not read by Multus, which finds no `spec.config`",
        "did you mean \"config\"?",
        "`ipam.type` is \"mets\", so another plugin is called; did you mean \"metes\"?",
        "gateway 10.9.0.1 is outside of 10.4.0.0/24: pods have no route to it",
        "`ipam.exclude[2]` excludes nothing: 10.6.0.0/30 is outside of 10.5.0.0/24",
        "`ipam.gateway` is the gateway of no range: fd00::1 is of the other address family",
        "`ranges[0].exclude[1]` excludes nothing: 10.0.1.64/28 is outside of 10.0.0.64/26\n  to do: correct `exclude`",
        "pods of Deployment x/web have random names, and network x/kept keeps an address for each name after its \
         pod\n  to do: use a StatefulSet",
        // One place, which is that in the file.
        "stdin:51:7: error not-json (x/d)\n  trailing comma\n",
        "stdin:89:3: error invalid-pool\n  ranges[0].gateway: 10.9.0.1 is outside of 10.0.1.0/24",
    ] {
        assert!(table.stdout.contains(words), "{words}: {table}");
    }
    assert!(
        table
            .stderr
            .contains("12 networks (2 without metes), 0 host files, 2 pools; 3 errors, 12 warnings, 4 notes"),
        "{table}"
    );

    let sarif = validate(&host_file, &["-o", "sarif"], NETWORKS).json();
    let run = &sarif["runs"][0];
    assert_eq!(
        (&sarif["version"], run["results"].as_array().map(Vec::len)),
        (&json!("2.1.0"), Some(expected.len()))
    );
    let rules = run["tool"]["driver"]["rules"].as_array().expect("rules");
    for result in run["results"].as_array().expect("results") {
        assert!(rules.iter().any(|rule| rule["id"] == result["ruleId"]), "{result}");
        assert!(["error", "warning", "note"].iter().any(|level| result["level"] == *level), "{result}");
        let place = &result["locations"][0]["physicalLocation"];
        assert_eq!(place["artifactLocation"]["uri"], "stdin", "{result}");
        assert!(place["region"]["startLine"].as_u64() > Some(0), "{result}");
    }
    assert!(cluster.store().keys("").is_empty(), "etcd has heard of it");
    cluster.assert_clean();
}

#[test]
fn files_of_each_kind_are_told_apart() {
    let cluster = Cluster::new();
    let node = cluster.node("a");
    let unreachable = cluster.node_with("b", json!({"etcd": {"endpoints": ["http://127.0.0.1:1"]}}));
    let good = json!({"cniVersion": "1.0.0", "name": "n", "capabilities": {"ips": true}, "type": "macvlan",
        "ipam": {"type": "metes", "range": "10.0.0.0/24"}});
    let rows: [(&str, String, i32, &[&str]); 21] = [
        ("a network", good.to_string(), 0, &["1 network,", "0 errors, 0 warnings, 0 notes"]),
        (
            "a list",
            json!({"cniVersion": "1.0.0", "name": "n", "plugins": [good]}).to_string(),
            0,
            &["1 network,", "0 notes"],
        ),
        (
            "an ipam section",
            r#"{"type": "metes",\n "range": "10.0.0.0/33"}"#.replace("\\n", "\n"),
            1,
            &["stdin:2:2: error refused\n  `ipam.range` must be a prefix"],
        ),
        (
            "an ipam section with a comma too many",
            r#"{"type": "metes", "range": "10.0.0.0/24",}"#.to_owned(),
            1,
            &["stdin:1:42: error not-json\n  trailing comma"],
        ),
        (
            "an ipam section of a plugin that is almost metes",
            r#"{"type": "mets", "range": "10.0.0.0/24"}"#.to_owned(),
            1,
            &["stdin:1:2: warning almost-metes\n", "did you mean \"metes\"?"],
        ),
        (
            "metes beside `ipam`",
            json!({"cniVersion": "1.0.0", "name": "n", "plugins": [{"type": "bridge", "ipma": {"type": "metes"}}]})
                .to_string(),
            1,
            &["warning almost-metes", "`plugins[0].ipma.type` is \"metes\", and it is not in `ipam`"],
        ),
        (
            "a network of another plugin",
            good.to_string().replace("metes", "whereabouts"),
            2,
            &["note not-of-metes", "0 networks (1 without metes)", "there is nothing to validate"],
        ),
        (
            "a gateway of one of several subnets",
            good.to_string().replace(
                r#""range""#,
                r#""gateway":"10.1.0.1","ipRanges":[{"range":"10.1.0.0/24"},{"range":"fd00::/64"}],"range""#,
            ),
            0,
            &["0 errors, 0 warnings"],
        ),
        (
            "a gateway of the link",
            good.to_string().replace(
                r#""range""#,
                r#""gateway":"fe80::1","ipRanges":[{"range":"fd00::/64"}],"range""#,
            ),
            0,
            &["0 errors, 0 warnings"],
        ),
        (
            "another word for a gateway",
            good.to_string().replace(r#""range""#, r#""gw":"10.0.0.1","range""#),
            1,
            &["warning unknown-key", "unknown key `ipam.gw`; did you mean `gateway`?"],
        ),
        ("a network in YAML", "type: bridge\nipam: {type: metes}\n".to_owned(), 1, &["error not-json"]),
        ("a host file", r#"{"node_name": "a"}"#.to_owned(), 0, &["1 host file,", "0 errors"]),
        (
            "a slip in a host file",
            r#"{"node_name": "a", "alowed": {}}"#.to_owned(),
            1,
            &["stdin:1:20: error invalid-host-file\n  unknown key `alowed`; did you mean `allowed`?"],
        ),
        (
            "a host file in YAML",
            "node_name: a\n".to_owned(),
            1,
            &["error invalid-host-file", "it has no { at line 1, where it begins, and YAML is not read"],
        ),
        (
            "a host file with a comma too many",
            r#"{"node_name": "a",}"#.to_owned(),
            1,
            &["stdin:1:19: error invalid-host-file\n  the host file is not a JSON object: trailing comma\n"],
        ),
        ("a pool", "pool: a\nranges: [{range: 10.0.0.0/24}]\n".to_owned(), 0, &["1 pool;"]),
        (
            "a version",
            good.to_string().replace("1.0.0", "9.0.0"),
            1,
            &["error refused", "incompatible CNI versions"],
        ),
        ("nothing of metes", "kind: Pod\n".to_owned(), 2, &["there is nothing to validate in stdin: expected"]),
        ("nothing", "\n".to_owned(), 2, &["there is nothing to validate in stdin: it is empty"]),
        (
            "neither YAML nor JSON",
            "a: [".to_owned(),
            2,
            &["cannot read stdin: document 1 is neither YAML nor JSON"],
        ),
        ("JSON that ends early", r#"{"type": "bridge", "ipam": {"#.to_owned(), 2, &["it is not JSON: EOF"]),
    ];
    report(rows.into_iter().map(|(name, text, code, words)| {
        let outcome = validate(&unreachable.host_file(), &[], &text);
        let said = format!("{}{}", outcome.stdout, outcome.stderr);
        let is_right = outcome.status.code() == Some(code) && words.iter().all(|words| said.contains(words));
        (!is_right).then(|| format!("{name}: expected {code} and {words:?}: {outcome}"))
    }));
    // A key of the section `etcd` is refused on a node with a host file, and so is what `allowed` or `resolv_conf` does
    // not name.
    let own_etcd = json!({"cniVersion": "1.0.0", "name": "n", "type": "macvlan",
        "ipam": {"type": "metes", "range": "10.0.0.0/24", "etcd": {"endpoints": ["http://127.0.0.1:1"]}}});
    // Pods of its namespace are refused; those of another one may use it.
    let nad = json!({"kind": "NetworkAttachmentDefinition", "metadata": {"namespace": "b", "name": "n"},
        "spec": {"config": good.to_string()}});
    let tenants = json!({"allowed": {"default": {"prefixes": ["10.0.0.0/8"], "namespaces": ["a"]}}});
    let tenants = cluster.node_with("d", tenants);
    let outcome = validate(&tenants.host_file(), &[], &nad.to_string());
    let words = ["warning not-for-its-namespace (b/n)", "pods of namespace b may not use network default"];
    assert_eq!(outcome.status.code(), Some(1), "{outcome}");
    assert!(words.iter().all(|word| outcome.stdout.contains(word)), "{outcome}");
    let of_a = nad.to_string().replace(r#""namespace":"b""#, r#""namespace":"a""#);
    assert!(validate(&tenants.host_file(), &[], &of_a).succeeded());
    let bound = cluster.node_with("c", json!({"allowed": {"default": ["10.1.0.0/16"]}}));
    let other_file = json!({"cniVersion": "1.0.0", "name": "n", "type": "macvlan",
        "ipam": {"type": "metes", "subnet": "10.0.0.0/24", "resolvConf": "/etc/other"}});
    for (host_file, config, words) in [
        (node.host_file(), &own_etcd, "etcd"),
        (bound.host_file(), &good, "may not use"),
        (node.host_file(), &other_file, "`resolv_conf` in the host file"),
    ] {
        let refused = validate(&host_file, &[], &config.to_string());
        assert!(refused.status.code() == Some(1) && refused.stdout.contains(words), "{refused}");
    }
    // An issue between two files stands with the later one, and files stand as they were given.
    let mut gateway = good.clone();
    gateway["ipam"]["gateway"] = json!("10.0.0.1");
    let refused = good.to_string().replace("/24", "/33");
    let texts = [("z.json", good.to_string()), ("y.json", gateway.to_string()), ("x.json", refused)];
    let paths = texts.map(|(name, text)| {
        let path = cluster.folder().join(name);
        std::fs::write(&path, text).expect("written");
        path.display().to_string()
    });
    let outcome = validate(&node.host_file(), &paths.each_ref().map(String::as_str), "");
    let of_files: Vec<&str> = outcome.stdout.lines().filter(|line| line.starts_with('/')).collect();
    let is_in_order = of_files[0].starts_with(&paths[1]) && of_files[1].starts_with(&paths[2]);
    assert!(of_files.len() == 2 && is_in_order, "{outcome}");
    let no_file = validate(&node.host_file(), &["/nonexistent/nad.yaml"], "");
    assert_eq!(no_file.status.code(), Some(2), "{no_file}");
    let no_host_file = validate(Path::new("/nonexistent/metes.conf"), &[], &good.to_string());
    assert_eq!(no_host_file.status.code(), Some(2), "{no_host_file}");
    cluster.assert_clean();
}

#[test]
fn vlans_in_one_network_are_told_if_nobody_has_named_it() {
    let cluster = Cluster::new();
    let host_file = cluster.node("a").host_file();
    let of = |name: &str, main: Value, ipam: Value| {
        let mut config =
            json!({"cniVersion": "1.0.0", "name": name, "capabilities": {"ips": true}, "ipam": ipam});
        config.as_object_mut().expect("an object").extend(main.as_object().expect("an object").clone());
        config["ipam"]["type"] = json!("metes");
        json!({"kind": "NetworkAttachmentDefinition", "metadata": {"namespace": "x", "name": name},
            "spec": {"config": config.to_string()}})
    };
    let lan = || json!({"range": "10.0.0.0/24"});
    let named = |name: &str| json!({"range": "10.0.0.0/24", "network_name": name});
    let bridge = |vlan: u32| json!({"type": "bridge", "bridge": "br0", "vlan": vlan});
    let macvlan = |master: &str| json!({"type": "macvlan", "master": master});
    let vlan = |id: u32| json!({"type": "vlan", "master": "eth0", "vlanId": id});
    let told = |row: &str, two: [(Value, Value); 2], expected: &str| {
        let [(a, of_a), (b, of_b)] = two;
        let both = json!({"kind": "List", "apiVersion": "v1", "items": [of("a", a, of_a), of("b", b, of_b)]});
        let outcome = validate(&host_file, &[], &both.to_string());
        let is_told = outcome.stdout.contains("vlans-share-network");
        let is_right = outcome.stdout.contains(expected) && is_told != expected.is_empty();
        (!is_right).then(|| format!("{row}: {outcome}"))
    };
    let words = "10.0.0.0/24 of VLAN 8 overlaps 10.0.0.0/24 of x/a in VLAN 7, and both are in network default, because \
                 neither has a `network_name`: an address that a pod has in one VLAN is missing in the other\n  to do: \
                 write a `network_name` for each VLAN";
    report([
        told("bridge", [(bridge(7), lan()), (bridge(8), lan())], words),
        told("vlan", [(vlan(7), lan()), (vlan(8), lan())], words),
        told("interfaces", [(macvlan("eth0.7"), lan()), (macvlan("bond0.8"), lan())], words),
        told("two plugins", [(bridge(7), lan()), (macvlan("eth0.8"), lan())], words),
        told("one VLAN", [(bridge(7), lan()), (macvlan("eth0.7"), lan())], ""),
        told("two names", [(bridge(7), named("a")), (bridge(8), named("b"))], ""),
        told("one name", [(bridge(7), named("a")), (bridge(8), named("a"))], ""),
        told("the default, by name", [(bridge(7), named("default")), (bridge(8), named("default"))], ""),
        told("other ranges", [(bridge(7), lan()), (bridge(8), json!({"range": "10.0.1.0/24"}))], ""),
        told("perhaps one link", [(macvlan("eth0"), lan()), (macvlan("ens5"), lan())], ""),
        told("no VLAN", [(bridge(0), lan()), (bridge(8), lan())], ""),
        told("no numbers", [(macvlan("lan.red"), lan()), (macvlan("lan.blue"), lan())], ""),
    ]);
    cluster.assert_clean();
}

#[test]
fn what_an_old_result_cannot_name_is_told() {
    let cluster = Cluster::new();
    let host_file = cluster.node("a").host_file();
    let dual = json!({"ipRanges": [{"range": "10.0.0.0/24"}, {"range": "fd00::/64"}]});
    let two = json!({"ipRanges": [{"range": "10.0.0.0/24"}, {"range": "10.0.1.0/24"}]});
    let fixed = json!({"addresses": [{"address": "fd00::1/64"}, {"address": "fd00::2/64"}]});
    report(
        [
            ("0.2.0", &two, "it gives 2 IPv4 addresses, and a result in cniVersion 0.2.0 names one"),
            ("0.1.0", &fixed, "it gives 2 IPv6 addresses, and a result in cniVersion 0.1.0 names one"),
            ("0.2.0", &dual, ""),
            ("0.3.1", &two, ""),
            ("1.0.0", &fixed, ""),
        ]
        .map(|(version, ipam, words)| {
            let mut config = network(ipam.clone());
            config["cniVersion"] = json!(version);
            let outcome = validate(&host_file, &[], &config.to_string());
            let is_told = outcome.stdout.contains("warning unnamed-addresses");
            let is_right = outcome.stdout.contains(words) && is_told != words.is_empty();
            (!is_right).then(|| format!("{version} {ipam}: {outcome}"))
        }),
    );
    cluster.assert_clean();
}

#[test]
fn a_host_file_that_was_not_edited_is_told_key_by_key() {
    let text = fs::read_to_string(of_repository("manifests/base/metes.conf")).expect("it is there");
    let judged = |text: &str| validate(Path::new(""), &[], text);
    let outcome = judged(&text);
    let words = [
        "stdin:2:3: error unedited-host-file\n  `cluster` is still \"change-me\"",
        "stdin:3:3: error unedited-host-file\n  `allowed` is still \"change-me\"",
        "`etcd.endpoints` is still \"https://192.0.2.11:12379\"",
        "to do: give this cluster a name of its own",
    ];
    assert!(
        outcome.status.code() == Some(1) && words.iter().all(|words| outcome.stdout.contains(words)),
        "{outcome}"
    );
    assert!(outcome.stderr.contains("1 host file, 0 pools; 3 errors, 0 warnings"), "{outcome}");
    let edited = text.replacen("change-me", "prod-1", 1).replace("192.0.2.", "10.0.0.");
    let half = judged(&edited);
    assert!(half.stdout.contains("`allowed` is still") && half.stderr.contains("1 error,"), "{half}");
    let whole = judged(&edited.replace("change-me", "any"));
    assert!(whole.succeeded() && whole.stdout.is_empty(), "{whole}");
}

/// `metes validate --print-allowed` of this text, where no host file can be used.
fn print_allowed(stdin: &str) -> Outcome {
    let run = Run::new(metes()).env("METES_CONF", "/nonexistent/metes.conf");
    run.arguments(["validate", "--print-allowed", "-"]).stdin(stdin).run()
}

fn nad(namespace: &str, name: &str, mut ipam: Value) -> Value {
    ipam["type"] = json!("metes");
    let config = json!({"cniVersion": "1.0.0", "name": name, "plugins": [{"type": "bridge", "ipam": ipam}]});
    let mut metadata = json!({"namespace": namespace, "name": name});
    if namespace.is_empty() {
        metadata.as_object_mut().expect("an object").remove("namespace");
    }
    json!({"kind": "NetworkAttachmentDefinition", "metadata": metadata, "spec": {"config": config.to_string()}})
}

/// What is printed lets the definitions work for pods of their namespaces, and nothing else.
#[test]
fn the_printed_allowed_lets_exactly_the_definitions_work() {
    let storage = json!({"network_name": "storage", "range": "10.56.0.0/16"});
    let part = json!({"network_name": "storage", "range": "10.57.0.16-10.57.0.31/24",
        "ipRanges": [{"range": "fd00:57::/64"}]});
    let inside = json!({"network_name": "storage", "range": "10.56.7.0-10.56.7.9/16"});
    let fixed = json!({"addresses": [{"address": "10.58.0.9/24"}]});
    let own = json!({"range": "10.59.0.0/24", "enable_overlapping_ranges": false, "sticky": "pod"});
    let lab = json!({"pools": ["lab", ["more", "lab"]]});
    let all = [
        ("team-a", storage),
        ("team-b", part),
        ("team-a", inside),
        ("team-c", fixed),
        ("team-a", own),
        ("team-b", lab),
    ];
    let list = |all: &[(&str, Value)]| {
        let items: Vec<Value> =
            all.iter().map(|(namespace, ipam)| nad(namespace, "n", ipam.clone())).collect();
        json!({"kind": "List", "apiVersion": "v1", "items": items}).to_string()
    };
    let expected = r#""allowed": {
  "default": {"prefixes": ["10.58.0.9/32", "10.59.0.0/24"], "namespaces": ["team-a", "team-c"]},
  "lab": {"pools": ["lab"], "namespaces": ["team-b"]},
  "more": {"pools": ["more"], "namespaces": ["team-b"]},
  "storage": {"prefixes": ["10.56.0.0/16", "10.57.0.16/28", "fd00:57::/64"], "namespaces": ["team-a", "team-b"]}
}
"#;
    let printed = print_allowed(&list(&all));
    assert!(printed.succeeded() && printed.stdout == expected && printed.stderr.is_empty(), "{printed}");
    let reversed: Vec<_> = all.iter().rev().cloned().collect();
    assert_eq!(print_allowed(&list(&reversed)).stdout, expected, "the order of definitions does not matter");

    let cluster = Cluster::new();
    let host_file: Value = serde_json::from_str(&format!("{{{expected}}}")).expect("a member of JSON");
    let node = cluster.node_with("a", host_file);
    for pool in ["lab", "more"] {
        let text = format!(r#"{{"pool":"{pool}","ranges":[{{"range":"10.60.0.0/24"}}]}}"#);
        assert!(node.pool(&["apply", "-f", "-", "--yes"], &text).succeeded());
    }
    let add = |namespace: &str, ipam: &Value| {
        let config = network(ipam.clone());
        let outcome = node.add("c").pod(namespace, "p", "u").config(&config).run();
        node.del("c").pod(namespace, "p", "u").config(&config).run().silent();
        outcome
    };
    for (namespace, ipam) in &all {
        assert!(add(namespace, ipam).succeeded(), "{namespace}: {ipam}");
        add("team-d", ipam).error(7);
    }
    for (namespace, ipam) in [
        ("team-a", json!({"network_name": "storage", "range": "10.56.0.0/15"})),
        ("team-b", json!({"network_name": "storage", "range": "10.57.0.16-10.57.0.32/24"})),
        ("team-c", json!({"addresses": [{"address": "10.58.0.10/24"}]})),
        ("team-a", json!({"network_name": "Storage", "range": "10.56.0.0/16"})),
        ("team-a", json!({"pool": "lab"})),
        ("team-b", json!({"pool": "other"})),
    ] {
        add(namespace, &ipam).error(7);
    }
    cluster.assert_clean();
}

#[test]
fn allowed_is_printed_for_sound_definitions_alone_and_a_person_is_told_the_rest() {
    let range = || json!({"network_name": "storage", "range": "10.56.0.0/16"});
    let good = nad("team-a", "good", range());
    // A file of a node is for the pods of all.
    let told = print_allowed(&format!("{good}\n---\n{}", nad("", "no-namespace", range())));
    assert_eq!(told.stdout, "\"allowed\": {\n  \"storage\": [\"10.56.0.0/16\"]\n}\n");
    assert!(told.succeeded() && told.stderr.contains("no-namespace has no namespace"), "{told}");
    let auto = print_allowed(&format!("{good}\n---\n{}", nad("team-b", "chosen", json!({"pool": "auto"}))));
    assert!(auto.succeeded() && auto.stderr.contains("team-b/chosen also needs the pools"), "{auto}");
    let bad = nad("team-b", "bad", json!({"rnage": "10.0.0.0/24"}));
    let etcd =
        nad("team-b", "bad", json!({"range": "10.0.0.0/24", "etcd": {"endpoints": ["http://127.0.0.1:1"]}}));
    for (text, code, words) in [
        (format!("{good}\n---\n{bad}"), 1, "did you mean `range`"),
        (format!("{good}\n---\n{etcd}"), 1, "`ipam.etcd` is not allowed"),
        (format!("{good}\n---\n: :"), 2, "cannot read stdin"),
        ("{}".to_owned(), 2, "nothing to validate in stdin: expected"),
        (r#"{"pool":"lab","ranges":[{"range":"10.60.0.0/24"}]}"#.to_owned(), 2, "no definition"),
    ] {
        let outcome = print_allowed(&text);
        let is_right = outcome.status.code() == Some(code) && outcome.stdout.is_empty();
        assert!(is_right && outcome.stderr.contains(words), "{text}: {outcome}");
    }
}

/// Where it is run there may be no host file, but the nodes have one, unless this is a trial.
#[test]
fn a_network_that_says_where_etcd_is_is_sound_on_trials_alone() {
    let ipam = json!({"range": "10.0.0.0/24", "etcd": {"endpoints": ["http://127.0.0.1:1"]}});
    let run = |is_trial| {
        let run = Run::new(metes()).env("METES_ALLOW_NAD_ETCD", is_trial).arguments(["validate"]);
        run.stdin(network(ipam.clone()).to_string()).run()
    };
    let refused = run("0");
    assert!(!refused.succeeded() && refused.stdout.contains("`ipam.etcd` is not allowed"), "{refused}");
    assert!(run("1").succeeded());
}

/// The examples of the repository are sound.
#[test]
fn the_examples_have_no_errors() {
    let cluster = Cluster::new();
    let paths = files(&of_repository("manifests/examples"), &[".yaml", ".conflist"]);
    let paths: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    let arguments: Vec<&str> = paths.iter().map(String::as_str).collect();
    let outcome = validate(&cluster.node("a").host_file(), &arguments, "");
    assert!(outcome.succeeded() && outcome.stderr.contains("0 errors, 0 warnings"), "{outcome}");
    cluster.assert_clean();
}
