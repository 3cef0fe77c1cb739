//! All held addresses of a tree, as rows. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::net::IpAddr;
use std::rc::Rc;

use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

use super::filter::{Filter, Place};
use super::table::{CellForm, Column, Listed, or_dash, table};
use metes_core::keys::{Key, Keys, NetworkAddress};
use metes_core::plan::pool_change::StoredPools;
use metes_core::pool::{
    Addr, AskedRanges, AskedSeen, FromPool, HoldNote, Keep, Labels, NetworkName, Owner, OwnerKind,
    OwnerRecord, Pod, PodUid, PoolName, Range, RangeCounts, Record, Reservation, SeatRecord, Undecodable,
};
use metes_core::txn::Entry;

/// One held address, as far as it is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Row {
    /// The network; none for a static address that is only recorded.
    pub(super) network: Option<NetworkName>,
    pub(super) address: Addr,
    /// The holder and the time since when; none if the reservation does not decode.
    pub(super) holder: Option<Holder>,
    /// The pool that it was taken from, and what the pool said of it; none if a configuration's own range gave it.
    pub(super) pool: Option<FromPool>,
    /// It stays with its pod's name; none if it ends with its container. The holder is the container that uses it;
    /// while none does, the hold itself.
    pub(super) kept: Option<Kept>,
}

/// An address that stays with a pod's name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Kept {
    /// For how many seconds it stays after its last use; none: until a person ends it.
    #[serde(rename = "for")]
    pub(super) seconds: Option<u64>,
    /// True if a container uses it.
    pub(super) used: bool,
    /// The hold.
    #[serde(skip)]
    pub(super) hold: Owner,
}

impl Kept {
    pub(super) fn words(&self) -> String {
        let time = Keep::of_seconds(self.seconds).to_string();
        if self.used { time } else { format!("{time}, unused") }
    }
}

/// The holder of an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Holder {
    pub(super) owner: Owner,
    /// By the owner's record; of nobody while that is not known.
    pub(super) labels: Rc<Labels>,
    /// Since when; none for an address that is only recorded.
    pub(super) created_at: Option<String>,
    /// Why the address is set aside; none if a container has it.
    pub(super) hold: Option<HoldNote>,
}

impl Holder {
    /// The owner, and the note if the address is set aside; nothing else of the record.
    pub(super) fn identity(&self) -> (&Owner, Option<&HoldNote>) {
        (&self.owner, self.hold.as_ref())
    }

    /// The holder by a reservation.
    pub(super) fn of(record: Reservation) -> Self {
        let Reservation { owner, created_at, hold, .. } = record;
        let hold = hold.filter(|_| !owner.is_for_subject());
        let holder = Self { owner, labels: Rc::default(), created_at: Some(created_at), hold };
        holder.labelled(&Rc::default())
    }

    /// With the labels of its record. A hold for a pod's name has that pod.
    pub(super) fn labelled(self, labels: &Rc<Labels>) -> Self {
        let labels = match self.owner.kind() {
            OwnerKind::Subject(subject) => {
                Rc::new(Labels { pod: subject.into(), cni_network: labels.cni_network.clone() })
            }
            OwnerKind::Container(_) | OwnerKind::Aside(..) | OwnerKind::Unknown => labels.clone(),
        };
        Self { labels, ..self }
    }

    /// The user of a seat.
    fn seated(SeatRecord { user, labels, taken_at, .. }: SeatRecord) -> Self {
        Self { owner: user, labels: labels.into(), created_at: Some(taken_at), hold: None }
    }

    /// The pod, as far as it is known, or why the address is set aside.
    pub(super) fn words(&self) -> Option<String> {
        let pod = &self.labels.pod;
        match &self.hold {
            Some(hold) => Some(format!("set aside: {}", hold.note)),
            None => known(&pod.name).map(|name| format!("{}/{name}", pod.namespace)),
        }
    }
}

/// A record that does not decode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Unreadable {
    /// The network that it belongs to, if it belongs to one.
    pub(super) network: Option<NetworkName>,
    /// The owner, if it is an owner's record.
    pub(super) owner: Option<Owner>,
    /// The key and what is wrong.
    pub(super) what: String,
}

/// An owner record, as far as it is kept.
#[derive(Debug)]
pub(super) struct OwnerSeen {
    /// Its mod revision.
    pub(super) revision: i64,
    labels: Rc<Labels>,
}

