//! Reserves given addresses for a given owner. Nothing is chosen. Another owner that holds one of the addresses keeps
//! it, unless it was judged to be gone.
//!
//! This is for addresses that are in use but not reserved: after a restore, and when a cluster comes from another
//! plugin. In both cases ADD hands out nothing meanwhile, and an assignment relies on that.
//!
//! Addresses that outlive their pod are reserved for the hold of its name, and the owner gets its seat (`seating`).
//!
//! Some owners hold each other's addresses. Assignments for them are made together, in one transaction (`assign_all`):
//! each owner gives up what it held, and at no moment is one of them without what it uses.

mod seating;

use std::collections::{BTreeMap, BTreeSet};

use metes_core::builder::{self, BitChanges, Builder};
use metes_core::fence::Fence;
use metes_core::keys::{Bytes, Keys, Scope};
use metes_core::line::Line;
use metes_core::meta;
use metes_core::plan::ask::Sticky;
use metes_core::plan::change::{Change, Commit, Step};
use metes_core::plan::free;
use metes_core::plan::given;
use metes_core::pool::{
    Addr, Held, Labels, Meta, NetworkName, Owner, OwnerRecord, Pod, PodIndex, Record, Reservation, Tombstone,
    VERSION,
};
use metes_core::snapshot::{BadRecord, Snapshot};
use metes_core::txn::{Entry, Op};
use metes_engine::drive::{Driver, OutOfTime, Stopped};
use metes_engine::kv::{Failure, Kv};
use metes_engine::policy::Policy;
use metes_engine::session::Session;

use seating::{SeatJudged, Seating, holder, is_gone};

/// The addresses that one owner is to hold.
#[derive(Debug, Clone)]
pub struct Assignment {
    /// The owner.
    pub owner: Owner,
    /// The addresses, in result order; those without a network are only recorded.
    pub held: Vec<Held>,
    /// The scope whose queue the assignment waits in, and that the record names.
    pub scope: Scope,
    /// The labels of the records. The pod decides which other owners count as this one.
    pub labels: Labels,
    /// The hold that the addresses stay with; none: they end with the owner. A pod that already has one of them itself
    /// goes on like that.
    pub sticky: Option<Sticky>,
    /// For people, on each reservation.
    pub created_at: String,
    /// The state of the store in which ADD hands out nothing.
    pub under: Under,
    /// Owners that were judged to be gone, with the revisions of the records that were judged. If one of them holds a
    /// assigned address, everything that it holds is freed. This includes an older owner of the assignment's own pod.
    pub gone: Vec<Gone>,
}

/// A state of the store in which ADD hands out nothing while assignments are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Under {
    /// The store may have gone back in time.
    Suspect,
    /// A migration.
    Pause,
}

/// An owner that was judged to be gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gone {
    /// The owner.
    pub owner: Owner,
    /// The mod revision of the record that was judged.
    pub revision: i64,
}

/// The result of an assignment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Assigned {
    /// Every address that has a network was already reserved: for this owner, or for another owner of the same
    /// interface of the same pod. Nothing was written.
    Present,
    /// It is reserved now.
    Made(Made),
    /// Somebody else may be using one of the addresses. Nothing was written.
    Conflict(Box<Conflict>),
}

/// The result of several assignments that were made together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Together {
    /// Every address that has a network was already reserved. Nothing was written.
    Present,
    /// All of it is reserved now: what each assignment has written, in the order of the assignments.
    Made(Vec<Made>),
    /// Somebody else may be using an address of the assignment with this index. Nothing was written.
    Conflict(usize, Box<Conflict>),
}

impl Together {
    fn conflict(assignment: usize, held: &Held, why: Why) -> Self {
        Together::Conflict(assignment, Box::new(Conflict { held: held.clone(), why }))
    }

    /// The result of the only assignment.
    fn alone(self) -> Assigned {
        match self {
            Together::Present => Assigned::Present,
            Together::Made(made) => Assigned::Made(made.into_iter().next().unwrap_or_default()),
            Together::Conflict(_, conflict) => Assigned::Conflict(conflict),
        }
    }
}

/// The changes that an assignment has written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Made {
    /// The addresses that were not reserved for this pod before.
    pub(crate) held: Vec<Held>,
    /// The owners that were freed for it.
    pub(crate) replaced: Vec<Owner>,
}

