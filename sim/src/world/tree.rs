//! The content of the store, decoded and kept up to date key by key. After every revision the invariants of the design
//! are judged for the changes of that revision.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use metes_core::keys::{Key, Keys, PodInterface};
use metes_core::pool::{
    Addr, Bits, ClusterName, Leader, Meta, NetworkName, Owner, OwnerRecord, Page, PodIndex, Record,
    Reservation, RunStart, Seat, SeatRecord, Summary, Tombstone, VERSION,
};

use crate::store::Model;

/// An address of a network.
pub(crate) type Place = (NetworkName, Addr);

/// One owner's record, as far as it counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Owned {
    pub(crate) record: OwnerRecord,
    pub(crate) revision: i64,
}

impl Owned {
    pub(crate) fn reserved(&self) -> impl Iterator<Item = Place> {
        self.record.reserved().map(|(network, address)| (network.clone(), address))
    }

    /// All addresses in networks: its own, or those of the hold that it uses.
    fn uses(&self) -> impl Iterator<Item = Place> {
        self.record.used().map(|(network, address)| (network.clone(), address))
    }
}

/// A change of an owner's record.
#[derive(Debug)]
pub(crate) struct OwnerChange {
    pub(crate) owner: Owner,
    pub(crate) before: Option<Owned>,
    pub(crate) after: Option<Owned>,
}

/// The changes of one or more revisions, for their judges.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    pub(crate) owners: Vec<OwnerChange>,
    pub(crate) meta: Option<(Option<Meta>, Option<Meta>)>,
}

/// The store, decoded.
#[derive(Debug, Default, Clone)]
pub(crate) struct Tree {
    pub(crate) owners: HashMap<Owner, Owned>,
    pub(crate) reservations: BTreeMap<Place, Owner>,
    pub(crate) cooling: BTreeSet<Place>,
    pages: BTreeMap<(NetworkName, Page), Bits>,
    summaries: BTreeMap<(NetworkName, Summary), Bits>,
    pub(crate) index: HashMap<PodInterface, Owner>,
    /// The user of each seat that is taken.
    seats: BTreeMap<Seat, Owner>,
    tombstones: HashMap<Owner, RunStart>,
    identities: BTreeMap<ClusterName, Vec<u8>>,
    pub(crate) meta: Option<Meta>,
    /// The leader of each cluster.
    pub(crate) leads: BTreeMap<ClusterName, String>,
    /// The owner that lists each address.
    listed: BTreeMap<Place, Owner>,
    /// The bits that were changed with other tools: nothing is expected of them any more.
    pub(crate) spoilt_bits: BTreeSet<Place>,
    /// The addresses whose bits were ever cleared with other tools.
    pub(crate) cleared_by_hand: BTreeSet<Place>,
    pub(crate) spoilt_owners: BTreeSet<Owner>,
    /// The index entries that were ever deleted with other tools: a late ADD does not find a younger owner there.
    dropped_indexes: BTreeSet<PodInterface>,
    /// The owners whose entry a younger one has taken though they hold something: the ADD of a container that was
    /// deleted before frees nobody. If that younger one is gone, its entry is, and a late ADD finds none.
    passed_over: BTreeSet<(PodInterface, Owner)>,
    /// The holds whose seats were freed since somebody took note.
    pub(crate) left: Vec<Owner>,
    /// True while a change is one with other tools.
    pub(crate) is_by_hand: bool,
    /// A node's clock went back: of its starts, the greater one need not be the younger one.
    pub(crate) clock_went_back: bool,
    /// The revision up to which the store was looked at.
    revision: i64,
}

/// The parts of the store to judge when all changes of a revision are known.
#[derive(Default)]
struct Touched {
    places: BTreeSet<Place>,
    pages: BTreeSet<(NetworkName, Page)>,
    owners: BTreeSet<Owner>,
    indexes: BTreeSet<PodInterface>,
    seats: BTreeSet<Seat>,
}

impl Tree {
    pub(crate) fn new() -> Self {
        Self { revision: 1, ..Self::default() }
    }

    /// The store has gone back to the one that `older` was taken from, at this revision now. Clocks have not.
    pub(crate) fn go_back(&mut self, older: Tree, revision: i64) {
        *self = Self { revision, clock_went_back: self.clock_went_back, ..older };
    }

