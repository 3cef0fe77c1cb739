//! The configuration of one member of etcd: what all members share, and which of the endpoints it is.
//!
//! A member belongs to its node: its name is the node's address, and its data is on the node. It does not matter which
//! pod of the StatefulSet runs there, and no pod can start with the data of another member.

use std::fs;
use std::net::IpAddr;

use serde_json::{Map, Value, json};

use crate::arguments::EtcdConfigArgs;
use crate::failure::Failure;
use crate::files;
use crate::template::{Endpoint, Template, object};

pub(crate) fn write(arguments: &EtcdConfigArgs) -> Result<(), Failure> {
    let EtcdConfigArgs { template, node_ip, base, out } = arguments;
    let template = Template::read(&template.template)?;
    let content = fs::read(base).map_err(Failure::on("read", base))?;
    let config = config(object(base, &content)?, &template.endpoints()?, *node_ip)?;
    files::replace(out, format!("{config:#}\n").as_bytes(), 0o600)
}

fn config(mut keys: Map<String, Value>, endpoints: &[Endpoint], me: IpAddr) -> Result<Value, Failure> {
    let mut members = Vec::new();
    for endpoint in endpoints {
        let ip = endpoint.ip().ok_or_else(|| {
            let host = &endpoint.host;
            Failure::new(format!(
                "the endpoint {host} is a name: a member of this etcd is known by its address"
            ))
        })?;
        let peer =
            endpoint.port.checked_add(1).ok_or_else(|| Failure::new("the port 65535 has no next one"))?;
        members.push((ip, url(ip, endpoint.port), url(ip, peer)));
    }
    let (_, client, peer) = members.iter().find(|(ip, ..)| *ip == me).ok_or_else(|| {
        Failure::new(format!(
            "this node's address {me} is not among etcd.endpoints in metes.conf: label the nodes that are listed there"
        ))
    })?;
    let cluster: Vec<String> = members.iter().map(|(ip, _, peer)| format!("{ip}={peer}")).collect();
    let own = [
        ("name", json!(me)),
        ("listen-client-urls", json!(client)),
        ("advertise-client-urls", json!(client)),
        ("listen-peer-urls", json!(peer)),
        ("initial-advertise-peer-urls", json!(peer)),
        ("initial-cluster", json!(cluster.join(","))),
    ];
    keys.extend(own.map(|(key, value)| (key.to_owned(), value)));
    Ok(Value::Object(keys))
}

fn url(ip: IpAddr, port: u16) -> String {
    format!("https://{}", std::net::SocketAddr::new(ip, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoints(hosts: &[&str]) -> Vec<Endpoint> {
        hosts.iter().map(|host| Endpoint { host: (*host).to_owned(), port: 12379 }).collect()
    }

    #[test]
    fn a_member_is_the_node_that_it_runs_on() {
        let base = Map::from_iter([("quota-backend-bytes".to_owned(), json!(8))]);
        let me = "10.0.0.2".parse().expect("an address");
        let config = config(base, &endpoints(&["10.0.0.1", "10.0.0.2"]), me).expect("valid");
        assert_eq!(config["quota-backend-bytes"], 8);
        assert_eq!(config["name"], "10.0.0.2");
        assert_eq!(config["listen-peer-urls"], "https://10.0.0.2:12380");
        assert_eq!(
            config["initial-cluster"],
            "10.0.0.1=https://10.0.0.1:12380,10.0.0.2=https://10.0.0.2:12380"
        );
    }

    #[test]
    fn ipv6_has_brackets_in_urls_alone() {
        let me = "fd00::1".parse().expect("an address");
        let config = config(Map::new(), &endpoints(&["fd00::1"]), me).expect("valid");
        assert_eq!(config["initial-cluster"], "fd00::1=https://[fd00::1]:12380");
    }

    #[test]
    fn a_node_that_is_not_listed_is_refused() {
        let me = "10.0.0.9".parse().expect("an address");
        let error = config(Map::new(), &endpoints(&["10.0.0.1"]), me).expect_err("not listed");
        assert!(error.to_string().contains("10.0.0.9 is not among etcd.endpoints"), "{error}");
        let error = config(Map::new(), &endpoints(&["etcd.example"]), me).expect_err("a name");
        assert!(error.to_string().contains("is a name"), "{error}");
    }
}
