//! What a person names: an address, a prefix, a container, a pod, a namespace, a node, a network or a pool.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;

use clap::ValueEnum;
use ipnetwork::IpNetwork;

use super::Context;
use super::filter::{Filter, Place, PodName};
use super::inventory::{Inventory, Row};
use super::output::value_name;
use super::release::{ReleaseTarget, release_target};
use metes_config::keys::did_you_mean;
use metes_core::pool::{Addr, Held, NetworkName, Owner, OwnerKind, OwnerRecord, Pod, PoolName};
use metes_core::snapshot::Snapshot;
use metes_engine::kv::{Failure, Kv};

/// The most edits between a name and a similar one that is suggested for it.
pub(super) const SIMILAR_NAME_EDITS: usize = 2;

/// The kind of thing that a word may be the name of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum WordKind {
    /// A container, or the beginning of its id
    Container,
    /// A network
    Network,
    /// A pool
    Pool,
    /// A namespace that has pods with addresses
    Namespace,
    /// A node that has containers with addresses
    Node,
}

const ALL: [WordKind; 5] =
    [WordKind::Network, WordKind::Pool, WordKind::Namespace, WordKind::Node, WordKind::Container];

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
    Namespace(String),
    Node(String),
}

/// In words, as in "an address of ...".
impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Selector::Address(Some(network), address) => write!(f, "address {address} of network {network}"),
            Selector::Address(None, address) => write!(f, "address {address}"),
            Selector::Recorded(address) => write!(f, "the static address {address}"),
            Selector::Prefix(prefix) => write!(f, "prefix {prefix}"),
            Selector::Owner(owner) => write!(f, "{owner}"),
            Selector::Pod(PodName { namespace, name }) => write!(f, "pod {namespace}/{name}"),
            Selector::Container(id) => write!(f, "container {id}"),
            Selector::ContainersFrom(beginning) => write!(f, "a container {beginning}..."),
            Selector::Network(network) => write!(f, "network {network}"),
            Selector::Pool(pool) => write!(f, "pool {pool}"),
            Selector::Namespace(namespace) => write!(f, "namespace {namespace}"),
            Selector::Node(node) => write!(f, "node {node}"),
        }
    }
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
        match (what.parse::<IpNetwork>(), release_target(what)) {
            (Ok(prefix), _)
                if what.contains('/') && prefix.ip() == prefix.network() && prefix.size() > 1u32.into() =>
            {
                Ok(Selector::Prefix(prefix))
            }
            (Ok(address), _) => Ok(Selector::Address(network.cloned(), address.ip())),
            (_, Ok(ReleaseTarget::InNetwork(None, address))) => Ok(Selector::Recorded(address)),
            (_, Ok(ReleaseTarget::InNetwork(network, address))) => Ok(Selector::Address(network, address)),
            (_, Ok(ReleaseTarget::Owner(owner))) => Ok(Selector::Owner(owner)),
            (_, Ok(ReleaseTarget::Pod(pod))) => Ok(Selector::Pod(pod)),
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
            Selector::Namespace(namespace) => {
                row.holder.as_ref().is_some_and(|holder| holder.labels.pod.namespace == *namespace)
            }
            Selector::Node(node) => row.container().is_some_and(|owner| owner.node == **node),
        }
    }

    /// The flags that say the same; none if there are no such flags.
    pub(super) fn as_filter(&self) -> Option<Filter> {
        let filter = Filter::default();
        Some(match self {
            Selector::Network(network) => Filter { network: Some(network.clone()), ..filter },
            Selector::Pod(pod) => Filter { pod: Some(pod.clone()), ..filter },
            Selector::Namespace(namespace) => Filter { namespace: Some(namespace.clone()), ..filter },
            Selector::Node(node) => {
                Filter { place: Place { node: Some(node.clone()), cluster: None }, ..filter }
            }
            _ => return None,
        })
    }

    /// True if it is about few addresses, so that all is told of each.
    pub(super) fn is_shown_in_full(&self) -> bool {
        matches!(
            self,
            Selector::Address(..)
                | Selector::Recorded(_)
                | Selector::Owner(_)
                | Selector::Pod(_)
                | Selector::Container(_)
                | Selector::ContainersFrom(_)
        )
    }
}

