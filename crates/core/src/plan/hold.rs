//! Setting an address aside, as a pure change: an owner of its own kind gets an ordinary reservation and its bit. So an
//! ADD steps over the address as over any other that is held.
//!
//! The commit has no fence. It compares the owner record and the page. Whoever repeats or ends the hold writes one of
//! them, so a copy of the commit that arrives late does nothing.

use super::change::{Change, Commit, Step};
use super::given;
use super::refused::Holder;
use crate::builder::{self, BitChanges, Builder};
use crate::fence::Fence;
use crate::keys::{Bytes, Keys, Scope};
use crate::line::Line;
use crate::meta::{self, OutOfService};
use crate::pool::{Addr, HoldNote, Meta, NetworkName, Owner, OwnerRecord, Record, Reservation};
use crate::snapshot::{BadRecord, Snapshot};

/// The request of an operator.
#[derive(Debug, Clone)]
pub struct HoldRequest {
    /// The network of the address.
    pub network: NetworkName,
    /// The address.
    pub address: Addr,
    /// Why it is set aside, and for how long.
    pub hold: HoldNote,
    /// When, RFC 3339 in UTC; for people only.
    pub created_at: String,
}

/// The result of setting an address aside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HoldMade {
    /// It is set aside now.
    New,
    /// It was set aside with the same note. Its time begins again, or does not end any more.
    Again,
    /// It was set aside with the same note and without an end. Nothing was written.
    Stands,
}

/// Why an address is not set aside. Nothing is written then.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HoldRefused {
    /// The store gives no addresses.
    #[error("the store takes no changes: {}", .0.words())]
    OutOfService(OutOfService),
    /// A record or a page does not decode.
    #[error("stored state cannot be decoded: {0}; `metes check` says more")]
    Bad(#[from] BadRecord),
    /// Somebody holds the address.
    #[error("{} has held the address since {}: choose another one, or wait until it is free", words(.0), .0.since)]
    Held(Box<Holder>),
    /// It is set aside already, with another note.
    #[error("it is set aside already: {}; `metes hold --remove` ends that", .0.note)]
    SetAside(HoldNote),
    /// Its reservation is there without the owner record, or the other way round.
    #[error("stored state contradicts itself: `metes check` says more")]
    Contradiction,
}

/// The holder of an address, with the pod if it is known.
fn words(Holder { owner, pod, .. }: &Holder) -> String {
    match pod.name.is_empty() {
        true => owner.to_string(),
        false => format!("pod {}/{} ({owner})", pod.namespace, pod.name),
    }
}

/// A request as a change of held addresses.
pub struct Holding<'a> {
    request: &'a HoldRequest,
    keys: &'a Keys,
    owner: Owner,
}

impl<'a> Holding<'a> {
    /// The change that `request` asks for.
    #[must_use]
    pub fn new(request: &'a HoldRequest, keys: &'a Keys) -> Self {
        Self { request, keys, owner: Owner::of_hold(&request.network, request.address) }
    }

    fn ip(&self) -> Bytes {
        self.keys.ip(&self.request.network, self.request.address)
    }

    fn page(&self) -> Bytes {
        self.keys.page(&self.request.network, self.request.address.page())
    }

    /// The key that exists as long as its time is not over.
    fn lasts(&self) -> Bytes {
        self.keys.hold(&self.request.network, self.request.address)
    }

    /// The result if the hold is written, or the reason why it is refused; [`HoldMade::Stands`] if there is nothing to
    /// write.
    fn judge(&self, reservation: Option<Reservation>, seen: &Snapshot) -> Result<HoldMade, HoldRefused> {
        if builder::bits(seen, &self.page()).is_none() {
            return Err(BadRecord::page(&self.page()).into());
        }
        let record = seen.record::<OwnerRecord>(&self.proof())?;
        let stands = match (reservation, record) {
            (None, None) => return Ok(HoldMade::New),
            (Some(_), Some(record)) => record.hold.ok_or(HoldRefused::Contradiction)?,
            _ => return Err(HoldRefused::Contradiction),
        };
        let wanted = &self.request.hold;
        let is_over = stands.seconds.is_some() && seen.entry(&self.lasts()).is_none();
        match stands {
            _ if is_over => Ok(HoldMade::New),
            stands if stands.note != wanted.note => Err(HoldRefused::SetAside(stands)),
            stands if stands.seconds.is_none() && wanted.seconds.is_none() => Ok(HoldMade::Stands),
            _ => Ok(HoldMade::Again),
        }
    }
}

