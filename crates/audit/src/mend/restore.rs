//! Puts back the keys that mends have deleted or replaced, from the file that keeps them.
//!
//! All that an owner had goes into one transaction: its record, reservations, bits and pod index. It compares that
//! nothing stands there since.

use std::collections::BTreeSet;

use super::kept::KeptGroup;
use super::plan::{name, pod_of, shown};
use super::{Report, TRIES};
use metes_core::builder::{BitChanges, Builder};
use metes_core::keys::{Bytes, Key, Keys, LeaseId};
use metes_core::pool::{Addr, NetworkName, Owner, OwnerRecord, PodIndex, Record, Reservation, SeatRecord};
use metes_core::snapshot::Snapshot;
use metes_core::txn::{Compare, Entry, Txn};
use metes_engine::kv::{Failure, Kv};
use metes_engine::session::Session;

/// The part that restores of one file have in common.
#[derive(Debug, Clone, Copy)]
pub struct Restores<'a> {
    /// The time that a reservation gets that is made again.
    now: &'a str,
    /// The mod revision that meta must have.
    meta_revision: i64,
}

/// The remedy for the loss of all that one owner had, or of one key.
#[derive(Debug)]
pub enum Restoring {
    /// This, after somebody has agreed.
    Possible(Restore),
    /// Nothing is missing.
    Stands,
    /// Nothing has to be, for these reasons.
    Needless(Vec<String>),
    /// Nothing, for these reasons.
    Refused(Vec<String>),
}

/// A restore of one group.
#[derive(Debug)]
pub struct Restore {
    /// The writes of the restore.
    pub does: Vec<String>,
    /// The parts of the group that are not put back, each with its reason.
    pub leaves: Vec<String>,
    txn: Txn,
}

impl<'a> Restores<'a> {
    /// The restores in the tree that an audit read, at this time (RFC 3339, for people). None if this program may not
    /// write to it.
    #[must_use]
    pub fn of(report: &Report, now: &'a str) -> Option<Self> {
        report.repairs.meta_revision.map(|meta_revision| Self { now, meta_revision })
    }
}

/// Reads the keys at the place of a group, and plans its restore.
///
/// # Errors
/// [`Failure`]
pub async fn look<K: Kv>(
    session: Session<'_, K>,
    restores: Restores<'_>,
    group: &KeptGroup,
) -> Result<Restoring, Failure> {
    let leases: BTreeSet<i64> = group.entries.iter().map(|entry| entry.lease).filter(|id| *id != 0).collect();
    let leases = session.lease_ages(leases).await?.into_keys().collect();
    let mut seen = Snapshot::default();
    loop {
        let mut planner = RestorePlanner {
            keys: session.keys,
            restores,
            leases: &leases,
            builder: Builder::new("restore", &seen),
            bits: BitChanges::default(),
            does: Vec::new(),
            leaves: Vec::new(),
            refused: Vec::new(),
        };
        planner.plan(group);
        match planner.finish() {
            Ok(restoring) => return Ok(restoring),
            Err(missing) => session.read(&missing, &mut seen).await?,
        }
    }
}

impl Restore {
    /// Commits it. If others have only written pages and summaries meanwhile, it is planned anew. Returns whether it
    /// was applied: else something else stands there by now, and nothing was written.
    ///
    /// # Errors
    /// [`Failure`]; with one that leaves the outcome open, another restore shows it.
    pub async fn carry_out<K: Kv>(
        self,
        session: Session<'_, K>,
        restores: Restores<'_>,
        group: &KeptGroup,
    ) -> Result<bool, Failure> {
        let mut restore = self;
        for _ in 0..TRIES {
            if session.txn(&restore.txn).await?.succeeded {
                return Ok(true);
            }
            match look(session, restores, group).await? {
                Restoring::Possible(again) if again.does == restore.does => restore = again,
                _ => return Ok(false),
            }
        }
        Ok(false)
    }
}

