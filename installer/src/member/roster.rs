//! The changes of etcd's list of members that let this one join. Pure.

use std::net::SocketAddr;

/// A member as etcd lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Listed {
    pub(super) id: u64,
    pub(super) peer_urls: Vec<String>,
}

/// The next change of the list.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Change<'a> {
    /// This node was that member, and its data are gone.
    RemoveOld(&'a Listed),
    /// metes.conf names other nodes in the place of these. The first that does not run is to go.
    RemoveReplaced(Vec<&'a Listed>),
    /// Add this one.
    Add,
}

impl Listed {
    fn is_at(&self, peer: &SocketAddr) -> bool {
        self.addresses().any(|address| address == *peer)
    }

    pub(super) fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        let address = |url: &String| url.split_once("://")?.1.trim_end_matches('/').parse().ok();
        self.peer_urls.iter().filter_map(address)
    }
}

/// The next of the changes that let the member at `me` join. `named` are the peer addresses of all members in
/// metes.conf.
///
/// A member whose data are gone gets a new id, also if it has never started: nobody knows its promises under the old
/// one.
pub(super) fn next<'a>(list: &'a [Listed], me: &SocketAddr, named: &[SocketAddr]) -> Change<'a> {
    if let Some(old) = list.iter().find(|member| member.is_at(me)) {
        return Change::RemoveOld(old);
    }
    let is_replaced = |member: &&Listed| !named.iter().any(|peer| member.is_at(peer));
    let replaced: Vec<_> = list.iter().filter(is_replaced).collect();
    if replaced.is_empty() || list.len() < named.len() {
        Change::Add
    } else {
        Change::RemoveReplaced(replaced)
    }
}

/// All members for `initial-cluster`. etcd compares the URLs; of the names it needs only this member's own.
pub(super) fn initial_cluster(list: &[Listed], own_id: u64, own_name: &str) -> String {
    let urls = |member: &Listed| {
        let name = if member.id == own_id { own_name.to_owned() } else { format!("{:x}", member.id) };
        member.peer_urls.iter().map(|url| format!("{name}={url}")).collect::<Vec<_>>()
    };
    list.iter().flat_map(urls).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(last: u64) -> SocketAddr {
        format!("10.0.0.{last}:12380").parse().expect("an address")
    }

    /// A member whose id is the end of its address.
    fn listed(ids: &[u64]) -> Vec<Listed> {
        let listed = |id: &u64| Listed { id: *id, peer_urls: vec![format!("https://{}", peer(*id))] };
        ids.iter().map(listed).collect()
    }

    #[test]
    fn the_list_is_changed_until_this_member_fits() {
        let named = [1, 2, 3].map(peer);
        let next = |list: &[u64]| match next(&listed(list), &peer(3), &named) {
            Change::RemoveOld(member) => ("old", member.id),
            Change::RemoveReplaced(members) => ("replaced", members.iter().map(|member| member.id).sum()),
            Change::Add => ("add", 3),
        };
        assert_eq!(next(&[1, 2]), ("add", 3));
        assert_eq!(next(&[1, 2, 3]), ("old", 3));
        assert_eq!(next(&[1, 2, 9]), ("replaced", 9));
        assert_eq!(next(&[1, 8, 9]), ("replaced", 17));
        assert_eq!(next(&[1, 2, 3, 9]), ("old", 3));
        // As after the restore of one member: others are still to come, and nobody is in the way.
        assert_eq!(next(&[1]), ("add", 3));
        assert_eq!(next(&[1, 9]), ("add", 3));
    }

    #[test]
    fn initial_cluster_has_every_url() {
        let mut list = listed(&[10, 3]);
        list[0].peer_urls.push("https://[fd00::1]:12380".to_owned());
        assert_eq!(
            initial_cluster(&list, 3, "10.0.0.3"),
            "a=https://10.0.0.10:12380,a=https://[fd00::1]:12380,10.0.0.3=https://10.0.0.3:12380"
        );
    }

    #[test]
    fn an_address_is_the_same_however_it_is_written() {
        let written = |url: &str| Listed { id: 1, peer_urls: vec![url.to_owned()] };
        let me = "[fd00::1]:12380".parse().expect("an address");
        assert!(written("https://[fd00:0::1]:12380/").is_at(&me));
        for other in ["https://[fd00::1]:12381", "https://etcd.example:12380", "[fd00::1]:12380", ""] {
            assert!(!written(other).is_at(&me), "{other}");
        }
    }
}