impl Change for Holding<'_> {
    type Done = HoldMade;
    type Refused = HoldRefused;

    fn owner(&self) -> &Owner {
        &self.owner
    }

    /// It waits in no queue: which one its page belongs to is not known, and it asks for one address alone.
    fn scope(&self, _seen: &Snapshot) -> Option<Scope> {
        None
    }

    fn reads(&self, _seen: &Snapshot) -> Vec<Bytes> {
        let HoldRequest { network, address, .. } = self.request;
        let mut reads = vec![self.keys.meta(), self.proof(), self.lasts()];
        reads.extend(given::reads(self.keys, network, *address));
        reads
    }

    fn proof(&self) -> Bytes {
        self.keys.owner(&self.owner)
    }

    fn plan(&self, seen: &Snapshot, fence: &Fence, _line: &Line) -> Result<Step<HoldMade>, HoldRefused> {
        let HoldRequest { network, address, hold, created_at } = self.request;
        let reads = self.reads(seen);
        let are_read = reads.iter().all(|key| seen.knows(key));
        if !are_read || !given::is_read(self.keys, seen, network, *address) {
            return Ok(Step::read(reads));
        }
        let meta = seen.record::<Meta>(&self.keys.meta())?;
        meta::judge(meta.as_ref()).map_err(HoldRefused::OutOfService)?;
        let reservation = seen.record::<Reservation>(&self.ip())?;
        if let Some(other) = reservation.clone().filter(|found| found.owner != self.owner) {
            return match Holder::of(other, self.ip(), self.keys, seen) {
                Ok(holder) => Err(HoldRefused::Held(Box::new(holder))),
                Err(unread) => Ok(Step::read(unread)),
            };
        }
        let made = self.judge(reservation, seen)?;
        if made == HoldMade::Stands {
            return Ok(Step::Done(made));
        }
        let mut builder = Builder::new("hold", seen);
        builder.same_value(self.keys.meta());
        builder.unchanged(self.proof());
        // Whoever prolongs a hold writes its record too, so the key of its time need not be compared.
        builder.put(self.proof(), OwnerRecord::of_hold(network, *address, hold.clone()).encode());
        match (hold.seconds.and(fence.lease()), seen.entry(&self.lasts())) {
            (Some(lease), _) => builder.put_on(self.lasts(), Vec::new(), lease),
            (None, Some(_)) => builder.delete(self.lasts()),
            (None, None) => {}
        }
        let mut changes = BitChanges::default();
        let reservation = Reservation::of_hold(network, *address, hold.clone(), created_at.clone()).encode();
        given::reserve(self.keys, (network, *address), reservation, &mut builder, &mut changes);
        changes.plan(self.keys, &mut builder);
        match builder.planned() {
            Ok(planned) => Ok(Step::Commit(Commit::new(planned, Some(made), self.proof()))),
            Err(missing) => Ok(Step::read(missing)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::LeaseId;
    use crate::memory::Memory;
    use crate::plan::free::{Free, FreeGuard, Freed, Freeing, Mode};
    use crate::txn::Compare;

    struct World {
        keys: Keys,
        store: Memory,
    }

    fn request(note: &str, seconds: Option<u64>) -> HoldRequest {
        HoldRequest {
            network: NetworkName::default(),
            address: Addr(0xffff_0a00_0005),
            hold: HoldNote { note: note.to_owned(), seconds },
            created_at: String::new(),
        }
    }

    impl World {
        /// An empty prefix.
        fn new() -> Self {
            Self { keys: Keys::new("/m/"), store: Memory::default() }
        }

        fn founded() -> Self {
            let mut world = Self::new();
            world.store.put(world.keys.meta(), Meta::first("s".into()).encode());
            world
        }

        /// Carries out a change until it is done, as the driver does.
        fn run<C: Change>(&mut self, change: &mut C) -> Result<C::Done, C::Refused> {
            let fence = Fence::Unfenced { lease: Some(LeaseId(7)) };
            let mut seen = Snapshot::default();
            self.store.read(&change.reads(&seen), &mut seen);
            loop {
                match change.plan(&seen, &fence, &Line::default())? {
                    Step::Read(ops) => self.store.read_all(&ops, &mut seen),
                    Step::Done(done) => return Ok(done),
                    Step::Commit(commit) => {
                        assert!(self.store.apply(&commit.txn).succeeded, "nobody else is here");
                        return Ok(commit.done.expect("it is one step"));
                    }
                }
            }
        }

        fn hold(&mut self, request: &HoldRequest) -> Result<HoldMade, HoldRefused> {
            let keys = self.keys.clone();
            self.run(&mut Holding::new(request, &keys))
        }

        fn end(&mut self, only_if: &[Compare]) -> Freed {
            let keys = self.keys.clone();
            let owner = Owner::of_hold(&NetworkName::default(), request("", None).address);
            let revision = self.store.get(&keys.owner(&owner)).map_or(0, |entry| entry.mod_revision);
            let free = Free { only_if, ..Free::of(&owner, FreeGuard::AsRead(revision)) };
            self.run(&mut Freeing::new(free, &keys, Mode::Whole, None)).expect("all of it decodes")
        }

        fn lasts(&self) -> bool {
            self.store.keys().iter().any(|key| key.starts_with("/m/v1/hold/"))
        }
    }

    #[test]
    fn a_hold_is_whole_and_its_end_leaves_nothing() {
        let mut world = World::founded();
        assert_eq!(world.hold(&request("printer", None)), Ok(HoldMade::New));
        let hex = "00000000000000000000ffff0a00";
        let expected = [
            "/m/v1/meta".to_owned(),
            format!("/m/v1/net/default/ip/{hex}0005"),
            format!("/m/v1/net/default/page/{hex}0000"),
            format!("/m/v1/owner/-/@default/{hex}0005/hold"),
        ];
        assert_eq!(world.store.keys(), expected);
        let page = world.store.get(expected[2].as_bytes()).map(|entry| entry.value.clone());
        let bits = crate::pool::Bits::from_bytes(&page.expect("a page")).expect("512 bytes");
        assert_eq!(bits.ones().collect::<Vec<_>>(), [5]);
        assert!(matches!(world.end(&[]), Freed::Addresses(_)));
        assert_eq!(world.store.keys(), [expected[0].clone(), expected[2].clone()]);
        assert_eq!(world.end(&[]), Freed::Nothing);
    }

    #[test]
    fn the_same_note_again_changes_the_time_and_another_note_is_refused() {
        let mut world = World::founded();
        let (plain, timed) = (request("a", None), request("a", Some(60)));
        for (request, made, lasts) in [
            (&timed, HoldMade::New, true),
            (&timed, HoldMade::Again, true),
            (&plain, HoldMade::Again, false),
            (&plain, HoldMade::Stands, false),
            (&timed, HoldMade::Again, true),
        ] {
            assert_eq!((world.hold(request), world.lasts()), (Ok(made), lasts), "{request:?}");
        }
        assert_eq!(world.hold(&request("b", None)), Err(HoldRefused::SetAside(timed.hold)));
    }

    #[test]
    fn only_a_hold_whose_time_is_over_ends_or_is_replaced() {
        let mut world = World::founded();
        let lasts = Holding::new(&request("a", None), &world.keys).lasts();
        let is_over = &[Compare::Create(lasts.clone(), 0)];
        assert_eq!(world.hold(&request("a", Some(60))), Ok(HoldMade::New));
        assert_eq!(world.end(is_over), Freed::Younger);
        let gone = crate::txn::Op::Delete(lasts);
        let lease_ends = crate::txn::Txn { then: vec![gone], ..crate::txn::Txn::default() };
        world.store.apply(&lease_ends);
        assert_eq!(world.hold(&request("b", Some(60))), Ok(HoldMade::New), "another note may follow");
        world.store.apply(&lease_ends);
        assert!(matches!(world.end(is_over), Freed::Addresses(_)));
        // Somebody who removes it need not wait for its time.
        assert_eq!(world.hold(&request("a", Some(60))), Ok(HoldMade::New));
        assert!(matches!(world.end(&[]), Freed::Addresses(_)));
        assert!(!world.lasts());
    }

    #[test]
    fn nobody_is_driven_out_and_nothing_is_mended() {
        let keys = Keys::new("/m/");
        let (ip, page) = {
            let request = request("a", None);
            let holding = Holding::new(&request, &keys);
            (holding.ip(), holding.page())
        };
        let owner = Owner::named(["east", "n1", "c1", "eth0"]).expect("plain names");
        let other = Reservation::new(owner, String::new());
        let own = Reservation::of_hold(
            &NetworkName::default(),
            request("", None).address,
            request("a", None).hold,
            String::new(),
        );
        let meta = |change: fn(&mut Meta)| {
            let mut meta = Meta::first("s".into());
            change(&mut meta);
            (keys.meta(), meta.encode())
        };
        let sound = meta(|_| {});
        type Row = (&'static str, Vec<(Bytes, Vec<u8>)>, fn(&HoldRefused) -> bool);
        let rows: [Row; 7] = [
            ("held", vec![sound.clone(), (ip.clone(), other.encode())], |why| {
                matches!(why, HoldRefused::Held(_))
            }),
            ("half", vec![sound.clone(), (ip.clone(), own.encode())], |why| {
                *why == HoldRefused::Contradiction
            }),
            ("page", vec![sound.clone(), (page, b"?".to_vec())], |why| matches!(why, HoldRefused::Bad(_))),
            ("record", vec![sound, (ip.clone(), b"?".to_vec())], |why| matches!(why, HoldRefused::Bad(_))),
            ("no meta", vec![(keys.ip(&NetworkName::default(), Addr(1)), b"?".to_vec())], |why| {
                *why == HoldRefused::OutOfService(OutOfService::NoMeta)
            }),
            ("paused", vec![meta(|meta| meta.paused = Some("import".into()))], |why| {
                matches!(why, HoldRefused::OutOfService(OutOfService::Paused(_)))
            }),
            ("suspect", vec![meta(|meta| meta.suspect = Some(1))], |why| {
                matches!(why, HoldRefused::OutOfService(OutOfService::Suspect(1)))
            }),
        ];
        for (name, stored, is_right) in rows {
            let mut world = World::new();
            stored.into_iter().for_each(|(key, value)| world.store.put(key, value));
            let before = world.store.keys();
            let refused = world.hold(&request("a", None)).expect_err(name);
            assert!(is_right(&refused), "{name}: {refused:?}");
            assert_eq!(world.store.keys(), before, "{name}");
        }
    }
}
