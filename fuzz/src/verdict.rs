//! The reconciler's verdict against its rules: nothing that a live pod may use is ever freed.

use std::time::Duration;

use metes_core::pool::{Addr, NetworkName, Owner, OwnerKind, Subject, record};
use metes_reconciler::api::{Node, Phase, Pod};
use metes_reconciler::holder::{HoldFacts, Holder, OwnerFacts, Stamp};
use metes_reconciler::verdict::{Free, Graces, Keep, Verdict, judge, orphaned};
use metes_reconciler::world::{Nodes, Pods};

use super::dice::Dice;

/// Three of the API server's, and two as a kubelet gives them to static pods.
const UIDS: [&str; 6] = [
    "",
    "00000000-0000-4000-8000-000000000001",
    "00000000-0000-4000-8000-000000000002",
    "00000000-0000-4000-8000-000000000003",
    "s1",
    "s2",
];
const NAMES: [&str; 8] = ["", "a", "b", "c-0", "A", "../x", "a/b", "."];
const BOOTS: [&str; 3] = ["", "b1", "b2"];
/// UIDs in the form that Kubernetes gives them.
const CLAIMS: [&str; 2] = ["0b1c2d3e-4f50-6172-8394-a5b6c7d8e9f0", "ffffffff-ffff-ffff-ffff-ffffffffffff"];
const NODES: [&str; 3] = ["n1", "n2", "n3"];

pub(super) fn verdict(data: &[u8]) {
    let mut dice = Dice::new(data);
    let truth = truth(&mut dice);
    let graces = Graces {
        gone: Duration::from_secs(dice.byte().into()),
        ready: Duration::from_secs(dice.byte().into()),
        unknown_node: Duration::from_secs(dice.byte().into()),
        finished: Duration::from_secs(dice.byte().into()),
        unlabelled: dice.flag().then(|| Duration::from_secs(dice.byte().into())),
        machine: Duration::ZERO,
    };
    let holders = dice.some(6, holder);
    let pods = truth.listed(&holders);
    assert_eq!(pods.count(), truth.pods.len());
    let mut nodes = Nodes::default();
    truth.nodes.iter().cloned().for_each(|node| nodes.see(node));
    truth.remembered.iter().for_each(|node| nodes.remember((*node).to_owned()));
    for holder in &holders {
        let seen_for = Duration::from_secs(dice.byte().into());
        let verdict = judge(orphaned(holder, &pods, &nodes, &graces), seen_for);
        assert_eq!(verdict, truth.expected(holder, seen_for, &graces), "{holder:?} in {truth:#?}");
    }
}

/// A cluster as it is.
#[derive(Debug)]
struct Truth {
    /// No two have one name or one UID.
    pods: Vec<(Pod, Phase)>,
    nodes: Vec<Node>,
    /// The names of nodes that existed once.
    remembered: Vec<&'static str>,
    /// The claims that exist; none if they were not listed.
    claims: Option<Vec<&'static str>>,
}

fn truth(dice: &mut Dice<'_>) -> Truth {
    let mut pods: Vec<(Pod, Phase)> = Vec::new();
    for (pod, phase) in dice.some(5, pod) {
        let is_new = |(other, _): &(Pod, Phase)| {
            other.uid != pod.uid && (&other.namespace, &other.name) != (&pod.namespace, &pod.name)
        };
        if pods.iter().all(is_new) {
            pods.push((pod, phase));
        }
    }
    let mut nodes = Vec::new();
    for name in NODES {
        if dice.flag() {
            nodes.push(Node {
                name: name.to_owned(),
                ready: !dice.once_in(4),
                out_of_service: dice.once_in(4),
                boot: dice.pick(&BOOTS).to_owned(),
            });
        }
    }
    let remembered = NODES.into_iter().filter(|_| dice.flag()).collect();
    let claims = dice.flag().then(|| CLAIMS.into_iter().filter(|_| dice.flag()).collect());
    Truth { pods, nodes, remembered, claims }
}

fn pod(dice: &mut Dice<'_>) -> (Pod, Phase) {
    let pod = Pod {
        namespace: dice.pick(&["ns", "other"]).to_owned(),
        name: dice.pick(&NAMES[1..4]).to_owned(),
        uid: dice.pick(&UIDS[1..4]).to_owned(),
        // The creator of a pod writes its annotations, so any UID may stand there.
        static_uids: dice.some(2, |dice| dice.pick(&UIDS[1..]).to_owned()),
        ..Pod::default()
    };
    (pod, if dice.flag() { Phase::Finished } else { Phase::Active })
}

