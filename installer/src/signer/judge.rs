//! Whether a request comes from the installer on a node: from what the API server itself says of it, of its pod and of
//! the node.

use std::collections::BTreeMap;

use k8s_openapi::api::certificates::v1::CertificateSigningRequestSpec;
use k8s_openapi::api::core::v1::Pod;

/// The account of the installer's pods.
const ACCOUNT: &str = "metes-installer";
/// The API server adds these to a request that is made with the token of a pod.
const POD_NAME: &str = "authentication.kubernetes.io/pod-name";
const POD_UID: &str = "authentication.kubernetes.io/pod-uid";
const NODE_NAME: &str = "authentication.kubernetes.io/node-name";
/// What a certificate of a node is for.
const USAGES: [&str; 2] = ["client auth", "digital signature"];
/// A key of P-256 takes a twentieth of it.
const REQUEST_BYTES: usize = 8 << 10;

/// The pod that has asked, as the API server knows it from its token.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) pod: String,
    uid: String,
    node: Option<String>,
}

/// The pod that a request is from, or why it is refused.
pub(super) fn claim(spec: &CertificateSigningRequestSpec, namespace: &str) -> Result<Claim, String> {
    let account = format!("system:serviceaccount:{namespace}:{ACCOUNT}");
    let user = spec.username.as_deref().unwrap_or_default();
    if user != account {
        return Err(format!("foreign account: {user} asks, and only {account} may"));
    }
    let mut usages = spec.usages.clone().unwrap_or_default();
    usages.sort();
    if usages != USAGES {
        return Err(format!("wrong usages: {} are wanted, and {} are given", all(&usages), all(&USAGES)));
    }
    if spec.request.0.len() > REQUEST_BYTES {
        return Err(format!("the request has {} bytes: {REQUEST_BYTES} are the most", spec.request.0.len()));
    }
    let one = |key| only(spec.extra.as_ref(), key);
    let missing =
        |key| format!("the request is not made with the token of a pod: its extra has no single {key}");
    Ok(Claim {
        pod: one(POD_NAME)?.ok_or_else(|| missing(POD_NAME))?,
        uid: one(POD_UID)?.ok_or_else(|| missing(POD_UID))?,
        node: one(NODE_NAME)?,
    })
}

fn all<T: AsRef<str>>(words: &[T]) -> String {
    let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
    format!("[{}]", words.join(", "))
}

/// The one value of a key; none if the key is missing.
fn only(extra: Option<&BTreeMap<String, Vec<String>>>, key: &str) -> Result<Option<String>, String> {
    match extra.and_then(|extra| extra.get(key)).map(Vec::as_slice) {
        None => Ok(None),
        Some([value]) => Ok(Some(value.clone())),
        Some(values) => Err(format!("the extra of the request has {} values of {key}", values.len())),
    }
}

