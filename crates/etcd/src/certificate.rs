//! What a certificate says of itself: for whom it is and when it is valid; and the common name, by which etcd knows its
//! user. Pure.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::UNIX_EPOCH;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

/// The tags of DER that lead there.
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OBJECT_ID: u8 = 0x06;
const OCTETS: u8 = 0x04;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
/// The version in a certificate, which one of version 1 lacks.
const VERSION: u8 = 0xa0;
/// Its extensions, which come last.
const EXTENSIONS: u8 = 0xa3;
/// Names of a server: a DNS name, and an address.
const DNS_NAME: u8 = 0x82;
const IP_ADDRESS: u8 = 0x87;
/// id-at-commonName, 2.5.4.3.
const COMMON_NAME: [u8; 3] = [0x55, 0x04, 0x03];
/// id-ce-subjectAltName, 2.5.29.17.
const ALTERNATIVE_NAMES: [u8; 3] = [0x55, 0x1d, 0x11];

/// The names and times of a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Certificate {
    /// The common name of its subject: the last one if there are several, as for etcd.
    pub common_name: Option<String>,
    /// The DNS names and addresses that it is for; a server's has some.
    pub names: Vec<String>,
    /// The first second in which it is valid, since 1970 in UTC.
    pub not_before: u64,
    /// The last one.
    pub not_after: u64,
}

impl Certificate {
    /// Reads a certificate in DER; none if the bytes are none, or if it has no such times.
    pub(crate) fn parse(der: &[u8]) -> Option<Self> {
        let mut parts = Parts::of(der)?;
        let [not_before, not_after] = [parts.validity.next()?, parts.validity.next()?].map(seconds);
        Some(Self {
            common_name: last_common_name(parts.subject),
            names: alternative_names(parts.rest).unwrap_or_default(),
            not_before: not_before?,
            not_after: not_after?,
        })
    }

    /// Those of the certificates in a file of PEM that can be read, in their order.
    #[must_use]
    pub fn all_in(pem: &[u8]) -> Vec<Self> {
        let certificates = CertificateDer::pem_slice_iter(pem).filter_map(Result::ok);
        certificates.filter_map(|der| Self::parse(&der)).collect()
    }
}

/// The common name of the subject of a certificate in DER; none if there is none, or if the bytes are no certificate.
pub(crate) fn common_name(certificate: &[u8]) -> Option<String> {
    last_common_name(Parts::of(certificate)?.subject)
}

/// The fields that are read of a certificate.
struct Parts<'a> {
    validity: Der<'a>,
    subject: Der<'a>,
    /// The fields behind the subject.
    rest: Der<'a>,
}

impl<'a> Parts<'a> {
    fn of(certificate: &'a [u8]) -> Option<Self> {
        let mut certificate = Der(certificate).inside(SEQUENCE)?;
        let mut signed = certificate.inside(SEQUENCE)?;
        // Version, serial number, algorithm and issuer stand before it.
        if signed.next()?.0 == VERSION {
            signed.next()?;
        }
        for _ in 0..2 {
            signed.next()?;
        }
        let validity = signed.inside(SEQUENCE)?;
        let subject = signed.inside(SEQUENCE)?;
        Some(Self { validity, subject, rest: signed })
    }
}

fn last_common_name(subject: Der<'_>) -> Option<String> {
    let names = subject.filter(|(tag, _)| *tag == SET).flat_map(|(_, set)| Der(set));
    let name = names.filter_map(|(_, pair)| {
        let mut pair = Der(pair);
        let (OBJECT_ID, id) = pair.next()? else { return None };
        let (_, value) = pair.next()?;
        (id == COMMON_NAME).then(|| String::from_utf8_lossy(value).into_owned())
    });
    name.last()
}

