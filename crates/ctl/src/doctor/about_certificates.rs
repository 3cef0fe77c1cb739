//! Judges certificates and this node's clock. Pure.

use std::time::{Duration, UNIX_EPOCH};

use super::about_node::span;
use super::facts::{CertificateFacts, CertificateOf, EtcdFacts};
use super::line::{Check, CheckLine};
use metes_etcd::certificate::Certificate;

/// A certificate should have been renewed when so small a part of its life is left ...
const RENEWED_PART: u64 = 10;
/// ... or so little at most, in seconds.
const RENEWED_S: u64 = 30 * 86_400;
/// A node's own certificate lives for two weeks, and is renewed with ten days left: less than this is left only if that
/// has failed for days.
const OWN_RENEWED_S: u64 = 5 * 86_400;
/// The user of a node that has a certificate of its own.
const NODE: &str = "metes-node/";

pub(super) fn certificates(all: &[CertificateFacts], now: u64, etcd: &EtcdFacts) -> Vec<CheckLine> {
    let has_valid_authority = all.iter().any(|one| {
        one.of == CertificateOf::Authority
            && (one.certificate.not_before..=one.certificate.not_after).contains(&now)
    });
    let mut lines: Vec<CheckLine> =
        grouped(all).iter().map(|one| line(one, now, has_valid_authority)).collect();
    // Without TLS there is nothing to compare the clock with.
    if !matches!(etcd, EtcdFacts::Unknown) {
        lines.push(clock(all, now));
    }
    lines
}

/// Endpoints that show one certificate are told together.
fn grouped(all: &[CertificateFacts]) -> Vec<CertificateFacts> {
    let mut groups: Vec<CertificateFacts> = Vec::new();
    for one in all {
        match groups.iter_mut().find(|group| group.of == one.of && group.certificate == one.certificate) {
            Some(group) => group.place = format!("{}, {}", group.place, one.place),
            None => groups.push(one.clone()),
        }
    }
    groups
}

fn line(one: &CertificateFacts, now: u64, has_valid_authority: bool) -> CheckLine {
    let Certificate { not_before, not_after, .. } = one.certificate;
    let who = who(one);
    let left = not_after.saturating_sub(now);
    if now < not_before {
        let what = format!("{who}: is not valid before {}", time(not_before));
        return CheckLine::bad(
            Check::Certificate,
            what,
            "check this node's clock; else make another certificate",
        );
    }
    if now > not_after {
        let what = format!("{who}: expired {} ago, at {}", span(now - not_after), time(not_after));
        return match one.of {
            CertificateOf::Authority if has_valid_authority => {
                CheckLine::warn(Check::Certificate, what, "remove it from the file: another one is valid")
            }
            _ => CheckLine::bad(Check::Certificate, what, renew(one)),
        };
    }
    let what = format!("{who}: {} left, until {}", span(left), time(not_after));
    let least = match is_nodes_own(one) {
        true => OWN_RENEWED_S,
        false => RENEWED_S.min((not_after - not_before) / RENEWED_PART),
    };
    if left < least {
        return CheckLine::warn(Check::Certificate, what, renew(one));
    }
    CheckLine::ok(Check::Certificate, what)
}

fn is_nodes_own(one: &CertificateFacts) -> bool {
    let name = one.certificate.common_name.as_deref();
    one.of == CertificateOf::Client && name.is_some_and(|name| name.starts_with(NODE))
}

fn renew(one: &CertificateFacts) -> &'static str {
    match one.of {
        CertificateOf::Client if is_nodes_own(one) => {
            "metes-signer gives this node another certificate: see the log of the installer's pod on this node"
        }
        CertificateOf::Client => "renew the certificate in cert_file, and its key in key_file",
        CertificateOf::Authority => {
            "make another authority; put both into ca_file and etcd's --trusted-ca-file while certificates are renewed"
        }
        CertificateOf::Server => "renew etcd's certificate: etcd reads it anew for each connection",
    }
}

fn who(one: &CertificateFacts) -> String {
    let Certificate { common_name, names, .. } = &one.certificate;
    let name = common_name.as_deref().unwrap_or("no common name");
    let role = match one.of {
        CertificateOf::Client => "the client",
        CertificateOf::Authority => "the authority",
        CertificateOf::Server => "etcd",
    };
    let names = if names.is_empty() { String::new() } else { format!(" for {}", names.join(", ")) };
    format!("{role}, {name}{names} ({})", one.place)
}

