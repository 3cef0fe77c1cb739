//! Judges the host file, the files that it names, and the node's own files. Pure.

use std::time::Duration;

use super::facts::{
    Chosen, EtcdFacts, FileFacts, FileOwner, HostFileFacts, Machines, MarkFacts, NameFrom, NodeFacts,
    SpoolFacts,
};
use super::line::{Check, CheckLine};
use crate::table::many;
use metes_core::keys::NodeKey;
use metes_core::limits;
use metes_node::errors::lost_state;
use metes_node::spool::Survey;

const NO_HOST_FILE: &str =
    "give every node a host file (docs/install.md): without one, no pod on it gets an address";

/// So many digits of a machine's digest are shown.
const DIGEST_DIGITS: usize = 8;

pub(super) fn host_file(facts: &HostFileFacts, user: u32) -> Vec<CheckLine> {
    let mut what = match &facts.file {
        None if facts.has_other_endpoints => "there is none".to_owned(),
        None => "there is none: etcd is expected at http://127.0.0.1:2379".to_owned(),
        Some((path, chosen)) => format!("{}, {}{}", path.display(), why(*chosen), owned(facts.owner)),
    };
    if facts.has_other_endpoints {
        what += "; for this run, --endpoints says where etcd is";
    }
    let mut wrong = facts.wrong.iter();
    let first = match (wrong.next(), &facts.file) {
        (Some(worst), _) => CheckLine::bad(Check::HostFile, &worst.what, &worst.remedy),
        (None, Some(_)) => CheckLine::ok(Check::HostFile, what),
        // With --endpoints a person may ask about etcd from a machine that is no node.
        (None, None) if facts.has_other_endpoints => CheckLine::warn(Check::HostFile, what, NO_HOST_FILE),
        (None, None) => CheckLine::bad(Check::HostFile, what, NO_HOST_FILE),
    };
    let mut lines = vec![first];
    lines.extend(wrong.map(|other| CheckLine::bad(Check::HostFile, &other.what, &other.remedy)));
    let correct = "correct the key or remove it";
    lines.extend(facts.notes.iter().map(|note| CheckLine::warn(Check::HostFile, note, correct)));
    if !facts.says_who_chooses {
        lines.push(CheckLine::warn(
            Check::HostFile,
            "neither `allowed` nor `pools_only` is there: the author of any network may take any free address",
            "write \"allowed\" (`metes validate --print-allowed FILES` prints it), or \"allowed\": \"any\" if that \
             is meant",
        ));
    }
    if user != 0 {
        let what = format!("this program runs as user {user}, and the plugin runs as root");
        lines.push(CheckLine {
            remedy: Some("run it as root".to_owned()),
            ..CheckLine::note(Check::User, what)
        });
    }
    lines
}

fn why(chosen: Chosen) -> &'static str {
    match chosen {
        Chosen::ByOption => "named by --config",
        Chosen::ByEnvironment => "named by METES_CONF",
        Chosen::UsualPlace => "at its usual place",
    }
}

fn owned(owner: Option<FileOwner>) -> String {
    match owner {
        Some(FileOwner { user: 0, mode }) => format!("; it belongs to root, mode {mode:04o}"),
        Some(FileOwner { user, mode }) => format!("; it belongs to user {user}, mode {mode:04o}"),
        None => String::new(),
    }
}

pub(super) fn files(files: &[FileFacts]) -> Vec<CheckLine> {
    let line = |file: &FileFacts| match &file.wrong {
        Some(wrong) => CheckLine::bad(Check::File, &wrong.what, &wrong.remedy),
        None => CheckLine::ok(Check::File, format!("{} {}{}", file.key, file.path, owned(file.owner))),
    };
    files.iter().map(line).collect()
}

pub(super) fn node(facts: &NodeFacts, etcd: &EtcdFacts) -> Vec<CheckLine> {
    let mut lines = vec![name(facts), machine(facts)];
    if let EtcdFacts::Asked { store, .. } = etcd
        && let (Some(others), Some(machine)) = (&store.others, &facts.machine)
    {
        match others {
            Ok(machines) => lines.extend(others_here(machines, &machine.digest)),
            Err(failure) => {
                let what = format!("whether another machine uses this node's name is not known: {failure}");
                lines.push(CheckLine::warn(Check::Others, what, failure.remedy()));
            }
        }
    }
    if let EtcdFacts::Asked { store, .. } = etcd
        && let Ok(seen) = &store.read
    {
        lines.extend(seen.used_names.iter().map(used_name));
        if let (true, MarkFacts::None) = (seen.has_own_key, &facts.mark) {
            lines.push(state_is_elsewhere(facts));
        }
    }
    lines.extend(spool(facts));
    lines.extend(outage(&facts.outage));
    lines
}