/// Reads the part of the store that has what is selected.
async fn read<K: Kv>(
    context: &Context<'_, K>,
    selector: &Selector,
    filter: &Filter,
) -> Result<Inventory, Failure> {
    let networks = match (selector, &filter.network) {
        (Selector::Address(Some(network), _), _) | (Selector::Prefix(_), Some(network)) => {
            vec![network.clone()]
        }
        (Selector::Address(..) | Selector::Prefix(_), _) => context.networks().await?,
        _ => Vec::new(),
    };
    match selector {
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
        Selector::Namespace(_) | Selector::Node(_) => {
            context.held(&selector.as_filter().unwrap_or_default()).await
        }
        Selector::Pool(pool) => {
            let is_from = |held: &Held| held.pool.as_ref().is_some_and(|from| from.name == *pool);
            let has_one = |record: &OwnerRecord| record.addresses.iter().any(is_from);
            context.of_all_owners(&|_, record| record.is_none_or(has_one)).await
        }
    }
}

/// A selector, and what was read of the store to find out what it is.
pub(super) struct Found {
    pub(super) selector: Selector,
    inventory: Option<Inventory>,
}

impl Found {
    /// The part of the store that has what is selected; it may have more.
    pub(super) async fn read<K: Kv>(
        self,
        context: &Context<'_, K>,
        filter: &Filter,
    ) -> Result<(Selector, Inventory), Failure> {
        let Self { selector, inventory } = self;
        let inventory = match inventory {
            Some(inventory) => inventory,
            None => read(context, &selector, filter).await?,
        };
        Ok((selector, inventory))
    }
}

/// Finds out what a text names: by its form, or by what is stored under this name. Else a sentence that says why that
/// is not clear.
pub(super) async fn find<K: Kv>(
    context: &Context<'_, K>,
    what: &str,
    kind: Option<WordKind>,
    network: Option<&NetworkName>,
) -> Result<Result<Found, String>, Failure> {
    find_among(context, what, kind, network, &ALL).await
}

/// The same, of a name among these kinds alone.
pub(super) async fn find_among<K: Kv>(
    context: &Context<'_, K>,
    what: &str,
    kind: Option<WordKind>,
    network: Option<&NetworkName>,
    kinds: &[WordKind],
) -> Result<Result<Found, String>, Failure> {
    if let (Some(fault), None) = (fault_of(what), kind) {
        return Ok(Err(fault));
    }
    match (Selector::of(what, kind, network), kind) {
        (Ok(selector), _) => Ok(Ok(Found { selector, inventory: None })),
        (Err(word), Some(kind)) => named(context, word, &[kind]).await,
        (Err(word), None) => named(context, word, kinds).await,
    }
}

/// The fault of a text that looks like a prefix or an address, and is none.
pub(super) fn fault_of(what: &str) -> Option<String> {
    let (before, last) = what.rsplit_once('/').unwrap_or(("", what));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if let (Ok(address), true) = (before.parse::<IpAddr>(), is_number(last)) {
        let most = if address.is_ipv4() { 32_u32 } else { 128 };
        let is_right = last.parse::<u32>().is_ok_and(|length| length <= most);
        return (!is_right)
            .then(|| format!("{what} is not a prefix: the length after the / must be 0 to {most}"));
    }
    let is_like_ipv4 = last.split('.').count() == 4 && last.split('.').all(is_number);
    (is_like_ipv4 && last.parse::<IpAddr>().is_err())
        .then(|| format!("{last} is not an address: expected four numbers from 0 to 255"))
}

