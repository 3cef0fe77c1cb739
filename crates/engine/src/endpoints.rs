//! Asks all endpoints which store they are, for whoever knows none yet ([`metes_core::agreement`]), and founds a store
//! where they agree that there is none.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::kv::{Failure, Kv, Voice};
use super::obstacle::Obstacle;
use super::session::Session;
use crate::random::random_pause;
use metes_core::agreement::{Shown, Tally, Verdict};
use metes_core::known::{HighWater, OwnKey, SeenAs, judged_by};
use metes_core::limits;
use metes_core::meta;
use metes_core::pool::Meta;
use metes_core::snapshot::{BadRecord, Snapshot};
use metes_core::txn::{Entry, Op, Txn};

/// Why there is no store behind the endpoints that a node may begin to use.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoStore {
    /// The endpoints show different stores. Nothing was written; or only a meta, to a store that has nothing else.
    #[error("the endpoints are not of one store: {0}")]
    Differ(String),
    /// The store failed, or too few endpoints say anything.
    #[error(transparent)]
    Failed(#[from] Failure),
    /// The meta that they show does not decode.
    #[error("stored state cannot be decoded: {0}")]
    Bad(#[from] BadRecord),
    /// None is founded here: this etcd is too old.
    #[error("{0}")]
    TooOld(String),
    /// None is founded here: this key is missing, and there are allocations.
    #[error("{0} is missing while allocations exist")]
    LostMeta(String),
}

impl NoStore {
    /// The remedy where endpoints differ.
    pub const MEMBERS_OF_ONE: &'static str = "name the members of one etcd in `etcd.endpoints`; a member that was \
         begun anew by mistake must join the others: etcdctl member list tells which ones they are";
}

/// Asks all endpoints which store they are, for `whole` at most. Returns the store that more than half of them show,
/// and none if they show none. A node that asks names its own key: if it is there, the node has used that store before.
///
/// # Errors
/// [`NoStore`]
pub async fn ask_all<K: Kv>(
    session: Session<'_, K>,
    own_key: Option<&[u8]>,
    whole: Duration,
) -> Result<Option<HighWater>, NoStore> {
    let until = session.until.min(Instant::now() + whole);
    let mut asked = ask_once(session, own_key, until).await;
    // Somebody else may found the store just now. Members of one etcd all show it to whoever asks after that.
    if asked.0.may_be_founding() {
        sleep(random_pause(limits::RETRY_PAUSE)).await;
        asked = ask_once(session, own_key, until).await;
    }
    let (tally, failures) = asked;
    match tally.verdict() {
        Verdict::Agreed(shown) => {
            session.kv.expect(shown.cluster);
            let Some(value) = shown.meta else { return Ok(None) };
            let (key, mut seen) = (session.keys.meta(), Snapshot::default());
            let entry = Entry { key: key.clone(), value, create_revision: 0, mod_revision: 0, lease: 0 };
            seen.set(&key, Some(entry));
            let Some(Meta { id: store, epoch, .. }) = seen.record(&key)? else { return Ok(None) };
            Ok(Some(HighWater {
                store,
                epoch,
                revision: shown.revision,
                key: own_key.zip(shown.own_key).map(|(name, revision)| OwnKey::new(name, revision)),
                etcd: shown.cluster,
                elsewhere: false,
            }))
        }
        Verdict::Differ(said) => Err(NoStore::Differ(said)),
        Verdict::TooFew(said) => Err(NoStore::Failed(too_few(said, failures))),
    }
}

/// One question to each endpoint. Also returns the failures of those that say nothing.
async fn ask_once<K: Kv>(
    session: Session<'_, K>,
    own_key: Option<&[u8]>,
    until: Instant,
) -> (Tally, Vec<Failure>) {
    let (mut tally, mut failures) = (Tally::new(session.kv.endpoints()), Vec::new());
    let mut others = None;
    let keys = [session.keys.meta()].into_iter().chain(own_key.map(<[u8]>::to_vec));
    let question = Txn::read(keys.map(Op::Get).collect());
    let hear = &mut |place: usize, said: Result<Voice, Failure>| {
        match said {
            Ok(voice) => tally.hear(place, Ok(shown(voice))),
            Err(why) => {
                tally.hear(place, Err(words(&why)));
                failures.push(why);
            }
        }
        if tally.is_over() {
            return None;
        }
        if others.is_none() && tally.has_majority() {
            let now = Instant::now();
            let left = until.saturating_duration_since(now);
            others = Some(now + limits::OTHERS_OBJECT.min(left / 2));
        }
        Some(others.unwrap_or(until))
    };
    session.kv.ask_each(&question, until, hear).await;
    (tally, failures)
}

/// Why an endpoint says nothing, without the sentence that goes before the words of all of them.
fn words(why: &Failure) -> String {
    match why {
        Failure::Unreachable(obstacle) => obstacle.what.clone(),
        other => other.to_string(),
    }
}

fn shown(Voice { cluster, member, reply }: Voice) -> Shown {
    let mut entries = reply.found.into_iter().map(|found| found.entries.into_iter().next());
    let mut next = || entries.next().flatten();
    let (meta, own_key) = (next().map(|meta| meta.value), next().map(|own| own.mod_revision));
    Shown { cluster, member, revision: reply.revision, meta, own_key }
}

/// Before a store is accused: asks all endpoints once whether one of them shows a store that contradicts nothing. Then
/// it returns true, and the endpoints that contradict are left out from here on. A member that was made an etcd of its
/// own (`--force-new-cluster`) keeps the id of the etcd, and may be the only one that has forgotten something.
pub async fn is_sound_elsewhere<K: Kv>(session: Session<'_, K>, known: &HighWater, own_key: &[u8]) -> bool {
    if session.kv.endpoints().len() < 2 {
        return false;
    }
    let keys = session.keys;
    let mut reads = judged_by(keys, own_key, Some(known));
    reads.push(keys.forgotten());
    let reads = Txn::read(reads.into_iter().map(Op::Get).collect());
    // What follows needs time, too.
    let now = Instant::now();
    let until = now + limits::ALL_ASKED.min(session.until.saturating_duration_since(now) / 2);
    let (mut is_any_sound, mut unsound, mut others) = (false, Vec::new(), None);
    let hear = &mut |place: usize, said: Result<Voice, Failure>| {
        let Ok(Voice { reply, .. }) = said else { return Some(others.unwrap_or(until)) };
        let mut seen = Snapshot::default();
        seen.absorb(&reads.then, &reply);
        let is_sound = match known.judge(keys, &seen, reply.revision) {
            SeenAs::Sound => true,
            SeenAs::KeyAbsent => known.is_forgotten(keys, &seen),
            SeenAs::Contradicts => false,
        };
        match is_sound {
            true if !is_any_sound => {
                is_any_sound = true;
                others = Some(until.min(Instant::now() + limits::OTHERS_OBJECT));
            }
            true => {}
            false => unsound.push(place),
        }
        Some(others.unwrap_or(until))
    };
    session.kv.ask_each(&reads, until, hear).await;
    if is_any_sound {
        session.kv.leave_out(&unsound);
    }
    is_any_sound
}

/// Too few endpoints say which store they are: a failure that passes, unless etcd refuses the question.
fn too_few(said: String, failures: Vec<Failure>) -> Failure {
    let lasts = |failure: &&Failure| !matches!(failure, Failure::Unreachable(_) | Failure::Unknown(_));
    if let Some(refused) = failures.iter().find(lasts) {
        return refused.clone();
    }
    let obstacle = |failure: &Failure| match failure {
        Failure::Unreachable(obstacle) => Some(obstacle.remedy.clone()),
        _ => None,
    };
    let mut remedies: Vec<String> = failures.iter().filter_map(obstacle).collect();
    remedies.dedup();
    let general = "more than half of `etcd.endpoints` must answer a node that has used none yet";
    remedies.push(general.to_owned());
    Failure::Unreachable(Obstacle::new(said, remedies.join("; ")))
}

/// Founds a store with this meta where all endpoints have just agreed that there is none, or finds the one that
/// somebody else has founded meanwhile.
///
/// It is a step of its own: several etcds that all say that there is nothing agree, too. So the meta alone is written
/// first. Only when more than half of the endpoints show it, and none another one, may an address be given.
///
/// # Errors
/// [`NoStore`]
pub async fn found<K: Kv>(session: Session<'_, K>, first: &Meta) -> Result<HighWater, NoStore> {
    let about = session.kv.about(session.until).await?;
    if let Some(text) = about.too_old() {
        return Err(NoStore::TooOld(text));
    }
    let (key, founding) = (session.keys.meta(), meta::founding(session.keys, "found", first));
    let mut unanswered = None;
    for _ in 0..limits::FOUND_TRIES {
        match session.txn(&founding).await {
            Ok(reply) if reply.succeeded => {}
            Ok(_) => {
                let mut seen = Snapshot::default();
                session.read(std::slice::from_ref(&key), &mut seen).await?;
                if seen.entry(&key).is_none() {
                    return Err(NoStore::LostMeta(String::from_utf8_lossy(&key).into_owned()));
                }
            }
            // The endpoints show whether it was applied. A late copy does nothing where there is a meta.
            Err(failure @ Failure::Unknown(_)) if Instant::now() < session.until => {
                unanswered = Some(failure)
            }
            Err(failure) => return Err(failure.into()),
        }
        if let Some(store) = ask_all(session, None, limits::ALL_ASKED).await? {
            return Ok(store);
        }
    }
    let nobody_shows = || Failure::Unknown("no endpoint shows the store that was founded".to_owned());
    Err(unanswered.unwrap_or_else(nobody_shows).into())
}
