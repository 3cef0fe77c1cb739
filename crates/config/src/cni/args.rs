//! CNI_ARGS: `K=V;K=V`, as every CNI plugin reads it.

use super::Error;
use metes_core::pool::{Pod, PodUid};

/// The longest namespace or name of a pod that is taken as a label, in bytes.
const LABEL_MAX: usize = 253;

/// The content of CNI_ARGS.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Args {
    /// The addresses asked for (`IP`), as written.
    pub ips: Vec<String>,
    /// Gateways for them (`GATEWAY`), as written; only static's form reads them.
    pub gateways: Vec<String>,
    /// Labels of the pod.
    pub pod: Pod,
}

/// One `K=V`, or the text that is none.
type Pair<'a> = Result<(&'a str, &'a str), &'a str>;

impl Args {
    /// Reads CNI_ARGS for an ADD.
    ///
    /// # Errors
    /// Code 4 if a pair is malformed, a key is unknown and `IgnoreUnknown` is not set, `IP` is written in another way,
    /// or a label of the pod cannot be one.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let mut args = Args::default();
        let mut unknown = Vec::new();
        let mut ignore_unknown = false;
        for pair in pairs(text) {
            let (key, value) = pair.map_err(|found| {
                Error::environment(format!("CNI_ARGS: invalid pair {found:?}; expected KEY=VALUE;KEY=VALUE"))
            })?;
            if key == "IgnoreUnknown" {
                ignore_unknown =
                    textual_bool(value).ok_or_else(|| invalid(key, value, "1, true, 0 or false"))?;
            } else if !args.take(key, value)? {
                refuse_misspelt_ip(key)?;
                unknown.push(format!("{key}={value}"));
            }
        }
        if unknown.is_empty() || ignore_unknown {
            return Ok(args);
        }
        Err(Error::environment(format!("CNI_ARGS: unknown args {unknown:?}"))
            .with_details("add IgnoreUnknown=1 to CNI_ARGS to have them ignored"))
    }

    /// Reads the valid parts, for the verbs that must not fail over CNI_ARGS.
    #[must_use]
    pub fn tolerant(text: &str) -> Self {
        let mut args = Args::default();
        for (key, value) in pairs(text).flatten() {
            // A value that ADD would refuse is left out.
            let _ = args.take(key, value);
        }
        args
    }

    /// Rights hang on the namespace, so none is guessed.
    fn take_namespace(&mut self, namespace: String) -> Result<(), Error> {
        let known = &mut self.pod.namespace;
        if !known.is_empty() && *known != namespace {
            return Err(Error::environment(format!(
                "CNI_ARGS: K8S_POD_NAMESPACE is {known:?} and {namespace:?}: expected one namespace"
            )));
        }
        *known = namespace;
        Ok(())
    }

    /// Keeps a pair; false if the key is unknown. The last duplicate wins.
    fn take(&mut self, key: &str, value: &str) -> Result<bool, Error> {
        match key {
            "IP" => self.ips = comma_list(value),
            "GATEWAY" => self.gateways = comma_list(value),
            "K8S_POD_NAMESPACE" => self.take_namespace(label(key, value)?)?,
            "K8S_POD_NAME" => self.pod.name = label(key, value)?,
            "K8S_POD_UID" => self.pod.uid = uid(key, value)?,
            "K8S_POD_INFRA_CONTAINER_ID" | "MAC" | "IgnoreUnknown" => {}
            _ => return Ok(false),
        }
        Ok(true)
    }
}

fn pairs(text: &str) -> impl Iterator<Item = Pair<'_>> {
    let pairs = (!text.is_empty()).then(|| text.split(';'));
    pairs.into_iter().flatten().map(|pair| match pair.split_once('=') {
        Some((key, value)) if !value.contains('=') => Ok((key, value)),
        _ => Err(pair),
    })
}

/// A misspelt `IP` that is ignored would give the pod another address than it asked for.
fn refuse_misspelt_ip(key: &str) -> Result<(), Error> {
    if key.trim().eq_ignore_ascii_case("IP") {
        return Err(Error::environment(format!("CNI_ARGS: unknown key {key:?}; did you mean \"IP\"?"))
            .with_details("keys of CNI_ARGS are read as they are written, in capitals and without blanks"));
    }
    Ok(())
}

fn comma_list(value: &str) -> Vec<String> {
    value.split(',').map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned).collect()
}

