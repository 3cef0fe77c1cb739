//! The users of nodes in etcd, and which certificates they have.

use std::time::Duration;

use etcd_client::{Client, Compare, CompareOp, PutOptions, Txn, TxnOp, UserAddOptions};
use ring::rand::{SecureRandom, SystemRandom};

use crate::client::{self, within};
use crate::issued::{Issued, KEPT_SECONDS, LeafId, NODES, REVOKED, issued_key};
use crate::template::Template;

/// The time for a member to be reached.
const CONNECT: Duration = Duration::from_secs(3);
/// A change waits for a majority.
const CHANGE: Duration = Duration::from_secs(10);
/// The certificates of one node that have not ended. A usual node has eight.
const CERTIFICATES_MAX: usize = 200;
/// Attempts to write what another replica writes too.
const TRIES_MAX: u32 = 8;

/// etcd, with the signer's certificate.
pub(super) struct Users {
    client: Client,
}

/// What a user is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// It is not there, or has no role yet.
    New,
    Node,
    Revoked,
}

/// Why a certificate is not recorded.
pub(super) enum NotRecorded {
    Refused(String),
    Trouble(String),
}

impl Users {
    /// At the first member that answers, in a random order: the replicas need not ask the same one.
    pub(super) async fn connect(template: &Template) -> Result<Self, String> {
        let mut endpoints = template.endpoints().map_err(|e| e.to_string())?;
        shuffle(&mut endpoints);
        let mut failed = Vec::new();
        for endpoint in endpoints {
            let url = endpoint.url();
            match Self::connect_to(template, &url).await {
                Ok(users) => return Ok(users),
                Err(why) => failed.push(format!("{url}: {why}")),
            }
        }
        failed.sort();
        Err(format!("etcd does not answer: {}", failed.join("; ")))
    }

    async fn connect_to(template: &Template, url: &str) -> Result<Self, String> {
        let files = template.tls().map_err(|e| e.to_string())?;
        let tls = client::tls(&files).map_err(|e| e.to_string())?;
        let mut client = client::connect(url, template.server_name(), tls, CONNECT).await?;
        // A member that is cut off from the others would answer nothing after this either.
        within(CONNECT, client.get(issued_key(""), None)).await?;
        Ok(Self { client })
    }

    pub(super) async fn standing(&mut self, user: &str) -> Result<Standing, String> {
        let found = within(CHANGE, self.client.auth_client().user_get(user)).await;
        let has = match found {
            Err(why) if why.contains("user name not found") => return Ok(Standing::New),
            found => found.map_err(|why| format!("cannot read the user {user} of etcd: {why}"))?,
        };
        let has = |role: &str| has.roles().iter().any(|other| other == role);
        Ok(match (has(REVOKED), has(NODES)) {
            (true, _) => Standing::Revoked,
            (false, true) => Standing::Node,
            (false, false) => Standing::New,
        })
    }

    /// Makes a user, or gives one that is there its role. Another replica may do the same.
    pub(super) async fn admit(&mut self, user: &str) -> Result<(), String> {
        let mut auth = self.client.auth_client();
        let options = UserAddOptions::new().with_no_pwd();
        match within(CHANGE, auth.user_add(user, "", Some(options))).await {
            Err(why) if !why.contains("already exists") => {
                return Err(format!("cannot add the user {user}: {why}"));
            }
            _ => {}
        }
        let granted = within(CHANGE, auth.user_grant_role(user, NODES)).await;
        granted.map(drop).map_err(|why| format!("cannot give the user {user} the role {NODES}: {why}"))
    }

    /// Takes the role from a user that was revoked in the moment in which it got it.
    pub(super) async fn dismiss(&mut self, user: &str) -> Result<(), String> {
        match within(CHANGE, self.client.auth_client().user_revoke_role(user, NODES)).await {
            Err(why) if !why.contains("not granted") => {
                Err(format!("cannot take the role from {user}: {why}"))
            }
            _ => Ok(()),
        }
    }

