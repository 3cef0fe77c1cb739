//! The common name in a certificate, by which etcd knows its user. Pure.

/// The tags of DER that lead there.
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OBJECT_ID: u8 = 0x06;
/// The version in a certificate, which one of version 1 lacks.
const VERSION: u8 = 0xa0;
/// id-at-commonName, 2.5.4.3.
const COMMON_NAME: [u8; 3] = [0x55, 0x04, 0x03];

/// The common name of the subject of a certificate in DER: the last one if there are several, as for etcd; none if
/// there is none, or if the bytes are no certificate.
pub(super) fn common_name(certificate: &[u8]) -> Option<String> {
    let mut certificate = Der(certificate).inside(SEQUENCE)?;
    let mut signed = certificate.inside(SEQUENCE)?;
    // Version, serial number, algorithm, issuer and validity stand before it.
    if signed.next()?.0 == VERSION {
        signed.next()?;
    }
    for _ in 0..3 {
        signed.next()?;
    }
    let subject = signed.inside(SEQUENCE)?;
    let names = subject.filter(|(tag, _)| *tag == SET).flat_map(|(_, set)| Der(set));
    let name = names.filter_map(|(_, pair)| {
        let mut pair = Der(pair);
        let (OBJECT_ID, id) = pair.next()? else { return None };
        let (_, value) = pair.next()?;
        (id == COMMON_NAME).then(|| String::from_utf8_lossy(value).into_owned())
    });
    name.last()
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
        let before = [value(0x02, &[7]), value(SEQUENCE, &[]), issuer.to_vec(), value(SEQUENCE, &[1, 0])];
        let after = value(SEQUENCE, &[0; 200]);
        let signed = [version, &before.concat(), subject, &after].concat();
        value(SEQUENCE, &[value(SEQUENCE, &signed), value(SEQUENCE, &[])].concat())
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
