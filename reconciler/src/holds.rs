//! Addresses that operators have set aside. A pass ends those holds whose time is over. The holds for pods are judged
//! as all other owners are (`verdict.rs`).
//!
//! A hold with a time has a key of its own on a lease: etcd ends it, and no clock decides. The records are read before
//! these keys. So if a key is missing, the time is over, or somebody has written the record since. The free compares
//! the record, and that the key is still missing.

use std::collections::BTreeSet;

use metes_core::keys::{Bytes, Key};
use metes_core::plan::free::Freed;
use metes_core::pool::{NetworkName, Owner, OwnerKind, OwnerRecord, Record};
use metes_core::txn::Entry;
use metes_engine::kv::{Failure, Kv};
use metes_engine::release::{FreeError, end_hold};
use metes_engine::session::Session;
use metes_engine::walk::walk;

use crate::context::Context;
use crate::holder::Holder;
use crate::verdict::{Keep, Orphan};

/// The numbers of holds that a pass found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct HoldCounts {
    /// Addresses that are set aside.
    pub(crate) found: usize,
    /// Those of them that were freed because their time is over; in a dry run, would have been freed.
    pub(crate) ended: usize,
}

metes_core::named_enum! {
    /// The state of a hold for a pod's name.
    pub enum HoldState {
        /// A container uses it.
        InUse = "in-use",
        /// No container uses it, and there is a pod of that name.
        SubjectExists = "subject-exists",
        /// No container uses it, and there is no pod of that name.
        Unused = "unused",
    }
}

impl HoldState {
    /// The state of an owner by its verdict; none if it is no hold for a pod's name, or of another cluster.
    pub(crate) fn of(holder: &Holder, orphaned: Result<Orphan, Keep>) -> Option<Self> {
        holder.record.as_ref()?.hold?;
        match orphaned {
            Err(Keep::InUse) => Some(Self::InUse),
            Err(Keep::SubjectExists) => Some(Self::SubjectExists),
            Err(Keep::OtherCluster | Keep::NoCluster) => None,
            Ok(_) | Err(_) => Some(Self::Unused),
        }
    }
}

/// A hold, with the mod revision of its record.
type FoundHold = (Owner, i64);

/// Frees each hold whose time is over, except in `doubtful` networks.
///
/// # Errors
/// [`FreeError`], not for a record; what was freed until then stays freed.
pub(crate) async fn end_holds<K: Kv, A>(
    context: Context<'_, K, A>,
    doubtful: &BTreeSet<NetworkName>,
) -> Result<HoldCounts, FreeError> {
    let session = context.session;
    let see = |found: &mut Vec<(FoundHold, bool)>, entry: Entry| {
        if let Ok(Key::Owner(owner)) = session.keys.parse(&entry.key) {
            let record = OwnerRecord::decode(&entry.value).ok();
            let may_end = record.and_then(|record| record.hold).is_some_and(|hold| hold.seconds.is_some());
            found.push(((owner, entry.mod_revision), may_end));
        }
    };
    let (found, _) = walk(session, &session.keys.hold_owners(), Vec::new, see).await?;
    let mut counts = HoldCounts { found: found.len(), ended: 0 };
    let mut timed = found.into_iter().filter_map(|(hold, may_end)| may_end.then_some(hold)).peekable();
    if timed.peek().is_none() {
        return Ok(counts);
    }
    let lasting = lasting(session).await?;
    for (owner, revision) in timed {
        let (network, address) = match owner.kind() {
            OwnerKind::Aside(network, address) => (network, address),
            OwnerKind::Container(_) | OwnerKind::Subject(_) | OwnerKind::Unknown => continue,
        };
        if doubtful.contains(&network) || lasting.contains(&session.keys.hold(&network, address)) {
            continue;
        }
        let ended = match context.dry_run {
            true => Ok(Freed::Addresses(Vec::new())),
            false => end_hold(context.for_one_owner(), (&network, address), revision).await,
        };
        match ended {
            Ok(Freed::Addresses(_)) => {
                let action = if context.dry_run { "would end" } else { "ended" };
                tracing::info!(%network, %address, "{action} a hold whose time is over");
                counts.ended += 1;
            }
            Ok(Freed::Nothing | Freed::Younger | Freed::Elsewhere(_)) => {}
            Err(FreeError::Bad(bad)) => tracing::warn!(%bad, "a hold cannot be ended"),
            Err(why @ (FreeError::Store(_) | FreeError::OutOfTime(_))) => return Err(why),
        }
    }
    Ok(counts)
}

/// The keys of all holds whose time is not over.
async fn lasting<K: Kv>(session: Session<'_, K>) -> Result<BTreeSet<Bytes>, Failure> {
    let see = |keys: &mut BTreeSet<Bytes>, entry: Entry| _ = keys.insert(entry.key);
    Ok(walk(session, &session.keys.holds(), BTreeSet::new, see).await?.0)
}