/// All held addresses, and the ranges that their owners were attached through.
#[derive(Debug, Default)]
pub(super) struct Inventory {
    /// The addresses; [`Inventory::sorted`] puts them in order.
    pub(super) rows: Vec<Row>,
    /// Everybody who has an owner record.
    pub(super) owners: BTreeMap<Owner, OwnerSeen>,
    /// The ranges that configurations ask for.
    pub(super) asked: Vec<AskedSeen>,
    /// The addresses that are cooling, with their networks.
    pub(super) cooling: BTreeSet<NetworkAddress>,
    /// Values that do not decode.
    pub(super) unreadable: Vec<Unreadable>,
    /// The pools, and what a change of them relies on.
    pub(super) pools: StoredPools,
    /// The addresses that owners have from pools.
    from_pools: BTreeMap<(NetworkName, Addr), (Owner, FromPool)>,
    /// The users of holds for pods.
    seats: BTreeMap<Owner, Holder>,
}

impl Inventory {
    /// Takes one key.
    pub(super) fn see(&mut self, keys: &Keys, entry: &Entry) {
        self.pools.see(keys, entry);
        match keys.parse(&entry.key) {
            Ok(Key::Ip(network, address)) => self.see_reservation(entry, network, address),
            Ok(Key::Cooling(network, address)) => _ = self.cooling.insert((network, address)),
            Ok(Key::Owner(owner)) => self.see_owner(entry, owner, OwnerRecord::decode(&entry.value)),
            Ok(Key::Seat(seat)) => {
                let user = self.readable(entry, (None, None), SeatRecord::decode(&entry.value));
                self.seats.extend(user.map(|user| (seat.hold, Holder::seated(user))));
            }
            Ok(Key::Asked(_)) => self.see_asked(entry),
            _ => {}
        }
    }

    fn see_reservation(&mut self, entry: &Entry, network: NetworkName, address: Addr) {
        let record = self.readable(entry, (Some(&network), None), Reservation::decode(&entry.value));
        let kept = record.as_ref().and_then(|record| match record.owner.kind() {
            OwnerKind::Subject(_) => Some(Kept {
                seconds: record.hold.as_ref().and_then(|hold| hold.seconds),
                used: false,
                hold: record.owner.clone(),
            }),
            OwnerKind::Container(_) | OwnerKind::Aside(..) | OwnerKind::Unknown => None,
        });
        let holder = record.map(Holder::of);
        self.rows.push(Row { network: Some(network), address, holder, pool: None, kept });
    }

    /// Takes the key of an owner, whose value was decoded.
    pub(super) fn see_owner(
        &mut self,
        entry: &Entry,
        owner: Owner,
        record: Result<OwnerRecord, Undecodable>,
    ) {
        let Some(record) = self.readable(entry, (None, Some(&owner)), record) else { return };
        let labels = Rc::new(record.labels);
        let holder = Holder { owner: owner.clone(), labels: labels.clone(), created_at: None, hold: None };
        let recorded = record.addresses.iter().filter(|held| held.network.is_none());
        self.rows.extend(recorded.map(|held| Row {
            network: None,
            address: Addr::from(held.address),
            holder: Some(holder.clone()),
            pool: None,
            kept: None,
        }));
        for held in record.addresses {
            if let (Some(network), Some(pool)) = (held.network, held.pool) {
                self.from_pools.insert((network, Addr::from(held.address)), (owner.clone(), pool));
            }
        }
        self.owners.insert(owner, OwnerSeen { revision: entry.mod_revision, labels });
    }

    fn see_asked(&mut self, entry: &Entry) {
        let (created, written) = (entry.create_revision, entry.mod_revision);
        let asked = self.readable(entry, (None, None), AskedRanges::decode(&entry.value));
        self.asked.extend(asked.map(|asked| AskedSeen { asked, created, written }));
    }

    /// A record, if it decodes; else that is noted.
    fn readable<R>(
        &mut self,
        entry: &Entry,
        (network, owner): (Option<&NetworkName>, Option<&Owner>),
        record: Result<R, Undecodable>,
    ) -> Option<R> {
        let unreadable = |why| Unreadable {
            network: network.cloned(),
            owner: owner.cloned(),
            what: format!("{}: {why}", String::from_utf8_lossy(&entry.key)),
        };
        record.map_err(|why| self.unreadable.push(unreadable(why))).ok()
    }

    /// True if the owner's record was read, whether it decodes or not.
    pub(super) fn has_read(&self, owner: &Owner) -> bool {
        self.owners.contains_key(owner)
            || self.unreadable.iter().any(|unreadable| unreadable.owner.as_ref() == Some(owner))
    }

    /// Takes out the rows whose owners have no record, as far as that was read.
    pub(super) fn take_rows_without_record(&mut self) -> Vec<Row> {
        let rows = std::mem::take(&mut self.rows);
        let (known, left) =
            rows.into_iter().partition(|row| row.owner().is_none_or(|owner| self.has_read(owner)));
        self.rows = known;
        left
    }

