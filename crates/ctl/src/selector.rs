//! What a person names: an address, a prefix, a container, a pod, a network or a pool.

use std::collections::BTreeSet;
use std::net::IpAddr;

use clap::ValueEnum;
use ipnetwork::IpNetwork;

use super::Context;
use super::filter::{Filter, PodName, pod_name};
use super::inventory::{Inventory, Row};
use super::output::value_name;
use super::release::{ReleaseTarget, release_target};
use metes_core::pool::{Addr, Held, NetworkName, Owner, OwnerKind, OwnerRecord, PoolName};
use metes_core::snapshot::Snapshot;
use metes_engine::kv::{Failure, Kv};

/// The kind of thing that a word may be the name of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum WordKind {
    /// A container, or the beginning of its id
    Container,
    /// A network
    Network,
    /// A pool
    Pool,
}

/// The thing that a person names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Selector {
    /// An address, in one network if it is said which.
    Address(Option<NetworkName>, IpAddr),
    /// A static address that is only recorded.
    Recorded(IpAddr),
    Prefix(IpNetwork),
    Owner(Owner),
    Pod(PodName),
    /// Exactly this container.
    Container(String),
    /// All containers with such ids.
    ContainersFrom(String),
    Network(NetworkName),
    Pool(PoolName),
}

impl Selector {
    /// Reads the thing that a text means by its form.
    ///
    /// # Errors
    /// The text, if it is a name, so that only the store can say of what.
    pub(super) fn of<'t>(
        what: &'t str,
        kind: Option<WordKind>,
        network: Option<&NetworkName>,
    ) -> Result<Self, &'t str> {
        if kind.is_some() {
            return Err(what);
        }
        match (what.parse::<IpNetwork>(), release_target(what), pod_name(what)) {
            (Ok(prefix), ..)
                if what.contains('/') && prefix.ip() == prefix.network() && prefix.size() > 1u32.into() =>
            {
                Ok(Selector::Prefix(prefix))
            }
            (Ok(address), ..) => Ok(Selector::Address(network.cloned(), address.ip())),
            (_, Ok(ReleaseTarget::InNetwork(None, address)), _) => Ok(Selector::Recorded(address)),
            (_, Ok(ReleaseTarget::InNetwork(network, address)), _) => Ok(Selector::Address(network, address)),
            (_, Ok(ReleaseTarget::Owner(owner)), _) => Ok(Selector::Owner(owner)),
            (_, _, Ok(pod)) => Ok(Selector::Pod(pod)),
            _ => Err(what),
        }
    }

    pub(super) fn has(&self, row: &Row) -> bool {
        let id = row.container().map_or("", |owner| owner.container_id.as_str());
        match self {
            Selector::Address(network, address) => {
                row.address == Addr::from(*address) && (network.is_none() || row.network == *network)
            }
            Selector::Recorded(address) => row.address == Addr::from(*address) && row.network.is_none(),
            Selector::Prefix(prefix) => prefix.contains(row.address.ip()),
            Selector::Owner(owner) => row.owner() == Some(owner),
            Selector::Pod(pod) => row.holder.as_ref().is_some_and(|holder| pod.is(&holder.labels.pod)),
            Selector::Container(wanted) => id == wanted,
            Selector::ContainersFrom(beginning) => id.starts_with(beginning),
            Selector::Network(network) => row.network.as_ref() == Some(network),
            Selector::Pool(pool) => row.is_from(pool),
        }
    }

    /// True if it is about few addresses, so that all is told of each.
    pub(super) fn is_shown_in_full(&self) -> bool {
        !matches!(self, Selector::Prefix(_) | Selector::Network(_) | Selector::Pool(_))
    }
}

/// Reads the part of the store that has a subject.
pub(super) async fn read<K: Kv>(
    context: &Context<'_, K>,
    subject: &Selector,
    filter: &Filter,
) -> Result<Inventory, Failure> {
    let networks = match (subject, &filter.network) {
        (Selector::Address(Some(network), _), _) | (Selector::Prefix(_), Some(network)) => {
            vec![network.clone()]
        }
        (Selector::Address(..) | Selector::Prefix(_), _) => context.networks().await?,
        _ => Vec::new(),
    };
    match subject {
        Selector::Address(network, address) => {
            let inventory = context.of_address(&networks, *address).await?;
            if network.is_some() || !inventory.rows.is_empty() || !inventory.unreadable.is_empty() {
                return Ok(inventory);
            }
            let Some(mut recorded) = context.recorded_among_few(*address).await? else {
                return Ok(inventory);
            };
            recorded.take(inventory);
            Ok(recorded)
        }
        Selector::Recorded(address) => context.recorded(&|held| held == *address).await,
        Selector::Prefix(prefix) => {
            let mut inventory = context.of_prefix(&networks, *prefix).await?;
            if filter.network.is_none() {
                inventory.rows.retain(|row| row.network.is_some());
                inventory.take(context.recorded(&|held| prefix.contains(held)).await?);
            }
            Ok(inventory)
        }
        Selector::Network(network) => context.of_network(network).await,
        Selector::Owner(owner) => {
            context.of_owners(&[context.session.keys.owner(owner)], &|found, _| found == owner).await
        }
        Selector::Container(id) | Selector::ContainersFrom(id) => {
            context.of_all_owners(&|found, _| found.container_id.as_str().starts_with(id)).await
        }
        Selector::Pod(pod) => {
            let is_its = |record: &OwnerRecord| pod.is(&record.labels.pod);
            context.of_all_owners(&|_, record| record.is_none_or(is_its)).await
        }
        Selector::Pool(pool) => {
            let is_from = |held: &Held| held.pool.as_ref().is_some_and(|from| from.name == *pool);
            let has_one = |record: &OwnerRecord| record.addresses.iter().any(is_from);
            context.of_all_owners(&|_, record| record.is_none_or(has_one)).await
        }
    }
}

