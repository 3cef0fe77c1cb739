//! The verbs of CNI, one in each file, and what a run of any of them needs.

pub mod add;
pub mod check;
pub mod del;
pub mod errors;
pub mod gc;
pub mod status;

use std::cell::{Cell, RefCell};
use std::time::Duration;

use tokio::time::Instant;

use self::errors::OrCni;
use metes_config::cni::error::{Code, Error};
use metes_config::cni::request::Attachment;
use metes_core::cooling::CoolingLeases;
use metes_core::keys::{Bytes, LeaseId};
use metes_core::known::{HighWater, judged_by};
use metes_core::limits;
use metes_core::plan::ask::{Ask, RunStamp};
use metes_core::plan::free::{Former, Free, FreeGuard, Freed};
use metes_core::pool::{Caller, Clock, Labels, Meta, NodeRecord, Owner, PodUid, Record, RunStart, Wanted};
use metes_core::snapshot::Snapshot;
use metes_engine::endpoints::{self, NoStore};
use metes_engine::kv::{Failure, Kv};
use metes_engine::policy::{Witness, WitnessRun};
use metes_engine::prefix;
use metes_engine::random::{random, random_below, random_id};
use metes_engine::release::{self, FreeError, FreeHints, NotFreed};
use metes_engine::session::Session;
use metes_node::errors::{lost_state, other_store_used, suspect};
use metes_node::mark::{Hints, Mark, MarkFile, NodeLease};
use metes_node::node::{self, Identity};
use metes_node::owner_hints::OwnerHintFile;
use metes_node::remember::Leaving;
use metes_node::scope_hints::ScopeHintFiles;
use metes_node::spool::{Kept, Spool, Spooled};
use metes_node::state::NodeState;

/// A store that a verb has read.
enum Judged {
    /// It contradicts nothing that this node knows.
    Sound,
    /// It hands out no address: it is suspect, or the next ADD of this node will mark it so.
    Suspect(Error),
    /// It contradicts what this node knows, and another endpoint shows a store that does not. From here on only such
    /// endpoints are asked, so what was read must be read again.
    SoundElsewhere,
}

/// A run, as every verb sees it.
pub struct Run<'a, K> {
    /// The store; its deadline is the one by which the verb must have answered.
    pub session: Session<'a, K>,
    /// The node's identity.
    pub identity: &'a Identity,
    /// When this run began.
    pub start: RunStart,
    /// The present boot-time clock, in the form of a start.
    pub clock: &'a dyn Fn() -> RunStart,
    /// True if whoever called still waits for the answer.
    pub awaited: &'a dyn Fn() -> bool,
    /// Frees that wait for the store.
    pub spool: Spool,
    /// The store as this node has seen it.
    pub mark: MarkFile,
    /// The key that this node's runs leave in the store.
    own_key: Bytes,
    /// The node's files.
    node: &'a NodeState,
    /// The hints that runs of this node leave behind of each scope.
    pub scope_hints: ScopeHintFiles,
    /// The owners as their ADDs on this node have left them.
    pub owner_hints: OwnerHintFile,
    /// The store that all endpoints have shown to this run, if it has asked them.
    agreed: RefCell<Option<HighWater>>,
}

impl<'a, K: Kv> Run<'a, K> {
    /// A run of `node` that began at `start`.
    pub fn new(
        session: Session<'a, K>,
        node: &'a NodeState,
        start: RunStart,
        clock: &'a dyn Fn() -> RunStart,
        awaited: &'a dyn Fn() -> bool,
    ) -> Self {
        let (spool, mark) = (node.spool(), node.mark());
        let (own_key, scope_hints) = (session.keys.node(&node.identity.key()), node.scope_hints());
        let (identity, owner_hints) = (&node.identity, node.owner_hints());
        Self {
            session,
            identity,
            start,
            clock,
            awaited,
            spool,
            mark,
            own_key,
            node,
            scope_hints,
            owner_hints,
            agreed: RefCell::default(),
        }
    }

    /// The owner that a container's interface is on this node of this cluster.
    #[must_use]
    pub fn owner(&self, attachment: &Attachment) -> Owner {
        let Identity { node, cluster, .. } = self.identity.clone();
        let Attachment { container_id, ifname } = attachment.clone();
        Owner { node, container_id, ifname, cluster }
    }