/// Plans the restore of one group, from the keys that were read. Pure.
struct RestorePlanner<'a> {
    keys: &'a Keys,
    restores: Restores<'a>,
    /// The leases that still live.
    leases: &'a BTreeSet<i64>,
    builder: Builder<'a>,
    bits: BitChanges,
    does: Vec<String>,
    leaves: Vec<String>,
    refused: Vec<String>,
}

impl RestorePlanner<'_> {
    fn plan(&mut self, group: &KeptGroup) {
        for entry in &group.entries {
            self.put_back(group, entry);
        }
        let Some(owner) = &group.owner else { return };
        let own = self.keys.owner(owner);
        match group.entries.iter().find(|entry| entry.key == own) {
            Some(entry) => self.put_rest(owner, OwnerRecord::decode(&entry.value).ok()),
            None => self.builder.unchanged(own),
        }
    }

    fn put_back(&mut self, group: &KeptGroup, entry: &Entry) {
        let key = self.keys.parse(&entry.key).ok();
        if let Some(why) = self.not_put_back(key.as_ref(), entry) {
            self.leaves.push(format!("{}: {why}", name(entry)));
            return;
        }
        self.builder.unchanged(entry.key.clone());
        match self.builder.seen().entry(&entry.key) {
            _ if matches!(key, Some(Key::Pool(_))) => {
                let why = "`metes pool apply` writes a pool, and the file has its text";
                return self.refused.push(format!("{}: {why}", name(entry)));
            }
            Some(standing) if stands_for(group, key.as_ref(), entry, standing) => return,
            Some(standing) => {
                let words = self.standing_words(key.as_ref(), standing);
                return self.refused.push(words);
            }
            None => {}
        }
        self.does.push(words(key.as_ref(), entry));
        let lease = self.leases.get(&entry.lease).filter(|_| goes_with_lease(key.as_ref()));
        match lease {
            Some(lease) => self.builder.put_on(entry.key.clone(), entry.value.clone(), LeaseId(*lease)),
            None => self.builder.put(entry.key.clone(), entry.value.clone()),
        }
        if let Some(Key::Ip(network, address)) = key {
            self.hold(&network, address);
        }
    }

    /// The reason why a key is not put back.
    fn not_put_back(&self, key: Option<&Key>, entry: &Entry) -> Option<&'static str> {
        match key {
            Some(Key::Page(..) | Key::Summary(..)) => Some("bits follow from what is held"),
            Some(Key::PoolChanges) => Some("it follows from the pools"),
            key if goes_with_lease(key) && entry.lease != 0 && !self.leases.contains(&entry.lease) => {
                Some("the lease that it hung on is over, and it would be, too")
            }
            _ => None,
        }
    }

    /// Puts back the parts of an owner's record that were missing, or another's, when it was freed.
    fn put_rest(&mut self, owner: &Owner, record: Option<OwnerRecord>) {
        let tombstone = self.keys.tombstone(owner);
        self.builder.unchanged(tombstone.clone());
        if self.builder.seen().entry(&tombstone).is_some() {
            self.refused.push(format!("a DEL of {owner} was there since"));
        }
        let Some(record) = record else { return };
        for (network, address) in record.reserved() {
            let key = self.keys.ip(network, address);
            self.builder.unchanged(key.clone());
            match self.builder.seen().entry(&key) {
                None => self.reserve(owner, &record, (network, address), key),
                Some(standing) if reserved_for(standing).as_ref() == Some(owner) => {}
                Some(standing) => {
                    let words = self.standing_words(Some(&Key::Ip(network.clone(), address)), standing);
                    if !self.refused.contains(&words) {
                        self.refused.push(words);
                    }
                }
            }
        }
    }

    /// Makes the reservation of an address that a record lists, if it is not put back already.
    fn reserve(
        &mut self,
        owner: &Owner,
        record: &OwnerRecord,
        (network, address): (&NetworkName, Addr),
        key: Bytes,
    ) {
        let does = format!("reserves {address} of network {network}");
        if self.does.contains(&does) {
            return;
        }
        let reservation = Reservation::of_record(owner, record, self.restores.now.to_owned());
        self.builder.put(key, reservation.encode());
        self.does.push(does);
        self.hold(network, address);
    }

    /// The holder of a key that is not free, in words.
    fn standing_words(&mut self, key: Option<&Key>, standing: &Entry) -> String {
        match (key, Reservation::decode(&standing.value), PodIndex::decode(&standing.value)) {
            (Some(Key::Ip(network, address)), Ok(Reservation { owner, .. }), _) => {
                let own = self.keys.owner(&owner);
                self.builder.unchanged(own.clone());
                let pod = pod_of(self.builder.seen(), &own);
                format!("{address} of network {network} is reserved for {owner}{pod}")
            }
            (Some(Key::Pod(interface)), _, Ok(index)) => {
                format!("the pod's index names {}", interface.owner(index))
            }
            (Some(Key::Owner(owner)), ..) => format!("{owner} has another record since"),
            _ => format!("{} has another value since: {}", name(standing), shown(&standing.value)),
        }
    }

    /// The bit of an address that is reserved again. It does not cool any longer.
    fn hold(&mut self, network: &NetworkName, address: Addr) {
        self.bits.set(network, address);
        let cooling = self.keys.cooling(network, address);
        self.builder.unchanged(cooling.clone());
        if self.builder.seen().entry(&cooling).is_some() {
            self.builder.delete(cooling);
        }
    }

    fn finish(mut self) -> Result<Restoring, Vec<Bytes>> {
        self.bits.plan(self.keys, &mut self.builder);
        let mut txn = self.builder.finish()?;
        txn.compares.push(Compare::Mod(self.keys.meta(), self.restores.meta_revision));
        if !txn.fits() {
            self.refused.push("it is too large for one transaction of etcd".to_owned());
        }
        Ok(match (&self.refused[..], &self.does[..], &self.leaves[..]) {
            ([], [], []) => Restoring::Stands,
            ([], [], _) => Restoring::Needless(self.leaves),
            ([], ..) => Restoring::Possible(Restore { does: self.does, leaves: self.leaves, txn }),
            _ => Restoring::Refused(self.refused),
        })
    }
}

