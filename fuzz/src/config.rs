//! The promises of every configuration that is accepted, and of every error that refuses one.

use std::collections::BTreeSet;
use std::net::IpAddr;

use metes_config::cni::request::Attachment;
use metes_config::cni::{Error, Request, Verb};
use metes_config::network::ADDRESSES_MAX;
use metes_config::{Config, Settings};
use metes_core::keys::{Key, Keys, PodInterface, Scope, TicketId};
use metes_core::pool::{
    Addr, Bits, Choice, Family, Need, NetworkName, Owner, Range, RangeSet, Standing, Start, View, Wish,
    choose, spread_start,
};
use serde_json::Value;

/// A choice on an empty store needs fewer rounds of reading.
const STEPS: usize = 64;
const CODES: [u64; 15] = [1, 4, 5, 6, 7, 8, 11, 50, 51, 100, 101, 102, 103, 104, 999];

/// Runtimes can read an error as an object, and the error of a DEL never looks like a success.
pub(super) fn check_error(error: &Error) {
    let json: Value = serde_json::from_str(&error.to_json(Some("1.0.0"))).expect("an error is JSON");
    assert!(json["code"].as_u64().is_some_and(|code| CODES.contains(&code)), "{json}");
    assert!(json["msg"].as_str().is_some_and(|msg| !msg.is_empty()), "{json}");
    let of_del = error.clone().for_del().to_string().to_ascii_lowercase();
    for phrase in ["not found", "no such file or directory"] {
        assert!(!of_del.contains(phrase), "{of_del}");
    }
}

/// No part of an accepted request leads out of its place in the keys.
pub(super) fn check_request(request: &Request) {
    let keys = Keys::new("/metes/");
    if let Ok(Attachment { container_id, ifname }) = request.attachment().cloned() {
        let owner = Owner { node: "n1".parse().expect("a name"), container_id, ifname, cluster: None };
        let (ifname, network) = (owner.ifname.clone(), NetworkName::default());
        assert_eq!(keys.parse(&keys.owner(&owner)), Ok(Key::Owner(owner)));
        if let Some(uid) = request.args.pod.uid.clone() {
            let key = keys.pod(None, &uid, &ifname, &network);
            assert_eq!(keys.parse(&key), Ok(Key::Pod(PodInterface { cluster: None, uid, ifname, network })));
        }
    }
    assert!(request.version.allows(request.verb));
}

pub(super) fn check_config(request: &Request, config: &Config) {
    assert_eq!(config.sets.len(), config.requests.len());
    assert!(config.sets.len() + config.statics.len() <= ADDRESSES_MAX);
    config.sets.iter().for_each(check_set);
    check_gateways(config);
    check_statics(config);
    check_requests(config);
    check_keys(config);
    if request.verb == Verb::Add {
        assert!(!config.sets.is_empty() || !config.statics.is_empty(), "an ADD without any address");
        check_choice(config);
        // A configuration that an ADD accepts serves every other verb too.
        let later = Request { verb: Verb::Del, ..request.clone() };
        Config::parse(&later).expect("what an ADD takes, a DEL takes");
    }
}

pub(super) fn check_set(set: &RangeSet) {
    for range in set.ranges() {
        check_range(range);
        assert_eq!(range.family(), set.family());
    }
    let start = spread_start(set, 0x1234_5678_9abc_def0);
    let expected = if set.size() > 0 { Standing::Assignable } else { set.standing(start) };
    assert_eq!(set.standing(start), expected, "{set:?}");
}

fn check_range(range: &Range) {
    assert!(range.first() <= range.last());
    assert!(range.covers(range.first()) && range.covers(range.last()), "{range:?}");
    assert_eq!(range.subnet().ip(), range.subnet().network());
    let mut above = None;
    for span in range.spans() {
        assert!(span.first <= span.last && range.first() <= span.first && span.last <= range.last());
        assert!(above.is_none_or(|above| above < span.first), "{range:?}");
        above = Some(span.last);
        for address in [span.first, span.last] {
            assert_eq!(range.standing(address), Standing::Assignable);
            assert_eq!(address.is_v4(), range.family() == Family::V4, "{address} of {range:?}");
        }
    }
    assert_eq!(NetworkName::stored(range.network().as_str()).as_ref(), Ok(range.network()));
}

/// No gateway that the configuration names is ever handed out.
fn check_gateways(config: &Config) {
    let of_routes = config.routes.iter().filter_map(|route| route.gw);
    let of_statics = config.statics.iter().filter_map(|fixed| fixed.gateway);
    let ranges = || config.sets.iter().flat_map(RangeSet::ranges);
    let gateways: Vec<IpAddr> =
        of_routes.chain(of_statics).chain(ranges().filter_map(Range::gateway)).collect();
    for range in ranges() {
        for gateway in &gateways {
            assert_ne!(range.standing(Addr::from(*gateway)), Standing::Assignable, "{gateway} of {range:?}");
        }
        assert!(range.gateway().is_none_or(|gateway| gateway.is_ipv4() == (range.family() == Family::V4)));
    }
}

