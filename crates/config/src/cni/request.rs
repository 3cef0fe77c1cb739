//! The request of a runtime: the CNI_* variables and stdin. They are checked in the CNI library's order, so that all
//! plugins give the same answer to the same mistake.

use std::fmt;

use super::args::Args;
use super::{Error, Json, Verb, Version, version};
use metes_core::limits;
use metes_core::pool::{ContainerId, InterfaceName};

/// The largest network configuration that is read, in bytes.
pub(crate) const MAX_STDIN_BYTES: usize = limits::INPUT_BYTES as usize;

/// One interface of one container, as CNI tells them apart.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Attachment {
    /// CNI_CONTAINERID.
    pub container_id: ContainerId,
    /// CNI_IFNAME.
    pub ifname: InterfaceName,
}

/// The CNI_* variables as given. Empty and unset are the same.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Environment {
    /// CNI_COMMAND.
    pub command: String,
    /// CNI_CONTAINERID.
    pub container_id: String,
    /// CNI_NETNS.
    pub netns: String,
    /// CNI_IFNAME.
    pub ifname: String,
    /// CNI_ARGS.
    pub args: String,
    /// CNI_PATH.
    pub path: String,
    /// CNI_NETNS_OVERRIDE.
    pub netns_override: String,
}

impl Environment {
    /// Reads the variables through `lookup`.
    pub fn from_lookup(lookup: impl Fn(&str) -> Option<String>) -> Self {
        let var = |name| lookup(name).unwrap_or_default();
        Self {
            command: var("CNI_COMMAND"),
            container_id: var("CNI_CONTAINERID"),
            netns: var("CNI_NETNS"),
            ifname: var("CNI_IFNAME"),
            args: var("CNI_ARGS"),
            path: var("CNI_PATH"),
            netns_override: var("CNI_NETNS_OVERRIDE"),
        }
    }

    /// The command, if it is one of CNI's.
    #[must_use]
    pub fn verb(&self) -> Option<Verb> {
        Verb::named(&self.command)
    }

    /// Checks that the inputs of the verb are there and valid; an unknown command needs nothing. Returns the interface
    /// of a verb that is about one.
    fn check(&self, verb: Option<Verb>) -> Result<Option<Attachment>, Error> {
        let for_interface = verb.is_some_and(Verb::is_for_one_interface);
        let given = |value: &str| for_interface && !value.is_empty();
        let container = given(&self.container_id).then(|| container_id(&self.container_id)).transpose()?;
        let interface = given(&self.ifname).then(|| interface_name(&self.ifname)).transpose()?;
        let required = [
            ("CNI_COMMAND", &self.command, true),
            ("CNI_CONTAINERID", &self.container_id, for_interface),
            ("CNI_NETNS", &self.netns, verb.is_some_and(Verb::needs_netns)),
            ("CNI_IFNAME", &self.ifname, for_interface),
            ("CNI_PATH", &self.path, verb.is_some_and(Verb::needs_path)),
        ];
        let missing = required.iter().filter(|(_, value, needed)| *needed && value.is_empty());
        let missing: Vec<_> = missing.map(|(name, ..)| *name).collect();
        if missing.is_empty() {
            let named = container.zip(interface);
            return Ok(named.map(|(container_id, ifname)| Attachment { container_id, ifname }));
        }
        Err(Error::environment(format!("required env variables [{}] missing", missing.join(",")))
            .with_details(
                "a runtime sets them when it calls a plugin; for a command of metes, unset CNI_COMMAND",
            ))
    }

    /// True if CNI_NETNS may be the plugin's own network namespace.
    fn allows_own_netns(&self) -> bool {
        self.netns_override == "1" || self.netns_override.eq_ignore_ascii_case("true")
    }
}

