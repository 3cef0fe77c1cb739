//! Who is to hold what: whereabouts' entries put together by the interface that they belong to. Pure.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt;
use std::net::IpAddr;

use metes::pool::names::{ClusterName, ContainerId, InterfaceName, InvalidName, PodUid};
use metes::pool::range::RangeSet;
use metes::pool::record::{Held, Labels, Owner, OwnerRecord, Pod};
use metes::pool::{Addr, NetworkName};
use metes::store::keys::Scope;

use super::nads::{self, Ranges, Use};
use super::pools::{self, BadOffset, Domain, Entry, Pool, Unclear};
use crate::api::Phase;
use crate::running::{Interface, Running, Selection};

/// The container of an entry that names none: no runtime calls one so.
const CONTAINER: &str = "imported-";
/// The interface of an entry that names none, and whose pod does not tell.
const IFNAME: &str = "imported";

/// What an entry calls its pod.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodRef {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl PodRef {
    /// Reads `namespace/name`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (namespace, name) = text.split_once('/')?;
        let is_whole = !namespace.is_empty() && !name.is_empty() && !name.contains('/');
        is_whole.then(|| Self { namespace: namespace.to_owned(), name: name.to_owned() })
    }
}

impl fmt::Display for PodRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// What the import needs to know of a pod.
#[derive(Debug, Clone)]
pub struct PodFacts {
    /// The UID that the plugin is told.
    pub uid: String,
    /// Where it runs; none before it is scheduled.
    pub node: Option<String>,
    /// Whether it may run.
    pub phase: Phase,
    /// What it is said to have, or why that cannot be read; none if nobody said it.
    pub interfaces: Option<Result<Vec<Interface>, String>>,
    /// The networks that it asked for.
    pub asked: Vec<Selection>,
    /// Whether its sandbox is there.
    pub is_up: bool,
}

impl PodFacts {
    /// What is needed of a pod.
    #[must_use]
    pub fn of(pod: Running, phase: Phase) -> Self {
        let named = |interfaces: &Vec<Interface>| pod.named(interfaces);
        let interfaces = pod.interfaces.as_ref().map(|told| told.as_ref().map(named).map_err(String::clone));
        Self {
            uid: pod.uid,
            node: Some(pod.node).filter(|node| !node.is_empty()),
            phase,
            interfaces,
            asked: pod.asked,
            is_up: pod.is_up,
        }
    }

    /// One that is gone, and of which nothing is known but that it may run on this node.
    fn cut_off(node: &str) -> Self {
        let (uid, asked) = (String::new(), Vec::new());
        // Whoever is known to run comes first.
        let phase = Phase::Finished;
        Self { uid, node: Some(node.to_owned()), phase, interfaces: None, asked, is_up: false }
    }

    /// Whether a record of this pod UID is of the pod.
    pub(super) fn goes_by(&self, uid: Option<&PodUid>) -> bool {
        self.uid == uid.map_or("", PodUid::as_str)
    }

    fn told(&self) -> &[Interface] {
        match &self.interfaces {
            Some(Ok(interfaces)) => interfaces,
            _ => &[],
        }
    }
}

/// What metes holds for pods of this cluster, by their UIDs.
#[derive(Debug, Default)]
pub struct HeldByPods(HashMap<PodUid, Vec<(InterfaceName, NetworkName, Addr)>>);

impl HeldByPods {
    /// Takes an owner.
    pub fn see(&mut self, owner: &Owner, record: &OwnerRecord) {
        let Some(uid) = &record.labels.pod.uid else { return };
        let place =
            |held: &Held| Some((owner.ifname.clone(), held.network.clone()?, Addr::from(held.address)));
        self.0.entry(uid.clone()).or_default().extend(record.addresses.iter().filter_map(place));
    }

    /// The interfaces of a pod, with what each holds.
    fn of(&self, uid: &str) -> &[(InterfaceName, NetworkName, Addr)] {
        self.0.get(uid).map_or(&[], Vec::as_slice)
    }
}

/// A reservation of overlapping ranges as it was read.
#[derive(Debug, Clone)]
pub struct Reservation {
    /// `namespace/name`.
    pub title: String,
    /// Its name.
    pub name: String,
    /// What it says.
    pub entry: Entry,
}

