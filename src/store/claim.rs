//! Putting given addresses under a given owner: nothing is chosen, and whoever else holds one of them
//! keeps it, unless it was judged to be gone.
//!
//! For what is already in use and only not written down: after a restore, and when a cluster comes
//! from another plugin. Both keep ADD from handing anything out meanwhile, and a claim relies on that.

use std::collections::BTreeSet;

use tokio::time::Instant;

use super::keys::{Bytes, Keys, Scope};
use super::kv::{Failure, Kv, read_keys};
use super::plan::{self, BitChanges, Builder, Fence, Place, bad_name};
use super::queue::{PLACE_OPS, Queue, Taken, Turn, new_lease, settle, stands};
use super::snapshot::{BadRecord, Snapshot};
use super::txn::{Op, Txn};
use crate::limits;
use crate::pool::record::{
    Held, Labels, Meta, Owner, OwnerRecord, Pod, PodIndex, Record, Reservation, Tombstone, VERSION,
};
use crate::pool::{Addr, NetworkName};
use crate::random::random_pause;

/// What one owner is to hold.
#[derive(Debug, Clone)]
pub struct Claim {
    /// Who.
    pub owner: Owner,
    /// The addresses, in result order; those without a network are only recorded.
    pub held: Vec<Held>,
    /// The queue to stand in, and the one that the record names.
    pub scope: Scope,
    /// What is noted on the records. The pod tells which other owners count as this one.
    pub labels: Labels,
    /// For people, on each reservation.
    pub created_at: String,
    /// What keeps ADD from handing out anything.
    pub under: Under,
    /// Owners that were judged to be gone, as their records stood then: where one of them holds a
    /// claimed address, all of it is freed.
    pub gone: Vec<Gone>,
}

/// What keeps ADD from handing out anything while claims are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Under {
    /// The store may have gone back in time.
    Suspect,
    /// A migration.
    Hold,
}

/// An owner that was judged to be gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gone {
    /// Who.
    pub owner: Owner,
    /// The mod revision of the record that was judged.
    pub revision: i64,
}

/// What became of a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claimed {
    /// Everything that has a network was reserved before: for this owner, or for another owner of the same
    /// interface of the same pod. Nothing was written.
    Present,
    /// It is reserved now.
    Made(Made),
    /// Somebody else may be using one of the addresses. Nothing was written.
    Conflict(Box<Conflict>),
}

impl Claimed {
    fn conflict(held: &Held, why: Why) -> Self {
        Claimed::Conflict(Box::new(Conflict { held: held.clone(), why }))
    }
}

/// What a claim has written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Made {
    /// What was not reserved for this pod before.
    pub held: Vec<Held>,
    /// Who was freed for it.
    pub replaced: Vec<Owner>,
}

/// Why an address cannot be claimed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// The address.
    pub held: Held,
    /// Why.
    pub why: Why,
}

/// What stands in the way of a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Why {
    /// Another owner.
    Holder {
        /// Who.
        owner: Owner,
        /// Its record.
        record: OwnerRecord,
        /// The mod revision of its record, for [`Gone`].
        revision: i64,
    },
    /// A reservation whose owner has no record that lists it.
    NoRecord {
        /// Whom the reservation names.
        owner: Owner,
        /// The pod that it names.
        pod: Pod,
    },
    /// What does not decode is occupied.
    Undecodable(BadRecord),
    /// This very owner was deleted a moment ago.
    Deleted,
    /// More than etcd takes in one transaction.
    TooMany,
}