fn check_statics(config: &Config) {
    for fixed in &config.statics {
        let covering = config.sets.iter().find_map(|set| set.covers(Addr::from(fixed.address.ip())));
        match covering {
            Some(range) => assert_eq!(fixed.network.as_ref(), Some(range.network())),
            None => assert!(fixed.network.as_ref().is_none_or(|network| *network == config.network)),
        }
    }
}

/// Each request lies in its own set, and nothing is asked for twice.
fn check_requests(config: &Config) {
    let mut seen = BTreeSet::new();
    for (set, request) in config.sets.iter().zip(&config.requests) {
        let Some(address) = request else { continue };
        let range = set.covers(*address).expect("a request is covered by its set");
        assert!(seen.insert((range.network().clone(), *address)), "{address} is asked for twice");
    }
    for fixed in &config.statics {
        let Some(network) = &fixed.network else { continue };
        let address = Addr::from(fixed.address.ip());
        assert!(seen.insert((network.clone(), address)), "{address} is asked for twice");
    }
}

fn check_keys(config: &Config) {
    let keys = Keys::new("/metes/");
    for set in &config.sets {
        for start in [None, Some(set.ranges()[0].first().page())] {
            assert!(matches!(keys.parse(&keys.cursor(set, start)), Ok(Key::Cursor(..))));
        }
    }
    let page = config.sets.first().map(|set| set.ranges()[0].last().page());
    let scope = Scope::of(&config.sets, page);
    assert_eq!(Scope::stored(scope.as_str()).as_ref(), Ok(&scope));
    let ticket = TicketId(i64::MAX);
    assert_eq!(keys.parse(&keys.ticket(&scope, ticket)), Ok(Key::Ticket(scope.clone(), ticket)));
    assert_eq!(keys.parse(&keys.tail(&scope)), Ok(Key::Tail(scope)));
}

/// On an empty store an ADD gets addresses that are all different, in few steps for ranges of any size.
fn check_choice(config: &Config) {
    let wish = |(set, request)| Wish { set, start: Start::Lowest, request };
    let wishes: Vec<Wish<'_>> = config.sets.iter().zip(config.requests.iter().copied()).map(wish).collect();
    let mut view = View::default();
    for _ in 0..STEPS {
        match choose(&wishes, &view) {
            Choice::Need(needs) => needs.iter().for_each(|need| nothing_is_held(&mut view, need)),
            Choice::Chosen(picks) => {
                assert_eq!(picks.len(), wishes.len());
                let mut taken = BTreeSet::new();
                for pick in picks {
                    assert_eq!(config.sets[pick.set].standing(pick.address), Standing::Assignable);
                    assert!(taken.insert((pick.network, pick.address)), "{} is given twice", pick.address);
                }
                return;
            }
            Choice::Full { set } => {
                assert!(config.sets[set].size() < wishes.len() as u128);
                return;
            }
            Choice::Refused { .. } => return,
        }
    }
    panic!("no choice in {STEPS} steps");
}

fn nothing_is_held(view: &mut View, need: &Need) {
    match need {
        Need::Page(network, page) => view.set_page(network, *page, Bits::empty()),
        Need::Summary(network, summary) => view.set_summary(network, *summary, Bits::empty()),
        Need::Reservation(network, address) => view.set_held(network, *address, false),
    }
}

pub(super) fn check_settings(settings: &Settings) {
    assert!(!settings.endpoints.is_empty());
    let wants_tls = settings.endpoints.iter().any(|endpoint| endpoint.is_tls());
    assert_eq!(settings.tls.is_some(), wants_tls);
    for endpoint in &settings.endpoints {
        assert!(endpoint.is_tls() || endpoint.is_loopback() || settings.allow_plaintext, "{endpoint:?}");
        assert!(endpoint.port() != 0 && !endpoint.host().is_empty());
    }
    let prefix = &settings.prefix;
    assert!(prefix.len() > 2 && prefix.starts_with('/') && prefix.ends_with('/'), "{prefix:?}");
    let keys = Keys::new(prefix);
    assert_eq!(keys.parse(&keys.meta()), Ok(Key::Meta));
    for node in settings.node_name.iter().cloned() {
        assert_eq!(keys.parse(&keys.fence(&node)), Ok(Key::Fence(node)));
    }
    for cluster in settings.cluster.iter().cloned() {
        assert_eq!(keys.parse(&keys.cluster(&cluster)), Ok(Key::Cluster(cluster)));
    }
    assert!(settings.spool_dir.starts_with('/'));
}
