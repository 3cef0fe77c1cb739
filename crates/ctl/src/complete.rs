//! Completion: scripts for shells, and the names that they ask for with `metes __complete WORDS...`.
//!
//! The words are those of the command line from the command's name to the cursor. The answer is one name a line, from
//! etcd. A person waits for it at a half-typed line: it takes a second at most, has few names, and keeps silent about
//! all that fails.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Arg, ArgAction};
use clap_complete::Shell;
use tokio::time::Instant;

use super::{Context, command};
use metes_config::Settings;
use metes_config::cni::Error;
use metes_core::keys::{Bytes, Keys, prefix_end};
use metes_core::limits;
use metes_core::pool::{Owner, OwnerKind, OwnerRecord, Pod, known_ranges};
use metes_core::txn::{Entry, List, Op, Txn};
use metes_engine::kv::{Failure, Kv};
use metes_engine::session::Session;
use metes_node::files::Trust;
use metes_node::setup;

/// The first argument of a call for names.
pub(super) const ASKED: &str = "__complete";
/// The most names that are printed.
const NAMES_MAX: usize = 300;

/// What a name is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NameKind {
    Network,
    Pool,
    Namespace,
    Node,
    Cluster,
    Pod,
}

/// The place on a command line for which names are wanted.
#[derive(Debug, Default)]
struct Cursor {
    /// What may stand there; empty if it is no name.
    kinds: &'static [NameKind],
    /// The beginning of the name.
    begun: String,
    /// The host file and the endpoints that stand before it.
    config: Option<PathBuf>,
    endpoints: Vec<String>,
}

/// A script that completes commands, flags and names.
pub(super) fn script(shell: Shell) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command(), "metes", &mut script);
    let names = match shell {
        Shell::Bash => BASH,
        Shell::Zsh => ZSH,
        Shell::Fish => FISH,
        _ => "",
    };
    String::from_utf8_lossy(&script).into_owned() + names
}

