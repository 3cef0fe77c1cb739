//! The host file, and the rules of trust.

use proptest::prelude::*;

use super::*;
use crate::cni::{Environment, Request};
use crate::etcd::{ClientFiles, Password, StoreKeys};
use crate::host::LEVEL;
use crate::keys::ETCD;

fn from_host(text: &str) -> Result<Settings, Error> {
    Settings::from_host(HostFile::parse(text.as_bytes())?)
}

fn valid(text: &str) -> Settings {
    from_host(text).unwrap_or_else(|e| panic!("{e}: {text}"))
}

fn network(ipam: &str) -> Config {
    network_with("", ipam)
}

fn network_with(args: &str, ipam: &str) -> Config {
    let request = request(args, ipam);
    Config::parse(&request).unwrap_or_else(|e| panic!("{e}: {ipam}"))
}

fn said(ipam: &str) -> IpamSettings {
    IpamSettings::of(&request("", ipam))
}

fn request(args: &str, ipam: &str) -> Request {
    let env = Environment {
        command: "ADD".into(),
        container_id: "ID".into(),
        netns: "/n".into(),
        ifname: "eth0".into(),
        path: "/p".into(),
        args: args.into(),
        ..Environment::default()
    };
    let config = format!(r#"{{"cniVersion":"1.0.0","name":"n","ipam":{ipam}}}"#);
    Request::parse(&env, config.as_bytes()).expect("valid request")
}

#[test]
fn an_empty_file_is_all_defaults() {
    for settings in [valid("{}"), Settings::from_network(&StoreKeys::default()).expect("defaults")] {
        assert_eq!(settings.urls(), ["http://127.0.0.1:2379"]);
        assert_eq!(
            (settings.prefix.as_str(), settings.spool_dir.as_str()),
            ("/metes/", "/var/lib/cni/metes")
        );
        assert_eq!((settings.gc_grace_s, settings.allow_plaintext), (300, false));
        assert!(settings.tls.is_none() && settings.login.is_none() && !settings.says_who_chooses());
        assert!(settings.node_name.is_none() && settings.cluster.is_none() && settings.notes.is_empty());
    }
}

#[test]
fn every_key_is_read() {
    let settings = valid(
        r#"{"etcd":{"endpoints":["https://a:2379","https://b:2379","HTTPS://A:2379/"],"prefix":"x/y","ca_file":"/ca","cert_file":"/c",
            "key_file":"/k","server_name":"etcd.example","username":"u","password_file":"/p"},
            "node_name":"n1.example","cluster":"east","spool_dir":"/s","gc_grace_s":0,"log_file":"/l","log_level":"debug",
            "Allow_Plaintext":true,"allowed":{"red":["10.0.0.0/8","fd00::1"]}}"#,
    );
    assert_eq!(settings.urls(), ["https://a:2379", "https://b:2379"]);
    let client = Some(ClientFiles { cert_file: "/c".into(), key_file: "/k".into() });
    let tls = TlsFiles { ca_file: "/ca".into(), client, server_name: Some("etcd.example".into()) };
    assert_eq!((settings.prefix.as_str(), settings.tls), ("/x/y/", Some(tls)));
    assert_eq!(
        settings.login.map(|l| (l.username, l.password)),
        Some(("u".into(), Password::File("/p".into())))
    );
    assert_eq!((settings.node_name, settings.cluster), ("n1.example".parse().ok(), "east".parse().ok()));
    assert_eq!((settings.spool_dir.as_str(), settings.gc_grace_s), ("/s", 0));
    assert_eq!((settings.log_file.as_deref(), settings.log_level), (Some("/l"), Some(LogLevel::Debug)));
    assert!(settings.allow_plaintext && settings.notes.is_empty());
    assert!(matches!(settings.allowed, Allowed::Networks(networks) if networks.len() == 1));
}

