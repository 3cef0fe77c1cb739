//! The list of revoked certificates (CRL) that etcd reads at each TLS handshake. etcd looks at the serials in it, and
//! at nothing else: whose list it is does not matter.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use etcd_client::{Client, GetOptions, KeyValue};
use rcgen::{
    CertificateParams, CertificateRevocationListParams, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose,
    RevokedCertParams, SerialNumber,
};
use time::OffsetDateTime;
use tokio::time::sleep;
use x509_parser::prelude::FromDer;
use x509_parser::revocation_list::CertificateRevocationList;

use crate::client::within;
use crate::failure::Failure;
use crate::files;
use crate::issued::REVOKED_KEYS;
use crate::log::{Voice, say};

/// The list's name is that of the folder with the member's data, with this behind it.
pub(crate) const EXTENSION: &str = "crl";
/// The pause between two looks.
const PAUSE: Duration = Duration::from_secs(5);
/// An answer of this member.
const ANSWER: Duration = Duration::from_secs(10);
/// etcd does not look at it.
const VALID: time::Duration = time::Duration::days(3650);

/// A serial without leading zeros.
type Serial = Vec<u8>;

/// Without the file, etcd would take no connection at all.
pub(crate) fn write_if_missing(path: &Path) -> Result<(), Failure> {
    match files::read_if_there(path)? {
        Some(_) => Ok(()),
        None => write(path, &BTreeSet::new()),
    }
}

fn write(path: &Path, serials: &BTreeSet<Serial>) -> Result<(), Failure> {
    let list = list(serials).map_err(|e| Failure::new(format!("cannot make {}: {e}", path.display())))?;
    files::replace(path, &list, 0o600)
}

/// Signed by a key that nobody keeps.
fn list(serials: &BTreeSet<Serial>) -> Result<Vec<u8>, rcgen::Error> {
    let mut issuer = CertificateParams::default();
    issuer.key_usages = vec![KeyUsagePurpose::CrlSign];
    let now = OffsetDateTime::now_utc();
    let revoked = |serial: &Serial| RevokedCertParams {
        serial_number: SerialNumber::from_slice(serial),
        revocation_time: now,
        reason_code: None,
        invalidity_date: None,
    };
    let list = CertificateRevocationListParams {
        this_update: now,
        next_update: now + VALID,
        crl_number: SerialNumber::from(1),
        issuing_distribution_point: None,
        revoked_certs: serials.iter().map(revoked).collect(),
        key_identifier_method: KeyIdMethod::Sha256,
    };
    Ok(list.signed_by(&Issuer::new(issuer, KeyPair::generate()?))?.der().to_vec())
}

/// The serials of a list; none if it does not decode.
fn serials_in(list: &[u8]) -> Option<BTreeSet<Serial>> {
    let (_, list) = CertificateRevocationList::from_der(list).ok()?;
    Some(list.iter_revoked_certificates().map(|one| one.user_certificate.to_bytes_be()).collect())
}

/// Keeps the list as etcd has it, until this process ends.
pub(crate) async fn keep(path: &Path, connect: impl AsyncFn() -> Result<Client, String>) {
    let mut voice = Voice::default();
    let mut client = None;
    loop {
        if let Err(why) = look(path, &connect, &mut client).await {
            client = None;
            voice.say(format!("the list of revoked certificates may be old: {why}"));
        }
        sleep(PAUSE).await;
    }
}

async fn look(
    path: &Path,
    connect: &impl AsyncFn() -> Result<Client, String>,
    client: &mut Option<Client>,
) -> Result<(), String> {
    let mut connected = match client.take() {
        Some(client) => client,
        None => connect().await?,
    };
    // This member alone is asked: it serves its own list, also without a majority.
    let options = GetOptions::new().with_prefix().with_serializable().with_keys_only();
    let found = within(ANSWER, connected.get(REVOKED_KEYS, Some(options))).await?;
    let serials: BTreeSet<Serial> = found.kvs().iter().filter_map(serial).collect();
    let has = files::read_if_there(path).map_err(|e| e.to_string())?;
    if has.as_deref().and_then(serials_in).as_ref() != Some(&serials) {
        write(path, &serials).map_err(|e| e.to_string())?;
        say(&format!("etcd refuses {} revoked certificates", serials.len()));
    }
    *client = Some(connected);
    Ok(())
}

/// The serial in a key.
fn serial(found: &KeyValue) -> Option<Serial> {
    let digits = found.key().strip_prefix(REVOKED_KEYS.as_bytes())?;
    let digits = str::from_utf8(digits).ok()?;
    let is_hex =
        !digits.is_empty() && digits.len() % 2 == 0 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    let byte = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).ok();
    let bytes: Vec<u8> = (0..digits.len()).step_by(2).filter(|_| is_hex).filter_map(byte).collect();
    let bytes: Vec<u8> = bytes.into_iter().skip_while(|byte| *byte == 0).collect();
    (!bytes.is_empty()).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_the_serials_that_it_was_made_of() {
        for serials in [vec![], vec![vec![1]], vec![vec![0x40, 0, 0xff], vec![0x80; 16]]] {
            let serials: BTreeSet<Serial> = serials.into_iter().collect();
            assert_eq!(serials_in(&list(&serials).expect("a list")), Some(serials));
        }
        assert_eq!(serials_in(b"no list"), None);
    }
}
