//! The etcd that the other members run: its list of members, read and changed.

use std::time::Duration;

use etcd_client::{Client, ConnectOptions, Error, GetOptions, Member, TlsOptions};
use tokio::task::JoinSet;

use super::roster::Listed;
use crate::client::within;

/// An election takes one or two seconds.
const LIST: Duration = Duration::from_secs(5);
/// A change of the list waits for a majority.
const CHANGE: Duration = Duration::from_secs(10);

/// The list of members as a majority of them has it.
pub(super) struct Roster {
    client: Client,
    pub(super) endpoint: String,
    pub(super) cluster: u64,
    pub(super) members: Vec<Listed>,
}

/// The list from whichever endpoint gives it first; or why each of them does not.
pub(super) async fn roster(endpoints: &[String], tls: &TlsOptions) -> Result<Roster, String> {
    let mut asked = JoinSet::new();
    for endpoint in endpoints {
        let (endpoint, tls) = (endpoint.clone(), tls.clone());
        asked.spawn(async move {
            let listed = within(LIST, list(&endpoint, tls)).await;
            listed.map_err(|why| format!("{endpoint}: {why}"))
        });
    }
    let mut failed = Vec::new();
    while let Some(answer) = asked.join_next().await {
        match answer.map_err(|e| e.to_string()).and_then(|listed| listed) {
            Ok(roster) => return Ok(roster),
            Err(why) => failed.push(why),
        }
    }
    failed.sort();
    Err(failed.join("; "))
}

async fn list(endpoint: &str, tls: TlsOptions) -> Result<Roster, Error> {
    let options = ConnectOptions::new().with_tls(tls).with_connect_timeout(LIST);
    let mut client = Client::connect([endpoint], Some(options)).await?;
    // A member that is cut off has an old list, and gives it. After a read that a majority confirms it has the present
    // one.
    client.get("metes-install", Some(GetOptions::new().with_count_only())).await?;
    let list = client.member_list().await?;
    let cluster = list.header().map_or(0, etcd_client::ResponseHeader::cluster_id);
    Ok(Roster { client, endpoint: endpoint.to_owned(), cluster, members: listed(list.members()) })
}

impl Roster {
    pub(super) async fn remove(&mut self, id: u64) -> Result<(), String> {
        let removed = within(CHANGE, self.client.member_remove(id)).await?;
        self.members = listed(removed.members());
        Ok(())
    }

    /// Adds a member, and returns its id.
    pub(super) async fn add(&mut self, peer_url: &str) -> Result<u64, String> {
        let added = within(CHANGE, self.client.member_add([peer_url], None)).await?;
        self.members = listed(added.member_list());
        added.member().map(Member::id).ok_or_else(|| "etcd does not say which member it has added".to_owned())
    }
}

fn listed(members: &[Member]) -> Vec<Listed> {
    members.iter().map(|m| Listed { id: m.id(), peer_urls: m.peer_urls().to_vec() }).collect()
}