/// True if a key exists for a time only.
fn goes_with_lease(key: Option<&Key>) -> bool {
    let lasts = matches!(
        key,
        Some(
            Key::Meta
                | Key::Owner(_)
                | Key::Ip(..)
                | Key::Pod(_)
                | Key::Seat(_)
                | Key::Cursor(..)
                | Key::Cluster(_)
                | Key::Seen(..)
                | Key::Asked(_)
        )
    );
    !lasts
}

/// True if the standing value is the same, or says the same of the owner.
fn stands_for(group: &KeptGroup, key: Option<&Key>, entry: &Entry, standing: &Entry) -> bool {
    let named = match key {
        Some(Key::Ip(..)) => reserved_for(standing),
        Some(Key::Pod(interface)) => {
            PodIndex::decode(&standing.value).ok().map(|index| interface.owner(index))
        }
        Some(Key::Seat(_)) => SeatRecord::decode(&standing.value).ok().map(|seat| seat.user),
        _ => None,
    };
    standing.value == entry.value || named.is_some() && named == group.owner
}

fn reserved_for(standing: &Entry) -> Option<Owner> {
    Reservation::decode(&standing.value).ok().map(|record| record.owner)
}

/// A write, in words.
fn words(key: Option<&Key>, entry: &Entry) -> String {
    match key {
        Some(Key::Ip(network, address)) => format!("reserves {address} of network {network}"),
        Some(Key::Owner(owner)) => format!("writes the record of {owner} as it was"),
        Some(Key::Pod(_)) => "names it in the index of its pod".to_owned(),
        _ => format!("writes {} as it was: {}", name(entry), shown(&entry.value)),
    }
}
