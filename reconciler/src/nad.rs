//! NetworkAttachmentDefinitions: those that use metes, and the network of each of their addresses.

use std::collections::{BTreeSet, HashMap};
use std::fmt::Display;
use std::net::IpAddr;
use std::path::Path;
use std::rc::Rc;

use metes_config::cni::{Json, Verb};
use metes_config::nad::{MetesPlugin, metes_plugins};
use metes_config::network::ADDRESSES_MAX;
use metes_config::settings::PodsOf;
use metes_config::{Config, Settings};
use metes_core::keys::Scope;
use metes_core::plan::ask::Sticky;
use metes_core::pool::auto::auto_pools;
use metes_core::pool::{
    Addr, FromPool, Held, InvalidName, Keep, Owner, Pod, PoolDefinition, PoolElement, PoolName, RangeSet,
};

use crate::api::{Api, ApiError};
use crate::pools::Pools;

/// The meaning of one definition.
#[derive(Debug, Clone)]
pub enum Definition {
    /// A network that uses metes.
    Metes(Rc<Network>),
    /// A network that does not use metes.
    Other,
    /// The definition alone does not tell.
    Unclear(String),
}

/// A network whose addresses come from metes.
#[derive(Debug)]
pub struct Network {
    config: Config,
    /// The range sets, of the configuration or of its pools. Of a pool also ranges that are not open: pods may have
    /// addresses of them.
    sets: Vec<RangeSet>,
    /// The pools of each set, if it has some.
    pools: Vec<Vec<PoolDefinition>>,
    /// True if `network_name` is given. If it is, static addresses are reserved in it.
    is_named: bool,
}

/// All definitions of a cluster, by namespace and name.
#[derive(Debug, Default)]
pub struct Definitions(HashMap<String, Definition>);

impl Definitions {
    /// Reads all of them.
    ///
    /// # Errors
    /// [`ApiError`], also if the API does not know the kind: then nothing is known about any pod.
    pub async fn list<A: Api>(api: &A, settings: &Settings, pools: &Pools) -> Result<Self, ApiError> {
        let mut all = Self::default();
        let allowed = settings.allowed.pools(PodsOf::Any);
        let mut see = |namespace: &str, name: &str, config: &str| {
            let definition = Definition::parse(name, config, pools, allowed.as_ref()).if_allowed(settings);
            all.0.insert(format!("{namespace}/{name}"), definition);
        };
        api.definitions(&mut see).await?;
        Ok(all)
    }

    /// Like [`Definitions::list`], for a cluster that may have no multus: then there are no definitions.
    pub(crate) async fn list_if_known<A: Api>(
        api: &A,
        settings: &Settings,
        pools: &Pools,
    ) -> Result<Self, ApiError> {
        match Self::list(api, settings, pools).await {
            Err(e) if e.is_not_found() => Ok(Self::default()),
            listed => listed,
        }
    }

    /// Like [`Definitions::list_if_known`], for a run that can do without: if this program may not see them, there are
    /// none either.
    pub(crate) async fn list_if_shown<A: Api>(
        api: &A,
        settings: &Settings,
        pools: &Pools,
    ) -> Result<Self, ApiError> {
        match Self::list_if_known(api, settings, pools).await {
            Err(why) if why.is_forbidden() => {
                tracing::warn!(%why, "what running pods report is not compared with the store");
                Ok(Self::default())
            }
            listed => listed,
        }
    }

    /// True if a network of any of them uses metes.
    pub(crate) fn use_metes(&self) -> bool {
        self.0.values().any(|definition| matches!(definition, Definition::Metes(_)))
    }

    /// The number of definitions.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// The definition of this name, as `namespace/name`.
    pub(crate) fn get(&self, name: &str) -> Option<&Definition> {
        self.0.get(name)
    }
}