/// Why it is not known what became of a claim, or why none can be made at all.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClaimError {
    /// The store failed. Repeating the claim does no harm.
    #[error(transparent)]
    Store(#[from] Failure),
    /// Something that every claim relies on does not decode, or a name cannot stand in a key.
    #[error("stored state cannot be decoded: {0}")]
    Bad(#[from] BadRecord),
    /// Somebody let ADD hand out addresses again.
    #[error("the store was taken into service meanwhile")]
    InService,
    /// Written by newer programs.
    #[error("the store is for writers of version {0} or newer, and this one is of version {VERSION}")]
    Newer(u32),
}

/// Carries out a claim; may be repeated, and a repetition finds everything present.
///
/// # Errors
/// [`ClaimError`]
pub async fn claim<K: Kv>(kv: &K, keys: &Keys, claim: &Claim, until: Instant) -> Result<Claimed, ClaimError> {
    let reads = claim.first_reads(keys)?;
    Claiming { kv, keys, claim, reads, until }.run().await
}

/// What would become of a claim, read without a place and without a regard to [`Under`]; nothing is written.
///
/// # Errors
/// [`ClaimError`]
pub async fn foresee<K: Kv>(
    kv: &K,
    keys: &Keys,
    claim: &Claim,
    until: Instant,
) -> Result<Claimed, ClaimError> {
    let reads = claim.first_reads(keys)?;
    let mut snapshot = Snapshot::default();
    Ok(match (Claiming { kv, keys, claim, reads, until }).look(&mut snapshot).await? {
        Looked::End(claimed) => claimed,
        Looked::Make(making) => Claimed::Made(making.into()),
    })
}

struct Claiming<'a, K> {
    kv: &'a K,
    keys: &'a Keys,
    claim: &'a Claim,
    reads: Vec<Op>,
    until: Instant,
}

/// What a look without a place shows.
enum Looked {
    End(Claimed),
    Make(Box<Making>),
}

/// How a try from a place ended.
enum Try {
    Done(Claimed),
    /// From a new place, waiting or not.
    Again(Next),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    Waits,
    /// Evicted once: the place fences, and waiting again would only be longer.
    JumpsQueue,
}