    /// The request of an ADD of this run.
    #[must_use]
    pub fn ask(&self, owner: Owner, labels: Labels, wanted: impl Into<Wanted>) -> Ask {
        let (start, machine) = (self.start.clone(), self.identity.machine.clone());
        let stamp = RunStamp { start, machine, created_at: node::timestamp() };
        Ask::new(owner, labels, wanted, stamp)
    }

    /// Fails if nobody waits for the answer any more: there is no time left, or the calling process is gone, which
    /// would have used the address.
    ///
    /// The clock of the deadline stops while the host is suspended, but etcd's leases do not. When the run wakes up,
    /// the tombstone of a later DEL may have ended already. The clock of a start does not stop, so it is compared, too.
    ///
    /// # Errors
    /// Code 11.
    pub fn must_go_on(&self) -> Result<(), Error> {
        let has_overslept = node::has_outlasted(&self.start, &(self.clock)(), limits::ADD_DEADLINE);
        if Instant::now() >= self.session.until || has_overslept {
            return Err(errors::out_of_time());
        }
        if !(self.awaited)() {
            return Err(Error::new(Code::TryAgain, "the process that asked for an address is gone"));
        }
        Ok(())
    }

    /// True if it has met an etcd that is slow, overloaded or away.
    fn was_slow(&self) -> bool {
        node::has_outlasted(&self.start, &(self.clock)(), limits::SLOW_RUN)
    }

    /// The node's mark, as a verb begins: from here on its etcd is the one whose answers count.
    fn read_mark(&self) -> Option<Mark> {
        let mark = self.mark.read();
        let mark =
            mark.or_else(|| Some(Mark { seen: self.agreed.borrow().clone()?, hints: Hints::default() }));
        if let Some(mark) = &mark {
            self.session.kv.expect(mark.seen.etcd);
        }
        mark
    }

    /// The owner under the names that this machine had before. `mark` is the node's, as it was read.
    fn former(&self, owner: &Owner, mark: Option<&Mark>) -> Vec<Former> {
        let seen = self.last_seen(mark.map(|mark| mark.seen.clone()));
        self.node.names().former(self.session.keys, owner, seen.as_ref())
    }

    /// The store as this machine has seen it last: as the node `known` it, or in another cluster.
    fn last_seen(&self, known: Option<HighWater>) -> Option<HighWater> {
        known.or_else(|| self.mark.seen_by_machine())
    }

    /// The present knowledge of this node of the store.
    fn known(&self) -> Option<HighWater> {
        self.read_mark().map(|mark| mark.seen)
    }

    /// The node's mark. A node without one asks all endpoints which store they are, for `whole` at most, and makes the
    /// mark; none if they agree that there is no store, or if this machine has used another prefix.
    ///
    /// # Errors
    /// [`NoStore`]; then no answer of this etcd may be relied on.
    async fn mark_or_ask(&self, whole: Duration) -> Result<Option<Mark>, NoStore> {
        if let Some(mark) = self.read_mark() {
            return Ok(Some(mark));
        }
        let store = endpoints::ask_all(self.session, Some(&self.own_key), whole).await?;
        // With a mark, a prefix that was changed by mistake would count as one that this machine has used.
        Ok(store.filter(|_| self.node.other_prefix().is_none()).map(|store| self.make_mark(store)))
    }

    /// The node's mark, for an ADD. Where the endpoints agree that there is no store, it founds one, unless this
    /// machine has used another.
    ///
    /// # Errors
    /// A CNI error; then nothing was written but, at most, the meta of a store that has nothing else.
    async fn mark_or_found(&self) -> Result<Mark, Error> {
        if let Some(mark) = self.read_mark() {
            return Ok(mark);
        }
        if let Some(other) = self.node.other_prefix() {
            return Err(other.error(Code::StoredState));
        }
        if let Some(mark) = self.mark_or_ask(limits::ALL_ASKED).await.or_cni()? {
            return Ok(mark);
        }
        if let Some(other) = self.node.other_store() {
            return Err(other_store_used(&other));
        }
        let founded = endpoints::found(self.session, &Meta::first(random_id())).await.or_cni()?;
        Ok(self.make_mark(founded))
    }

    /// Begins to trust the store that more than half of the endpoints have shown. Should the mark not be written, this
    /// run knows it all the same.
    fn make_mark(&self, store: HighWater) -> Mark {
        // The mark of another cluster is replaced, and with it what it says of the machine's latest name.
        self.node.names().keep_present(self.session.keys, self.last_seen(None).as_ref());
        // A run that has put the own key has made the mark before.
        if self.mark.make(store.clone()) && store.key.is_some() {
            tracing::warn!("{}", lost_state(&self.node.folder));
        }
        self.agreed.replace(Some(store.clone()));
        self.read_mark().unwrap_or(Mark { seen: store, hints: Hints::default() })
    }

