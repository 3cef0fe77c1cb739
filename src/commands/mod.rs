//! The verbs of CNI. Each file reads from top to bottom like its section of the design.

pub mod add;
pub mod check;
pub mod del;
pub mod errors;
pub mod gc;
pub mod mend;
pub mod status;

use std::cell::Cell;
use std::path::{Path, PathBuf};

use tokio::time::Instant;

use crate::cni::error::{Code, Error};
use crate::config::Settings;
use crate::limits;
use crate::local::mark::{Hints, Mark, MarkFile};
use crate::local::node;
use crate::local::spool::{Kept, Spool, Spooled};
use crate::pool::record::{Birth, Owner};
use crate::random::random;
use crate::store::free::{Free, FreeError, Freed, Which};
use crate::store::keys::{Bytes, Keys, digest_hex};
use crate::store::kv::{Failure, Kv, read_keys};
use crate::store::snapshot::Snapshot;

/// What every verb needs to do its work.
pub struct Run<'a, K> {
    /// The store.
    pub kv: &'a K,
    /// Its keys.
    pub keys: &'a Keys,
    /// This node's name.
    pub node: &'a str,
    /// The cluster's name; may be empty.
    pub cluster: &'a str,
    /// The store's endpoints, which the high-water mark belongs to.
    pub endpoints: &'a [String],
    /// When this run began.
    pub birth: Birth,
    /// What time it is now, in births.
    pub clock: &'a dyn Fn() -> Birth,
    /// When it must have answered.
    pub deadline: Instant,
    /// Whether whoever called still waits for the answer.
    pub awaited: &'a dyn Fn() -> bool,
    /// Frees that wait for the store.
    pub spool: Spool,
    /// The highest revision seen on this node.
    pub mark: MarkFile,
}

impl<K: Kv> Run<'_, K> {
    /// The owner that a container's interface is on this node of this cluster.
    #[must_use]
    pub fn owner(&self, container_id: &str, ifname: &str) -> Owner {
        Owner {
            node: self.node.to_owned(),
            container_id: container_id.to_owned(),
            ifname: ifname.to_owned(),
            cluster: self.cluster.to_owned(),
        }
    }

    /// Fails when nobody waits for the answer any more: there is no time left, or the process that
    /// called is gone, and with it whoever would use the address.
    ///
    /// The deadline's clock stands still while the host is suspended, and etcd's leases do not: by the time that the run
    /// goes on, the tombstone of a DEL that came after it may have ended. Births are told by a clock that goes on.
    ///
    /// # Errors
    /// Code 11.
    pub fn must_go_on(&self) -> Result<(), Error> {
        let has_overslept = node::has_outlasted(&self.birth, &(self.clock)(), limits::ADD_DEADLINE);
        if Instant::now() >= self.deadline || has_overslept {
            return Err(Error::new(Code::TryAgain, "the time for this request is over").with_details(
                "etcd answers too slowly, too many runs contend for this range, or the host was suspended",
            ));
        }
        if !(self.awaited)() {
            return Err(Error::new(Code::TryAgain, "the process that asked for an address is gone"));
        }
        Ok(())
    }

    /// Reads keys that are not known yet.
    ///
    /// # Errors
    /// [`Failure`]
    pub async fn read(&self, keys: &[Bytes], snapshot: &mut Snapshot) -> Result<(), Failure> {
        read_keys(self.kv, keys, snapshot, self.deadline).await
    }

    /// Notes how far the store has come, for answers to acknowledged writes, and what the next run may use.
    pub fn raise_mark(&self, epoch: u64, revision: i64, hints: Hints) {
        #[cfg(feature = "failpoints")]
        crate::failpoints::pass("mark.before");
        self.mark.raise(&Mark { endpoints: self.sorted_endpoints(), epoch, revision, hints });
    }

    /// The mark of this store, if there is one.
    #[must_use]
    pub fn read_mark(&self) -> Option<Mark> {
        self.mark.read().filter(|mark| mark.endpoints == self.sorted_endpoints())
    }

    fn sorted_endpoints(&self) -> Vec<String> {
        let mut endpoints = self.endpoints.to_vec();
        endpoints.sort();
        endpoints
    }

    /// Frees what was spooled for one owner. It stays in the spool as long as etcd has no space for its tombstone.
    ///
    /// # Errors
    /// [`FreeError`]; what was not carried out stays in the spool.
    pub async fn carry_out(&self, kept: &Kept, until: Instant) -> Result<Freed, FreeError> {
        let (freed, lacks_tombstone) = self.free_spooled(&kept.spooled, until).await?;
        let Owner { container_id, ifname, .. } = &kept.spooled.owner;
        tracing::info!(container = %container_id, %ifname, ?freed, "carried out a spooled DEL");
        // Without a tombstone an ADD that is older, and still on its way, may yet reserve something: once more, later.
        if !lacks_tombstone {
            self.spool.forget(kept);
        }
        Ok(freed)
    }

    /// Frees what was or would be spooled; and whether it lacks the tombstone that it should have left.
    async fn free_spooled(&self, spooled: &Spooled, until: Instant) -> Result<(Freed, bool), FreeError> {
        let Spooled { owner, birth, unanswered } = spooled;
        let boot = &self.birth.boot;
        let (which, tombstone) = match unanswered {
            // That commit was acknowledged: nothing of its run is on its way any more.
            true => (Which::Unanswered(birth), None),
            // Nor is any ADD of an earlier boot.
            false => (Which::UpTo { birth, boot }, Some(birth).filter(|birth| birth.boot == *boot)),
        };
        let (kv, keys, hints) = (self.kv, self.keys, Cell::default());
        let free = Free { kv, keys, owner, which, tombstone, until, hints };
        let freed = free.run().await?;
        Ok((freed, free.hints.get().lacks_tombstone))
    }

    /// Carries out what other runs spooled, for a bounded time; for runs that have answered.
    pub async fn drain_spool(&self) {
        let until = Instant::now() + limits::DRAIN;
        for kept in self.spool.some(limits::DRAIN_ENTRIES, random()) {
            if Instant::now() >= until {
                return;
            }
            match self.carry_out(&kept, until).await {
                Ok(_) => {}
                Err(FreeError::Store(Failure::Unreachable(_) | Failure::Unknown(_))) => return,
                Err(why) => {
                    tracing::warn!(container = %kept.spooled.owner.container_id, %why, "a spooled DEL cannot be carried out");
                }
            }
        }
    }
}

/// Who says which store a node uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// The host file: one store for the whole node, wherever its endpoints move to.
    HostFile,
    /// Each network's configuration for itself.
    Network,
}

/// The folder for all state of one prefix on this node; without a host file, of one prefix of the
/// store at these endpoints, because another store knows nothing of what was spooled for this one.
#[must_use]
pub fn state_folder(settings: &Settings, rule: Rule, endpoints: &[String]) -> PathBuf {
    let prefix = &settings.prefix;
    let name = prefix.trim_matches('/');
    let name: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    let store = match rule {
        Rule::HostFile => String::new(),
        Rule::Network => endpoints.join(" "),
    };
    let digest = digest_hex(format!("{prefix} {store}").as_bytes());
    Path::new(&settings.spool_dir).join(format!("{name}-{}", &digest[..8]))
}

/// The birth of this run as a CNI error if the machine does not tell it.
///
/// # Errors
/// Code 5.
pub fn birth() -> Result<Birth, Error> {
    node::birth().map_err(|e| Error::new(Code::Io, format!("this run has no birth: {e}")))
}