    /// Takes over the changes and judges them.
    pub(crate) fn follow(&mut self, model: &Model, keys: &Keys, changes: &mut Changes) -> Result<(), String> {
        if model.revision() == self.revision {
            return Ok(());
        }
        let mut touched = Touched::default();
        for (key, _) in model.changes_since(self.revision) {
            self.take(key, model, keys, changes, &mut touched)?;
        }
        self.revision = model.revision();
        self.judge(&touched)
    }

    fn take(
        &mut self,
        key: &[u8],
        model: &Model,
        keys: &Keys,
        changes: &mut Changes,
        touched: &mut Touched,
    ) -> Result<(), String> {
        let shown = || String::from_utf8_lossy(key).into_owned();
        let record = model.entry(key);
        let parsed = keys.parse(key).map_err(|_| format!("{}: metes writes no such key", shown()))?;
        if let Some(record) = record {
            let goes = matches!(
                parsed,
                Key::Tombstone(_)
                    | Key::Ticket(..)
                    | Key::Tail(_)
                    | Key::Moved(_)
                    | Key::Orphan(_)
                    | Key::GoneMachine(_)
                    | Key::Lead(_)
                    | Key::Import(_)
                    | Key::Hold(..)
                    | Key::Cooling(..)
                    | Key::Stranger(..)
            );
            if goes && record.lease == 0 && !self.is_by_hand {
                return Err(format!("{}: hangs on no lease", shown()));
            }
            // The fence needs no judgement of its own: a fence without a lease would let late commits through.
            if !goes && record.lease != 0 && !matches!(parsed, Key::Fence(_)) {
                return Err(format!("{}: hangs on a lease", shown()));
            }
        }
        let value = record.map(|record| &*record.value);
        let bad = |what: &dyn std::fmt::Display| format!("{}: {what}", shown());
        match parsed {
            Key::Owner(owner) => {
                let after = match record {
                    None => None,
                    Some(stored) => {
                        let record = OwnerRecord::decode(&stored.value).map_err(|e| bad(&e))?;
                        Some(Owned { record, revision: stored.mod_revision })
                    }
                };
                let before = match after.clone() {
                    Some(after) => self.owners.insert(owner.clone(), after),
                    None => self.owners.remove(&owner),
                };
                for place in before.iter().flat_map(Owned::reserved) {
                    if self.listed.get(&place) == Some(&owner) {
                        self.listed.remove(&place);
                    }
                    touched.places.insert(place);
                }
                for place in after.iter().flat_map(Owned::reserved) {
                    touched.places.insert(place);
                }
                touched
                    .seats
                    .extend(before.iter().chain(&after).filter_map(|owned| owned.record.seat.clone()));
                if owner.is_for_subject() {
                    touched.seats.extend(Seat::NUMBERS.map(|n| Seat { hold: owner.clone(), n }));
                    // An adoption puts another one in the place of a hold of the backup.
                    if let (Some(before), Some(after)) = (&before, &after)
                        && !before.uses().eq(after.uses())
                        && self.meta.as_ref().is_none_or(|meta| meta.suspect.is_none())
                    {
                        return Err(bad(&"the addresses of a hold have changed"));
                    }
                }
                for owned in before.iter().chain(&after) {
                    let Some(uid) = &owned.record.labels.pod.uid else { continue };
                    for (network, _) in owned.uses() {
                        touched.indexes.insert(PodInterface {
                            cluster: owner.cluster.clone(),
                            uid: uid.clone(),
                            ifname: owner.ifname.clone(),
                            network,
                        });
                    }
                }
                touched.owners.insert(owner.clone());
                changes.owners.push(OwnerChange { owner, before, after });
            }
            Key::Ip(network, address) => {
                let place = (network, address);
                match value {
                    None => self.reservations.remove(&place),
                    Some(value) => {
                        let reservation = Reservation::decode(value).map_err(|e| bad(&e))?;
                        self.reservations.insert(place.clone(), reservation.owner)
                    }
                };
                touched.places.insert(place);
            }
            Key::Cooling(network, address) => {
                let place = (network, address);
                match value {
                    None => self.cooling.remove(&place),
                    Some(_) => self.cooling.insert(place.clone()),
                };
                touched.places.insert(place);
            }
            Key::Page(network, page) => {
                let id = (network, page);
                match value {
                    None => self.pages.remove(&id),
                    Some(value) => {
                        let bits = Bits::from_bytes(value).ok_or_else(|| bad(&"not a bitmap"))?;
                        self.pages.insert(id.clone(), bits)
                    }
                };
                touched.pages.insert(id);
            }
            Key::Summary(network, summary) => {
                let id = (network, summary);
                match value {
                    None => self.summaries.remove(&id),
                    Some(value) => {
                        let bits = Bits::from_bytes(value).ok_or_else(|| bad(&"not a bitmap"))?;
                        for page in bits.ones() {
                            touched.pages.insert((id.0.clone(), Page(id.1.0 * 4096 + page as u128)));
                        }
                        self.summaries.insert(id, bits)
                    }
                };
            }
            Key::Pod(id) => {
                if self.is_by_hand && value.is_none() {
                    self.dropped_indexes.insert(id.clone());
                }
                match value {
                    None => self.index.remove(&id),
                    Some(value) => {
                        let index = PodIndex::decode(value).map_err(|e| bad(&e))?;
                        self.index.insert(id.clone(), id.owner(index))
                    }
                };
                touched.indexes.insert(id);
            }
            Key::Seat(seat) => {
                match value {
                    None => {
                        self.left.push(seat.hold.clone());
                        self.seats.remove(&seat)
                    }
                    Some(value) => {
                        let record = SeatRecord::decode(value).map_err(|e| bad(&e))?;
                        self.seats.insert(seat.clone(), record.user)
                    }
                };
                touched.seats.insert(seat);
            }
            Key::Tombstone(owner) => match value {
                None => {
                    self.tombstones.remove(&owner);
                }
                Some(value) => {
                    let start = Tombstone::decode(value).map_err(|e| bad(&e))?.start;
                    if let Some(older) = self.tombstones.insert(owner, start.clone())
                        && !self.clock_went_back
                        && !start.is_after(Some((&older, 0)), None)
                        && start != older
                    {
                        return Err(bad(&"a younger tombstone was replaced by an older one"));
                    }
                }
            },
            Key::Meta => {
                let after = value.map(Meta::decode).transpose().map_err(|e| bad(&e))?;
                let before = std::mem::replace(&mut self.meta, after.clone());
                changes.meta = Some((before, after));
            }
            Key::Cluster(name) => {
                if value.is_none() && self.is_by_hand {
                    self.identities.remove(&name);
                    return Ok(());
                }
                let value = value.ok_or_else(|| bad(&"a cluster's identity was deleted"))?.to_vec();
                if let Some(before) = self.identities.insert(name, value.clone())
                    && before != value
                {
                    return Err(bad(&"another cluster has taken the name"));
                }
            }
            Key::Lead(cluster) => {
                let leader = value.map(Leader::decode).transpose().map_err(|e| bad(&e))?;
                let before = self.leads.remove(&cluster);
                if let Some(Leader { holder, .. }) = leader {
                    if before.is_some_and(|before| before != holder) {
                        return Err(bad(&"the lead was taken from one who has it"));
                    }
                    self.leads.insert(cluster, holder);
                }
            }
            Key::Orphan(hold) if record.is_some() => {
                let user =
                    Seat::NUMBERS.iter().find_map(|n| self.seats.get(&Seat { hold: hold.clone(), n: *n }));
                if let Some(user) = user {
                    return Err(bad(&format!("a hold was seen as unused, and {} uses it", words(user))));
                }
            }
            Key::Cursor(..)
            | Key::Ticket(..)
            | Key::Tail(_)
            | Key::Moved(_)
            | Key::Fence(_)
            | Key::Orphan(_)
            | Key::Seen(..)
            | Key::Node(_)
            | Key::GoneMachine(_)
            | Key::Forgotten
            | Key::Stranger(..)
            | Key::Lacking(..)
            | Key::Pass(_)
            | Key::Member(_)
            | Key::Import(_)
            | Key::Pool(_)
            | Key::PoolChanges
            | Key::Asked(_)
            | Key::Hold(..) => {}
        }
        Ok(())
    }