/// An address that cannot be assigned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    pub(crate) held: Held,
    pub(crate) why: Why,
}

/// An obstacle to an assignment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Why {
    /// Another owner.
    Holder {
        owner: Owner,
        record: Box<OwnerRecord>,
        /// The mod revision of its record, for [`Gone`].
        revision: i64,
    },
    /// A reservation or a seat whose owner has no record that lists it.
    NoRecord {
        /// The owner that the reservation or the seat names.
        owner: Owner,
    },
    /// The assignment's own record uses this hold, which does not have the address.
    UsesHold(Owner),
    /// A key that does not decode counts as occupied.
    Undecodable(BadRecord),
    /// This very owner was deleted a moment ago.
    Deleted,
    /// More than etcd accepts in one transaction.
    TooMany,
}

/// An assignment whose result is not known, or that cannot be made at all.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AssignError {
    /// The store failed. Repeating the assignment does no harm.
    #[error(transparent)]
    Store(#[from] Failure),
    /// A key that every assignment relies on does not decode, or a name cannot be part of a key.
    #[error("stored state cannot be decoded: {0}")]
    Bad(#[from] BadRecord),
    /// Somebody let ADD hand out addresses again.
    #[error("the store was taken into service meanwhile")]
    InService,
    /// The store was written by newer programs.
    #[error("the store is for writers of version {0} or newer, and this one is of version {VERSION}")]
    Newer(u32),
    /// There was no time left. Repeating the assignment does no harm.
    #[error(transparent)]
    OutOfTime(#[from] OutOfTime),
}

/// Carries out an assignment. It may be repeated: the repetition finds everything present.
///
/// # Errors
/// [`AssignError`]
pub async fn assign<K: Kv>(
    session: Session<'_, K>,
    assignment: &Assignment,
) -> Result<Assigned, AssignError> {
    Ok(assign_all(session, std::slice::from_ref(assignment)).await?.alone())
}

/// Foresees the result of an assignment. It reads without a ticket and without regard to [`Under`], and writes nothing.
pub(crate) async fn foresee<K: Kv>(
    session: Session<'_, K>,
    assignment: &Assignment,
) -> Result<Assigned, AssignError> {
    Ok(foresee_all(session, std::slice::from_ref(assignment)).await?.alone())
}

/// Carries out assignments of different owners in one transaction, with a ticket in the queue of the first one. An
/// owner that is gone for one of the assignments is gone for all.
///
/// # Errors
/// [`AssignError`]
///
/// # Panics
/// If there is no assignment.
pub(crate) async fn assign_all<K: Kv>(
    session: Session<'_, K>,
    assignments: &[Assignment],
) -> Result<Together, AssignError> {
    let mut assignments = Assignments::new(session.keys, assignments);
    let mut seen = Snapshot::default();
    // Most assignments find everything present. To find that out takes one look and no ticket.
    if let Err(ended) = look(session, &assignments, &mut seen).await? {
        assignments.judge_meta(&seen)?;
        return Ok(ended);
    }
    Ok(Driver::new(session, Policy::assign(session.until)).run(&mut assignments).await?)
}

/// Like [`foresee`], for [`assign_all`].
///
/// # Errors
/// [`AssignError`]
///
/// # Panics
/// If there is no assignment.
pub(crate) async fn foresee_all<K: Kv>(
    session: Session<'_, K>,
    assignments: &[Assignment],
) -> Result<Together, AssignError> {
    let assignments = Assignments::new(session.keys, assignments);
    Ok(match look(session, &assignments, &mut Snapshot::default()).await? {
        Ok(making) => Together::Made(making.into_iter().map(Made::from).collect()),
        Err(ended) => ended,
    })
}

/// The changes to be made, or the result if no change must be made.
async fn look<K: Kv>(
    session: Session<'_, K>,
    assignments: &Assignments<'_>,
    seen: &mut Snapshot,
) -> Result<Result<Vec<Making>, Together>, AssignError> {
    loop {
        match assignments.judge(seen)? {
            Judged::Read(keys) => session.read(&keys, seen).await?,
            Judged::End(ended) => return Ok(Err(ended)),
            Judged::Make(making) => return Ok(Ok(making)),
        }
    }
}

impl From<Stopped<Together, AssignError>> for AssignError {
    fn from(stopped: Stopped<Together, AssignError>) -> Self {
        match stopped {
            Stopped::Refused(why) => why,
            Stopped::Failed(failure) | Stopped::Unsettled(_, failure) => AssignError::Store(failure),
            Stopped::OutOfTime => OutOfTime.into(),
            Stopped::Suspect(_) => unreachable!("without a witness nobody doubts the store"),
        }
    }
}

/// The next step for the assignments.
#[derive(Debug)]
enum Judged {
    /// Read these keys, then judge again.
    Read(Vec<Bytes>),
    /// Nothing is left to do.
    End(Together),
    /// These must be reserved: one entry for each assignment, in their order.
    Make(Vec<Making>),
}

#[derive(Debug, Default)]
struct Making {
    mine: Option<OwnerRecord>,
    made: Vec<Held>,
    /// The hold that the addresses are for, and the owner's seat; none: the owner has them itself.
    seating: Option<Seating>,
    /// The owners that are freed, and what each holds.
    replaced: Vec<(Owner, OwnerRecord)>,
}

impl Making {
    /// These owners are freed for it.
    fn replace(&mut self, owners: Vec<(Owner, OwnerRecord)>) {
        for (owner, record) in owners {
            if !self.replaces(&owner) {
                self.replaced.push((owner, record));
            }
        }
    }

    fn replaces(&self, owner: &Owner) -> bool {
        self.replaced.iter().any(|(replaced, _)| replaced == owner)
    }
}

impl From<Making> for Made {
    fn from(making: Making) -> Self {
        let replaced = making.replaced.into_iter().map(|(owner, _)| owner).collect();
        Made { held: making.made, replaced }
    }
}

/// The owner of one address, as an assignment sees it.
enum Standing {
    Free,
    /// This owner, or another one of the same interface of the same pod.
    Ours,
    /// Owners that are gone.
    Of(Vec<(Owner, OwnerRecord)>),
    InTheWay(Why),
}

/// Why a judgement cannot go on.
enum Halt {
    Read(Vec<Bytes>),
    Bad(BadRecord),
}

impl From<BadRecord> for Halt {
    fn from(bad: BadRecord) -> Self {
        Halt::Bad(bad)
    }
}

impl Assignment {
    fn base_keys(&self, keys: &Keys) -> Vec<Bytes> {
        let own = keys.owner(&self.owner);
        let mut base = vec![own, keys.tombstone(&self.owner)];
        let mut of_addresses = BTreeSet::new();
        for (network, address) in self.reserved() {
            of_addresses.extend(given::reads(keys, network, address));
            of_addresses.extend(self.index_key(keys, network));
        }
        base.extend(of_addresses);
        base.extend(self.sticky.iter().flat_map(|sticky| seating::keys_of(keys, &sticky.hold)));
        base
    }

    fn reserved(&self) -> impl Iterator<Item = (&NetworkName, Addr)> {
        self.held.iter().filter_map(Held::in_network)
    }

    fn first(&self) -> &Held {
        self.held.first().expect("an assignment has addresses")
    }

    fn index_key(&self, keys: &Keys, network: &NetworkName) -> Option<Bytes> {
        let uid = self.labels.pod.uid.as_ref()?;
        Some(keys.pod(self.owner.cluster.as_ref(), uid, &self.owner.ifname, network))
    }

    /// Finds the owner of each of this assignment's addresses. Keys that must be read first go to `unread`. The error
    /// is the address that cannot be had, with the reason.
    fn judge(
        &self,
        keys: &Keys,
        snapshot: &Snapshot,
        gone: &[&Gone],
        unread: &mut Vec<Bytes>,
    ) -> Result<Result<Making, (Held, Why)>, AssignError> {
        let own = keys.owner(&self.owner);
        let mut making = Making { mine: snapshot.record(&own)?, ..Making::default() };
        if is_gone(keys, snapshot, gone, &self.owner)
            && let Some(before) = making.mine.take()
        {
            making.replaced.push((self.owner.clone(), before));
        }
        match self.judge_seat(keys, snapshot, gone, making.mine.as_ref()) {
            Ok(SeatJudged::Itself) => {}
            Ok(SeatJudged::Already) => return Ok(Ok(making)),
            Ok(SeatJudged::Seat(seating, replaced)) => {
                making.replace(replaced);
                if seating.stands {
                    making.made.extend(self.held.iter().filter(|held| held.network.is_some()).cloned());
                }
                making.seating = Some(*seating);
            }
            Ok(SeatJudged::InTheWay(why)) => return Ok(Err((self.first().clone(), why))),
            Err(Halt::Read(more)) => {
                unread.extend(more);
                return Ok(Ok(making));
            }
            Err(Halt::Bad(bad)) => return Ok(Err((self.first().clone(), Why::Undecodable(bad)))),
        }
        let mut seen = BTreeSet::new();
        let unreserved = if making.joins() { &[] } else { &self.held[..] };
        for held in unreserved {
            let Some(network) = &held.network else { continue };
            let address = Addr::from(held.address);
            if !seen.insert((network, address)) {
                continue;
            }
            match self.standing(keys, snapshot, gone, &making, held) {
                Ok(Standing::Ours) => {}
                Ok(Standing::Free) => making.made.push(held.clone()),
                Ok(Standing::Of(owners)) => {
                    making.made.push(held.clone());
                    making.replace(owners);
                }
                Ok(Standing::InTheWay(why)) => return Ok(Err((held.clone(), why))),
                Err(Halt::Read(more)) => unread.extend(more),
                Err(Halt::Bad(bad)) => return Ok(Err((held.clone(), Why::Undecodable(bad)))),
            }
            let page = keys.page(network, address.page());
            if builder::bits(snapshot, &page).is_none() {
                return Ok(Err((held.clone(), Why::Undecodable(BadRecord::page(&page)))));
            }
        }
        // The record of a user reserves nothing, so it can get no address of its own.
        let seat =
            making.mine.as_ref().filter(|_| making.seating.is_none()).and_then(|mine| mine.seat.as_ref());
        if let (Some(seat), Some(first)) = (seat, making.made.first()) {
            return Ok(Err((first.clone(), Why::UsesHold(seat.hold.clone()))));
        }
        let dead = keys.tombstone(&self.owner);
        let held = self.held.iter().find(|held| making.made.contains(held));
        if let Some(first) = held.filter(|_| unread.is_empty())
            && snapshot.record::<Tombstone>(&dead)?.is_some()
        {
            return Ok(Err((first.clone(), Why::Deleted)));
        }
        Ok(Ok(making))
    }

    /// True if both have the same entries in the pod index.
    fn shares_index(&self, owner: &Owner, record: &OwnerRecord) -> bool {
        (&owner.cluster, &owner.ifname, &record.labels.pod.uid)
            == (&self.owner.cluster, &self.owner.ifname, &self.labels.pod.uid)
    }

    /// The networks for which this assignment writes the index entry of its pod's interface. They are the networks of
    /// what it makes, and those in which it stays while another owner of the same interface of the pod is freed.
    fn indexed<'b>(&'b self, making: &'b Making, freed: &'b Freed) -> BTreeSet<&'b NetworkName> {
        let mut networks: BTreeSet<&NetworkName> = making.made.iter().filter_map(network_of).collect();
        if let Some(mine) = &making.mine {
            let ours = freed.iter().filter(|(owner, record)| self.shares_index(owner, record));
            let left = ours.flat_map(|(_, record)| free::networks(record));
            let stays = free::networks(mine);
            networks.extend(left.filter(|network| stays.contains(network)));
        }
        networks
    }

    fn standing(
        &self,
        keys: &Keys,
        snapshot: &Snapshot,
        gone: &[&Gone],
        making: &Making,
        held: &Held,
    ) -> Result<Standing, Halt> {
        let Some(network) = &held.network else { return Ok(Standing::Ours) };
        let key = &keys.ip(network, Addr::from(held.address));
        let Some(Reservation { owner, .. }) = snapshot.record(key)? else { return Ok(Standing::Free) };
        let is_mine = |record: &OwnerRecord| held.is_among(&record.addresses);
        if owner == self.owner && making.mine.as_ref().is_some_and(is_mine) {
            return Ok(Standing::Ours);
        }
        // This may be the assignment's own record, if that record is given up.
        let own = keys.owner(&owner);
        if !snapshot.knows(&own) {
            return Err(Halt::Read(vec![own]));
        }
        let record = snapshot.record::<OwnerRecord>(&own)?;
        let Some(record) = record.filter(|record| held.is_among(&record.addresses)) else {
            // They were read one after the other, and it was freed in between.
            if snapshot.read_at(&own) != snapshot.read_at(key) {
                return Err(Halt::Read(vec![own, key.clone()]));
            }
            return Ok(Standing::InTheWay(Why::NoRecord { owner }));
        };
        if owner.is_for_subject() {
            return self.standing_of_hold(keys, snapshot, gone, making, (owner, record));
        }
        Ok(if is_gone(keys, snapshot, gone, &owner) {
            Standing::Of(vec![(owner, record)])
        } else if self.is_of_same_interface(&owner, &record) {
            Standing::Ours
        } else {
            Standing::InTheWay(holder(keys, snapshot, owner, Box::new(record)))
        })
    }

    fn is_read(&self, keys: &Keys, snapshot: &Snapshot) -> bool {
        self.reserved().all(|(network, address)| given::is_read(keys, snapshot, network, address))
    }

    /// Reserves the addresses; for the hold that they stay with, if there is one.
    fn reserve(&self, keys: &Keys, making: &Making, builder: &mut Builder<'_>, changes: &mut BitChanges) {
        let created_at = self.created_at.clone();
        let reservation = match &making.seating {
            Some(seating) => Reservation::of_record(&seating.seat.hold, &seating.record, created_at),
            None => Reservation::new(self.owner.clone(), created_at),
        };
        let reservation = reservation.encode();
        for held in making.made.iter().filter(|_| !making.joins()) {
            let Some(network) = &held.network else { continue };
            let place = (network, Addr::from(held.address));
            given::reserve(keys, place, reservation.clone(), builder, changes);
        }
    }

    /// The addresses that the owner already holds stay first.
    fn put_owner(&self, keys: &Keys, making: &Making, builder: &mut Builder<'_>) {
        let own = keys.owner(&self.owner);
        builder.unchanged(own.clone());
        let record = match &making.mine {
            Some(mine) => {
                let mut mine = mine.clone();
                let new = making.made.iter().filter(|held| !held.is_among(&mine.addresses)).cloned();
                let new: Vec<Held> = new.collect();
                mine.addresses.extend(new);
                mine
            }
            None => {
                let is_mine = |held: &&Held| held.network.is_none() || held.is_among(&making.made);
                let held = self.held.iter().filter(is_mine).cloned().collect();
                let scope = self.scope.as_str().to_owned();
                let seat = making.seating.as_ref().map(|seating| seating.seat.clone());
                OwnerRecord::new(held, None, scope, self.labels.clone()).in_seat(seat)
            }
        };
        builder.put(own, record.encode());
    }

    /// If an entry names another existing owner of this pod, it stays: that owner is younger, because nothing is older
    /// than an assignment. Returns the keys that must be read to know this.
    fn put_index(
        &self,
        keys: &Keys,
        snapshot: &Snapshot,
        making: &Making,
        freed: &Freed,
        builder: &mut Builder<'_>,
    ) -> Result<Vec<Bytes>, BadRecord> {
        let mut unread = Vec::new();
        for network in self.indexed(making, freed) {
            let Some(key) = self.index_key(keys, network) else { continue };
            builder.unchanged(key.clone());
            let Owner { cluster, ifname, .. } = &self.owner;
            let index = snapshot.record::<PodIndex>(&key)?;
            let named = index.map(|index| index.owner(cluster.as_ref(), ifname));
            if let Some(owner) = named.filter(|owner| *owner != self.owner && !freed.contains_key(owner)) {
                let own = keys.owner(&owner);
                if !snapshot.knows(&own) {
                    unread.push(own);
                    continue;
                }
                let record = snapshot.record::<OwnerRecord>(&own)?;
                if record.is_some_and(|record| record.labels.pod.uid == self.labels.pod.uid) {
                    continue;
                }
            }
            builder.put(key, PodIndex::new(&self.owner).encode());
        }
        Ok(unread)
    }
}

