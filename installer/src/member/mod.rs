//! The beginning of a member of etcd: with the data in its folder, as a new etcd, or by joining the others.
//!
//! etcd must be told, and a wrong word harms: a member that begins anew beside others that have data breaks its earlier
//! promises to them, and one that waits to join nobody never starts. So this step finds out, each time.

mod decision;
mod etcd;
mod folder;
mod proto;
mod roster;
mod steps;
mod tls;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::client::{self, TlsFiles};
use crate::failure::Failure;
use crate::log::{Voice, say};
use crate::seat::Seat;
use crate::stop::unless_terminated;
use decision::{Answer, Decision, Seen};
use folder::{Content, EtcdIdentity};
use roster::{Change, Listed};
use steps::Answering;
use tls::Tls;

/// The places of a member and of the others.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) me: Seat,
    pub(crate) others: Vec<Seat>,
    pub(crate) data: PathBuf,
    /// True if this pod has started etcd before. Then an empty folder has lost something, or etcd failed at once.
    pub(crate) starts_again: bool,
    /// etcd's own certificates: its user in etcd has all rights, where etcd has users.
    pub(crate) client_tls: TlsFiles,
    pub(crate) peer_tls: TlsFiles,
}

/// The way in which a member begins.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Beginning {
    /// With its data: what etcd is told does not count.
    WithData,
    /// As a new etcd, together with the others.
    New,
    /// By joining the others, which are these, with itself.
    Joining { initial_cluster: String },
}

const PAUSE: Duration = Duration::from_secs(1);

/// True if a folder holds a member.
pub(crate) fn has_data(data: &Path) -> Result<bool, Failure> {
    folder::look(data).map(|content| content != Content::Nothing)
}

/// Finds out how this member begins; waits if that is not certain yet. `unchanged` fails if metes.conf does not name
/// the same members any more.
pub(crate) fn begin(
    place: &Place,
    unchanged: impl Fn() -> Result<(), Failure>,
) -> Result<Beginning, Failure> {
    let content = folder::look(&place.data)?;
    if content == Content::Nothing
        && let Some(aside) = folder::set_remains_aside(&place.data)?
    {
        let (data, aside) = (place.data.display(), aside.display());
        say(&format!("{data} is not a valid etcd member (no log). It was moved to {aside}; delete that"));
    }
    if place.others.is_empty() {
        return match content {
            Content::Nothing if place.starts_again => Err(Failure::new(format!(
                "refused: {} is empty, and etcd has run in this pod. Put its data back, or restore a snapshot. If \
                 there were no data yet, delete the pod",
                place.data.display()
            ))),
            Content::Nothing => Ok(Beginning::New),
            _ => Ok(Beginning::WithData),
        };
    }
    let stopped = || Err(Failure::new("stopped while waiting for the other members"));
    unless_terminated(find_out(place, content, unchanged))?.unwrap_or_else(stopped)
}

async fn find_out(
    place: &Place,
    content: Content,
    unchanged: impl Fn() -> Result<(), Failure>,
) -> Result<Beginning, Failure> {
    match content {
        Content::Nothing => {}
        Content::Member(identity) if is_removed(place, identity).await? => {
            let aside = folder::set_aside(&place.data)?;
            let (data, aside) = (place.data.display(), aside.display());
            say(&format!("{data} is of a member that was removed from etcd: it is {aside} now, remove it"));
        }
        Content::Member(_) | Content::Unreadable => return Ok(Beginning::WithData),
    }
    let mut voice = Voice::default();
    // etcd must not fail for want of a port when the others have begun with it.
    let _client = own_port(place.me.client, &mut voice).await;
    let listener = own_port(place.me.peer, &mut voice).await;
    let answering = Answering::on(listener);
    let mut seen = Seen::new(place.me.ip(), place.others.iter().map(Seat::ip));
    loop {
        unchanged()?;
        if folder::look(&place.data)? != Content::Nothing {
            let data = place.data.display();
            return Err(Failure::new(format!("{data} was empty, and has data now: begins again")));
        }
        match round(place, &mut seen, &answering).await {
            Ok(beginning) => return Ok(beginning),
            Err(why) => voice.say(why),
        }
        sleep(PAUSE).await;
    }
}

/// True if the etcd of the other members does not have this member any more.
async fn is_removed(place: &Place, identity: EtcdIdentity) -> Result<bool, Failure> {
    let listed = match client::tls(&place.client_tls) {
        Ok(tls) => etcd::roster(&place.client_urls(), &tls).await,
        Err(e) => Err(e.to_string()),
    };
    let data = place.data.display();
    match listed {
        Err(why) => {
            say(&format!("starts with {data}, without having asked the others: {why}"));
            Ok(false)
        }
        Ok(listed) if listed.cluster != identity.cluster => Err(Failure::new(format!(
            "refused: {data} is of another etcd (cluster {:x}) than that of the others (cluster {:x}, says {}). If \
             the others have the right data, move the folder away: then this member joins them. If this folder has \
             the right data, stop the others, and move their folders away",
            identity.cluster, listed.cluster, listed.endpoint
        ))),
        Ok(listed) => Ok(!listed.members.iter().any(|member| member.id == identity.member)),
    }
}

