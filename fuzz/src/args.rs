//! CNI_ARGS and a resolv.conf: texts that others write, pair by pair or line by line.

use metes_config::cni::args::Args;
use metes_config::resolv;

use super::config::check_error;

pub(super) fn args(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let tolerant = Args::tolerant(&text);
    check_labels(&tolerant);
    match Args::parse(&text) {
        Ok(strict) => assert_eq!(strict, tolerant, "what is valid reads alike for every verb"),
        Err(e) => check_error(&e),
    }
    let dns = resolv::parse(&text);
    let words = dns.nameservers.iter().chain(&dns.search).chain(&dns.options);
    for word in words {
        assert!(!word.is_empty() && !word.contains(char::is_whitespace), "{word:?}");
    }
}

fn check_labels(args: &Args) {
    let pod = &args.pod;
    for label in [&pod.namespace, &pod.name] {
        assert!(label.len() <= 253 && !label.chars().any(char::is_control), "{label:?}");
    }
    for text in args.ips.iter().chain(&args.gateways) {
        assert!(!text.is_empty() && !text.contains([',', ';']), "{text:?}");
    }
}