impl Definition {
    /// Reads the `spec.config` of the definition of this name. `allowed` are the pools that `auto` may choose; none:
    /// all.
    #[must_use]
    pub fn parse(name: &str, config: &str, pools: &Pools, allowed: Option<&BTreeSet<PoolName>>) -> Self {
        if config.trim().is_empty() {
            return Definition::Unclear("its configuration is a file on the nodes".to_owned());
        }
        let config = match Json::parse(config.as_bytes()) {
            Ok(config) => config,
            Err(e) => return Definition::Unclear(format!("its configuration is not JSON: {e}")),
        };
        let plugins = metes_plugins(&config, name);
        let Some(plugin) = plugins.first() else { return Definition::Other };
        match Network::parse(plugin, pools, allowed) {
            Ok(network) => Definition::Metes(Rc::new(network)),
            Err(why) => Definition::Unclear(format!("metes cannot use its configuration: {why}")),
        }
    }
}

impl Definition {
    /// If the host file allows no ADD to have an address, nobody may adopt it either: any user of a namespace can write
    /// a definition. `namespaces` do not count: a pod that runs keeps its address, as it does under an ADD's eyes.
    pub(crate) fn if_allowed(self, settings: &Settings) -> Self {
        match self {
            Definition::Metes(network) => match settings.check_allowed(&network.config, PodsOf::Any) {
                Ok(()) => Definition::Metes(network),
                Err(e) => Definition::Unclear(e.to_string()),
            },
            other => other,
        }
    }
}

impl Network {
    /// Reads a network's configuration from a file in the runtimes' format.
    ///
    /// # Errors
    /// Why it cannot be used.
    pub(crate) fn read(path: &Path, pools: &Pools) -> Result<Rc<Self>, String> {
        let unusable = |why: &dyn Display| format!("{}: {why}", path.display());
        let text = std::fs::read_to_string(path).map_err(|e| unusable(&e))?;
        match Definition::parse("default", &text, pools, None) {
            Definition::Metes(network) => Ok(network),
            Definition::Other => Err(unusable(&"no plugin in it has an `ipam` of type metes")),
            Definition::Unclear(why) => Err(unusable(&why)),
        }
    }

    fn parse(
        plugin: &MetesPlugin,
        pools: &Pools,
        allowed: Option<&BTreeSet<PoolName>>,
    ) -> Result<Self, String> {
        // DEL checks the least. The pod's own requests are not known here.
        let config = plugin.read(Verb::Del).map_err(|e| e.to_string())?;
        let is_named = plugin.names_network();
        let Some(wanted) = &config.pools else {
            return Ok(Self { sets: config.sets.clone(), config, pools: Vec::new(), is_named });
        };
        let pools = wanted.elements.iter().map(|element| pools_of(element, pools, allowed));
        let pools = pools.collect::<Result<Vec<_>, _>>()?.concat();
        let set = |pools: &Vec<PoolDefinition>| {
            let ranges: Result<Vec<_>, _> = pools.iter().map(PoolDefinition::all_ranges).collect();
            RangeSet::new(ranges.map_err(|e| e.to_string())?.concat()).map_err(|e| e.to_string())
        };
        let sets = pools.iter().map(set).collect::<Result<_, _>>()?;
        Ok(Self { config, sets, pools, is_named })
    }

    /// The network's name for CNI.
    pub(crate) fn cni_network(&self) -> &str {
        &self.config.cni_network
    }

    /// The scope whose queue a claim waits in. The node's page for `spread` is left out: it only spreads contenders.
    #[must_use]
    pub fn scope(&self) -> Scope {
        Scope::of(&self.sets, None)
    }

    /// The most addresses that an interface can have: one from each range set, and the static ones. Without ranges it
    /// is as many as a pod may ask for.
    pub(crate) fn most_addresses(&self) -> usize {
        match self.sets.len() {
            0 => ADDRESSES_MAX,
            sets => {
                self.config.pools.as_ref().map_or(sets, |pools| pools.elements.len())
                    + self.config.statics.len()
            }
        }
    }