/// The step with a member's ports is the only one that speaks for it: no other etcd of this node runs.
async fn own_port(port: SocketAddr, voice: &mut Voice) -> TcpListener {
    loop {
        match TcpListener::bind(port).await {
            Ok(listener) => return listener,
            Err(e) => voice.say(format!("waits for the port {port}, as an etcd may be ending: {e}")),
        }
        sleep(PAUSE).await;
    }
}

/// Asks everybody once. Fails with the reason why this step still waits.
async fn round(place: &Place, seen: &mut Seen, answering: &Answering) -> Result<Beginning, String> {
    // They may be renewed while it waits.
    let tls = Tls::of_peer(&place.peer_tls).map_err(|e| e.to_string())?;
    answering.say(tls.answering.clone(), seen.empty());
    let mut asked = JoinSet::new();
    for other in &place.others {
        let (ip, peer, tls) = (other.ip(), other.peer, tls.asking.clone());
        asked.spawn(async move { (ip, steps::ask(peer, tls).await) });
    }
    while let Some(answer) = asked.join_next().await {
        let (from, answer) = answer.map_err(|e| e.to_string())?;
        seen.hear(from, answer);
    }
    answering.say(tls.answering, seen.empty());
    let waits = || format!("{} is empty; waits for {}", place.data.display(), seen.awaited());
    match seen.decision() {
        Decision::New => Ok(Beginning::New),
        Decision::Join => join(place).await.map_err(|why| {
            format!(
                "{}. It joins them as soon as it is let in: {why}. That takes a majority of the members with their \
                 data; if their data are lost, restore a snapshot",
                waits()
            )
        }),
        Decision::Wait => Err(format!(
            "{}. It begins a new etcd only if all members have empty folders, and joins one that runs: start the \
             others, or name other nodes in metes.conf if these are lost forever",
            waits()
        )),
    }
}

async fn join(place: &Place) -> Result<Beginning, String> {
    let tls = client::tls(&place.client_tls).map_err(|e| e.to_string())?;
    let mut roster = etcd::roster(&place.client_urls(), &tls).await?;
    let named: Vec<_> = place.others.iter().chain([&place.me]).map(|seat| seat.peer).collect();
    // Each removal shortens the list.
    for _ in 0..=roster.members.len() {
        let (removed, why) = match roster::next(&roster.members, &place.me.peer, &named) {
            Change::RemoveOld(member) => (member.clone(), "this node was it, and its data are gone"),
            // The node may have been replaced itself, and not know.
            Change::RemoveReplaced(_) if place.starts_again => {
                return Err("metes.conf does not name all members that etcd has: delete this pod".to_owned());
            }
            Change::RemoveReplaced(members) => {
                (silent(&members, place).await?.clone(), "metes.conf names another node instead")
            }
            Change::Add => {
                let id = roster.add(&place.me.peer_url()).await?;
                say(&format!("added this node to etcd as member {id:x}"));
                let name = place.me.ip().to_string();
                let initial_cluster = roster::initial_cluster(&roster.members, id, &name);
                return Ok(Beginning::Joining { initial_cluster });
            }
        };
        roster.remove(removed.id).await?;
        say(&format!("removed member {:x} ({}) from etcd: {why}", removed.id, removed.peer_urls.join(" ")));
    }
    Err("the list of members does not get shorter".to_owned())
}

/// The first of these that does not run. A member that runs may be needed for the majority.
async fn silent<'a>(members: &[&'a Listed], place: &Place) -> Result<&'a Listed, String> {
    let tls = Tls::of_peer(&place.peer_tls).map_err(|e| e.to_string())?.asking;
    'members: for member in members {
        for address in member.addresses() {
            if !matches!(steps::ask(address, tls.clone()).await, Answer::Silence(_)) {
                continue 'members;
            }
        }
        return Ok(member);
    }
    let urls: Vec<_> = members.iter().flat_map(|member| &member.peer_urls).map(String::as_str).collect();
    Err(format!(
        "members that metes.conf does not name still run: {}. Stop one of them, and it is removed",
        urls.join(" ")
    ))
}

impl Place {
    fn client_urls(&self) -> Vec<String> {
        self.others.iter().map(Seat::client_url).collect()
    }
}
