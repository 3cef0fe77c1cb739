//! Earlier results that runtimes hand back: to CHECK the ADD's (`prevResult`), to GC the attachments still valid.

use std::net::IpAddr;

use super::request::Attachment;
use super::section::Shows;
use super::{Error, Json, Section, Version};

/// An address of `prevResult`, with its gateway.
pub type PrevAddress = (IpAddr, Option<IpAddr>);

/// The names of GC's list: the specification's, and the one that it had before.
const LISTS: [&str; 2] = ["cni.dev/valid-attachments", "cni.dev/attachments"];

/// The addresses of `prevResult`, in the shape of any version; `None` if there is no prevResult.
///
/// # Errors
/// Code 7 if it is malformed, or its version has another shape than the configuration's.
pub fn prev_result_addresses(config: &Json) -> Result<Option<Vec<PrevAddress>>, Error> {
    let config = document(config);
    let Some(result) = config.section("prevResult")? else {
        return Ok(None);
    };
    let shape = Shape::of(&config)?.unwrap_or(Shape::Oldest);
    if Shape::of(&result)?.is_some_and(|found| found != shape) {
        return Err(result.invalid("cniVersion", "a version with results of the configuration's shape"));
    }
    let mut addresses = Vec::new();
    if shape == Shape::Oldest {
        for key in ["ip4", "ip6"] {
            addresses.extend(result.section(key)?.map(|ip| address_and_gateway(&ip, "ip")).transpose()?);
        }
    } else {
        for ip in result.sections("ips")? {
            addresses.push(address_and_gateway(&ip, "address")?);
        }
    }
    Ok(Some(addresses))
}

/// GC's list of the attachments that are still valid. A list that is `null` is empty. If both names of the list are
/// given, both lists count. `None` if the configuration has no list at all.
///
/// # Errors
/// Code 7 if it is malformed: that must never be taken for an empty list.
pub fn valid_attachments(config: &Json) -> Result<Option<Vec<Attachment>>, Error> {
    let document = document(config);
    if LISTS.iter().all(|key| config.get(key).is_none()) {
        return Ok(None);
    }
    let mut attachments = Vec::new();
    for key in LISTS {
        for entry in document.sections(key)? {
            attachments.extend(attachment(&entry)?);
        }
    }
    Ok(Some(attachments))
}

/// Versions whose results look alike.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    Oldest,
    ListWithVersions,
    List,
}

impl Shape {
    fn of(section: &Section<'_>) -> Result<Option<Self>, Error> {
        let version = section.parsed("cniVersion", "a supported version", Version::exactly)?;
        Ok(version.map(|version| match version {
            v if v <= Version::V0_2_0 => Shape::Oldest,
            v if v <= Version::V0_4_0 => Shape::ListWithVersions,
            _ => Shape::List,
        }))
    }
}

fn document(config: &Json) -> Section<'_> {
    Section::new("", config.pairs().unwrap_or_default(), Shows::Values)
}

fn address_and_gateway(ip: &Section<'_>, key: &str) -> Result<PrevAddress, Error> {
    let expected = "an address with a prefix length";
    let address = ip.parsed(key, expected, |text| text.split_once('/')?.0.parse().ok())?;
    let address: IpAddr = address.ok_or_else(|| ip.invalid(key, expected))?;
    let gateway = ip.parsed("gateway", "an address", |text| text.parse::<IpAddr>().ok())?;
    Ok((address.to_canonical(), gateway.map(|gateway| gateway.to_canonical())))
}