fn holder(dice: &mut Dice<'_>) -> Holder {
    let (node, container) = (dice.pick(&NODES), dice.pick(&["c1", CLAIMS[0], CLAIMS[1]]));
    let owner = Owner::named(["east", node, container, "net1"]).expect("plain names");
    let boot = dice.pick(&BOOTS);
    let facts = OwnerFacts {
        stamp: dice.pick(&[Stamp::Ours, Stamp::Ours, Stamp::Ours, Stamp::Other, Stamp::None]),
        pod: record::Pod {
            namespace: dice.pick(&["ns", "ns", "other", "", "Ns"]).to_owned(),
            name: dice.pick(&NAMES).to_owned(),
            uid: dice.pick(&UIDS).parse().ok(),
        },
        boot: (!boot.is_empty()).then(|| boot.to_owned()),
        replaced: dice.flag(),
        hold: None,
    };
    if dice.once_in(8) {
        return subject(dice, &owner, facts);
    }
    let hold = Owner::of_hold(&NetworkName::default(), Addr(dice.byte().into()));
    let owner = if dice.once_in(8) { hold } else { owner };
    Holder { owner, revision: 1, record: (!dice.once_in(8)).then_some(facts) }
}

/// A hold for a pod's name. Its record alone says which pod is meant.
fn subject(dice: &mut Dice<'_>, container: &Owner, mut facts: OwnerFacts) -> Holder {
    let subject = Subject { namespace: "ns".to_owned(), name: "a".to_owned() };
    let cluster = container.cluster.clone().expect("a cluster's owner");
    let owner = Owner::of_pod(cluster, &subject, container.ifname.clone()).expect("plain names");
    (facts.pod.uid, facts.boot, facts.replaced) = (None, None, false);
    let facts_of_hold = HoldFacts { seconds: dice.flag().then(|| dice.byte().into()), is_used: dice.flag() };
    facts.hold = (!dice.once_in(8)).then_some(facts_of_hold);
    Holder { owner, revision: 1, record: (!dice.once_in(8)).then_some(facts) }
}

impl Truth {
    /// The pods as a pass lists them: first all of them, then once more those that have finished.
    fn listed(&self, holders: &[Holder]) -> Pods {
        let mut pods = Pods::for_holders(holders);
        self.pods.iter().for_each(|(pod, _)| pods.see(pod, Phase::Active));
        let finished = self.pods.iter().filter(|(_, phase)| *phase == Phase::Finished);
        finished.for_each(|(pod, phase)| pods.see(pod, *phase));
        if let Some(claims) = &self.claims {
            claims.iter().for_each(|uid| pods.see_claim(uid));
            pods.no_more_claims();
        }
        pods
    }

    /// The pods that a record may mean: by its UID, else by a UID that a mirror pod claims, else by its name.
    fn meant(&self, pod: &record::Pod) -> Vec<Phase> {
        let phases = |is_meant: &dyn Fn(&Pod) -> bool| -> Vec<Phase> {
            self.pods.iter().filter(|(pod, _)| is_meant(pod)).map(|(_, phase)| *phase).collect()
        };
        let Some(uid) = &pod.uid else {
            return phases(&|one| {
                one.namespace == pod.namespace && one.name == pod.name && !pod.name.is_empty()
            });
        };
        let own = phases(&|one| *uid == *one.uid);
        if own.is_empty() { phases(&|one| one.static_uids.iter().any(|one| *uid == **one)) } else { own }
    }

    fn expected(&self, holder: &Holder, seen_for: Duration, graces: &Graces) -> Verdict {
        let (reason, grace, meanwhile) = match self.reason(holder, graces) {
            Err(keep) => return Verdict::Keep(keep),
            Ok(orphan) => orphan,
        };
        if seen_for < grace { Verdict::Keep(meanwhile) } else { Verdict::Free(reason) }
    }