/// Assignments that are made together.
struct Assignments<'a> {
    keys: &'a Keys,
    all: &'a [Assignment],
}

/// The owners that are freed, with what they hold.
type Freed = BTreeMap<Owner, OwnerRecord>;

impl Change for Assignments<'_> {
    type Done = Together;
    type Refused = AssignError;

    fn owner(&self) -> &Owner {
        &self.first().owner
    }

    fn scope(&self, _seen: &Snapshot) -> Option<Scope> {
        Some(self.first().scope.clone())
    }

    fn proof(&self) -> Bytes {
        self.keys.owner(&self.first().owner)
    }

    /// The ticket is its fence. ADD hands out nothing meanwhile, so there is nobody to wait for.
    fn is_unhindered(&self, _seen: &Snapshot) -> bool {
        true
    }

    fn reads(&self, _seen: &Snapshot) -> Vec<Bytes> {
        self.base_keys()
    }

    fn plan(&self, seen: &Snapshot, fence: &Fence, _line: &Line) -> Result<Step<Together>, AssignError> {
        match self.judge(seen)? {
            Judged::Read(keys) => Ok(Step::read(keys)),
            Judged::End(ended) => self.judge_meta(seen).map(|()| Step::Done(ended)),
            Judged::Make(all) => self.judge_meta(seen).and_then(|()| self.make(seen, fence, all)),
        }
    }

    /// The transaction writes the record of each owner that it makes anything for, so one of these records is proof
    /// enough.
    fn applied(&self, commit: Commit<Together>, found: Option<&Entry>) -> Option<Together> {
        let wrote = |op: &Op| {
            let put = (op, found);
            matches!(put, (Op::Put(key, value, _), Some(entry)) if *key == commit.proof && *value == entry.value)
        };
        commit.done.filter(|_| commit.txn.then.iter().any(wrote))
    }
}

