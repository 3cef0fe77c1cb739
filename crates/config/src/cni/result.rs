//! The answer to an ADD, in the shape of each version.

use std::fmt::Display;
use std::net::IpAddr;

use ipnetwork::IpNetwork;
use serde::{Serialize, Serializer};

use super::{Error, Version};

/// A successful ADD.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Success {
    /// The addresses: in the order of the range sets, then static ones.
    pub ips: Vec<IpConfig>,
    /// The routes, as configured.
    pub routes: Vec<Route>,
    /// DNS, as configured.
    pub dns: Dns,
}

/// One address of a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IpConfig {
    /// The address.
    pub address: IpAddr,
    /// The prefix length of its subnet.
    pub prefix_len: u8,
    /// Its gateway, if there is one.
    pub gateway: Option<IpAddr>,
}

/// One route of a result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Route {
    /// The destination; host bits stay as they were written.
    #[serde(serialize_with = "as_text")]
    pub dst: IpNetwork,
    /// The next hop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gw: Option<IpAddr>,
    /// MTU; 0 means none.
    #[serde(skip_serializing_if = "is_zero")]
    pub mtu: i64,
    /// The largest TCP segment to announce; 0 means none.
    #[serde(skip_serializing_if = "is_zero")]
    pub advmss: i64,
    /// Metric; 0 means none.
    #[serde(skip_serializing_if = "is_zero")]
    pub priority: i64,
    /// Routing table; an explicit 0 is kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub table: Option<i64>,
    /// Scope; an explicit 0 is kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<i64>,
}

impl Route {
    /// A route with nothing but its destination and next hop.
    #[must_use]
    pub fn new(dst: IpNetwork, gw: Option<IpAddr>) -> Self {
        Self { dst, gw, mtu: 0, advmss: 0, priority: 0, table: None, scope: None }
    }
}

/// Name resolution.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Dns {
    /// Name servers, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nameservers: Vec<String>,
    /// The local domain; empty means none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub domain: String,
    /// Search domains, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub search: Vec<String>,
    /// Options of the resolver.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
}

impl Success {
    /// The result as JSON in the shape of `version`.
    ///
    /// # Errors
    /// Code 7 if there is no address and the version cannot say so (0.2.0 and older).
    pub fn render(&self, version: Version) -> Result<String, Error> {
        let rendered = if version <= Version::V0_2_0 {
            if self.ips.is_empty() {
                return Err(Error::invalid_config(format!(
                    "a result without addresses cannot be given in cniVersion {version}"
                )));
            }
            serde_json::to_string(&self.oldest_shape(version))
        } else {
            serde_json::to_string(&self.list_shape(version))
        };
        Ok(rendered.expect("a result has only string keys"))
    }

    /// 0.1.0 and 0.2.0: the first address of each family, with the routes of that family.
    fn oldest_shape(&self, version: Version) -> OldestShape<'_> {
        OldestShape {
            cni_version: version.name(),
            ip4: self.oldest_ip(IpAddr::is_ipv4, IpNetwork::is_ipv4),
            ip6: self.oldest_ip(IpAddr::is_ipv6, IpNetwork::is_ipv6),
            dns: &self.dns,
        }
    }

    fn oldest_ip(&self, ip: fn(&IpAddr) -> bool, dst: fn(&IpNetwork) -> bool) -> Option<OldestIp> {
        let first = self.ips.iter().find(|config| ip(&config.address))?;
        let routes = self.routes.iter().filter(|route| dst(&route.dst));
        let routes = routes.map(|route| OldestRoute { dst: route.dst, gw: route.gw }).collect();
        Some(OldestIp { ip: first.cidr(), gateway: first.gateway, routes })
    }

    /// 0.3.0 and newer: lists. `version` of an address and an empty `dns` belong to 0.x only.
    fn list_shape(&self, version: Version) -> ListShape<'_> {
        let is_old = version < Version::V1_0_0;
        let ip = |config: &IpConfig| ListIp {
            version: is_old.then_some(if config.address.is_ipv4() { "4" } else { "6" }),
            address: config.cidr(),
            gateway: config.gateway,
        };
        ListShape {
            cni_version: version.name(),
            ips: self.ips.iter().map(ip).collect(),
            routes: &self.routes,
            dns: Some(&self.dns).filter(|dns| is_old || **dns != Dns::default()),
        }
    }
}

impl IpConfig {
    fn cidr(&self) -> String {
        format!("{}/{}", self.address, self.prefix_len)
    }
}

#[derive(Serialize)]
struct OldestShape<'a> {
    #[serde(rename = "cniVersion")]
    cni_version: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    ip4: Option<OldestIp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ip6: Option<OldestIp>,
    dns: &'a Dns,
}

#[derive(Serialize)]
struct OldestIp {
    ip: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    gateway: Option<IpAddr>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    routes: Vec<OldestRoute>,
}

#[derive(Serialize)]
struct OldestRoute {
    #[serde(serialize_with = "as_text")]
    dst: IpNetwork,
    #[serde(skip_serializing_if = "Option::is_none")]
    gw: Option<IpAddr>,
}

