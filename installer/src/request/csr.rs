//! A request for a certificate, and what is answered. Pure, but for the new key.

use std::fmt;

use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestSpec};
use kube::api::ObjectMeta;
use rcgen::{CertificateParams, DnType, KeyPair};

use crate::failure::Failure;
use crate::log::one_line;

/// What the names of requests begin with.
const NAMES_BEGIN: &str = "metes-node-";
const USAGES: [&str; 2] = ["digital signature", "client auth"];
/// Fourteen days.
const LIFE_SECONDS: i32 = 14 * 86_400;

/// A key that has no certificate yet: it is nowhere else.
pub(super) struct Key {
    /// PEM.
    pub(super) pem: String,
    request: String,
}

/// What the signer answers.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answered {
    Pending,
    /// The certificate, PEM.
    Signed(Vec<u8>),
    /// How it is called, and why.
    Refused(String),
}

impl Key {
    /// A new key, and its request: it says nothing but who asks.
    pub(super) fn new(user: &str) -> Result<Self, Failure> {
        let made = || {
            let key = KeyPair::generate()?;
            let mut params = CertificateParams::default();
            params.distinguished_name = rcgen::DistinguishedName::new();
            params.distinguished_name.push(DnType::CommonName, user);
            let request = params.serialize_request(&key)?.pem()?;
            Ok(Self { pem: key.serialize_pem(), request })
        };
        made().map_err(|e: rcgen::Error| Failure::new(format!("cannot make a key and its request: {e}")))
    }

    pub(super) fn request(&self, signer: &str) -> CertificateSigningRequest {
        CertificateSigningRequest {
            metadata: ObjectMeta { generate_name: Some(NAMES_BEGIN.to_owned()), ..ObjectMeta::default() },
            spec: CertificateSigningRequestSpec {
                request: ByteString(self.request.as_bytes().to_vec()),
                signer_name: signer.to_owned(),
                usages: Some(USAGES.map(str::to_owned).to_vec()),
                expiration_seconds: Some(LIFE_SECONDS),
                ..CertificateSigningRequestSpec::default()
            },
            status: None,
        }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }
}

pub(super) fn answer(request: &CertificateSigningRequest) -> Answered {
    let Some(status) = &request.status else { return Answered::Pending };
    let refused = status.conditions.iter().flatten();
    let refused = refused.into_iter().find(|one| matches!(&*one.type_, "Denied" | "Failed"));
    if let Some(refused) = refused {
        let why = refused.message.as_deref().or(refused.reason.as_deref()).unwrap_or("without a reason");
        return Answered::Refused(format!("{}: {}", refused.type_, one_line(why)));
    }
    match &status.certificate {
        Some(certificate) if !certificate.0.is_empty() => Answered::Signed(certificate.0.clone()),
        _ => Answered::Pending,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_refusal_counts_more_than_a_certificate() {
        let key = Key::new("metes-node/c1/n1").expect("made");
        let answered = |status| {
            let mut request = json!(key.request("metes.dev/etcd-client"));
            request["status"] = status;
            answer(&serde_json::from_value(request).expect("a request"))
        };
        let condition = |kind| json!({"type": kind, "status": "True", "message": "why"});
        for (status, expected) in [
            (json!(null), Answered::Pending),
            (json!({}), Answered::Pending),
            (json!({"conditions": [condition("Approved")]}), Answered::Pending),
            (json!({"certificate": "UEVN"}), Answered::Signed(b"PEM".to_vec())),
            (json!({"conditions": [condition("Denied")]}), Answered::Refused("Denied: why".to_owned())),
            (
                json!({"certificate": "UEVN", "conditions": [condition("Approved"), condition("Failed")]}),
                Answered::Refused("Failed: why".to_owned()),
            ),
        ] {
            assert_eq!(answered(status.clone()), expected, "{status}");
        }
    }
}
