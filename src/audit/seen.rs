//! Takes the keys of a tree one by one and keeps of each what the judgement needs. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::rc::Rc;

use super::finding::{Finding, Kind};
use super::{Counts, MetaState};
use crate::pool::asked::AskedRanges;
use crate::pool::auto::AutoPool;
use crate::pool::bitmap::Bits;
use crate::pool::definition::PoolDefinition;
use crate::pool::names::{PodUid, PoolName};
use crate::pool::record::{
    ClusterId, Cooling, Definitions, Held, Leader, Meta, Owner, OwnerRecord, PodIndex, PoolChanges, Record,
    Reservation, SeenNode, Sighting, Tombstone, Undecodable, VERSION,
};
use crate::pool::{Addr, NetworkName, Page, Summary};
use crate::store::keys::{Bytes, Key, Keys, NetworkAddress, PodInterface};
use crate::store::pools::decode_pool;
use crate::store::txn::Entry;

/// An audit under way. Keys may come in any order.
pub struct Audit {
    pub(super) keys: Keys,
    pub(super) networks: BTreeMap<NetworkName, Network>,
    /// None: there is a record that does not decode.
    pub(super) owners: BTreeMap<Rc<Owner>, Option<Holdings>>,
    /// By what the index is kept by; none as above.
    pub(super) pods: BTreeMap<PodInterface, Option<Rc<Owner>>>,
    pub(super) meta: MetaState,
    pub(super) meta_seen: bool,
    pub(super) found: Vec<Finding>,
    pub(super) stale: Vec<(Vec<u8>, i64)>,
    pub(super) counts: Counts,
    pub(super) pools: BTreeMap<PoolName, PoolDefinition>,
    /// The pools that `auto` may choose, as the changes of pools have left it.
    pub(super) auto: Vec<AutoPool>,
    /// Whether all of these decode.
    pub(super) pools_are_known: bool,
    /// Which ranges configurations ask for, with the key and its mod revision.
    pub(super) asked: Vec<(Bytes, i64, AskedRanges)>,
    /// The addresses with a hold whose time is not over, by the keys that say it.
    pub(super) times_of_holds: BTreeSet<NetworkAddress>,
    /// Whether owners are left aside.
    pub(super) bits_only: bool,
    /// Every owner's name once, however many records give it.
    names: BTreeSet<Rc<Owner>>,
}

/// What was seen of one network.
#[derive(Default)]
pub(super) struct Network {
    pub(super) ips: BTreeMap<Addr, Ip>,
    pub(super) cooling: BTreeSet<Addr>,
    pub(super) pages: BTreeMap<Page, Bitmap>,
    pub(super) summaries: BTreeMap<Summary, Bitmap>,
}

/// A reservation: its mod revision, and its owner if it decodes.
pub(super) struct Ip {
    pub(super) revision: i64,
    pub(super) owner: Option<Rc<Owner>>,
}

/// A page or a summary: its mod revision (0: it does not exist), and its bits if they decode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Bitmap {
    pub(super) revision: i64,
    pub(super) bits: Option<Bits>,
}

/// What an owner record says.
pub(super) struct Holdings {
    pub(super) addresses: Vec<Held>,
    pub(super) uid: Option<PodUid>,
}

impl Audit {
    /// Begins.
    #[must_use]
    pub fn new(keys: &Keys) -> Self {
        Self {
            keys: keys.clone(),
            networks: BTreeMap::new(),
            owners: BTreeMap::new(),
            pods: BTreeMap::new(),
            meta: MetaState::Missing,
            meta_seen: false,
            found: Vec::new(),
            stale: Vec::new(),
            counts: Counts::default(),
            pools: BTreeMap::new(),
            auto: Vec::new(),
            pools_are_known: true,
            asked: Vec::new(),
            times_of_holds: BTreeSet::new(),
            bits_only: false,
            names: BTreeSet::new(),
        }
    }

    /// Begins an audit that leaves owners, and who holds what, aside.
    #[must_use]
    pub fn of_bits(keys: &Keys) -> Self {
        Self { bits_only: true, ..Self::new(keys) }
    }