impl<K: Kv> Claiming<'_, K> {
    async fn run(&self) -> Result<Claimed, ClaimError> {
        let mut snapshot = Snapshot::default();
        // Most claims find everything there: that takes one look, and no place.
        if let Looked::End(claimed) = self.look(&mut snapshot).await? {
            self.claim.judge_meta(self.keys, &snapshot)?;
            return Ok(claimed);
        }
        let mut next = Next::Waits;
        loop {
            match self.attempt(next, &mut snapshot).await? {
                Try::Done(claimed) => return Ok(claimed),
                Try::Again(_) if Instant::now() >= self.until => {
                    return Err(Failure::Unreachable("the time for this claim is over".to_owned()).into());
                }
                Try::Again(then) => next = then,
            }
            tokio::time::sleep(random_pause(limits::RACE_PAUSE)).await;
        }
    }

    async fn look(&self, snapshot: &mut Snapshot) -> Result<Looked, ClaimError> {
        loop {
            match self.claim.judge(self.keys, snapshot)? {
                Judged::Read(keys) => read_keys(self.kv, &keys, snapshot, self.until).await?,
                Judged::End(claimed) => return Ok(Looked::End(claimed)),
                Judged::Make(making) => return Ok(Looked::Make(making)),
            }
        }
    }

    /// One try: takes a place, waits for its turn, and commits. Every way out removes the place.
    async fn attempt(&self, next: Next, snapshot: &mut Snapshot) -> Result<Try, ClaimError> {
        let queue = Queue::new(self.kv, self.keys, &self.claim.scope);
        let lease = new_lease();
        self.kv.grant(lease, limits::LEASE_TTL, self.until).await?;
        let taken = queue.take(lease, &self.claim.owner, &self.reads, snapshot, self.until).await?;
        let tried = self.in_queue(&queue, &taken, next, snapshot).await;
        if !matches!(tried, Ok(Try::Done(Claimed::Made(_)))) {
            queue.leave(&taken.place).await;
        }
        tried
    }

    async fn in_queue(
        &self,
        queue: &Queue<'_, K>,
        taken: &Taken,
        next: Next,
        snapshot: &mut Snapshot,
    ) -> Result<Try, ClaimError> {
        let turn = match next {
            Next::JumpsQueue => Turn::Head,
            Next::Waits => queue.wait(taken, &self.reads, snapshot, self.until).await?,
        };
        match turn {
            Turn::Head => self.at_head(taken, snapshot).await,
            Turn::Evicted => Ok(Try::Again(Next::JumpsQueue)),
            Turn::OutOfTime => Ok(Try::Again(Next::Waits)),
        }
    }

    async fn at_head(&self, taken: &Taken, snapshot: &mut Snapshot) -> Result<Try, ClaimError> {
        let leave_at = Instant::now() + limits::HEAD_WORK;
        while Instant::now() < leave_at {
            let (txn, made) = match self.claim.plan(self.keys, snapshot, &taken.place)? {
                Step::Read(keys) => {
                    read_keys(self.kv, &keys, snapshot, self.until).await?;
                    continue;
                }
                Step::End(claimed) => return Ok(Try::Done(claimed)),
                Step::Commit { txn, made } => (txn, made),
            };
            match self.kv.txn(&txn, self.until).await {
                Ok(reply) if reply.succeeded => return Ok(Try::Done(Claimed::Made(made))),
                Ok(reply) => snapshot.absorb(&txn.otherwise, &reply),
                Err(failure) if failure.is_open() => {
                    return self.settle(&taken.place, &txn, made, failure).await;
                }
                Err(failure) => return Err(failure.into()),
            }
            if !stands(snapshot, &taken.place) {
                return Ok(Try::Again(Next::JumpsQueue));
            }
        }
        Ok(Try::Again(Next::Waits))
    }

    /// Nobody knows whether the commit was applied: find out, so that no late copy can be.
    async fn settle(&self, place: &Place, txn: &Txn, made: Made, why: Failure) -> Result<Try, ClaimError> {
        let own = self.keys.own(&self.claim.owner).map_err(bad_name)?;
        let found = settle(self.kv, &Fence::Place(place.clone()), &own, self.until).await?;
        let wrote = |op: &Op| matches!((op, &found), (Op::Put(key, value, _), Some(entry)) if *key == own && *value == entry.value);
        if txn.then.iter().any(wrote) {
            return Ok(Try::Done(Claimed::Made(made)));
        }
        if matches!(why, Failure::NoSpace(_)) {
            return Err(why.into());
        }
        Ok(Try::Again(Next::Waits))
    }
}

/// What is to be done about a claim.
#[derive(Debug)]
enum Judged {
    /// Read these keys, then judge again.
    Read(Vec<Bytes>),
    /// Nothing.
    End(Claimed),
    /// These are to be reserved.
    Make(Box<Making>),
}

#[derive(Debug, Default)]
struct Making {
    mine: Option<OwnerRecord>,
    made: Vec<Held>,
    /// Who goes, and what it holds.
    replaced: Vec<(Owner, OwnerRecord)>,
}

impl From<Box<Making>> for Made {
    fn from(making: Box<Making>) -> Self {
        let replaced = making.replaced.into_iter().map(|(owner, _)| owner).collect();
        Made { held: making.made, replaced }
    }
}

/// What is done next.
#[derive(Debug)]
enum Step {
    Read(Vec<Bytes>),
    End(Claimed),
    Commit { txn: Txn, made: Made },
}

/// Whom one address belongs to.
enum Standing {
    Free,
    /// This owner, or another one of the same interface of the same pod.
    Ours,
    Of(Gone, OwnerRecord),
    InTheWay(Why),
}

/// What keeps a judgement from going on.
enum Halt {
    Read(Bytes),
    Bad(BadRecord),
}

impl From<BadRecord> for Halt {
    fn from(bad: BadRecord) -> Self {
        Halt::Bad(bad)
    }
}

impl Claim {
    /// Everything that the first look needs, as far as it fits beside a place's own operations.
    fn first_reads(&self, keys: &Keys) -> Result<Vec<Op>, BadRecord> {
        let mut reads: Vec<Op> = self.base_keys(keys)?.into_iter().map(Op::Get).collect();
        reads.truncate(limits::TXN_OPS - PLACE_OPS);
        Ok(reads)
    }

