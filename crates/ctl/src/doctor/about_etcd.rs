//! Judges etcd's endpoints and the stored state. Pure.

use std::time::Duration;

use super::facts::{EndpointFacts, EtcdFacts, MarkFacts, NodeFacts, StoreFacts, StoreSeen};
use super::line::{Check, CheckLine};
use metes_core::known::HighWater;
use metes_core::meta::{self, OutOfService};
use metes_engine::kv::{About, Failure};
use metes_engine::obstacle::Obstacle;
use metes_node::errors;

/// Told of an etcd that is reached over a network.
pub(crate) const NO_USERS: &str =
    "etcd asks for no users: each client with a certificate of its authority may do everything there";
pub(crate) const NO_USERS_REMEDY: &str =
    "make users and roles, and enable authentication, as docs/security.md says";

/// An ADD waits for one or two requests.
const SLOW: Duration = Duration::from_millis(100);

pub(super) fn etcd(facts: &EtcdFacts) -> Vec<CheckLine> {
    match facts {
        EtcdFacts::Unknown => {
            vec![CheckLine::note(
                Check::Endpoint,
                "etcd was not asked: the host file does not say where it is",
            )]
        }
        EtcdFacts::NotAsked { why, endpoints } => {
            let why = why.iter().map(|why| CheckLine::bad(Check::File, &why.what, &why.remedy));
            let endpoints = endpoints.iter().map(|(url, refused)| not_asked(url, refused.as_deref()));
            why.chain(endpoints).collect()
        }
        EtcdFacts::Asked { endpoints, users, .. } => {
            let mut lines: Vec<CheckLine> =
                endpoints.iter().flat_map(|one| endpoint(one, endpoints)).collect();
            lines.extend(several_clusters(endpoints));
            lines.extend(users.map(|asked| match asked {
                true => CheckLine::ok(Check::Users, "etcd asks for users"),
                false => CheckLine::bad(Check::Users, NO_USERS, NO_USERS_REMEDY),
            }));
            lines
        }
    }
}

fn not_asked(url: &str, refused: Option<&str>) -> CheckLine {
    match refused {
        None => {
            CheckLine::note(Check::Endpoint, format!("{url}: accepts connections; it was not asked anything"))
        }
        Some(why) => {
            let Obstacle { what, remedy } = format!("{url}: {why}").into();
            CheckLine::bad(Check::Endpoint, what, remedy)
        }
    }
}

/// True if the endpoint has answered: that it denies something is an answer.
fn answers(endpoint: &EndpointFacts) -> bool {
    matches!(endpoint.read, Ok(_) | Err(Failure::Denied(_)))
}

fn endpoint(one: &EndpointFacts, all: &[EndpointFacts]) -> Vec<CheckLine> {
    let EndpointFacts { url, read, about } = one;
    if !answers(one) {
        let Err(failure) = read else { return Vec::new() };
        let (what, remedy) = (with_url(url, failure), failure.remedy());
        return vec![match all.iter().any(answers) {
            true => CheckLine::warn(Check::Endpoint, format!("{what}; another endpoint serves"), remedy),
            false => CheckLine::bad(Check::Endpoint, what, remedy),
        }];
    }
    let took = read.as_ref().map(|took| format!("; a read took {}", milliseconds(*took)));
    let took = took.unwrap_or_default();
    match about {
        Ok(about) => known(one, about, all, &took),
        Err(Failure::Denied(_)) => {
            let what = format!(
                "{url}: version, leader and alarms are not known: etcd denies them to this user{took}"
            );
            vec![CheckLine::note(Check::Endpoint, what)]
        }
        Err(failure) => {
            let what = format!("{url}: version, leader and alarms are not known: {failure}{took}");
            vec![CheckLine::warn(Check::Endpoint, what, failure.remedy())]
        }
    }
}

fn with_url(url: &str, failure: &Failure) -> String {
    let what = match failure {
        Failure::Unreachable(why) => why.what.clone(),
        other => other.to_string(),
    };
    if what.contains(url) { what } else { format!("{url}: {what}") }
}