fn label(key: &str, value: &str) -> Result<String, Error> {
    if value.len() <= LABEL_MAX && !value.chars().any(char::is_control) {
        return Ok(value.to_owned());
    }
    Err(invalid(key, value, "at most 253 printable bytes"))
}

/// The pod's UID; an empty text says that there is none.
fn uid(key: &str, value: &str) -> Result<Option<PodUid>, Error> {
    if value.is_empty() {
        return Ok(None);
    }
    value.parse().map(Some).map_err(|_| invalid(key, value, PodUid::EXPECTED))
}

fn invalid(key: &str, value: &str, expected: &str) -> Error {
    let shown: String = value.chars().take(LABEL_MAX).collect();
    Error::environment(format!("CNI_ARGS: {key} must be {expected}, found {shown:?}"))
}

/// A boolean as the CNI library spells it.
fn textual_bool(value: &str) -> Option<bool> {
    match value.to_ascii_lowercase().as_str() {
        "1" | "true" => Some(true),
        "0" | "false" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn add_refuses_what_it_cannot_read() {
        let table = [
            ("FOO", "invalid pair \"FOO\""),
            ("IgnoreUnknown=1;", "invalid pair \"\""),
            ("A=b=c;IgnoreUnknown=1", "invalid pair \"A=b=c\""),
            ("FOO=BAR", "unknown args [\"FOO=BAR\"]"),
            ("FOO=BAR;IgnoreUnknown=0", "unknown args"),
            ("IgnoreUnknown=true;FOO=BAR;IgnoreUnknown=false", "unknown args"),
            ("ip=10.1.2.10", "unknown key \"ip\"; did you mean \"IP\"?"),
            ("Ip=10.1.2.10;IgnoreUnknown=1", "unknown key \"Ip\"; did you mean \"IP\"?"),
            ("IgnoreUnknown=1;IP =10.1.2.10", "unknown key \"IP \"; did you mean \"IP\"?"),
            ("IgnoreUnknown=1; IP=10.1.2.10", "unknown key \" IP\"; did you mean \"IP\"?"),
            ("IgnoreUnknown=1;iP\t=", "unknown key \"iP\\t\"; did you mean \"IP\"?"),
            ("FOO=BAR;IgnoreUnknown=yes", "IgnoreUnknown must be"),
            ("IgnoreUnknown=", "IgnoreUnknown must be"),
            ("K8S_POD_UID=a/b", "K8S_POD_UID must be"),
            ("K8S_POD_NAME=a\nb", "K8S_POD_NAME must be"),
            ("K8S_POD_NAMESPACE=a;K8S_POD_NAMESPACE=b", "K8S_POD_NAMESPACE is \"a\" and \"b\""),
            ("K8S_POD_NAMESPACE=a;K8S_POD_NAMESPACE=", "K8S_POD_NAMESPACE is \"a\" and \"\""),
        ];
        for (text, expected) in table {
            let error = Args::parse(text).unwrap_err();
            assert_eq!(error.code.number(), 4, "{text}");
            assert!(error.msg.contains(expected), "{text}: {}", error.msg);
            // Nothing of this may fail a DEL.
            let _ = Args::tolerant(text);
        }
    }

    #[test]
    fn known_keys_are_taken_and_the_last_duplicate_wins() {
        let args = Args::parse(
            "K8S_POD_NAMESPACE=ns;K8S_POD_NAME=old;K8S_POD_NAME=web-0;K8S_POD_INFRA_CONTAINER_ID=x;\
             K8S_POD_UID=0-aZ;MAC=;IP=10.1.2.3,fd00::3/64,;GATEWAY=10.1.2.1",
        )
        .expect("valid");
        let pod =
            Pod { namespace: "ns".into(), name: "web-0".into(), uid: Some("0-aZ".parse().expect("a UID")) };
        let ips = vec!["10.1.2.3".to_owned(), "fd00::3/64".to_owned()];
        assert_eq!(args, Args { ips, gateways: vec!["10.1.2.1".into()], pod });
        for empty in ["", "IP=", "IP=1.2.3.4;IP=", "FOO=BAR;IgnoreUnknown=1", "FOO=;IgnoreUnknown=TRUE"] {
            assert_eq!(Args::parse(empty).expect(empty), Args::default(), "{empty}");
        }
    }

    #[test]
    fn other_verbs_keep_what_can_be_read() {
        let args = Args::tolerant("FOO;K8S_POD_UID=a/b;K8S_POD_NAME=web-0;X=Y;A=b=c;");
        assert_eq!(args.pod, Pod { name: "web-0".into(), ..Pod::default() });
    }
}