/// Everything that was read.
#[derive(Debug)]
pub struct World<'a> {
    /// The pools.
    pub pools: &'a [Pool],
    /// The reservations of overlapping ranges.
    pub reservations: &'a [Reservation],
    /// Who asks for addresses.
    pub uses: &'a [&'a Use],
    /// The definitions that lead to neither plugin, as in `namespace/name`.
    pub others: &'a HashSet<String>,
    /// The pods that entries name, and those that use something besides the cluster's own network.
    pub pods: &'a HashMap<PodRef, PodFacts>,
    /// What metes holds for pods already.
    pub held: &'a HeldByPods,
    /// The nodes that are not Ready: pods that are gone may run there.
    pub cut_off: &'a [String],
    /// This cluster's name.
    pub cluster: &'a ClusterName,
}

/// One interface of one container, and what it is to hold.
#[derive(Debug, Clone)]
pub struct Group {
    /// Who.
    pub owner: Owner,
    /// The addresses, in the order that an ADD would answer in.
    pub held: Vec<Held>,
    /// What is noted on its records.
    pub labels: Labels,
    /// The queue to stand in.
    pub scope: Scope,
    /// Whether its pod may run.
    pub is_running: bool,
}

/// An entry that stands for nothing any more: its pod is gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stale {
    /// Where it stands.
    pub at: String,
    /// The pod.
    pub pod: String,
    /// The address, if it is known.
    pub address: Option<IpAddr>,
}

/// An entry whose pod is gone and may run on a node that is not heard of.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Kept {
    /// Where it stands.
    pub at: String,
    /// The pod.
    pub pod: String,
    /// The address, if it is known.
    pub address: Option<IpAddr>,
    /// The nodes that it may run on. With more than one nobody but a person can tell when it is gone.
    pub nodes: Vec<String>,
}

/// An entry that cannot be taken over.
#[derive(Debug, Clone)]
pub struct Refused {
    /// Where it stands.
    pub at: String,
    /// The pod that it names.
    pub pod: String,
    /// The address, if it is known.
    pub address: Option<IpAddr>,
    /// Why.
    pub why: String,
    /// Whether its pod may run.
    pub is_running: bool,
}

/// What is to be done.
#[derive(Debug, Default)]
pub struct Gathered {
    /// Those that are to hold something, those whose pod may run first.
    pub groups: Vec<Group>,
    /// Those whose pod is gone.
    pub stale: Vec<Stale>,
    /// Those whose pod is gone and may run all the same.
    pub kept: Vec<Kept>,
    /// Those that cannot be taken over.
    pub refused: Vec<Refused>,
    /// How many entries there are in all.
    pub entries: usize,
    /// All containers that entries name.
    pub containers: HashSet<ContainerId>,
}

/// The pods that entries name.
pub fn wanted_pods(pools: &[Pool], reservations: &[Reservation]) -> HashSet<PodRef> {
    let of_pools = pools.iter().flat_map(|pool| pool.entries.values());
    let entries = of_pools.chain(reservations.iter().map(|one| &one.entry));
    entries.filter_map(|entry| PodRef::parse(&entry.pod)).collect()
}

/// Where an address was found, and for whom.
#[derive(Debug, Clone)]
struct Found {
    at: String,
    network: NetworkName,
    address: Addr,
}

#[derive(Debug)]
struct Member<'a> {
    pod: PodRef,
    facts: Cow<'a, PodFacts>,
    /// Whether its pod is noted on its records, so that they go with it.
    is_labelled: bool,
    found: Vec<Found>,
}

struct Gathering<'a> {
    world: &'a World<'a>,
    members: BTreeMap<Owner, Member<'a>>,
    /// The pods that pools give an address to.
    in_pools: HashMap<(NetworkName, Addr), String>,
    /// Who is to hold something for an interface of a pod.
    owners: HashMap<(PodRef, InterfaceName), Owner>,
    /// What entries give to pods, by interface.
    given: HashMap<PodRef, Vec<(InterfaceName, NetworkName, Addr)>>,
    /// Who asks for addresses by way of a definition.
    uses: HashMap<String, Vec<&'a Use>>,
    out: Gathered,
}