/// A checked request.
#[derive(Clone)]
pub struct Request {
    /// The command.
    pub verb: Verb,
    /// The interface; none for the verbs that are about none.
    pub attachment: Option<Attachment>,
    /// CNI_NETNS; may be empty for DEL.
    pub netns: String,
    /// CNI_ARGS: read strictly for ADD, as far as possible for the others.
    pub args: Args,
    /// The version to answer in.
    pub version: Version,
    /// The network's `name`.
    pub name: String,
    /// The whole configuration from stdin. It may hold secrets, so Debug leaves it out.
    pub config: Json,
    /// CNI_NETNS_OVERRIDE: CNI_NETNS may be the plugin's own network namespace.
    pub netns_override: bool,
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("verb", &self.verb)
            .field("attachment", &self.attachment)
            .field("netns", &self.netns)
            .field("args", &self.args)
            .field("version", &self.version)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl Request {
    /// Checks the variables, then stdin, then the version, then CNI_ARGS. It does not read `ipam`, because a DEL must
    /// not fail over that.
    ///
    /// # Errors
    /// Codes 1, 4, 6 and 7, as the CNI library gives them.
    pub fn parse(env: &Environment, stdin: &[u8]) -> Result<Request, Error> {
        let verb = env.verb();
        let attachment = env.check(verb)?;
        if verb == Some(Verb::Version) {
            return Ok(Request::new(env, Verb::Version, version::NEWEST));
        }
        let config = read_config(stdin)?;
        let name = network_name(&config)?;
        let verb = verb.ok_or_else(|| {
            Error::environment(format!("unknown CNI_COMMAND: {}", env.command))
                .with_details("expected ADD, DEL, CHECK, GC, STATUS or VERSION")
        })?;
        let version = Version::for_verb(text_or_absent(&config, "cniVersion")?, verb)?;
        let args = match verb {
            Verb::Add => Args::parse(&env.args)?,
            Verb::Del | Verb::Check | Verb::Status | Verb::Gc | Verb::Version => Args::tolerant(&env.args),
        };
        Ok(Request { attachment, args, name, config, ..Request::new(env, verb, version) })
    }

    /// The interface that ADD, DEL and CHECK are about.
    ///
    /// # Errors
    /// Code 4 for the other verbs.
    pub fn attachment(&self) -> Result<&Attachment, Error> {
        let missing = || Error::environment(format!("{} is about no interface", self.verb));
        self.attachment.as_ref().ok_or_else(missing)
    }

    fn new(env: &Environment, verb: Verb, version: Version) -> Self {
        Self {
            verb,
            attachment: None,
            netns: env.netns.clone(),
            args: Args::default(),
            version,
            name: String::new(),
            config: Json::Null,
            netns_override: env.allows_own_netns(),
        }
    }
}

fn read_config(stdin: &[u8]) -> Result<Json, Error> {
    let refused = |reason: &str| {
        Error::decode(format!("error unmarshall network config: {reason}"))
            .with_details("stdin must have the network's configuration, a JSON object")
    };
    if stdin.trim_ascii().is_empty() {
        return Err(refused("stdin is empty"));
    }
    if stdin.len() > MAX_STDIN_BYTES {
        return Err(refused("stdin is larger than 1 MiB"));
    }
    match Json::parse(stdin).map_err(|e| refused(&e.to_string()))? {
        config @ (Json::Object(_) | Json::Null) => Ok(config),
        other => Err(refused(&format!("expected a JSON object, found {}", other.kind()))),
    }
}

fn network_name(config: &Json) -> Result<String, Error> {
    match text_or_absent(config, "name")? {
        "" => Err(Error::invalid_config("missing network name")
            .with_details("write `name` beside `cniVersion`; it is not `network_name` of `ipam`")),
        name if is_identifier(name) => Ok(name.to_owned()),
        name => Err(Error::invalid_config("invalid characters found in network name").with_details(name)),
    }
}

/// A top-level string; empty if it is absent or null.
fn text_or_absent<'a>(config: &'a Json, key: &str) -> Result<&'a str, Error> {
    match config.get(key) {
        None | Some(Json::Null) => Ok(""),
        Some(Json::String(text)) => Ok(text),
        Some(other) => Err(Error::decode(format!(
            "error unmarshall network config: `{key}` must be a string, found {}",
            other.kind()
        ))),
    }
}

fn container_id(id: &str) -> Result<ContainerId, Error> {
    if !is_identifier(id) {
        return Err(Error::environment("invalid characters in containerID").with_details(id));
    }
    // An identifier can only be too long.
    let too_long = || format!("containerID is longer than {} bytes", ContainerId::MAX_LEN);
    id.parse().map_err(|_| Error::environment(too_long()))
}

/// The fault of a name, in the words of the CNI library.
fn interface_name(name: &str) -> Result<InterfaceName, Error> {
    if name.len() > InterfaceName::MAX_LEN {
        return Err(Error::environment("interface name is too long")
            .with_details("interface name should be less than 16 characters"));
    }
    if name == "." || name == ".." {
        return Err(Error::environment("interface name is . or .."));
    }
    // No other rule is left.
    let characters = "interface name contains / or : or whitespace characters";
    name.parse().map_err(|_| Error::environment(characters))
}