    fn judge(&mut self, touched: &Touched) -> Result<(), String> {
        // An owner may have taken over from another in this very revision. By now all former owners are removed.
        for owner in &touched.owners {
            let Some(owned) = self.owners.get(owner) else {
                self.spoilt_owners.remove(owner);
                continue;
            };
            if self.spoilt_owners.contains(owner) {
                continue;
            }
            for place in owned.reserved() {
                if let Some(other) = self.listed.insert(place.clone(), owner.clone())
                    && other != *owner
                {
                    let (one, other) = (words(owner), words(&other));
                    return Err(format!("{} of {} is listed by {one} and by {other}", place.1, place.0));
                }
            }
        }
        if !self.spoilt_bits.is_empty() {
            let spoilt = std::mem::take(&mut self.spoilt_bits);
            let counts =
                |place: &Place| self.reservations.contains_key(place) || self.cooling.contains(place);
            let is_so = |place: &Place| counts(place) && !self.has_bit(&place.0, place.1);
            self.spoilt_bits = spoilt.into_iter().filter(is_so).collect();
        }
        touched.places.iter().try_for_each(|place| self.judge_place(place))?;
        touched.pages.iter().try_for_each(|(network, page)| self.judge_page(network, *page))?;
        touched.seats.iter().try_for_each(|seat| self.judge_seat(seat))?;
        touched.owners.iter().try_for_each(|owner| self.judge_user(owner))?;
        touched.indexes.iter().try_for_each(|id| self.judge_index(id))
    }

