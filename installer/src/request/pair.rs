//! A certificate and its key, and whether they are the identity of a node.

use std::fmt;

use rcgen::KeyPair;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use time::{Duration, OffsetDateTime};
use x509_parser::certificate::X509Certificate;
use x509_parser::parse_x509_certificate;

/// A certificate is renewed when less than this is left: when it is four days old.
const RENEWED: Duration = Duration::days(10);
/// The most by which nodes renew before that: they do not all ask at once.
const EARLIER_SECONDS: u64 = 12 * 3600;
/// So little is left only if renewals have failed for days.
const ALARM: Duration = Duration::days(5);

/// A certificate and its key, PEM.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Pair {
    pub(crate) certificate: Vec<u8>,
    pub(crate) key: Vec<u8>,
}

/// What makes a certificate the identity of a node.
pub(crate) struct Owner<'a> {
    /// The user of the node in etcd.
    pub(crate) user: &'a str,
    /// The authorities of which one must have signed it, PEM; any may, if they are not known.
    pub(crate) authorities: Option<&'a [u8]>,
}

/// The identity of a node, as its certificate says it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) common_name: String,
    pub(crate) not_before: OffsetDateTime,
    pub(crate) not_after: OffsetDateTime,
}

impl Pair {
    /// The identity, or why this is none of that owner. Its time is another question.
    pub(crate) fn identity(&self, owner: &Owner<'_>) -> Result<Identity, String> {
        let der =
            CertificateDer::from_pem_slice(&self.certificate).map_err(|_| "it is not PEM".to_owned())?;
        let (_, certificate) = parse_x509_certificate(&der).map_err(|e| format!("it cannot be read: {e}"))?;
        let identity = Identity::of(&certificate)?;
        if identity.common_name != owner.user {
            return Err(format!("it is for the user {}", identity.common_name));
        }
        if !self.has_key_of(&certificate) {
            return Err("it is for another key".to_owned());
        }
        if owner.authorities.is_some_and(|authorities| !is_signed_by_one_of(&certificate, authorities)) {
            return Err("no present authority of the nodes has signed it".to_owned());
        }
        Ok(identity)
    }

    fn has_key_of(&self, certificate: &X509Certificate<'_>) -> bool {
        let key = str::from_utf8(&self.key).ok().and_then(|key| KeyPair::from_pem(key).ok());
        let public = &certificate.public_key().subject_public_key.data;
        key.is_some_and(|key| key.public_key_raw() == public.as_ref())
    }
}

fn is_signed_by_one_of(certificate: &X509Certificate<'_>, authorities: &[u8]) -> bool {
    CertificateDer::pem_slice_iter(authorities).filter_map(Result::ok).any(|der| {
        let authority = parse_x509_certificate(&der);
        authority.is_ok_and(|(_, it)| certificate.verify_signature(Some(it.public_key())).is_ok())
    })
}

impl Identity {
    fn of(certificate: &X509Certificate<'_>) -> Result<Self, String> {
        let name = certificate.subject().iter_common_name().last().and_then(|name| name.as_str().ok());
        let validity = certificate.validity();
        Ok(Self {
            common_name: name.ok_or("it has no common name")?.to_owned(),
            not_before: validity.not_before.to_datetime(),
            not_after: validity.not_after.to_datetime(),
        })
    }

    pub(crate) fn is_valid_at(&self, now: OffsetDateTime) -> bool {
        (self.not_before..=self.not_after).contains(&now)
    }

    /// True if the node should have another one by now.
    pub(crate) fn is_due_at(&self, now: OffsetDateTime) -> bool {
        !self.is_valid_at(now) || self.not_after - now < RENEWED + earlier(&self.common_name)
    }

    pub(crate) fn is_alarming_at(&self, now: OffsetDateTime) -> bool {
        self.not_after - now < ALARM
    }
}

/// The same for a node each time.
fn earlier(user: &str) -> Duration {
    // FNV-1a: it need only differ.
    let hash = user.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    Duration::seconds((hash % EARLIER_SECONDS).cast_signed())
}

/// A time in UTC, as people write it.
pub(crate) struct Shown(pub(crate) OffsetDateTime);

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (date, time) = (self.0.date(), self.0.time());
        let (year, month, day) = (date.year(), u8::from(date.month()), date.day());
        let (hour, minute, second) = (time.hour(), time.minute(), time.second());
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_renewed_after_four_days_and_alarms_when_five_are_left() {
        let not_before = OffsetDateTime::UNIX_EPOCH;
        let not_after = not_before + Duration::days(14);
        for node in ["n1", "n2", "n3"] {
            let identity = Identity { common_name: node.to_owned(), not_before, not_after };
            let due = |left: Duration| identity.is_due_at(not_after - left);
            assert!(!due(RENEWED + Duration::hours(12)) && due(RENEWED - Duration::seconds(1)), "{node}");
            assert!(identity.is_due_at(not_before - Duration::seconds(1)));
            assert!(identity.is_due_at(not_after + Duration::seconds(1)));
            assert!(!identity.is_alarming_at(not_after - ALARM));
            assert!(identity.is_alarming_at(not_after - ALARM + Duration::seconds(1)));
        }
        assert_ne!(earlier("n1"), earlier("n2"));
    }

    #[test]
    fn what_cannot_be_read_is_no_identity() {
        let owner = Owner { user: "metes-node/c1/n1", authorities: None };
        for certificate in ["", "x", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
            let pair = Pair { certificate: certificate.into(), key: Vec::new() };
            assert!(pair.identity(&owner).is_err(), "{certificate}");
        }
    }
}