/// The node of the pod of a claim, or why the claim is refused.
pub(super) fn node(claim: &Claim, pod: Option<&Pod>) -> Result<String, String> {
    let Claim { pod: name, uid, node } = claim;
    let pod = pod.ok_or_else(|| format!("there is no pod {name}"))?;
    let now = pod.metadata.uid.as_deref().unwrap_or_default();
    if now != uid {
        return Err(format!(
            "foreign pod: the request is from {name} with the UID {uid}, and {now} is there"
        ));
    }
    let spec = pod.spec.as_ref();
    let account = spec.and_then(|spec| spec.service_account_name.as_deref()).unwrap_or_default();
    if account != ACCOUNT {
        return Err(format!("foreign pod: {name} has the account {account:?}, and not {ACCOUNT}"));
    }
    let its = spec.and_then(|spec| spec.node_name.clone()).filter(|its| !its.is_empty());
    let its = its.ok_or_else(|| format!("the pod {name} is on no node"))?;
    match node {
        Some(other) if *other != its => {
            Err(format!("the token of the pod {name} is of node {other}, and the pod is on {its}"))
        }
        _ => Ok(its),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;
    use k8s_openapi::api::core::v1::PodSpec;
    use kube::api::ObjectMeta;

    use super::*;

    fn spec() -> CertificateSigningRequestSpec {
        let extra = [(POD_NAME, "p"), (POD_UID, "u"), (NODE_NAME, "n1")];
        CertificateSigningRequestSpec {
            username: Some("system:serviceaccount:ns:metes-installer".to_owned()),
            usages: Some(vec!["digital signature".to_owned(), "client auth".to_owned()]),
            request: ByteString(vec![0; REQUEST_BYTES]),
            extra: Some(extra.map(|(key, value)| (key.to_owned(), vec![value.to_owned()])).into()),
            ..CertificateSigningRequestSpec::default()
        }
    }

    fn with(change: impl FnOnce(&mut CertificateSigningRequestSpec)) -> CertificateSigningRequestSpec {
        let mut spec = spec();
        change(&mut spec);
        spec
    }

    fn pod(uid: &str, account: &str, node: Option<&str>) -> Pod {
        Pod {
            metadata: ObjectMeta { uid: Some(uid.to_owned()), ..ObjectMeta::default() },
            spec: Some(PodSpec {
                service_account_name: Some(account.to_owned()),
                node_name: node.map(str::to_owned),
                ..PodSpec::default()
            }),
            ..Pod::default()
        }
    }

    #[test]
    fn only_a_pod_of_the_installer_may_ask() {
        let extra = |key: &'static str, values: &'static [&'static str]| {
            with(|spec| {
                let values = values.iter().map(|value| (*value).to_owned()).collect();
                spec.extra.as_mut().expect("it has one").insert(key.to_owned(), values);
            })
        };
        let good = Claim { pod: "p".to_owned(), uid: "u".to_owned(), node: Some("n1".to_owned()) };
        assert_eq!(claim(&spec(), "ns"), Ok(good));
        for (spec, words) in [
            (with(|spec| spec.username = None), "foreign account"),
            (with(|spec| spec.username = Some("system:node:n1".to_owned())), "foreign account"),
            (with(|spec| spec.usages = None), "wrong usages"),
            (
                with(|spec| spec.usages.iter_mut().for_each(|all| all.push("server auth".into()))),
                "wrong usages",
            ),
            (with(|spec| spec.usages.iter_mut().for_each(|all| all.truncate(1))), "wrong usages"),
            (with(|spec| spec.request.0.push(0)), "8193 bytes"),
            (with(|spec| spec.extra = None), "no single authentication.kubernetes.io/pod-name"),
            (extra(POD_UID, &[]), "0 values of authentication.kubernetes.io/pod-uid"),
            (extra(POD_NAME, &["p", "q"]), "2 values"),
            (extra(NODE_NAME, &["n1", "n2"]), "2 values"),
        ] {
            let refused = claim(&spec, "ns").expect_err(words);
            assert!(refused.contains(words), "{refused}");
        }
        assert!(claim(&spec(), "other").is_err_and(|refused| refused.contains("foreign account")));
    }

    #[test]
    fn the_pod_is_the_one_that_has_the_token() {
        let claim = claim(&spec(), "ns").expect("good");
        assert_eq!(node(&claim, Some(&pod("u", ACCOUNT, Some("n1")))), Ok("n1".to_owned()));
        // An API server before 1.30 does not know the node of a token.
        let of_old = Claim { node: None, ..super::claim(&spec(), "ns").expect("good") };
        assert_eq!(node(&of_old, Some(&pod("u", ACCOUNT, Some("n2")))), Ok("n2".to_owned()));
        for (pod, words) in [
            (None, "there is no pod p"),
            (Some(pod("v", ACCOUNT, Some("n1"))), "UID u, and v is there"),
            (Some(pod("u", "default", Some("n1"))), "account \"default\""),
            (Some(pod("u", ACCOUNT, None)), "on no node"),
            (Some(pod("u", ACCOUNT, Some("n2"))), "of node n1, and the pod is on n2"),
        ] {
            let refused = node(&claim, pod.as_ref()).expect_err(words);
            assert!(refused.contains(words), "{refused}");
        }
    }
}
