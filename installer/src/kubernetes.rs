//! Secrets as kubectl takes them.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

/// A Secret in the form that Kubernetes and cert-manager use for certificates.
pub(crate) fn tls_secret(namespace: &str, name: &str, files: &[(&str, &str)]) -> Value {
    let data: Map<String, Value> =
        files.iter().map(|(name, text)| ((*name).to_owned(), json!(STANDARD.encode(text)))).collect();
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/tls",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {"app.kubernetes.io/part-of": "metes"},
        },
        "data": data,
    })
}

/// Several objects as one.
pub(crate) fn list(items: &[Value]) -> Value {
    json!({"apiVersion": "v1", "kind": "List", "items": items})
}