    /// Takes one key.
    pub fn see(&mut self, entry: &Entry) {
        match self.keys.parse(&entry.key) {
            Err(_) => self.find(Kind::ForeignKey, entry, "metes writes no such key"),
            Ok(Key::Meta) => self.see_meta(entry),
            Ok(Key::Ip(network, address)) => self.see_ip(entry, network, address),
            Ok(Key::Cooling(network, address)) => self.see_cooling(entry, network, address),
            Ok(Key::Page(network, page)) => self.see_page(entry, network, page),
            Ok(Key::Summary(network, summary)) => self.see_summary(entry, network, summary),
            Ok(Key::Cursor(network, _)) => self.see_cursor(entry, network),
            Ok(Key::Owner(owner)) => self.see_owner(entry, owner),
            Ok(Key::Pod(interface)) => self.see_pod(entry, interface),
            Ok(Key::Tombstone(_)) => self.see_tombstone(entry),
            Ok(Key::Ticket(..)) => self.see_ticket(entry),
            Ok(Key::Tail(_) | Key::Moved(_) | Key::Fence(_)) => self.goes_with_lease(entry),
            Ok(Key::Cluster(_)) => self.see_cluster(entry),
            Ok(Key::Orphan(_)) => self.see_note::<Sighting>(entry),
            Ok(Key::Seen(..)) => self.see_seen_node(entry),
            Ok(Key::Lead(_)) => self.see_note::<Leader>(entry),
            Ok(Key::Import(_)) => self.see_note::<Definitions>(entry),
            Ok(Key::Pool(name)) => self.see_pool(entry, name),
            Ok(Key::PoolChanges) => self.see_pool_changes(entry),
            Ok(Key::Hold(network, address)) => self.see_time_of_hold(entry, (network, address)),
            Ok(Key::Asked(_)) => self.see_asked(entry),
        }
    }

    /// Whether there is anything that all writers must have agreed on before.
    pub(super) fn has_allocations(&self) -> bool {
        !self.networks.is_empty() || self.counts.owners > 0 || self.counts.pods > 0
    }

    fn find(&mut self, kind: Kind, entry: &Entry, what: impl Into<String>) {
        self.found.push(Finding::new(kind, &entry.key, what));
    }

    /// Decodes a record; one that does not is reported.
    fn decode<R: Record>(&mut self, kind: Kind, entry: &Entry) -> Option<R> {
        R::decode(&entry.value).map_err(|why| self.find(kind, entry, why.to_string())).ok()
    }

    fn lives_without_lease(&mut self, entry: &Entry) {
        if entry.lease != 0 {
            let what = format!("hangs on lease {:x} and vanishes with it", entry.lease);
            self.find(Kind::RecordOnLease, entry, what);
        }
    }

    /// One copy of an owner's name for all records that give it.
    fn name(&mut self, owner: Owner) -> Rc<Owner> {
        if let Some(known) = self.names.get(&owner) {
            return known.clone();
        }
        let owner = Rc::new(owner);
        self.names.insert(owner.clone());
        owner
    }

    fn see_meta(&mut self, entry: &Entry) {
        self.meta_seen = true;
        self.lives_without_lease(entry);
        self.meta = match Meta::decode(&entry.value) {
            Ok(meta) if meta.min_writer > VERSION => {
                let what = format!("only writers of version {} or newer may write", meta.min_writer);
                self.find(Kind::SchemaNewer, entry, what);
                MetaState::Unreadable
            }
            Ok(meta) => MetaState::Known(meta, entry.mod_revision),
            Err(why) => {
                let newer = matches!(why, Undecodable::Version { .. });
                let kind = if newer { Kind::SchemaNewer } else { Kind::UndecodableMeta };
                self.find(kind, entry, why.to_string());
                MetaState::Unreadable
            }
        };
        if let MetaState::Known(Meta { suspect: Some(epoch), .. }, _) = self.meta {
            let what = format!(
                "the store may have gone back in time in epoch {epoch}: ADD fails until `metes-reconciler adopt`, \
                 or outside Kubernetes `metes check --accept-store`, takes it into service"
            );
            self.find(Kind::Suspect, entry, what);
        }
    }

    fn see_ip(&mut self, entry: &Entry, network: NetworkName, address: Addr) {
        self.counts.reservations += 1;
        if entry.lease != 0 {
            let what = format!("hangs on lease {:x} and is given away when it ends", entry.lease);
            self.find(Kind::ReservationOnLease, entry, what);
        }
        let owner = self.decode::<Reservation>(Kind::UndecodableReservation, entry);
        let owner = owner.filter(|_| !self.bits_only).map(|reservation| self.name(reservation.owner));
        let ip = Ip { revision: entry.mod_revision, owner };
        self.networks.entry(network).or_default().ips.insert(address, ip);
    }

    fn see_page(&mut self, entry: &Entry, network: NetworkName, page: Page) {
        self.counts.pages += 1;
        let bitmap = self.bitmap(Kind::UndecodablePage, entry);
        self.networks.entry(network).or_default().pages.insert(page, bitmap);
    }

    fn see_summary(&mut self, entry: &Entry, network: NetworkName, summary: Summary) {
        self.counts.summaries += 1;
        let bitmap = self.bitmap(Kind::UndecodableSummary, entry);
        self.networks.entry(network).or_default().summaries.insert(summary, bitmap);
    }

    fn bitmap(&mut self, kind: Kind, entry: &Entry) -> Bitmap {
        self.lives_without_lease(entry);
        let bits = Bits::from_bytes(&entry.value);
        if bits.is_none() {
            self.find(kind, entry, format!("{} bytes, expected 512", entry.value.len()));
        }
        Bitmap { revision: entry.mod_revision, bits }
    }

