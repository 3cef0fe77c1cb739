//! Kubernetes Events about freed pods, and about pods whose addresses the store lacks, for people who look at a
//! namespace and not at this program's log.

use std::fmt::Write;
use std::time::{Duration, SystemTime};

use futures_util::stream::{self, StreamExt};
use kube::core::params::PostParams;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use metes_core::pool::OwnerKind;

use crate::api::ApiError;
use crate::kubernetes::Kubernetes;
use crate::lacking::LackingAddress;
use crate::report::FreedOwner;
use crate::verdict::is_named;

/// The most events that one pass sends.
const AT_MOST: usize = 100;
/// The number that is sent at the same time.
const AT_ONCE: usize = 8;
/// The longest time for sending all of them.
const DEADLINE: Duration = Duration::from_secs(10);
/// The longest note that the API server accepts, in bytes.
const MESSAGE_MAX: usize = 1024;
/// The component that reports the events.
const REPORTER: &str = "metes-reconciler";

/// Sends an event for each address that the store lacks, when that has become certain, and for each freed owner that
/// belongs to a pod. A failure is logged once: nothing depends on events.
pub(crate) async fn tell(api: &Kubernetes, lacking: &[LackingAddress], freed: &[FreedOwner]) {
    let lacking = lacking.iter().filter(|one| one.is_new).filter_map(lacks);
    let events: Vec<_> = lacking.chain(freed.iter().filter_map(event)).collect();
    if events.len() > AT_MOST {
        tracing::info!(wanted = events.len(), events = AT_MOST, "there is more to tell than events are made");
    }
    let send = |(namespace, event)| send(api, namespace, event);
    let mut sent = stream::iter(events.into_iter().take(AT_MOST)).map(send).buffer_unordered(AT_ONCE);
    let (mut failed, mut first) = (0, None);
    let all = async {
        while let Some(outcome) = sent.next().await {
            if let Err(why) = outcome {
                failed += 1;
                first.get_or_insert(why);
            }
        }
    };
    if tokio::time::timeout(DEADLINE, all).await.is_err() {
        tracing::warn!("not all events could be made in {DEADLINE:?}");
    }
    if let Some(why) = first {
        tracing::warn!(failed, %why, "events could not be made");
    }
}

async fn send(api: &Kubernetes, namespace: &str, event: Value) -> Result<(), ApiError> {
    let path = format!("/api/v1/namespaces/{namespace}/events");
    let request =
        kube::core::Request::new(path).create(&PostParams::default(), event.to_string().into_bytes());
    api.ask::<IgnoredAny>(&format!("create an event in {namespace}"), request).await.map(|_| ())
}

/// The namespace and the event; none if the owner belongs to no pod that has a name.
fn event(freed: &FreedOwner) -> Option<(&str, Value)> {
    let pod = &freed.holder.record.as_ref()?.pod;
    if !is_named(pod) {
        return None;
    }
    let mut object = json!({"apiVersion": "v1", "kind": "Pod", "namespace": pod.namespace, "name": pod.name});
    if let Some(uid) = &pod.uid {
        object["uid"] = json!(uid);
    }
    let reason = match freed.holder.owner.kind() {
        OwnerKind::Subject(_) => "HoldEnded",
        OwnerKind::Container(_) | OwnerKind::Aside(..) | OwnerKind::Unknown => "AddressesFreed",
    };
    Some((&pod.namespace, about(object, ["Normal", reason, &message(freed)])))
}

/// The same for an address that the store lacks.
fn lacks(one: &LackingAddress) -> Option<(&str, Value)> {
    let (namespace, name) = one.pod.split_once('/')?;
    let message = format!(
        "This pod reports {} of network {}, which the store of metes does not hold for it: another pod may get it. \
         An operator should run `metes-reconciler adopt`.",
        one.address, one.network
    );
    let object =
        json!({"apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": name, "uid": one.uid});
    Some((namespace, about(object, ["Warning", "AddressLacking", &message])))
}

fn about(object: Value, [kind, reason, message]: [&str; 3]) -> Value {
    let now = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": "metes-", "namespace": object["namespace"]},
        "type": kind,
        "reason": reason,
        "message": message,
        "involvedObject": object,
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
        "source": {"component": REPORTER},
        "reportingComponent": REPORTER,
    })
}

fn message(freed: &FreedOwner) -> String {
    let owner = &freed.holder.owner;
    let mut text = format!("Freed ({}):", freed.reason);
    for held in &freed.held {
        // Writing into a String does not fail.
        let _ = write!(text, " {}", held.address);
        if let Some(network) = &held.network {
            let _ = write!(text, " of network {network}");
        }
        text.push(',');
    }
    // Writing into a String does not fail.
    let _ = match owner.kind() {
        OwnerKind::Subject(_) => write!(text, " of {owner}, which no pod has used for its time"),
        OwnerKind::Container(_) | OwnerKind::Aside(..) | OwnerKind::Unknown => {
            let (ifname, container) = (&owner.ifname, &owner.container_id);
            write!(text, " held by {ifname} of container {container} on node {}", owner.node)
        }
    };
    if let Some((at, _)) = text.char_indices().find(|(at, c)| at + c.len_utf8() > MESSAGE_MAX) {
        text.truncate(at);
    }
    text
}