fn name(facts: &NodeFacts) -> CheckLine {
    let cluster = match &facts.cluster {
        Some(cluster) => format!("cluster {cluster}"),
        None => "no cluster".to_owned(),
    };
    match &facts.name {
        Ok((name, NameFrom::HostFile)) => {
            CheckLine::ok(Check::Name, format!("node {name} of {cluster}, by the host file"))
        }
        Ok((name, NameFrom::Machine)) => {
            let what = format!("node {name} of {cluster}, by its host name and machine id");
            let remedy = "in Kubernetes, set node_name to the name of the Kubernetes node";
            CheckLine { remedy: Some(remedy.to_owned()), ..CheckLine::note(Check::Name, what) }
        }
        Err(wrong) => CheckLine::bad(Check::Name, &wrong.what, &wrong.remedy),
    }
}

fn machine(facts: &NodeFacts) -> CheckLine {
    match &facts.machine {
        Some(machine) => {
            let what = format!(
                "records name this machine {}: a digest of the id in {}",
                short(&machine.digest),
                machine.file.display()
            );
            CheckLine::ok(Check::Machine, what)
        }
        None => CheckLine::warn(
            Check::Machine,
            "this machine has no id yet; its first run makes one in spool_dir",
            "make one for the whole system: systemd-machine-id-setup",
        ),
    }
}

fn short(digest: &str) -> &str {
    digest.get(..DIGEST_DIGITS).unwrap_or(digest)
}

/// Records that were adopted or imported are of no machine.
fn others_here(machines: &Machines, own: &str) -> Vec<CheckLine> {
    let others = machines.iter().filter(|(machine, _)| !machine.is_empty() && *machine != own);
    let line = |(machine, (count, owner)): (&String, &(usize, _))| {
        CheckLine::warn(
            Check::Others,
            format!(
                "another machine, which records name {}, holds {} under this node's name: {owner}",
                short(machine),
                many(*count, "record")
            ),
            "give each machine its own node_name; if this one was reinstalled, the reconciler frees them, or \
             metes release does",
        )
    };
    let lines: Vec<CheckLine> = others.map(line).collect();
    if lines.is_empty() {
        return vec![CheckLine::ok(Check::Others, "no other machine holds anything under this node's name")];
    }
    lines
}

/// The store knows this machine, and the machine not the store.
fn state_is_elsewhere(facts: &NodeFacts) -> CheckLine {
    CheckLine::warn(
        Check::Spool,
        lost_state(&facts.folder),
        "move what is in the former spool_dir to the present one, or name that one in the host file; the reconciler \
         frees what no pod uses",
    )
}

/// Its disk may have been copied from the machine that has this name now.
fn used_name(name: &NodeKey) -> CheckLine {
    let cluster =
        name.cluster.as_ref().map_or("no cluster".to_owned(), |cluster| format!("cluster {cluster}"));
    CheckLine::warn(
        Check::Others,
        format!(
            "a DEL frees nothing under node {} of {cluster}, a name that this node had before: another machine with \
             the same machine id may use it",
            name.node
        ),
        "if one machine was made from the disk of the other, give each its own machine id \
         (systemd-machine-id-setup); the reconciler frees what no pod uses",
    )
}