/// Puts it all together.
#[must_use]
pub fn gather(world: &World<'_>) -> Gathered {
    let mut gathering = Gathering {
        world,
        members: BTreeMap::new(),
        in_pools: HashMap::new(),
        owners: HashMap::new(),
        given: HashMap::new(),
        uses: HashMap::new(),
        out: Gathered::default(),
    };
    for one in world.uses {
        gathering.uses.entry(one.nad.to_string()).or_default().push(one);
    }
    for pool in world.pools {
        gathering.pool(pool);
    }
    let prefixes = nads::prefixes(world.uses);
    for reservation in world.reservations {
        gathering.reservation(reservation, &prefixes);
    }
    let running: BTreeMap<&PodRef, &PodFacts> =
        world.pods.iter().filter(|(_, facts)| facts.phase == Phase::Active).collect();
    for (pod, facts) in running {
        gathering.told(pod, facts);
        gathering.asked(pod, facts);
    }
    gathering.finish()
}

impl<'a> Gathering<'a> {
    fn pool(&mut self, pool: &Pool) {
        let domain = Domain::of(pool, self.world.uses);
        for (key, entry) in &pool.entries {
            self.out.entries += 1;
            let at = format!("IPPool {} entry {key}", pool.title);
            let found = match &domain {
                Ok(domain) => {
                    domain.address(key).map(|address| (&domain.network, address)).map_err(Doubt::Offset)
                }
                Err(unclear) => Err(Doubt::Pool(unclear.clone())),
            };
            if let Ok((network, address)) = &found {
                self.in_pools.insert(((*network).clone(), *address), entry.pod.clone());
            }
            let found = found.map(|(network, address)| (network.clone(), address));
            let node = domain.as_ref().ok().and_then(|domain| domain.node.as_deref());
            self.entry(at, entry, found, node);
        }
    }

    /// One that only repeats what a pool says is passed over.
    fn reservation(&mut self, reservation: &Reservation, prefixes: &[String]) {
        let entry = &reservation.entry;
        let found = pools::reservation(&reservation.name, prefixes);
        if found.as_ref().is_some_and(|found| self.in_pools.get(found) == Some(&entry.pod)) {
            return;
        }
        self.out.entries += 1;
        let at = format!("OverlappingRangeIPReservation {}", reservation.title);
        self.entry(at, entry, found.ok_or(Doubt::Name), None);
    }

    /// `of_node`: the node that has a pool of its own.
    fn entry(
        &mut self,
        at: String,
        entry: &Entry,
        found: Result<(NetworkName, Addr), Doubt>,
        of_node: Option<&str>,
    ) {
        let pod = entry.pod.clone();
        let address = found.as_ref().ok().map(|(_, address)| address.ip());
        let Some(named) = PodRef::parse(&pod) else {
            let why = "it names no pod".to_owned();
            self.out.refused.push(Refused { at, pod, address, why, is_running: false });
            return;
        };
        let facts = self.world.pods.get(&named);
        // A pod that is not scheduled holds nothing: the entry is of one of that name before it.
        let known = facts.and_then(|facts| Some((Cow::Borrowed(facts), facts.node.clone()?)));
        let mut is_labelled = true;
        let (facts, node) = match known {
            Some(known) => known,
            None => {
                let may_run_on = |node: &&String| of_node.is_none_or(|of| of == node.as_str());
                let nodes: Vec<String> = self.world.cut_off.iter().filter(may_run_on).cloned().collect();
                let Some(node) = nodes.first().cloned() else {
                    self.out.stale.push(Stale { at, pod, address });
                    return;
                };
                is_labelled = nodes.len() == 1;
                self.out.kept.push(Kept { at: at.clone(), pod: pod.clone(), address, nodes });
                (Cow::Owned(PodFacts::cut_off(&node)), node)
            }
        };
        let is_running = facts.phase == Phase::Active;
        let refuse = |why| Refused { at: at.clone(), pod, address, why, is_running };
        let (network, address) = match found {
            Ok(found) => found,
            Err(doubt) => return self.out.refused.push(refuse(doubt.to_string())),
        };
        let owner = match owner(self.world.cluster, &node, entry, (&named, &facts), address) {
            Ok(owner) => owner,
            Err(e) => return self.out.refused.push(refuse(e.to_string())),
        };
        self.out.containers.insert(owner.container_id.clone());
        let given = (owner.ifname.clone(), network.clone(), address);
        self.given.entry(named.clone()).or_default().push(given);
        self.owners.insert((named.clone(), owner.ifname.clone()), owner.clone());
        let found = Found { at, network, address };
        let member = Member { pod: named, facts, is_labelled, found: Vec::new() };
        self.members.entry(owner).or_insert(member).found.push(found);
    }

