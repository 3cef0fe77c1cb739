//! Users and roles in etcd, as docs/security.md has them, and authentication, which comes last.
//!
//! Each step looks first, so a run that was killed is finished by the next one, and several may run at the same time.

use std::iter;
use std::time::Duration;

use etcd_client::{
    AuthClient, Client, Permission, PermissionType, RoleRevokePermissionOptions, UserAddOptions,
};

use crate::client::within;
use crate::issued::REVOKED;

/// etcd's own role, which may do everything.
const ROOT: &str = "root";
/// The user of the members' certificate: members join with it, and look after themselves.
const MEMBERS: &str = "metes-etcd-server";
/// A change waits for a majority.
const CHANGE: Duration = Duration::from_secs(10);

/// A user, and the one role that it has.
struct User {
    name: &'static str,
    role: &'static str,
}

/// etcd demands a user `root`. It has no password, and no certificate carries its name.
const USERS: [User; 7] = [
    User { name: ROOT, role: ROOT },
    User { name: MEMBERS, role: ROOT },
    User { name: "metes-signer", role: ROOT },
    User { name: "metes-node", role: "metes-node" },
    User { name: "metes-reconciler", role: "metes-reconciler" },
    User { name: "metes-viewer", role: "metes-viewer" },
    User { name: "metes-admin", role: "metes-admin" },
];

/// A role, and its permissions.
struct Role {
    name: &'static str,
    permissions: Vec<Range>,
}

/// A permission for the keys from one to another, which it does not include.
struct Range {
    rights: PermissionType,
    from: String,
    to: String,
}

/// The keys, after `v1/`, that nodes of all clusters share. A node's run writes them for its own commits and for those
/// of runs that queue behind it.
const SHARED: [&str; 8] = ["asked/", "fence/", "meta", "moved/", "net/", "stranger/", "tail/", "ticket/"];
/// The keys that have the cluster's name after this.
const OF_CLUSTER: [&str; 6] = ["node/", "orphan/", "owner/", "pod/", "seat/", "tombstone/"];

/// The roles for the keys below a prefix, which begins and ends with `/`. Nodes write what their runs need, and only
/// that of their own cluster; the reconciler writes all but pools.
fn roles(prefix: &str, cluster: &str) -> [Role; 5] {
    use PermissionType::{Read, Readwrite};
    let shared = SHARED.iter().map(|key| format!("{prefix}v1/{key}"));
    let of_cluster = OF_CLUSTER.iter().map(|key| format!("{prefix}v1/{key}{cluster}/"));
    let written = shared.chain(of_cluster).map(|key| Range::below(Readwrite, &key));
    let node = iter::once(Range::below(Read, prefix)).chain(written).collect();
    let pools = format!("{prefix}v1/pool/");
    // The key after all pools, and the one after all keys.
    let (after_pools, end) = (format!("{prefix}v1/poolt"), end_of(prefix));
    let all_but_pools =
        [(Readwrite, prefix, &*pools), (Read, &pools, &after_pools), (Readwrite, &after_pools, &end)];
    let all_but_pools =
        all_but_pools.map(|(rights, from, to)| Range { rights, from: from.to_owned(), to: to.to_owned() });
    [
        Role { name: "metes-node", permissions: node },
        Role { name: "metes-reconciler", permissions: all_but_pools.into() },
        Role { name: "metes-viewer", permissions: vec![Range::below(Read, prefix)] },
        Role { name: "metes-admin", permissions: vec![Range::below(Readwrite, prefix)] },
        // A user that has it gets no other one.
        Role { name: REVOKED, permissions: Vec::new() },
    ]
}

impl Range {
    /// All keys below one that ends with `/`; of another one, this key alone.
    fn below(rights: PermissionType, key: &str) -> Self {
        let to = if key.ends_with('/') { end_of(key) } else { String::new() };
        Self { rights, from: key.to_owned(), to }
    }

