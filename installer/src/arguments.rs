//! The command line: a verb, and options with a value each.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::failure::Failure;

pub(crate) const USAGE: &str = "\
usage: metes-install [install] [--once | --check]   puts metes and its host file on this node, and keeps them there
       metes-install uninstall [--wait | --check]   removes them, unless something on this node holds an address
       metes-install certificates                   makes etcd's certificates, as Secrets for kubectl
       metes-install etcd-config                    writes this member's configuration of etcd

options, with what they are without being given:
  --template FILE    /etc/metes/metes.conf     the host file of all nodes (all verbs)
  --node NAME        $NODE_NAME                this node's name (install, uninstall)
  --binary FILE      /metes                    the plugin (install, uninstall)
  --bin-dir FOLDER   /opt/cni/bin              where the plugin goes (install, uninstall)
  --host-dir FOLDER  /etc/cni/net.d/metes.d    where the host file goes, by its path on the node (install, uninstall)
  --state-dir FOLDER /var/lib/cni/metes        what the plugin keeps on the node (uninstall)
  --namespace NAME   $NAMESPACE                of the Secrets and of etcd's Service (certificates)
  --ca FOLDER        /etc/metes/ca             tls.crt and tls.key of an authority that is there already (certificates)
  --days N           365                       how long certificates are valid, but for the authority's (certificates)
  --node-ip ADDRESS  $NODE_IP                  this member's address (etcd-config)
  --base FILE        /etc/metes/etcd.json      the configuration of all members (etcd-config)
  --out FILE                                   what to write (certificates, etcd-config)";

const SWITCHES: [&str; 3] = ["once", "check", "wait"];
const OPTIONS: [(&str, Option<&str>); 12] = [
    ("template", Some("/etc/metes/metes.conf")),
    ("node", None),
    ("binary", Some("/metes")),
    ("bin-dir", Some("/opt/cni/bin")),
    ("host-dir", Some("/etc/cni/net.d/metes.d")),
    ("state-dir", Some("/var/lib/cni/metes")),
    ("namespace", None),
    ("ca", Some("/etc/metes/ca")),
    ("days", Some("365")),
    ("node-ip", None),
    ("base", Some("/etc/metes/etcd.json")),
    ("out", None),
];
/// Options that are read from the environment, because a pod gets them from its own fields.
const FROM_ENVIRONMENT: [(&str, &str); 3] =
    [("node", "NODE_NAME"), ("namespace", "NAMESPACE"), ("node-ip", "NODE_IP")];

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    /// Keep the node as it should be.
    Install,
    /// Take everything away.
    Uninstall,
    /// Make certificates.
    Certificates,
    /// Configure a member of etcd.
    EtcdConfig,
}

/// The command line, checked.
#[derive(Debug)]
pub(crate) struct Arguments {
    verb: Verb,
    given: BTreeMap<String, String>,
}

impl Arguments {
    pub(crate) fn parse(
        words: impl Iterator<Item = String>,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, Failure> {
        let mut words = words.peekable();
        let verb = match words.next_if(|word| !word.starts_with('-')).as_deref() {
            None | Some("install") => Verb::Install,
            Some("uninstall") => Verb::Uninstall,
            Some("certificates") => Verb::Certificates,
            Some("etcd-config") => Verb::EtcdConfig,
            Some(other) => return Err(Failure::new(format!("there is no verb {other:?}"))),
        };
        let mut given = BTreeMap::new();
        for (name, variable) in FROM_ENVIRONMENT {
            given.extend(environment(variable).map(|value| (name.to_owned(), value)));
        }
        while let Some(word) = words.next() {
            let (name, value) = option(&word, &mut words)?;
            given.insert(name, value);
        }
        Ok(Self { verb, given })
    }

    pub(crate) fn verb(&self) -> Verb {
        self.verb
    }

    pub(crate) fn has(&self, switch: &str) -> bool {
        self.given.contains_key(switch)
    }

    /// The value of an option, or its default.
    pub(crate) fn text(&self, name: &str) -> Result<&str, Failure> {
        let default = OPTIONS.iter().find(|(known, _)| *known == name).and_then(|(_, default)| *default);
        let value = self.given.get(name).map(String::as_str).or(default);
        value.filter(|value| !value.is_empty()).ok_or_else(|| Failure::new(format!("--{name} is missing")))
    }

    pub(crate) fn path(&self, name: &str) -> Result<PathBuf, Failure> {
        self.text(name).map(PathBuf::from)
    }
}

fn option(word: &str, words: &mut impl Iterator<Item = String>) -> Result<(String, String), Failure> {
    let unknown = || Failure::new(format!("there is no option {word:?}"));
    let name = word.strip_prefix("--").ok_or_else(unknown)?;
    let (name, value) = match name.split_once('=') {
        Some((name, value)) => (name, Some(value.to_owned())),
        None => (name, None),
    };
    if SWITCHES.contains(&name) && value.is_none() {
        return Ok((name.to_owned(), String::new()));
    }
    if !OPTIONS.iter().any(|(known, _)| *known == name) {
        return Err(unknown());
    }
    let value = value.or_else(|| words.next());
    value.map(|value| (name.to_owned(), value)).ok_or_else(|| Failure::new(format!("--{name} needs a value")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Arguments, Failure> {
        let environment = |name: &str| (name == "NODE_NAME").then(|| "n1".to_owned());
        Arguments::parse(line.split_whitespace().map(str::to_owned), environment)
    }

    #[test]
    fn what_is_given_outweighs_environment_and_default() {
        let bare = parse("").expect("no verb means install");
        assert_eq!(bare.verb(), Verb::Install);
        assert_eq!(bare.text("node").expect("from the environment"), "n1");
        assert_eq!(bare.text("binary").expect("a default"), "/metes");
        assert!(bare.text("out").is_err());
        let given = parse("install --once --node n2 --binary=/x").expect("valid");
        assert!(given.has("once") && !given.has("check"));
        assert_eq!(given.text("node").expect("given"), "n2");
        assert_eq!(given.text("binary").expect("given"), "/x");
    }

    #[test]
    fn what_is_unknown_is_refused() {
        for bad in ["remove", "install extra", "--nodes n1", "--node", "-x", "uninstall --once=1"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