    /// What a running pod says that it uses and no entry gives to it.
    fn told(&mut self, pod: &PodRef, facts: &'a PodFacts) {
        let at = "annotation network-status".to_owned();
        if let Some(Err(why)) = &facts.interfaces {
            if facts.asked.iter().any(|one| !self.uses_of(&one.network).is_empty()) {
                self.refuse(at, pod, None, format!("it cannot be read: {why}"));
            }
            return;
        }
        for interface in facts.told() {
            let addresses = match interface.addresses() {
                Ok(addresses) => addresses,
                Err(text) => {
                    if !self.uses_of(&full_name(pod, &interface.name)).is_empty() {
                        self.refuse(at.clone(), pod, None, format!("{text:?} is no address"));
                    }
                    continue;
                }
            };
            for ip in addresses {
                let is_given = self.given_to(pod).iter().any(|(_, _, address)| *address == Addr::from(ip));
                if !is_given && let Err(why) = self.told_one(pod, facts, interface, ip) {
                    self.refuse(at.clone(), pod, Some(ip), why);
                }
            }
        }
    }

    fn told_one(
        &mut self,
        pod: &PodRef,
        facts: &'a PodFacts,
        interface: &Interface,
        ip: IpAddr,
    ) -> Result<(), String> {
        let (name, address) = (full_name(pod, &interface.name), Addr::from(ip));
        let Some(node) = &facts.node else { return Ok(()) };
        let Some(network) = self.network_of(&name, ip)? else { return Ok(()) };
        if self.world.held.of(&facts.uid).iter().any(|(_, of, held)| (of, *held) == (&network, address)) {
            return Ok(());
        }
        let in_pool = self.in_pools.get(&(network.clone(), address)).and_then(|other| PodRef::parse(other));
        let is_running =
            |other: &PodRef| self.world.pods.get(other).is_some_and(|facts| facts.phase == Phase::Active);
        if let Some(other) = in_pool.filter(|other| other != pod && is_running(other)) {
            return Err(given_twice(&network, &other));
        }
        let ifname = if interface.interface.is_empty() { IFNAME } else { &interface.interface };
        let interface = (pod.clone(), ifname.parse().map_err(|e: InvalidName| e.to_string())?);
        let owner = match self.owners.get(&interface) {
            Some(owner) => owner.clone(),
            None => {
                let container = made_up_container(pod, facts);
                let names = [self.world.cluster.as_str(), node, &container, ifname];
                Owner::named(names).map_err(|e| e.to_string())?
            }
        };
        let found = Found { at: "annotation network-status".to_owned(), network, address };
        let facts = Cow::Borrowed(facts);
        let member = Member { pod: pod.clone(), facts, is_labelled: true, found: Vec::new() };
        self.members.entry(owner).or_insert(member).found.push(found);
        Ok(())
    }

    /// The network that an address belongs to which is used by way of a definition; none if it is neither plugin's.
    fn network_of(&self, definition: &str, ip: IpAddr) -> Result<Option<NetworkName>, String> {
        let address = Addr::from(ip);
        let uses = self.uses_of(definition);
        if uses.is_empty() {
            if self.world.others.contains(definition) || !self.is_in_any_range(address) {
                return Ok(None);
            }
            return Err(format!(
                "it is in the range of a definition, and what {definition} is nobody knows: its definition is gone or lies on the nodes"
            ));
        }
        let readable: Vec<&Ranges> = uses.iter().filter_map(|one| one.ranges.as_ref().ok()).collect();
        for ranges in &readable {
            if let Some(range) = ranges.sets.iter().find_map(|set| set.covers(address)) {
                return Ok(Some(range.network().clone()));
            }
            if let Some(fixed) = ranges.statics.iter().find(|fixed| fixed.address == ip) {
                return Ok(fixed.network.clone());
            }
        }
        Err(match readable.is_empty() {
            true => format!("metes cannot use the configuration of {definition}"),
            false => format!("it is in use, no pool has it, and it lies outside every range of {definition}"),
        })
    }

    fn uses_of(&self, definition: &str) -> &[&'a Use] {
        self.uses.get(definition).map_or(&[], Vec::as_slice)
    }

    fn given_to(&self, pod: &PodRef) -> &[(InterfaceName, NetworkName, Addr)] {
        self.given.get(pod).map_or(&[], Vec::as_slice)
    }