    fn has_keys_of(&self, other: &Permission) -> bool {
        other.key() == self.from.as_bytes() && other.range_end() == self.to.as_bytes()
    }

    fn is(&self, other: &Permission) -> bool {
        self.has_keys_of(other) && other.get_type() == self.rights as i32
    }

    fn permission(&self) -> Permission {
        let permission = Permission::new(self.rights, &*self.from);
        if self.to.is_empty() { permission } else { permission.with_range_end(&*self.to) }
    }
}

/// The first key after all that begin with this one, which ends with `/`.
fn end_of(prefix: &str) -> String {
    format!("{}0", prefix.trim_end_matches('/'))
}

/// True if etcd asks for users. Only an etcd that does not answers an attempt to log in like that.
pub(crate) async fn are_asked_for(client: &mut Client) -> Result<bool, String> {
    let (nobody, no_password) = ("metes-install".to_owned(), String::new());
    match within(CHANGE, client.auth_client().authenticate(nobody, no_password)).await {
        Err(why) if why.contains("authentication is not enabled") => Ok(false),
        Err(why) if why.contains("authentication failed") => Ok(true),
        Err(why) => Err(why),
        Ok(_) => Err("it gave a token to a user without a password".to_owned()),
    }
}

/// Makes users and roles what they should be, switches authentication on, and says what it has changed.
pub(crate) async fn set(client: &mut Client, prefix: &str, cluster: &str) -> Result<Vec<String>, String> {
    let is_on = are_asked_for(client).await?;
    let mut auth = client.auth_client();
    let mut done = Vec::new();
    let there = within(CHANGE, auth.role_list()).await?;
    for role in roles(prefix, cluster) {
        if !there.roles().iter().any(|name| name == role.name) {
            if_new(within(CHANGE, auth.role_add(role.name)).await)?;
            done.push(format!("added the role {}", role.name));
        }
        set_permissions(&mut auth, &role, &mut done).await?;
    }
    let there = within(CHANGE, auth.user_list()).await?;
    for user in USERS {
        if !there.users().iter().any(|name| name == user.name) {
            let options = UserAddOptions::new().with_no_pwd();
            if_new(within(CHANGE, auth.user_add(user.name, "", Some(options))).await)?;
            done.push(format!("added the user {}", user.name));
        }
        let has = within(CHANGE, auth.user_get(user.name)).await?;
        if !has.roles().iter().any(|role| role == user.role) {
            within(CHANGE, auth.user_grant_role(user.name, user.role)).await?;
            done.push(format!("gave the user {} the role {}", user.name, user.role));
        }
    }
    if !is_on {
        within(CHANGE, auth.auth_enable()).await?;
        done.push("switched authentication on".to_owned());
    }
    Ok(done)
}

/// Gives what is missing before it takes what is too much: runs go on meanwhile.
async fn set_permissions(auth: &mut AuthClient, role: &Role, done: &mut Vec<String>) -> Result<(), String> {
    let has = within(CHANGE, auth.role_get(role.name)).await?.permissions();
    let (mut given, mut taken) = (0, 0);
    for new in role.permissions.iter().filter(|new| !has.iter().any(|old| new.is(old))) {
        within(CHANGE, auth.role_grant_permission(role.name, new.permission())).await?;
        given += 1;
    }
    for old in has.iter().filter(|old| !role.permissions.iter().any(|new| new.has_keys_of(old))) {
        let options = RoleRevokePermissionOptions::new().with_range_end(old.range_end());
        within(CHANGE, auth.role_revoke_permission(role.name, old.key(), Some(options))).await?;
        taken += 1;
    }
    if given + taken > 0 {
        done.push(format!("gave the role {} {given} permissions, and took {taken}", role.name));
    }
    Ok(())
}

/// The member on another node may have been faster.
fn if_new<T>(added: Result<T, String>) -> Result<(), String> {
    match added {
        Err(why) if !why.contains("already exists") => Err(why),
        _ => Ok(()),
    }
}
