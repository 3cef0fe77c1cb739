//! A member of etcd by its place in metes.conf: an address, and three ports.

use std::net::{IpAddr, SocketAddr};

use crate::failure::Failure;
use crate::template::{Endpoint, Template};

/// One member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seat {
    pub(crate) client: SocketAddr,
    /// For the other members: the next port.
    pub(crate) peer: SocketAddr,
    /// For Prometheus: the port five above that for clients.
    pub(crate) metrics: SocketAddr,
}

impl Seat {
    /// Of all members that metes.conf names.
    pub(crate) fn all(template: &Template) -> Result<Vec<Self>, Failure> {
        template.endpoints()?.iter().map(Self::of).collect()
    }

    fn of(endpoint: &Endpoint) -> Result<Self, Failure> {
        let ip = endpoint.ip().ok_or_else(|| {
            let host = &endpoint.host;
            Failure::new(format!(
                "the endpoint {host} is a name: a member of this etcd is known by its address"
            ))
        })?;
        let port = |above: u16| match endpoint.port.checked_add(above) {
            Some(port) => Ok(SocketAddr::new(ip, port)),
            None => Err(Failure::new(format!(
                "the port {} leaves none for members and metrics: theirs are 1 and 5 above it",
                endpoint.port
            ))),
        };
        Ok(Self { client: port(0)?, peer: port(1)?, metrics: port(5)? })
    }

    /// The one at this node's address.
    pub(crate) fn of_node(all: &[Self], node: IpAddr) -> Result<Self, Failure> {
        let own: Vec<&Self> = all.iter().filter(|seat| seat.ip() == node).collect();
        match own[..] {
            [seat] => Ok(*seat),
            [] => Err(Failure::new(format!(
                "this node's address {node} is not among etcd.endpoints in metes.conf: label the nodes that are \
                 listed there"
            ))),
            _ => Err(Failure::new(format!("etcd.endpoints in metes.conf has {node} more than once"))),
        }
    }

    /// All members in the words of etcd: the name of each is its address.
    pub(crate) fn initial_cluster(all: &[Self]) -> String {
        let members: Vec<String> =
            all.iter().map(|seat| format!("{}={}", seat.ip(), seat.peer_url())).collect();
        members.join(",")
    }

    pub(crate) fn ip(&self) -> IpAddr {
        self.client.ip()
    }

    pub(crate) fn client_url(&self) -> String {
        format!("https://{}", self.client)
    }

    pub(crate) fn peer_url(&self) -> String {
        format!("https://{}", self.peer)
    }

    pub(crate) fn metrics_url(&self) -> String {
        format!("https://{}", self.metrics)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_is_known_by_its_address() {
        let seat = |host: &str, port| Seat::of(&Endpoint { host: host.to_owned(), port });
        let valid = seat("fd00::1", 12379).expect("valid");
        let urls = [valid.client_url(), valid.peer_url(), valid.metrics_url()];
        assert_eq!(urls, [12379, 12380, 12384].map(|port| format!("https://[fd00::1]:{port}")));
        let error = seat("etcd.example", 12379).expect_err("a name");
        assert!(error.to_string().contains("is a name"), "{error}");
        let error = seat("10.0.0.1", 65531).expect_err("five above is none");
        assert!(error.to_string().contains("65531 leaves none"), "{error}");
    }

    #[test]
    fn a_node_that_is_not_listed_is_refused() {
        let seat = |ip: &str| Seat::of(&Endpoint { host: ip.to_owned(), port: 12379 }).expect("valid");
        let refused = |ips: &[&str]| {
            let seats: Vec<Seat> = ips.iter().map(|ip| seat(ip)).collect();
            Seat::of_node(&seats, "10.0.0.9".parse().expect("an address")).expect_err("refused").to_string()
        };
        assert!(refused(&["10.0.0.1"]).contains("10.0.0.9 is not among etcd.endpoints"));
        assert!(refused(&["10.0.0.9", "10.0.0.9"]).contains("more than once"));
    }
}