const BASH: &str = r#"
_metes_names() {
    local names IFS=$'\n'
    names=$("$1" __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
    if [[ -n "$names" ]]; then
        COMPREPLY=($names)
    else
        IFS=$' \t\n'
        _metes "$@"
    fi
}
complete -F _metes_names -o nosort -o bashdefault -o default metes 2>/dev/null ||
    complete -F _metes_names -o bashdefault -o default metes
"#;

const ZSH: &str = r#"
_metes_names() {
    local -a names
    names=(${(f)"$("$words[1]" __complete "${(@)words[2,CURRENT]}" 2>/dev/null)"})
    if (( $#names )); then
        compadd -a names
    else
        _metes "$@"
    fi
}
compdef _metes_names metes
"#;

// Arguments, and values of flags: fish asks for these only where the flag itself has them.
const FISH: &str = r#"
function _metes_names
    metes __complete (commandline -opc)[2..-1] (commandline -ct) 2>/dev/null
end
complete -c metes -a "(_metes_names)"
for flag in network namespace pod node cluster
    complete -c metes -n "contains -- --$flag (commandline -opc)[-1]" -l $flag -x -a "(_metes_names)"
end
"#;

/// Prints the names that may stand at the end of these words. `host_file` is that of the environment.
pub(super) fn names(words: impl Iterator<Item = OsString>, host_file: Option<PathBuf>) -> ExitCode {
    let words: Vec<String> = words.map(|word| word.to_string_lossy().into_owned()).collect();
    let mut cursor = Cursor::at_end(&words);
    cursor.config = cursor.config.or(host_file);
    let found = RefCell::default();
    if !cursor.kinds.is_empty() {
        // What was found until something failed is of use.
        let _ = ask(&cursor, &found);
    }
    let text: String = found.into_inner().into_iter().take(NAMES_MAX).map(|name| name + "\n").collect();
    let _ = io::stdout().write_all(text.as_bytes());
    ExitCode::SUCCESS
}

fn ask(cursor: &Cursor, found: &RefCell<BTreeSet<String>>) -> Result<(), Error> {
    let mut settings = setup::own_settings(cursor.config.as_deref())?;
    settings.use_endpoints(&cursor.endpoints)?;
    let access = setup::access(&settings, Trust::of_commands(), limits::COMPLETION_DEADLINE)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|e| Error::io(e.to_string()))?;
    runtime.block_on(async {
        let kv = metes_etcd::open(access);
        let wanted = cursor.collect(&kv, &settings, found);
        // It takes what it has found by then.
        let _ = tokio::time::timeout(limits::COMPLETION_DEADLINE, wanted).await;
    });
    // A resolver that does not answer would be waited for.
    runtime.shutdown_background();
    Ok(())
}

impl Cursor {
    fn at_end(words: &[String]) -> Self {
        let mut root = command();
        root.build();
        let mut at = Self::default();
        let Some((begun, before)) = words.split_last() else { return at };
        let (mut verb, mut positions, mut flag) = (&root, 0, None::<&Arg>);
        // bash makes a word of each equals sign.
        for word in before.iter().filter(|word| *word != "=") {
            if let Some(flag) = flag.take() {
                at.note(flag, word);
            } else if let Some((named, value)) = flag_of(verb, word) {
                match value {
                    Some(value) => at.note(named, value),
                    None => flag = Some(named).filter(|named| takes_value(named)),
                }
            } else if word.starts_with('-') && word.len() > 1 {
                // Nobody knows whether it takes a value.
            } else if let Some(sub) = verb.find_subcommand(word) {
                (verb, positions) = (sub, 0);
            } else {
                positions += 1;
            }
        }
        let last =
            || verb.get_positionals().last().filter(|last| matches!(last.get_action(), ArgAction::Append));
        let arg = match flag {
            Some(flag) => Some(flag),
            None if begun.starts_with('-') => None,
            None => verb.get_positionals().nth(positions).or_else(last),
        };
        at.kinds = arg.map_or(&[], |arg| kinds_of(verb.get_name(), arg));
        at.begun.clone_from(begun);
        at
    }

    fn note(&mut self, flag: &Arg, value: &str) {
        match flag.get_id().as_str() {
            "config" => self.config = Some(value.into()),
            "endpoints" => self.endpoints.extend(value.split(',').map(str::to_owned)),
            _ => {}
        }
    }

    /// Collects the names. What fails is left out.
    async fn collect<K: Kv>(&self, kv: &K, settings: &Settings, found: &RefCell<BTreeSet<String>>) {
        let keys = Keys::new(&settings.prefix);
        let timeout = Some(limits::COMPLETION_DEADLINE);
        let session = Session { kv, keys: &keys, until: Instant::now() };
        let context = Context { session, node: None, settings, timeout }.renewed();
        let wants = |kind| self.kinds.contains(&kind);
        let names = Names { context: &context, begun: &self.begun, found };
        if wants(NameKind::Network) {
            let _ = names.networks().await;
        }
        if wants(NameKind::Pool) {
            let _ = names.below(&keys.pools()).await;
        }
        if wants(NameKind::Cluster) {
            let _ = names.below(&keys.owners()).await;
        }
        if wants(NameKind::Node) {
            for cluster in context.clusters().await.unwrap_or_default() {
                let _ = names.below(&[&keys.owners(), cluster.as_bytes(), b"/"].concat()).await;
            }
        }
        // A pod's name begins behind its namespace.
        let is_pod_begun = self.begun.contains('/');
        if wants(NameKind::Namespace) && !is_pod_begun {
            let _ = names.of_pods(&|Pod { namespace, .. }| namespace.clone()).await;
        } else if wants(NameKind::Pod) {
            let _ = names.of_pods(&|Pod { namespace, name, .. }| format!("{namespace}/{name}")).await;
        }
    }
}

/// Names as they are found. An error ends one search, and what it has found stays.
struct Names<'a, 'c, K> {
    context: &'a Context<'c, K>,
    begun: &'a str,
    found: &'a RefCell<BTreeSet<String>>,
}

impl<K: Kv> Names<'_, '_, K> {
    fn add(&self, name: String) {
        if name.starts_with(self.begun) && is_plain(&name) {
            self.found.borrow_mut().insert(name);
        }
    }

    /// Those of pools and configurations, and those of which anything else is stored.
    async fn networks(&self) -> Result<(), Failure> {
        let ranges = self.context.ranges().await?;
        let known = known_ranges(ranges.pools.iter(), &ranges.asked);
        known.iter().for_each(|known| self.add(known.range.network().to_string()));
        self.below(&self.context.session.keys.nets()).await
    }

    /// Those that stand in keys between a prefix and the next slash. It reads no values, and passes over all that is
    /// below the last name of a listing.
    async fn below(&self, prefix: &Bytes) -> Result<(), Failure> {
        let mut start = [prefix, self.begun.as_bytes()].concat();
        let end = prefix_end(&start);
        while start < end && self.found.borrow().len() < NAMES_MAX {
            let list =
                List { start, end: end.clone(), limit: limits::LIST_KEYS, revision: 0, keys_only: true };
            let reply = self.context.session.txn(&Txn::read(vec![Op::List(list)])).await?;
            let listed = reply.found.into_iter().next().map(|found| found.entries).unwrap_or_default();
            let name_of = |entry: &Entry| {
                let mut names = entry.key[prefix.len()..].split(|byte| *byte == b'/');
                String::from_utf8_lossy(names.next().unwrap_or_default()).into_owned()
            };
            let Some(last) = listed.last() else { return Ok(()) };
            start = match last.key[prefix.len()..].iter().position(|byte| *byte == b'/') {
                Some(slash) => prefix_end(&last.key[..=prefix.len() + slash]),
                None => [&last.key, &[0][..]].concat(),
            };
            listed.iter().map(name_of).for_each(|name| self.add(name));
        }
        Ok(())
    }

    /// Those of the pods that hold an address or keep one. All owners are read for that.
    async fn of_pods(&self, name: &dyn Fn(&Pod) -> String) -> Result<(), Failure> {
        let see = |pod: &Pod| {
            if !pod.namespace.is_empty() && !pod.name.is_empty() {
                self.add(name(pod));
            }
        };
        let is_kept = |owner: &Owner, record: Option<&OwnerRecord>| {
            match (owner.kind(), record) {
                (OwnerKind::Subject(subject), _) => see(&Pod::from(subject)),
                (OwnerKind::Container(_) | OwnerKind::Unknown, Some(record)) => see(&record.labels.pod),
                (OwnerKind::Aside(..) | OwnerKind::Container(_) | OwnerKind::Unknown, _) => {}
            }
            false
        };
        self.context.of_all_owners(&is_kept).await.map(drop)
    }
}

/// The flag that a word is, and the value after its equals sign.
fn flag_of<'c, 'w>(verb: &'c clap::Command, word: &'w str) -> Option<(&'c Arg, Option<&'w str>)> {
    let mut flags = verb.get_arguments().filter(|arg| !arg.is_positional());
    let Some(long) = word.strip_prefix("--") else {
        let mut letters = word.strip_prefix('-')?.chars();
        let (short, None) = (letters.next()?, letters.next()) else { return None };
        return Some((flags.find(|arg| arg.get_short() == Some(short))?, None));
    };
    let (name, value) = long.split_once('=').map_or((long, None), |(name, value)| (name, Some(value)));
    Some((flags.find(|arg| arg.get_long() == Some(name))?, value))
}

fn takes_value(flag: &Arg) -> bool {
    flag.get_action().takes_values()
}

/// The kinds of names that an argument of a command takes.
fn kinds_of(verb: &str, arg: &Arg) -> &'static [NameKind] {
    use NameKind::{Cluster, Namespace, Network, Node, Pod, Pool};
    match (verb, arg.get_id().as_str()) {
        // It asks for the `name` of a CNI network, and for a pod's name alone.
        ("which", "network" | "pod") => &[],
        ("usage" | "map", "what") => &[Network, Pool],
        (_, "what") => &[Network, Pool, Namespace, Node, Pod],
        ("release", "targets") | (_, "pod") => &[Pod],
        (_, "network") => &[Network],
        (_, "namespace") => &[Namespace],
        (_, "node") => &[Node],
        (_, "cluster") => &[Cluster],
        (_, "name") if arg.is_positional() => &[Pool],
        _ => &[],
    }
}

/// True if a shell takes the name as it is. Whoever makes pods chooses some of the names, and a person might run what a
/// shell makes of them.
fn is_plain(name: &str) -> bool {
    name.chars().all(|c| c.is_ascii_alphanumeric() || "-._/".contains(c)) && !name.starts_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_of_the_cursor_says_which_names_are_meant() {
        use NameKind::{Cluster, Namespace, Network, Node, Pod, Pool};
        let what: &[NameKind] = &[Network, Pool, Namespace, Node, Pod];
        for (line, kinds, begun) in [
            ("show sto", what, "sto"),
            ("list ", what, ""),
            ("ls --limit 3 a", what, "a"),
            ("usage ", &[Network, Pool], ""),
            ("map --by node st", &[Network, Pool], "st"),
            ("--config /x --endpoints http://a:1,http://b:2 show a", what, "a"),
            ("list --network sto", &[Network], "sto"),
            ("list --network = sto", &[Network], "sto"),
            ("list --node=a --namespace ", &[Namespace], ""),
            ("list --pod ns/", &[Pod], "ns/"),
            ("top --cluster e", &[Cluster], "e"),
            ("top --node n", &[Node], "n"),
            ("release 10.0.0.1 ns/w", &[Pod], "ns/w"),
            ("pool show st", &[Pool], "st"),
            ("pool drain -y st", &[Pool], "st"),
            ("pool delete ", &[Pool], ""),
            ("pool which --namespace a", &[Namespace], "a"),
            // No names of etcd.
            ("", &[], ""),
            ("sh", &[], "sh"),
            ("show --ne", &[], "--ne"),
            ("show -o ", &[], ""),
            ("show a b", &[], "b"),
            ("pool which --network a", &[], "a"),
            ("pool from-nad --name a", &[], "a"),
            ("hold 10", &[], "10"),
            ("nonsense a", &[], "a"),
        ] {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            let cursor = Cursor::at_end(&words);
            assert_eq!((cursor.kinds, cursor.begun.as_str()), (kinds, begun), "{line:?}");
        }
        let words = ["--config=/x", "--endpoints", "http://a:1,http://b:2", "show", "a"].map(str::to_owned);
        let Cursor { config, endpoints, .. } = Cursor::at_end(&words);
        assert_eq!((config, endpoints.join(" ")), (Some("/x".into()), "http://a:1 http://b:2".to_owned()));
    }

    #[test]
    fn only_names_that_no_shell_reads_otherwise_are_offered() {
        for plain in ["storage", "team-a/web-0", "n1.example", "a_b"] {
            assert!(is_plain(plain), "{plain}");
        }
        for odd in ["$(reboot)", "a b", "a;b", "-rf", "a\nb", "*", "~", "`x`", "é", "a'b", "!x"] {
            assert!(!is_plain(odd), "{odd}");
        }
    }
}