    /// Adds the contents of another inventory.
    pub(super) fn take(&mut self, other: Self) {
        self.rows.extend(other.rows);
        self.owners.extend(other.owners);
        self.asked.extend(other.asked);
        self.cooling.extend(other.cooling);
        self.unreadable.extend(other.unreadable);
        self.from_pools.extend(other.from_pools);
        self.seats.extend(other.seats);
    }

    /// By network, then by address; what is only recorded last. Each row knows its pod and its pool then, and stands
    /// there once.
    pub(super) fn sorted(mut self) -> Self {
        for row in &mut self.rows {
            let seen = row.owner().and_then(|owner| self.owners.get(owner));
            if let Some(OwnerSeen { labels, .. }) = seen {
                row.holder = row.holder.take().map(|holder| holder.labelled(labels));
            }
            let Some(kept) = &mut row.kept else { continue };
            if let Some(user) = self.seats.get(&kept.hold) {
                (kept.used, row.holder) = (true, Some(user.clone()));
            }
        }
        self.rows.sort_by(|a, b| a.order().cmp(&b.order()));
        self.rows.dedup_by(|a, b| a.order() == b.order());
        if !self.from_pools.is_empty() {
            for row in &mut self.rows {
                let Some(network) = row.network.clone() else { break };
                let from = self.from_pools.remove(&(network, row.address));
                let is_its = |owner: &Owner| {
                    row.owner() == Some(owner) || row.kept.as_ref().is_some_and(|kept| kept.hold == *owner)
                };
                row.pool = from.filter(|(owner, _)| is_its(owner)).map(|(_, pool)| pool);
            }
        }
        self
    }

    /// The rows of a network from `first` to `last`.
    pub(super) fn between(&self, network: &NetworkName, first: Addr, last: Addr) -> &[Row] {
        let begin = self.rows.partition_point(|row| row.place() < (false, Some(network), first));
        let end = self.rows.partition_point(|row| row.place() <= (false, Some(network), last));
        &self.rows[begin..end.max(begin)]
    }

    /// The number of held and free addresses of a range.
    pub(super) fn counts(&self, range: &Range) -> RangeCounts {
        let (network, first, last) = (range.network().clone(), range.first(), range.last());
        let held = self.between(&network, first, last).iter().map(|row| (row.address, row.is_set_aside()));
        let cooling = self.cooling.range((network.clone(), first)..=(network.clone(), last));
        RangeCounts::of(range, held, cooling.map(|(_, address)| *address))
    }
}

/// So many holders are named before they are only counted.
const HOLDERS_NAMED: usize = 20;

/// A table of who holds what, of at most [`HOLDERS_NAMED`] lines.
pub(super) fn holders(rows: &[&Row]) -> String {
    let cells = |row: &&Row| {
        let (holder, owner) = (row.holder.as_ref(), row.container());
        [
            row.address.to_string(),
            or_dash(owner.map(Owner::cluster_or_dash)),
            or_dash(owner.map(|owner| owner.node.as_str())),
            or_dash(row.holder_words().as_deref()),
            or_dash(holder.and_then(|holder| holder.created_at.as_deref())),
            or_dash(owner.map(|owner| owner.container_id.as_str())),
        ]
    };
    let named: Vec<[String; 6]> = rows.iter().take(HOLDERS_NAMED).map(cells).collect();
    let text = table(["ADDRESS", "CLUSTER", "NODE", "POD", "SINCE", "CONTAINER"], &named);
    let mut text: String = text.lines().map(|line| format!("    {line}\n")).collect();
    if rows.len() > HOLDERS_NAMED {
        let _ = writeln!(text, "    and {} more", rows.len() - HOLDERS_NAMED);
    }
    text
}

impl Row {
    fn place(&self) -> (bool, Option<&NetworkName>, Addr) {
        (self.network.is_none(), self.network.as_ref(), self.address)
    }

    fn order(&self) -> ((bool, Option<&NetworkName>, Addr), Option<&Owner>) {
        (self.place(), self.owner())
    }

    /// The owner, if it is known.
    pub(super) fn owner(&self) -> Option<&Owner> {
        self.holder.as_ref().map(|holder| &holder.owner)
    }

    /// The owner, if it is known and is a container; none if the address is set aside, or kept for a pod that is gone.
    pub(super) fn container(&self) -> Option<&Owner> {
        let is_kept = self.kept.as_ref().is_some_and(|kept| !kept.used);
        self.owner().filter(|_| !is_kept && !self.is_set_aside())
    }

    /// True if no container has it, because it is set aside.
    pub(super) fn is_set_aside(&self) -> bool {
        self.holder.as_ref().is_some_and(|holder| holder.hold.is_some())
    }

    /// The holder in words, or the note of the hold; none if neither is known.
    pub(super) fn holder_words(&self) -> Option<String> {
        self.holder.as_ref().and_then(Holder::words)
    }

