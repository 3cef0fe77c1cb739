//! The objects of other operators in docs/operators.md: a real API server takes them, strictly, with definitions that
//! have the fields of the real ones, and their `ipam` gives an address.

use std::time::Duration;

use crate::manifests_api::install_definition;
use serde_json::{Value, json};
use support::{Cluster, KubeApi, network, wait_for};

const SERVED_MAX: Duration = Duration::from_secs(30);

/// The specs of the kinds, as their operators define them.
fn kinds() -> Vec<(&'static str, &'static str, &'static str, &'static str, Value)> {
    let (text, number) = (json!({"type": "string"}), json!({"type": "integer", "minimum": 0}));
    let of_nvidia = |more: Value| with(json!({"networkNamespace": text, "ipam": text}), more);
    let mode = json!({"type": "string", "enum": ["bridge", "private", "vepa", "passthru"]});
    let nvidia = "mellanox.com/v1alpha1";
    vec![
        (
            nvidia,
            "MacvlanNetwork",
            "macvlannetworks",
            "Cluster",
            of_nvidia(json!({"master": text, "mode": mode, "mtu": number})),
        ),
        (
            nvidia,
            "HostDeviceNetwork",
            "hostdevicenetworks",
            "Cluster",
            of_nvidia(json!({"resourceName": text})),
        ),
        (nvidia, "IPoIBNetwork", "ipoibnetworks", "Cluster", of_nvidia(json!({"master": text}))),
        (
            "sriovnetwork.openshift.io/v1",
            "SriovNetwork",
            "sriovnetworks",
            "Namespaced",
            json!({
                "networkNamespace": text, "ipam": text, "resourceName": text, "vlan": number, "capabilities": text,
            }),
        ),
    ]
}

fn with(mut fields: Value, more: Value) -> Value {
    for (key, value) in more.as_object().expect("an object") {
        fields[key] = value.clone();
    }
    fields
}

fn define(api: &KubeApi) {
    for (version, kind, plural, scope, spec) in kinds() {
        let group = version.split_once('/').expect("a group and a version");
        let names = [kind, plural, &kind.to_lowercase()];
        let schema = json!({
            "type": "object", "properties": {"spec": {"type": "object", "properties": spec}},
        });
        install_definition(api, group, names, scope, schema);
    }
}

/// The objects of the page.
fn objects() -> Vec<Value> {
    let page = include_str!("../../docs/operators.md");
    let blocks = page.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next());
    let documents = blocks.flat_map(|block| block.split("---\n"));
    documents.map(|document| yaml_serde::from_str(document).expect("it is YAML")).collect()
}

#[test]
fn the_objects_of_operators_are_taken_and_their_ipam_gives_addresses() {
    let (api, cluster) = (KubeApi::shared(), Cluster::new());
    let node = cluster.node("n1");
    define(api);
    api.create_missing("/api/v1/namespaces", &json!({"metadata": {"name": "sriov-network-operator"}}));
    let objects = objects();
    assert_eq!(objects.len(), kinds().len());
    for (object, (version, kind, plural, scope, _)) in objects.iter().zip(kinds()) {
        assert_eq!((&object["apiVersion"], &object["kind"]), (&json!(version), &json!(kind)));
        let namespace = match scope {
            "Cluster" => String::new(),
            _ => format!("namespaces/{}/", object["metadata"]["namespace"].as_str().expect("a namespace")),
        };
        let path = format!("/apis/{version}/{namespace}{plural}");
        // Both the kind and its storage come a moment after the definition.
        wait_for("the object to be taken", SERVED_MAX, || {
            let answer = api.ask("POST", &format!("{path}?fieldValidation=Strict&dryRun=All"), Some(object));
            if answer.status == 201 {
                Ok(())
            } else {
                Err(format!("{path}: {} {}", answer.status, answer.body))
            }
        });
        let ipam: Value =
            serde_json::from_str(object["spec"]["ipam"].as_str().expect("a text")).expect("it is JSON");
        let outcome = node.add(kind).config(&network(ipam)).run();
        assert!(outcome.address().starts_with("10.6") && !outcome.stderr.contains("unknown"), "{outcome}");
        node.del(kind).config(&network(json!({}))).run().silent();
    }
    cluster.assert_clean();
}