    fn is_in_any_range(&self, address: Addr) -> bool {
        let readable = self.world.uses.iter().filter_map(|one| one.ranges.as_ref().ok());
        readable.flat_map(|ranges| &ranges.sets).any(|set| set.covers(address).is_some())
    }

    /// A pod that runs in a network, and neither it nor an entry tells with which address.
    fn asked(&mut self, pod: &PodRef, facts: &PodFacts) {
        let mut seen = BTreeSet::new();
        for Selection { network, .. } in facts.asked.iter().filter(|_| facts.is_up) {
            let uses = self.uses_of(network);
            if uses.is_empty() || !seen.insert(network) {
                continue;
            }
            let asked = facts.asked.iter().filter(|one| one.network == *network).count();
            let listed = facts.told().iter().filter(|one| full_name(pod, &one.name) == *network).count();
            let readable: Vec<&Ranges> = uses.iter().filter_map(|one| one.ranges.as_ref().ok()).collect();
            let is_in =
                |of: &NetworkName, address: Addr| readable.iter().any(|ranges| is_in(ranges, of, address));
            let known = self.given_to(pod).iter().chain(self.world.held.of(&facts.uid));
            let known = known.filter(|(_, of, address)| is_in(of, *address));
            let interfaces: BTreeSet<&InterfaceName> = known.map(|(ifname, ..)| ifname).collect();
            if listed.max(interfaces.len()) < asked {
                let why = format!(
                    "it runs in network {network}, and neither its annotation network-status nor a pool tells its address"
                );
                self.refuse("annotation networks".to_owned(), pod, None, why);
            }
        }
    }

    fn refuse(&mut self, at: String, pod: &PodRef, address: Option<IpAddr>, why: String) {
        self.out.refused.push(Refused { at, pod: pod.to_string(), address, why, is_running: true });
    }