    /// True if it is among those that are meant.
    pub(super) fn is_wanted(&self, filter: &Filter) -> bool {
        let nobody = Pod::default();
        let pod = self.holder.as_ref().map_or(&nobody, |holder| &holder.labels.pod);
        filter.network.as_ref().is_none_or(|network| self.network.as_ref() == Some(network))
            && self.is_at(&filter.place)
            && filter.is_of(pod)
    }

    /// True if it was taken from that pool.
    pub(super) fn is_from(&self, pool: &PoolName) -> bool {
        self.pool.as_ref().is_some_and(|from| from.name == *pool)
    }

    /// True if its owner is there; one that is not known, or no container, is nowhere in particular.
    fn is_at(&self, place: &Place) -> bool {
        self.container().map_or(place.is_anywhere(), |owner| place.holds(owner))
    }
}

/// One row as programs see it; what is not known is null.
impl Serialize for Row {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let holder = self.holder.as_ref();
        let owner = self.container();
        let pod = holder.map(|holder| &holder.labels.pod);
        let pod = PodJson {
            namespace: pod.and_then(|pod| known(&pod.namespace)),
            name: pod.and_then(|pod| known(&pod.name)),
            uid: pod.and_then(|pod| pod.uid.as_ref()),
        };
        let mut map = serializer.serialize_map(Some(12))?;
        map.serialize_entry("network", &self.network)?;
        map.serialize_entry::<_, IpAddr>("address", &self.address.ip())?;
        map.serialize_entry("pool", &self.pool.as_ref().map(|pool| &pool.name))?;
        map.serialize_entry("container_id", &owner.map(|owner| &owner.container_id))?;
        map.serialize_entry("ifname", &owner.map(|owner| &owner.ifname))?;
        map.serialize_entry("pod", &pod)?;
        map.serialize_entry("node", &owner.map(|owner| &owner.node))?;
        map.serialize_entry("cluster", &owner.and_then(|owner| owner.cluster.as_ref()))?;
        let container = holder.filter(|holder| holder.hold.is_none());
        map.serialize_entry("cni_network", &container.map(|holder| &holder.labels.cni_network))?;
        map.serialize_entry("created_at", &holder.and_then(|holder| holder.created_at.as_ref()))?;
        map.serialize_entry("hold", &holder.and_then(|holder| holder.hold.as_ref()))?;
        map.serialize_entry("kept", &self.kept)?;
        map.end()
    }
}

/// The columns of held addresses.
pub(super) const COLUMNS: [Column; 12] = [
    Column::new("NETWORK", CellForm::Name),
    Column::new("ADDRESS", CellForm::Whole),
    Column::new("CLUSTER", CellForm::Name).spare(3),
    Column::new("NODE", CellForm::Name).spare(1),
    Column::new("POD", CellForm::Name),
    Column::new("IFNAME", CellForm::Name).spare(2),
    Column::new("SINCE", CellForm::Time("AGE")),
    Column::new("CONTAINER", CellForm::Id).spare(4),
    Column::new("POOL", CellForm::Name).wide(),
    Column::new("KEPT", CellForm::Whole).wide(),
    Column::new("UID", CellForm::Whole).wide(),
    Column::new("CNI", CellForm::Name).wide(),
];

impl Listed for Row {
    fn cells(&self) -> Vec<String> {
        let (holder, owner) = (self.holder.as_ref(), self.container());
        let labels = holder.map(|holder| &holder.labels);
        let uid = labels.and_then(|labels| labels.pod.uid.as_ref());
        let (address, words) = (self.address.to_string(), self.holder_words());
        let kept = self.kept.as_ref().map(Kept::words);
        let cells = [
            self.network.as_ref().map(NetworkName::as_str),
            Some(&*address),
            owner.map(Owner::cluster_or_dash),
            owner.map(|owner| owner.node.as_str()),
            words.as_deref(),
            owner.map(|owner| owner.ifname.as_str()),
            holder.and_then(|holder| holder.created_at.as_deref()),
            owner.map(|owner| owner.container_id.as_str()),
            self.pool.as_ref().map(|pool| pool.name.as_str()),
            kept.as_deref(),
            uid.map(PodUid::as_str),
            labels.map(|labels| &*labels.cni_network),
        ];
        cells.map(or_dash).to_vec()
    }

    /// Its network, or nothing, a slash and the address.
    fn name(&self) -> String {
        format!("{}/{}", self.network.as_ref().map_or("", NetworkName::as_str), self.address)
    }
}

#[derive(Serialize)]
struct PodJson<'a> {
    namespace: Option<&'a str>,
    name: Option<&'a str>,
    uid: Option<&'a PodUid>,
}

/// A label that may be empty because nobody gave it.
fn known(label: &str) -> Option<&str> {
    (!label.is_empty()).then_some(label)
}