/// Finds the stored thing of that name. Returns it with the inventory, if one was read for this; else a sentence that
/// says why the name is not clear.
pub(super) async fn named<K: Kv>(
    context: &Context<'_, K>,
    word: &str,
    kind: Option<WordKind>,
) -> Result<Result<(Selector, Option<Inventory>), String>, Failure> {
    let keys = context.session.keys;
    let mut containers = None;
    let mut found: Vec<(WordKind, Selector)> = Vec::new();
    let is_asked = |one: WordKind| kind.is_none_or(|kind| kind == one);
    if let (true, Ok(network)) = (is_asked(WordKind::Network), NetworkName::stored(word))
        && context.has_any(&keys.net(&network)).await?
    {
        found.push((WordKind::Network, Selector::Network(network)));
    }
    if let (true, Ok(pool)) = (is_asked(WordKind::Pool), word.parse::<PoolName>()) {
        let mut snapshot = Snapshot::default();
        context.session.read(&[keys.pool(&pool)], &mut snapshot).await?;
        if snapshot.entry(&keys.pool(&pool)).is_some() {
            found.push((WordKind::Pool, Selector::Pool(pool)));
        }
    }
    if is_asked(WordKind::Container) && !word.is_empty() {
        let begins_so = |owner: &Owner, _: Option<&OwnerRecord>| {
            matches!(owner.kind(), OwnerKind::Container(_) | OwnerKind::Unknown)
                && owner.container_id.as_str().starts_with(word)
        };
        let inventory = context.of_all_owners(&begins_so).await?;
        let ids: BTreeSet<&str> = inventory.owners.keys().map(|owner| owner.container_id.as_str()).collect();
        let subject = match ids.contains(word) {
            true => Selector::Container(word.to_owned()),
            false => Selector::ContainersFrom(word.to_owned()),
        };
        found.extend((!ids.is_empty()).then_some((WordKind::Container, subject)));
        containers = Some(inventory);
    }
    Ok(match &found[..] {
        [(WordKind::Container, subject)] => Ok((subject.clone(), containers)),
        [(_, subject)] => Ok((subject.clone(), None)),
        [] => Err(format!(
            "{word:?} is no address, and no container that holds one, network or pool of that name is known; metes \
             list shows what is held"
        )),
        several => {
            let kinds: Vec<String> =
                several.iter().map(|(kind, _)| format!("--as {}", value_name(*kind))).collect();
            Err(format!("{word:?} could be several: say which with {}", kinds.join(" or ")))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_means_what_its_form_says() {
        let network = |name: &str| NetworkName::stored(name).expect("a name");
        let address = |text: &str| text.parse::<IpAddr>().expect("an address");
        let of = |what| Selector::of(what, None, None);
        for plain in ["10.0.0.2", "10.0.0.2/16", "10.0.0.2/32"] {
            assert_eq!(of(plain), Ok(Selector::Address(None, address("10.0.0.2"))), "{plain}");
        }
        assert_eq!(of("10.0.0.0/24"), Ok(Selector::Prefix("10.0.0.0/24".parse().expect("a prefix"))));
        assert_eq!(of("fd00::/64"), Ok(Selector::Prefix("fd00::/64".parse().expect("a prefix"))));
        let blue = Some(network("blue"));
        assert_eq!(of("blue/10.0.0.2"), Ok(Selector::Address(blue.clone(), address("10.0.0.2"))));
        assert_eq!(Selector::of("::1", None, blue.as_ref()), Ok(Selector::Address(blue, address("::1"))));
        assert_eq!(of("/10.0.0.2"), Ok(Selector::Recorded(address("10.0.0.2"))));
        assert!(matches!(of("east/n1/c1/eth0"), Ok(Selector::Owner(_))));
        assert!(matches!(of("ns/web-0"), Ok(Selector::Pod(_))));
        assert_eq!((of("blue"), of("")), (Err("blue"), Err("")));
        assert_eq!(Selector::of("10.0.0.2", Some(WordKind::Container), None), Err("10.0.0.2"));
    }
}