#[test]
fn whereabouts_names_mean_the_same() {
    let settings = valid(
        r#"{"etcd_host":"a:2379, b:2379","etcd_username":"u","etcd_password":"hunter2","etcd_ca_cert_file":"/ca",
            "etcd_cert_file":"/c","etcd_key_file":"/k"}"#,
    );
    assert_eq!(settings.urls(), ["https://a:2379", "https://b:2379"], "TLS files mean https");
    assert!(settings.tls.as_ref().is_some_and(|tls| tls.ca_file == "/ca" && tls.client.is_some()));
    assert_eq!(settings.login.as_ref().map(|l| l.password.clone()), Some(Password::Inline("hunter2".into())));
    assert!(!format!("{settings:?}").contains("hunter2"));
    assert_eq!(valid(r#"{"etcd_host":"127.0.0.1:1"}"#).urls(), ["http://127.0.0.1:1"]);
}

#[test]
fn bad_host_files_are_refused_without_repeating_them() {
    let table = [
        ("", "it is empty"),
        ("secret", "line 1"),
        ("[]", "an array"),
        (r#"{"etcd":5}"#, "`etcd`"),
        (r#"{"etcd":{"endpoints":"http://secret:1"}}"#, "etcd.endpoints"),
        (r#"{"etcd":{"endpoints":["http://secret"]}}"#, "etcd.endpoints[0]"),
        (r#"{"etcd":{"endpoints":["http://u:secret@h:1"]}}"#, "etcd.endpoints[0]"),
        (r#"{"etcd":{"endpoints":["http://127.0.0.1:1"]},"etcd_host":"secret:1"}"#, "etcd_host"),
        (r#"{"etcd":{"username":"u"},"etcd_username":"secret"}"#, "etcd_username"),
        (r#"{"etcd":{"key_file":"/k"},"etcd_key_file":"/secret"}"#, "etcd_key_file"),
        (r#"{"etcd":{"cert_file":"/k"},"etcd_cert_file":"/secret"}"#, "etcd_cert_file"),
        (r#"{"etcd":{"ca_file":"/k"},"etcd_ca_cert_file":"/secret"}"#, "etcd_ca_cert_file"),
        (r#"{"etcd":{"password_file":"/k"},"etcd_password":"secret"}"#, "etcd_password"),
        (r#"{"etcd_password":"secret"}"#, "password_file` needs `username`"),
        (r#"{"etcd_username":"secret"}"#, "password"),
        (r#"{"etcd_password":["secret"]}"#, "etcd_password"),
        (r#"{"etcd":{"endpoints":["http://10.0.0.1:1"]}}"#, "etcd.endpoints[0]"),
        (r#"{"etcd":{"endpoints":["http://127.0.0.1:1","http://secret:1"]}}"#, "etcd.endpoints[1]"),
        (r#"{"etcd":{"endpoints":["https://secret:1"]}}"#, "ca_file"),
        (r#"{"etcd":{"endpoints":["https://secret:1"],"ca_file":"/c","cert_file":"/secret"}}"#, "key_file"),
        (r#"{"etcd":{"endpoints":["https://secret:1"],"ca_file":"/c","key_file":"/secret"}}"#, "cert_file"),
        (r#"{"etcd":{"endpoints":["http://127.0.0.1:1"],"ca_file":"/secret"}}"#, "endpoints"),
        (r#"{"etcd":{"endpoints":["https://h:1"],"ca_file":"secret"}}"#, "etcd.ca_file"),
        (r#"{"etcd":{"endpoints":["https://h:1"],"ca_file":"/c","server_name":"/secret"}}"#, "server_name"),
        (r#"{"etcd":{"prefix":"/../secret/"}}"#, "etcd.prefix"),
        (r#"{"node_name":"secret/x"}"#, "node_name"),
        (r#"{"cluster":"secret x"}"#, "cluster"),
        (r#"{"spool_dir":"secret"}"#, "spool_dir"),
        (r#"{"resolv_conf":"/secret"}"#, "resolv_conf"),
        (r#"{"resolv_conf":["/etc/resolv.conf","secret"]}"#, "resolv_conf"),
        (r#"{"gc_grace_s":-1}"#, "gc_grace_s"),
        (r#"{"gc_grace_s":"secret"}"#, "gc_grace_s"),
        (r#"{"allow_plaintext":"secret"}"#, "allow_plaintext"),
        (r#"{"allowed":["secret"]}"#, "allowed"),
        (r#"{"allowed":"secret"}"#, "allowed` must be an object with a key for each network, or \"any\""),
        (r#"{"allowed":"Any"}"#, "allowed"),
        (r#"{"allowed":true}"#, "allowed"),
        (r#"{"allowed":{"net":"secret"}}"#, "allowed.net"),
        (r#"{"allowed":{"net":["secret"]}}"#, "allowed.net"),
        (r#"{"allowed":{"net":{"namespaces":"secret"}}}"#, "allowed.net.namespaces"),
        (r#"{"allowed":{"net":{"namespaces":["Secret"]}}}"#, "allowed.net.namespaces"),
        (r#"{"allowed":{"net":{"namespaces":["secret-*"]}}}"#, "allowed.net.namespaces"),
        (r#"{"allowed":{"net":{"Namespaces":["secret"]}}}"#, "allowed.net.Namespaces` is unknown"),
        (r#"{"allowed":{"secret/x":[]}}"#, "allowed"),
    ];
    for (text, word) in table {
        let error = from_host(text).err().unwrap_or_else(|| panic!("accepted: {text}"));
        assert_eq!(error.code.number(), 7, "{text}");
        assert!(error.msg.contains(word) && !error.to_string().contains("secret"), "{text}: {error}");
    }
}

#[test]
fn unknown_keys_are_noted() {
    let settings = valid(r#"{"kubernetes":{},"spooldir":"/x","etcd":{"user_name":""},"":5}"#);
    let notes = &settings.notes;
    assert_eq!(notes.len(), 4, "{notes:?}");
    assert!(notes[1].contains("`spool_dir`") && notes[3].contains("`username`"), "{notes:?}");
    assert!(settings.unclear.is_none());
}

#[test]
fn an_add_does_not_go_by_a_host_file_that_is_unclear() {
    let config = network(r#"{"range":"10.0.0.0/24"}"#);
    let table = [
        (r#"{"alowed":{"default":["10.9.0.0/16"]}}"#, "`alowed`; did you mean `allowed`?"),
        (r#"{"resolvConf":[]}"#, "`resolvConf`; did you mean `resolv_conf`?"),
        (r#"{"allowed":{"default":["10.0.0.0/8"]},"Allowed":null}"#, "`allowed` and `Allowed` are one key"),
        (
            r#"{"allowed":{"default":["10.9.0.0/16"],"default":["10.0.0.0/8"]}}"#,
            "`allowed.default` is given twice",
        ),
        (
            r#"{"allowed":{"default":{"prefixes":["10.9.0.0/16"],"prefixes":["10.0.0.0/8"]}}}"#,
            "`allowed.default.prefixes` is given twice",
        ),
        (
            r#"{"allowed":{"default":["10.0.0.0/8"]},"node_labels":{"rack":"7","rack":"8"}}"#,
            "`node_labels.rack` is given twice",
        ),
        (r#"{"etcd_hosts":"10.0.0.1:2379"}"#, "`etcd_hosts`; did you mean `etcd_host`?"),
        (r#"{"etcd":{"prefx":"/other/"}}"#, "`etcd.prefx`; did you mean `prefix`?"),
        (r#"{"etcd":{"endpoint":["http://127.0.0.1:1"]}}"#, "`etcd.endpoint`; did you mean `endpoints`?"),
        (r#"{"clustr":"east"}"#, "`clustr`; did you mean `cluster`?"),
        (r#"{"cluster-name":"east"}"#, "`cluster-name`; did you mean `cluster`?"),
        (r#"{"nodename":"n"}"#, "`nodename`; did you mean `node_name`?"),
        (r#"{"Node-Name":"n"}"#, "`Node-Name`; did you mean `node_name`?"),
        (r#"{"node":"n"}"#, "`node`; did you mean `node_name`?"),
        (
            r#"{"endpoint":[]}"#,
            "`endpoint` stands at the top level and has no effect there: `etcd.endpoints` belongs in `etcd`",
        ),
        (
            r#"{"etcd":{"clustr":"east"}}"#,
            "`etcd.clustr` stands in `etcd` and has no effect there: `cluster` belongs at the top level",
        ),
    ];
    for (file, expected) in table {
        // All other verbs go by the valid keys.
        let error = valid(file).check_allowed(&config, PodsOf::Any).expect_err(file);
        assert_eq!(error.code.number(), 7, "{file}");
        assert!(error.msg.contains(expected), "{file}: {error}");
    }
}

/// Each key of one level that stands at the other one is refused, with both places, whatever its value is.
#[test]
fn a_key_at_the_wrong_level_is_refused_with_both_places() {
    let both = |key: &str| LEVEL.known.contains(&key) && ETCD.known.contains(&key);
    assert!(!LEVEL.known.iter().any(|key| both(key)), "the levels share no key");
    let top =
        LEVEL.known.iter().map(|key| (format!(r#"{{"etcd":{{"{key}":7}}}}"#), format!("etcd.{key}"), *key));
    let of_etcd = ETCD.known.iter().map(|key| (format!(r#"{{"{key}":7}}"#), (*key).to_owned(), *key));
    let top: Vec<_> = top.map(|(file, at, meant)| (file, at, meant.to_owned())).collect();
    let of_etcd = of_etcd.map(|(file, at, key)| (file, at, format!("etcd.{key}")));
    for (file, at, meant) in top.into_iter().chain(of_etcd) {
        let unclear = valid(&file).unclear.unwrap_or_else(|| panic!("accepted: {file}"));
        let words = [format!("`{at}` stands "), format!("`{meant}` belongs ")];
        assert!(words.iter().all(|words| unclear.msg.contains(words)), "{file}: {unclear}");
        let is_of_store = meant.starts_with("etcd") || ["cluster", "node_name"].contains(&meant.as_str());
        assert_eq!(valid(&file).is_store_unclear, is_of_store, "{file}");
    }
}

/// A value that seems to be missing stands at the wrong level.
#[test]
fn the_wrong_level_is_named_before_what_follows_from_it() {
    let tls = r#"{"etcd":{"endpoints":["https://h:1"]},"ca_file":"/c"}"#;
    let error = from_host(tls).expect_err("it is unclear");
    assert!(error.msg.contains("`etcd.ca_file` belongs in `etcd`"), "{error}");
    let leave = r#"{"etcd":{"endpoints":["http://etcd:1"],"allow_plaintext":true}}"#;
    let error = from_host(leave).expect_err("no leave is given");
    assert!(error.details.contains("`allow_plaintext` belongs at the top level"), "{error}");
}

#[test]
fn plain_http_needs_leave_except_at_home() {
    let exposed = r#"{"etcd":{"endpoints":["http://etcd:2379"]},"allow_plaintext":"#;
    assert!(from_host(&format!("{exposed}false}}")).is_err());
    assert_eq!(valid(&format!("{exposed}true}}")).urls(), ["http://etcd:2379"]);
    for home in ["127.0.0.1", "[::1]", "localhost"] {
        valid(&format!(r#"{{"etcd":{{"endpoints":["http://{home}:2379"]}}}}"#));
    }
    let said =
        said(r#"{"range":"10.0.0.0/24","etcd":{"endpoints":["http://etcd:2379"]},"allow_plaintext":true}"#);
    assert!(Settings::from_network(&said.store).is_err(), "a network configuration cannot give leave");
}

#[test]
fn without_a_host_file_the_network_says_which_etcd() {
    let store = |ipam: &str| said(ipam).store;
    let of_etcd = store(
        r#"{"range":"10.0.0.0/24","ETCD":{"endpoints":["https://h:5"],"prefix":"/p/","ca_file":"/c"}}"#,
    );
    let settings = Settings::from_network(&of_etcd).expect("valid");
    assert_eq!((settings.urls()[0].as_str(), settings.prefix.as_str()), ("https://h:5", "/p/"));
    let invalid = store(r#"{"range":"10.0.0.0/24","etcd":{"endpoints":["x"]}}"#);
    assert!(Settings::from_network(&invalid).unwrap_err().msg.contains("`ipam.etcd.endpoints[0]`"));
}

/// The network may have chosen the server that would get it.
#[test]
fn a_network_names_no_secret_of_a_node() {
    let of_etcd = ["key_file", "cert_file", "password_file", "username", "Password_File"];
    let beside = ["etcd_key_file", "etcd_cert_file", "etcd_password", "etcd_username", "ETCD_password"];
    let of_etcd = of_etcd.map(|key| (format!(r#""etcd":{{"{key}":"/x"}}"#), key));
    for (keys, key) in of_etcd.into_iter().chain(beside.map(|key| (format!(r#""{key}":"/x""#), key))) {
        let store = said(&format!(r#"{{"range":"10.0.0.0/24",{keys}}}"#)).store;
        let error = Settings::from_network(&store).expect_err(&keys);
        let words = format!("{} belongs in the host file", key.to_ascii_lowercase());
        let is_told = words.split(' ').all(|word| error.msg.to_ascii_lowercase().contains(word));
        assert!(error.code.number() == 7 && is_told, "{keys}: {error}");
    }
}

#[test]
fn with_a_host_file_the_network_may_not_say_which_etcd() {
    for key in ["etcd", "ETCD", "etcd_host", "etcd_x", "key_file", "cert_file", "ca_file"] {
        let store = said(&format!(r#"{{"range":"10.0.0.0/24","{key}":"x"}}"#)).store;
        let error = store.refuse_beside_host_file().unwrap_err();
        assert!(error.code.number() == 7 && error.msg.contains(key), "{key}: {error}");
    }
    let store = said(r#"{"range":"10.0.0.0/24","etcd":null}"#).store;
    assert_eq!(store.refuse_beside_host_file(), Ok(()));
}

#[test]
fn a_host_file_says_who_chooses() {
    for (file, says) in [
        ("{}", false),
        (r#"{"allowed":null}"#, false),
        (r#"{"pools_only":false}"#, false),
        (r#"{"pools_only":true}"#, true),
        (r#"{"allowed":"any"}"#, true),
        (r#"{"allowed":{}}"#, true),
    ] {
        assert_eq!(valid(file).says_who_chooses(), says, "{file}");
    }
    let anywhere = network(r#"{"network_name":"green","range":"192.168.0.0/16"}"#);
    assert_eq!(valid(r#"{"allowed":"any"}"#).check_allowed(&anywhere, PodsOf::Namespace("a")), Ok(()));
}

#[test]
fn allowed_binds_ranges_requests_and_statics() {
    let allowed = r#"{"allowed":{"red":["10.0.0.0/24","fd00::/64"],"Red":[],"blue":["10.0.0.0/26"]}}"#;
    let table = [
        (r#"{"network_name":"red","range":"10.0.0.0/24"}"#, true),
        (r#"{"network_name":"red","range":"10.0.0.0/24","enable_overlapping_ranges":false}"#, true),
        (r#"{"network_name":"red","range":"10.0.0.0/16"}"#, false),
        (
            r#"{"network_name":"red","range":"10.0.0.0/16","range_start":"10.0.0.2","range_end":"10.0.0.9"}"#,
            true,
        ),
        (r#"{"network_name":"red","range":"10.0.0.0/24","ipRanges":[{"range":"fd00:0:0:1::/64"}]}"#, false),
        (r#"{"network_name":"red","range":"10.0.0.0/24","ipRanges":[{"range":"fd00::/64"}]}"#, true),
        (r#"{"network_name":"red","range":"10.0.0.0/24","addresses":[{"address":"10.0.1.9/16"}]}"#, false),
        (r#"{"network_name":"Red","range":"10.0.0.0/24"}"#, false),
        (r#"{"network_name":"green","range":"10.0.0.0/24"}"#, false),
        (r#"{"range":"10.0.0.0/24"}"#, false),
        (r#"{"addresses":[{"address":"10.0.0.1/24"}]}"#, false),
        (r#"{"network_name":"red","addresses":[{"address":"10.0.0.1/24"}]}"#, true),
        (r#"{"network_name":"red","addresses":[{"address":"10.0.1.1/24"}]}"#, false),
    ];
    for (ipam, accepted) in table {
        let found = valid(allowed).check_allowed(&network(ipam), PodsOf::Namespace(""));
        assert_eq!(found.is_ok(), accepted, "{ipam}: {found:?}");
        assert!(found.err().is_none_or(|e| e.code.number() == 7));
        assert_eq!(valid("{}").check_allowed(&network(ipam), PodsOf::Namespace("")), Ok(()));
    }
    // A request counts too, where the range itself would do.
    let ipam =
        r#"{"network_name":"blue","subnet":"10.0.0.0/24","rangeStart":"10.0.0.8","rangeEnd":"10.0.0.9"}"#;
    for (args, accepted) in [("", true), ("IP=10.0.0.8", true), ("IP=10.0.0.200", false)] {
        let found = valid(allowed).check_allowed(&network_with(args, ipam), PodsOf::Namespace(""));
        assert_eq!(found.is_ok(), accepted, "{args}");
    }
}

#[test]
fn resolv_conf_is_a_file_that_the_host_file_names() {
    let naming = |path: &str| network(&format!(r#"{{"subnet":"10.0.0.0/24","resolvConf":"{path}"}}"#));
    let trial = Settings::from_network(&StoreKeys::default()).expect("defaults");
    let table = [
        (trial, ["/etc/resolv.conf"].as_slice()),
        (valid("{}"), &["/etc/resolv.conf"]),
        (valid(r#"{"resolv_conf":null}"#), &["/etc/resolv.conf"]),
        (valid(r#"{"resolv_conf":[]}"#), &[]),
        (valid(r#"{"allowed":"any","resolv_conf":["/a","/b/c"]}"#), &["/a", "/b/c"]),
    ];
    for (settings, allowed) in table {
        assert_eq!(settings.check_resolv_conf(&network(r#"{"subnet":"10.0.0.0/24"}"#)), Ok(()));
        for path in allowed {
            assert_eq!(settings.check_resolv_conf(&naming(path)), Ok(()), "{path}");
        }
        let others =
            ["/etc/shadow", "/nonexistent", "/etc/../etc/resolv.conf", "//etc/resolv.conf", "/b", "a"];
        let refused = others.map(|path| settings.check_resolv_conf(&naming(path)).expect_err(path));
        // Nothing but what the author wrote.
        assert!(refused.iter().all(|error| error.details == refused[0].details), "{refused:?}");
        assert!(
            refused[0].code.number() == 7 && refused[0].details.contains("`resolv_conf` in the host file")
        );
    }
}

#[test]
fn namespaces_bind_all_that_a_network_may_use() {
    let allowed = valid(
        r#"{"allowed":{
            "red":{"prefixes":["10.0.0.0/24"],"pools":["r","both"],"namespaces":["a","b"]},
            "blue":{"prefixes":["10.0.1.0/24"],"pools":["b","both"],"namespaces":["c"]},
            "none":{"prefixes":["10.0.2.0/24"],"pools":["n"],"namespaces":[]},
            "all":["10.0.3.0/24"],
            "default":{"prefixes":["10.0.4.0/24"],"namespaces":["a"]}}}"#,
    );
    let all = ["a", "b", "c", "A", "", "a,b", "*"];
    let table: [(&str, &[&str]); 14] = [
        (r#"{"network_name":"red","range":"10.0.0.0/24"}"#, &["a", "b"]),
        (r#"{"network_name":"red","subnet":"10.0.0.0/24"}"#, &["a", "b"]),
        (r#"{"network_name":"red","range":"10.0.0.0/24","enable_overlapping_ranges":false}"#, &["a", "b"]),
        (r#"{"network_name":"red","addresses":[{"address":"10.0.0.9/24"}]}"#, &["a", "b"]),
        (r#"{"network_name":"red","range":"10.0.0.0/24","sticky":"pod"}"#, &["a", "b"]),
        (r#"{"network_name":"blue","range":"10.0.1.0/24"}"#, &["c"]),
        (r#"{"network_name":"none","range":"10.0.2.0/24"}"#, &[]),
        (r#"{"network_name":"all","range":"10.0.3.0/24"}"#, &all),
        (r#"{"range":"10.0.4.0/24"}"#, &["a"]),
        (r#"{"addresses":[{"address":"10.0.4.9/24"}]}"#, &["a"]),
        (r#"{"pool":"r"}"#, &["a", "b"]),
        (r#"{"pool":"both"}"#, &["a", "b", "c"]),
        (r#"{"pools":["r","b"]}"#, &[]),
        (r#"{"pools":[["both","b"]]}"#, &["c"]),
    ];
    for (ipam, expected) in table {
        let config = network(ipam);
        let may = |namespace: &&str| allowed.check_allowed(&config, PodsOf::Namespace(namespace)).is_ok();
        let found: Vec<&str> = all.iter().copied().filter(|namespace| may(namespace)).collect();
        assert_eq!(found, expected, "{ipam}");
    }
    let pools = |namespace| allowed.allowed.pools(PodsOf::Namespace(namespace)).expect("a list").len();
    assert_eq!(["a", "c", ""].map(pools), [2, 2, 0], "those that `auto` may choose");
    // Nobody asks yet, but somebody may.
    for (ipam, expected) in [(table[0].0, true), (table[6].0, false), (table[13].0, true)] {
        assert_eq!(allowed.check_allowed(&network(ipam), PodsOf::Any).is_ok(), expected, "{ipam}");
    }
}

proptest! {
    #[test]
    fn no_host_file_makes_it_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..64),
        at in 0usize..300, byte in any::<u8>(),
        key in prop::sample::select(vec!["etcd", "etcd_host", "node_name", "allowed", "gc_grace_s", "spool_dir", "etcd_password"]),
        value in prop::sample::select(vec!["null", "5", "[]", "{}", r#""""#, r#""://:""#, r#"{"":[]}"#, r#"{"endpoints":[""]}"#,
            r#"{"endpoints":["[:1"],"prefix":"//"}"#, "-9223372036854775808", r#"{"x":[null]}"#, r#"",,:,""#]),
    ) {
        let _ = HostFile::parse(&bytes);
        let _ = from_host(&format!(r#"{{"{key}":{value}}}"#));
        let mut file = br#"{"etcd":{"endpoints":["https://[::1]:2379"],"prefix":"/x/","ca_file":"/ca"},"node_name":"n","cluster":"c",
            "gc_grace_s":3,"allowed":{"red":["10.0.0.0/8"]},"etcd_username":"u","etcd_password":"p"}"#.to_vec();
        let at = at % file.len();
        file[at] = byte;
        let _ = HostFile::parse(&file);
    }
}
