//! Takes the keys of a tree one by one, and keeps of each the part that the judgement needs. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::rc::Rc;

use super::finding::{Finding, Kind};
use super::inquiry::Inquiry;
use super::links::{Holdings, Links};
use super::{Counts, MetaState};
use metes_core::keys::{Bytes, Key, Keys, NetworkAddress, PodInterface, prefix_end};
use metes_core::plan::known_pool::decode_pool;
use metes_core::pool::auto::AutoPool;
use metes_core::pool::bitmap::Bits;
use metes_core::pool::{
    Addr, AskedRanges, AskedSeen, ClusterId, Cooling, Definitions, Forgotten, Lacking, Leader, MemberRecord,
    Meta, NetworkName, NodeRecord, Owner, OwnerKind, OwnerRecord, Page, PassRecord, PodIndex, PoolChanges,
    PoolDefinition, PoolName, Record, Reservation, Seat, SeatRecord, SeenNode, Sighting, Summary, Tombstone,
    Undecodable, VERSION, newer_version,
};
use metes_core::txn::Entry;

/// An audit under way. Keys may come in any order.
pub struct Audit {
    pub(super) keys: Keys,
    pub(super) networks: BTreeMap<NetworkName, Network>,
    /// Addresses that an owner lists, and whose reservations have not been seen yet.
    pub(super) listed: BTreeMap<NetworkName, BTreeSet<Addr>>,
    /// True if a newer program wrote the record of some owner: that record may list any address.
    pub(super) has_newer_owner: bool,
    pub(super) look: Look,
    pub(super) meta: MetaState,
    pub(super) meta_seen: bool,
    pub(super) found: Vec<Finding>,
    pub(super) stale: Vec<(Vec<u8>, i64)>,
    pub(super) counts: Counts,
    pub(super) pools: BTreeMap<PoolName, PoolDefinition>,
    /// The pools that `auto` may choose, as `v1/pools` lists them.
    pub(super) auto: Vec<AutoPool>,
    /// True if all pools and `v1/pools` decode.
    pub(super) pools_are_known: bool,
    /// The ranges that configurations ask for.
    pub(super) asked: Vec<AskedSeen>,
    pub(super) asked_keys: Vec<Bytes>,
    /// The addresses with a hold whose time is not over: each has a key below `v1/hold`.
    pub(super) times_of_holds: BTreeSet<NetworkAddress>,
    /// The addresses that are set aside, by the keys of owner records.
    pub(super) set_aside: BTreeSet<NetworkAddress>,
    /// The addresses that running pods use and the store lacks, with their keys.
    pub(super) lacking: Vec<(Bytes, Addr, Lacking)>,
    /// The owners that hold addresses which nobody can be using: orphans, and unused holds for pods. Empty unless the
    /// audit leaves owners aside.
    idle: Rc<BTreeSet<Owner>>,
}

/// The records of owners and holders that an audit keeps.
pub(super) enum Look {
    /// Nothing.
    Bits,
    /// Digests of all records. They show whether anything is wrong.
    First(Links),
    /// All records about suspects: those for which the digests of the first look did not agree. It has settled the
    /// rest.
    Second(Inquiry),
}

/// The keys of one network.
#[derive(Default)]
pub(super) struct Network {
    pub(super) ips: BTreeMap<Addr, Ip>,
    pub(super) cooling: BTreeSet<Addr>,
    pub(super) pages: BTreeMap<Page, Bitmap>,
    pub(super) summaries: BTreeMap<Summary, Bitmap>,
}

/// A reservation.
pub(super) struct Ip {
    pub(super) revision: i64,
    /// True if an operator has set the address aside.
    pub(super) is_set_aside: bool,
    /// True if an orphan holds it.
    pub(super) is_orphaned: bool,
    /// True if a hold for a pod's name has it that no pod uses.
    pub(super) is_unused: bool,
}

/// A page or a summary: its mod revision (0: it does not exist), and its bits if they decode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Bitmap {
    pub(super) revision: i64,
    pub(super) bits: Option<Bits>,
}

