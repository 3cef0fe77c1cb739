//! The pools that the ranges of a network make, and the network with these pools in place of its ranges. Pure.
//!
//! The configuration is read by what reads it for an ADD. The pools give exactly the addresses that its ranges give,
//! apart from those that the notes name.

use std::net::IpAddr;

use ipnetwork::IpNetwork;
use serde_json::{Map, Value};

use super::text;
use metes_config::Config;
use metes_config::cni::result::{Dns, Route};
use metes_config::cni::{Json, Verb};
use metes_config::nad::{NAD_KIND, Nad, metes_plugins, put_pools};
use metes_core::pool::dns::PoolDns;
use metes_core::pool::range::usable;
use metes_core::pool::{
    Addr, Excluded, POOLED_MAX, PoolDefinition, PoolName, PoolRange, PoolRoute, Range, RangeSet, RangeState,
    RangeText, Span,
};

/// The fields of `metadata` that the API server writes. They do not belong into a document to apply.
const OF_API_SERVER: [&str; 6] =
    ["creationTimestamp", "generation", "managedFields", "resourceVersion", "selfLink", "uid"];

/// The annotation in which kubectl keeps the whole object as it was.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// A network whose ranges were moved into pools.
#[derive(Debug)]
pub(super) struct MovedNetwork {
    /// The pools, as documents that `apply` takes.
    pub(super) pools: String,
    /// The network's definition that uses them, in the form in which it was given.
    pub(super) definition: String,
    /// The differences from before, a sentence each.
    pub(super) notes: Vec<String>,
}

/// Makes pools of the ranges of a definition, or of a CNI configuration. `name` is the pool's; without it, the pool has
/// the definition's name.
///
/// # Errors
/// Why it cannot be done, in a sentence that says what to do.
pub(super) fn move_to_pools(text: &str, name: Option<&PoolName>) -> Result<MovedNetwork, String> {
    let mut definition = NetworkDefinition::read(text)?;
    let config = definition.parsed()?;
    let mut notes = config.notes.clone();
    refuse_what_pools_cannot_have(&config)?;
    let names = names(name, &definition.name, &config.sets)?;
    let moves_routes = config.routes.iter().all(is_plain);
    let mut pools: Vec<PoolDefinition> = Vec::new();
    for (set, name) in config.sets.iter().zip(&names) {
        let is_first = !pools.iter().any(|pool| is_ipv4(pool) == set.ranges()[0].subnet().is_ipv4());
        let routes = config.routes.iter().filter(|route| {
            let of_other_family = !config.sets.iter().any(|set| has_family_of(set, route));
            moves_routes && is_first && (has_family_of(set, route) || of_other_family && pools.is_empty())
        });
        let pool = PoolDefinition {
            routes: routes.map(|route| PoolRoute { dst: route.dst, gw: route.gw }).collect(),
            order: Some(config.order),
            ..empty_pool(name, &config)
        };
        pools.push(filled(pool, set, &config, &mut notes)?);
    }
    if !moves_routes {
        notes.push("the routes stay in `ipam`: those of a pool have `dst` and `gw` alone".to_owned());
    }
    if config.resolv_conf.is_some() {
        notes.push("`resolvConf` is left out, because pools have none: write `dns` in its place".to_owned());
    }
    if definition.plugin()["capabilities"]["ipRanges"] == true {
        notes.push(
            "the capability ipRanges stays, and a pod that gives ranges is refused: pools have their own"
                .to_owned(),
        );
    }
    let text = text::export(&pools);
    text::parse("the pools", &text)?;
    let ipam = definition.ipam();
    put_pools(ipam, &names);
    if moves_routes {
        ipam.remove("routes");
    }
    // In host-local's form it has no effect. Beside pools it would have one.
    if config.dns == Dns::default() {
        ipam.remove("dns");
    }
    definition.parsed()?;
    Ok(MovedNetwork { pools: text, definition: definition.written(), notes })
}