    fn base_keys(&self, keys: &Keys) -> Result<Vec<Bytes>, BadRecord> {
        let own = keys.own(&self.owner).map_err(bad_name)?;
        let mut base = vec![keys.meta(), own, keys.dead(&self.owner).map_err(bad_name)?];
        let mut of_addresses = BTreeSet::new();
        for (network, address) in self.reserved() {
            of_addresses.insert(keys.ip(network, address));
            of_addresses.insert(keys.page(network, address.page()));
            if let Some(index) = self.index_key(keys, network)? {
                of_addresses.insert(index);
            }
        }
        base.extend(of_addresses);
        Ok(base)
    }

    fn reserved(&self) -> impl Iterator<Item = (&NetworkName, Addr)> {
        self.held.iter().filter_map(|held| Some((held.network.as_ref()?, Addr::from(held.address))))
    }

    fn index_key(&self, keys: &Keys, network: &NetworkName) -> Result<Option<Bytes>, BadRecord> {
        match self.labels.pod.uid.as_str() {
            "" => Ok(None),
            uid => {
                keys.pod(&self.owner.cluster, uid, &self.owner.ifname, network).map(Some).map_err(bad_name)
            }
        }
    }

    /// Whom the claimed addresses belong to, and what follows from that.
    fn judge(&self, keys: &Keys, snapshot: &Snapshot) -> Result<Judged, ClaimError> {
        let missing: Vec<Bytes> =
            self.base_keys(keys)?.into_iter().filter(|key| !snapshot.knows(key)).collect();
        if !missing.is_empty() {
            return Ok(Judged::Read(missing));
        }
        let own = keys.own(&self.owner).map_err(bad_name)?;
        let mut making = Making { mine: snapshot.record(&own)?, ..Making::default() };
        let mut unread = Vec::new();
        let mut seen = BTreeSet::new();
        for held in &self.held {
            let Some(network) = &held.network else { continue };
            let address = Addr::from(held.address);
            if !seen.insert((network, address)) {
                continue;
            }
            let in_the_way = |why| Ok(Judged::End(Claimed::conflict(held, why)));
            match self.standing(keys, snapshot, making.mine.as_ref(), held, &keys.ip(network, address)) {
                Ok(Standing::Ours) => {}
                Ok(Standing::Free) => making.made.push(held.clone()),
                Ok(Standing::Of(gone, record)) => {
                    making.made.push(held.clone());
                    if making.replaced.iter().all(|(owner, _)| *owner != gone.owner) {
                        making.replaced.push((gone.owner, record));
                    }
                }
                Ok(Standing::InTheWay(why)) => return in_the_way(why),
                Err(Halt::Read(key)) => unread.push(key),
                Err(Halt::Bad(bad)) => return in_the_way(Why::Undecodable(bad)),
            }
            let page = keys.page(network, address.page());
            if plan::bits(snapshot, &page).is_none() {
                return in_the_way(Why::Undecodable(bad_page(&page)));
            }
        }
        if !unread.is_empty() {
            return Ok(Judged::Read(unread));
        }
        let Some(first) = making.made.first() else { return Ok(Judged::End(Claimed::Present)) };
        let dead = keys.dead(&self.owner).map_err(bad_name)?;
        if snapshot.record::<Tombstone>(&dead)?.is_some() {
            return Ok(Judged::End(Claimed::conflict(first, Why::Deleted)));
        }
        Ok(Judged::Make(Box::new(making)))
    }

    fn judge_meta(&self, keys: &Keys, snapshot: &Snapshot) -> Result<(), ClaimError> {
        let meta = snapshot.record::<Meta>(&keys.meta())?.ok_or(ClaimError::InService)?;
        if meta.min_writer > VERSION {
            return Err(ClaimError::Newer(meta.min_writer));
        }
        let is_under = match self.under {
            Under::Suspect => meta.suspect.is_some(),
            // What a suspect store holds is not to be relied on, whatever else is under way.
            Under::Hold => meta.hold.is_some() && meta.suspect.is_none(),
        };
        if is_under { Ok(()) } else { Err(ClaimError::InService) }
    }