/// A time as RFC 5280 allows it: to the second and in UTC.
fn seconds((tag, digits): (u8, &[u8])) -> Option<u64> {
    let digits = std::str::from_utf8(digits).ok()?.strip_suffix('Z')?;
    let digits = match tag {
        // The years from 1950 to 2049.
        UTC_TIME if digits.len() == 12 => {
            let century = if digits < "50" { "20" } else { "19" };
            format!("{century}{digits}")
        }
        GENERALIZED_TIME if digits.len() == 14 => digits.to_owned(),
        _ => return None,
    };
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let (date, time) = digits.split_at(8);
    let text = format!(
        "{}-{}-{}T{}:{}:{}Z",
        &date[..4],
        &date[4..6],
        &date[6..],
        &time[..2],
        &time[2..4],
        &time[4..]
    );
    Some(humantime::parse_rfc3339(&text).ok()?.duration_since(UNIX_EPOCH).ok()?.as_secs())
}

fn alternative_names(mut rest: Der<'_>) -> Option<Vec<String>> {
    let (_, extensions) = rest.find(|(tag, _)| *tag == EXTENSIONS)?;
    let mut extensions = Der(extensions).inside(SEQUENCE)?;
    let names = extensions.find_map(|(_, extension)| {
        let mut extension = Der(extension);
        let (OBJECT_ID, id) = extension.next()? else { return None };
        // Whether it is critical may stand before it.
        let (_, octets) = extension.find(|(tag, _)| *tag == OCTETS)?;
        (id == ALTERNATIVE_NAMES).then_some(octets)
    })?;
    Some(Der(names).inside(SEQUENCE)?.filter_map(|(tag, name)| name_of(tag, name)).collect())
}

fn name_of(tag: u8, name: &[u8]) -> Option<String> {
    match tag {
        DNS_NAME => Some(String::from_utf8_lossy(name).into_owned()),
        IP_ADDRESS => match name.len() {
            4 => Some(Ipv4Addr::from(<[u8; 4]>::try_from(name).ok()?).to_string()),
            _ => Some(Ipv6Addr::from(<[u8; 16]>::try_from(name).ok()?).to_string()),
        },
        _ => None,
    }
}

/// Values of DER one after the other: tag and content.
struct Der<'a>(&'a [u8]);

impl<'a> Der<'a> {
    /// What is inside the next value, which must have this tag.
    fn inside(&mut self, tag: u8) -> Option<Der<'a>> {
        self.next().filter(|(found, _)| *found == tag).map(|(_, content)| Der(content))
    }
}