    /// True if a tombstone of the owner stands.
    pub(crate) fn is_buried(&self, owner: &Owner) -> bool {
        self.tombstones.contains_key(owner)
    }

    /// Nothing is expected any more of the addresses of an owner.
    pub(crate) fn spoil(&mut self, owner: &Owner) {
        self.listed.retain(|_, lister| lister != owner);
        self.spoilt_owners.insert(owner.clone());
    }

    /// Every reservation has its bit and an owner that lists it. Every address that an owner lists is reserved for it.
    fn judge_place(&self, place: &Place) -> Result<(), String> {
        let (network, address) = place;
        if self.cooling.contains(place)
            && !self.has_bit(network, *address)
            && !self.spoilt_bits.contains(place)
        {
            return Err(format!("{address} of {network} is cooling and its bit is not set"));
        }
        let holder = self.reservations.get(place);
        let lister = self.listed.get(place);
        if holder.is_some_and(|holder| self.spoilt_owners.contains(holder)) {
            return Ok(());
        }
        match (holder, lister) {
            (None, None) => return Ok(()),
            (Some(holder), Some(lister)) if holder == lister => {}
            (Some(holder), None) => {
                return Err(format!(
                    "{address} of {network} is reserved for {}, which does not list it",
                    words(holder)
                ));
            }
            (None, Some(lister)) => {
                return Err(format!(
                    "{address} of {network} is listed by {} and not reserved",
                    words(lister)
                ));
            }
            (Some(holder), Some(lister)) => {
                let (holder, lister) = (words(holder), words(lister));
                return Err(format!(
                    "{address} of {network} is reserved for {holder} and listed by {lister}"
                ));
            }
        }
        if self.has_bit(network, *address) || self.spoilt_bits.contains(place) {
            return Ok(());
        }
        Err(format!("{address} of {network} is reserved and its bit is not set"))
    }

    /// The user that a seat names has it by its record, and the hold is there.
    fn judge_seat(&self, seat: &Seat) -> Result<(), String> {
        let Some(user) = self.seats.get(seat) else { return Ok(()) };
        if self.spoilt_owners.contains(user) {
            return Ok(());
        }
        let taken = || format!("seat {} of {} is taken by {}", seat.n, words(&seat.hold), words(user));
        if self.owners.get(user).and_then(|owned| owned.record.seat.as_ref()) != Some(seat) {
            return Err(format!("{}, whose record does not say so", taken()));
        }
        match self.owners.contains_key(&seat.hold) {
            true => Ok(()),
            false => Err(format!("{}, and there is no such hold", taken())),
        }
    }

    /// The seat of a user names it, and it uses the addresses of the hold and no others.
    fn judge_user(&self, owner: &Owner) -> Result<(), String> {
        let Some(owned) = self.owners.get(owner).filter(|_| !self.spoilt_owners.contains(owner)) else {
            return Ok(());
        };
        let Some(seat) = &owned.record.seat else { return Ok(()) };
        let uses = || format!("{} uses {}", words(owner), words(&seat.hold));
        if self.seats.get(seat) != Some(owner) {
            return Err(format!("{} without a seat", uses()));
        }
        let hold = self.owners.get(&seat.hold);
        match hold.is_some_and(|hold| hold.uses().eq(owned.uses())) {
            true => Ok(()),
            false => Err(format!("{} with addresses of its own", uses())),
        }
    }