async fn named<K: Kv>(
    context: &Context<'_, K>,
    word: &str,
    kinds: &[WordKind],
) -> Result<Result<Found, String>, Failure> {
    let keys = context.session.keys;
    let is_asked = |one: WordKind| kinds.contains(&one);
    let mut found: Vec<(WordKind, Selector)> = Vec::new();
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
    let mut holders = Holders::default();
    let is_of_holders = |kind: &WordKind| !matches!(kind, WordKind::Network | WordKind::Pool);
    if !word.is_empty() && kinds.iter().any(is_of_holders) {
        holders = holders_of(context, word).await?;
        found.extend(holders.named(word).into_iter().filter(|(kind, _)| is_asked(*kind)));
    }
    Ok(match &found[..] {
        [(kind, selector)] => {
            let inventory = (*kind == WordKind::Container).then_some(holders.containers);
            Ok(Found { selector: selector.clone(), inventory })
        }
        [] => {
            let similar = similar(context, word, kinds, &holders).await?;
            let mut names: Vec<String> = kinds.iter().map(|kind| value_name(*kind)).collect();
            let last = names.pop().unwrap_or_default();
            let names = if names.is_empty() { last } else { format!("{} or {last}", names.join(", ")) };
            let elsewhere = match context.unused_words().await? {
                Some(unused) => unused,
                None if is_asked(WordKind::Container) => "metes list shows what is held".to_owned(),
                None => "metes usage shows the ranges".to_owned(),
            };
            Err(format!(
                "{word:?} is not an address, and no {names} of that name is known{similar}; {elsewhere}"
            ))
        }
        several => {
            let kinds: Vec<String> =
                several.iter().map(|(kind, _)| format!("--as {}", value_name(*kind))).collect();
            Err(format!("{word:?} could be several: say which with {}", kinds.join(" or ")))
        }
    })
}

/// Who holds addresses.
#[derive(Default)]
struct Holders {
    /// The containers with ids that begin with a word.
    containers: Inventory,
    namespaces: BTreeSet<String>,
    nodes: BTreeSet<String>,
}

/// Reads all owners.
async fn holders_of<K: Kv>(context: &Context<'_, K>, word: &str) -> Result<Holders, Failure> {
    let (namespaces, nodes) = (RefCell::default(), RefCell::default());
    let see = |names: &RefCell<BTreeSet<String>>, name: &str| {
        if !name.is_empty() && !names.borrow().contains(name) {
            names.borrow_mut().insert(name.to_owned());
        }
    };
    let begins_so = |owner: &Owner, record: Option<&OwnerRecord>| {
        let is_container = match owner.kind() {
            OwnerKind::Subject(subject) => {
                see(&namespaces, &Pod::from(subject).namespace);
                false
            }
            OwnerKind::Aside(..) => false,
            OwnerKind::Container(_) | OwnerKind::Unknown => {
                record.into_iter().for_each(|record| see(&namespaces, &record.labels.pod.namespace));
                see(&nodes, owner.node.as_str());
                true
            }
        };
        is_container && owner.container_id.as_str().starts_with(word)
    };
    let containers = context.of_all_owners(&begins_so).await?;
    Ok(Holders { containers, namespaces: namespaces.into_inner(), nodes: nodes.into_inner() })
}

impl Holders {
    /// What a word may mean among them.
    fn named(&self, word: &str) -> Vec<(WordKind, Selector)> {
        let ids: BTreeSet<&str> =
            self.containers.owners.keys().map(|owner| owner.container_id.as_str()).collect();
        let container = match ids.contains(word) {
            true => Selector::Container(word.to_owned()),
            false => Selector::ContainersFrom(word.to_owned()),
        };
        [
            (self.namespaces.contains(word), WordKind::Namespace, Selector::Namespace(word.to_owned())),
            (self.nodes.contains(word), WordKind::Node, Selector::Node(word.to_owned())),
            (!ids.is_empty(), WordKind::Container, container),
        ]
        .into_iter()
        .filter_map(|(is_there, kind, selector)| is_there.then_some((kind, selector)))
        .collect()
    }
}

/// A question for the nearest of the names among which a word was looked for.
async fn similar<K: Kv>(
    context: &Context<'_, K>,
    word: &str,
    kinds: &[WordKind],
    holders: &Holders,
) -> Result<String, Failure> {
    let is_asked = |one: WordKind| kinds.contains(&one);
    let mut names: Vec<String> = Vec::new();
    if is_asked(WordKind::Network) {
        names.extend(context.networks().await?.iter().map(NetworkName::to_string));
    }
    if is_asked(WordKind::Pool) {
        names.extend(context.names(&context.session.keys.pools(), BTreeSet::new()).await?);
    }
    for (one, more) in [(WordKind::Namespace, &holders.namespaces), (WordKind::Node, &holders.nodes)] {
        names.extend(more.iter().filter(|_| is_asked(one)).cloned());
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    Ok(did_you_mean(word, &names, SIMILAR_NAME_EDITS))
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
