//! The answer to a request for admission of a NetworkAttachmentDefinition. Pure.

use metes_config::Source;
use metes_config::nad::Nad;
use metes_config::validate::{Issue, IssueId, JudgedNetwork, Severity, compare, judge_nad};
use serde_json::{Value, json};

/// The version of requests and answers.
const API_VERSION: &str = "admission.k8s.io/v1";
/// The status of a refused request, and its name.
const INVALID: (u16, &str) = (422, "Invalid");

/// The decision about a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Admission {
    /// The id of the request.
    uid: String,
    /// The definition, as `namespace/name`.
    pub(crate) label: String,
    /// The reasons for a refusal; empty if it is allowed.
    pub(crate) refusals: Vec<String>,
    /// Hints for its author.
    pub(crate) warnings: Vec<String>,
}

impl Admission {
    /// Judges a request, for nodes with this source of settings. A configuration that the plugin would refuse is
    /// refused. An update that leaves the configuration as it is passes all the same: somebody changes something else,
    /// and must be able to.
    ///
    /// # Errors
    /// The reason why it is no request for admission, in words.
    pub(crate) fn of(review: &Value, source: &Source) -> Result<Self, String> {
        if review["apiVersion"] != API_VERSION || review["kind"] != "AdmissionReview" {
            return Err(format!("this is not an AdmissionReview of {API_VERSION}"));
        }
        let request = &review["request"];
        let Some(uid) = request["uid"].as_str() else { return Err("`request.uid` is missing".to_owned()) };
        let nad = Nad::of(&request["object"], "");
        let issues = nad.as_ref().map(|nad| issues(nad, source)).unwrap_or_default();
        let of = |severity| issues.iter().filter(move |issue| issue.id.severity() == severity).map(words);
        let (mut refusals, mut warnings) = (of(Severity::Error).collect(), of(Severity::Warning).collect());
        let was = Nad::of(&request["oldObject"], "");
        if request["operation"] == "UPDATE" && nad == was {
            let mut known: Vec<String> = std::mem::take(&mut refusals);
            known.append(&mut warnings);
            warnings = known;
        }
        let label = nad.map(|nad| nad.label()).unwrap_or_default();
        Ok(Self { uid: uid.to_owned(), label, refusals, warnings })
    }

    /// True if it may be written.
    pub(crate) fn is_allowed(&self) -> bool {
        self.refusals.is_empty()
    }

    /// The answer for the API server.
    pub(crate) fn to_json(&self) -> Value {
        let mut response = json!({"uid": self.uid, "allowed": self.is_allowed()});
        if !self.is_allowed() {
            let (code, reason) = INVALID;
            let message = format!("metes would refuse an ADD: {}", self.refusals.join("; and "));
            response["status"] = json!({"code": code, "reason": reason, "message": message});
        }
        if !self.warnings.is_empty() {
            let warnings = self.warnings.iter().map(|warning| format!("metes: {warning}"));
            response["warnings"] = warnings.collect();
        }
        json!({"apiVersion": API_VERSION, "kind": "AdmissionReview", "response": response})
    }
}

/// The issues of a definition, also between its plugins.
fn issues(nad: &Nad, source: &Source) -> Vec<Issue> {
    let JudgedNetwork { mut issues, uses, .. } = judge_nad(nad, source);
    issues.extend(compare(&uses).into_iter().map(|(_, issue)| issue));
    issues
}

fn words(issue: &Issue) -> String {
    let Issue { id, what, remedy, at, .. } = issue;
    let place = at.map(|(line, column)| format!(" at line {line} column {column}")).unwrap_or_default();
    match id {
        IssueId::NotJson => format!("spec.config is not JSON: {what}{place}; {remedy}"),
        _ => format!("{what}; {remedy}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nad(config: &str) -> Value {
        json!({
            "apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
            "metadata": {"namespace": "ns", "name": "net"}, "spec": {"config": config},
        })
    }

    fn review(operation: &str, new: &Value, old: &Value) -> Value {
        let request = json!({"uid": "u-1", "operation": operation, "object": new, "oldObject": old});
        json!({"apiVersion": API_VERSION, "kind": "AdmissionReview", "request": request})
    }

    fn judged(operation: &str, new: &Value, old: &Value) -> (bool, Vec<String>, Value) {
        let admission = Admission::of(&review(operation, new, old), &Source::Network).expect("a review");
        (admission.is_allowed(), admission.warnings.clone(), admission.to_json())
    }

    const GOOD: &str = r#"{"type":"bridge","ipam":{"type":"metes","range":"10.0.0.0/24"}}"#;
    const BAD: &str = r#"{"type":"bridge","ipam":{"type":"metes","rnage":"10.0.0.0/24"}}"#;
    const ODD: &str = r#"{"type":"bridge","ipam":{"type":"metes","range":"10.0.0.0/24","colour":"red"}}"#;

    #[test]
    fn what_the_plugin_would_refuse_is_refused_and_what_is_odd_is_warned_of() {
        let created = |config: &str| judged("CREATE", &nad(config), &Value::Null);
        assert_eq!(
            created(GOOD),
            (
                true,
                vec![],
                json!({
                    "apiVersion": API_VERSION, "kind": "AdmissionReview", "response": {"uid": "u-1", "allowed": true},
                })
            )
        );
        let (allowed, warnings, answer) = created(BAD);
        let status = &answer["response"]["status"];
        assert!(!allowed && warnings.is_empty() && status["code"] == 422, "{answer}");
        let message = status["message"].as_str().expect("a message");
        assert!(message.contains("rnage") && message.contains("`range`"), "{message}");
        let (allowed, warnings, answer) = created(ODD);
        assert!(allowed && warnings.len() == 1 && warnings[0].contains("colour"), "{answer}");
        assert_eq!(answer["response"]["warnings"][0], format!("metes: {}", warnings[0]));
        let (allowed, _, answer) = created(r#"{"ipam":{"type":"metes",}}"#);
        assert!(!allowed && answer.to_string().contains("spec.config is not JSON"), "{answer}");
        assert!(answer.to_string().contains("trailing comma at line 1 column"), "{answer}");
        let (allowed, warnings, _) =
            created(r#"{"type":"bridge","ipma":{"type":"metes","range":"10.0.0.0/24"}}"#);
        assert!(allowed && warnings.len() == 1 && warnings[0].contains("not in `ipam`"), "{warnings:?}");
    }

    #[test]
    fn an_update_that_leaves_the_configuration_is_only_warned() {
        let mut labelled = nad(BAD);
        labelled["metadata"]["labels"] = json!({"a": "b"});
        let (allowed, warnings, _) = judged("UPDATE", &labelled, &nad(BAD));
        assert!(allowed && warnings.len() == 1, "{warnings:?}");
        assert!(!judged("UPDATE", &nad(BAD), &nad(GOOD)).0);
        assert!(judged("UPDATE", &nad(GOOD), &nad(BAD)).0);
    }

    #[test]
    fn what_is_no_network_of_metes_is_none_of_its_business() {
        let host_local = nad(r#"{"type":"bridge","ipam":{"type":"host-local","rnage":"metes"}}"#);
        for object in [host_local, json!({"kind": "Pod"}), Value::Null, nad("")] {
            assert!(judged("CREATE", &object, &Value::Null).0, "{object}");
        }
        for review in [json!({}), json!([]), json!({"apiVersion": API_VERSION, "kind": "AdmissionReview"})] {
            assert!(Admission::of(&review, &Source::Network).is_err(), "{review}");
        }
    }
}
