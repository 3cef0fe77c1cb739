//! What a node has already, compared with what is to be its own.

use std::path::Path;

use time::OffsetDateTime;

use super::pair::{Identity, Owner, Pair};
use crate::failure::Failure;
use crate::files;

/// The certificate that the node is to have, and who gives it.
pub(crate) struct Own {
    pub(crate) signer: String,
    /// Its user in etcd.
    pub(crate) user: String,
    /// The authorities of the nodes, if they are known.
    pub(crate) authorities: Option<Vec<u8>>,
}

/// The certificate and key on the node, and its identity, or why they are none of its own.
pub(crate) struct Present {
    pub(crate) pair: Pair,
    pub(crate) identity: Result<Identity, String>,
}

impl Own {
    pub(super) fn owner(&self) -> Owner<'_> {
        Owner { user: &self.user, authorities: self.authorities.as_deref() }
    }
}

impl Present {
    /// None if one of the files is not there.
    pub(crate) fn read(certificate: &Path, key: &Path, own: &Own) -> Result<Option<Self>, Failure> {
        let read = files::read_if_there;
        let (Some(certificate), Some(key)) = (read(certificate)?, read(key)?) else { return Ok(None) };
        let pair = Pair { certificate, key };
        Ok(Some(Self { identity: pair.identity(&own.owner()), pair }))
    }

    pub(crate) fn is_valid(&self) -> bool {
        self.identity.as_ref().is_ok_and(|identity| identity.is_valid_at(OffsetDateTime::now_utc()))
    }

    /// True if the node should have another one by now.
    pub(crate) fn is_due(&self) -> bool {
        self.identity.as_ref().map_or(true, |identity| identity.is_due_at(OffsetDateTime::now_utc()))
    }
}