/// One entry of GC's list; `None` if its names are none that an owner can have, because then it holds nothing.
fn attachment(entry: &Section<'_>) -> Result<Option<Attachment>, Error> {
    let text = |key| entry.text(key)?.ok_or_else(|| entry.invalid(key, "given"));
    let (container_id, ifname) = (text("containerID")?.parse(), text("ifname")?.parse());
    Ok(container_id.ok().zip(ifname.ok()).map(|(container_id, ifname)| Attachment { container_id, ifname }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> Json {
        Json::parse(text.as_bytes()).expect("valid JSON")
    }

    #[test]
    fn addresses_of_every_shape_are_read() {
        let oldest =
            r#"{"ip4":{"ip":"10.0.0.2/24","gateway":"10.0.0.1"},"ip6":{"ip":"fd00::2/64"},"dns":{}}"#;
        let list = r#"{"ips":[{"address":"10.0.0.2/24","gateway":"10.0.0.1"},{"address":"fd00::2/64","gateway":""}]}"#;
        let ip = |text: &str| text.parse::<IpAddr>().expect("an address");
        let expected = vec![(ip("10.0.0.2"), Some(ip("10.0.0.1"))), (ip("fd00::2"), None)];
        for (version, result) in
            [("", oldest), ("0.2.0", oldest), ("0.3.1", list), ("0.4.0", list), ("1.1.0", list)]
        {
            let config = json(&format!(r#"{{"cniVersion":"{version}","PrevResult":{result}}}"#));
            assert_eq!(prev_result_addresses(&config).expect("read"), Some(expected.clone()), "{version}");
        }
        assert_eq!(prev_result_addresses(&json("{}")), Ok(None));
        assert_eq!(prev_result_addresses(&json(r#"{"prevResult":null}"#)), Ok(None));
        assert_eq!(
            prev_result_addresses(&json(r#"{"cniVersion":"1.0.0","prevResult":{}}"#)),
            Ok(Some(vec![]))
        );
    }

    #[test]
    fn a_prev_result_that_cannot_be_read_is_refused() {
        for (config, found) in [
            ("1.0.0", r#"{"cniVersion":"0.2.0"}"#),
            ("0.4.0", r#"{"cniVersion":"1.0.0"}"#),
            ("1.0.0", r#"{"cniVersion":"9.0.0"}"#),
            ("1.0.0", r#"{"ips":{}}"#),
            ("1.0.0", r#"{"ips":[{}]}"#),
            ("1.0.0", r#"{"ips":[{"address":"10.0.0.1"}]}"#),
            ("1.0.0", r#"{"ips":[{"address":"x/8"}]}"#),
            ("1.0.0", r#"{"ips":[{"address":"10.0.0.1/8","gateway":"x"}]}"#),
            ("1.0.0", "[]"),
        ] {
            let config = json(&format!(r#"{{"cniVersion":"{config}","prevResult":{found}}}"#));
            assert_eq!(prev_result_addresses(&config).unwrap_err().code.number(), 7, "{found}");
        }
        let config = json(r#"{"cniVersion":"1.0.0","prevResult":{"cniVersion":"1.1.0"}}"#);
        assert_eq!(prev_result_addresses(&config), Ok(Some(vec![])), "1.0.0 and 1.1.0 are alike");
    }

    #[test]
    fn lists_of_attachments() {
        let entry = |id: &str| Attachment {
            container_id: id.parse().expect("a container id"),
            ifname: "eth0".parse().expect("an interface name"),
        };
        let table = [
            (r#"{}"#, None),
            (r#"{"cni.dev/valid-attachments":null}"#, Some(vec![])),
            (r#"{"cni.dev/attachments":null}"#, Some(vec![])),
            (r#"{"cni.dev/attachments":[]}"#, Some(vec![])),
            (r#"{"cni.dev/attachments":[{"containerID":"a","ifname":"eth0"}]}"#, Some(vec![entry("a")])),
            (
                r#"{"cni.dev/attachments":[{"containerid":"a","ifName":"eth0"}],
                    "cni.dev/valid-attachments":[{"containerID":"b","ifname":"eth0","x":1}]}"#,
                Some(vec![entry("b"), entry("a")]),
            ),
            (r#"{"cni.dev/attachments":[{"containerID":"a/b","ifname":"eth0"}]}"#, Some(vec![])),
        ];
        for (config, expected) in table {
            assert_eq!(valid_attachments(&json(config)), Ok(expected), "{config}");
        }
        for bad in [
            r#"{}"#,
            r#""""#,
            "false",
            "[null]",
            r#"[{}]"#,
            r#"[{"containerID":"a"}]"#,
            r#"["a"]"#,
            r#"[{"containerID":"","ifname":"eth0"}]"#,
            r#"[{"containerID":1,"ifname":"eth0"}]"#,
        ] {
            let config = json(&format!(r#"{{"cni.dev/valid-attachments":{bad}}}"#));
            assert_eq!(valid_attachments(&config).unwrap_err().code.number(), 7, "{bad}");
        }
    }
}