fn known(one: &EndpointFacts, about: &About, all: &[EndpointFacts], took: &str) -> Vec<CheckLine> {
    let url = &one.url;
    let head = format!("{url}: etcd {}, {}{took}", about.version, who_leads(about, all));
    let mut lines = Vec::new();
    if let Some(old) = about.too_old() {
        lines.push(CheckLine::bad(Check::Endpoint, format!("{url}: {old}"), "use a newer etcd"));
    } else if let Some(old) = about.unmaintained() {
        let remedy = "upgrade etcd by one minor version at a time, as its documents say";
        lines.push(CheckLine::warn(Check::Endpoint, format!("{url}: {old}"), remedy));
    }
    if let Some((alarm, remedy)) = about.refuses_writes() {
        lines.push(CheckLine::bad(Check::Endpoint, format!("{url}: etcd refuses writes: {alarm}"), remedy));
    } else {
        let others = about.errors.iter().map(|error| format!("{url}: it reports {}", error.trim()));
        lines.extend(others.map(|what| CheckLine::warn(Check::Endpoint, what, "see etcd's log")));
    }
    let is_slow = one.read.as_ref().is_ok_and(|took| *took > SLOW);
    lines.insert(
        0,
        match (about.has_leader(), is_slow) {
            (false, _) => {
                CheckLine::bad(Check::Endpoint, head, "make sure that more than half of etcd's members run")
            }
            (true, true) => CheckLine::warn(
                Check::Endpoint,
                format!("{head}, which is slow"),
                "look at etcd's disk, load and network",
            ),
            (true, false) => CheckLine::ok(Check::Endpoint, head),
        },
    );
    lines
}

/// As people know the members: by their endpoints, or as etcdctl prints their ids.
fn who_leads(about: &About, all: &[EndpointFacts]) -> String {
    if !about.has_leader() {
        return "which knows no leader".to_owned();
    }
    if about.leader == about.member {
        return "leads".to_owned();
    }
    let is_leader = |one: &&EndpointFacts| one.about.as_ref().is_ok_and(|other| other.member == about.leader);
    match all.iter().find(is_leader) {
        Some(leader) => format!("follows {}", leader.url),
        None => format!("follows member {:x}", about.leader),
    }
}

fn several_clusters(all: &[EndpointFacts]) -> Option<CheckLine> {
    let mut clusters: Vec<u64> =
        all.iter().filter_map(|one| Some(one.about.as_ref().ok()?.cluster)).collect();
    clusters.sort_unstable();
    clusters.dedup();
    (clusters.len() > 1).then(|| {
        CheckLine::bad(
            Check::Cluster,
            "the endpoints are of different etcd clusters: two pods can get one address",
            "name the members of one cluster in `etcd.endpoints`, and no others",
        )
    })
}

fn milliseconds(took: Duration) -> String {
    format!("{:.1} ms", took.as_secs_f64() * 1000.0)
}

pub(super) fn store(facts: &EtcdFacts, node: &NodeFacts) -> Vec<CheckLine> {
    let EtcdFacts::Asked { store, .. } = facts else {
        return vec![CheckLine::note(Check::Read, "what is stored is not known: etcd was not asked")];
    };
    let StoreFacts { prefix, read, write, .. } = &**store;
    let seen = match read {
        Ok(seen) => seen,
        Err(Failure::Unreachable(_)) => {
            return vec![CheckLine::note(
                Check::Read,
                "what is stored is not known: no endpoint serves this node",
            )];
        }
        Err(failure) => {
            let what = format!("{prefix} cannot be read: {failure}");
            let mut lines = vec![CheckLine::bad(Check::Read, what, failure.remedy())];
            lines.extend(write.iter().map(|write| write_line(prefix, write)));
            return lines;
        }
    };
    let mut lines = vec![CheckLine::ok(Check::Read, format!("{prefix} can be read"))];
    lines.extend(write.iter().map(|write| write_line(prefix, write)));
    match &node.other_prefix {
        Some(wrong) => {
            let what = format!("each ADD fails: {}", wrong.what);
            lines.push(CheckLine::bad(Check::Store, what, &wrong.remedy));
        }
        None => lines.push(in_service(prefix, seen, node.other_store.as_deref())),
    }
    lines.push(mark(node, seen));
    lines
}

fn write_line(prefix: &str, write: &Result<Duration, Failure>) -> CheckLine {
    match write {
        Ok(took) => CheckLine::ok(
            Check::Write,
            format!("{prefix} can be written; a write took {}", milliseconds(*took)),
        ),
        Err(failure) => {
            let what = format!("{prefix} cannot be written, so each ADD fails: {failure}");
            CheckLine::bad(Check::Write, what, failure.remedy())
        }
    }
}

