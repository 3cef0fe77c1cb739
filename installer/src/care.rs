//! The care of one member of etcd, in the member's own pod: users and roles, the list of revoked certificates, a
//! snapshot each day, and defragmentation each week. When the newest snapshot was taken, and when the member's
//! certificates end, stands in etcd for the viewer.
//!
//! All of that takes etcd's root. The pod of a member has its key already, so no other pod needs it.

use std::time::Duration;

use etcd_client::{Client, ConnectOptions, GetOptions, ResponseHeader};
use metes_core::keys::Keys;
use metes_core::pool::{MemberRecord, Record};
use time::OffsetDateTime;
use tokio::time::{Instant, sleep};

use crate::arguments::{EtcdCareArgs, KeptArgs, MemberArgs};
use crate::client::{self, TlsFiles, within};
use crate::crl;
use crate::etcd;
use crate::failure::Failure;
use crate::log::{Voice, say, tell};
use crate::roles;
use crate::seat::Seat;
use crate::snapshots;
use crate::stop::unless_terminated;
use crate::template::Template;

/// The pause between two looks at the clock.
const PAUSE: Duration = Duration::from_secs(30);
/// The pause before authentication is on: until then etcd accepts each client of its authority.
const PAUSE_AT_FIRST: Duration = Duration::from_secs(2);
/// The pause after a task that failed.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_secs(600);
/// An answer of one member.
const ANSWER: Duration = Duration::from_secs(10);
/// A defragmentation, for which the member copies its whole database. The liveness probe in manifests/etcd waits
/// longer.
const COPY: Duration = Duration::from_secs(300);

/// The member that is looked after.
pub(crate) struct Member {
    seat: Seat,
    /// All members, this one too, in the order of their addresses.
    all: Vec<Seat>,
    tls: TlsFiles,
    prefix: String,
    cluster: String,
}

impl Member {
    pub(crate) fn of(arguments: &MemberArgs) -> Result<Self, Failure> {
        let MemberArgs { template, node_ip, base } = arguments;
        let template = Template::read(&template.template)?;
        let mut all = Seat::all(&template)?;
        all.sort_by_key(Seat::ip);
        let seat = Seat::of_node(&all, *node_ip)?;
        let (prefix, cluster) = (template.prefix(), template.cluster().to_owned());
        Ok(Self { seat, all, tls: etcd::client_tls(base)?, prefix, cluster })
    }

    pub(crate) async fn connect(&self) -> Result<Client, String> {
        self.connect_to(&self.seat).await
    }

    async fn connect_to(&self, seat: &Seat) -> Result<Client, String> {
        let tls = client::tls(&self.tls).map_err(|e| e.to_string())?;
        let options = ConnectOptions::new().with_tls(tls).with_connect_timeout(ANSWER);
        within(ANSWER, Client::connect([seat.client_url()], Some(options))).await
    }

    fn others(&self) -> impl Iterator<Item = &Seat> {
        self.all.iter().filter(|seat| **seat != self.seat)
    }

    /// The number of members before this one.
    fn place(&self) -> usize {
        self.all.iter().take_while(|seat| **seat != self.seat).count()
    }

    /// Gives back the space of compacted revisions. The member serves nothing meanwhile, so the others must all run,
    /// and one of them must lead.
    async fn defragment(&self, client: &mut Client) -> Result<Vec<String>, String> {
        for other in self.others() {
            let answers = async { within(ANSWER, self.connect_to(other).await?.status()).await };
            answers.await.map_err(|why| format!("member {} does not answer: {why}", other.ip()))?;
        }
        let before = within(ANSWER, client.status()).await?;
        if before.leader() == 0 {
            return Err("it knows no leader".to_owned());
        }
        let me = before.header().map_or(0, ResponseHeader::member_id);
        let mut done = Vec::new();
        if before.leader() == me && self.all.len() > 1 {
            done.push(format!("leads no more: {:x} does", hand_over(client, me).await?));
        }
        within(COPY, client.defragment()).await?;
        let after = within(ANSWER, client.status()).await?;
        done.push(format!(
            "defragmented: {} KiB, before {} KiB",
            after.db_size() / 1024,
            before.db_size() / 1024
        ));
        Ok(done)
    }
}

/// Makes another member the leader: commits would wait for this one.
async fn hand_over(client: &mut Client, me: u64) -> Result<u64, String> {
    let listed = within(ANSWER, client.member_list()).await?;
    let mut why = "there is no other member with a vote".to_owned();
    for other in listed.members().iter().filter(|member| member.id() != me && !member.is_learner()) {
        match within(ANSWER, client.move_leader(other.id())).await {
            Ok(_) => return Ok(other.id()),
            Err(failed) => why = failed,
        }
    }
    Err(format!("it leads, and no other member can: {why}"))
}

