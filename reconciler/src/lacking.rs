//! Addresses that running pods report and that the store lacks: the store has probably gone back in time, and no node
//! has noticed yet.
//!
//! A pass that sees such an address looks three times: at the records that were listed before the pods, at the
//! reservation after that, and then at the pod itself. It remembers the address under a key on a lease. If the next
//! pass sees it too, the address is certain: the key loses its lease. Nothing is freed in such a network, because a
//! record there may be all that keeps the address of a running pod from being given again. This ends with the next
//! epoch, which `adopt` and `metes check --accept-store` begin. An address that was certain before it counts as
//! accepted for as long as the pod reports it.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::stream::{self, StreamExt};
use metes_core::keys::{Key, NetworkAddress};
use metes_core::limits;
use metes_core::meta;
use metes_core::pool::{
    Addr, Lacking, NetworkName, Owner, OwnerKind, OwnerRecord, Record, Reservation, Subject,
};
use metes_core::snapshot::Snapshot;
use metes_core::txn::{Entry, Op, Txn};
use metes_engine::kv::{Failure, Kv};
use metes_engine::session::new_lease;
use metes_engine::walk::walk;

use crate::api::{Api, Phase, Pod};
use crate::context::{AT_ONCE, Context, read_meta};
use crate::error::RunError;
use crate::held::HeldAddresses;
use crate::nad::Definitions;
use crate::reported::{Reported, Unheld};
use crate::sightings::REMEMBERED;
use crate::world::Pods;

/// The most addresses of a network that one pass looks at.
const OF_A_NETWORK: usize = 100;

/// The addresses that running pods report and the store lacks, as far as a pass knows.
#[derive(Debug, Default)]
pub struct LackingAddresses {
    /// Those of this cluster that two passes in a row have seen, in this epoch.
    pub(crate) certain: Vec<LackingAddress>,
    /// The networks in which nothing is freed.
    pub networks: BTreeSet<NetworkName>,
}

impl LackingAddresses {
    /// The number of certain addresses in each of the networks in which nothing is freed.
    pub(crate) fn by_network(&self) -> BTreeMap<&NetworkName, usize> {
        let count = |network: &NetworkName| self.certain.iter().filter(|one| one.network == *network).count();
        self.networks.iter().map(|network| (network, count(network))).collect()
    }
}

/// An address that two passes in a row have seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LackingAddress {
    pub(crate) network: NetworkName,
    pub(crate) address: Addr,
    /// The pod that reports it, as `namespace/name`.
    pub(crate) pod: String,
    pub(crate) uid: String,
    /// True if this pass is the second one.
    pub(crate) is_new: bool,
}

/// The addresses that earlier passes wrote down.
#[derive(Default)]
struct Remembered {
    /// Of this cluster. One that does not decode is none, and counts as certain.
    ours: BTreeMap<NetworkAddress, Option<Lacking>>,
    /// The networks of what is certain for other clusters.
    of_others: BTreeSet<NetworkName>,
}

/// A look at the reports of pods.
pub(crate) struct Look<'a, K, A> {
    pub(crate) context: Context<'a, K, A>,
    pub(crate) definitions: &'a Definitions,
    pub(crate) pods: &'a Pods,
}