    pub(crate) fn has_bit(&self, network: &NetworkName, address: Addr) -> bool {
        self.pages.get(&(network.clone(), address.page())).is_some_and(|bits| bits.get(address.bit()))
    }

    /// Every reserved address of a page has its bit. A summary calls the page full only if it is.
    fn judge_page(&self, network: &NetworkName, page: Page) -> Result<(), String> {
        let of_page = (network.clone(), page.first())..=(network.clone(), page.last());
        let cooling = self.cooling.range(of_page.clone());
        for place in self.reservations.range(of_page).map(|(place, _)| place).chain(cooling) {
            if !self.has_bit(network, place.1) && !self.spoilt_bits.contains(place) {
                return Err(format!(
                    "{} of {network} is reserved or cooling and its bit was cleared",
                    place.1
                ));
            }
        }
        let says_full = self
            .summaries
            .get(&(network.clone(), page.summary()))
            .is_some_and(|summary| summary.get(page.bit()));
        let is_full = self.pages.get(&(network.clone(), page)).is_some_and(Bits::is_full);
        if says_full && !is_full {
            return Err(format!(
                "the summary of {network} calls the page of {} full, which is not",
                page.first()
            ));
        }
        Ok(())
    }

    /// The index names an owner of that pod and interface that holds something in the network, and the youngest one of
    /// those that were not passed over.
    fn judge_index(&mut self, id: &PodInterface) -> Result<(), String> {
        let Some(named) = self.index.get(id) else { return Ok(()) };
        let PodInterface { uid, ifname, network, .. } = id;
        if self.spoilt_owners.contains(named) {
            return Ok(());
        }
        let wrong =
            |what: &str| Err(format!("the index of pod {uid} in {network} names {}, {what}", words(named)));
        let Some(owned) = self.owners.get(named) else { return wrong("which holds nothing") };
        if owned.record.labels.pod.uid.as_ref() != Some(uid) {
            return wrong("which is another's");
        }
        if !owned.uses().any(|(held, _)| held == *network) {
            return wrong("which holds nothing in it");
        }
        if self.dropped_indexes.contains(id) {
            return Ok(());
        }
        self.passed_over.remove(&(id.clone(), named.clone()));
        for (other, theirs) in &self.owners {
            let is_same = other.node == named.node
                && other.ifname == *ifname
                && theirs.record.labels.pod.uid.as_ref() == Some(uid)
                && theirs.uses().any(|(held, _)| held == *network);
            let (Some(start), Some(their_start)) = (&owned.record.start, &theirs.record.start) else {
                continue;
            };
            if !is_same || their_start.boot != start.boot || self.clock_went_back {
                continue;
            }
            let passed = (id.clone(), other.clone());
            match their_start.ns.cmp(&start.ns) {
                Ordering::Less => _ = self.passed_over.insert(passed),
                Ordering::Greater if !self.passed_over.contains(&passed) => {
                    return wrong(&format!("though {} is younger", words(other)));
                }
                Ordering::Equal | Ordering::Greater => {}
            }
        }
        Ok(())
    }

    /// True if any allocation exists.
    pub(crate) fn has_allocations(&self) -> bool {
        !(self.owners.is_empty()
            && self.reservations.is_empty()
            && self.index.is_empty()
            && self.pages.is_empty())
    }

    /// True if writers of this program may commit.
    pub(crate) fn is_in_service(&self) -> bool {
        self.meta
            .as_ref()
            .is_none_or(|meta| meta.paused.is_none() && meta.suspect.is_none() && meta.min_writer <= VERSION)
    }

    pub(crate) fn bits(&self, network: &NetworkName, page: Page) -> Bits {
        self.pages.get(&(network.clone(), page)).cloned().unwrap_or_else(Bits::empty)
    }
}

pub(crate) fn words(owner: &Owner) -> String {
    format!("{}/{}/{}", owner.node, owner.container_id, owner.ifname)
}
