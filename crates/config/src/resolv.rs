//! A resolv.conf as host-local reads it: name servers, the domain, search domains and options. The last two add up over
//! all of their lines. Other lines are passed over.

use crate::cni::result::Dns;

/// The DNS part of a result that a resolv.conf describes.
#[must_use]
pub fn parse(text: &str) -> Dns {
    let mut dns = Dns::default();
    for line in text.lines().map(str::trim).filter(|line| !line.starts_with(['#', ';'])) {
        let mut words = line.split_whitespace();
        let keyword = words.next().unwrap_or_default();
        let mut values = words.map(str::to_owned);
        match keyword {
            "nameserver" => dns.nameservers.extend(values.next()),
            "domain" => dns.domain = values.next().unwrap_or_default(),
            "search" => dns.search.extend(values),
            "options" => dns.options.extend(values),
            _ => {}
        }
    }
    dns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_add_up_in_order() {
        let text = "# comment\n; another\nnameserver 192.0.2.1\nnameserver 192.0.2.2 extra\n\
                    domain example.com\nsearch a b\n  search c\noptions ndots:1 rotate\noptions debug\nsortlist x\n";
        let strings = |words: &[&str]| words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>();
        let expected = Dns {
            nameservers: strings(&["192.0.2.1", "192.0.2.2"]),
            domain: "example.com".to_owned(),
            search: strings(&["a", "b", "c"]),
            options: strings(&["ndots:1", "rotate", "debug"]),
        };
        assert_eq!(parse(text), expected);
    }
}