    fn standing(
        &self,
        keys: &Keys,
        snapshot: &Snapshot,
        mine: Option<&OwnerRecord>,
        held: &Held,
        key: &[u8],
    ) -> Result<Standing, Halt> {
        let Some(reservation) = snapshot.record::<Reservation>(key)? else { return Ok(Standing::Free) };
        let (owner, pod) = (reservation.owner, reservation.labels.pod);
        if owner == self.owner && mine.is_some_and(|record| record.addresses.contains(held)) {
            return Ok(Standing::Ours);
        }
        let own = keys.own(&owner).map_err(bad_name)?;
        if !snapshot.knows(&own) {
            return Err(Halt::Read(own));
        }
        let record = snapshot.record::<OwnerRecord>(&own)?;
        let Some(record) = record.filter(|record| record.addresses.contains(held)) else {
            return Ok(Standing::InTheWay(Why::NoRecord { owner, pod }));
        };
        let is_same = is_same_pod((&owner, &record.labels.pod), (&self.owner, &self.labels.pod));
        if owner.ifname == self.owner.ifname && is_same {
            return Ok(Standing::Ours);
        }
        let gone = Gone { owner, revision: snapshot.mod_revision(&own) };
        if self.gone.contains(&gone) {
            return Ok(Standing::Of(gone, record));
        }
        let Gone { owner, revision } = gone;
        Ok(Standing::InTheWay(Why::Holder { owner, record, revision }))
    }

    /// The transaction that makes the claim from `place`, or what else is to be done.
    fn plan(&self, keys: &Keys, snapshot: &Snapshot, place: &Place) -> Result<Step, ClaimError> {
        let judged = self.judge(keys, snapshot)?;
        if let Judged::Read(keys) = judged {
            return Ok(Step::Read(keys));
        }
        self.judge_meta(keys, snapshot)?;
        let making = match judged {
            Judged::Read(keys) => return Ok(Step::Read(keys)),
            Judged::End(claimed) => return Ok(Step::End(claimed)),
            Judged::Make(making) => making,
        };
        let mut builder = Builder::new("claim", snapshot);
        builder.leave(place);
        builder.unchanged(keys.meta());
        builder.unchanged(keys.dead(&self.owner).map_err(bad_name)?);
        let mut changes = BitChanges::default();
        for (owner, record) in &making.replaced {
            self.free(keys, owner, record, &mut builder, &mut changes)?;
        }
        self.reserve(keys, snapshot, &making.made, &mut builder, &mut changes);
        self.put_owner(keys, &making, &mut builder)?;
        let unread = self.put_index(keys, snapshot, &making.made, &mut builder)?;
        changes.plan(keys, &mut builder);
        let txn = match builder.finish() {
            Ok(txn) if unread.is_empty() => txn,
            Ok(_) => return Ok(Step::Read(unread)),
            Err(missing) => return Ok(Step::Read(missing.into_iter().chain(unread).collect())),
        };
        if !txn.fits() {
            return Ok(Step::End(Claimed::conflict(&making.made[0], Why::TooMany)));
        }
        Ok(Step::Commit { txn, made: making.into() })
    }

    /// Frees all that an owner holds, except for what changes hands.
    fn free(
        &self,
        keys: &Keys,
        owner: &Owner,
        record: &OwnerRecord,
        builder: &mut Builder<'_>,
        changes: &mut BitChanges,
    ) -> Result<(), BadRecord> {
        let own = keys.own(owner).map_err(bad_name)?;
        builder.unchanged(own.clone());
        builder.delete(own);
        let mut rest = record.clone();
        rest.addresses.retain(|held| !self.held.contains(held));
        plan::free_reservations(keys, owner, &rest, builder, changes);
        plan::free_index(keys, owner, record, builder)
    }