/// A task at the same time of each period. Times are seconds since 1970 in UTC.
struct Slot {
    period: i64,
    /// The first member's time. The others' are later, so no two members are busy at once.
    at: i64,
}

const HOUR: i64 = 3600;
const DAY: i64 = 24 * HOUR;
const SNAPSHOT: Slot = Slot { period: DAY, at: 2 * HOUR + 47 * 60 };
/// On Sundays: the first day of 1970 was a Thursday.
const DEFRAGMENTATION: Slot = Slot { period: 7 * DAY, at: 3 * DAY + 4 * HOUR + 17 * 60 };
/// The time between two members' tasks.
const APART: i64 = 20 * 60;

impl Slot {
    /// The latest time of this task for the member at this place, at or before `now`.
    fn last(&self, place: usize, now: i64) -> i64 {
        let at = self.at + APART * i64::try_from(place).unwrap_or(0);
        now - (now - at).rem_euclid(self.period)
    }
}

/// Stays until it is asked to end.
pub(crate) fn run(arguments: &EtcdCareArgs) -> Result<(), Failure> {
    unless_terminated(stay(arguments)).map(drop)
}

async fn stay(arguments: &EtcdCareArgs) {
    let connect = async || Member::of(&arguments.member).map_err(|e| e.to_string())?.connect().await;
    match &arguments.crl {
        Some(path) => drop(tokio::join!(care(arguments), crl::keep(path, connect))),
        None => care(arguments).await,
    }
}

async fn care(arguments: &EtcdCareArgs) {
    let mut care = Care {
        knows_users: false,
        defragmented: now(),
        snapshot_from: Instant::now(),
        told: None,
        voice: Voice::default(),
    };
    loop {
        if let Err(why) = care.pass(arguments).await {
            care.voice.say(why);
        }
        sleep(if care.knows_users { PAUSE } else { PAUSE_AT_FIRST }).await;
    }
}

/// The state of this process.
struct Care {
    /// True if etcd has asked for users since this process began. A user that somebody deletes after that stays away.
    knows_users: bool,
    /// The time of the last attempt of a defragmentation, or of the beginning of this process.
    defragmented: i64,
    /// When the next attempt of a snapshot may be made.
    snapshot_from: Instant,
    /// What stands in etcd of this member, since this process has written it.
    told: Option<MemberRecord>,
    voice: Voice,
}

impl Care {
    /// All that fails in one pass is told in one line.
    async fn pass(&mut self, arguments: &EtcdCareArgs) -> Result<(), String> {
        let member = Member::of(&arguments.member).map_err(|e| e.to_string())?;
        let mut client = member.connect().await.map_err(|why| format!("waits for etcd: {why}"))?;
        // Each is tried, whatever the others say: a snapshot needs no majority, and users do.
        let done = [
            self.begin(&member, &mut client).await,
            self.take_if_due(&member, &arguments.kept, &mut client).await,
            self.defragment_if_due(&member, &mut client).await,
            self.tell_viewer(&member, arguments, &mut client).await,
        ];
        let failed: Vec<String> = done.into_iter().filter_map(Result::err).collect();
        if failed.is_empty() { Ok(()) } else { Err(failed.join("; ")) }
    }

    async fn take_if_due(
        &mut self,
        member: &Member,
        kept: &KeptArgs,
        client: &mut Client,
    ) -> Result<(), String> {
        if Instant::now() >= self.snapshot_from && is_due(member, kept)? {
            self.snapshot_from = Instant::now() + PAUSE_AFTER_FAILURE;
            let taken = snapshots::take(client, kept).await;
            say(&taken.map_err(|e| format!("no snapshot: {e}"))?);
        }
        Ok(())
    }

    /// Says in etcd what the viewer shows of this member, and forgets members that `metes.conf` names no more.
    async fn tell_viewer(
        &mut self,
        member: &Member,
        arguments: &EtcdCareArgs,
        client: &mut Client,
    ) -> Result<(), String> {
        let now = OffsetDateTime::now_utc();
        let newest = snapshots::newest(&arguments.kept.folder, now).map_err(|e| e.to_string())?;
        let taken = newest.and_then(|name| snapshots::taken_at(&name));
        let record = MemberRecord::new(taken, etcd::certificate_end(&arguments.member.base));
        if self.told.as_ref() != Some(&record) {
            let told = tell_viewer(member, &record, client).await;
            told.map_err(|why| format!("the viewer is not told of this member: {why}"))?;
            self.told = Some(record);
        }
        Ok(())
    }