    fn see_cursor(&mut self, entry: &Entry, network: NetworkName) {
        self.lives_without_lease(entry);
        self.networks.entry(network).or_default();
        if !is_address(&entry.value) {
            self.find(Kind::UndecodableCursor, entry, "its value is no address");
        }
    }

    fn see_owner(&mut self, entry: &Entry, owner: Owner) {
        self.counts.owners += 1;
        self.lives_without_lease(entry);
        if self.bits_only {
            return;
        }
        let record = self.decode::<OwnerRecord>(Kind::UndecodableOwner, entry);
        if record.as_ref().is_some_and(|record| !is_sound_hold(&owner, record)) {
            self.find(Kind::HoldMismatch, entry, "is not the record of one address that is set aside");
        }
        let holdings =
            record.map(|record| Holdings { addresses: record.addresses, uid: record.labels.pod.uid });
        let owner = self.name(owner);
        self.owners.insert(owner, holdings);
    }

    fn see_pod(&mut self, entry: &Entry, interface: PodInterface) {
        self.counts.pods += 1;
        self.lives_without_lease(entry);
        if self.bits_only {
            return;
        }
        let index = self.decode::<PodIndex>(Kind::UndecodablePodIndex, entry);
        let owner = index.map(|index| self.name(index.owner));
        self.pods.insert(interface, owner);
    }

    fn see_tombstone(&mut self, entry: &Entry) {
        self.counts.tombstones += 1;
        if self.decode::<Tombstone>(Kind::UndecodableTombstone, entry).is_some() {
            self.goes_with_lease(entry);
        }
    }

    /// That the key exists is all that decides.
    fn see_cooling(&mut self, entry: &Entry, network: NetworkName, address: Addr) {
        self.counts.cooling += 1;
        self.networks.entry(network).or_default().cooling.insert(address);
        self.see_note::<Cooling>(entry);
    }

    fn see_cluster(&mut self, entry: &Entry) {
        self.lives_without_lease(entry);
        self.decode::<ClusterId>(Kind::UndecodableCluster, entry);
    }

    fn see_pool(&mut self, entry: &Entry, name: PoolName) {
        self.lives_without_lease(entry);
        match decode_pool(&name, &entry.key, &entry.value) {
            Ok(pool) => _ = self.pools.insert(name, pool),
            Err(bad) => {
                self.pools_are_known = false;
                self.find(Kind::UndecodablePool, entry, bad.why.to_string());
            }
        }
    }

    fn see_pool_changes(&mut self, entry: &Entry) {
        self.lives_without_lease(entry);
        match self.decode::<PoolChanges>(Kind::UndecodablePool, entry) {
            Some(changes) => self.auto = changes.auto,
            None => self.pools_are_known = false,
        }
    }

    fn see_asked(&mut self, entry: &Entry) {
        self.lives_without_lease(entry);
        let asked = self.decode::<AskedRanges>(Kind::UndecodableNote, entry);
        self.asked.extend(asked.map(|asked| (entry.key.clone(), entry.mod_revision, asked)));
    }

    fn see_seen_node(&mut self, entry: &Entry) {
        self.lives_without_lease(entry);
        self.decode::<SeenNode>(Kind::UndecodableNote, entry);
    }

    /// No address depends on it, but a pass may wait for it to end.
    fn see_note<R: Record>(&mut self, entry: &Entry) {
        if self.decode::<R>(Kind::UndecodableNote, entry).is_some() {
            self.goes_with_lease(entry);
        }
    }

    /// Where it hangs on no lease, somebody has written it with another tool. It is not deleted, because then the next
    /// pass would free the address.
    fn see_time_of_hold(&mut self, entry: &Entry, held: NetworkAddress) {
        if entry.lease == 0 {
            let what = "hangs on no lease, so the time of the hold would never be over; `metes hold --remove` ends it";
            self.find(Kind::StaleWithoutLease, entry, what);
        }
        self.times_of_holds.insert(held);
    }

    fn see_ticket(&mut self, entry: &Entry) {
        self.counts.tickets += 1;
        self.goes_with_lease(entry);
    }

    fn goes_with_lease(&mut self, entry: &Entry) {
        if entry.lease == 0 {
            self.find(Kind::StaleWithoutLease, entry, "hangs on no lease, so it would stay for ever");
            self.stale.push((entry.key.clone(), entry.mod_revision));
        }
    }
}

/// Whether a record is that of a hold exactly if its owner is one: of one address, with a note.
fn is_sound_hold(owner: &Owner, record: &OwnerRecord) -> bool {
    let of_holds = owner.node.network_of_holds().is_some();
    let held = record.reserved().map(|(network, address)| (network.clone(), address));
    of_holds == record.hold.is_some() && (!of_holds || held.eq(owner.set_aside()))
}

/// Whether a cursor's value is an address: 32 hex digits, as in keys, or as people write it.
fn is_address(value: &[u8]) -> bool {
    std::str::from_utf8(value).is_ok_and(|text| {
        let hex = text.len() == 32 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        hex || text.parse::<IpAddr>().is_ok()
    })
}