fn clock(all: &[CertificateFacts], now: u64) -> CheckLine {
    let shown = time(now);
    if all.is_empty() {
        return CheckLine::note(
            Check::Clock,
            format!("{shown}; there is no certificate to compare this clock with"),
        );
    }
    let latest = all.iter().map(|one| one.certificate.not_before).max().unwrap_or_default();
    if latest > now {
        let what = format!("{shown}, and a certificate was made for {} and later", time(latest));
        return CheckLine::bad(Check::Clock, what, "set this node's clock, by NTP for instance");
    }
    if all.len() > 1 && all.iter().all(|one| one.certificate.not_after < now) {
        let what = format!("{shown}, and all certificates have expired: it may be ahead");
        return CheckLine::warn(Check::Clock, what, "compare this node's clock with another one");
    }
    CheckLine::ok(Check::Clock, format!("{shown}; each certificate began before it"))
}

/// RFC 3339 in UTC.
fn time(seconds: u64) -> String {
    // Later times than it can print are later than all certificates.
    let at = UNIX_EPOCH + Duration::from_secs(seconds.min(253_402_300_799));
    humantime::format_rfc3339_seconds(at).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::line::Verdict;

    const DAY: u64 = 86_400;

    fn certificate(of: CertificateOf, not_before: u64, not_after: u64) -> CertificateFacts {
        let certificate =
            Certificate { common_name: Some("x".to_owned()), names: Vec::new(), not_before, not_after };
        CertificateFacts { of, place: "/f".to_owned(), certificate }
    }

    fn verdicts(all: &[CertificateFacts], now: u64) -> Vec<Verdict> {
        let etcd = EtcdFacts::NotAsked { why: None, endpoints: Vec::new() };
        certificates(all, now, &etcd).iter().map(|line| line.verdict).collect()
    }

    #[test]
    fn each_certificate_has_its_time() {
        let year = 365 * DAY;
        let client = [certificate(CertificateOf::Client, DAY, DAY + year)];
        for (now, expected) in [
            (0, [Verdict::Bad, Verdict::Bad]),
            (DAY, [Verdict::Ok, Verdict::Ok]),
            (DAY + year - RENEWED_S, [Verdict::Ok, Verdict::Ok]),
            (DAY + year - RENEWED_S + 1, [Verdict::Warn, Verdict::Ok]),
            (DAY + year, [Verdict::Warn, Verdict::Ok]),
            (DAY + year + 1, [Verdict::Bad, Verdict::Ok]),
        ] {
            assert_eq!(verdicts(&client, now), expected, "{now}");
        }
        // One that lives for two days is renewed later.
        let short = [certificate(CertificateOf::Server, 0, 20 * DAY)];
        assert_eq!(verdicts(&short, 18 * DAY)[0], Verdict::Ok);
        assert_eq!(verdicts(&short, 18 * DAY + 1)[0], Verdict::Warn);
    }

    #[test]
    fn a_node_renews_its_own_certificate_long_before_it_ends() {
        let named = |name: &str| {
            let mut one = certificate(CertificateOf::Client, 0, 14 * DAY);
            one.certificate.common_name = Some(name.to_owned());
            one
        };
        let etcd = EtcdFacts::NotAsked { why: None, endpoints: Vec::new() };
        let line = |name: &str, now: u64| certificates(&[named(name)], now, &etcd).remove(0);
        assert_eq!(line("metes-node/c1/n1", 9 * DAY).verdict, Verdict::Ok);
        assert_eq!(line("metes-node", 9 * DAY + 1).verdict, Verdict::Ok);
        for (now, verdict) in [(9 * DAY + 1, Verdict::Warn), (14 * DAY + 1, Verdict::Bad)] {
            let line = line("metes-node/c1/n1", now);
            assert_eq!(line.verdict, verdict);
            assert!(
                line.remedy.as_deref().is_some_and(|remedy| remedy.contains("metes-signer")),
                "{}",
                line.what
            );
        }
    }

    #[test]
    fn an_old_authority_beside_a_valid_one_is_no_harm() {
        let old = certificate(CertificateOf::Authority, 0, DAY);
        let valid = certificate(CertificateOf::Authority, 0, 1000 * DAY);
        assert_eq!(verdicts(&[old.clone(), valid], 2 * DAY), [Verdict::Warn, Verdict::Ok, Verdict::Ok]);
        assert_eq!(verdicts(&[old.clone(), old.clone()], 2 * DAY), [Verdict::Bad, Verdict::Warn]);
        assert_eq!(verdicts(&[], 0), [Verdict::Note]);
    }

    #[test]
    fn endpoints_with_one_certificate_are_told_together() {
        let one = certificate(CertificateOf::Server, 0, 10 * DAY);
        let other = CertificateFacts { place: "/g".to_owned(), ..one.clone() };
        let etcd = EtcdFacts::NotAsked { why: None, endpoints: Vec::new() };
        let lines = certificates(&[one, other], 0, &etcd);
        assert_eq!(lines[0].what, "etcd, x (/f, /g): 10 d left, until 1970-01-11T00:00:00Z");
        assert_eq!(lines.len(), 2);
    }
}