impl Audit {
    /// An audit that has seen no key yet.
    #[must_use]
    pub fn new(keys: &Keys) -> Self {
        Self {
            keys: keys.clone(),
            networks: BTreeMap::new(),
            listed: BTreeMap::new(),
            has_newer_owner: false,
            look: Look::First(Links::default()),
            meta: MetaState::Missing,
            meta_seen: false,
            found: Vec::new(),
            stale: Vec::new(),
            counts: Counts::default(),
            pools: BTreeMap::new(),
            auto: Vec::new(),
            pools_are_known: true,
            asked: Vec::new(),
            asked_keys: Vec::new(),
            times_of_holds: BTreeSet::new(),
            set_aside: BTreeSet::new(),
            lacking: Vec::new(),
            idle: Rc::default(),
        }
    }

    /// An audit that leaves owners and holders aside, and has seen no key yet. Only the addresses that `idle` owners
    /// hold are counted.
    pub(crate) fn of_bits(keys: &Keys, idle: Rc<BTreeSet<Owner>>) -> Self {
        Self { look: Look::Bits, idle, ..Self::new(keys) }
    }

    /// The bounds of the next look: its beginning, the beginnings of the owners and of the pod index, and its end. A
    /// second look reads only the keys that can name the fault.
    pub(super) fn bounds(&self) -> [Bytes; 4] {
        let keys = &self.keys;
        let (mut first, mut last) = (keys.root(), prefix_end(&keys.root()));
        if let Look::Second(Inquiry { suspects, .. }) = &self.look {
            first = if suspects.need_reservations() { keys.nets() } else { keys.owners() };
            last = match (suspects.need_seats(), suspects.need_indexes()) {
                (true, _) => prefix_end(&keys.seats()),
                (false, true) => prefix_end(&keys.pods()),
                (false, false) => keys.pods(),
            };
        }
        [first, keys.owners(), keys.pods(), last]
    }

    /// Takes one key.
    pub(crate) fn see(&mut self, entry: &Entry) {
        if let Look::Second(inquiry) = &mut self.look {
            return inquiry.see(&self.keys, entry);
        }
        match self.keys.parse(&entry.key) {
            Err(_) => _ = self.find(Kind::ForeignKey, entry, "metes writes no such key"),
            Ok(Key::Meta) => self.see_meta(entry),
            Ok(Key::Ip(network, address)) => self.see_ip(entry, network, address),
            Ok(Key::Cooling(network, address)) => self.see_cooling(entry, network, address),
            Ok(Key::Page(network, page)) => self.see_page(entry, network, page),
            Ok(Key::Summary(network, summary)) => self.see_summary(entry, network, summary),
            Ok(Key::Cursor(network, _)) => self.see_cursor(entry, network),
            Ok(Key::Owner(owner)) => self.see_owner(entry, owner),
            Ok(Key::Pod(interface)) => self.see_pod(entry, interface),
            Ok(Key::Seat(seat)) => self.see_seat(entry, &seat),
            Ok(Key::Tombstone(_)) => self.see_tombstone(entry),
            Ok(Key::Ticket(..)) => self.see_ticket(entry),
            Ok(Key::Tail(_) | Key::Moved(_) | Key::Fence(_)) => self.goes_with_lease(entry),
            Ok(Key::Node(_)) => self.see_lasting_note::<NodeRecord>(entry),
            Ok(Key::Forgotten) => self.see_lasting_note::<Forgotten>(entry),
            Ok(Key::Stranger(..)) => self.see_note::<NodeRecord>(entry),
            Ok(Key::Cluster(_)) => self.see_cluster(entry),
            Ok(Key::Orphan(_) | Key::GoneMachine(_)) => self.see_note::<Sighting>(entry),
            Ok(Key::Seen(..)) => self.see_lasting_note::<SeenNode>(entry),
            Ok(Key::Lacking(_, _, address)) => self.see_lacking(entry, address),
            Ok(Key::Lead(_)) => self.see_note::<Leader>(entry),
            Ok(Key::Pass(_)) => self.see_lasting_note::<PassRecord>(entry),
            Ok(Key::Member(_)) => self.see_lasting_note::<MemberRecord>(entry),
            Ok(Key::Import(_)) => self.see_note::<Definitions>(entry),
            Ok(Key::Pool(name)) => self.see_pool(entry, name),
            Ok(Key::PoolChanges) => self.see_pool_changes(entry),
            Ok(Key::Hold(network, address)) => self.see_time_of_hold(entry, (network, address)),
            Ok(Key::Asked(_)) => self.see_asked(entry),
        }
    }

