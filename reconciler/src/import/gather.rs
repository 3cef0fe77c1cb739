//! Groups whereabouts' entries by the interface that they belong to, and so finds the addresses that each owner is to
//! hold. Pure.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::IpAddr;

use metes_config::selection::{Selection, full_name};
use metes_core::keys::Scope;
use metes_core::plan::ask::Sticky;
use metes_core::pool::range::RangeSet;
use metes_core::pool::{
    Addr, ClusterName, ContainerId, Held, InterfaceName, InvalidName, Keep, Labels, NetworkName, Owner, Pod,
};

use super::facts::{PodFacts, PodRef, Reservation, World};
use super::gathered::{Gathered, Group, Kept, Refused, Stale};
use super::nads::{self, Ranges, Use};
use super::pools::{self, BadOffset, Domain, Entry, Pool, Unclear};
use crate::api::Phase;
use crate::running::Interface;

/// The interface of an entry that names none and whose pod does not report it.
const IFNAME: &str = "imported";

/// The pods that entries name.
pub fn wanted_pods(pools: &[Pool], reservations: &[Reservation]) -> HashSet<PodRef> {
    let of_pools = pools.iter().flat_map(|pool| pool.entries.values());
    let entries = of_pools.chain(reservations.iter().map(|one| &one.entry));
    entries.filter_map(|entry| PodRef::parse(&entry.pod)).collect()
}

/// An address, and where it was found.
#[derive(Debug, Clone)]
struct FoundAddress {
    at: String,
    network: NetworkName,
    address: Addr,
}

#[derive(Debug)]
struct Member<'a> {
    pod: PodRef,
    facts: Cow<'a, PodFacts>,
    /// True if the pod is written on its records, so that the records can be freed when the pod is gone.
    is_labelled: bool,
    found: Vec<FoundAddress>,
}

impl Member<'_> {
    /// True if the pod reports these addresses for the interface, and no other.
    fn reports_exactly(&self, Group { owner, held, .. }: &Group) -> bool {
        let told = self.facts.told().iter().find(|one| owner.ifname == *one.interface);
        let told = told.and_then(|one| one.addresses().ok()).unwrap_or_default();
        told.len() == held.len() && held.iter().all(|held| told.contains(&held.address))
    }
}

struct Gathering<'a> {
    world: &'a World<'a>,
    members: BTreeMap<Owner, Member<'a>>,
    /// The pod of each address in a pool.
    in_pools: HashMap<(NetworkName, Addr), String>,
    owners: HashMap<(PodRef, InterfaceName), Owner>,
    /// The addresses that entries give to each pod, by interface.
    given: HashMap<PodRef, Vec<(InterfaceName, NetworkName, Addr)>>,
    /// The `ipam` sections of each definition.
    uses: HashMap<String, Vec<&'a Use>>,
    out: Gathered,
}

