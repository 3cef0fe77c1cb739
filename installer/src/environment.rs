//! The configuration of a member as environment variables.
//!
//! etcd takes the list of revoked certificates from a flag or a variable alone, and with a configuration file it looks
//! at no flags and no variables. So all settings are variables.

use std::path::Path;

use serde_json::{Map, Value};

use crate::failure::Failure;

const CLIENT: &str = "client-transport-security";
const PEER: &str = "peer-transport-security";

const SKIP: &str = "ETCD_PEER_SKIP_CLIENT_SAN_VERIFICATION";
/// Its name before etcd 3.6, which refuses to have both.
const SKIP_OF_OLD: &str = "ETCD_EXPERIMENTAL_PEER_SKIP_CLIENT_SAN_VERIFICATION";

/// The variable of a key in a section of the configuration file.
const SECTIONS: [(&str, &str, &str); 17] = [
    (CLIENT, "cert-file", "ETCD_CERT_FILE"),
    (CLIENT, "key-file", "ETCD_KEY_FILE"),
    (CLIENT, "client-cert-file", "ETCD_CLIENT_CERT_FILE"),
    (CLIENT, "client-key-file", "ETCD_CLIENT_KEY_FILE"),
    (CLIENT, "client-cert-auth", "ETCD_CLIENT_CERT_AUTH"),
    (CLIENT, "trusted-ca-file", "ETCD_TRUSTED_CA_FILE"),
    (CLIENT, "auto-tls", "ETCD_AUTO_TLS"),
    (CLIENT, "allowed-hostname", "ETCD_CLIENT_CERT_ALLOWED_HOSTNAME"),
    (PEER, "cert-file", "ETCD_PEER_CERT_FILE"),
    (PEER, "key-file", "ETCD_PEER_KEY_FILE"),
    (PEER, "client-cert-file", "ETCD_PEER_CLIENT_CERT_FILE"),
    (PEER, "client-key-file", "ETCD_PEER_CLIENT_KEY_FILE"),
    (PEER, "client-cert-auth", "ETCD_PEER_CLIENT_CERT_AUTH"),
    (PEER, "trusted-ca-file", "ETCD_PEER_TRUSTED_CA_FILE"),
    (PEER, "allowed-cn", "ETCD_PEER_CERT_ALLOWED_CN"),
    (PEER, "allowed-hostname", "ETCD_PEER_CERT_ALLOWED_HOSTNAME"),
    (PEER, "skip-client-san-verification", SKIP),
];

/// All settings of a configuration, each as a variable and its value, for an etcd that says this of its version.
pub(crate) fn variables(
    keys: &Map<String, Value>,
    file: &Path,
    version: &str,
) -> Result<Vec<(String, String)>, Failure> {
    let is_old = version.contains("etcd Version: 3.5.");
    let mut variables = Vec::new();
    for (key, value) in keys {
        match value {
            Value::Object(section) => {
                for (inner, value) in section {
                    let text = text(value).ok_or_else(|| unknown(file, &format!("{key}.{inner}")))?;
                    let name = name_in(key, inner).ok_or_else(|| unknown(file, &format!("{key}.{inner}")))?;
                    let name = if is_old && name == SKIP { SKIP_OF_OLD } else { name };
                    variables.push((name.to_owned(), text));
                }
            }
            value => {
                let text = text(value).ok_or_else(|| unknown(file, key))?;
                variables.push((format!("ETCD_{}", key.to_uppercase().replace('-', "_")), text));
            }
        }
    }
    Ok(variables)
}

fn name_in(section: &str, key: &str) -> Option<&'static str> {
    let found = SECTIONS.iter().find(|(its, known, _)| *its == section && *known == key);
    found.map(|(_, _, name)| *name)
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(_) | Value::Number(_) => Some(value.to_string()),
        Value::Array(items) => {
            let items: Option<Vec<&str>> = items.iter().map(Value::as_str).collect();
            items.map(|items| items.join(","))
        }
        Value::Null | Value::Object(_) => None,
    }
}

fn unknown(file: &Path, key: &str) -> Failure {
    Failure::new(format!(
        "{}: `{key}` cannot be given to etcd as a variable: remove it, or write it as etcd's flags have it",
        file.display()
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(keys: &Value) -> Result<Vec<(String, String)>, String> {
        let keys = keys.as_object().expect("an object");
        variables(keys, Path::new("base"), "etcd Version: 3.6.14\n").map_err(|e| e.to_string())
    }

    #[test]
    fn settings_are_variables() {
        let keys = json!({
            "data-dir": "/d", "quota-backend-bytes": 8, "enable-grpc-gateway": false,
            "client-transport-security": {"cert-file": "/c", "client-cert-auth": true},
            "peer-transport-security": {"allowed-cn": ["a", "b"], "skip-client-san-verification": true},
        });
        let mut found = of(&keys).expect("valid");
        found.sort();
        let expected = [
            ("ETCD_CERT_FILE", "/c"),
            ("ETCD_CLIENT_CERT_AUTH", "true"),
            ("ETCD_DATA_DIR", "/d"),
            ("ETCD_ENABLE_GRPC_GATEWAY", "false"),
            ("ETCD_PEER_CERT_ALLOWED_CN", "a,b"),
            ("ETCD_PEER_SKIP_CLIENT_SAN_VERIFICATION", "true"),
            ("ETCD_QUOTA_BACKEND_BYTES", "8"),
        ];
        assert_eq!(found, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }

    /// etcd warns of a variable that it does not know, and goes on without it.
    #[test]
    fn a_name_that_is_new_in_3_6_has_its_former_one_in_3_5() {
        let keys = json!({"peer-transport-security": {"skip-client-san-verification": true}});
        let keys = keys.as_object().expect("an object");
        let of = |version| variables(keys, Path::new("base"), version).expect("valid")[0].0.clone();
        assert_eq!(of("etcd Version: 3.5.35\nGit SHA: 1\n"), SKIP_OF_OLD);
        assert_eq!(of("etcd Version: 3.6.14\n"), SKIP);
        assert_eq!(of(""), SKIP);
    }

    #[test]
    fn a_key_that_has_no_variable_is_named() {
        for (keys, named) in [
            (
                json!({"peer-transport-security": {"allowed-cnn": "x"}}),
                "`peer-transport-security.allowed-cnn`",
            ),
            (
                json!({"client-transport-security": {"allowed-cn": "x"}}),
                "`client-transport-security.allowed-cn`",
            ),
            (json!({"transport-security": {"cert-file": "x"}}), "`transport-security.cert-file`"),
            (json!({"name": null}), "`name`"),
            (json!({"listen-client-urls": [1]}), "`listen-client-urls`"),
        ] {
            let refused = of(&keys).expect_err(named);
            assert!(refused.contains(named), "{refused}");
        }
    }
}