fn spool(facts: &NodeFacts) -> Vec<CheckLine> {
    let folder = facts.folder.join("spool");
    let (survey, age) = match &facts.spool {
        SpoolFacts::NotTrusted(why) => {
            return vec![CheckLine::bad(
                Check::Spool,
                format!("DELs in {} are not carried out: {why}", folder.display()),
                "make root the owner of the folder and of those above it, and let nobody else write them",
            )];
        }
        SpoolFacts::Hidden => {
            let what = format!("whether a DEL waits for etcd is not known: {} is for root", folder.display());
            return vec![CheckLine::note(Check::Spool, what)];
        }
        SpoolFacts::Known(survey, age) => (survey, age.map(|age| format!(", the oldest for {}", span(age)))),
    };
    let Survey { own, others, unreadable, .. } = *survey;
    let cannot_keep = |why: &String| {
        CheckLine::bad(
            Check::Spool,
            format!(
                "no run can keep anything in {}: {why}; so a DEL fails while etcd does not answer, and this node does \
                 not notice an etcd that went back in time",
                facts.folder.display()
            ),
            "make the folder as root, writable by root, or name another one as `spool_dir` in the host file",
        )
    };
    let age = age.unwrap_or_default();
    let mut lines = vec![match own {
        0 => CheckLine::ok(Check::Spool, "no DEL waits for etcd"),
        _ => CheckLine::warn(
            Check::Spool,
            format!(
                "{} {} for etcd{age}, in {}",
                many(own, "DEL"),
                if own == 1 { "waits" } else { "wait" },
                folder.display()
            ),
            "nothing: once etcd answers, the next ADD or DEL on this node carries some of them out",
        ),
    }];
    lines.extend(facts.unwritable.iter().map(cannot_keep));
    if others + unreadable > 0 {
        lines.push(CheckLine::warn(
            Check::Spool,
            format!(
                "{} in {} of another machine or cluster, {unreadable} that cannot be read: they stay",
                many(others, "DEL"),
                folder.display()
            ),
            "remove the files if this disk was copied from another machine",
        ));
    }
    lines
}

/// While etcd answers STATUS, there is nothing to say.
fn outage(lasts: &Result<Option<Duration>, String>) -> Option<CheckLine> {
    let most = span(limits::STATUS_GRACE.as_secs());
    let then = "where metes serves the default network, this node is NotReady then";
    let remedy = "bring etcd back: ETCD above says what is wrong";
    match lasts {
        Ok(None) => None,
        Ok(Some(lasts)) if *lasts < limits::STATUS_GRACE => {
            let lasts = span(lasts.as_secs());
            let what = format!("etcd has answered no STATUS for {lasts}; STATUS fails after {most}: {then}");
            Some(CheckLine::warn(Check::Outage, what, remedy))
        }
        Ok(Some(lasts)) => {
            let lasts = span(lasts.as_secs());
            let what = format!("etcd has answered no STATUS for {lasts}, so STATUS fails: {then}");
            Some(CheckLine::bad(Check::Outage, what, remedy))
        }
        Err(why) => {
            let what = format!("STATUS fails at once while etcd does not answer: {why}");
            Some(CheckLine::warn(Check::Outage, what, "nothing: a STATUS that etcd answers well removes it"))
        }
    }
}