fn in_service(prefix: &str, seen: &StoreSeen, other_store: Option<&str>) -> CheckLine {
    let meta = match &seen.meta {
        Ok(Some(meta)) => meta,
        Ok(None) if seen.has_allocations => {
            let what = format!("the store below {prefix} has lost its meta, and addresses are held in it");
            return CheckLine::bad(Check::Store, what, "run `metes check`: it says what to do");
        }
        Ok(None) => {
            if let Some(other) = other_store {
                let why = errors::other_store_used(other);
                return CheckLine::bad(Check::Store, format!("each ADD fails: {}", why.msg), why.details);
            }
            let what = format!("nothing is stored below {prefix} yet; the first ADD writes there");
            return CheckLine::note(Check::Store, what);
        }
        Err(why) => {
            let what = format!("the store's meta cannot be read: {why}");
            return CheckLine::bad(
                Check::Store,
                what,
                "run `metes check`: it tells a newer metes from damage",
            );
        }
    };
    match meta::judge(Some(meta)) {
        Ok(()) => CheckLine::ok(
            Check::Store,
            format!("store {} in epoch {}, at revision {}", meta.id, meta.epoch, seen.revision),
        ),
        Err(OutOfService::Suspect(epoch)) => {
            let why = errors::suspect(epoch);
            CheckLine::bad(Check::Store, format!("the store is suspect: {}", why.msg), why.details)
        }
        Err(why @ OutOfService::Paused(_)) => CheckLine::warn(
            Check::Store,
            format!("each ADD waits: {}", why.words()),
            "let the migration end; if it was given up, `metes check --resume` ends the pause",
        ),
        Err(why @ (OutOfService::Newer(_) | OutOfService::NoMeta)) => {
            CheckLine::bad(Check::Store, format!("each ADD fails: {}", why.words()), "use a newer metes")
        }
    }
}

