//! The certificate of a node, made of nothing but the public key of its request.

use std::path::Path;

use rcgen::{
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, PKCS_ECDSA_P256_SHA256, PublicKeyData, SerialNumber,
    SignatureAlgorithm,
};
use ring::rand::{SecureRandom, SystemRandom};
use rustls::pki_types::CertificateSigningRequestDer;
use rustls::pki_types::pem::PemObject;
use time::Duration;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::oid_registry::{OID_EC_P256, OID_KEY_TYPE_EC_PUBLIC_KEY};
use x509_parser::prelude::FromDer;
use x509_parser::x509::{SubjectPublicKeyInfo, X509Name};

use crate::failure::Failure;
use crate::issued::LeafId;
use crate::issuing::{leaf_params, pair_in};

/// The longest time for which it is valid.
const VALID: Duration = Duration::days(14);
const SERIAL_BYTES: usize = 16;
/// The seconds for which a certificate of no user is valid.
const PASSING: i32 = 600;

/// The public key of a node: a point of P-256.
#[derive(Debug)]
pub(super) struct PublicKey(Vec<u8>);

impl PublicKeyData for PublicKey {
    fn der_bytes(&self) -> &[u8] {
        &self.0
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &PKCS_ECDSA_P256_SHA256
    }
}

/// The key of a request for this user, or why the request is refused. The request proves that its sender has the
/// private key. All else that it wants counts for nothing.
pub(super) fn wanted(pem: &[u8], user: &str) -> Result<PublicKey, String> {
    let der = CertificateSigningRequestDer::from_pem_slice(pem);
    let der = der.map_err(|e| format!("the request is not PKCS#10 in PEM: {e:?}"))?;
    let parsed = X509CertificationRequest::from_der(&der);
    let (rest, request) = parsed.map_err(|e| format!("the request is not PKCS#10: {e}"))?;
    if !rest.is_empty() {
        return Err("the request is not PKCS#10: something follows it".to_owned());
    }
    let info = &request.certification_request_info;
    if !is_p256(&info.subject_pki) {
        return Err("the key of the request is not one of P-256".to_owned());
    }
    request
        .verify_signature()
        .map_err(|e| format!("the signature of the request does not fit its key: {e}"))?;
    match common_name(&info.subject) {
        Some(name) if name == user => Ok(PublicKey(info.subject_pki.subject_public_key.data.to_vec())),
        name => {
            let name = name.unwrap_or("no single name");
            Err(format!("another node's name: the request is for {name:?}, and its pod's node is {user:?}"))
        }
    }
}

fn is_p256(key: &SubjectPublicKeyInfo<'_>) -> bool {
    let curve = key.algorithm.parameters.as_ref().and_then(|curve| curve.as_oid().ok());
    key.algorithm.algorithm == OID_KEY_TYPE_EC_PUBLIC_KEY && curve.is_some_and(|curve| curve == OID_EC_P256)
}

fn common_name<'a>(subject: &'a X509Name<'_>) -> Option<&'a str> {
    let mut names = subject.iter_common_name();
    let name = names.next()?.as_str().ok()?;
    names.next().is_none().then_some(name)
}

/// The authority of nodes.
pub(super) struct NodeAuthority {
    certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

impl NodeAuthority {
    /// Of `tls.crt` and `tls.key` in a folder.
    pub(super) fn read(folder: &Path) -> Result<Self, Failure> {
        let [certificate, key] = pair_in(folder)?;
        Self::of(&certificate, &key)
            .map_err(|e| Failure::new(format!("the authority of nodes in {}: {e}", folder.display())))
    }

    fn of(certificate: &str, key: &str) -> Result<Self, String> {
        let key = KeyPair::from_pem(key).map_err(|e| format!("tls.key: {e}"))?;
        let public = key.subject_public_key_info();
        let (_, pem) =
            x509_parser::pem::parse_x509_pem(certificate.as_bytes()).map_err(|e| format!("tls.crt: {e}"))?;
        let parsed = pem.parse_x509().map_err(|e| format!("tls.crt: {e}"))?;
        if parsed.public_key().raw != public {
            return Err("tls.key is not the key of tls.crt".to_owned());
        }
        let issuer = Issuer::from_ca_cert_pem(certificate, key).map_err(|e| format!("tls.crt: {e}"))?;
        Ok(Self { certificate: certificate.to_owned(), issuer })
    }

    /// PEM.
    pub(super) fn certificate(&self) -> &str {
        &self.certificate
    }

    /// A certificate for this user and key. It is valid for the seconds that are asked for, or less.
    pub(super) fn sign(&self, user: &str, key: &PublicKey, seconds: Option<i32>) -> Result<Leaf, String> {
        let serial = random_serial()?;
        let asked = seconds.map_or(VALID, |seconds| Duration::seconds(seconds.into()));
        let usages = [ExtendedKeyUsagePurpose::ClientAuth];
        let cannot = |e| format!("cannot make a certificate: {e}");
        let mut params = leaf_params(user, &[], &usages, asked.min(VALID)).map_err(cannot)?;
        params.serial_number = Some(SerialNumber::from_slice(&serial));
        params.is_ca = IsCa::ExplicitNoCa;
        let not_after = params.not_after.unix_timestamp();
        let signed = params.signed_by(key, &self.issuer).map_err(cannot)?;
        let serial = serial.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Leaf { pem: signed.pem(), id: LeafId { serial, not_after } })
    }

