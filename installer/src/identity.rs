//! The name of a node as a user of etcd: the common name of its certificate.

use std::fmt::Write;

use ring::digest::{SHA256, digest};

/// The longest common name that a certificate may have.
const COMMON_NAME_BYTES: usize = 64;
/// What the users of all nodes begin with.
const USERS_BEGIN: &str = "metes-node/";
/// The bytes of a digest that stand in a name.
const DIGEST_BYTES: usize = 16;

/// The user of a node of this cluster. A name that is too long is known by its digest.
pub(crate) fn user(cluster: &str, node: &str) -> String {
    let long = format!("{USERS_BEGIN}{cluster}/{node}");
    if long.len() <= COMMON_NAME_BYTES {
        return long;
    }
    let mut short = USERS_BEGIN.to_owned();
    for byte in &digest(&SHA256, long.as_bytes()).as_ref()[..DIGEST_BYTES] {
        // A String takes everything.
        let _ = write!(short, "{byte:02x}");
    }
    short
}

/// True for a user whose name does not tell its node.
pub(crate) fn is_digest(user: &str) -> bool {
    let digest = user.strip_prefix(USERS_BEGIN).unwrap_or_default();
    digest.len() == 2 * DIGEST_BYTES && digest.bytes().all(|digit| digit.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_name_is_known_by_its_digest() {
        assert_eq!(user("c1", "n1"), "metes-node/c1/n1");
        let longest = "n".repeat(64 - "metes-node/c1/".len());
        assert_eq!(user("c1", &longest).len(), 64);
        // printf metes-node/c1/nnn... | sha256sum
        let long = user("c1", &format!("{longest}n"));
        assert_eq!(long, "metes-node/fab130190808371f11d85d2753d05d1a");
        assert!(is_digest(&long) && !is_digest(&user("c1", "n1")));
    }
}