    /// The addresses of an interface in the form in which its owner holds them, in the order in which metes gives them.
    ///
    /// # Errors
    /// An address that this configuration cannot have given.
    pub fn held(&self, addresses: &[IpAddr]) -> Result<Vec<Held>, IpAddr> {
        let Self { sets, config: Config { statics, network, .. }, .. } = self;
        let mut placed = Vec::with_capacity(addresses.len());
        for ip in addresses {
            let covering = |(set, ranges): (usize, &RangeSet)| {
                ranges.covers(Addr::from(*ip)).map(|range| (set, Some(range.network().clone())))
            };
            let fixed = statics.iter().position(|fixed| fixed.address.ip() == *ip);
            let (place, network) = match (fixed, sets.iter().enumerate().find_map(covering)) {
                (Some(at), _) => (sets.len() + at, statics[at].network.clone()),
                (None, Some((set, network))) => (set, network),
                // The pod asked for this address, and the configuration has no ranges.
                (None, None) if sets.is_empty() && self.is_named => {
                    (sets.len() + statics.len(), Some(network.clone()))
                }
                (None, None) if sets.is_empty() => (sets.len() + statics.len(), None),
                (None, None) => return Err(*ip),
            };
            let held = Held::new(*ip, network);
            let pools: Vec<&PoolDefinition> = self.pools.get(place).into_iter().flatten().collect();
            let pool = FromPool::of(&pools, &held);
            placed.push((place, Held { pool, ..held }));
        }
        placed.sort_by_key(|(place, _)| *place);
        Ok(placed.into_iter().map(|(_, held)| held).collect())
    }

    /// The hold that an interface's addresses stay with; none if the configuration does not say so, or if they are not
    /// one of each of its range sets, or if one of their pools says no `keep` any more: then they end with the
    /// container.
    ///
    /// # Errors
    /// [`InvalidName`] if the pod's name cannot be part of a key.
    pub(crate) fn sticky_of(
        &self,
        owner: &Owner,
        pod: &Pod,
        held: &[Held],
    ) -> Result<Option<Sticky>, InvalidName> {
        let (Some(config), Some(cluster)) = (&self.config.sticky, &owner.cluster) else { return Ok(None) };
        let pools = || self.pools.iter().flatten();
        let keep_of = |held: &Held| match &held.pool {
            Some(from) => pools().find(|pool| pool.pool == from.name)?.keep,
            None => Some(config.keep.unwrap_or_default()),
        };
        let set_of =
            |held: &Held| self.sets.iter().position(|set| set.covers(Addr::from(held.address)).is_some());
        let sets: BTreeSet<_> = held.iter().map(set_of).collect();
        let is_whole = held.len() == self.most_addresses() && sets.len() == held.len();
        let keep = Keep::longest(held.iter().map(keep_of)).filter(|_| is_whole);
        let sticky = |keep| Sticky::of_pod(cluster.clone(), pod, owner.ifname.clone(), Some(keep));
        keep.map(sticky).transpose()
    }
}