    /// No address goes to two owners: those whose pod runs come first.
    fn finish(mut self) -> Gathered {
        let mut members: Vec<(Owner, Member<'_>)> = std::mem::take(&mut self.members).into_iter().collect();
        members.sort_by_key(|(_, member)| member.facts.phase != Phase::Active);
        let mut taken: HashMap<(NetworkName, Addr), (PodRef, Owner)> = HashMap::new();
        for (owner, mut member) in members {
            let is_running = member.facts.phase == Phase::Active;
            member.found.retain(|found| {
                let holder = taken.entry((found.network.clone(), found.address));
                let holder = holder.or_insert_with(|| (member.pod.clone(), owner.clone()));
                if holder.1 == owner {
                    return true;
                }
                // Two entries for one interface of one pod: of an earlier sandbox and of the present one.
                if holder.0 != member.pod || holder.1.ifname != owner.ifname {
                    self.out.refused.push(Refused {
                        at: found.at.clone(),
                        pod: member.pod.to_string(),
                        address: Some(found.address.ip()),
                        why: given_twice(&found.network, &holder.0),
                        is_running,
                    });
                }
                false
            });
            if !member.found.is_empty() {
                self.out.groups.push(self.group(owner, &member));
            }
        }
        self.out
    }

    fn group(&self, owner: Owner, member: &Member<'_>) -> Group {
        let mut found = member.found.clone();
        found.sort_by_key(|one| one.address);
        found.dedup_by(|one, other| (&one.network, one.address) == (&other.network, other.address));
        let uses = self.uses(&owner, member, &found);
        let first = uses.first().and_then(|one| one.ranges.as_ref().ok());
        if let Some(ranges) = first {
            found.sort_by_key(|one| (position(ranges, one), one.address));
        }
        let held = |one: &Found| Held { address: one.address.ip(), network: Some(one.network.clone()) };
        let mut held: Vec<Held> = found.iter().map(held).collect();
        let statics = first.map(|ranges| ranges.statics.clone()).unwrap_or_default();
        held.extend(
            statics.into_iter().filter(|fixed| !found.iter().any(|one| one.address.ip() == fixed.address)),
        );
        let names: BTreeSet<&str> = uses.iter().map(|one| one.cni_network.as_str()).collect();
        // With the wrong name, a GC for another network would be asked about this owner.
        let cni_network = if names.len() == 1 { uses[0].cni_network.clone() } else { String::new() };
        let PodRef { namespace, name } = member.pod.clone();
        let pod = match member.is_labelled {
            true => Pod { namespace, name, uid: member.facts.uid.parse().ok() },
            false => Pod::default(),
        };
        Group {
            owner,
            held,
            labels: Labels { pod, cni_network },
            scope: first.map_or_else(|| Scope::of(&[], None), |ranges| ranges.scope.clone()),
            is_running: member.facts.phase == Phase::Active,
        }
    }

    /// The configurations that can have asked for all of it: the one that Multus tells, else every one
    /// whose ranges hold all of it, those of the pod's namespace first.
    fn uses(&self, owner: &Owner, member: &Member<'_>, found: &[Found]) -> Vec<&Use> {
        let holds_all = |one: &&&Use| {
            one.ranges.as_ref().is_ok_and(|ranges| found.iter().all(|one| position(ranges, one).is_some()))
        };
        let mut uses: Vec<&Use> = self.world.uses.iter().filter(holds_all).copied().collect();
        let told = member.facts.told().iter().find(|one| owner.ifname == *one.interface);
        let is_told = |one: &&Use| told.is_some_and(|told| told.name == one.nad.to_string());
        if uses.iter().any(is_told) {
            uses.retain(is_told);
        }
        uses.sort_by_key(|one| one.nad.namespace != member.pod.namespace);
        uses
    }
}

fn position(ranges: &Ranges, found: &Found) -> Option<usize> {
    ranges.sets.iter().position(|set| covers(set, &found.network, found.address))
}

fn is_in(ranges: &Ranges, network: &NetworkName, address: Addr) -> bool {
    ranges.sets.iter().any(|set| covers(set, network, address))
}

fn covers(set: &RangeSet, network: &NetworkName, address: Addr) -> bool {
    set.covers(address).is_some_and(|range| range.network() == network)
}

fn full_name(pod: &PodRef, network: &str) -> String {
    if network.contains('/') { network.to_owned() } else { format!("{}/{network}", pod.namespace) }
}

fn given_twice(network: &NetworkName, pod: &PodRef) -> String {
    format!("the same address of network {network} is given to pod {pod} too")
}

/// The container of a pod whose entry names none.
fn made_up_container(pod: &PodRef, facts: &PodFacts) -> String {
    match facts.uid.as_str() {
        "" => format!("{CONTAINER}{}.{}", pod.namespace, pod.name),
        uid => format!("{CONTAINER}{uid}"),
    }
}

/// Who an entry belongs to. What it does not say comes from the pod, or is made up.
fn owner(
    cluster: &ClusterName,
    node: &str,
    entry: &Entry,
    (pod, facts): (&PodRef, &PodFacts),
    address: Addr,
) -> Result<Owner, InvalidName> {
    let container_id = match entry.container_id.as_str() {
        "" => made_up_container(pod, facts),
        id => id.to_owned(),
    };
    let told = || facts.told().iter().find(|one| has(one, address));
    let ifname = match entry.ifname.as_str() {
        "" => told().map(|one| one.interface.clone()).filter(|ifname| !ifname.is_empty()),
        ifname => Some(ifname.to_owned()),
    };
    Owner::named([cluster.as_str(), node, &container_id, ifname.as_deref().unwrap_or(IFNAME)])
}

fn has(interface: &Interface, address: Addr) -> bool {
    interface.addresses().is_ok_and(|addresses| addresses.contains(&address.ip()))
}

/// Why nobody knows what an entry stands for.
#[derive(Debug, Clone, thiserror::Error)]
enum Doubt {
    #[error("{0}")]
    Pool(Unclear),
    #[error("{0}")]
    Offset(BadOffset),
    #[error("its name is no address of a known network")]
    Name,
}

#[cfg(test)]
mod tests {
    use super::super::nads::{Nad, NadId};
    use super::*;

    struct Cluster {
        nads: Vec<Nad>,
        pools: Vec<Pool>,
        reservations: Vec<Reservation>,
        pods: HashMap<PodRef, PodFacts>,
        others: HashSet<String>,
        held: HeldByPods,
        cut_off: Vec<String>,
    }

    fn entry(pod: &str, container_id: &str, ifname: &str) -> Entry {
        Entry { pod: pod.into(), container_id: container_id.into(), ifname: ifname.into() }
    }

