//! Reserves the addresses of one interface, unless another owner that may exist holds them.

use metes_core::pool::{Held, Owner, OwnerKind, OwnerRecord, PodUid};
use metes_engine::kv::Kv;

use super::error::ImportError;
use super::gathered::Group;
use super::report::pod_name;
use crate::api::{Api, Phase};
use crate::assign::{Assigned, Assignment, Gone, Made, Under, Why};
use crate::context::Context;
use crate::error::RunError;
use crate::holder::Stamp;
use crate::kubernetes::Kubernetes;
use crate::verdict::is_named;

/// The result of one group.
#[derive(Default)]
pub(super) struct TakeOver {
    pub(super) made: Made,
    pub(super) refused: Vec<(Held, String)>,
}

impl<K: Kv> Context<'_, K, Kubernetes> {
    /// Reserves the addresses of one interface.
    pub(super) async fn take_over(&self, group: &Group) -> Result<TakeOver, ImportError> {
        let mut wanted = Assignment {
            owner: group.owner.clone(),
            held: group.held.clone(),
            scope: group.scope.clone(),
            labels: group.labels.clone(),
            sticky: group.sticky.clone(),
            created_at: metes_node::node::timestamp(),
            under: Under::Pause,
            gone: Vec::new(),
        };
        let (mut refused, mut left) = (Vec::new(), Vec::new());
        // Each round ends the work, finds an owner that is gone, or gives one address up.
        while wanted.held.iter().any(|held| held.network.is_some()) {
            let conflict = match self.assign(&wanted).await {
                Ok(Assigned::Present) => break,
                Ok(Assigned::Made(made)) => return Ok(TakeOver { made, refused }),
                Ok(Assigned::Conflict(conflict)) => *conflict,
                Err(e) => {
                    return Err(RunError::of_assignment(e).map_or(ImportError::Changed, ImportError::from));
                }
            };
            match self.judge_holder(&wanted, &mut left, conflict.why).await? {
                Ok(gone) => wanted.gone.push(gone),
                // Without the hold, the next round tells which address is refused.
                Err(_) if wanted.sticky.take().is_some() => {}
                Err(why) => {
                    wanted.held.retain(|held| *held != conflict.held);
                    refused.push((conflict.held, why));
                }
            }
        }
        Ok(TakeOver { made: Made::default(), refused })
    }

    /// The owner that is in the way, if it is gone; otherwise the reason, in words, why it keeps what it has. An
    /// earlier run of the import may have made a hold for a user that is gone, and whereabouts has given the address to
    /// another pod since: such a hold is gone, too. `left` has the holds of users that are.
    async fn judge_holder(
        &self,
        wanted: &Assignment,
        left: &mut Vec<Owner>,
        why: Why,
    ) -> Result<Result<Gone, String>, ImportError> {
        Ok(Err(match why {
            Why::Holder { owner, record, revision } => {
                let is_new = wanted.gone.iter().all(|gone| gone.owner != owner);
                if is_new && (left.contains(&owner) || self.is_gone(&owner, &record).await?) {
                    left.extend(record.seat.map(|seat| seat.hold));
                    return Ok(Ok(Gone { owner, revision }));
                }
                format!("metes holds it for {}", whom(&owner, &pod_name(&record.labels.pod)))
            }
            Why::NoRecord { owner } => {
                format!("it is reserved for {owner}, which has no record of it: run `metes check`")
            }
            Why::UsesHold(hold) => format!("its record uses {hold}, which has other addresses"),
            Why::Undecodable(bad) => format!("stored state cannot be decoded: {bad}: run `metes check`"),
            Why::Deleted => "metes deleted this container's interface a moment ago: run it again".to_owned(),
            Why::TooMany => "its interface has more addresses than etcd takes in one transaction".to_owned(),
        }))
    }

    /// True if the pod of one of this cluster's records is gone or will never run again. Asks Kubernetes.
    async fn is_gone(&self, owner: &Owner, record: &OwnerRecord) -> Result<bool, RunError> {
        let pod = &record.labels.pod;
        if Stamp::of(owner.cluster.as_ref(), self.cluster) != Stamp::Ours || !is_named(pod) {
            return Ok(false);
        }
        Ok(match self.api.pod(&pod.namespace, &pod.name).await? {
            None | Some((_, Phase::Finished)) => true,
            Some((found, Phase::Active)) => {
                let is_it =
                    |uid: &PodUid| *uid == *found.uid || found.static_uids.iter().any(|one| *uid == **one);
                pod.uid.as_ref().is_some_and(|uid| !is_it(uid))
            }
        })
    }
}

fn whom(owner: &Owner, pod: &str) -> String {
    let Owner { node, container_id, ifname, .. } = owner;
    match owner.kind() {
        OwnerKind::Container(_) => format!("{ifname} of pod {pod:?}, container {container_id} on {node}"),
        OwnerKind::Aside(..) | OwnerKind::Subject(_) | OwnerKind::Unknown => owner.to_string(),
    }
}