/// Groups all entries.
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

    /// A reservation that only repeats an entry of a pool is skipped.
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

    /// `of_node`: the node, if the entry's pool belongs to one node.
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
        // A pod that is not scheduled holds nothing: the entry belongs to an earlier pod of the same name.
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
        let found = FoundAddress { at, network, address };
        let member = Member { pod: named, facts, is_labelled, found: Vec::new() };
        self.members.entry(owner).or_insert(member).found.push(found);
    }

    /// Takes the addresses that a running pod reports and that no entry gives to it.
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
                    if !self.uses_of(&full_name(&pod.namespace, &interface.name)).is_empty() {
                        self.refuse(at.clone(), pod, None, format!("{text:?} is not an address"));
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
        let (name, address) = (full_name(&pod.namespace, &interface.name), Addr::from(ip));
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
                let container = made_up_container(pod, facts).map_err(|e| e.to_string())?;
                let names = [self.world.cluster.as_str(), node, container.as_str(), ifname];
                Owner::named(names).map_err(|e| e.to_string())?
            }
        };
        let found = FoundAddress { at: "annotation network-status".to_owned(), network, address };
        let facts = Cow::Borrowed(facts);
        let member = Member { pod: pod.clone(), facts, is_labelled: true, found: Vec::new() };
        self.members.entry(owner).or_insert(member).found.push(found);
        Ok(())
    }

    /// The network of an address that is used through a definition; none if the address comes from neither plugin.
    fn network_of(&self, definition: &str, ip: IpAddr) -> Result<Option<NetworkName>, String> {
        let address = Addr::from(ip);
        let uses = self.uses_of(definition);
        if uses.is_empty() {
            if self.world.others.contains(definition) || !self.is_in_any_range(address) {
                return Ok(None);
            }
            return Err(format!(
                "it is in the range of a definition, and what {definition} is nobody knows: its definition is gone or \
                 lies on the nodes"
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

    /// A pod that runs in a network although neither the pod nor an entry tells its address there.
    fn asked(&mut self, pod: &PodRef, facts: &PodFacts) {
        let mut seen = BTreeSet::new();
        for Selection { network, .. } in facts.asked.iter().filter(|_| facts.is_up) {
            let uses = self.uses_of(network);
            if uses.is_empty() || !seen.insert(network) {
                continue;
            }
            let asked = facts.asked.iter().filter(|one| one.network == *network).count();
            let listed =
                facts.told().iter().filter(|one| full_name(&pod.namespace, &one.name) == *network).count();
            let readable: Vec<&Ranges> = uses.iter().filter_map(|one| one.ranges.as_ref().ok()).collect();
            let is_in =
                |of: &NetworkName, address: Addr| readable.iter().any(|ranges| is_in(ranges, of, address));
            let known = self.given_to(pod).iter().chain(self.world.held.of(&facts.uid));
            let known = known.filter(|(_, of, address)| is_in(of, *address));
            let interfaces: BTreeSet<&InterfaceName> = known.map(|(ifname, ..)| ifname).collect();
            if listed.max(interfaces.len()) < asked {
                let why = format!(
                    "it runs in network {network}, and neither its annotation network-status nor a pool says its \
                     address"
                );
                self.refuse("annotation networks".to_owned(), pod, None, why);
            }
        }
    }

    fn refuse(&mut self, at: String, pod: &PodRef, address: Option<IpAddr>, why: String) {
        self.out.refused.push(Refused { at, pod: pod.to_string(), address, why, is_running: true });
    }

    /// No address goes to two owners. Owners whose pods run come first.
    fn finish(mut self) -> Gathered {
        let mut members: Vec<(Owner, Member<'_>)> = std::mem::take(&mut self.members).into_iter().collect();
        members.sort_by_key(|(_, member)| member.facts.phase != Phase::Active);
        let mut taken: HashMap<(NetworkName, Addr), (PodRef, Owner)> = HashMap::new();
        let mut groups = Vec::new();
        for (owner, mut member) in members {
            let is_running = member.facts.phase == Phase::Active;
            member.found.retain(|found| {
                let holder = taken.entry((found.network.clone(), found.address));
                let holder = holder.or_insert_with(|| (member.pod.clone(), owner.clone()));
                if holder.1 == owner {
                    return true;
                }
                // Two entries may belong to one interface of one pod: from an earlier sandbox and from the present one.
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
                let group = self.group(owner, &member);
                let is_reported = member.reports_exactly(&group);
                groups.push((group, is_reported));
            }
        }
        self.out.groups = with_one_for_each_hold(groups);
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
        let held = |one: &FoundAddress| Held::new(one.address.ip(), Some(one.network.clone()));
        let mut held: Vec<Held> = found.iter().map(held).collect();
        let statics = first.map(|ranges| ranges.statics.clone()).unwrap_or_default();
        held.extend(
            statics.into_iter().filter(|fixed| !found.iter().any(|one| one.address.ip() == fixed.address)),
        );
        let names: BTreeSet<&str> = uses.iter().map(|one| one.cni_network.as_str()).collect();
        // With a wrong name here, a GC for another network would decide about this owner.
        let cni_network = if names.len() == 1 { uses[0].cni_network.clone() } else { String::new() };
        let PodRef { namespace, name } = member.pod.clone();
        let pod = match member.is_labelled {
            true => Pod { namespace, name, uid: member.facts.uid.parse().ok() },
            false => Pod::default(),
        };
        let sticky = self.sticky(&owner, &pod, &held, &uses);
        Group {
            owner,
            sticky,
            held,
            labels: Labels { pod, cni_network },
            scope: first.map_or_else(|| Scope::of(&[], None), |ranges| ranges.scope.clone()),
            is_running: member.facts.phase == Phase::Active,
        }
    }

    /// The hold that an interface's addresses stay with: each definition that it may come from says so, and the
    /// addresses are one of each of its range sets.
    fn sticky(&self, owner: &Owner, pod: &Pod, held: &[Held], uses: &[&Use]) -> Option<Sticky> {
        pod.uid.as_ref()?;
        let one_of_each = |ranges: &&Ranges| {
            let mut of_sets = ranges.sets.iter().zip(held);
            ranges.sets.len() == held.len()
                && of_sets.all(|(set, held)| set.covers(Addr::from(held.address)).is_some())
        };
        let keep_of =
            |one: &&Use| one.ranges.as_ref().ok().filter(one_of_each).and_then(|ranges| ranges.keep);
        let keep = Keep::longest(uses.iter().map(keep_of))?;
        Sticky::of_pod(self.world.cluster.clone(), pod, owner.ifname.clone(), Some(keep)).ok()
    }

    /// The `ipam` sections that may have asked for all of these addresses: the one that multus reports, otherwise every
    /// one whose ranges cover all of them, with those of the pod's namespace first.
    fn uses(&self, owner: &Owner, member: &Member<'_>, found: &[FoundAddress]) -> Vec<&Use> {
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

/// A hold has one user. If several containers of a pod have entries for one interface, it is the one whose addresses
/// the pod reports; if that does not tell, none. Each group comes with whether the pod reports exactly its addresses.
fn with_one_for_each_hold(groups: Vec<(Group, bool)>) -> Vec<Group> {
    let mut users: HashMap<Owner, Vec<bool>> = HashMap::new();
    for (group, is_reported) in &groups {
        if let Some(sticky) = &group.sticky {
            users.entry(sticky.hold.clone()).or_default().push(*is_reported);
        }
    }
    let with_one = |(mut group, is_reported): (Group, bool)| {
        group.sticky = group.sticky.filter(|sticky| {
            let users = &users[&sticky.hold];
            users.len() == 1 || is_reported && users.iter().filter(|reported| **reported).count() == 1
        });
        group
    };
    groups.into_iter().map(with_one).collect()
}

fn position(ranges: &Ranges, found: &FoundAddress) -> Option<usize> {
    ranges.sets.iter().position(|set| covers(set, &found.network, found.address))
}

fn is_in(ranges: &Ranges, network: &NetworkName, address: Addr) -> bool {
    ranges.sets.iter().any(|set| covers(set, network, address))
}

fn covers(set: &RangeSet, network: &NetworkName, address: Addr) -> bool {
    set.covers(address).is_some_and(|range| range.network() == network)
}

fn given_twice(network: &NetworkName, pod: &PodRef) -> String {
    format!("the same address of network {network} is given to pod {pod} too")
}

/// The container id for a pod whose entry names none.
fn made_up_container(pod: &PodRef, facts: &PodFacts) -> Result<ContainerId, InvalidName> {
    match facts.uid.as_str() {
        "" => ContainerId::imported(&format!("{}.{}", pod.namespace, pod.name)),
        uid => ContainerId::imported(uid),
    }
}

/// The owner of an entry. A part that the entry lacks comes from the pod, or is made up.
fn owner(
    cluster: &ClusterName,
    node: &str,
    entry: &Entry,
    (pod, facts): (&PodRef, &PodFacts),
    address: Addr,
) -> Result<Owner, InvalidName> {
    let container_id = match entry.container_id.as_str() {
        "" => made_up_container(pod, facts)?,
        id => id.parse()?,
    };
    let told = || facts.told().iter().find(|one| has(one, address));
    let ifname = match entry.ifname.as_str() {
        "" => told().map(|one| one.interface.clone()).filter(|ifname| !ifname.is_empty()),
        ifname => Some(ifname.to_owned()),
    };
    Owner::named([cluster.as_str(), node, container_id.as_str(), ifname.as_deref().unwrap_or(IFNAME)])
}

fn has(interface: &Interface, address: Addr) -> bool {
    interface.addresses().is_ok_and(|addresses| addresses.contains(&address.ip()))
}

/// Why nobody knows what an entry means.
#[derive(Debug, Clone, thiserror::Error)]
enum Doubt {
    #[error("{0}")]
    Pool(Unclear),
    #[error("{0}")]
    Offset(BadOffset),
    #[error("its name is not an address of a known network")]
    Name,
}

#[cfg(test)]
mod tests;
