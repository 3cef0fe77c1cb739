//! The answer to an ADD in every version: a CHECK reads from it what the ADD has said.

use std::net::IpAddr;

use ipnetwork::IpNetwork;
use metes_config::cni::previous::{PrevAddress, prev_result_addresses};
use metes_config::cni::result::{Dns, IpConfig, Route, Success};
use metes_config::cni::{Json, Version};
use serde_json::{Value, json};

use super::dice::Dice;

pub(super) fn results(data: &[u8]) {
    let success = success(&mut Dice::new(data));
    for version in Version::ALL {
        match success.render(version) {
            Ok(text) => check(&success, version, &text),
            Err(_) => assert!(success.ips.is_empty() && version < Version::V0_3_0),
        }
    }
}

fn check(success: &Success, version: Version, text: &str) {
    let result: Value = serde_json::from_str(text).expect("a result is JSON");
    assert_eq!(result["cniVersion"], version.name());
    let expected: Vec<PrevAddress> = if version < Version::V0_3_0 {
        check_oldest(success, &result);
        [true, false].into_iter().filter_map(|is_v4| first_of(success, is_v4)).map(read_back).collect()
    } else {
        check_list(success, version, &result);
        success.ips.iter().map(read_back).collect()
    };
    let config = json!({"cniVersion": version.name(), "prevResult": result});
    let config = Json::parse(config.to_string().as_bytes()).expect("a configuration is JSON");
    assert_eq!(prev_result_addresses(&config), Ok(Some(expected)), "{text}");
}

fn first_of(success: &Success, is_v4: bool) -> Option<&IpConfig> {
    success.ips.iter().find(|ip| ip.address.is_ipv4() == is_v4)
}

fn read_back(ip: &IpConfig) -> PrevAddress {
    (ip.address.to_canonical(), ip.gateway.map(|gateway| gateway.to_canonical()))
}

fn check_oldest(success: &Success, result: &Value) {
    for (key, is_v4) in [("ip4", true), ("ip6", false)] {
        let Some(ip) = first_of(success, is_v4) else {
            assert!(result.get(key).is_none(), "{result}");
            continue;
        };
        assert_eq!(result[key]["ip"], json!(format!("{}/{}", ip.address, ip.prefix_len)));
        let routes: Vec<Value> = success
            .routes
            .iter()
            .filter(|route| route.dst.is_ipv4() == is_v4)
            .map(|route| match route.gw {
                Some(gw) => json!({"dst": route.dst.to_string(), "gw": gw}),
                None => json!({"dst": route.dst.to_string()}),
            })
            .collect();
        assert_eq!(result[key].get("routes"), some(routes).as_ref(), "{result}");
    }
    assert_eq!(result["dns"], dns(&success.dns));
}

fn check_list(success: &Success, version: Version, result: &Value) {
    let is_old = version < Version::V1_0_0;
    let ip = |ip: &IpConfig| {
        let mut json = json!({"address": format!("{}/{}", ip.address, ip.prefix_len)});
        if is_old {
            json["version"] = json!(if ip.address.is_ipv4() { "4" } else { "6" });
        }
        if let Some(gateway) = ip.gateway {
            json["gateway"] = json!(gateway);
        }
        json
    };
    assert_eq!(result.get("ips"), some(success.ips.iter().map(ip).collect()).as_ref());
    assert_eq!(result.get("routes"), some(success.routes.iter().map(route).collect()).as_ref());
    let is_told = is_old || success.dns != Dns::default();
    assert_eq!(result.get("dns"), is_told.then(|| dns(&success.dns)).as_ref());
}

fn route(route: &Route) -> Value {
    let mut json = json!({"dst": route.dst.to_string()});
    let gw = route.gw.map(|gw| json!(gw));
    let number = |n: i64| (n != 0).then(|| json!(n));
    let given = [
        ("gw", gw),
        ("mtu", number(route.mtu)),
        ("advmss", number(route.advmss)),
        ("priority", number(route.priority)),
        ("table", route.table.map(|n| json!(n))),
        ("scope", route.scope.map(|n| json!(n))),
    ];
    for (key, value) in given {
        value.into_iter().for_each(|value| json[key] = value);
    }
    json
}

fn dns(dns: &Dns) -> Value {
    let mut json = json!({});
    let texts = |texts: &[String]| some(texts.iter().map(|text| json!(text)).collect());
    let domain = (!dns.domain.is_empty()).then(|| json!(dns.domain));
    let given = [
        ("nameservers", texts(&dns.nameservers)),
        ("domain", domain),
        ("search", texts(&dns.search)),
        ("options", texts(&dns.options)),
    ];
    for (key, value) in given {
        value.into_iter().for_each(|value| json[key] = value);
    }
    json
}

/// An empty list is left out.
fn some(values: Vec<Value>) -> Option<Value> {
    (!values.is_empty()).then_some(Value::Array(values))
}

fn success(dice: &mut Dice<'_>) -> Success {
    Success {
        ips: dice.some(4, |dice| {
            let address = address(dice);
            let gateway = gateway(dice);
            IpConfig { prefix_len: prefix_len(dice, address), address, gateway }
        }),
        routes: dice.some(4, route_of),
        dns: Dns {
            nameservers: dice.some(2, Dice::text),
            domain: dice.text(),
            search: dice.some(2, Dice::text),
            options: dice.some(2, Dice::text),
        },
    }
}

fn route_of(dice: &mut Dice<'_>) -> Route {
    let address = address(dice);
    let length = prefix_len(dice, address);
    Route {
        dst: IpNetwork::new(address, length).expect("a prefix"),
        gw: gateway(dice),
        mtu: number(dice),
        advmss: number(dice),
        priority: number(dice),
        table: dice.flag().then(|| number(dice)),
        scope: dice.flag().then(|| number(dice)),
    }
}

fn number(dice: &mut Dice<'_>) -> i64 {
    let small = i64::from(dice.number());
    dice.pick(&[0, 1, small, -small, i64::MAX, i64::MIN])
}

fn gateway(dice: &mut Dice<'_>) -> Option<IpAddr> {
    dice.flag().then(|| address(dice))
}

fn address(dice: &mut Dice<'_>) -> IpAddr {
    let mut bytes = [0; 16];
    if dice.flag() {
        bytes[..4].fill_with(|| dice.byte());
        return IpAddr::from([bytes[0], bytes[1], bytes[2], bytes[3]]);
    }
    bytes.fill_with(|| dice.byte());
    IpAddr::from(bytes)
}

fn prefix_len(dice: &mut Dice<'_>, address: IpAddr) -> u8 {
    dice.below(if address.is_ipv4() { 33 } else { 129 }) as u8
}