    async fn defragment_if_due(&mut self, member: &Member, client: &mut Client) -> Result<(), String> {
        if self.defragmented < DEFRAGMENTATION.last(member.place(), now()) {
            // Also if it fails: a second attempt would meet that of another member.
            self.defragmented = now();
            tell(&member.defragment(client).await.map_err(|why| format!("not defragmented: {why}"))?);
        }
        Ok(())
    }

    /// Only where etcd asks for no users: a user that somebody has deleted does not come back.
    async fn begin(&mut self, member: &Member, client: &mut Client) -> Result<(), String> {
        if self.knows_users {
            return Ok(());
        }
        let asked = roles::are_asked_for(client).await;
        if !asked.map_err(|why| format!("it is not known if etcd asks for users: {why}"))? {
            let set = roles::set(client, &member.prefix, &member.cluster).await;
            tell(&set.map_err(|why| format!("authentication is not on yet: {why}"))?);
        }
        self.knows_users = true;
        Ok(())
    }
}

/// What does not decode, or is newer, is left as it is.
async fn tell_viewer(member: &Member, record: &MemberRecord, client: &mut Client) -> Result<(), String> {
    let keys = Keys::new(&member.prefix);
    let own = keys.member(member.seat.ip());
    let all: Vec<_> = member.all.iter().map(|seat| keys.member(seat.ip())).collect();
    let options = GetOptions::new().with_prefix();
    let there = within(ANSWER, client.get(keys.members(), Some(options))).await?;
    for stored in there.kvs() {
        match MemberRecord::decode(stored.value()) {
            Err(why) if stored.key() == own => {
                return Err(format!("{}: {why}", String::from_utf8_lossy(&own)));
            }
            Ok(_) if !all.iter().any(|key| key == stored.key()) => {
                within(ANSWER, client.delete(stored.key(), None)).await?;
            }
            _ => {}
        }
    }
    within(ANSWER, client.put(own, record.encode(), None)).await.map(|_| ())
}

fn now() -> i64 {
    OffsetDateTime::now_utc().unix_timestamp()
}

/// True if the newest snapshot is older than the time at which one should have been taken.
fn is_due(member: &Member, kept: &KeptArgs) -> Result<bool, String> {
    let due = OffsetDateTime::from_unix_timestamp(SNAPSHOT.last(member.place(), now()));
    let due = due.map_err(|e| format!("the clock of this node is wrong: {e}"))?;
    let newest = snapshots::newest(&kept.folder, OffsetDateTime::now_utc()).map_err(|e| e.to_string())?;
    Ok(newest.is_none_or(|newest| newest < snapshots::name(due)))
}

/// Users and roles, made by hand: also where etcd asks for users already.
pub(crate) fn set_roles(arguments: &MemberArgs) -> Result<(), Failure> {
    once(async {
        let member = Member::of(arguments)?;
        let mut client = member.connect().await.map_err(Failure::new)?;
        let done = roles::set(&mut client, &member.prefix, &member.cluster).await.map_err(Failure::new)?;
        tell(&done);
        say("users and roles are as they should be, and authentication is on");
        Ok(())
    })
}

/// A snapshot at once.
pub(crate) fn take_snapshot(arguments: &EtcdCareArgs) -> Result<(), Failure> {
    once(async {
        let mut client = Member::of(&arguments.member)?.connect().await.map_err(Failure::new)?;
        snapshots::take(&mut client, &arguments.kept).await.map(|done| say(&done))
    })
}

/// A defragmentation at once.
pub(crate) fn defragment(arguments: &MemberArgs) -> Result<(), Failure> {
    once(async {
        let member = Member::of(arguments)?;
        let mut client = member.connect().await.map_err(Failure::new)?;
        member.defragment(&mut client).await.map_err(Failure::new).map(|done| tell(&done))
    })
}

pub(crate) fn once(work: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    unless_terminated(work)?.unwrap_or_else(|| Err(Failure::new("stopped before it finished")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-23, a Monday.
    const MONDAY: i64 = 1_795_392_000;

    #[test]
    fn each_member_has_its_own_time() {
        let last = |slot: &Slot, place, now| slot.last(place, now) - MONDAY;
        let at = |hour: i64, minute: i64| hour * HOUR + minute * 60;
        assert_eq!(last(&SNAPSHOT, 0, MONDAY + at(2, 47)), at(2, 47));
        assert_eq!(last(&SNAPSHOT, 2, MONDAY + at(23, 0)), at(3, 27));
        assert_eq!(last(&SNAPSHOT, 2, MONDAY + at(3, 26)), at(3, 27) - DAY);
        assert_eq!(last(&DEFRAGMENTATION, 0, MONDAY), at(4, 17) - DAY);
        assert_eq!(last(&DEFRAGMENTATION, 1, MONDAY + 6 * DAY + at(4, 38)), 6 * DAY + at(4, 37));
    }
}
