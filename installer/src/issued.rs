//! The keys of etcd that tell which certificates a node has, and which of them are revoked. They are outside of metes'
//! prefix: no role of a node or a person reaches them.

use etcd_client::KeyValue;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// The role of nodes.
pub(crate) const NODES: &str = "metes-node";
/// The role, without a permission, of a user that gets no certificate any more.
pub(crate) const REVOKED: &str = "metes-revoked";
/// Before the serial of each revoked certificate.
pub(crate) const REVOKED_KEYS: &str = "/metes-signer/revoked/";
/// How long a key stays that is about certificates which exist, and may not be renewed: longer than any is valid.
pub(crate) const KEPT_SECONDS: i64 = 16 * 24 * 3600;
/// The clocks of those that look at a certificate may differ, so a certificate counts for so long after its end.
const ENDED_SECONDS: i64 = 24 * 3600;

/// All certificates of a user that have not ended: written before any of them is given out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Issued {
    pub(crate) node: String,
    pub(crate) issued: Vec<LeafId>,
}

/// One certificate. The serial is in hexadecimal digits, the end in seconds since 1970 in UTC.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LeafId {
    pub(crate) serial: String,
    pub(crate) not_after: i64,
}

/// True if no server takes a certificate any more that ends then.
pub(crate) fn has_ended(not_after: i64, now: i64) -> bool {
    not_after.saturating_add(ENDED_SECONDS) < now
}

/// The key of what a user has.
pub(crate) fn issued_key(user: &str) -> String {
    format!("/metes-signer/node/{user}")
}

/// The key of a revoked certificate. Its value is the user.
pub(crate) fn revoked_key(serial: &str) -> String {
    format!("{REVOKED_KEYS}{serial}")
}

impl Issued {
    /// What a user has; none of them if the key is missing.
    pub(crate) fn read(found: Option<&KeyValue>, node: &str) -> Result<Self, String> {
        let Some(found) = found else { return Ok(Self { node: node.to_owned(), issued: Vec::new() }) };
        serde_json::from_slice(found.value()).map_err(|e| {
            let key = String::from_utf8_lossy(found.key());
            format!(
                "the key {key} in etcd does not decode ({e}): it is left as it is, and a person must mend it"
            )
        })
    }

    /// Forgets certificates that have ended.
    pub(crate) fn prune(&mut self, now: i64) {
        self.issued.retain(|one| !has_ended(one.not_after, now));
    }

    pub(crate) fn text(&self) -> String {
        json!(self).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_ended_is_forgotten_a_day_later() {
        let id = |not_after| LeafId { serial: format!("{not_after:x}"), not_after };
        let now = 10 * ENDED_SECONDS;
        let mut all = Issued {
            node: "n1".to_owned(),
            issued: vec![id(8 * ENDED_SECONDS), id(9 * ENDED_SECONDS), id(now + 1)],
        };
        all.prune(now);
        assert_eq!(all.issued, [id(9 * ENDED_SECONDS), id(now + 1)]);
        assert_eq!(
            Issued { node: "n1".to_owned(), issued: vec![id(16)] }.text(),
            r#"{"issued":[{"not_after":16,"serial":"10"}],"node":"n1"}"#
        );
    }
}