    /// Writes down that a user will have a certificate. Those that have ended are forgotten.
    pub(super) async fn record(
        &mut self,
        user: &str,
        node: &str,
        new: &LeafId,
        now: i64,
    ) -> Result<(), NotRecorded> {
        let trouble = |why| NotRecorded::Trouble(format!("cannot record a certificate of {user}: {why}"));
        let key = issued_key(user);
        for _ in 0..TRIES_MAX {
            let found = within(CHANGE, self.client.get(key.as_str(), None)).await.map_err(trouble)?;
            let found = found.kvs().first();
            let mut issued = Issued::read(found, node).map_err(NotRecorded::Refused)?;
            issued.prune(now);
            if issued.issued.len() >= CERTIFICATES_MAX {
                return Err(NotRecorded::Refused(format!(
                    "node {node} has {} certificates that have not ended: a new one is given when some have",
                    issued.issued.len()
                )));
            }
            issued.issued.push(new.clone());
            let revision = found.map_or(0, etcd_client::KeyValue::mod_revision);
            let unchanged = Compare::mod_revision(key.as_str(), CompareOp::Equal, revision);
            let put = TxnOp::put(key.as_str(), issued.text(), None);
            let txn = Txn::new().when([unchanged]).and_then([put]);
            if within(CHANGE, self.client.txn(txn)).await.map_err(trouble)?.succeeded() {
                return Ok(());
            }
        }
        Err(trouble(format!("it was changed {TRIES_MAX} times meanwhile")))
    }

    /// All users of etcd.
    pub(super) async fn all(&mut self) -> Result<Vec<String>, String> {
        let all = within(CHANGE, self.client.auth_client().user_list()).await;
        Ok(all.map_err(|why| format!("cannot list the users of etcd: {why}"))?.users().to_vec())
    }

    /// The node for which a user was made, if that is recorded.
    pub(super) async fn recorded_node(&mut self, user: &str) -> Result<Option<String>, String> {
        let found = within(CHANGE, self.client.get(issued_key(user), None)).await;
        let found = found.map_err(|why| format!("cannot read what is recorded of the user {user}: {why}"))?;
        // What does not decode is told when the node asks.
        Ok(found.kvs().first().and_then(|one| Issued::read(Some(one), "").ok()).map(|issued| issued.node))
    }

    /// Deletes a user. What it has stays until all of its certificates have ended: a person may still revoke them.
    /// Another replica may do the same.
    pub(super) async fn forget(&mut self, user: &str) -> Result<(), String> {
        match within(CHANGE, self.client.auth_client().user_delete(user)).await {
            Err(why) if !why.contains("not found") => {
                return Err(format!("cannot delete the user {user}: {why}"));
            }
            _ => {}
        }
        let left = self.leave_record(user).await;
        left.map_err(|why| format!("cannot let end what is recorded of the user {user}: {why}"))
    }
}

impl Users {
    async fn leave_record(&mut self, user: &str) -> Result<(), String> {
        let key = issued_key(user);
        let found = within(CHANGE, self.client.get(key.as_str(), None)).await?;
        let Some(record) = found.kvs().first().filter(|record| record.lease() == 0) else { return Ok(()) };
        let lease = within(CHANGE, self.client.lease_grant(KEPT_SECONDS, None)).await?.id();
        let unchanged = Compare::mod_revision(key.as_str(), CompareOp::Equal, record.mod_revision());
        let options = PutOptions::new().with_lease(lease);
        let put = TxnOp::put(key.as_str(), record.value(), Some(options));
        within(CHANGE, self.client.txn(Txn::new().when([unchanged]).and_then([put]))).await.map(drop)
    }
}

/// Puts the items into a random order. If the kernel gives no random bytes, they stay as they are.
pub(super) fn shuffle<T>(items: &mut [T]) {
    let random = SystemRandom::new();
    for last in (1..items.len()).rev() {
        let mut bytes = [0; 4];
        if random.fill(&mut bytes).is_ok() {
            let place = u32::from_le_bytes(bytes) as usize % (last + 1);
            items.swap(last, place);
        }
    }
}