#[derive(Serialize)]
struct ListShape<'a> {
    #[serde(rename = "cniVersion")]
    cni_version: &'static str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    ips: Vec<ListIp>,
    #[serde(skip_serializing_if = "<[Route]>::is_empty")]
    routes: &'a [Route],
    #[serde(skip_serializing_if = "Option::is_none")]
    dns: Option<&'a Dns>,
}

#[derive(Serialize)]
struct ListIp {
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<&'static str>,
    address: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    gateway: Option<IpAddr>,
}

fn as_text<S: Serializer>(value: &impl Display, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

fn is_zero(value: &i64) -> bool {
    *value == 0
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn ip(address: &str, prefix_len: u8, gateway: Option<&str>) -> IpConfig {
        let parse = |text: &str| text.parse().expect("an address");
        IpConfig { address: parse(address), prefix_len, gateway: gateway.map(parse) }
    }

    fn route(dst: &str, gw: Option<&str>) -> Route {
        let gw = gw.map(|gw| gw.parse().expect("an address"));
        let dst = dst.parse().expect("a prefix");
        Route { dst, gw, mtu: 0, advmss: 0, priority: 0, table: None, scope: None }
    }

    fn rendered(success: &Success, version: Version) -> Value {
        serde_json::from_str(&success.render(version).expect("rendered")).expect("JSON")
    }

    /// T01: two families, routes, DNS.
    fn dual_stack() -> Success {
        Success {
            ips: vec![
                ip("10.1.2.2", 24, Some("10.1.2.1")),
                ip("2001:db8:1::2", 64, Some("2001:db8:1::1")),
                ip("10.9.9.9", 8, None),
            ],
            routes: vec![
                Route { mtu: 1400, scope: Some(0), ..route("0.0.0.0/0", None) },
                route("3ffe:ffff:0:01ff::1/64", Some("3ffe:ffff:0::1")),
            ],
            dns: Dns { nameservers: vec!["192.0.2.3".into()], ..Dns::default() },
        }
    }

    #[test]
    fn oldest_versions_have_one_address_of_each_family_with_its_routes() {
        for version in [Version::V0_1_0, Version::V0_2_0] {
            let expected = json!({
                "cniVersion": version.name(),
                "ip4": {"ip": "10.1.2.2/24", "gateway": "10.1.2.1", "routes": [{"dst": "0.0.0.0/0"}]},
                "ip6": {"ip": "2001:db8:1::2/64", "gateway": "2001:db8:1::1",
                        "routes": [{"dst": "3ffe:ffff:0:1ff::1/64", "gw": "3ffe:ffff::1"}]},
                "dns": {"nameservers": ["192.0.2.3"]},
            });
            assert_eq!(rendered(&dual_stack(), version), expected);
            let v4 = Success { ips: vec![ip("10.0.0.1", 24, None)], ..dual_stack() };
            assert_eq!(rendered(&v4, version).get("ip6"), None);
            assert_eq!(Success::default().render(version).unwrap_err().code.number(), 7);
        }
    }

    #[test]
    fn newer_versions_have_lists() {
        let routes = json!([{"dst": "0.0.0.0/0", "mtu": 1400, "scope": 0},
                            {"dst": "3ffe:ffff:0:1ff::1/64", "gw": "3ffe:ffff::1"}]);
        let dns = json!({"nameservers": ["192.0.2.3"]});
        let old = json!([{"version": "4", "address": "10.1.2.2/24", "gateway": "10.1.2.1"},
                         {"version": "6", "address": "2001:db8:1::2/64", "gateway": "2001:db8:1::1"},
                         {"version": "4", "address": "10.9.9.9/8"}]);
        let new = json!([{"address": "10.1.2.2/24", "gateway": "10.1.2.1"},
                         {"address": "2001:db8:1::2/64", "gateway": "2001:db8:1::1"},
                         {"address": "10.9.9.9/8"}]);
        for version in Version::ALL.into_iter().filter(|v| *v >= Version::V0_3_0) {
            let ips = if version < Version::V1_0_0 { &old } else { &new };
            let expected = json!({"cniVersion": version.name(), "ips": ips, "routes": routes, "dns": dns});
            assert_eq!(rendered(&dual_stack(), version), expected);
        }
    }

    #[test]
    fn what_is_empty_is_left_out_but_dns_only_since_1_0() {
        let empty = |version| Success::default().render(version).expect("rendered");
        assert_eq!(empty(Version::V0_3_1), r#"{"cniVersion":"0.3.1","dns":{}}"#);
        assert_eq!(empty(Version::V0_4_0), r#"{"cniVersion":"0.4.0","dns":{}}"#);
        assert_eq!(empty(Version::V1_0_0), r#"{"cniVersion":"1.0.0"}"#);
        let zeros = Route { table: Some(0), scope: Some(0), ..route("10.0.0.7/8", None) };
        let json = serde_json::to_string(&zeros).expect("JSON");
        assert_eq!(json, r#"{"dst":"10.0.0.7/8","table":0,"scope":0}"#);
    }
}