/// A network's configuration, and where it was found.
struct NetworkDefinition {
    /// The definition; none if the text is the configuration alone.
    object: Option<Value>,
    config: Value,
    /// Of the definition, or of the network.
    name: String,
    /// Where the plugin stands that has metes for its `ipam`.
    place: String,
}

/// The types of `ipam` in a configuration, quoted.
fn ipam_types(config: &Value) -> Vec<String> {
    let own = config["ipam"]["type"].as_str().map(|name| format!("{name:?}"));
    let of_plugins = config["plugins"].as_array().into_iter().flatten().flat_map(ipam_types);
    own.into_iter().chain(of_plugins).collect()
}

impl NetworkDefinition {
    fn read(text: &str) -> Result<Self, String> {
        let read: Value =
            yaml_serde::from_str(text).map_err(|e| format!("it is neither YAML nor JSON: {e}"))?;
        let (object, text, name) = match Nad::of(&read, "") {
            Some(nad) => {
                let config =
                    nad.config.ok_or("it has no `spec.config`: give the file that the nodes have")?;
                (Some(read), config, nad.name)
            }
            None => {
                if let Some(kind) = read["kind"].as_str() {
                    return Err(format!("it is a {kind}: give one {NAD_KIND}, or a CNI configuration"));
                }
                let name = read["name"].as_str().unwrap_or_default().to_owned();
                (None, read.to_string(), name)
            }
        };
        let not_json = |e| format!("`spec.config` is not JSON: {e}");
        let config: Value = serde_json::from_str(&text).map_err(not_json)?;
        let json = Json::parse(text.as_bytes()).map_err(not_json)?;
        let plugin = metes_plugins(&json, &name).into_iter().next();
        let plugin = plugin.ok_or_else(|| match ipam_types(&config).as_slice() {
            [] => "no plugin in it has `ipam`: pools are made from one of type metes".to_owned(),
            types => format!(
                "no plugin in it has `ipam` of type \"metes\": it is {}; write \"metes\" as its type first, which \
                 reads the keys of whereabouts, host-local and static",
                types.join(" and ")
            ),
        })?;
        plugin.read(Verb::Add).map_err(|e| e.to_string())?;
        if config.pointer(&format!("{}/ipam", plugin.place)).is_none() {
            return Err("write the key `ipam` in lower case".to_owned());
        }
        Ok(Self { object, config, name, place: plugin.place })
    }

    /// As an ADD reads it.
    fn parsed(&self) -> Result<Config, String> {
        let json = Json::parse(self.config.to_string().as_bytes()).map_err(|e| e.to_string())?;
        let plugin = metes_plugins(&json, &self.name).into_iter().find(|plugin| plugin.place == self.place);
        plugin.ok_or("it has no `ipam` any more")?.read(Verb::Add).map_err(|e| e.to_string())
    }

    fn plugin(&mut self) -> &mut Value {
        self.config.pointer_mut(&self.place).expect("it was found there")
    }

    fn ipam(&mut self) -> &mut Map<String, Value> {
        self.plugin()["ipam"].as_object_mut().expect("it was read")
    }

    fn written(self) -> String {
        let config = serde_json::to_string_pretty(&self.config).expect("it was read from such a text") + "\n";
        let Some(mut object) = self.object else { return config };
        object["spec"]["config"] = config.into();
        object.as_object_mut().map(|keys| keys.remove("status"));
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.retain(|key, _| !OF_API_SERVER.contains(&key.as_str()));
            let annotations = metadata.get_mut("annotations").and_then(Value::as_object_mut);
            annotations.map(|annotations| annotations.remove(LAST_APPLIED));
        }
        yaml_serde::to_string(&object).expect("its keys are texts")
    }
}

fn refuse_what_pools_cannot_have(config: &Config) -> Result<(), String> {
    if config.pools.is_some() {
        return Err("it uses pools already".to_owned());
    }
    if let Some(fixed) = config.statics.first() {
        return Err(format!(
            "it has the static address {}, which does not go with pools: make a network of its own for static \
             addresses, or let pods request them",
            fixed.address
        ));
    }
    if config.sets.iter().flat_map(RangeSet::ranges).any(|range| *range.network() != config.network) {
        return Err(
            "`enable_overlapping_ranges` is false, so each range is a network of its own, and no pool can \
                    be of such a network: pods keep their addresses only where they are"
                .to_owned(),
        );
    }
    if config.sets.len() > POOLED_MAX {
        return Err(format!(
            "it takes {} addresses for one interface, and pools give at most {POOLED_MAX}",
            config.sets.len()
        ));
    }
    Ok(())
}