/// `^[a-zA-Z0-9][a-zA-Z0-9_.\-]*$`: the form of container ids and network names in CNI.
fn is_identifier(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-'))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CONFIG: &str = r#"{"cniVersion":"1.1.0","name":"mynet","ipam":{}}"#;

    fn env(command: &str) -> Environment {
        Environment::from_lookup(|name| {
            let value = match name {
                "CNI_COMMAND" => command,
                "CNI_CONTAINERID" => "ID",
                "CNI_NETNS" => "/some/where",
                "CNI_IFNAME" => "eth0",
                "CNI_PATH" => "/opt/cni/bin",
                _ => return None,
            };
            Some(value.to_owned())
        })
    }

    fn refused(env: &Environment, stdin: &str) -> (u16, String, String) {
        let error = Request::parse(env, stdin.as_bytes()).expect_err(stdin);
        (error.code.number(), error.msg, error.details)
    }

    #[test]
    fn every_verb_is_understood() {
        for verb in Verb::ALL {
            let request = Request::parse(&env(verb.name()), CONFIG.as_bytes()).expect("valid");
            assert_eq!((request.verb, request.version), (verb, Version::V1_1_0));
        }
        let request = Request::parse(&env("ADD"), CONFIG.as_bytes()).expect("valid");
        let attachment = request.attachment().expect("ADD is about an interface");
        assert_eq!((request.name.as_str(), attachment.ifname.as_str()), ("mynet", "eth0"));
        assert!(!request.netns_override);
    }

    #[test]
    fn missing_variables_are_all_listed() {
        let all = "required env variables [CNI_CONTAINERID,CNI_NETNS,CNI_IFNAME,CNI_PATH] missing";
        let table = [
            ("ADD", all),
            ("CHECK", all),
            ("DEL", "required env variables [CNI_CONTAINERID,CNI_IFNAME,CNI_PATH] missing"),
            ("GC", "required env variables [CNI_PATH] missing"),
            ("STATUS", "required env variables [CNI_PATH] missing"),
            ("", "required env variables [CNI_COMMAND] missing"),
        ];
        for (command, msg) in table {
            let bare = Environment { command: command.to_owned(), ..Environment::default() };
            let (code, found, details) = refused(&bare, CONFIG);
            assert_eq!((code, found.as_str()), (4, msg));
            assert!(details.contains("unset CNI_COMMAND"), "{details}");
        }
    }

    #[test]
    fn verbs_need_no_more_than_they_use() {
        let del = Environment { netns: String::new(), ..env("DEL") };
        assert!(Request::parse(&del, CONFIG.as_bytes()).is_ok());
        let path = Environment { path: "/p".into(), container_id: "/bad/".into(), ..Environment::default() };
        for command in ["GC", "STATUS"] {
            let env = Environment { command: command.into(), ..path.clone() };
            assert!(Request::parse(&env, CONFIG.as_bytes()).is_ok(), "{command}");
        }
        let version = Environment { command: "VERSION".into(), ..Environment::default() };
        assert!(Request::parse(&version, b"garbage").is_ok());
    }

    #[test]
    fn invalid_values_are_reported_before_missing_ones() {
        let bare = Environment { command: "ADD".into(), ..Environment::default() };
        let table = [
            ("CNI_CONTAINERID", "/x", "invalid characters in containerID", "/x"),
            ("CNI_CONTAINERID", "-x", "invalid characters in containerID", "-x"),
            ("CNI_CONTAINERID", "x\n", "invalid characters in containerID", "x\n"),
            (
                "CNI_IFNAME",
                "0123456789abcdef",
                "interface name is too long",
                "interface name should be less than 16 characters",
            ),
            ("CNI_IFNAME", ".", "interface name is . or ..", ""),
            ("CNI_IFNAME", "..", "interface name is . or ..", ""),
            ("CNI_IFNAME", "a/b", "interface name contains / or : or whitespace characters", ""),
            ("CNI_IFNAME", "a:b", "interface name contains / or : or whitespace characters", ""),
            ("CNI_IFNAME", "a b", "interface name contains / or : or whitespace characters", ""),
        ];
        for (name, value, msg, details) in table {
            let mut env = bare.clone();
            match name {
                "CNI_IFNAME" => env.ifname = value.to_owned(),
                _ => env.container_id = value.to_owned(),
            }
            assert_eq!(refused(&env, "junk"), (4, msg.to_owned(), details.to_owned()));
        }
        let long = Environment { container_id: "x".repeat(254), ..env("ADD") };
        assert_eq!(refused(&long, CONFIG).0, 4);
        let longest = Environment { container_id: "x".repeat(253), ..env("ADD") };
        assert!(Request::parse(&longest, CONFIG.as_bytes()).is_ok());
    }

    #[test]
    fn stdin_is_checked_before_an_unknown_command_is_reported() {
        let table = [
            ("", 6, "error unmarshall network config: "),
            ("junk", 6, "error unmarshall network config: "),
            ("{}{}", 6, "error unmarshall network config: "),
            ("[]", 6, "error unmarshall network config: "),
            (r#"{"name":5}"#, 6, "error unmarshall network config: "),
            ("null", 7, "missing network name"),
            ("{}", 7, "missing network name"),
            (r#"{"name":null}"#, 7, "missing network name"),
            (r#"{"name":"a b"}"#, 7, "invalid characters found in network name"),
        ];
        for command in ["ADD", "DEL", "GC", "NOPE"] {
            for (stdin, code, msg) in table {
                let found = refused(&env(command), stdin);
                assert!(found.0 == code && found.1.starts_with(msg), "{command} {stdin}: {found:?}");
            }
        }
        assert_eq!(refused(&env("NOPE"), CONFIG).1, "unknown CNI_COMMAND: NOPE");
        assert_eq!(refused(&env("add"), CONFIG).0, 4);
        let huge = format!("{}{CONFIG}", " ".repeat(MAX_STDIN_BYTES));
        assert_eq!(refused(&env("DEL"), &huge).0, 6);
    }

    #[test]
    fn versions_are_checked_after_the_name() {
        let with = |version: &str| format!(r#"{{"cniVersion":{version},"name":"n"}}"#);
        assert_eq!(refused(&env("ADD"), &with("\"1.2.0\"")).0, 1);
        assert_eq!(refused(&env("ADD"), &with("1")).0, 6);
        assert_eq!(refused(&env("CHECK"), &with("\"abc\"")).0, 6);
        assert_eq!(refused(&env("CHECK"), &with("\"0.3.1\"")).0, 1);
        let request = Request::parse(&env("ADD"), with("null").as_bytes()).expect("valid");
        assert_eq!(request.version, Version::V0_1_0);
    }

    #[test]
    fn only_add_fails_over_args() {
        for (command, fails) in [("ADD", true), ("DEL", false), ("CHECK", false), ("GC", false)] {
            let env = Environment { args: "FOO".into(), ..env(command) };
            assert_eq!(Request::parse(&env, CONFIG.as_bytes()).is_err(), fails, "{command}");
        }
    }

    #[test]
    fn the_last_key_wins_in_any_case() {
        let stdin = r#"{"name":"a","NAME":"b","cniversion":"0.4.0","extra":{"x":1}}"#;
        let request = Request::parse(&env("ADD"), stdin.as_bytes()).expect("valid");
        assert_eq!((request.name.as_str(), request.version), ("b", Version::V0_4_0));
        for (value, expected) in [("1", true), ("True", true), ("0", false), ("yes", false)] {
            let env = Environment { netns_override: value.into(), ..env("ADD") };
            assert_eq!(Request::parse(&env, stdin.as_bytes()).expect("valid").netns_override, expected);
        }
    }

    proptest! {
        #[test]
        fn nothing_makes_it_panic(
            command in "ADD|DEL|CHECK|GC|STATUS|VERSION|\\PC{0,8}",
            container_id in "\\PC{0,20}", ifname in "\\PC{0,20}", args in "\\PC{0,40}|([A-Z]{1,3}=?[;=,]?){0,8}",
            stdin in prop::collection::vec(any::<u8>(), 0..64),
            cut in 0..CONFIG.len(),
        ) {
            let env = Environment { command, container_id, ifname, args, ..env("") };
            let _ = Request::parse(&env, &stdin);
            let _ = Request::parse(&env, &CONFIG.as_bytes()[cut..]);
            let _ = Request::parse(&env, CONFIG.as_bytes());
        }
    }
}
