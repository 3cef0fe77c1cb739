//! Finding out what became of a commit that was sent and not answered.

use tokio::time::Instant;

use super::kv::{Failure, Kv};
use super::session::Session;
use crate::random::random_pause;
use metes_core::fence::Fence;
use metes_core::limits;
use metes_core::snapshot::Snapshot;
use metes_core::txn::{Op, Txn};

/// Removes the fence of a commit, so that no late copy of the commit can be applied, and then reads `key` into `seen`.
/// Without a fence it only reads.
///
/// # Errors
/// [`Failure`] if the session's deadline came first. Then nothing is settled.
pub(crate) async fn settle<K: Kv>(
    session: Session<'_, K>,
    fence: &Fence,
    key: &[u8],
    seen: &mut Snapshot,
) -> Result<(), Failure> {
    // Both ways work even when etcd is out of space.
    let removal = match fence {
        Fence::Ticket(ticket) => ticket.removal().to_vec(),
        Fence::Lease { .. } | Fence::Unfenced { .. } => Vec::new(),
    };
    let then = removal.into_iter().chain([Op::Get(key.to_vec())]).collect();
    let txn = Txn { step: "settle", then, settles: true, ..Txn::default() };
    loop {
        let revoked = match fence {
            Fence::Lease { lease, .. } => session.kv.revoke(*lease, session.until).await,
            Fence::Ticket(_) | Fence::Unfenced { .. } => Ok(()),
        };
        let settled = match revoked {
            Ok(()) => session.txn(&txn).await,
            Err(failure) => Err(failure),
        };
        match settled {
            Ok(reply) => {
                seen.absorb(&txn.then, &reply);
                return Ok(());
            }
            Err(failure) if !failure.is_open() || Instant::now() >= session.until => return Err(failure),
            Err(_) => tokio::time::sleep(random_pause(limits::RETRY_PAUSE)).await,
        }
    }
}
