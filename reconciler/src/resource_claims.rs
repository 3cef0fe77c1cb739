//! ResourceClaims whose devices report addresses: what a DRA driver for networks gave to pods.

use serde::Deserialize;
use serde_json::Value;

use crate::api::ApiError;
use crate::kubernetes::{Detail, Kubernetes};
use crate::object::Metadata;

/// A device of an allocated claim that reports addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Device {
    /// The claim's namespace, its name, and its UID.
    pub(crate) claim: [String; 3],
    pub(crate) driver: String,
    /// The configuration of CNI that the driver was given for it, if there is one.
    pub(crate) config: Option<String>,
    pub(crate) interface: String,
    /// Its addresses, as written.
    pub(crate) ips: Vec<String>,
    /// The name and the UID of the pod that the claim is reserved for.
    pub(crate) pod: Option<[String; 2]>,
    /// The node that the allocation names.
    pub(crate) node: Option<String>,
}

/// All such devices.
///
/// # Errors
/// [`ApiError`], also if the API does not let this program see claims.
pub(crate) async fn list(api: &Kubernetes) -> Result<Vec<Device>, ApiError> {
    let Some(path) = api.claims_path().await? else { return Ok(Vec::new()) };
    let mut devices = Vec::new();
    let mut see = |claim: ClaimObject| devices.extend(claim.into_devices());
    match api.list("list resourceclaims", &path, Detail::Whole, None, &mut see).await {
        Err(e) if e.is_not_found() => Ok(Vec::new()),
        listed => listed.map(|()| devices),
    }
}

#[derive(Deserialize)]
struct ClaimObject {
    metadata: Metadata,
    #[serde(default)]
    status: ClaimStatus,
}

#[derive(Default, Deserialize)]
struct ClaimStatus {
    allocation: Option<ClaimAllocation>,
    #[serde(default)]
    devices: Vec<DeviceStatus>,
    #[serde(rename = "reservedFor", default)]
    reserved_for: Vec<Consumer>,
}

#[derive(Deserialize)]
struct ClaimAllocation {
    #[serde(default)]
    devices: Allocated,
    #[serde(rename = "nodeSelector", default)]
    node_selector: Value,
}

#[derive(Default, Deserialize)]
struct Allocated {
    #[serde(default)]
    results: Vec<AllocatedDevice>,
    #[serde(default)]
    config: Vec<DeviceConfig>,
}

#[derive(Deserialize)]
struct AllocatedDevice {
    request: String,
    driver: String,
    pool: String,
    device: String,
}

#[derive(Deserialize)]
struct DeviceConfig {
    #[serde(default)]
    requests: Vec<String>,
    opaque: Option<Opaque>,
}

#[derive(Deserialize)]
struct Opaque {
    driver: String,
    #[serde(default)]
    parameters: Value,
}

#[derive(Deserialize)]
struct DeviceStatus {
    driver: String,
    pool: String,
    device: String,
    #[serde(rename = "networkData")]
    network: Option<NetworkData>,
}

#[derive(Deserialize)]
struct NetworkData {
    #[serde(rename = "interfaceName", default)]
    interface: String,
    #[serde(default)]
    ips: Vec<String>,
}

#[derive(Deserialize)]
struct Consumer {
    #[serde(default)]
    resource: String,
    name: String,
    uid: String,
}

impl ClaimObject {
    fn into_devices(self) -> Vec<Device> {
        let ClaimStatus { allocation, devices, reserved_for } = self.status;
        let Some(allocation) = allocation else { return Vec::new() };
        let Metadata { namespace, name, uid, .. } = self.metadata;
        let pod = reserved_for.into_iter().find(|one| one.resource == "pods");
        let pod = pod.map(|one| [one.name, one.uid]);
        let reports = devices.into_iter().filter_map(|device| {
            let (config, node) = (allocation.config_of(&device), allocation.node());
            let network = device.network.filter(|network| !network.ips.is_empty())?;
            let claim = [namespace.clone(), name.clone(), uid.clone()];
            let NetworkData { interface, ips } = network;
            Some(Device { claim, driver: device.driver, config, interface, ips, pod: pod.clone(), node })
        });
        reports.collect()
    }
}

