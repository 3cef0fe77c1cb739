//! The request that a ticket carries to the run at the head of its queue: the owner that waits, and all facts that a
//! decision for it needs.
//!
//! The run at the head decides for the runs behind it by the same pure function by which it decides for itself. A
//! request has a version of its own, and a reader refuses fields that it does not know. So a head never decides on a
//! part of what a newer program asks for. It leaves such a run to its own turn.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::keys::LeaseId;
use crate::limits;
use crate::plan::ask::{Ask, RunStamp, Sticky};
use crate::pool::choose::Order;
use crate::pool::{
    Addr, Caller, Cooldown, CooldownTime, Held, Labels, Owner, OwnerRecord, PodUid, PoolsWanted, RangeSet,
    RangesWanted, Record, RunStart, VERSION, Wanted, is_default,
};

/// The version of the requests that this program writes and decides.
const REQUEST_VERSION: u32 = 2;

/// `v1/ticket/<scope>/<id>`: who waits, and for what.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TicketRecord {
    v: u32,
    /// For whom.
    #[serde(flatten)]
    pub owner: Owner,
    /// An [`AddRequest`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    add: Option<serde_json::Value>,
    /// A [`FreeRequest`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    free: Option<serde_json::Value>,
    /// A head has given the run its turn, and the run decides for itself alone.
    #[serde(default, skip_serializing_if = "is_default")]
    alone: bool,
}

impl Record for TicketRecord {
    const KIND: &'static str = "ticket";
}

/// The parts of an [`Ask`] that the owner does not say.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct AddRequest {
    v: u32,
    /// The epoch that the run knows. A ticket that came back with a restored store names an earlier one.
    epoch: u64,
    /// Its ranges; none if it asks pools.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    sets: Vec<RangeSet>,
    /// The address that it asks for from each of its ranges; none at all if it asks for none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    requests: Vec<Option<IpAddr>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pools: Option<PoolsWanted>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sticky: Option<Sticky>,
    order: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    statics: Vec<Held>,
    /// For how many seconds the addresses of its ranges rest.
    #[serde(default, skip_serializing_if = "is_default")]
    cooldown_s: u32,
    start: RunStart,
    machine: String,
    labels: Labels,
    at: String,
}

/// The request of one DEL to the run at the head.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FreeRequest {
    v: u32,
    pub(crate) start: RunStart,
    /// The machine of the DEL.
    pub(crate) machine: String,
    /// The pod's UID, if the DEL knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) pod_uid: Option<PodUid>,
    /// The lease for its tombstone, which outlives that of its ticket.
    pub(crate) lease: i64,
    /// The owner's record as the DEL has read it: what the head has to read.
    pub(crate) record: OwnerRecord,
}

/// The request of a run to the run at the head.
#[derive(Debug, Clone)]
pub(crate) enum Asked {
    /// Addresses. The epoch is that of the store which the run knows.
    Add(Box<Ask>, u64),
    /// To free what its owner holds.
    Free(Owner, Box<FreeRequest>),
}

impl Asked {
    /// The owner that waits.
    pub(crate) fn owner(&self) -> &Owner {
        match self {
            Self::Add(ask, _) => &ask.owner,
            Self::Free(owner, _) => owner,
        }
    }
}

impl TicketRecord {
    /// The ticket of a run that nobody else can serve.
    #[must_use]
    pub fn of(owner: Owner) -> Self {
        Self { v: VERSION, owner, add: None, free: None, alone: false }
    }

    /// The same ticket with a turn for its run, which decides for itself alone.
    pub(crate) fn decided_alone(self) -> Self {
        Self { alone: true, ..self }
    }

    /// True if its run has its turn and decides for itself alone: it serves nobody.
    #[must_use]
    pub fn is_decided_alone(&self) -> bool {
        self.alone
    }

    /// The ticket of an ADD. Without a request if another run cannot decide it: it has no ranges, or is too large.
    pub(crate) fn asking(ask: &Ask, epoch: u64) -> Self {
        let bare = Self::of(ask.owner.clone());
        let (ranges, pools) = match &ask.wanted {
            Wanted::Ranges(ranges) if ranges.sets.is_empty() => return bare,
            Wanted::Pools(pools) if !pools.is_servable() => return bare,
            Wanted::Ranges(ranges) => (ranges.clone(), None),
            Wanted::Pools(pools) => (RangesWanted::lowest_of(Vec::new()), Some(pools.clone())),
        };
        let RangesWanted { sets, requests, statics, order, cooldown } = ranges;
        let asks = requests.iter().any(Option::is_some);
        let requests = requests.into_iter().filter(|_| asks).map(|request| Some(request?.ip())).collect();
        let RunStamp { start, machine, created_at, .. } = &ask.stamp;
        let request = AddRequest {
            v: REQUEST_VERSION,
            epoch,
            sets,
            requests,
            pools,
            sticky: ask.sticky.clone(),
            order: order.name().to_owned(),
            statics,
            cooldown_s: cooldown.time.seconds(),
            start: start.clone(),
            machine: machine.clone(),
            labels: ask.labels.clone(),
            at: created_at.clone(),
        };
        Self { add: serde_json::to_value(request).ok(), ..bare }.or_bare()
    }