/// A name for each pool: the one that is given; with a suffix if there are several.
fn names(given: Option<&PoolName>, definition: &str, sets: &[RangeSet]) -> Result<Vec<PoolName>, String> {
    let base = given.map_or(definition, PoolName::as_str);
    let is_of_both = matches!(sets, [one, other] if one.family() != other.family());
    let suffix = |(at, set): (usize, &RangeSet)| match sets.len() {
        1 => String::new(),
        2 if is_of_both && set.ranges()[0].subnet().is_ipv4() => "-v4".to_owned(),
        2 if is_of_both => "-v6".to_owned(),
        _ => format!("-{}", at + 1),
    };
    let name = |set| format!("{base}{}", suffix(set)).parse::<PoolName>();
    let names = sets.iter().enumerate().map(name).collect::<Result<_, _>>();
    names.map_err(|e| format!("{e}; --name gives another one"))
}

/// True if a pool can say all that the route says.
fn is_plain(route: &Route) -> bool {
    let has_no_host_bits = route.dst.ip() == route.dst.network();
    has_no_host_bits && *route == Route::new(route.dst, route.gw)
}

fn is_ipv4(pool: &PoolDefinition) -> bool {
    pool.ranges.first().is_some_and(|range| range.range.subnet.is_ipv4())
}

fn has_family_of(set: &RangeSet, route: &Route) -> bool {
    set.ranges()[0].subnet().is_ipv4() == route.dst.is_ipv4()
}

fn empty_pool(name: &PoolName, config: &Config) -> PoolDefinition {
    PoolDefinition {
        pool: name.clone(),
        network: config.network.clone(),
        ranges: Vec::new(),
        order: None,
        cooldown: config.cooldown.time,
        cooldown_when_full: config.cooldown.when_full,
        keep: config.sticky.map(|sticky| sticky.keep.unwrap_or_default()),
        routes: Vec::new(),
        dns: PoolDns::default(),
        allow: None,
        selector: None,
        priority: 0,
        note: String::new(),
        status: (),
    }
}

/// The pool with the ranges of a set. It excludes what the set does not give and it would.
fn filled(
    mut pool: PoolDefinition,
    set: &RangeSet,
    config: &Config,
    notes: &mut Vec<String>,
) -> Result<PoolDefinition, String> {
    let mut of_set = Vec::new();
    for range in set.ranges() {
        let (lowest, highest) = usable(range.subnet());
        let (first, last) = (ip(range, range.first()).max(lowest), ip(range, range.last()).min(highest));
        if range.size() > 0 && first <= last {
            let bounds = Some((first, last)).filter(|bounds| *bounds != (lowest, highest));
            let text = RangeText { subnet: range.subnet(), bounds };
            let state = RangeState::Open;
            let (gateway, exclude) = (range.gateway(), Vec::new());
            pool.ranges.push(PoolRange { range: text, gateway, exclude, state });
            of_set.push(range);
        }
        let ends = [range.first(), range.last()];
        let lost = ends.iter().filter(|end| {
            let is_given = range.spans().iter().any(|span| span.contains(**end));
            is_given && !(lowest..=highest).contains(&ip(range, **end))
        });
        notes.extend(lost.map(|end| {
            format!(
                "{} is not given any more, because it is the first or the last address of {}: move a pod that \
                 holds it",
                ip(range, *end),
                range.subnet()
            )
        }));
    }
    let next_hops: Vec<IpAddr> = config.routes.iter().filter_map(|route| route.gw).collect();
    let folded = pool.open_ranges(&next_hops).map_err(|e| e.to_string())?;
    for ((range, folded), of_set) in pool.ranges.iter_mut().zip(&folded).zip(of_set) {
        let holes = folded.spans().iter().flat_map(|given| holes(*given, of_set.spans()));
        range.exclude =
            holes.flat_map(|hole| prefixes(widened(hole, folded), folded)).map(Excluded).collect();
    }
    Ok(pool)
}

