//! Tables of configurations; the numbers of cases are those of the forms' own test suites.

use proptest::prelude::*;

use super::*;
use crate::IpamSettings;
use crate::cni::{Environment, Json};
use metes_core::pool::range::Standing;

/// A request for an ADD with CNI_ARGS and a whole configuration.
fn request(args: &str, config: &str) -> Request {
    request_for("ADD", args, config)
}

fn request_for(command: &str, args: &str, config: &str) -> Request {
    let env = environment(command, args);
    Request::parse(&env, config.as_bytes()).unwrap_or_else(|e| panic!("{e}: {config}"))
}

fn environment(command: &str, args: &str) -> Environment {
    Environment {
        command: command.into(),
        container_id: "ID".into(),
        netns: "/some/where".into(),
        ifname: "eth0".into(),
        args: args.into(),
        path: "/opt/cni/bin".into(),
        netns_override: String::new(),
    }
}

fn whole(ipam: &str, rest: &str) -> String {
    format!(r#"{{"cniVersion":"1.0.0","name":"mynet","type":"ipvlan","ipam":{ipam}{rest}}}"#)
}

fn parse(ipam: &str) -> Result<Config, Error> {
    Config::parse(&request("", &whole(ipam, "")))
}

fn valid(ipam: &str) -> Config {
    parse(ipam).unwrap_or_else(|e| panic!("{e}: {ipam}"))
}

/// Every set as `first..last of subnet`.
fn shown(config: &Config) -> Vec<String> {
    let range = |r: &metes_core::pool::range::Range| format!("{}..{} of {}", r.first(), r.last(), r.subnet());
    config.sets.iter().map(|set| set.ranges().iter().map(range).collect::<Vec<_>>().join(" + ")).collect()
}

/// `ipam` is refused with code 7, and the message names all of `words`.
fn check_refused(ipam: &str, words: &[&str]) {
    let error = parse(ipam).err().unwrap_or_else(|| panic!("accepted: {ipam}"));
    assert_eq!(error.code.number(), 7, "{ipam}: {error}");
    for word in words {
        assert!(error.msg.contains(word), "{ipam}: {word:?} is not in {:?}", error.msg);
    }
}

#[test]
fn whereabouts_ranges() {
    let p = "2001:db8:abcd:12";
    let table = [
        (r#""range":"192.168.21.100/30""#, "192.168.21.101..192.168.21.102 of 192.168.21.100/30"),
        (r#""range":"192.168.2.200/27""#, "192.168.2.193..192.168.2.222 of 192.168.2.192/27"),
        (
            r#""range":"192.168.2.200/24","range_start":"192.168.2.23""#,
            "192.168.2.23..192.168.2.254 of 192.168.2.0/24",
        ),
        (
            r#""range":"192.168.2.200/24","range_end":"192.168.2.100""#,
            "192.168.2.1..192.168.2.100 of 192.168.2.0/24",
        ),
        (r#""range":"2001::0/116""#, "2001::1..2001::ffe of 2001::/116"),
        (
            r#""range":"fd:db8:abcd:0012::0/96""#,
            "fd:db8:abcd:12::1..fd:db8:abcd:12::ffff:fffe of fd:db8:abcd:12::/96",
        ),
        (r#""range":"::/0""#, "::1..ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe of ::/0"),
        (r#""range":"0.0.0.0/0""#, "0.0.0.1..255.255.255.254 of 0.0.0.0/0"),
        // A start at the network address, an end at the broadcast address: the usable ones are meant.
        (
            r#""range":"10.0.0.0/29","range_start":"10.0.0.0","range_end":"10.0.0.7""#,
            "10.0.0.1..10.0.0.6 of 10.0.0.0/29",
        ),
        (r#""range":"10.0.0.0-10.0.0.255/24""#, "10.0.0.1..10.0.0.254 of 10.0.0.0/24"),
        (r#""range":"192.168.1.5-192.168.1.25/24""#, "192.168.1.5..192.168.1.25 of 192.168.1.0/24"),
        (r#""range":"10.0.0.1 - 10.0.0.5/24""#, "10.0.0.1..10.0.0.5 of 10.0.0.0/24"),
        (
            r#""range":"fd00:0:0:10:0:0:3:1-fd00:0:0:10:0:0:3:6/64""#,
            "fd00::10:0:0:3:1..fd00::10:0:0:3:6 of fd00:0:0:10::/64",
        ),
        // "A-B/n" overrides the other two keys.
        (r#""range":"10.0.0.5-10.0.0.9/24","range_start":"10.0.0.1""#, "10.0.0.5..10.0.0.9 of 10.0.0.0/24"),
        (r#""range":"192.168.21.100/31""#, "192.168.21.100..192.168.21.101 of 192.168.21.100/31"),
        (r#""range":"192.168.0.7/32""#, "192.168.0.7..192.168.0.7 of 192.168.0.7/32"),
        (r#""range":"2000::/127""#, "2000::..2000::1 of 2000::/127"),
        (r#""range":"2000::/128""#, "2000::..2000:: of 2000::/128"),
        (
            r#""range":"00192.00168.1.0/24","range_start":"00192.00168.1.44","range_end":"00192.00168.01.209""#,
            "192.168.1.44..192.168.1.209 of 192.168.1.0/24",
        ),
        (r#""RANGE":"10.0.0.0/30""#, "10.0.0.1..10.0.0.2 of 10.0.0.0/30"),
        (
            r#""range":"10.0.0.0/30","range_start":"","range_end":null,"gateway":"""#,
            "10.0.0.1..10.0.0.2 of 10.0.0.0/30",
        ),
    ];
    for (keys, expected) in table {
        let config = valid(&format!("{{{keys}}}"));
        assert_eq!(shown(&config), [expected], "{keys}");
        assert_eq!((config.order, config.network.as_str()), (Order::Lowest, "default"));
    }
    for (limits, expected) in [
        (format!(r#","range_end":"{p}::100""#), format!("{p}::1..{p}::100")),
        (format!(r#","range_start":"{p}::50","range_end":"{p}::100""#), format!("{p}::50..{p}::100")),
        (format!(r#","range_start":"{p}::100","range_end":"{p}::100""#), format!("{p}::100..{p}::100")),
        (String::new(), format!("{p}::1..{p}:ffff:ffff:ffff:fffe")),
    ] {
        let config = valid(&format!(r#"{{"range":"{p}::0/64"{limits}}}"#));
        assert_eq!(shown(&config), [format!("{expected} of {p}::/64")]);
    }
}

#[test]
fn whereabouts_sets_in_order() {
    let config = valid(
        r#"{"range":"10.10.0.0/16","ipRanges":[{"range":"11.11.0.0/16"},{"range":"abcd::0/64","range_start":"abcd::5"}]}"#,
    );
    let sets = [
        "10.10.0.1..10.10.255.254 of 10.10.0.0/16",
        "11.11.0.1..11.11.255.254 of 11.11.0.0/16",
        "abcd::5..abcd::ffff:ffff:ffff:fffe of abcd::/64",
    ];
    assert_eq!(shown(&config), sets);
    // The same range twice gives two addresses.
    let twice = valid(r#"{"ipRanges":[{"range":"10.0.0.0/24"},{"range":"10.0.0.0/24"}]}"#);
    assert_eq!(twice.sets.len(), 2);
    let thirty = |n| format!(r#"{{"ipRanges":[{}]}}"#, vec![r#"{"range":"10.0.0.0/24"}"#; n].join(","));
    assert_eq!(valid(&thirty(30)).sets.len(), 30);
    check_refused(&thirty(31), &["31", "30"]);
}

#[test]
fn whereabouts_refusals() {
    let table: [(&str, &[&str]); 24] = [
        (r#"{"range":"10.0.0.9-10.0.0.5/24"}"#, &["ipam.range", "10.0.0.9"]),
        (r#"{"range":"192.168.1.5-192.168.2.25/28"}"#, &["ipam.range", "192.168.1.5"]),
        (r#"{"range":"10.0.0.0/24","range_start":"10.0.1.5"}"#, &["ipam.range_start", "10.0.1.5"]),
        (
            r#"{"range":"192.168.2.200/24","range_start":"192.168.1.150","range_end":"192.168.3.100"}"#,
            &["range_start"],
        ),
        (r#"{"range":"192.168.0.0/29","range_end":"192.168.0.8"}"#, &["range_end", "192.168.0.8"]),
        (
            r#"{"range":"10.0.0.0/24","range_start":"10.0.0.20","range_end":"10.0.0.10"}"#,
            &["range_end", "10.0.0.10"],
        ),
        (r#"{"range":"10.0.0.0/24","range_start":"fd00::1"}"#, &["range_start", "fd00::1"]),
        (r#"{"range":"10.0.0.0/24","range_start":"x"}"#, &["range_start", "\"x\""]),
        (r#"{"range":"10.0.0.0"}"#, &["ipam.range", "10.0.0.0"]),
        (r#"{"range":"10.0.0.0/33"}"#, &["ipam.range"]),
        (r#"{"range":5}"#, &["ipam.range", "5"]),
        (r#"{"range":"::ffff:10.0.0.0/104"}"#, &["ipam.range"]),
        (r#"{"range":"10.0.0.0/24","exclude":["192.168.0.1/123"]}"#, &["ipam.exclude", "192.168.0.1/123"]),
        (r#"{"range":"100::/64","exclude":["100::2::1"]}"#, &["ipam.exclude", "100::2::1"]),
        (r#"{"range":"100::/64","exclude":"100::2"}"#, &["ipam.exclude"]),
        (r#"{"ipRanges":[{"range":"10.0.0.0/24"}],"exclude":["10.0.0.1"]}"#, &["ipam.exclude", "ipam.range"]),
        (
            r#"{"ipRanges":[{"range":"10.0.0.0/24"}],"range_end":"10.0.0.9"}"#,
            &["ipam.range_end", "ipam.range"],
        ),
        (r#"{"ipRanges":[{}]}"#, &["ipam.ipRanges[0].range"]),
        (r#"{"ipRanges":[]}"#, &["no range"]),
        (
            r#"{"ipRanges":[{"range":"10.0.0.0/24","rangeStart":"10.0.0.5"}]}"#,
            &["ipRanges[0].rangeStart", "ipRanges"],
        ),
        (r#"{"range":"10.0.0.0/24","gateway":"x"}"#, &["ipam.gateway", "\"x\""]),
        (
            r#"{"range":"10.0.0.0/24","enable_overlapping_ranges":"false"}"#,
            &["enable_overlapping_ranges", "\"false\""],
        ),
        (r#"{"range":"10.0.0.0/24","order":"random"}"#, &["ipam.order", "random", "spread"]),
        (r#"{"range":"10.0.0.0/24","network_name":"a@b"}"#, &["network_name", "a@b"]),
    ];
    for (ipam, words) in table {
        check_refused(ipam, words);
    }
}

#[test]
fn forms_do_not_mix() {
    let table = [
        (r#"{"range":"10.0.0.0/24","rangeStart":"10.0.0.5"}"#, ["ipam.range", "ipam.rangeStart"]),
        (r#"{"subnet":"10.0.0.0/24","range_start":"10.0.0.5"}"#, ["ipam.subnet", "ipam.range_start"]),
        (r#"{"subnet":"10.0.0.0/24","exclude":["10.0.0.5"]}"#, ["ipam.subnet", "ipam.exclude"]),
        (r#"{"ranges":[[{"subnet":"10.0.0.0/24"}]],"ipRanges":[]}"#, ["ipam.ranges", "ipam.ipRanges"]),
        (r#"{"range":"10.0.0.0/24","resolvConf":"/x"}"#, ["ipam.range", "ipam.resolvConf"]),
        (r#"{"subnet":"10.0.0.0/24","addresses":[]}"#, ["ipam.subnet", "ipam.addresses"]),
        (r#"{"ranges":[[{"range":"10.0.0.0/24"}]]}"#, ["ipam.ranges[0][0].range", "subnet"]),
    ];
    for (ipam, words) in table {
        check_refused(ipam, &words);
    }
    let config =
        whole(r#"{"range":"10.0.0.0/24"}"#, r#","runtimeConfig":{"ipRanges":[[{"subnet":"10.1.0.0/24"}]]}"#);
    assert!(Config::parse(&request("", &config)).unwrap_err().msg.contains("runtimeConfig.ipRanges"));
}

#[test]
fn no_ipam_no_range_or_another_plugins() {
    for ipam in [
        "null",
        "{}",
        r#"{"resolvConf":"/x"}"#,
        r#"{"ranges":[]}"#,
        "5",
        r#"{"type":"static","range":"10.0.0.0/24"}"#,
    ] {
        check_refused(ipam, &["ipam"]);
    }
    let none = request("", r#"{"name":"n"}"#);
    assert_eq!(Config::parse(&none).unwrap_err().code.number(), 7);
    assert!(Config::parse(&request("", &whole(r#"{"type":"metes-2","range":"10.0.0.0/24"}"#, ""))).is_ok());
}

#[test]
fn a_range_may_have_a_network_of_its_own() {
    let config = valid(
        r#"{"range":"10.0.0.77/24","network_name":"red","enable_overlapping_ranges":false,
        "addresses":[{"address":"10.0.0.9/24"},{"address":"10.9.9.9/24"}]}"#,
    );
    assert_eq!(config.network.as_str(), "red");
    let own = "red@00000000000000000000ffff0a000000-24";
    assert_eq!(config.sets[0].ranges()[0].network().as_str(), own);
    let networks: Vec<_> =
        config.statics.iter().map(|s| s.network.as_ref().map(NetworkName::as_str)).collect();
    assert_eq!(networks, [Some(own), Some("red")]);
    let shared = valid(r#"{"range":"10.0.0.77/24","network_name":"red"}"#);
    assert_eq!(shared.sets[0].ranges()[0].network().as_str(), "red");
}

#[test]
fn gateways_are_echoed_on_their_own_family_only() {
    let config =
        valid(r#"{"range":"192.168.1.0/24","ipRanges":[{"range":"fd00::/64"}],"gateway":"192.168.10.1"}"#);
    let gateways: Vec<_> =
        config.sets.iter().map(|set| set.ranges()[0].gateway().map(|g| g.to_string())).collect();
    assert_eq!(gateways, [Some("192.168.10.1".to_owned()), None]);
}

#[test]
fn gateways_and_excludes_are_never_handed_out() {
    let standing = |config: &Config, ip: &str| {
        let addr = Addr::from(ip.parse::<IpAddr>().expect("an address"));
        config.sets.iter().find_map(|set| Some(set.covers(addr)?.standing(addr)))
    };
    let config = valid(
        r#"{"range":"10.0.0.0/24","gateway":"10.0.0.1","exclude":["10.0.0.128/25","10.0.0.8","fd00::/64"],
            "ipRanges":[{"range":"fd00::/64"}],"routes":[{"dst":"0.0.0.0/0","gw":"10.0.0.2"}],
            "addresses":[{"address":"10.0.0.9/24","gateway":"10.0.0.3"}]}"#,
    );
    for gateway in ["10.0.0.1", "10.0.0.2", "10.0.0.3"] {
        assert_eq!(standing(&config, gateway), Some(Standing::Gateway), "{gateway}");
    }
    for excluded in ["10.0.0.8", "10.0.0.200"] {
        assert_eq!(standing(&config, excluded), Some(Standing::Excluded), "{excluded}");
    }
    for assignable in ["10.0.0.4", "fd00::1"] {
        assert_eq!(standing(&config, assignable), Some(Standing::Assignable), "{assignable}");
    }
    assert_eq!(standing(&valid(r#"{"range":"10.0.0.0/24"}"#), "10.0.0.1"), Some(Standing::Assignable));
    // In host-local's form each range has a gateway, and none is given from another range either.
    let config = valid(
        r#"{"ranges":[[{"subnet":"10.0.0.0/24","rangeEnd":"10.0.0.99","gateway":"10.0.0.200"}],
            [{"subnet":"10.0.0.0/24","rangeStart":"10.0.0.100"}]]}"#,
    );
    let set = &config.sets[1];
    assert_eq!(set.standing(Addr::from("10.0.0.200".parse::<IpAddr>().expect("ip"))), Standing::Gateway);
}

#[test]
fn host_local_ranges() {
    let table: [(&str, &[&str]); 9] = [
        (r#"{"subnet":"10.0.0.0/29"}"#, &["10.0.0.1..10.0.0.6 of 10.0.0.0/29"]),
        (
            r#"{"subnet":"10.0.0.0/29","rangeStart":"10.0.0.6","rangeEnd":"10.0.0.7"}"#,
            &["10.0.0.6..10.0.0.7 of 10.0.0.0/29"],
        ),
        (r#"{"subnet":"10.0.0.0/29","rangeStart":"10.0.0.0"}"#, &["10.0.0.0..10.0.0.6 of 10.0.0.0/29"]),
        (
            r#"{"ranges":[[{"subnet":"2001:db8:1::/64"}]]}"#,
            &["2001:db8:1::1..2001:db8:1:0:ffff:ffff:ffff:ffff of 2001:db8:1::/64"],
        ),
        (r#"{"subnet":"fd00::/126","gateway":""}"#, &["fd00::1..fd00::3 of fd00::/126"]),
        (
            r#"{"subnet":"10.1.2.0/24","rangeStart":"10.1.2.9","rangeEnd":"10.1.2.9","gateway":"10.1.2.9"}"#,
            &["10.1.2.9..10.1.2.9 of 10.1.2.0/24"],
        ),
        (
            r#"{"subnet":"10.0.0.0/30","ranges":[[{"subnet":"11.0.0.0/30"},{"subnet":"12.0.0.0/30"}],[{"subnet":"fd00::/126"}]]}"#,
            &[
                "10.0.0.1..10.0.0.2 of 10.0.0.0/30",
                "11.0.0.1..11.0.0.2 of 11.0.0.0/30 + 12.0.0.1..12.0.0.2 of 12.0.0.0/30",
                "fd00::1..fd00::3 of fd00::/126",
            ],
        ),
        (
            r#"{"ranges":[[{"subnet":"10.0.0.0/24","rangeEnd":"10.0.0.127"},{"subnet":"10.0.0.0/24","rangeStart":"10.0.0.128"}]]}"#,
            &["10.0.0.1..10.0.0.127 of 10.0.0.0/24 + 10.0.0.128..10.0.0.254 of 10.0.0.0/24"],
        ),
        (r#"{"ranges":[[{"Subnet":"10.0.0.0/30"}]]}"#, &["10.0.0.1..10.0.0.2 of 10.0.0.0/30"]),
    ];
    for (ipam, expected) in table {
        let config = valid(ipam);
        assert_eq!(shown(&config), expected, "{ipam}");
        assert_eq!(config.order, Order::Next);
    }
    let gateway = |ipam| valid(ipam).sets[0].ranges()[0].gateway().map(|g| g.to_string());
    assert_eq!(gateway(r#"{"subnet":"10.1.2.0/24"}"#).as_deref(), Some("10.1.2.1"));
    assert_eq!(gateway(r#"{"subnet":"10.1.2.0/24","gateway":"9.9.9.9"}"#).as_deref(), Some("9.9.9.9"));
    assert_eq!(gateway(r#"{"subnet":"10.1.2.0/24","gateway":"fd00::1"}"#), None);
    assert_eq!(
        valid(r#"{"subnet":"10.1.2.0/24","resolvConf":"/r","order":"spread"}"#).resolv_conf.as_deref(),
        Some("/r")
    );
}

#[test]
fn host_local_refusals() {
    let table: [(&str, &[&str]); 22] = [
        (r#"{"subnet":"10.1.2.0/24","gateway":"10.1.2.01"}"#, &["ipam.gateway", "10.1.2.01"]),
        (r#"{"subnet":"10.1.02.0/24"}"#, &["ipam.subnet"]),
        (r#"{"subnet":"10.1.2.3/24"}"#, &["ipam.subnet", "10.1.2.0/24"]),
        (r#"{"subnet":"192.0.2.0/31"}"#, &["ipam.subnet", "/30"]),
        (r#"{"subnet":"192.0.2.0/32"}"#, &["ipam.subnet", "/30"]),
        (r#"{"subnet":"fd00::/127"}"#, &["ipam.subnet", "/126"]),
        (r#"{"subnet":"::ffff:10.0.0.0/120"}"#, &["ipam.subnet"]),
        (r#"{"subnet":"192.0.2.0/24","rangeStart":"192.0.3.0"}"#, &["rangeStart", "192.0.3.0"]),
        (r#"{"subnet":"192.0.2.0/24","rangeEnd":"192.0.4.0"}"#, &["rangeEnd", "192.0.4.0"]),
        (
            r#"{"subnet":"192.0.2.0/24","rangeStart":"192.0.2.50","rangeEnd":"192.0.2.40"}"#,
            &["rangeStart", "192.0.2.50"],
        ),
        (
            r#"{"ranges":[[{"subnet":"10.1.2.0/24"},{"subnet":"10.2.2.0/24"}],[{"subnet":"10.1.4.0/24"},{"subnet":"10.1.2.0/24"}]]}"#,
            &["ranges[0][0]", "ranges[1][1]", "overlaps"],
        ),
        (
            r#"{"ranges":[[{"subnet":"10.0.0.0/24","rangeEnd":"10.0.0.127"},{"subnet":"10.0.0.0/24","rangeStart":"10.0.0.127"}]]}"#,
            &["overlaps"],
        ),
        (r#"{"subnet":"10.0.0.0/24","ranges":[[{"subnet":"10.0.0.0/25"}]]}"#, &["ipam.subnet", "overlaps"]),
        (r#"{"ranges":[[{"subnet":"10.0.0.0/24"},{"subnet":"fd00::/64"}]]}"#, &["IPv4", "IPv6"]),
        (r#"{"ranges":[[]]}"#, &["ipam.ranges[0]"]),
        (r#"{"ranges":[]}"#, &["no range"]),
        (r#"{"ranges":[[{}]]}"#, &["ipam.ranges[0][0].subnet"]),
        (r#"{"ranges":[{"subnet":"10.0.0.0/24"}]}"#, &["ipam.ranges[0]", "array"]),
        (r#"{"ranges":{"subnet":"10.0.0.0/24"}}"#, &["ipam.ranges", "array"]),
        (r#"{"rangeStart":"10.0.0.4"}"#, &["ipam.rangeStart", "ipam.subnet"]),
        (r#"{"subnet":"10.0.0.0/24","resolvConf":5}"#, &["ipam.resolvConf"]),
        (r#"{"ranges":[[{"subnet":"10.0.0.0/24","gateway":true}]]}"#, &["ranges[0][0].gateway", "true"]),
    ];
    for (ipam, words) in table {
        check_refused(ipam, words);
    }
    let many: Vec<_> = (0..31).map(|i| format!(r#"[{{"subnet":"10.0.{i}.0/24"}}]"#)).collect();
    check_refused(&format!(r#"{{"ranges":[{}]}}"#, many.join(",")), &["31", "30"]);
}

#[test]
fn the_capability_ip_ranges_comes_first() {
    let runtime = r#","RuntimeConfig":{"IPRanges":[[{"subnet":"12.1.3.0/24"}]]}"#;
    let both = r#"{"subnet":"10.1.2.0/24","ranges":[[{"subnet":"11.1.2.0/24"}]]}"#;
    let config = Config::parse(&request("", &whole(both, runtime))).expect("T22");
    let subnets: Vec<_> = config.sets.iter().map(|set| set.ranges()[0].subnet().to_string()).collect();
    assert_eq!(subnets, ["12.1.3.0/24", "10.1.2.0/24", "11.1.2.0/24"]);
    let config = Config::parse(&request("", &whole("{}", runtime))).expect("T23");
    assert_eq!((config.sets.len(), config.order), (1, Order::Next));
}

/// The requests of a configuration, as text; or the code and message.
fn requested(ipam: &str, args: &str, rest: &str) -> Result<String, (u16, String)> {
    let config = Config::parse(&request(args, &whole(ipam, rest))).map_err(|e| (e.code.number(), e.msg))?;
    let texts = config.requests.iter().map(|r| r.map_or("-".to_owned(), |addr| addr.to_string()));
    Ok(texts.collect::<Vec<_>>().join(" "))
}

#[test]
fn requests_are_matched_to_sets() {
    let one = r#"{"subnet":"10.1.2.0/24"}"#;
    let two = r#"{"ranges":[[{"subnet":"10.1.2.0/24"}],[{"subnet":"10.1.3.0/24"}]]}"#;
    let dual = r#"{"range":"10.1.2.0/24","ipRanges":[{"range":"fd00::/64"}]}"#;
    let split = r#"{"ranges":[[{"subnet":"10.1.2.0/24","rangeEnd":"10.1.2.99"}],[{"subnet":"10.1.2.0/24","rangeStart":"10.1.2.100"}]]}"#;
    let same = r#"{"ipRanges":[{"range":"10.1.2.0/24"},{"range":"10.1.2.0/24"}]}"#;
    let args = |ips: &str| format!(r#","args":{{"cni":{{"ips":{ips}}}}}"#);
    let runtime = |ips: &str| format!(r#","RuntimeConfig":{{"IPs":{ips}}}"#);
    let table = [
        (one, "", String::new(), "-"),
        (one, "", args(r#"["10.1.2.88"]"#), "10.1.2.88"),
        (one, "", args(r#"["10.1.2.88/16"]"#), "10.1.2.88"),
        (one, "", runtime(r#"["10.1.2.44/24"]"#), "10.1.2.44"),
        (one, "IP=10.1.2.11/24", String::new(), "10.1.2.11"),
        (one, "IP=", String::new(), "-"),
        (one, "ips=10.1.2.10;IgnoreUnknown=1", String::new(), "-"),
        (
            one,
            "IP=10.1.2.3",
            format!("{}{}", args(r#"["10.1.2.3"]"#), runtime(r#"["10.1.2.3/24"]"#)),
            "10.1.2.3",
        ),
        (one, "", r#","args":null,"runtimeConfig":null"#.to_owned(), "-"),
        (one, "", r#","args":{"cni":null},"runtimeConfig":{"ips":[]}"#.to_owned(), "-"),
        // The engine judges which addresses can be assigned.
        (one, "IP=10.1.2.255", String::new(), "10.1.2.255"),
        (two, "", args(r#"["10.1.3.7"]"#), "- 10.1.3.7"),
        (two, "", args(r#"["10.1.3.7","10.1.2.7"]"#), "10.1.2.7 10.1.3.7"),
        (dual, "IP=fd00::7/64,010.1.2.7", String::new(), "10.1.2.7 fd00::7"),
        (split, "IP=10.1.2.150", String::new(), "- 10.1.2.150"),
        (same, "IP=10.1.2.7,10.1.2.8", String::new(), "10.1.2.7 10.1.2.8"),
        (r#"{"range":"::/0"}"#, "", runtime(r#"["::1"]"#), "::1"),
    ];
    for (ipam, env, rest, expected) in table {
        assert_eq!(requested(ipam, env, &rest).as_deref(), Ok(expected), "{ipam} {env} {rest}");
    }
}

#[test]
fn requests_that_no_set_can_serve_are_refused() {
    let one = r#"{"subnet":"10.1.2.0/24"}"#;
    let two = r#"{"ranges":[[{"subnet":"10.1.2.0/24"}],[{"subnet":"10.1.3.0/24"}]]}"#;
    let table = [
        (one, "IP=10.9.9.9", "", 7, "10.9.9.9"),
        (one, "", r#","args":{"cni":{"ips":["10.9.9.9"]}}"#, 7, "10.9.9.9"),
        (two, "", r#","args":{"cni":{"ips":["10.1.2.88","10.1.2.77"]}}"#, 7, "10.1.2.77"),
        (one, "", r#","runtimeConfig":{"ips":["foo"]}"#, 7, "runtimeConfig.ips"),
        (one, "", r#","args":{"cni":{"ips":"10.1.2.3"}}"#, 7, "args.cni.ips"),
        (one, "", r#","args":{"cni":{"ips":["::ffff:10.1.2.3"]}}"#, 7, "args.cni.ips"),
        (one, "IP=foo", "", 4, "foo"),
        (one, "IP=10.1.2.03", "", 4, "10.1.2.03"),
        (r#"{"range":"::/0"}"#, "IP=10.0.0.1", "", 7, "10.0.0.1"),
    ];
    for (ipam, env, rest, code, word) in table {
        let (found, msg) = requested(ipam, env, rest).unwrap_err();
        assert!(found == code && msg.contains(word), "{ipam} {env} {rest}: {found} {msg}");
    }
}

#[test]
fn only_an_add_asks_for_addresses() {
    let outside = whole(r#"{"subnet":"10.1.2.0/24"}"#, r#","args":{"cni":{"ips":["10.9.9.9"]}}"#);
    for (args, config) in [("IP=foo", outside), ("IP=foo;GATEWAY=x", whole("{}", ""))] {
        let request = request_for("CHECK", args, &config);
        let config = Config::parse(&request).expect("nothing is asked for");
        assert!(config.requests.iter().all(Option::is_none) && config.statics.is_empty());
    }
}

/// Every static address as `address gateway network`.
fn statics(ipam: &str, args: &str, rest: &str) -> Result<Vec<String>, (u16, String)> {
    let config = Config::parse(&request(args, &whole(ipam, rest))).map_err(|e| (e.code.number(), e.msg))?;
    let shown = config.statics.iter().map(|s| {
        let gateway = s.gateway.map_or("-".to_owned(), |g| g.to_string());
        format!("{} {gateway} {}", s.address, s.network.as_ref().map_or("-", NetworkName::as_str))
    });
    Ok(shown.collect())
}

#[test]
fn static_addresses() {
    let conf = r#"{"addresses":[{"address":"10.10.0.1/24","gateway":"10.10.0.254"},
        {"address":"3ffe:ffff:0:01ff::1/64","gateway":"3ffe:ffff:0::1"}]}"#;
    let (a, b) = ("10.10.0.1/24 10.10.0.254 -", "3ffe:ffff:0:1ff::1/64 3ffe:ffff::1 -");
    let cap = r#","runtimeConfig":{"ips":["10.3.0.1/24"]}"#;
    let args = r#","args":{"cni":{"ips":["10.2.0.1/24","fd00::1/64"]}}"#;
    let table: [(&str, &str, String, &[&str]); 9] = [
        (conf, "", String::new(), &[a, b]),
        (conf, "IP=10.10.0.7/24;GATEWAY=10.10.0.253", String::new(), &[a, b, "10.10.0.7/24 10.10.0.253 -"]),
        ("{}", "IP=10.10.0.1/24,11.11.0.1/24;GATEWAY=10.10.0.254", String::new(), &[a, "11.11.0.1/24 - -"]),
        (conf, "IP=9.9.9.9/8", args.to_owned(), &["10.2.0.1/24 - -", "fd00::1/64 - -"]),
        (conf, "IP=9.9.9.9/8", format!("{args}{cap}"), &["10.3.0.1/24 - -"]),
        ("{}", "", cap.to_owned(), &["10.3.0.1/24 - -"]),
        (
            r#"{"network_name":"red","addresses":[{"address":"10.0.0.0/32","gateway":""}]}"#,
            "",
            String::new(),
            &["10.0.0.0/32 - red"],
        ),
        // whereabouts' form: reserved in a range, if outside of start and end too; else only recorded.
        (
            r#"{"range":"10.0.0.5-10.0.0.9/24","addresses":[{"address":"10.0.0.077/24"},{"address":"10.7.0.1/24"}]}"#,
            "",
            String::new(),
            &["10.0.0.77/24 - default", "10.7.0.1/24 - -"],
        ),
        (r#"{"range":"10.0.0.0/24"}"#, "IP=10.0.0.7/24", String::new(), &[]),
    ];
    for (ipam, env, rest, expected) in table {
        assert_eq!(statics(ipam, env, &rest).expect(ipam), expected, "{ipam} {env} {rest}");
    }
}

#[test]
fn static_refusals() {
    let table = [
        (r#"{"addresses":[{"address":"10.10.0.1"}]}"#, "", "", 7, "ipam.addresses[0].address"),
        (r#"{"addresses":[{}]}"#, "", "", 7, "ipam.addresses[0].address"),
        (r#"{"addresses":[{"address":"10.10.0.01/24"}]}"#, "", "", 7, "ipam.addresses[0].address"),
        (
            r#"{"addresses":[{"address":"10.10.0.1/24","gateway":"x"}]}"#,
            "",
            "",
            7,
            "ipam.addresses[0].gateway",
        ),
        ("{}", "IP=10.10.0.1", "", 4, "10.10.0.1"),
        ("{}", "IP=10.10.0.1/24;GATEWAY=x", "", 4, "GATEWAY"),
        ("{}", "", r#","args":{"cni":{"ips":["10.10.0.1"]}}"#, 7, "args.cni.ips"),
        ("{}", "", r#","runtimeConfig":{"ips":["10.10.0.1"]}"#, 7, "runtimeConfig.ips"),
        (r#"{"addresses":[]}"#, "", "", 7, "no address"),
        (
            r#"{"network_name":"n","addresses":[{"address":"10.0.0.1/24"},{"address":"10.0.0.1/16"}]}"#,
            "",
            "",
            7,
            "twice",
        ),
        (r#"{"range":"10.0.0.0/24","addresses":[{"address":"10.0.0.1/24"}]}"#, "IP=10.0.0.1", "", 7, "twice"),
    ];
    for (ipam, env, rest, code, word) in table {
        let (found, msg) = statics(ipam, env, rest).expect_err(ipam);
        assert!(found == code && msg.contains(word), "{ipam} {env} {rest}: {found} {msg}");
    }
}

#[test]
fn routes_and_dns_go_through() {
    let config = valid(
        r#"{"subnet":"10.0.0.0/24","routes":[{"dst":"3ffe:ffff:0:01ff::1/64"},
        {"dst":"0.0.0.0/0","gw":"10.0.0.9","mtu":0,"priority":5,"table":0,"scope":0},{"dst":"0.0.0.0/0","gw":""}]}"#,
    );
    let json = serde_json::to_string(&config.routes).expect("JSON");
    assert_eq!(
        json,
        r#"[{"dst":"3ffe:ffff:0:1ff::1/64"},{"dst":"0.0.0.0/0","gw":"10.0.0.9","priority":5,"table":0,"scope":0},{"dst":"0.0.0.0/0"}]"#
    );
    let dns = valid(r#"{"range":"10.0.0.0/24","dns":{"nameservers":["1.1.1.1"],"domain":"d","search":["s"],"options":["o"]}}"#).dns;
    assert_eq!(
        (dns.nameservers.len(), dns.domain.as_str(), dns.search.len(), dns.options.len()),
        (1, "d", 1, 1)
    );
    for bad in [
        r#"{"dst":"10.0.0.0/8","gw":"1.2.3.x"}"#,
        "{}",
        r#"{"dst":""}"#,
        r#"{"dst":"10.0.0.0"}"#,
        r#"{"dst":"10.0.0.0/8","mtu":"1"}"#,
        r#"{"dst":"10.0.0.0/8","scope":1.5}"#,
        "7",
    ] {
        check_refused(&format!(r#"{{"subnet":"10.0.0.0/24","routes":[{bad}]}}"#), &["ipam.routes[0]"]);
    }
    check_refused(r#"{"range":"10.0.0.0/24","dns":{"nameservers":"1.1.1.1"}}"#, &["ipam.dns.nameservers"]);
}

#[test]
fn what_has_no_effect_is_noted() {
    let notes = |ipam| valid(ipam).notes;
    let table = [
        (r#"{"range":"10.0.0.0/24","kubernetes":{}}"#, "ipam.kubernetes"),
        (r#"{"range":"10.0.0.0/24","log_flie":"x"}"#, "did you mean `log_file`?"),
        (r#"{"range":"10.0.0.0/24","routes":[{"dst":"10.9.0.0/16","via":"x"}]}"#, "ipam.routes[0].via"),
        (r#"{"range":"10.0.0.0/24","dns":{"nameserver":"x"}}"#, "did you mean `nameservers`?"),
        (r#"{"ipRanges":[{"range":"10.0.0.0/24","gateway":"x"}]}"#, "ipam.ipRanges[0].gateway"),
        (r#"{"ranges":[[{"subnet":"10.0.0.0/24","x":1}]]}"#, "ipam.ranges[0][0].x"),
        (r#"{"ranges":[[{"subnet":"10.0.0.0/24"}]],"gateway":"10.0.0.1"}"#, "ipam.gateway"),
        (r#"{"subnet":"10.0.0.0/24","dns":{"nameservers":["1.1.1.1"]}}"#, "ipam.dns"),
        (r#"{"addresses":[{"address":"10.0.0.1/24"}],"gateway":"10.0.0.9"}"#, "ipam.gateway"),
        (r#"{"range":"10.0.0.5-10.0.0.9/24","range_end":"10.0.0.9"}"#, "ipam.range"),
        (r#"{"subnet":"10.0.0.0/24","dataDir":"/x"}"#, "ipam.dataDir"),
    ];
    for (ipam, word) in table {
        let notes = notes(ipam);
        assert!(notes.len() == 1 && notes[0].contains(word), "{ipam}: {notes:?}");
    }
    let known = r#"{"type":"metes","range":"10.0.0.0/24","log_file":"/l","log_level":"debug","configuration_path":"/c","etcd":{},"network_name":"n"}"#;
    let config = valid(known);
    assert!(config.notes.is_empty(), "{:?}", config.notes);
    let said = IpamSettings::of(&request("", &whole(known, "")));
    assert!(!said.store.is_empty());
    assert_eq!(said.configuration_path.as_deref(), Some("/c"));
}

#[test]
fn an_error_says_what_else_is_odd() {
    let details = |ipam: &str| parse(ipam).expect_err(ipam).details;
    let found = details(r#"{"range":"10.0.0.0/33","kubernetes":{},"zz":1}"#);
    assert_eq!(found, "key `ipam.kubernetes` is ignored: it has no meaning for metes; unknown key `ipam.zz`");
    let found = details(r#"{"range":"10.0.0.0/24","excludes":["10.0.0.0/25"],"rnage":"x","zz":1}"#);
    assert!(
        found.ends_with("; unknown key `ipam.rnage`; did you mean `range`?; unknown key `ipam.zz`"),
        "{found}"
    );
}

/// An ADD would give other addresses than were meant. A DEL finds what to free without these keys.
#[test]
fn keys_that_make_it_unclear_are_refused_but_for_a_del() {
    let good = r#"{"range":"10.0.0.0/24"}"#;
    let table = [
        (
            r#"{"range":"10.0.0.0/24","excludes":["10.0.0.1"]}"#,
            "",
            "`ipam.excludes`; did you mean `exclude`?",
        ),
        (r#"{"range":"10.0.0.0/24","Range":"10.0.1.0/24"}"#, "", "`ipam.range` and `ipam.Range` are one key"),
        (r#"{"range":"10.0.0.0/24","type":"metes","TYPE":"metes"}"#, "", "`ipam.type` and `ipam.TYPE`"),
        (good, r#","IPAM":{"range":"10.0.1.0/24"}"#, "`ipam` and `IPAM` are one key"),
        (good, r#","runtimeConfig":{},"RuntimeConfig":{}"#, "`runtimeConfig` and `RuntimeConfig`"),
        (good, r#","runtimeConfig":{"ips":[],"IPs":[]}"#, "`runtimeConfig.ips` and `runtimeConfig.IPs`"),
        (good, r#","runtimeConfig":{"ip":["10.0.0.9"]}"#, "`runtimeConfig.ip`; did you mean `ips`?"),
        (good, r#","args":{"cni":{"ips":[]},"CNI":{}}"#, "`args.cni` and `args.CNI`"),
        (good, r#","args":{"cni":{"ips":[],"IPS":[]}}"#, "`args.cni.ips` and `args.cni.IPS`"),
        (
            r#"{}"#,
            r#","runtimeConfig":{"ipRanges":[[{"subnet":"10.0.0.0/24","rangeEnds":"10.0.0.9"}]]}"#,
            "`runtimeConfig.ipRanges[0][0].rangeEnds`; did you mean `rangeEnd`?",
        ),
        (r#"{"range":"10.0.0.0/30","exclude":["10.0.0.0/24"]}"#, "", "`ipam.range`: no address is left"),
    ];
    for (ipam, rest, expected) in table {
        let config = whole(ipam, rest);
        for (verb, refuses) in [("ADD", true), ("CHECK", true), ("DEL", false)] {
            let found = Config::parse(&request_for(verb, "", &config));
            assert_eq!(found.is_err(), refuses, "{verb} {config}");
            if let Err(e) = found {
                assert!(e.code.number() == 7 && e.msg.contains(expected), "{verb} {config}: {e}");
            }
        }
    }
}

/// Keys of runtimes, of other plugins and of users who start pods are theirs.
#[test]
fn keys_of_others_stand_beside() {
    let config = whole(
        r#"{"range":"10.0.0.0/24"}"#,
        r#","ipMasq":true,"IPMASQ":false,"subnet":"x","runtimeConfig":{"mac":"x","dns":{},"bandwidth":{},"Mac":"y"},
            "args":{"labels":[],"cni":{"ip":"10.9.9.9","x":1,"X":2}}"#,
    );
    let config = Config::parse(&request("", &config)).expect("valid");
    assert!(config.notes.is_empty(), "{:?}", config.notes);
}

#[test]
fn picked_addresses_are_an_ordered_list() {
    let config = valid(
        r#"{"range":"10.0.0.0/24","gateway":"10.0.0.1","exclude":["10.0.0.8"],
            "pick_addresses":["10.0.0.9","10.0.0.5","10.0.0.1","10.0.0.8","10.0.0.9"],
            "ipRanges":[{"range":"fd00::5-fd00::9/64","pick_addresses":["fd00::7"]}]}"#,
    );
    let one = |ip: &str| format!("{ip}..{ip} of 10.0.0.0/24");
    let v4 = ["10.0.0.9", "10.0.0.5", "10.0.0.1", "10.0.0.8"].map(one).join(" + ");
    assert_eq!(shown(&config), [v4.as_str(), "fd00::7..fd00::7 of fd00::/64"]);
    assert_eq!(config.sets.iter().map(RangeSet::size).collect::<Vec<_>>(), [2, 1]);
    assert_eq!(
        config.sets[0].standing(Addr::from("10.0.0.6".parse::<IpAddr>().expect("an address"))),
        Standing::OutsideBounds
    );
    let many = |n: usize| {
        let list: Vec<_> = (0..n).map(|i| format!("\"10.0.{}.{}\"", i / 250, 1 + i % 250)).collect();
        format!(r#"{{"range":"10.0.0.0/16","pick_addresses":[{}]}}"#, list.join(","))
    };
    assert_eq!(valid(&many(256)).sets[0].ranges().len(), 256);
    check_refused(&many(257), &["ipam.pick_addresses", "256"]);
    let table = [
        (r#""range":"10.0.0.0/24","pick_addresses":[]"#, "ipam.pick_addresses"),
        (r#""range":"10.0.0.0/24","pick_addresses":"10.0.0.5""#, "ipam.pick_addresses"),
        (r#""range":"10.0.0.0/24","pick_addresses":["10.0.1.5"]"#, "10.0.1.5"),
        (r#""range":"10.0.0.0/24","pick_addresses":["10.0.0.0"]"#, "10.0.0.1 to 10.0.0.254"),
        (
            r#""range":"10.0.0.0/24","range_end":"10.0.0.9","pick_addresses":["10.0.0.10"]"#,
            "10.0.0.1 to 10.0.0.9",
        ),
        (r#""range":"10.0.0.0/24","pick_addresses":["10.0.0.5/31"]"#, "10.0.0.5/31"),
        (r#""range":"10.0.0.0/24","pick_addresses":["fd00::5"]"#, "fd00::5"),
        (
            r#""range":"10.0.0.0/24","pick_addresses":["10.0.0.5"],"exclude":["10.0.0.5"]"#,
            "no address is left",
        ),
        (r#""range":"10.0.0.0/24","pick_addresses":["10.0.0.5"],"gateway":"10.0.0.5""#, "no address is left"),
        (r#""ipRanges":[{"range":"10.0.0.0/24"}],"pick_addresses":["10.0.0.5"]"#, "needs `ipam.range`"),
        (r#""subnet":"10.0.0.0/24","pick_addresses":["10.0.0.5"]"#, "cannot be combined"),
    ];
    for (keys, word) in table {
        check_refused(&format!("{{{keys}}}"), &[word]);
    }
}

#[test]
fn a_del_reads_what_it_can() {
    for ipam in ["null", "5", "[]", "{}", r#"{"configuration_path":5,"range":7}"#] {
        let said = IpamSettings::of(&request_for("DEL", "", &whole(ipam, "")));
        assert!(said.store.is_empty() && said.configuration_path.is_none(), "{ipam}");
    }
    let said = IpamSettings::of(&request_for(
        "DEL",
        "",
        &whole(r#"{"range":7,"etcd_password":"hunter2","configuration_path":"/c"}"#, ""),
    ));
    assert_eq!(said.configuration_path.as_deref(), Some("/c"));
    assert!(!format!("{said:?}").contains("hunter2"), "{said:?}");
}

/// Values that come near to the expected ones.
fn value() -> impl Strategy<Value = String> {
    let text = prop::sample::select(vec![
        "null",
        "5",
        "-1",
        "true",
        "false",
        "[]",
        "{}",
        "[[]]",
        "[{}]",
        "[[{}]]",
        r#""""#,
        r#""x""#,
        r#""10.0.0.0/24""#,
        r#""10.0.0.5""#,
        r#""10.0.0.9-10.0.0.5/24""#,
        r#""10.0.0.255/31""#,
        r#""255.255.255.255/32""#,
        r#""0.0.0.0/0""#,
        r#""::/0""#,
        r#""ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/128""#,
        r#""fd00::/64""#,
        r#""fd00::5""#,
        r#""::ffff:10.0.0.1/100""#,
        r#"["10.0.0.5","fd00::/65"]"#,
        r#"[{"range":"::/1","range_start":"::"}]"#,
        r#"[[{"subnet":"10.0.0.0/8"},{"subnet":"fd00::/8"}]]"#,
        r#"[[{"subnet":"10.0.0.0/8"}]]"#,
        r#"[{"dst":"::/0","gw":"fd00::1"}]"#,
        r#"[{"address":"10.0.0.1/0"}]"#,
        r#""next""#,
        r#"{"ips":["10.0.0.7","fd00::7/64"],"ipRanges":[[{"subnet":"10.0.0.0/30"}]]}"#,
        r#"{"cni":{"ips":["10.0.0.8/24"]}}"#,
    ]);
    prop_oneof![4 => text.prop_map(str::to_owned), 1 => "\\PC{0,12}".prop_map(|text| Json::String(text).to_string())]
}

fn pairs(keys: Vec<&'static str>, count: std::ops::Range<usize>) -> impl Strategy<Value = String> {
    let pair = (prop::sample::select(keys), value()).prop_map(|(key, value)| format!("{key:?}:{value}"));
    prop::collection::vec(pair, count).prop_map(|pairs| pairs.join(","))
}

proptest! {
    #[test]
    fn no_configuration_makes_it_panic(
        ipam in pairs([&keys::WHEREABOUTS[..], &keys::HOST_LOCAL, &["gateway", "routes", "dns", "addresses", "network_name",
            "order", "etcd", "etcd_host", "kubernetes"]].concat(), 0..6),
        rest in pairs(vec!["args", "runtimeConfig", "prevResult", "cni.dev/attachments"], 0..3),
        command in prop::sample::select(vec!["ADD", "CHECK", "DEL"]),
        args in prop::sample::select(vec!["", "IP=10.0.0.7", "IP=fd00::1/64,10.0.0.9/8;GATEWAY=10.0.0.1", "IP=x"]),
    ) {
        let comma = if rest.is_empty() { "" } else { "," };
        let config = whole(&format!("{{{ipam}}}"), &format!("{comma}{rest}"));
        let request = request_for(command, args, &config);
        if let Ok(config) = Config::parse(&request) {
            prop_assert_eq!(config.sets.len(), config.requests.len());
            prop_assert!(command != "ADD" || config.sets.len() + config.statics.len() > 0);
            prop_assert!(config.sets.len() + config.statics.len() <= ADDRESSES_MAX);
        }
        let said = IpamSettings::of(&request);
        let _ = crate::Settings::from_network(&said.store);
        let _ = crate::cni::previous::prev_result_addresses(&request.config);
        let _ = crate::cni::previous::valid_attachments(&request.config);
    }

    #[test]
    fn no_change_of_a_valid_configuration_makes_it_panic(at in 0usize..400, byte in any::<u8>(), cut in 0usize..400) {
        let ipam = r#"{"type":"metes","range":"10.0.0.5 - 10.0.0.99/24","exclude":["10.0.0.8/30"],"gateway":"10.0.0.1",
            "ipRanges":[{"range":"fd00::/64","range_start":"fd00::9"}],"routes":[{"dst":"0.0.0.0/0","gw":"10.0.0.1"}],
            "addresses":[{"address":"10.0.0.2/24"}],"network_name":"n","order":"spread","etcd":{"endpoints":["http://127.0.0.1:1"]}}"#;
        let mut bytes = whole(ipam, r#","runtimeConfig":{"ips":["10.0.0.7"]}"#).into_bytes();
        let at = at % bytes.len();
        bytes[at] = byte;
        bytes.truncate(bytes.len() - cut.saturating_sub(350));
        if let Ok(request) = Request::parse(&environment("ADD", ""), &bytes) {
            let _ = Config::parse(&request);
        }
    }
}

#[test]
fn what_bridge_takes_for_itself_is_kept_back() {
    let standing = |rest: &str| {
        let config = Config::parse(&request("", &whole(r#"{"type":"metes","range":"10.0.0.0/24"}"#, rest)));
        let config = config.expect("a valid configuration");
        config.sets[0].standing(Addr::from("10.0.0.1".parse::<IpAddr>().expect("an address")))
    };
    assert_eq!(standing(""), Standing::Assignable);
    assert_eq!(standing(r#","isGateway":true"#), Standing::Gateway);
    assert_eq!(standing(r#","isDefaultGateway":true"#), Standing::Gateway);
    assert_eq!(standing(r#","isGateway":false"#), Standing::Assignable);
}