impl<'a> Assignments<'a> {
    fn new(keys: &'a Keys, all: &'a [Assignment]) -> Self {
        assert!(!all.is_empty(), "nothing is assigned");
        Self { keys, all }
    }

    fn first(&self) -> &'a Assignment {
        &self.all[0]
    }

    fn base_keys(&self) -> Vec<Bytes> {
        let mut base = vec![self.keys.meta()];
        let mut seen = BTreeSet::new();
        for assignment in self.all {
            base.extend(assignment.base_keys(self.keys).into_iter().filter(|key| seen.insert(key.clone())));
        }
        base
    }

    /// Finds the owner of each assigned address, and its consequence.
    fn judge(&self, snapshot: &Snapshot) -> Result<Judged, AssignError> {
        let keys = self.keys;
        let missing: Vec<Bytes> = self.base_keys().into_iter().filter(|key| !snapshot.knows(key)).collect();
        if !missing.is_empty() {
            return Ok(Judged::Read(missing));
        }
        let gone: Vec<&Gone> = self.all.iter().flat_map(|assignment| &assignment.gone).collect();
        let (mut all, mut unread) = (Vec::new(), Vec::new());
        for (index, assignment) in self.all.iter().enumerate() {
            match assignment.judge(keys, snapshot, &gone, &mut unread)? {
                Ok(making) => all.push(making),
                Err((held, why)) => return Ok(Judged::End(Together::conflict(index, &held, why))),
            }
        }
        if !unread.is_empty() {
            return Ok(Judged::Read(unread));
        }
        Ok(if all.iter().all(|making| making.made.is_empty()) {
            Judged::End(Together::Present)
        } else {
            Judged::Make(all)
        })
    }

    fn judge_meta(&self, seen: &Snapshot) -> Result<(), AssignError> {
        let meta = seen.record::<Meta>(&self.keys.meta())?.ok_or(AssignError::InService)?;
        meta::writable(&meta).map_err(AssignError::Newer)?;
        let is_under = |assignment: &Assignment| match assignment.under {
            Under::Suspect => meta.suspect.is_some(),
            // Nothing in a suspect store can be relied on, whatever else is under way.
            Under::Pause => meta.paused.is_some() && meta.suspect.is_none(),
        };
        if self.all.iter().all(is_under) { Ok(()) } else { Err(AssignError::InService) }
    }

    /// The transaction that reserves all of this.
    fn make(
        &self,
        snapshot: &Snapshot,
        fence: &Fence,
        all: Vec<Making>,
    ) -> Result<Step<Together>, AssignError> {
        let keys = self.keys;
        if !self.all.iter().all(|assignment| assignment.is_read(keys, snapshot)) {
            return Ok(Step::read(self.base_keys()));
        }
        let mut builder = Builder::new("assign", snapshot);
        fence.guard(&mut builder);
        builder.same_value(keys.meta());
        let mut changes = BitChanges::default();
        let freed: Freed = all.iter().flat_map(|making| making.replaced.iter().cloned()).collect();
        for (owner, record) in &freed {
            self.free(keys, (owner, record), (&all, &freed), &mut builder, &mut changes);
        }
        let mut unread = Vec::new();
        for (assignment, making) in self.all.iter().zip(&all) {
            if !making.made.is_empty() {
                builder.unchanged(keys.tombstone(&assignment.owner));
                assignment.reserve(keys, making, &mut builder, &mut changes);
                assignment.put_owner(keys, making, &mut builder);
                assignment.put_seating(keys, making, &mut builder);
            }
            unread.extend(assignment.put_index(keys, snapshot, making, &freed, &mut builder)?);
        }
        changes.plan(keys, &mut builder);
        let planned = match builder.planned() {
            Ok(planned) if unread.is_empty() => planned,
            Ok(_) => return Ok(Step::read(unread)),
            Err(missing) => return Ok(Step::read(missing.into_iter().chain(unread).collect())),
        };
        let (index, held) = first_made(&all);
        if !planned.txn.fits() {
            return Ok(Step::Done(Together::conflict(index, held, Why::TooMany)));
        }
        let proof = keys.owner(&self.all[index].owner);
        let made = all.into_iter().map(Made::from).collect();
        Ok(Step::Commit(Commit::new(planned, Some(Together::Made(made)), proof)))
    }

    /// Frees all that an owner holds, except for the addresses that change hands. Keys that are written again are not
    /// deleted.
    fn free(
        &self,
        keys: &Keys,
        (owner, record): (&Owner, &OwnerRecord),
        (all, freed): (&[Making], &Freed),
        builder: &mut Builder<'_>,
        changes: &mut BitChanges,
    ) {
        let own = keys.owner(owner);
        builder.unchanged(own.clone());
        let assignments = || self.all.iter().zip(all);
        let is_written = |(assignment, making): (&Assignment, &Making)| {
            assignment.owner == *owner && !making.made.is_empty() || making.writes_hold(owner)
        };
        if !assignments().any(is_written) {
            builder.delete(own);
        }
        self.free_seating(keys, (owner, record), all, builder);
        let mut rest = record.clone();
        rest.addresses.retain(|held| !all.iter().any(|making| held.is_among(&making.made)));
        free::free_reservations(keys, owner, &rest, builder, changes);
        let is_indexed = |held: &Held| {
            assignments().any(|(assignment, making)| {
                assignment.shares_index(owner, record)
                    && network_of(held).is_some_and(|one| assignment.indexed(making, freed).contains(one))
            })
        };
        let mut unindexed = record.clone();
        unindexed.addresses.retain(|held| !is_indexed(held));
        free::free_index(keys, owner, &unindexed, builder);
    }
}

fn network_of(held: &Held) -> Option<&NetworkName> {
    held.network.as_ref()
}

/// The first address that is made, with the index of its assignment.
fn first_made(all: &[Making]) -> (usize, &Held) {
    let mut made = all.iter().enumerate().flat_map(|(i, making)| making.made.iter().map(move |one| (i, one)));
    made.next().expect("something is made")
}

/// Compares UIDs; compares names only if one of the two has no UID. A record that names no cluster may be of any
/// cluster.
fn is_same_pod((one, a): (&Owner, &Pod), (other, b): (&Owner, &Pod)) -> bool {
    let is_same_cluster = one.cluster == other.cluster;
    if a.uid.is_none() || b.uid.is_none() {
        let is_named = !a.name.is_empty() && is_same_cluster;
        return is_named && (&a.namespace, &a.name) == (&b.namespace, &b.name);
    }
    a.uid == b.uid && (is_same_cluster || one.cluster.is_none() || other.cluster.is_none())
}

#[cfg(test)]
mod tests;