    /// What nobody holds must still be nobody's, and what somebody holds must still be that one's.
    fn reserve(
        &self,
        keys: &Keys,
        snapshot: &Snapshot,
        made: &[Held],
        builder: &mut Builder<'_>,
        changes: &mut BitChanges,
    ) {
        let reservation =
            Reservation::new(self.owner.clone(), self.labels.clone(), self.created_at.clone()).encode();
        for held in made {
            let Some(network) = &held.network else { continue };
            let address = Addr::from(held.address);
            let key = keys.ip(network, address);
            match snapshot.entry(&key) {
                None => builder.absent(key.clone()),
                Some(_) => builder.unchanged(key.clone()),
            }
            builder.put(key, reservation.clone());
            changes.set(network, address);
        }
    }

    /// What the owner holds already stays first.
    fn put_owner(&self, keys: &Keys, making: &Making, builder: &mut Builder<'_>) -> Result<(), BadRecord> {
        let own = keys.own(&self.owner).map_err(bad_name)?;
        builder.unchanged(own.clone());
        let record = match &making.mine {
            Some(mine) => {
                let mut mine = mine.clone();
                let new = making.made.iter().filter(|held| !mine.addresses.contains(held)).cloned();
                let new: Vec<Held> = new.collect();
                mine.addresses.extend(new);
                mine
            }
            None => {
                let is_mine = |held: &&Held| held.network.is_none() || making.made.contains(held);
                let held = self.held.iter().filter(is_mine).cloned().collect();
                let scope = self.scope.as_str().to_owned();
                OwnerRecord::new(held, None, scope, self.labels.clone())
            }
        };
        builder.put(own, record.encode());
        Ok(())
    }

    /// An entry that names an owner of this pod who is there stays: it is the younger one, because
    /// nothing is older than a claim. Returns what must be read to know.
    fn put_index(
        &self,
        keys: &Keys,
        snapshot: &Snapshot,
        made: &[Held],
        builder: &mut Builder<'_>,
    ) -> Result<Vec<Bytes>, BadRecord> {
        let networks: BTreeSet<&NetworkName> = made.iter().filter_map(|held| held.network.as_ref()).collect();
        let mut unread = Vec::new();
        for network in networks {
            let Some(key) = self.index_key(keys, network)? else { continue };
            builder.unchanged(key.clone());
            let named = snapshot.record::<PodIndex>(&key)?.map(|index| index.owner);
            if let Some(owner) = named.filter(|owner| *owner != self.owner) {
                let own = keys.own(&owner).map_err(bad_name)?;
                if !snapshot.knows(&own) {
                    unread.push(own);
                    continue;
                }
                let record = snapshot.record::<OwnerRecord>(&own)?;
                if record.is_some_and(|record| record.labels.pod.uid == self.labels.pod.uid) {
                    continue;
                }
            }
            builder.put(key, PodIndex::new(self.owner.clone()).encode());
        }
        Ok(unread)
    }
}

/// By UID; by name only where one of the two has none. Records that name no cluster may be of any.
fn is_same_pod((one, a): (&Owner, &Pod), (other, b): (&Owner, &Pod)) -> bool {
    let is_same_cluster = one.cluster == other.cluster;
    if a.uid.is_empty() || b.uid.is_empty() {
        let is_named = !a.name.is_empty() && is_same_cluster;
        return is_named && (&a.namespace, &a.name) == (&b.namespace, &b.name);
    }
    a.uid == b.uid && (is_same_cluster || one.cluster.is_empty() || other.cluster.is_empty())
}

fn bad_page(key: &[u8]) -> BadRecord {
    let reason = "not a bitmap of 512 bytes".to_owned();
    let why = crate::pool::record::Undecodable::Malformed { kind: "page", reason };
    BadRecord { key: String::from_utf8_lossy(key).into_owned(), why }
}

#[cfg(test)]
mod tests;