/// An address of a range, in the range's family.
fn ip(range: &Range, address: Addr) -> IpAddr {
    if range.subnet().is_ipv4() { address.ip() } else { IpAddr::V6(address.0.into()) }
}

/// The parts of a span that lie in none of `others`, which are sorted and disjoint.
fn holes(span: Span, others: &[Span]) -> Vec<Span> {
    let mut holes = Vec::new();
    let mut from = span.first.0;
    for other in others.iter().filter_map(|other| other.within(span)) {
        if from < other.first.0 {
            holes.push(Span { first: Addr(from), last: Addr(other.first.0 - 1) });
        }
        let Some(next) = other.last.0.checked_add(1) else { return holes };
        from = next;
    }
    if from <= span.last.0 {
        holes.push(Span { first: Addr(from), last: span.last });
    }
    holes
}

/// The same hole, up to the end of the subnet if it reaches to the end of the range: then it is fewer prefixes.
fn widened(hole: Span, range: &Range) -> Span {
    let subnet = range.subnet();
    let first = if hole.first == range.first() { subnet.network().into() } else { hole.first };
    let last = if hole.last == range.last() { subnet.broadcast().into() } else { hole.last };
    Span { first, last }
}

/// The fewest prefixes that make up a span of a range.
fn prefixes(span: Span, range: &Range) -> Vec<IpNetwork> {
    let bits = if range.subnet().is_ipv4() { 32 } else { 128 };
    let mut all = Vec::new();
    let mut first = span.first.0;
    loop {
        // As large as the alignment and what is left allow. A span is never larger than its subnet.
        let left = (span.last.0 - first).saturating_add(1);
        let host_bits = first.trailing_zeros().min(left.ilog2()).min(bits);
        let prefix = u8::try_from(bits - host_bits).expect("at most 128");
        all.extend(IpNetwork::new(ip(range, Addr(first)), prefix));
        let size = 1_u128.checked_shl(host_bits).unwrap_or(0);
        match first.checked_add(size).filter(|next| size > 0 && *next <= span.last.0) {
            Some(next) => first = next,
            None => return all,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn moved(config: &Value) -> Result<MovedNetwork, String> {
        move_to_pools(&config.to_string(), None)
    }

    fn network(ipam: Value) -> Value {
        let mut network = json!({"cniVersion": "1.0.0", "name": "storage", "type": "macvlan", "ipam": ipam});
        network["ipam"]["type"] = json!("metes");
        network
    }

    #[test]
    fn the_ranges_of_each_form_make_pools() {
        for (ipam, pools, left) in [
            (
                json!({
                    "range": "10.56.0.0/16", "gateway": "10.56.255.254", "exclude": ["10.56.0.0/28", "10.56.7.7"],
                    "network_name": "blue", "routes": [{"dst": "10.0.0.0/8", "gw": "10.56.0.99"}],
                    "dns": {"domain": "x"},
                }),
                "pool: storage\nnetwork: blue\nranges:\n- range: 10.56.0.0/16\n  gateway: 10.56.255.254\n  exclude:\n  \
                 - 10.56.0.0/28\n  - 10.56.7.7/32\norder: lowest\nroutes:\n- dst: 10.0.0.0/8\n  gw: 10.56.0.99\n",
                json!({"type": "metes", "pool": "storage", "dns": {"domain": "x"}}),
            ),
            (
                json!({
                    "ipRanges": [
                        {"range": "10.56.0.9-10.56.0.200/24"},
                        {"range": "fd00::/64", "range_start": "fd00::10", "exclude": ["fd00::/123"]},
                    ],
                    "order": "spread", "routes": [{"dst": "::/0"}, {"dst": "0.0.0.0/0"}],
                }),
                "pool: storage-v4\nnetwork: default\nranges:\n- range: 10.56.0.9-10.56.0.200/24\norder: spread\n\
                 routes:\n- dst: 0.0.0.0/0\n---\npool: storage-v6\nnetwork: default\nranges:\n- range: \
                 fd00::10-fd00::ffff:ffff:ffff:fffe/64\n  exclude:\n  - fd00::/123\norder: spread\nroutes:\n- dst: \
                 ::/0\n",
                json!({"type": "metes", "pools": ["storage-v4", "storage-v6"]}),
            ),
            (
                json!({
                    "ranges": [
                        [{"subnet": "10.1.0.0/24", "rangeEnd": "10.1.0.100"}, {"subnet": "10.2.0.0/24"}],
                        [{"subnet": "10.3.0.0/24", "gateway": "10.1.0.9"}],
                    ],
                    "dns": {"domain": "x"}, "dataDir": "/x",
                }),
                // A gateway that is outside of its subnet is no gateway of a pool.
                "",
                json!(null),
            ),
            (
                json!({
                    "ranges": [
                        [{"subnet": "10.1.0.0/24", "rangeEnd": "10.1.0.100"}, {"subnet": "10.2.0.0/24"}],
                        [{"subnet": "10.3.0.0/24", "gateway": "10.3.0.9"}],
                    ],
                    "dns": {"domain": "x"}, "dataDir": "/x", "routes": [{"dst": "10.9.0.0/16", "mtu": 1400}],
                }),
                "pool: storage-1\nnetwork: default\nranges:\n- range: 10.1.0.1-10.1.0.100/24\n  gateway: 10.1.0.1\n- \
                 range: 10.2.0.0/24\n  gateway: 10.2.0.1\norder: next\n---\npool: storage-2\nnetwork: default\n\
                 ranges:\n- range: 10.3.0.0/24\n  gateway: 10.3.0.9\norder: next\n",
                json!({
                    "type": "metes", "pools": ["storage-1", "storage-2"], "dataDir": "/x",
                    "routes": [{"dst": "10.9.0.0/16", "mtu": 1400}],
                }),
            ),
            (
                json!({
                    "range": "10.1.0.0/24", "pick_addresses": ["10.1.0.7", "10.1.0.5"], "gateway": "10.1.0.1",
                    "cooldown": "60s",
                }),
                "pool: storage\nnetwork: default\nranges:\n- range: 10.1.0.7-10.1.0.7/24\n  gateway: 10.1.0.1\n- \
                 range: 10.1.0.5-10.1.0.5/24\n  gateway: 10.1.0.1\norder: lowest\ncooldown: 1m\n",
                json!({"type": "metes", "pool": "storage"}),
            ),
        ] {
            match moved(&network(ipam)) {
                Ok(MovedNetwork { pools: found, definition, .. }) => {
                    assert_eq!(found, pools);
                    let definition: Value = serde_json::from_str(&definition).expect("JSON");
                    assert_eq!(definition["ipam"], left);
                }
                Err(why) => assert!(pools.is_empty() && why.contains("is outside of 10.3.0.0/24"), "{why}"),
            }
        }
    }

    #[test]
    fn a_definition_as_kubectl_prints_it_comes_back_with_the_pool() {
        let config = r#"{"cniVersion": "1.0.0", "plugins": [{"type": "bridge", "isGateway": true,
            "ipam": {"type": "metes", "range": "10.1.0.0/24"}}, {"type": "tuning"}]}"#;
        let object = |config: &str| {
            json!({
                "apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
                "metadata": {
                    "name": "storage", "namespace": "team-a", "uid": "u", "resourceVersion": "7", "generation": 2,
                    "annotations": {(LAST_APPLIED): "{}", "owner": "netops"},
                },
                "spec": {"config": config},
            })
        };
        let text = yaml_serde::to_string(&object(config)).expect("YAML");
        let name = "rack".parse().expect("a name");
        let moved = move_to_pools(&text, Some(&name)).expect("it can be moved");
        // The plugin bridge takes the first address for itself.
        assert!(
            moved.pools.contains("pool: rack\n") && moved.pools.contains("  - 10.1.0.0/31\n"),
            "{}",
            moved.pools
        );
        let back: Value = yaml_serde::from_str(&moved.definition).expect("YAML");
        let expected = json!({"name": "storage", "namespace": "team-a", "annotations": {"owner": "netops"}});
        assert_eq!(back["metadata"], expected);
        let config: Value =
            serde_json::from_str(back["spec"]["config"].as_str().expect("a text")).expect("JSON");
        assert_eq!(config["plugins"][0]["ipam"], json!({"type": "metes", "pool": "rack"}));
        assert_eq!(config["plugins"][1]["type"], "tuning");
    }

    #[test]
    fn what_is_lost_is_refused_or_told() {
        let mut no_pools = network(json!({"pool": "a"}));
        let refused = [
            (
                network(json!({"range": "10.0.0.0/24", "addresses": [{"address": "10.9.0.1/24"}]})),
                "10.9.0.1/24",
            ),
            (network(json!({"range": "10.0.0.0/24", "enable_overlapping_ranges": false})), "its own"),
            (no_pools.clone(), "uses pools already"),
            (network(json!({"range": "10.0.0.0/33"})), "ipam.range"),
            (network(json!({"range": "10.0.0.0/24", "rage": "10.0.0.0/25"})), "rage"),
            (json!({"kind": "List", "items": []}), "it is a List"),
            (json!({"kind": NAD_KIND, "metadata": {"name": "a"}, "spec": {}}), "no `spec.config`"),
            (json!({"type": "bridge", "ipam": {"type": "whereabouts"}}), "it is \"whereabouts\""),
        ];
        for (config, expected) in refused {
            let why = moved(&config).expect_err(expected);
            assert!(why.contains(expected), "{why}");
        }
        no_pools["ipam"] = json!({"type": "metes", "subnet": "fd00::/64", "resolvConf": "/etc/resolv.conf"});
        no_pools["capabilities"] = json!({"ipRanges": true});
        let notes = moved(&no_pools).expect("it can be moved").notes.join("\n");
        for expected in
            ["fd00::ffff:ffff:ffff:ffff is not given any more", "`resolvConf` is left out", "capability"]
        {
            assert!(notes.contains(expected), "{notes}");
        }
        no_pools["name"] = json!("a/b");
        let why = moved(&no_pools).expect_err("no name");
        assert!(why.contains("name"), "{why}");
    }

    proptest! {
        #[test]
        fn the_pool_gives_exactly_what_the_range_gives(
            (start, end) in (0..256_u32, 0..256_u32),
            excludes in prop::collection::vec((0..256_u32, 24..=32_u8), 0..6),
            (gateway, next_hop) in (1..255_u32, 1..255_u32),
            v6 in any::<bool>(),
        ) {
            let ip = |n: u32| if v6 { format!("fd00::{n:x}") } else { format!("10.1.2.{n}") };
            let bits = |prefix: u8| if v6 { prefix + 96 } else { prefix };
            let excludes: Vec<String> =
                excludes.iter().map(|(n, prefix)| format!("{}/{}", ip(*n), bits(*prefix))).collect();
            let config = network(json!({
                "range": format!("{}/{}", ip(0), bits(24)), "range_start": ip(start.min(end)),
                "range_end": ip(start.max(end)), "exclude": excludes, "gateway": ip(gateway),
                "routes": [{"dst": if v6 { "::/0" } else { "0.0.0.0/0" }, "gw": ip(next_hop)}],
            }));
            // Some have no address left, and some lie at the first or the last one alone.
            if let Ok(moved) = moved(&config) {
                let definition = NetworkDefinition::read(&config.to_string()).expect("it is sound");
                let before = definition.parsed().expect("it is sound").sets[0].ranges()[0].spans().to_vec();
                let pool = &text::parse("pools", &moved.pools).expect("a pool")[0];
                let given = pool.open_ranges(&[]).expect("ranges");
                prop_assert_eq!(given[0].spans(), before, "{}", moved.pools);
            }
        }
    }
}
