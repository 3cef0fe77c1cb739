//! Shuts out one node for good: its user loses its role and never gets it again, and etcd's members refuse its
//! certificates.
//!
//! The order is that of [`crate::signer`] the other way round. The signer writes down what it will give out, and then
//! looks at the role; this looks at what is written down after it has given the role.

use std::time::Duration;

use etcd_client::{AuthClient, Client, PutOptions, UserAddOptions};
use time::OffsetDateTime;

use crate::arguments::RevokeArgs;
use crate::care::{Member, once};
use crate::client::within;
use crate::failure::Failure;
use crate::identity::user;
use crate::issued::{Issued, KEPT_SECONDS, REVOKED, has_ended, issued_key, revoked_key};
use crate::log::{say, tell};
use crate::template::Template;

/// A change waits for a majority.
const CHANGE: Duration = Duration::from_secs(10);

/// It may be repeated at any time.
pub(crate) fn run(arguments: &RevokeArgs) -> Result<(), Failure> {
    once(async {
        let template = Template::read(&arguments.member.template.template)?;
        let mut client = Member::of(&arguments.member)?.connect().await.map_err(Failure::new)?;
        let node = &arguments.node;
        let user = user(template.cluster(), node);
        tell(&take_role(&mut client.auth_client(), &user, node).await.map_err(Failure::new)?);
        let serials = revoke_serials(&mut client, &user, node).await.map_err(Failure::new)?;
        say(&format!(
            "revoked {serials} certificates of {user}: each member of etcd refuses them within seconds"
        ));
        tell(&to_do(node));
        Ok(())
    })
}

async fn take_role(auth: &mut AuthClient, user: &str, node: &str) -> Result<Vec<String>, String> {
    let mut done = Vec::new();
    let options = UserAddOptions::new().with_no_pwd();
    match within(CHANGE, auth.user_add(user, "", Some(options))).await {
        Ok(_) => {
            done.push(format!("etcd knew no node {node} (no user {user}): the name is blocked from now on"))
        }
        Err(why) if why.contains("already exists") => {}
        Err(why) => return Err(format!("cannot look at the user {user}: {why}")),
    }
    let has = within(CHANGE, auth.user_get(user)).await?.roles().to_vec();
    if !has.iter().any(|role| role == REVOKED) {
        let granted = within(CHANGE, auth.user_grant_role(user, REVOKED)).await;
        granted.map_err(|why| {
            format!(
                "cannot give the user {user} the role {REVOKED}: {why}. `metes-install etcd-roles` makes it"
            )
        })?;
        done.push(format!("gave the user {user} the role {REVOKED}: it gets no certificate any more"));
    }
    // The signer may have given it one meanwhile.
    let has = within(CHANGE, auth.user_get(user)).await?.roles().to_vec();
    for role in has.iter().filter(|role| *role != REVOKED) {
        within(CHANGE, auth.user_revoke_role(user, role.as_str())).await?;
        done.push(format!("took the role {role} from the user {user}"));
    }
    if done.is_empty() {
        done.push(format!("the user {user} was revoked before"));
    }
    Ok(done)
}

/// Revokes each certificate that has not ended, and returns how many there are.
async fn revoke_serials(client: &mut Client, user: &str, node: &str) -> Result<usize, String> {
    let found = within(CHANGE, client.get(issued_key(user), None)).await?;
    let issued = Issued::read(found.kvs().first(), node)?.issued;
    let now = OffsetDateTime::now_utc().unix_timestamp();
    let left = issued.into_iter().filter(|one| !has_ended(one.not_after, now));
    let keys: Vec<String> = left.map(|one| revoked_key(&one.serial)).collect();
    if !keys.is_empty() {
        // By no clock: it ends after every certificate that exists now.
        let lease = within(CHANGE, client.lease_grant(KEPT_SECONDS, None)).await?.id();
        for key in &keys {
            let options = PutOptions::new().with_lease(lease);
            within(CHANGE, client.put(key.as_str(), user, Some(options))).await?;
        }
    }
    Ok(keys.len())
}

fn to_do(node: &str) -> [String; 3] {
    [
        format!("to do: delete the Node, so that its pods go too: kubectl delete node {node}"),
        format!("to do: look at what it has left: `metes check`, and `metes list --node {node}`"),
        "to do: a connection that was open before may still grant leases: restart etcd's pods, one after the other, to \
         end them all"
            .to_owned(),
    ]
}