impl<K: Kv, A: Api> Look<'_, K, A> {
    /// Finds those of these addresses that the store lacks, and remembers them. The second part is an error if it could
    /// not.
    pub(crate) async fn find(
        &self,
        unheld: Vec<Unheld>,
    ) -> Result<(LackingAddresses, Result<(), Failure>), RunError> {
        let stored = read_meta(self.context.session).await?;
        let epoch = stored.meta.map_or(0, |meta| meta.epoch);
        let before = self.recall(epoch).await?;
        let reported = self.still_unheld(unheld).await?;
        let (accepted, open): (Vec<_>, Vec<_>) =
            reported.into_iter().partition(|one| before.is_accepted(one, epoch));
        let seen = self.look_again(some_of_each_network(open)).await?;
        let next = before.next(&seen, &accepted, epoch);
        let remembered = match self.context.dry_run {
            true => Ok(()),
            false => self.remember(&before, &next, stored.entry.as_ref()).await,
        };
        Ok((before.judged(&next, &seen, epoch), remembered))
    }

    async fn recall(&self, epoch: u64) -> Result<Remembered, Failure> {
        let Context { session, cluster, .. } = self.context;
        let see = |before: &mut Remembered, entry: Entry| {
            let Ok(Key::Lacking(whose, network, address)) = session.keys.parse(&entry.key) else { return };
            let known = Lacking::decode(&entry.value).ok();
            if whose == *cluster {
                before.ours.insert((network, address), known);
            } else if is_certain(known.as_ref(), epoch) {
                before.of_others.insert(network);
            }
        };
        Ok(walk(session, &session.keys.all_lacking(), Remembered::default, see).await?.0)
    }

    /// Those that no reservation holds for their pod now. A pod that was made after the records were listed has one.
    async fn still_unheld(&self, unheld: Vec<Unheld>) -> Result<Vec<Unheld>, Failure> {
        let session = self.context.session;
        let mut left = Vec::new();
        let running: Vec<Unheld> =
            unheld.into_iter().filter(|one| self.pods.is_active(&one.pod.uid)).collect();
        for some in running.chunks(limits::TXN_OPS) {
            let mut snapshot = Snapshot::default();
            let keys: Vec<_> = some.iter().map(|one| session.keys.ip(&one.network, one.address)).collect();
            session.read(&keys, &mut snapshot).await?;
            let holder = |key: &Vec<u8>| snapshot.record::<Reservation>(key).ok().flatten();
            let owners: Vec<_> =
                keys.iter().filter_map(holder).map(|of| session.keys.owner(&of.owner)).collect();
            session.read(&owners, &mut snapshot).await?;
            let lacks = |(one, key): &(&Unheld, &Vec<u8>)| match snapshot.record::<Reservation>(key) {
                Ok(None) => true,
                Ok(Some(reservation)) => {
                    let record = snapshot.record(&session.keys.owner(&reservation.owner));
                    is_of_another((&reservation.owner, record.ok().flatten()), &one.pod)
                }
                Err(_) => false,
            };
            left.extend(some.iter().zip(&keys).filter(lacks).map(|(one, _)| one.clone()));
        }
        Ok(left)
    }

    /// Asks for the pods of these addresses once more: a pod that still reports its address keeps its row.
    async fn look_again(&self, some: Vec<Unheld>) -> Result<Vec<Unheld>, RunError> {
        let mut looks = stream::iter(some).map(|one| self.look_at(one)).buffer_unordered(AT_ONCE);
        let mut seen = Vec::new();
        while let Some(looked) = looks.next().await {
            seen.extend(looked?);
        }
        seen.sort_by(|one, other| one.order().cmp(&other.order()));
        Ok(seen)
    }

    async fn look_at(&self, one: Unheld) -> Result<Option<Unheld>, RunError> {
        let found = self.context.api.pod(&one.pod.namespace, &one.pod.name).await?;
        let Some((pod, Phase::Active)) = found else { return Ok(None) };
        let nothing = HeldAddresses::default();
        let mut reported = Reported::new(self.definitions, &nothing);
        reported.see(&pod);
        let is_it = |now: &Unheld| {
            (&now.network, now.address, &now.pod.uid) == (&one.network, one.address, &one.pod.uid)
        };
        Ok(reported.unheld.iter().any(is_it).then_some(one))
    }

    /// Writes what has changed. Each transaction compares meta, so none of them is applied in a later epoch.
    async fn remember(
        &self,
        before: &Remembered,
        next: &BTreeMap<NetworkAddress, Option<Lacking>>,
        stored: Option<&Entry>,
    ) -> Result<(), Failure> {
        let Context { session, cluster, .. } = self.context;
        let key = |(network, address): &NetworkAddress| session.keys.lacking(cluster, network, *address);
        let over = before.ours.keys().filter(|at| !next.contains_key(*at));
        let mut ops: Vec<Op> = over.map(|at| Op::Delete(key(at))).collect();
        let is_new = |at: &NetworkAddress, known| before.ours.get(at) != Some(known);
        let news = next.iter().filter(|(at, known)| is_new(at, known));
        let news: Vec<_> = news.filter_map(|(at, known)| Some((at, known.as_ref()?))).collect();
        let lease = new_lease();
        if news.iter().any(|(_, lacking)| !lacking.certain) {
            session.kv.grant(lease, REMEMBERED, session.until).await?;
        }
        let put = |(at, lacking): (&NetworkAddress, &Lacking)| {
            Op::Put(key(at), lacking.encode(), (!lacking.certain).then_some(lease))
        };
        ops.extend(news.into_iter().map(put));
        for ops in ops.chunks(limits::TXN_OPS) {
            let compares = vec![meta::as_read(session.keys, stored)];
            session.txn(&Txn { step: "lacking", compares, then: ops.to_vec(), ..Txn::default() }).await?;
        }
        Ok(())
    }
}