impl<'a> Iterator for Der<'a> {
    type Item = (u8, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (&[tag, length], rest) = self.0.split_first_chunk()?;
        let (length, rest) = match length {
            0..=0x7f => (usize::from(length), rest),
            0x81..=0x84 => {
                let (digits, rest) = rest.split_at_checked(usize::from(length - 0x80))?;
                (digits.iter().fold(0, |sum, digit| sum << 8 | usize::from(*digit)), rest)
            }
            _ => return None,
        };
        let (content, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((tag, content))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(tag: u8, content: &[u8]) -> Vec<u8> {
        let length = match content.len() {
            short @ 0..0x80 => vec![short as u8],
            long => vec![0x82, (long >> 8) as u8, long as u8],
        };
        [&[tag][..], &length, content].concat()
    }

    fn name(names: &[(u8, &str)]) -> Vec<u8> {
        let sets = names.iter().map(|(id, name)| {
            let pair = [value(OBJECT_ID, &[0x55, 0x04, *id]), value(0x0c, name.as_bytes())].concat();
            value(SET, &value(SEQUENCE, &pair))
        });
        value(SEQUENCE, &sets.collect::<Vec<_>>().concat())
    }

    fn certificate(version: &[u8], issuer: &[u8], subject: &[u8]) -> Vec<u8> {
        with([version, issuer, subject], &value(SEQUENCE, &[1, 0]), &[])
    }

    fn with([version, issuer, subject]: [&[u8]; 3], validity: &[u8], extensions: &[u8]) -> Vec<u8> {
        let before = [value(0x02, &[7]), value(SEQUENCE, &[]), issuer.to_vec(), validity.to_vec()];
        let key = value(SEQUENCE, &[0; 200]);
        let signed = [version, &before.concat(), subject, &key, extensions].concat();
        value(SEQUENCE, &[value(SEQUENCE, &signed), value(SEQUENCE, &[])].concat())
    }

    fn times(from: (u8, &str), to: (u8, &str)) -> Vec<u8> {
        value(SEQUENCE, &[from, to].map(|(tag, text)| value(tag, text.as_bytes())).concat())
    }

    #[test]
    fn times_and_names() {
        let subject = name(&[(3, "etcd")]);
        let version = value(VERSION, &value(0x02, &[2]));
        let names =
            [value(DNS_NAME, b"etcd.test"), value(IP_ADDRESS, &[10, 0, 0, 1]), value(0x81, b"no@name")];
        let names = value(OCTETS, &value(SEQUENCE, &names.concat()));
        let id = value(OBJECT_ID, &ALTERNATIVE_NAMES);
        let usage = value(SEQUENCE, &[value(OBJECT_ID, &[0x55, 0x1d, 0x25]), value(OCTETS, &[])].concat());
        let names = value(SEQUENCE, &[id, value(0x01, &[0xff]), names].concat());
        let extensions = value(EXTENSIONS, &value(SEQUENCE, &[usage, names].concat()));
        let validity = times((UTC_TIME, "700101000001Z"), (GENERALIZED_TIME, "20500101000000Z"));
        let der = with([&version, &name(&[]), &subject], &validity, &extensions);
        let expected = Certificate {
            common_name: Some("etcd".to_owned()),
            names: ["etcd.test", "10.0.0.1"].map(str::to_owned).to_vec(),
            not_before: 1,
            not_after: 2_524_608_000,
        };
        assert_eq!(Certificate::parse(&der), Some(expected));
        for end in 0..der.len() {
            assert_eq!(Certificate::parse(&der[..end]), None, "{end}");
        }
        for wrong in [
            (UTC_TIME, "20500101000000Z"),
            (UTC_TIME, "7001010000Z"),
            (UTC_TIME, "700101000001+0000"),
            (GENERALIZED_TIME, "20501301000000Z"),
            (GENERALIZED_TIME, "205001010000\u{e4}Z"),
            (0x0c, "700101000001Z"),
        ] {
            let validity = times((UTC_TIME, "700101000001Z"), wrong);
            assert_eq!(Certificate::parse(&with([&version, &name(&[]), &subject], &validity, &[])), None);
        }
    }

    #[test]
    fn it_is_the_subjects_and_the_last_one() {
        let issuer = name(&[(3, "authority")]);
        let version = value(VERSION, &value(0x02, &[2]));
        let long = "x".repeat(300);
        for (subject, expected) in [
            (name(&[(10, "group"), (3, "metes")]), Some("metes")),
            (name(&[(3, "one"), (3, "two")]), Some("two")),
            (name(&[(3, &long)]), Some(long.as_str())),
            (name(&[(10, "group")]), None),
            (name(&[]), None),
        ] {
            for version in [&version[..], &[]] {
                assert_eq!(common_name(&certificate(version, &issuer, &subject)).as_deref(), expected);
            }
        }
    }

    #[test]
    fn what_is_no_certificate_has_none() {
        let whole = certificate(&[], &name(&[]), &name(&[(3, "metes")]));
        for end in 0..whole.len() {
            assert_eq!(common_name(&whole[..end]), None, "{end}");
        }
        for bytes in [&b"no certificate"[..], &[0x30, 0x80], &[0x30, 0x84, 0xff, 0xff, 0xff, 0xff]] {
            assert_eq!(common_name(bytes), None, "{bytes:?}");
        }
    }
}