fn mark(node: &NodeFacts, seen: &StoreSeen) -> CheckLine {
    let known = match &node.mark {
        MarkFacts::Known(known) => known,
        MarkFacts::NotThisNodes => {
            let what = format!(
                "the mark in {} is damaged, or of another machine, cluster or endpoints, and does not count",
                node.folder.display()
            );
            return CheckLine::note(Check::Mark, what);
        }
        MarkFacts::OtherCluster(cluster) => {
            return CheckLine::bad(
                Check::Mark,
                format!(
                    "this machine has used this store as a node of {cluster}, and `cluster` in the host file is \
                     another one: a DEL frees what it holds there, a reconciler of the new cluster does not"
                ),
                format!(
                    "write the name of {cluster} into the host file; if the node has moved, drain it first, and \
                     delete {}",
                    node.folder.display()
                ),
            );
        }
        MarkFacts::Hidden => {
            let what = format!("what this node has seen is not known: {} is for root", node.folder.display());
            return CheckLine::note(Check::Mark, what);
        }
        MarkFacts::None if node.unwritable.is_some() => {
            let what = format!(
                "what this node has seen is not known: no run can keep it in {}",
                node.folder.display()
            );
            return CheckLine::note(Check::Mark, what);
        }
        MarkFacts::None if node.has_folder => {
            return CheckLine::note(Check::Mark, "no ADD has done its work here yet");
        }
        MarkFacts::None => {
            let what =
                format!("no ADD or DEL has done its work here yet: there is no {}", node.folder.display());
            return CheckLine::note(Check::Mark, what);
        }
    };
    let HighWater { epoch, revision, .. } = known;
    let has_seen = format!("this node has seen revision {revision} of epoch {epoch}");
    if seen.meta.is_err() {
        return CheckLine::note(Check::Mark, has_seen);
    }
    if seen.is_another {
        let why = errors::suspect(*epoch);
        let what = format!("{has_seen}, and the next ADD here puts the store under suspicion: {}", why.msg);
        return CheckLine::bad(Check::Mark, what, why.details);
    }
    CheckLine::ok(Check::Mark, format!("{has_seen}, and etcd still has it"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::line::Verdict;
    use metes_core::pool::Meta;
    use metes_engine::obstacle::Obstacle;

    fn about(member: u64, errors: &[&str]) -> About {
        let errors = errors.iter().map(|&error| error.to_owned()).collect();
        About { version: "3.6.14".to_owned(), errors, cluster: 1, member, leader: 2 }
    }

    fn served(url: &str, about: Result<About, Failure>) -> EndpointFacts {
        EndpointFacts { url: url.to_owned(), read: Ok(Duration::from_millis(1)), about }
    }

    fn down(url: &str) -> EndpointFacts {
        let why =
            Failure::Unreachable(Obstacle { what: format!("{url}: refused"), remedy: "start it".to_owned() });
        EndpointFacts { url: url.to_owned(), read: Err(why.clone()), about: Err(why) }
    }

    fn told(endpoints: Vec<EndpointFacts>) -> Vec<(Verdict, String)> {
        let store =
            StoreFacts { prefix: "/m/".to_owned(), read: Err(Failure::Compacted), write: None, others: None };
        let lines = etcd(&EtcdFacts::Asked { endpoints, users: None, store: Box::new(store) });
        lines.into_iter().map(|line| (line.verdict, line.what)).collect()
    }

    #[test]
    fn endpoints() {
        let denied = Failure::Denied(Obstacle { what: "no".to_owned(), remedy: "grant".to_owned() });
        let rows = told(vec![served("a", Ok(about(1, &[]))), served("b", Ok(about(2, &[]))), down("c")]);
        assert_eq!(
            rows,
            [
                (Verdict::Ok, "a: etcd 3.6.14, follows b; a read took 1.0 ms".to_owned()),
                (Verdict::Ok, "b: etcd 3.6.14, leads; a read took 1.0 ms".to_owned()),
                (Verdict::Warn, "c: refused; another endpoint serves".to_owned()),
            ]
        );
        assert_eq!(told(vec![down("c")]), [(Verdict::Bad, "c: refused".to_owned())]);
        let rows = told(vec![served("a", Err(denied)), served("b", Ok(about(3, &["alarm:NOSPACE "])))]);
        assert_eq!(
            rows.iter().map(|(verdict, _)| *verdict).collect::<Vec<_>>(),
            [Verdict::Note, Verdict::Ok, Verdict::Bad]
        );
        assert!(rows[1].1.contains("follows member 2") && rows[2].1.contains("alarm:NOSPACE"), "{rows:?}");
        let old = About { version: "3.4.1".to_owned(), ..about(2, &[]) };
        assert_eq!(told(vec![served("a", Ok(old))])[1].0, Verdict::Bad);
        let unmaintained = About { version: "3.5.35".to_owned(), ..about(2, &[]) };
        let rows = told(vec![served("a", Ok(unmaintained))]);
        assert!(
            rows[1].0 == Verdict::Warn && rows[1].1.starts_with("a: etcd 3.5.35 is of a release"),
            "{rows:?}"
        );
        let alone = About { leader: 0, ..about(2, &["etcdserver: no leader"]) };
        let rows = told(vec![served("a", Ok(alone))]);
        assert_eq!((rows[0].0, rows[1].0), (Verdict::Bad, Verdict::Warn));
        let other = About { cluster: 7, ..about(2, &[]) };
        let rows = told(vec![served("a", Ok(about(2, &[]))), served("b", Ok(other))]);
        assert!(rows[2].0 == Verdict::Bad && rows[2].1.contains("different etcd clusters"), "{rows:?}");
        let slow = EndpointFacts { read: Ok(SLOW * 2), ..served("a", Ok(about(2, &[]))) };
        assert_eq!(told(vec![slow])[0].0, Verdict::Warn);
    }

    #[test]
    fn a_store_is_judged_by_its_meta() {
        let of = |meta: Result<Option<Meta>, String>, has_allocations| {
            in_service(
                "/m/",
                &StoreSeen {
                    meta,
                    revision: 7,
                    has_allocations,
                    is_another: false,
                    used_names: Vec::new(),
                    has_own_key: false,
                },
                None,
            )
            .verdict
        };
        let meta = |change: fn(&mut Meta)| {
            let mut meta = Meta::first("s".to_owned());
            change(&mut meta);
            Ok(Some(meta))
        };
        assert_eq!(of(meta(|_| {}), true), Verdict::Ok);
        assert_eq!(of(Ok(None), false), Verdict::Note);
        assert_eq!(of(Ok(None), true), Verdict::Bad);
        assert_eq!(of(Err("no JSON".to_owned()), true), Verdict::Bad);
        assert_eq!(of(meta(|meta| meta.suspect = Some(1)), true), Verdict::Bad);
        assert_eq!(of(meta(|meta| meta.paused = Some("import".to_owned())), true), Verdict::Warn);
        assert_eq!(of(meta(|meta| meta.min_writer = 99), true), Verdict::Bad);
    }
}