/// True if the owner of an address is another pod than this one. In doubt it is not: a runtime may not have said for
/// which pod it called the plugin, and a record that is gone says nothing.
fn is_of_another((owner, record): (&Owner, Option<OwnerRecord>), pod: &Pod) -> bool {
    match owner.kind() {
        OwnerKind::Aside(..) => return true,
        OwnerKind::Subject(Subject { namespace, name }) => {
            return format!("{namespace}/{name}") != pod.full_name();
        }
        OwnerKind::Container(_) | OwnerKind::Unknown => {}
    }
    let Some(OwnerRecord { labels, .. }) = record else { return false };
    let holder = labels.pod;
    match &holder.uid {
        Some(uid) => *uid != *pod.uid && pod.static_uids.iter().all(|other| *uid != **other),
        None if holder.is_unknown() => false,
        None => format!("{}/{}", holder.namespace, holder.name) != pod.full_name(),
    }
}

impl Remembered {
    /// True if a person has begun a later epoch since it was certain that this pod reports it.
    fn is_accepted(&self, one: &Unheld, epoch: u64) -> bool {
        let known = self.ours.get(&one.at()).and_then(Option::as_ref);
        known.is_some_and(|known| known.certain && known.uid == one.pod.uid && known.epoch < epoch)
    }

    /// The addresses to remember from now on.
    fn next(
        &self,
        seen: &[Unheld],
        accepted: &[Unheld],
        epoch: u64,
    ) -> BTreeMap<NetworkAddress, Option<Lacking>> {
        let accepted: BTreeSet<_> = accepted.iter().map(Unheld::at).collect();
        let stays = |at, known: &Option<Lacking>| is_certain(known.as_ref(), epoch) || accepted.contains(at);
        let kept = self.ours.iter().filter(|(at, known)| stays(at, known));
        let mut next: BTreeMap<_, _> = kept.map(|(at, known)| (at.clone(), known.clone())).collect();
        for one in seen {
            // A certain address stays certain, whichever pod reports it now.
            next.entry(one.at()).or_insert_with(|| Some(self.sighting(one, epoch)));
        }
        next
    }

    fn sighting(&self, one: &Unheld, epoch: u64) -> Lacking {
        let mut sighting = Lacking::new(epoch, one.pod.full_name(), one.pod.uid.clone());
        let known = self.ours.get(&one.at()).and_then(Option::as_ref);
        sighting.certain = known == Some(&sighting);
        sighting
    }

    fn judged(
        &self,
        next: &BTreeMap<NetworkAddress, Option<Lacking>>,
        seen: &[Unheld],
        epoch: u64,
    ) -> LackingAddresses {
        let certain = || next.iter().filter(|(_, known)| is_certain(known.as_ref(), epoch));
        let networks = certain().map(|((network, _), _)| network).chain(&self.of_others);
        let networks = networks.chain(seen.iter().map(|one| &one.network)).cloned().collect();
        let told = certain().filter_map(|(at, known)| {
            let ((network, address), known) = (at.clone(), known.clone()?);
            let is_new = self.ours.get(at) != next.get(at);
            Some(LackingAddress { network, address, pod: known.pod, uid: known.uid, is_new })
        });
        LackingAddresses { certain: told.collect(), networks }
    }
}

/// True if it counts as certain in this epoch. A value that does not decode does.
fn is_certain(known: Option<&Lacking>, epoch: u64) -> bool {
    known.is_none_or(|known| known.certain && known.epoch >= epoch)
}

/// The first ones of each network, the same in each pass.
fn some_of_each_network(mut open: Vec<Unheld>) -> Vec<Unheld> {
    open.sort_by(|one, other| one.order().cmp(&other.order()));
    let mut counts: BTreeMap<NetworkName, usize> = BTreeMap::new();
    open.retain(|one| {
        let count = counts.entry(one.network.clone()).or_default();
        *count += 1;
        *count <= OF_A_NETWORK
    });
    open
}