/// The pools that an element may have taken its address from, those of each family apart. An ADD goes without a pool
/// that is not there, if its element has another one.
fn pools_of(
    element: &PoolElement,
    pools: &Pools,
    allowed: Option<&BTreeSet<PoolName>>,
) -> Result<Vec<Vec<PoolDefinition>>, String> {
    let Some(name) = element.name() else {
        // Nobody knows any more whom a pool was for when a pod got its address.
        let is_allowed = |pool: &PoolName| allowed.is_none_or(|allowed| allowed.contains(pool));
        let names = auto_pools(pools.values()).into_iter().map(|pool| pool.pool).filter(is_allowed);
        let known = names.filter_map(|name| pools.get(&name).cloned());
        let (v4, v6) = known.partition(|pool| pool.ranges[0].range.subnet.is_ipv4());
        let families: Vec<Vec<_>> = [v4, v6].into_iter().filter(|pools: &Vec<_>| !pools.is_empty()).collect();
        return match families[..] {
            [] => Err("no pool has a `for`, so `auto` chooses none".to_owned()),
            _ => Ok(families),
        };
    };
    match element.names.iter().filter_map(|name| pools.get(name).cloned()).collect::<Vec<_>>() {
        known if known.is_empty() => Err(format!("there is no pool {name}")),
        known => Ok(vec![known]),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// A pool of which one range is closed, and two that are for somebody.
    fn pools() -> Pools {
        let texts = [
            r#"{"pool":"storage","network":"blue","ranges":[
                {"range":"10.1.0.0/24","gateway":"10.1.0.254"},{"range":"10.2.0.0/24","state":"closed"}]}"#,
            r#"{"pool":"rack","network":"red","for":{"nodes":"a"},"ranges":[{"range":"10.1.0.0/16"}]}"#,
            r#"{"pool":"six","network":"red","for":{"nodes":"b"},"ranges":[{"range":"fd00::/64"}]}"#,
        ];
        let pools = texts.map(|text| serde_json::from_str::<PoolDefinition>(text).expect("a pool"));
        pools.into_iter().map(|pool| (pool.pool.clone(), pool)).collect()
    }

    fn network(config: &Value) -> Rc<Network> {
        match Definition::parse("nad", &config.to_string(), &pools(), None) {
            Definition::Metes(network) => network,
            other => panic!("not of metes: {other:?}"),
        }
    }

    fn held(config: &Value, addresses: &[&str]) -> Result<Vec<String>, String> {
        let addresses: Vec<IpAddr> = addresses.iter().map(|ip| ip.parse().expect("an address")).collect();
        let text = |held: Held| {
            let network = held.network.map_or_else(|| "-".to_owned(), |network| network.to_string());
            format!("{} {network}", held.address)
        };
        let held = network(config).held(&addresses).map_err(|ip| ip.to_string())?;
        Ok(held.into_iter().map(text).collect())
    }

    #[test]
    fn a_configuration_is_found_wherever_it_stands() {
        let ipam = json!({"type": "metes", "range": "10.0.0.0/24"});
        let plain = json!({"cniVersion": "1.0.0", "type": "macvlan", "ipam": ipam});
        let list = json!({"cniVersion": "1.0.0", "name": "listed", "plugins": [
            {"type": "sriov", "ipam": ipam}, {"type": "tuning"},
        ]});
        let delegated =
            json!({"cniVersion": "0.4.0", "type": "some-meta", "delegate": {"type": "bridge", "ipam": ipam}});
        for (config, name) in [(&plain, "nad"), (&list, "listed"), (&delegated, "nad")] {
            assert_eq!(network(config).cni_network(), name, "{config}");
            assert_eq!(held(config, &["10.0.0.9"]), Ok(vec!["10.0.0.9 default".to_owned()]), "{config}");
        }
    }

    #[test]
    fn what_metes_has_no_part_in_is_told_from_what_nobody_knows() {
        for other in [
            json!({"type": "macvlan", "ipam": {"type": "static"}}),
            json!({"type": "ovs"}),
            json!({"plugins": [{"type": "bridge", "ipam": {"type": "whereabouts", "range": "10.0.0.0/24"}}]}),
        ] {
            assert!(
                matches!(Definition::parse("nad", &other.to_string(), &pools(), None), Definition::Other),
                "{other}"
            );
        }
        let ipam = json!({"type": "metes", "range": "10.0.0.0/99"});
        let invalid = json!({"cniVersion": "1.0.0", "type": "macvlan", "ipam": ipam});
        for unclear in ["", "  ", "{", &invalid.to_string()] {
            assert!(
                matches!(Definition::parse("nad", unclear, &pools(), None), Definition::Unclear(_)),
                "{unclear}"
            );
        }
    }

    #[test]
    fn addresses_come_in_the_order_in_which_they_are_given_out() {
        let config = json!({"cniVersion": "1.0.0", "type": "macvlan", "ipam": {
            "type": "metes", "network_name": "blue",
            "ipRanges": [{"range": "10.0.0.0/24"}, {"range": "fd00::/64"}],
            "addresses": [{"address": "192.0.2.7/24"}],
        }});
        let expected = ["10.0.0.9 blue", "fd00::9 blue", "192.0.2.7 blue"].map(str::to_owned).to_vec();
        assert_eq!(held(&config, &["192.0.2.7", "fd00::9", "10.0.0.9"]), Ok(expected));
        assert_eq!(held(&config, &["10.0.0.9", "10.0.1.9"]), Err("10.0.1.9".to_owned()));
    }

    #[test]
    fn ranges_with_a_network_of_their_own_keep_it() {
        let config = json!({"cniVersion": "1.0.0", "type": "macvlan", "ipam": {
            "type": "metes", "range": "10.0.0.0/24", "enable_overlapping_ranges": false,
        }});
        let expected = "10.0.0.9 default@00000000000000000000ffff0a000000-24".to_owned();
        assert_eq!(held(&config, &["10.0.0.9"]), Ok(vec![expected]));
    }

    #[test]
    fn without_ranges_the_network_decides() {
        let ipam = json!({"type": "metes"});
        let mut config = json!({"cniVersion": "1.0.0", "type": "macvlan", "ipam": ipam});
        assert_eq!(held(&config, &["10.0.0.9"]), Ok(vec!["10.0.0.9 -".to_owned()]));
        config["ipam"]["network_name"] = json!("blue");
        assert_eq!(held(&config, &["10.0.0.9"]), Ok(vec!["10.0.0.9 blue".to_owned()]));
    }

    #[test]
    fn addresses_of_a_pool_are_in_its_network_whatever_the_state_of_their_range() {
        let config = |pool: &str| {
            let ipam = json!({"type": "metes", "pool": pool});
            json!({"cniVersion": "1.0.0", "type": "macvlan", "ipam": ipam})
        };
        for address in ["10.1.0.9", "10.2.0.9"] {
            assert_eq!(held(&config("storage"), &[address]), Ok(vec![format!("{address} blue")]));
        }
        assert_eq!(held(&config("storage"), &["10.3.0.9"]), Err("10.3.0.9".to_owned()));
        let known = network(&config("storage"));
        let held = known.held(&["10.1.0.9".parse().expect("an address")]).expect("it is the pool's");
        let pool = held[0].pool.as_ref().expect("it is from a pool");
        assert_eq!(
            (pool.name.as_str(), pool.prefix_len, pool.gateway),
            ("storage", 24, "10.1.0.254".parse().ok())
        );
        let unknown = Definition::parse("nad", &config("other").to_string(), &pools(), None);
        assert!(matches!(unknown, Definition::Unclear(why) if why.contains("there is no pool other")));
    }

    #[test]
    fn an_address_of_auto_is_from_any_pool_that_is_for_somebody() {
        let config =
            json!({"cniVersion": "1.0.0", "type": "macvlan", "ipam": {"type": "metes", "pool": "auto"}});
        for (address, expected) in [("10.1.0.9", "rack"), ("fd00::9", "six")] {
            let known = network(&config);
            let held = known.held(&[address.parse().expect("an address")]).expect("it is a pool's");
            assert_eq!(held[0].pool.as_ref().map(|pool| pool.name.as_str()), Some(expected));
            assert_eq!(known.most_addresses(), 1);
        }
        assert_eq!(held(&config, &["10.2.0.9"]), Err("10.2.0.9".to_owned()));
        let only = |pool: &str| BTreeSet::from([pool.parse().expect("a name")]);
        let parse = |allowed: &_| Definition::parse("nad", &config.to_string(), &pools(), Some(allowed));
        let Definition::Metes(six) = parse(&only("six")) else { panic!("six is for somebody") };
        assert!(six.held(&["10.1.0.9".parse().expect("an address")]).is_err());
        let none = parse(&only("storage"));
        assert!(matches!(&none, Definition::Unclear(why) if why.contains("`auto` chooses none")), "{none:?}");
    }
}