    impl Cluster {
        fn new() -> Self {
            let mut cluster = Self {
                nads: Vec::new(),
                pools: Vec::new(),
                reservations: Vec::new(),
                pods: HashMap::new(),
                others: HashSet::new(),
                held: HeldByPods::default(),
                cut_off: Vec::new(),
            };
            cluster.nad("a", r#""range":"10.0.0.0/24""#);
            cluster.pod("ns/p1", "u1", Phase::Active);
            cluster.pod("ns/p2", "u2", Phase::Active);
            cluster
        }

        fn nad(&mut self, name: &str, keys: &str) {
            let id = NadId { namespace: "ns".into(), name: name.into() };
            let config = format!(r#"{{"name":"net-{name}","ipam":{{"type":"whereabouts",{keys}}}}}"#);
            self.nads.push(Nad::read(id, "u".into(), "1".into(), Some(&config)));
        }

        fn pool(&mut self, name: &str, range: &str, entries: &[(&str, Entry)]) {
            let entries = entries.iter().map(|(key, entry)| ((*key).to_owned(), entry.clone())).collect();
            self.pools.push(Pool {
                title: format!("kube-system/{name}"),
                name: name.into(),
                range: range.into(),
                entries,
            });
        }

        fn reservation(&mut self, name: &str, entry: Entry) {
            self.reservations.push(Reservation {
                title: format!("kube-system/{name}"),
                name: name.into(),
                entry,
            });
        }

        fn pod(&mut self, named: &str, uid: &str, phase: Phase) {
            let (uid, node) = (uid.into(), Some("n1".into()));
            let facts = PodFacts { uid, node, phase, interfaces: None, asked: Vec::new(), is_up: true };
            self.pods.insert(PodRef::parse(named).expect("a name"), facts);
        }

        fn gather(&self) -> Gathered {
            let uses: Vec<&Use> = self.nads.iter().flat_map(|nad| &nad.uses).collect();
            gather(&World {
                pools: &self.pools,
                reservations: &self.reservations,
                uses: &uses,
                others: &self.others,
                pods: &self.pods,
                held: &self.held,
                cut_off: &self.cut_off,
                cluster: &"east".parse().expect("a cluster's name"),
            })
        }
    }

    fn addresses(group: &Group) -> Vec<String> {
        group.held.iter().map(|held| held.address.to_string()).collect()
    }

    #[test]
    fn all_addresses_of_an_interface_belong_to_one_owner_in_the_order_of_the_ranges() {
        let mut cluster = Cluster::new();
        cluster.nad("dual", r#""ipRanges":[{"range":"fd00::/64"},{"range":"10.1.0.0/16"}]"#);
        cluster.pool("10.1.0.0-16", "10.1.0.0/16", &[("5", entry("ns/p1", "c1", "net1"))]);
        cluster.pool("fd00---64", "fd00::/64", &[("7", entry("ns/p1", "c1", "net1"))]);
        cluster.pool("10.0.0.0-24", "10.0.0.0/24", &[("9", entry("ns/p1", "c1", "net2"))]);
        let found = cluster.gather();
        assert_eq!(found.groups.len(), 2);
        assert_eq!(addresses(&found.groups[0]), ["fd00::7", "10.1.0.5"]);
        assert_eq!(found.groups[0].labels.cni_network, "net-dual");
        assert_eq!(addresses(&found.groups[1]), ["10.0.0.9"]);
        assert_eq!(found.groups[1].owner, Owner::named(["east", "n1", "c1", "net2"]).expect("plain names"));
        assert_eq!(found.groups[1].labels.pod.uid, "u1".parse().ok());
    }

    #[test]
    fn entries_of_pods_that_are_gone_are_stale() {
        let mut cluster = Cluster::new();
        cluster.pod("ns/later", "u9", Phase::Active);
        cluster.pods.get_mut(&PodRef::parse("ns/later").expect("a name")).expect("is there").node = None;
        let entries = [("1", entry("ns/gone", "c1", "net1")), ("2", entry("ns/later", "c2", "net1"))];
        cluster.pool("10.0.0.0-24", "10.0.0.0/24", &entries);
        let found = cluster.gather();
        assert!(found.groups.is_empty() && found.refused.is_empty());
        assert_eq!(found.stale.len(), 2);
        assert_eq!(found.stale[0].address, Some("10.0.0.1".parse().expect("an address")));
    }

    #[test]
    fn what_cannot_be_understood_is_refused_and_only_running_pods_count() {
        let mut cluster = Cluster::new();
        cluster.pod("ns/done", "u3", Phase::Finished);
        cluster.pool(
            "10.0.0.0-24",
            "10.0.0.0/24",
            &[
                ("256", entry("ns/p1", "c1", "net1")),
                ("1", entry("", "c1", "net1")),
                ("2", entry("ns/p1", "../c1", "net1")),
                ("x", entry("ns/done", "c1", "net1")),
            ],
        );
        cluster.pool("10.9.0.0-24", "10.9.0.0/24", &[("1", entry("ns/p2", "c2", "net1"))]);
        let found = cluster.gather();
        assert!(found.groups.is_empty());
        let running = found.refused.iter().map(|one| (one.pod.as_str(), one.is_running)).collect::<Vec<_>>();
        assert_eq!(
            running,
            [("", false), ("ns/p1", true), ("ns/p1", true), ("ns/done", false), ("ns/p2", true)]
        );
    }

    #[test]
    fn one_address_goes_to_one_pod() {
        let mut cluster = Cluster::new();
        cluster.nad("wide", r#""range":"10.0.0.0/16""#);
        cluster.pod("ns/done", "u3", Phase::Finished);
        cluster.pool("10.0.0.0-16", "10.0.0.0/16", &[("1", entry("ns/done", "c0", "net1"))]);
        cluster.pool("10.0.0.0-24", "10.0.0.0/24", &[("1", entry("ns/p2", "c2", "net1"))]);
        let found = cluster.gather();
        assert_eq!(found.groups.len(), 1);
        assert_eq!(found.groups[0].labels.pod.name, "p2");
        assert!(found.refused.len() == 1 && found.refused[0].why.contains("ns/p2"), "{:?}", found.refused);
    }

    #[test]
    fn a_reservation_counts_where_no_pool_says_the_same() {
        let mut cluster = Cluster::new();
        cluster.nad("lab", r#""range":"10.0.0.0/24","network_name":"lab""#);
        cluster.pool("10.0.0.0-24", "10.0.0.0/24", &[("1", entry("ns/p1", "c1", "net1"))]);
        cluster.reservation("10.0.0.1", entry("ns/p1", "", "net1"));
        cluster.reservation("lab-10.0.0.1", entry("ns/p2", "", ""));
        cluster.reservation("10.0.0.3", entry("ns/gone", "", ""));
        cluster.reservation("what", entry("ns/p2", "", ""));
        let found = cluster.gather();
        assert_eq!(found.groups.len(), 2);
        let made_up = Owner::named(["east", "n1", "imported-u2", "imported"]).expect("plain names");
        let group = found.groups.iter().find(|group| group.owner == made_up).expect("p2's");
        assert_eq!(group.held[0].network.as_ref().map(NetworkName::as_str), Some("lab"));
        assert_eq!((found.stale.len(), found.refused.len()), (1, 1));
    }

    #[test]
    fn what_an_old_entry_lacks_comes_from_the_pods_annotation() {
        let mut cluster = Cluster::new();
        cluster.nad("b", r#""range":"10.0.0.0/24""#);
        let told = Interface {
            name: "ns/b".into(),
            interface: "net3".into(),
            ips: vec!["10.0.0.4".into()],
            default: false,
        };
        let p1 = PodRef::parse("ns/p1").expect("a name");
        cluster.pods.get_mut(&p1).expect("is there").interfaces = Some(Ok(vec![told]));
        let entries = [("4", entry("ns/p1", "c1", "")), ("5", entry("ns/p2", "c2", "net1"))];
        cluster.pool("10.0.0.0-24", "10.0.0.0/24", &entries);
        let found = cluster.gather();
        let group = |id: &str| found.groups.iter().find(|one| one.owner.container_id == *id).expect(id);
        assert_eq!(group("c1").owner.ifname.as_str(), "net3");
        assert_eq!(group("c1").labels.cni_network, "net-b");
        // Both configurations can have asked for it.
        assert_eq!(group("c2").labels.cni_network, "");
    }

    #[test]
    fn static_addresses_come_after_those_of_the_ranges() {
        let mut cluster = Cluster::new();
        let keys = r#""range":"10.5.0.0/24","addresses":[{"address":"192.168.0.9/24"}]"#;
        cluster.nad("static", keys);
        cluster.pool("10.5.0.0-24", "10.5.0.0/24", &[("4", entry("ns/p1", "c1", "net1"))]);
        let found = cluster.gather();
        assert_eq!(addresses(&found.groups[0]), ["10.5.0.4", "192.168.0.9"]);
        assert_eq!(found.groups[0].held[1].network, None);
    }
}