    fn reason_of_hold(&self, record: &OwnerFacts) -> Result<(Free, Duration, Keep), Keep> {
        let pod = &record.pod;
        match (record.stamp, &record.hold) {
            (Stamp::Other, _) => Err(Keep::OtherCluster),
            (Stamp::None, _) => Err(Keep::NoCluster),
            (Stamp::Ours, None) => Err(Keep::SetAside),
            (Stamp::Ours, Some(HoldFacts { is_used: true, .. })) => Err(Keep::InUse),
            (Stamp::Ours, Some(_)) if !self.meant(pod).is_empty() => Err(Keep::SubjectExists),
            (Stamp::Ours, Some(HoldFacts { seconds: None, .. })) => Err(Keep::SetAside),
            (Stamp::Ours, Some(_)) if !(is_name(&pod.namespace) && is_name(&pod.name)) => {
                Err(Keep::PodUnnamed)
            }
            (Stamp::Ours, Some(HoldFacts { seconds: Some(seconds), .. })) => {
                Ok((Free::Unused, Duration::from_secs(*seconds), Keep::WithinGrace))
            }
        }
    }

    fn reason(&self, holder: &Holder, graces: &Graces) -> Result<(Free, Duration, Keep), Keep> {
        let Some(record) = &holder.record else { return Err(Keep::Undecodable) };
        match holder.owner.kind() {
            OwnerKind::Container(_) => {}
            OwnerKind::Subject(_) => return self.reason_of_hold(record),
            OwnerKind::Aside(..) | OwnerKind::Unknown => return Err(Keep::SetAside),
        }
        match record.stamp {
            Stamp::Other => return Err(Keep::OtherCluster),
            Stamp::None => return Err(Keep::NoCluster),
            Stamp::Ours => {}
        }
        let name = holder.owner.node.as_str();
        let node = self.nodes.iter().find(|node| node.name == name);
        let is_strange = node.is_none() && !self.remembered.contains(&name);
        let is_off = node.is_some_and(|node| !node.ready && node.out_of_service);
        let is_another_boot = match (node, &record.boot) {
            (Some(node), Some(boot)) => !node.boot.is_empty() && *node.boot != **boot,
            _ => false,
        };
        let is_at_work = node.is_some_and(|node| node.ready) && !is_another_boot;
        let gone = if is_at_work { graces.ready.max(graces.gone) } else { graces.gone };
        // A pod that does not exist, or is known by name alone, says nothing about an unknown node.
        let doubted = |grace| match is_strange && graces.unknown_node > grace {
            true => (graces.unknown_node, Keep::NodeUnknown),
            false => (grace, Keep::WithinGrace),
        };
        let pod = &record.pod;
        let can_be_asked_for = is_name(&pod.namespace) && is_name(&pod.name);
        let meant = self.meant(pod);
        let may_be_static = pod.uid.as_ref().is_some_and(|uid| ["s1", "s2"].contains(&uid.as_str()));
        let claim = CLAIMS.iter().find(|uid| holder.owner.container_id == ***uid && pod.uid.is_none());
        let (reason, (grace, meanwhile)) = if pod.is_unknown() {
            let Some(grace) = graces.unlabelled else { return Err(Keep::Unlabelled) };
            (Free::Unlabelled, (grace, Keep::WithinGrace))
        } else if let Some(uid) = claim {
            match &self.claims {
                None => return Err(Keep::ClaimUnknown),
                Some(claims) if claims.contains(uid) => return Err(Keep::ClaimExists),
                Some(_) if !can_be_asked_for => return Err(Keep::PodUnnamed),
                Some(_) => (Free::ClaimGone, doubted(gone)),
            }
        } else if meant.contains(&Phase::Active) {
            if !(record.replaced && (is_off || is_another_boot)) {
                return Err(Keep::PodExists);
            }
            (Free::SandboxReplaced, doubted(gone))
        } else if !can_be_asked_for {
            return Err(Keep::PodUnnamed);
        } else if meant.is_empty() && is_at_work && may_be_static {
            return Err(Keep::StaticPod);
        } else if meant.is_empty() {
            (Free::PodGone, doubted(gone))
        } else if pod.uid.is_none() {
            (Free::PodFinished, doubted(graces.finished))
        } else {
            (Free::PodFinished, (graces.finished, Keep::WithinGrace))
        };
        // Nobody knows what runs on a node that does not answer.
        if node.is_some_and(|node| !node.ready && !node.out_of_service) {
            return Err(Keep::NodeNotReady);
        }
        Ok((reason, grace, meanwhile))
    }
}

/// A name that Kubernetes can have given, out of those above.
fn is_name(name: &str) -> bool {
    ["ns", "other", "a", "b", "c-0"].contains(&name)
}