    /// A certificate of no user, and its key, PEM: for a look at who trusts this authority.
    pub(super) fn passing(&self) -> Result<(String, String), String> {
        let key = KeyPair::generate().map_err(|e| format!("cannot make a key: {e}"))?;
        let leaf =
            self.sign("metes-signer/look", &PublicKey(key.public_key_raw().to_vec()), Some(PASSING))?;
        Ok((leaf.pem, key.serialize_pem()))
    }
}

/// A certificate that was made.
pub(super) struct Leaf {
    pub(super) pem: String,
    pub(super) id: LeafId,
}

/// Positive, and of the same length each time.
fn random_serial() -> Result<[u8; SERIAL_BYTES], String> {
    let mut serial = [0; SERIAL_BYTES];
    SystemRandom::new().fill(&mut serial).map_err(|_| "the kernel gives no random bytes".to_owned())?;
    serial[0] = serial[0] & 0x7f | 0x40;
    Ok(serial)
}

#[cfg(test)]
mod tests {
    use rcgen::{
        BasicConstraints, CertificateParams, DistinguishedName, DnType, KeyUsagePurpose,
        PKCS_ECDSA_P384_SHA384, PKCS_ED25519,
    };
    use x509_parser::certificate::X509Certificate;

    use super::*;

    const USER: &str = "metes-node/c1/n1";

    fn named(name: &str) -> CertificateParams {
        let mut params = CertificateParams::new(vec!["etcd.test".to_owned()]).expect("a name");
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params.distinguished_name.push(DnType::OrganizationName, "system:masters");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params
    }

    fn request(name: &str, key: &KeyPair) -> String {
        named(name).serialize_request(key).expect("a request").pem().expect("PEM")
    }

    fn authority() -> (String, String) {
        let key = KeyPair::generate().expect("a key");
        let mut params = named("an authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        (params.self_signed(&key).expect("a certificate").pem(), key.serialize_pem())
    }

    #[test]
    fn nothing_of_a_request_counts_but_its_key() {
        let key = KeyPair::generate().expect("a key");
        let public = wanted(request(USER, &key).as_bytes(), USER).expect("good");
        let (certificate, its_key) = authority();
        let authority = NodeAuthority::of(&certificate, &its_key).expect("good");
        let leaf = authority.sign(USER, &public, Some(i32::MAX)).expect("it is signed");
        let (_, pem) = x509_parser::pem::parse_x509_pem(leaf.pem.as_bytes()).expect("PEM");
        let made: X509Certificate<'_> = pem.parse_x509().expect("a certificate");
        let (_, ca) = x509_parser::pem::parse_x509_pem(certificate.as_bytes()).expect("PEM");
        let ca = ca.parse_x509().expect("a certificate");
        made.verify_signature(Some(ca.public_key())).expect("the authority has signed it");
        assert_eq!(made.subject().to_string(), format!("CN={USER}"));
        assert_eq!(made.issuer(), ca.subject());
        assert_eq!(made.public_key().raw, key.subject_public_key_info());
        assert!(made.subject_alternative_name().expect("it decodes").is_none());
        let usages = made.extended_key_usage().expect("it decodes").expect("it has some").value;
        assert!(usages.client_auth && !usages.server_auth && !made.is_ca());
        assert_eq!(made.raw_serial_as_string().replace(':', ""), leaf.id.serial);
        let valid = made.validity();
        assert_eq!(valid.not_after.timestamp(), leaf.id.not_after);
        assert_eq!(
            valid.not_after.timestamp() - valid.not_before.timestamp(),
            (VALID + crate::issuing::EARLIER).whole_seconds()
        );
    }

    #[test]
    fn a_request_that_proves_nothing_is_refused() {
        let key = KeyPair::generate().expect("a key");
        let of_another = |algorithm| request(USER, &KeyPair::generate_for(algorithm).expect("a key"));
        let twice = {
            let mut params = named(USER);
            params.distinguished_name.push(DnType::CustomDnType(vec![2, 5, 4, 3]), "metes-node/c1/n2");
            params.serialize_request(&key).expect("a request").pem().expect("PEM")
        };
        for (pem, words) in [
            (
                request("metes-node/c1/n2", &key),
                "\"metes-node/c1/n2\", and its pod's node is \"metes-node/c1/n1\"",
            ),
            (request("root", &key), "another node's name"),
            (twice, "no single name"),
            (of_another(&PKCS_ECDSA_P384_SHA384), "not one of P-256"),
            (of_another(&PKCS_ED25519), "not one of P-256"),
            (broken(&key), "does not fit its key"),
            (
                "-----BEGIN CERTIFICATE REQUEST-----\nMAA=\n-----END CERTIFICATE REQUEST-----\n".into(),
                "not PKCS#10",
            ),
            (String::new(), "not PKCS#10"),
        ] {
            let refused = wanted(pem.as_bytes(), USER).expect_err(words);
            assert!(refused.contains(words), "{refused}");
        }
    }

    /// A request whose signature has another last byte.
    fn broken(key: &KeyPair) -> String {
        let request = named(USER).serialize_request(key).expect("a request");
        let mut der = request.der().to_vec();
        *der.last_mut().expect("it has bytes") ^= 1;
        let encoded = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, der);
        format!("-----BEGIN CERTIFICATE REQUEST-----\n{encoded}\n-----END CERTIFICATE REQUEST-----\n")
    }

    #[test]
    fn files_of_two_authorities_are_refused() {
        let ((certificate, _), (_, key)) = (authority(), authority());
        let refused = NodeAuthority::of(&certificate, &key).err().expect("refused");
        assert_eq!(refused, "tls.key is not the key of tls.crt");
    }
}