impl ClaimAllocation {
    /// The configuration of CNI among the parameters of a device's request. The last one counts: those of the claim
    /// come after those of its class.
    fn config_of(&self, device: &DeviceStatus) -> Option<String> {
        let is_it = |one: &&AllocatedDevice| {
            (&one.driver, &one.pool, &one.device) == (&device.driver, &device.pool, &device.device)
        };
        let request = &self.devices.results.iter().find(is_it)?.request;
        // Of a request with alternatives, a result names the alternative too.
        let main = request.split('/').next().unwrap_or_default();
        let is_for = |config: &&DeviceConfig| {
            config.requests.is_empty() || config.requests.iter().any(|one| one == request || one == main)
        };
        let opaque = self.devices.config.iter().filter(is_for).filter_map(|config| config.opaque.as_ref());
        opaque
            .filter(|opaque| opaque.driver == device.driver)
            .filter_map(|one| cni(&one.parameters))
            .next_back()
    }

    /// The node of a selector that names one.
    fn node(&self) -> Option<String> {
        let field = &self.node_selector["nodeSelectorTerms"][0]["matchFields"][0];
        let is_one = field["key"] == "metadata.name" && field["operator"] == "In";
        let names = field["values"].as_array().filter(|names| is_one && names.len() == 1)?;
        names[0].as_str().map(str::to_owned)
    }
}

/// The configuration of CNI in a driver's parameters: under `config`, as an object or as text.
fn cni(parameters: &Value) -> Option<String> {
    match &parameters["config"] {
        Value::Object(config) => Some(Value::Object(config.clone()).to_string()),
        Value::String(text) => Some(text.clone()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn devices(status: Value) -> Vec<Device> {
        let metadata = json!({"namespace": "ns", "name": "claim", "uid": "u"});
        let claim: ClaimObject =
            serde_json::from_value(json!({"metadata": metadata, "status": status})).expect("a claim");
        claim.into_devices()
    }

    #[test]
    fn the_configuration_of_a_device_is_that_of_its_request() {
        let config = |request: &str, driver: &str, name: &str| {
            let parameters = json!({"config": {"name": name}});
            json!({"requests": [request], "opaque": {"driver": driver, "parameters": parameters}})
        };
        let device = |name: &str| {
            json!({"driver": "cni", "pool": "n1", "device": name,
                "networkData": {"interfaceName": name, "ips": ["10.0.0.1/24"]}})
        };
        let result = |request: &str, device: &str| {
            json!({"request": request,
            "driver": "cni", "pool": "n1", "device": device})
        };
        let found = devices(json!({
            "allocation": {
                "devices": {
                    "results": [result("a", "d1"), result("b/first", "d2"), result("c", "d3")],
                    "config": [
                        config("a", "cni", "class"), config("a", "other", "x"), config("b", "cni", "two"),
                        config("a", "cni", "claim"),
                    ],
                },
                "nodeSelector": {"nodeSelectorTerms": [
                    {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]},
                ]},
            },
            "devices": [device("d1"), device("d2"), device("d3"), {"driver": "cni", "pool": "n1", "device": "d4"}],
            "reservedFor": [{"resource": "pods", "name": "p", "uid": "pu"}],
        }));
        let configs: Vec<Option<&str>> = found.iter().map(|one| one.config.as_deref()).collect();
        assert_eq!(configs, [Some(r#"{"name":"claim"}"#), Some(r#"{"name":"two"}"#), None]);
        let first = &found[0];
        assert_eq!((first.node.as_deref(), first.interface.as_str()), (Some("n1"), "d1"));
        assert_eq!(first.pod, Some(["p".to_owned(), "pu".to_owned()]));
        assert!(devices(json!({"devices": [device("d1")]})).is_empty(), "it is not allocated");
    }
}