/// Seconds in words: its two largest units.
pub(super) fn span(seconds: u64) -> String {
    let parts = [(86_400, "d"), (3600, "h"), (60, "min"), (1, "s")];
    let first = parts.iter().position(|(unit, _)| seconds >= *unit).unwrap_or(parts.len() - 1);
    let mut rest = seconds;
    let mut words = Vec::new();
    for (unit, name) in parts.iter().skip(first).take(2) {
        if rest / unit > 0 || words.is_empty() {
            words.push(format!("{} {name}", rest / unit));
        }
        rest %= unit;
    }
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::facts::{MachineFacts, MarkFacts};
    use crate::doctor::line::Verdict;
    use metes_core::pool::Owner;
    use metes_engine::obstacle::Obstacle;

    #[test]
    fn spans() {
        for (seconds, words) in [
            (0, "0 s"),
            (59, "59 s"),
            (60, "1 min"),
            (3661, "1 h 1 min"),
            (90_061, "1 d 1 h"),
            (86_400, "1 d"),
        ] {
            assert_eq!(span(seconds), words);
        }
    }

    fn facts() -> NodeFacts {
        NodeFacts {
            name: Ok(("n1".parse().expect("a name"), NameFrom::HostFile)),
            cluster: None,
            machine: Some(MachineFacts { digest: "0123456789".to_owned(), file: "/etc/machine-id".into() }),
            folder: "/spool/metes-1".into(),
            has_folder: true,
            mark: MarkFacts::None,
            former: Vec::new(),
            other_prefix: None,
            other_store: None,
            spool: SpoolFacts::Known(Survey::default(), None),
            unwritable: None,
            outage: Ok(None),
        }
    }

    fn told(lines: &[CheckLine]) -> Vec<(Verdict, &str)> {
        lines.iter().map(|line| (line.verdict, line.what.as_str())).collect()
    }

    #[test]
    fn a_node() {
        let mut facts = facts();
        assert_eq!(
            told(&node(&facts, &EtcdFacts::Unknown)),
            [
                (Verdict::Ok, "node n1 of no cluster, by the host file"),
                (Verdict::Ok, "records name this machine 01234567: a digest of the id in /etc/machine-id"),
                (Verdict::Ok, "no DEL waits for etcd"),
            ]
        );
        facts.name = Err(Obstacle { what: "no name".to_owned(), remedy: "set it".to_owned() });
        facts.machine = None;
        facts.unwritable = Some("it is full".to_owned());
        facts.spool =
            SpoolFacts::Known(Survey { own: 2, others: 1, unreadable: 1, ..Survey::default() }, Some(61));
        assert_eq!(
            told(&node(&facts, &EtcdFacts::Unknown)),
            [
                (Verdict::Bad, "no name"),
                (Verdict::Warn, "this machine has no id yet; its first run makes one in spool_dir"),
                (Verdict::Warn, "2 DELs wait for etcd, the oldest for 1 min 1 s, in /spool/metes-1/spool"),
                (
                    Verdict::Bad,
                    "no run can keep anything in /spool/metes-1: it is full; so a DEL fails while etcd does not \
                     answer, and this node does not notice an etcd that went back in time"
                ),
                (
                    Verdict::Warn,
                    "1 DEL in /spool/metes-1/spool of another machine or cluster, 1 that cannot be read: they stay"
                ),
            ]
        );
    }

    #[test]
    fn outages() {
        let judged = |lasts| outage(&lasts).map(|line| (line.verdict, line.what));
        assert_eq!(judged(Ok(None)), None);
        for (seconds, verdict, words) in [
            (61, Verdict::Warn, "no STATUS for 1 min 1 s; STATUS fails after 5 min: "),
            (299, Verdict::Warn, "for 4 min 59 s; "),
            (300, Verdict::Bad, "for 5 min, so STATUS fails: "),
        ] {
            let (told, what) = judged(Ok(Some(Duration::from_secs(seconds)))).expect("a line");
            assert!(told == verdict && what.contains(words), "{what}");
        }
        let (told, what) = judged(Err("/x/outage is damaged".to_owned())).expect("a line");
        assert!(told == Verdict::Warn && what.contains("/x/outage is damaged"), "{what}");
    }

    #[test]
    fn machines_under_one_name() {
        let owner = Owner::named(["-", "n1", "c1", "eth0"]).expect("plain names");
        let machines =
            |names: &[&str]| names.iter().map(|name| ((*name).to_owned(), (2, owner.clone()))).collect();
        assert_eq!(others_here(&machines(&["", "own"]), "own")[0].verdict, Verdict::Ok);
        let lines = others_here(&machines(&["", "own", "ffffffffffff"]), "own");
        let what = "another machine, which records name ffffffff, holds 2 records under this node's name: eth0 of \
                    container c1 on n1";
        assert_eq!(told(&lines), [(Verdict::Warn, what)]);
    }

    #[test]
    fn host_files() {
        let owner = Some(FileOwner { user: 0, mode: 0o644 });
        let file = Some(("/x".into(), Chosen::ByEnvironment));
        let notes = vec!["unknown".to_owned()];
        let fine = HostFileFacts {
            file,
            owner,
            has_other_endpoints: false,
            wrong: Vec::new(),
            notes,
            says_who_chooses: true,
        };
        assert_eq!(
            told(&host_file(&fine, 1000)),
            [
                (Verdict::Ok, "/x, named by METES_CONF; it belongs to root, mode 0644"),
                (Verdict::Warn, "unknown"),
                (Verdict::Note, "this program runs as user 1000, and the plugin runs as root"),
            ]
        );
        let other = HostFileFacts { has_other_endpoints: true, notes: Vec::new(), ..fine };
        let what = "/x, named by METES_CONF; it belongs to root, mode 0644; for this run, --endpoints says where \
                    etcd is";
        assert_eq!(told(&host_file(&other, 0)), [(Verdict::Ok, what)]);
        let none = HostFileFacts { file: None, owner: None, ..other };
        let what = "there is none; for this run, --endpoints says where etcd is";
        assert_eq!(told(&host_file(&none, 0)), [(Verdict::Warn, what)]);
        let none = HostFileFacts { has_other_endpoints: false, ..none };
        let what = "there is none: etcd is expected at http://127.0.0.1:2379";
        assert_eq!(told(&host_file(&none, 0)), [(Verdict::Bad, what)]);
    }
}