    /// The ticket of a DEL that began at `start`, and whose tombstone goes on `lease`. `record` is what it has read.
    pub(crate) fn freeing(
        owner: &Owner,
        start: &RunStart,
        caller: Caller<'_>,
        lease: LeaseId,
        record: OwnerRecord,
    ) -> Self {
        let request = FreeRequest {
            v: REQUEST_VERSION,
            start: start.clone(),
            machine: caller.machine.to_owned(),
            pod_uid: caller.pod_uid.cloned(),
            lease: lease.0,
            record,
        };
        Self { free: serde_json::to_value(request).ok(), ..Self::of(owner.clone()) }.or_bare()
    }

    /// Without a request if that is too large.
    fn or_bare(self) -> Self {
        if self.encode().len() <= limits::TICKET_BYTES { self } else { Self::of(self.owner) }
    }

    /// True if another run may reserve something for this one.
    #[must_use]
    pub fn asks_for_addresses(&self) -> bool {
        self.add.is_some()
    }

    /// The run's request; none if only the run itself can decide.
    pub(crate) fn asked(self) -> Option<Asked> {
        if let Some(free) = self.free {
            let request: FreeRequest = serde_json::from_value(free).ok()?;
            let is_known = request.v == REQUEST_VERSION && request.lease > 0;
            return is_known.then(|| Asked::Free(self.owner, Box::new(request)));
        }
        let AddRequest {
            v,
            epoch,
            sets,
            requests,
            pools,
            sticky,
            order,
            statics,
            cooldown_s,
            start,
            machine,
            labels,
            at,
        } = serde_json::from_value(self.add?).ok()?;
        if v != REQUEST_VERSION {
            return None;
        }
        // What it does if the range is full is for the run itself.
        let cooldown = Cooldown { time: CooldownTime::of_seconds(cooldown_s), ..Cooldown::default() };
        let order = Order::named(&order)?;
        let wanted = match pools {
            Some(pools)
                if pools.is_servable() && sets.is_empty() && requests.is_empty() && statics.is_empty() =>
            {
                pools.into()
            }
            Some(_) => return None,
            None if !requests.is_empty() && requests.len() != sets.len() => return None,
            None => {
                let asked = |at: usize| requests.get(at).copied().flatten().map(Addr::from);
                let requests = (0..sets.len()).map(asked).collect();
                Wanted::Ranges(RangesWanted { sets, requests, statics, order, cooldown })
            }
        };
        let stamp = RunStamp { start, machine, created_at: at };
        let ask = Ask::new(self.owner, labels, wanted, stamp).sticky(sticky);
        Some(Asked::Add(Box::new(ask), epoch))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::range::fixtures::{addr, cidr, host_local, set};

    fn ask() -> Ask {
        let v4 = host_local("10.0.0.0/24").to("10.0.0.200").exclude(&["10.0.0.16/28"]).network("blue");
        let v6 = cidr("fd00::/64").bounds("fd00::1", "fd00::ffff").network("blue");
        let sets = vec![set([v4]), set([v6])];
        let requests = vec![None, Some(addr("fd00::7"))];
        let wanted = RangesWanted { order: Order::Spread, requests, ..RangesWanted::lowest_of(sets) };
        let owner = Owner::named(["east", "n", "c", "eth0"]).expect("plain names");
        let stamp = RunStamp {
            start: RunStart { boot: "b".into(), ns: 5 },
            machine: "m".into(),
            created_at: "2026-01-01T00:00:00Z".into(),
        };
        Ask::new(owner, Labels::default(), wanted, stamp)
    }

    #[test]
    fn a_request_comes_back_as_it_was_asked() {
        let mut ask = ask();
        let stored = TicketRecord::asking(&ask, 3).encode();
        let asked = TicketRecord::decode(&stored).expect("decodes").asked();
        let Some(Asked::Add(mut asked, 3)) = asked else { panic!("another request: {asked:?}") };
        assert_eq!(asked.ranges().sets, ask.ranges().sets);
        assert_eq!(asked.ranges().requests, ask.ranges().requests);
        assert_eq!(asked.ranges().order, ask.ranges().order);
        assert_eq!((asked.owner, asked.node_seed), (ask.owner, ask.node_seed));
        assert_eq!(asked.stamp.start, ask.stamp.start);
    }

    #[test]
    fn what_a_head_does_not_know_it_leaves_alone() {
        let stored = String::from_utf8(TicketRecord::asking(&ask(), 1).encode()).expect("JSON");
        for (from, to) in [
            (r#""add":{"at""#, r#""add":{"later":true,"at""#),
            (r#""add":{"at""#, r#""add":{"sticky":{"kind":"later"},"at""#),
            (r#","v":2}}"#, r#","v":3}}"#),
            (r#""requests":[null,"fd00::7"]"#, r#""requests":["fd00::7"]"#),
            (r#""order":"spread""#, r#""order":"random""#),
            (r#"["10.0.0.2","10.0.0.15"]"#, r#"["10.0.0.1","10.0.0.15"]"#),
            (r#"["10.0.0.2","10.0.0.15"]"#, r#"["10.0.0.2","10.0.1.15"]"#),
            (r#""subnet":"10.0.0.0/24""#, r#""subnet":"10.0.0.0""#),
        ] {
            let other = stored.replace(from, to);
            assert_ne!(other, stored, "{from} is not in {stored}");
            let record = TicketRecord::decode(other.as_bytes()).expect("a ticket all the same");
            assert!(record.asked().is_none(), "{to}");
        }
    }
}