    /// True if there are keys that no writer makes before the store has its meta.
    pub(super) fn has_allocations(&self) -> bool {
        !self.networks.is_empty() || self.counts.owners > 0 || self.counts.pods > 0
    }

    /// Adds a finding. The record of a newer program is not judged; it is reported once, as newer. Returns true if the
    /// record was judged.
    fn find(&mut self, kind: Kind, entry: &Entry, what: impl Into<String>) -> bool {
        let version = newer_version(&entry.value).filter(|_| kind != Kind::SchemaNewer);
        let Some(version) = version else {
            self.found.push(Finding::new(kind, &entry.key, what));
            return true;
        };
        let what = format!(
            "is of version {version}, and this metes reads version {VERSION}: use a metes of that version"
        );
        let newer = Finding::new(Kind::RecordNewer, &entry.key, what);
        if self.found.last() != Some(&newer) {
            self.found.push(newer);
        }
        false
    }

    /// Decodes a record. If it does not decode, that is reported.
    fn decode<R: Record>(&mut self, kind: Kind, entry: &Entry) -> Option<R> {
        R::decode(&entry.value).map_err(|why| _ = self.find(kind, entry, why.to_string())).ok()
    }

    fn lives_without_lease(&mut self, entry: &Entry) {
        if entry.lease != 0 {
            let what = format!("hangs on lease {:x} and vanishes with it", entry.lease);
            self.find(Kind::RecordOnLease, entry, what);
        }
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
            Ok(meta) => MetaState::Known(Box::new(meta), entry.clone()),
            Err(why) => {
                let kind = if why.is_newer() { Kind::SchemaNewer } else { Kind::UndecodableMeta };
                self.find(kind, entry, why.to_string());
                MetaState::Unreadable
            }
        };
        if let MetaState::Known(meta, _) = &self.meta
            && let Some(epoch) = meta.suspect
        {
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
        let record = self.decode::<Reservation>(Kind::UndecodableReservation, entry);
        let owner = record.as_ref().map(|record| &record.owner);
        let kind = owner.map(Owner::kind);
        let is_idle = owner.is_some_and(|owner| self.idle.contains(owner));
        let is_of_pod = matches!(kind, Some(OwnerKind::Subject(_)));
        let ip = Ip {
            revision: entry.mod_revision,
            is_set_aside: !is_of_pod && record.as_ref().is_some_and(|record| record.hold.is_some()),
            is_orphaned: is_idle && !is_of_pod,
            is_unused: is_idle && is_of_pod,
        };
        if let (Look::First(links), Some(owner)) = (&mut self.look, owner) {
            links.reserve((&network, address), owner);
        }
        if let Some(listed) = self.listed.get_mut(&network) {
            listed.remove(&address);
        }
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
            self.find(Kind::UndecodableCursor, entry, "its value is not an address");
        }
    }

    fn see_owner(&mut self, entry: &Entry, owner: Owner) {
        self.counts.owners += 1;
        self.lives_without_lease(entry);
        let record = OwnerRecord::decode(&entry.value);
        self.has_newer_owner |= record.as_ref().is_err_and(Undecodable::is_newer);
        if matches!(self.look, Look::Bits) {
            record.into_iter().for_each(|record| self.see_listed(&Holdings::of(record)));
            return;
        }
        let kind = owner.kind();
        let record = record.map_err(|why| self.find(Kind::UndecodableOwner, entry, why.to_string())).ok();
        if record.as_ref().is_some_and(|record| !is_of_kind(record, &kind)) {
            let what = match kind {
                OwnerKind::Subject(_) => "is not the record of a hold for a pod",
                OwnerKind::Aside(..) | OwnerKind::Container(_) | OwnerKind::Unknown => {
                    "is not the record of one address that is set aside"
                }
            };
            self.find(Kind::HoldMismatch, entry, what);
        }
        match kind {
            OwnerKind::Aside(network, address) => _ = self.set_aside.insert((network, address)),
            OwnerKind::Container(_) | OwnerKind::Subject(_) | OwnerKind::Unknown => {}
        }
        let Some(holdings) = record.map(Holdings::of) else { return };
        self.see_listed(&holdings);
        if let Look::First(links) = &mut self.look {
            links.hold(&owner, &holdings);
        }
    }

    fn see_pod(&mut self, entry: &Entry, interface: PodInterface) {
        self.counts.pods += 1;
        self.lives_without_lease(entry);
        if matches!(self.look, Look::Bits) {
            return;
        }
        let owner =
            self.decode::<PodIndex>(Kind::UndecodablePodIndex, entry).map(|index| interface.owner(index));
        if let (Look::First(links), Some(owner)) = (&mut self.look, owner) {
            links.index(&interface, &owner);
        }
    }

    fn see_seat(&mut self, entry: &Entry, seat: &Seat) {
        self.lives_without_lease(entry);
        if matches!(self.look, Look::Bits) {
            return;
        }
        let user = self.decode::<SeatRecord>(Kind::UndecodableSeat, entry).map(|seat| seat.user);
        if let Look::First(links) = &mut self.look {
            links.sit(seat, user.as_ref());
        }
    }

    /// Keeps the addresses of a record until their reservations are seen.
    fn see_listed(&mut self, holdings: &Holdings) {
        for (network, address) in &holdings.listed {
            let is_reserved = self.networks.get(network).is_some_and(|seen| seen.ips.contains_key(address));
            if !is_reserved {
                self.listed.entry(network.clone()).or_default().insert(*address);
            }
        }
    }

    fn see_tombstone(&mut self, entry: &Entry) {
        self.counts.tombstones += 1;
        if self.decode::<Tombstone>(Kind::UndecodableTombstone, entry).is_some() {
            self.goes_with_lease(entry);
        }
    }

    /// Only the existence of the key decides: it counts even if it does not decode.
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
        let Some(asked) = asked else { return };
        self.asked.push(AskedSeen { asked, created: entry.create_revision, written: entry.mod_revision });
        self.asked_keys.push(entry.key.clone());
    }

    fn see_lasting_note<R: Record>(&mut self, entry: &Entry) {
        self.lives_without_lease(entry);
        self.decode::<R>(Kind::UndecodableNote, entry);
    }

    fn see_lacking(&mut self, entry: &Entry, address: Addr) {
        let Some(lacking) = self.decode::<Lacking>(Kind::UndecodableNote, entry) else { return };
        match lacking.certain {
            true => self.lives_without_lease(entry),
            false => self.goes_with_lease(entry),
        }
        self.lacking.push((entry.key.clone(), address, lacking));
    }

    /// Takes a note. No address depends on it, but a pass may wait for it to vanish.
    fn see_note<R: Record>(&mut self, entry: &Entry) {
        if self.decode::<R>(Kind::UndecodableNote, entry).is_some() {
            self.goes_with_lease(entry);
        }
    }

    /// A key on no lease was written with another tool. It is not deleted, because then the next pass would free the
    /// address.
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
        let what = "hangs on no lease, so it would stay forever";
        if entry.lease == 0 && self.find(Kind::StaleWithoutLease, entry, what) {
            self.stale.push((entry.key.clone(), entry.mod_revision));
        }
    }
}

/// True if a record fits its owner's kind. The record of a hold has a note. That of an address which is set aside has
/// no other address, and that of a pod's name is no pod's.
fn is_of_kind(record: &OwnerRecord, kind: &OwnerKind) -> bool {
    match kind {
        OwnerKind::Container(_) => record.hold.is_none(),
        OwnerKind::Subject(_) => {
            let is_hold = record.hold.is_some() && record.seat.is_none() && record.labels.pod.is_unknown();
            is_hold && record.addresses.iter().all(|held| held.network.is_some())
        }
        OwnerKind::Aside(network, address) => {
            record.hold.is_some() && record.reserved().eq([(network, *address)])
        }
        OwnerKind::Unknown => false,
    }
}

/// True if a cursor's value is an address: 32 hex digits, as in keys, or the form that people write.
fn is_address(value: &[u8]) -> bool {
    std::str::from_utf8(value).is_ok_and(|text| {
        let hex = text.len() == 32 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        hex || text.parse::<IpAddr>().is_ok()
    })
}