    /// What this node knows as each request is sent. `known` was just read, for the first of them.
    fn recalling(&self, known: Option<HighWater>) -> impl Fn() -> Option<HighWater> {
        let just_read = Cell::new(Some(known));
        move || just_read.take().unwrap_or_else(|| self.known())
    }

    /// This node as one that holds the store's answers against what it knows. An ADD leaves the node's key behind.
    fn witness<'w>(&self, recall: &'w dyn Fn() -> Option<HighWater>, run: WitnessRun) -> Witness<'w> {
        Witness { recall, own_key: self.own_key.clone(), run }
    }

    /// What an ADD of this run leaves under the node's key.
    fn own_value(&self, at: &str) -> WitnessRun {
        WitnessRun::Reserves(NodeRecord::new(self.start.boot.clone(), at.to_owned()).encode())
    }

    /// Where an ADD of this run leaves something for the next run, now.
    fn leaving(&self) -> Leaving<'_> {
        Leaving {
            keys: self.session.keys,
            mark: &self.mark,
            scope_hints: &self.scope_hints,
            owner_hints: &self.owner_hints,
            start: &self.start,
            now: (self.clock)(),
        }
    }

    /// The keys by which the store is judged: they are read with the first request.
    fn judged_by(&self, known: Option<&HighWater>) -> Vec<Bytes> {
        judged_by(self.session.keys, &self.own_key, known)
    }

    /// Reads these keys and those by which the store is judged, and judges the store. Where another endpoint shows a
    /// sound one, all is read again there. Returns why the store hands out no address, if it hands out none.
    ///
    /// # Errors
    /// A CNI error: the store failed.
    async fn read_judged(&self, keys: &[Bytes], snapshot: &mut Snapshot) -> Result<Option<Error>, Error> {
        let known = self.known();
        let keys = [keys, &self.judged_by(known.as_ref())].concat();
        self.session.read(&keys, snapshot).await.or_cni()?;
        match self.judge(known, snapshot).await {
            Judged::Sound => Ok(None),
            Judged::Suspect(why) => Ok(Some(why)),
            Judged::SoundElsewhere => {
                *snapshot = Snapshot::default();
                self.session.read(&keys, snapshot).await.or_cni()?;
                Ok(None)
            }
        }
    }

    /// Judges a store that was read so. `known` was read before the snapshot: meanwhile another run may have seen more.
    /// A store that contradicts nothing raises the mark.
    async fn judge(&self, known: Option<HighWater>, snapshot: &mut Snapshot) -> Judged {
        let keys = self.session.keys;
        // A meta that does not decode has its own error.
        let Ok(meta) = snapshot.record::<Meta>(&keys.meta()) else { return Judged::Sound };
        let suspect_since = meta.as_ref().and_then(|meta| meta.suspect);
        // Without an answer, the node's key counts as lost.
        if let Some(known) = &known
            && prefix::contradicts(self.session, known, snapshot).await.unwrap_or(true)
        {
            return match endpoints::is_sound_elsewhere(self.session, known, &self.own_key).await {
                true => Judged::SoundElsewhere,
                false => Judged::Suspect(suspect(suspect_since.unwrap_or(known.epoch))),
            };
        }
        if let Some(epoch) = suspect_since {
            return Judged::Suspect(suspect(epoch));
        }
        let etcd = self.session.kv.cluster().unwrap_or_default();
        if let Some(shown) = HighWater::shown(keys, snapshot, &self.own_key, known.as_ref()) {
            self.mark.raise(HighWater { etcd, ..shown }, |_| {});
        }
        Judged::Sound
    }

    /// The spool entry that frees what this run has reserved or was asked to free.
    fn to_spool(&self, owner: &Owner, pod_uid: Option<&PodUid>, unanswered: bool) -> Spooled {
        let (owner, start, machine) = (owner.clone(), self.start.clone(), self.identity.machine.clone());
        Spooled { owner, start, machine, pod_uid: pod_uid.cloned(), unanswered }
    }

    /// Frees all that earlier runs have spooled for the owner of this run. Returns true if there was any.
    ///
    /// # Errors
    /// A CNI error: the store failed, or the run should not go on any more.
    pub async fn carry_out_spooled_of(&self, owner: &Owner) -> Result<bool, Error> {
        let spooled = self.spool.of(owner);
        for kept in &spooled {
            self.carry_out_spooled(kept, self.session.until).await.or_cni()?;
        }
        self.must_go_on()?;
        Ok(!spooled.is_empty())
    }

    /// Frees what was spooled for one owner. It stays in the spool as long as etcd has no space for its tombstone.
    ///
    /// # Errors
    /// [`NotFreed`]; then the entry stays in the spool.
    pub async fn carry_out_spooled(&self, kept: &Kept, until: Instant) -> Result<Freed, NotFreed> {
        let recall = || self.known();
        let witness = self.witness(&recall, WitnessRun::FreesInSound);
        let (freed, lacks_tombstone) = self.free_spooled(&kept.spooled, Some(witness), until).await?;
        let Owner { container_id, ifname, .. } = &kept.spooled.owner;
        tracing::info!(container = %container_id, %ifname, ?freed, "carried out a spooled DEL");
        // Without a tombstone, an older ADD that is still under way may reserve something. So the entry is carried out
        // again later.
        if !lacks_tombstone {
            self.spool.forget(kept);
        }
        Ok(freed)
    }

    /// Frees what was or would be spooled. Also returns whether the tombstone is missing that it should have left.
    async fn free_spooled(
        &self,
        spooled: &Spooled,
        witness: Option<Witness<'_>>,
        until: Instant,
    ) -> Result<(Freed, bool), NotFreed> {
        let Spooled { owner, start, machine, pod_uid, unanswered } = spooled;
        let clock = &Clock::new(self.clock);
        let guard =
            if *unanswered { FreeGuard::Unanswered(start, clock) } else { FreeGuard::UpTo(start, clock) };
        // Another node may still serve a ticket of an earlier boot, so it needs a tombstone, too.
        let tombstone = Some(start);
        let caller = Some(Caller { machine, pod_uid: pod_uid.as_ref() });
        // An ADD that nobody has heard of had the name that is spooled.
        let mark = self.mark.read();
        let former = if *unanswered { Vec::new() } else { self.former(owner, mark.as_ref()) };
        let free = Free { caller, tombstone, former: &former, ..Free::of(owner, guard) };
        // What nobody heard of does not cool.
        let mut leases = CoolingLeases::default();
        let leases = (!unanswered).then_some(&mut leases);
        let shared = mark.as_ref().and_then(|mark| mark.hints.tombstones_for(&self.start));
        let hints = FreeHints { lease: shared.map(|lease| LeaseId(lease.id)), ..FreeHints::default() };
        let (freed, left) =
            release::carry_out(self.session.by(until), free, (hints, witness), leases).await?;
        if let Some(LeaseId(id)) = left.lease {
            let since = self.start.clone();
            self.mark.leave(|hints| hints.tombstones = Some(NodeLease { id, since }));
        }
        Ok((freed, left.lacks_tombstone))
    }

    /// Carries out what other runs spooled, for a bounded time. A run does this after its answer. However slow etcd is,
    /// one entry has the time that a DEL has, so the spool empties in the end. Where etcd is overloaded, most runs
    /// leave it to later ones: there is an entry for each network of each pod that has failed, and ADDs wait.
    pub async fn drain_spool(&self) {
        self.drain_spool_by(Instant::now() + limits::DEL_DEADLINE).await;
    }

    /// The same, but it ends before `first`, whatever etcd does.
    pub async fn drain_spool_by(&self, first: Instant) {
        if self.was_slow() && random_below(limits::DRAIN_ONE_IN) != 0 {
            return;
        }
        let spooled = self.spool.some(limits::DRAIN_ENTRIES, random());
        // Without a mark, this may be an etcd that knows nothing of what is to be freed.
        if spooled.is_empty() || !matches!(self.mark_or_ask(limits::ALL_ASKED_DEL).await, Ok(Some(_))) {
            return;
        }
        let began = Instant::now();
        let mut until = first;
        for kept in spooled {
            if Instant::now() >= until {
                return;
            }
            let carried_out = self.carry_out_spooled(&kept, until).await;
            until = first.min(began + limits::DRAIN);
            match carried_out {
                Ok(_) => {}
                Err(NotFreed::Failed(
                    FreeError::OutOfTime(_) | FreeError::Store(Failure::Unreachable(_) | Failure::Unknown(_)),
                )) => return,
                Err(why) => {
                    let container = &kept.spooled.owner.container_id;
                    tracing::warn!(%container, %why, "a spooled DEL cannot be carried out");
                }
            }
        }
    }
}
