use metes_core::pool::{Addr, NetworkName, Owner, PodUid, Subject};
use proptest::prelude::*;

use super::*;
use crate::api::{Node, Pod};
use crate::holder::OwnerFacts;

const GRACES: Graces = Graces {
    gone: Duration::from_secs(300),
    ready: Duration::from_secs(1800),
    unknown_node: Duration::from_secs(86_400),
    finished: Duration::from_secs(3600),
    unlabelled: None,
    machine: Duration::ZERO,
};
/// UIDs in the form of the API server's.
const U1: &str = "00000000-0000-4000-8000-000000000001";
const U2: &str = "00000000-0000-4000-8000-000000000002";
/// Longer than any grace.
const LONG: Duration = Duration::from_secs(1 << 20);

/// An owner on n1 of boot b1 whose pod is ns/web with UID u1.
fn holder() -> Holder {
    let owner = Owner::named(["east", "n1", "c1", "net1"]).expect("plain names");
    let pod = record::Pod { namespace: "ns".into(), name: "web".into(), uid: U1.parse().ok() };
    let record = OwnerFacts { stamp: Stamp::Ours, pod, boot: Some("b1".into()), replaced: false, hold: None };
    Holder { owner, revision: 7, record: Some(record) }
}

fn with(change: impl FnOnce(&mut OwnerFacts)) -> Holder {
    let mut holder = holder();
    change(holder.record.as_mut().expect("it has one"));
    holder
}

/// An owner of ns/web too, as a DRA driver makes it.
fn of_claim() -> Holder {
    let mut holder = without_uid();
    holder.owner.container_id = CLAIM.parse().expect("a UUID");
    holder
}

fn without_uid() -> Holder {
    with(|record| record.pod.uid = None)
}

fn pod(name: &str, uid: &str) -> Pod {
    Pod { namespace: "ns".into(), name: name.into(), uid: uid.into(), ..Pod::default() }
}

fn node(ready: bool, boot: &str) -> Node {
    Node { name: "n1".into(), ready, out_of_service: false, boot: boot.into() }
}

fn out_of_service(ready: bool) -> Node {
    Node { out_of_service: true, ..node(ready, "b1") }
}

/// The verdict on a holder that has been an orphan for long.
fn verdict(holder: &Holder, pods: &[(Pod, Phase)], nodes: &[Node]) -> Verdict {
    verdict_after(LONG, GRACES, holder, pods, nodes)
}

fn verdict_after(
    seen_for: Duration,
    graces: Graces,
    holder: &Holder,
    pods: &[(Pod, Phase)],
    nodes: &[Node],
) -> Verdict {
    let mut world = Pods::for_holders(std::slice::from_ref(holder));
    pods.iter().for_each(|(pod, phase)| world.see(pod, *phase));
    let mut known = Nodes::default();
    nodes.iter().for_each(|node| known.see(node.clone()));
    judge(orphaned(holder, &world, &known, &graces), seen_for)
}

/// Tests both sides of a grace: one second before its end the owner keeps what it has, for this reason; then it is
/// freed.
#[track_caller]
fn assert_grace(seconds: u64, meanwhile: Keep, judged: impl Fn(Duration) -> Verdict, reason: Free) {
    assert_eq!(judged(Duration::from_secs(seconds - 1)), Verdict::Keep(meanwhile), "{seconds} s");
    assert_eq!(judged(Duration::from_secs(seconds)), Verdict::Free(reason), "{seconds} s");
}

/// A UID in the form that Kubernetes gives.
const CLAIM: &str = "0b1c2d3e-4f50-6172-8394-a5b6c7d8e9f0";
const GONE: Verdict = Verdict::Free(Free::PodGone);
const EXISTS: Verdict = Verdict::Keep(Keep::PodExists);

#[test]
fn a_pod_is_known_by_its_uid() {
    let holder = holder();
    for (pods, expected) in [
        (vec![], GONE),
        (vec![(pod("web", U1), Phase::Active)], EXISTS),
        // If the record has a UID, its pod name does not count.
        (vec![(pod("other", U1), Phase::Active)], EXISTS),
        (vec![(pod("web", U2), Phase::Active)], GONE),
        (vec![(pod("web", U1), Phase::Finished)], Verdict::Free(Free::PodFinished)),
        (vec![(pod("web", U2), Phase::Finished)], GONE),
    ] {
        assert_eq!(verdict(&holder, &pods, &[]), expected, "{pods:?}");
    }
}

#[test]
fn a_static_pod_is_known_by_the_uid_that_the_kubelet_gave_it() {
    let mirror = Pod { static_uids: vec![U1.into()], ..pod("web-n1", "u-of-the-mirror") };
    assert_eq!(verdict(&holder(), &[(mirror, Phase::Active)], &[]), EXISTS);
}

/// Anybody who may make a pod can write such an annotation, and let that pod finish.
#[test]
fn a_static_pod_lives_whatever_else_claims_to_mirror_it() {
    let mirror = || Pod { static_uids: vec![U1.into()], ..pod("web-n1", "u-of-the-mirror") };
    let other = || Pod { static_uids: vec![U1.into()], ..pod("other", "u-of-another") };
    for (pods, expected) in [
        (vec![(mirror(), Phase::Active), (other(), Phase::Finished)], EXISTS),
        (vec![(other(), Phase::Finished), (mirror(), Phase::Active)], EXISTS),
        // A pass lists in this way: first all pods, then those that have finished.
        (vec![(mirror(), Phase::Active), (other(), Phase::Active), (other(), Phase::Finished)], EXISTS),
        (vec![(mirror(), Phase::Finished), (other(), Phase::Finished)], Verdict::Free(Free::PodFinished)),
    ] {
        assert_eq!(verdict(&holder(), &pods, &[]), expected, "{pods:?}");
    }
}

/// The API server may have been away since the pod began, or refuse mirrors.
#[test]
fn a_static_pod_that_the_api_never_shows_keeps_what_it_has_while_its_node_works() {
    let holder = with(|record| record.pod.uid = "0123456789abcdef0123456789abcdef".parse().ok());
    for (nodes, expected) in [
        (vec![node(true, "b1")], Verdict::Keep(Keep::StaticPod)),
        (vec![node(true, "")], Verdict::Keep(Keep::StaticPod)),
        (vec![node(true, "b2")], Verdict::Free(Free::PodGone)),
        (vec![node(false, "b1")], Verdict::Keep(Keep::NodeNotReady)),
        (vec![out_of_service(false)], Verdict::Free(Free::PodGone)),
        (vec![], Verdict::Free(Free::PodGone)),
    ] {
        assert_eq!(verdict(&holder, &[], &nodes), expected, "{nodes:?}");
    }
}

#[test]
fn a_record_without_uid_goes_by_its_name() {
    let holder = without_uid();
    for (pods, expected) in [
        (vec![], GONE),
        (vec![(pod("web", "u9"), Phase::Active)], EXISTS),
        (vec![(pod("web", "u9"), Phase::Finished)], Verdict::Free(Free::PodFinished)),
        (vec![(pod("webx", "u9"), Phase::Active)], GONE),
    ] {
        assert_eq!(verdict(&holder, &pods, &[]), expected, "{pods:?}");
    }
}

#[test]
fn only_records_of_this_cluster_are_judged_by_its_pods() {
    for (stamp, expected) in [(Stamp::Other, Keep::OtherCluster), (Stamp::None, Keep::NoCluster)] {
        assert_eq!(verdict(&with(|record| record.stamp = stamp), &[], &[]), Verdict::Keep(expected));
    }
    let [east, west] = ["east", "west"].map(|name| name.parse().expect("a cluster's name"));
    assert_eq!([Stamp::of(None, &east), Stamp::of(Some(&west), &east)], [Stamp::None, Stamp::Other]);
    assert_eq!(Stamp::of(Some(&east), &east), Stamp::Ours);
}

#[test]
fn what_is_set_aside_is_not_judged_by_pods() {
    let mut hold = with(|record| (record.stamp, record.pod) = (Stamp::None, record::Pod::default()));
    hold.owner = Owner::of_hold(&NetworkName::default(), Addr(0xffff_0a00_0001));
    let any = Graces { unlabelled: Some(Duration::ZERO), ..GRACES };
    assert_eq!(verdict_after(LONG, any, &hold, &[], &[]), Verdict::Keep(Keep::SetAside));
}

#[test]
fn a_hold_for_a_pod_stays_while_it_is_used_or_its_pod_exists_and_for_its_time() {
    let hold = |seconds, is_used| {
        let subject = Subject { namespace: "ns".into(), name: "web".into() };
        let mut hold = with(|record| {
            (record.pod.uid, record.boot) = (None, None);
            record.hold = Some(HoldFacts { seconds, is_used });
        });
        let ifname = hold.owner.ifname.clone();
        let cluster = hold.owner.cluster.clone().expect("a cluster's owner");
        hold.owner = Owner::of_pod(cluster, &subject, ifname).expect("plain names");
        hold
    };
    let (kept, unused) = (Verdict::Keep, Verdict::Free(Free::Unused));
    let exists = [(pod("web", "u9"), Phase::Active)];
    let finished = [(pod("web", "u9"), Phase::Finished)];
    for (seconds, is_used, pods, expected) in [
        (Some(60), true, &[][..], kept(Keep::InUse)),
        (None, true, &[], kept(Keep::InUse)),
        (Some(60), false, &exists, kept(Keep::SubjectExists)),
        // The pod that has finished may be followed by one of its name.
        (Some(60), false, &finished, kept(Keep::SubjectExists)),
        (None, false, &[], kept(Keep::SetAside)),
        (Some(60), false, &[], unused),
    ] {
        assert_eq!(verdict(&hold(seconds, is_used), pods, &[]), expected, "{seconds:?} {is_used} {pods:?}");
    }
    // The time is the hold's own; a node has no part in it.
    let judged =
        |seen_for| verdict_after(seen_for, GRACES, &hold(Some(60), false), &[], &[node(false, "b1")]);
    assert_grace(60, Keep::WithinGrace, judged, Free::Unused);
    for (stamp, expected) in [(Stamp::Other, Keep::OtherCluster), (Stamp::None, Keep::NoCluster)] {
        let mut hold = hold(Some(60), false);
        hold.record.as_mut().expect("it has one").stamp = stamp;
        assert_eq!(verdict(&hold, &[], &[]), kept(expected));
    }
}

#[test]
fn what_cannot_be_read_or_asked_for_is_kept() {
    let undecodable = Holder { record: None, ..holder() };
    assert_eq!(verdict(&undecodable, &[], &[]), Verdict::Keep(Keep::Undecodable));
    let unnamed = Verdict::Keep(Keep::PodUnnamed);
    for name in ["", "../secrets", "a/b", "Web", ".", "..", "a?b", "a b"] {
        assert_eq!(verdict(&with(|record| record.pod.name = name.into()), &[], &[]), unnamed, "{name:?}");
        assert_eq!(
            verdict(&with(|record| record.pod.namespace = name.into()), &[], &[]),
            unnamed,
            "{name:?}"
        );
    }
    for name in ["web", "web-0", "web.0", "0", "7-a.b", &"a".repeat(253)] {
        assert_eq!(verdict(&with(|record| record.pod.name = name.into()), &[], &[]), GONE, "{name:?}");
    }
    // If the UID was seen, it decides.
    let nameless = with(|record| record.pod.name.clear());
    assert_eq!(verdict(&nameless, &[(pod("web", U1), Phase::Active)], &[]), EXISTS);
}

#[test]
fn an_owner_without_a_pod_is_kept_unless_somebody_asks() {
    let unlabelled = with(|record| record.pod = record::Pod::default());
    assert_eq!(verdict(&unlabelled, &[], &[]), Verdict::Keep(Keep::Unlabelled));
    let asked = Graces { unlabelled: Some(Duration::from_secs(60)), ..GRACES };
    let after = |s| verdict_after(Duration::from_secs(s), asked, &unlabelled, &[], &[]);
    assert_eq!(after(59), Verdict::Keep(Keep::WithinGrace));
    assert_eq!(after(60), Verdict::Free(Free::Unlabelled));
    assert_eq!(Free::Unlabelled.name(), record::UNLABELLED, "`metes leaks` knows it by this name");
}

#[test]
fn a_node_that_is_cut_off_keeps_all_it_has() {
    let cut_off = [node(false, "b1")];
    for pods in [vec![], vec![(pod("web", U1), Phase::Finished)]] {
        assert_eq!(verdict(&holder(), &pods, &cut_off), Verdict::Keep(Keep::NodeNotReady));
    }
    // A node that is gone decides nothing; its pods do.
    assert_eq!(verdict(&holder(), &[(pod("web", U1), Phase::Active)], &[]), EXISTS);
    assert_eq!(verdict(&holder(), &[], &[node(true, "b1")]), GONE);
}

#[test]
fn another_boot_alone_frees_nothing() {
    let pods = [(pod("web", U1), Phase::Active)];
    let replaced = with(|record| record.replaced = true);
    let of_no_boot = with(|record| (record.replaced, record.boot) = (true, None));
    for (holder, nodes, expected) in [
        (holder(), vec![node(true, "b2")], EXISTS),
        (replaced.clone(), vec![node(true, "b1")], EXISTS),
        (replaced.clone(), vec![node(true, "")], EXISTS),
        (replaced.clone(), vec![], EXISTS),
        (of_no_boot, vec![node(true, "b2")], EXISTS),
        (replaced.clone(), vec![node(true, "b2")], Verdict::Free(Free::SandboxReplaced)),
        (replaced, vec![node(false, "b2")], Verdict::Keep(Keep::NodeNotReady)),
    ] {
        assert_eq!(verdict(&holder, &pods, &nodes), expected, "{holder:?} {nodes:?}");
    }
}

#[test]
fn graces_must_have_passed() {
    let finished = [(pod("web", U1), Phase::Finished)];
    let rebooted = [node(true, "b2")];
    for (pods, grace, reason) in [(&[][..], 300, Free::PodGone), (&finished[..], 3600, Free::PodFinished)] {
        let judged = |seen_for| verdict_after(seen_for, GRACES, &holder(), pods, &rebooted);
        assert_grace(grace, Keep::WithinGrace, judged, reason);
    }
    let at_once = Graces { gone: Duration::ZERO, ..GRACES };
    assert_eq!(verdict_after(Duration::ZERO, at_once, &holder(), &[], &rebooted), GONE);
    // Orphans are remembered for longer than the longest grace.
    for longest in 0..5 {
        let grace = |index| Duration::from_secs(if index == longest { 9 } else { index });
        let graces = Graces {
            gone: grace(0),
            ready: grace(1),
            unknown_node: grace(2),
            finished: grace(3),
            unlabelled: Some(grace(4)),
            machine: Duration::ZERO,
        };
        assert_eq!(graces.longest().as_secs(), 9, "{graces:?}");
    }
}

#[test]
fn where_a_del_is_still_due_an_orphan_has_more_time() {
    let replaced = with(|record| record.replaced = true);
    let of_no_boot = with(|record| record.boot = None);
    for (holder, node, grace) in [
        (holder(), node(true, "b1"), 1800),
        (of_no_boot.clone(), node(true, "b1"), 1800),
        (holder(), node(true, ""), 1800),
        (holder(), node(true, "b2"), 300),
        (replaced, node(true, "b2"), 300),
        (holder(), out_of_service(false), 300),
        (of_no_boot, out_of_service(false), 300),
        (holder(), out_of_service(true), 1800),
    ] {
        let judged = |seen_for| verdict_after(seen_for, GRACES, &holder, &[], std::slice::from_ref(&node));
        assert_grace(grace, Keep::WithinGrace, judged, Free::PodGone);
    }
    // A longer --grace applies there too.
    let patient = Graces { gone: Duration::from_secs(7200), ..GRACES };
    let judged = |seen_for| verdict_after(seen_for, patient, &holder(), &[], &[node(true, "b1")]);
    assert_grace(7200, Keep::WithinGrace, judged, Free::PodGone);
    // The kubelet reports a pod as finished only when nothing of it runs any more.
    let finished = [(pod("web", U1), Phase::Finished)];
    let judged = |seen_for| verdict_after(seen_for, GRACES, &holder(), &finished, &[node(true, "b1")]);
    assert_grace(3600, Keep::WithinGrace, judged, Free::PodFinished);
}

#[test]
fn a_node_that_is_out_of_service_has_lost_its_boot() {
    let runs = [(pod("web", U1), Phase::Active)];
    let replaced = with(|record| record.replaced = true);
    for (holder, pods, node, expected) in [
        (holder(), &[][..], out_of_service(false), GONE),
        (holder(), &runs[..], out_of_service(false), EXISTS),
        (replaced.clone(), &runs[..], out_of_service(false), Verdict::Free(Free::SandboxReplaced)),
        // Its kubelet reports that it works. The taint then does not count.
        (replaced, &runs[..], out_of_service(true), EXISTS),
        (holder(), &[][..], node(false, "b1"), Verdict::Keep(Keep::NodeNotReady)),
    ] {
        assert_eq!(verdict(&holder, pods, std::slice::from_ref(&node)), expected, "{holder:?} {node:?}");
    }
}

#[test]
fn a_node_that_kubernetes_never_had_may_be_another_clusters() {
    let judged = |holder: Holder, pods: Vec<(Pod, Phase)>, remembered: &[&str]| {
        let mut world = Pods::for_holders(std::slice::from_ref(&holder));
        pods.iter().for_each(|(pod, phase)| world.see(pod, *phase));
        let mut nodes = Nodes::default();
        remembered.iter().for_each(|name| nodes.remember((*name).to_owned()));
        move |seen_for| judge(orphaned(&holder, &world, &nodes, &GRACES), seen_for)
    };
    let finished = || vec![(pod("web", U1), Phase::Finished)];
    for (holder, pods, reason) in
        [(holder(), vec![], Free::PodGone), (without_uid(), finished(), Free::PodFinished)]
    {
        assert_grace(86_400, Keep::NodeUnknown, judged(holder.clone(), pods.clone(), &[]), reason);
        assert_grace(86_400, Keep::NodeUnknown, judged(holder, pods, &["n2"]), reason);
    }
    // If a node is gone, its pods are gone too.
    assert_grace(300, Keep::WithinGrace, judged(holder(), vec![], &["n1"]), Free::PodGone);
    // The pod decides which cluster it is.
    assert_grace(3600, Keep::WithinGrace, judged(holder(), finished(), &[]), Free::PodFinished);
    let runs = vec![(pod("web", U1), Phase::Active)];
    assert_eq!(judged(holder(), runs, &[])(LONG), EXISTS);
}

#[test]
fn a_claims_record_goes_by_its_claim_alone() {
    let judged = |holder: &Holder, claims: Option<&[&str]>, pods: &[(Pod, Phase)]| {
        let mut world = Pods::for_holders(std::slice::from_ref(holder));
        pods.iter().for_each(|(pod, phase)| world.see(pod, *phase));
        if let Some(claims) = claims {
            claims.iter().for_each(|uid| world.see_claim(uid));
            world.no_more_claims();
        }
        judge(orphaned(holder, &world, &Nodes::default(), &GRACES), LONG)
    };
    let other = "11111111-4f50-6172-8394-a5b6c7d8e9f0";
    for pods in [vec![], vec![(pod("web", "u9"), Phase::Active)], vec![(pod("web", "u9"), Phase::Finished)]] {
        for (claims, expected) in [
            (None, Verdict::Keep(Keep::ClaimUnknown)),
            (Some(&[CLAIM, other][..]), Verdict::Keep(Keep::ClaimExists)),
            (Some(&[other][..]), Verdict::Free(Free::ClaimGone)),
            (Some(&[][..]), Verdict::Free(Free::ClaimGone)),
        ] {
            assert_eq!(judged(&of_claim(), claims, &pods), expected, "{claims:?} {pods:?}");
        }
    }
    let mut unnamed = of_claim();
    unnamed.record.as_mut().expect("it has one").pod.namespace = "../x".into();
    assert_eq!(judged(&unnamed, Some(&[]), &[]), Verdict::Keep(Keep::PodUnnamed));
    // Owners that a runtime makes are not a claim's: they have a pod's UID, or a container id in another form.
    let mut with_uid = of_claim();
    with_uid.record.as_mut().expect("it has one").pod.uid = U1.parse().ok();
    assert_eq!(judged(&with_uid, None, &[]), GONE);
    for id in ["c1", &CLAIM.replace('-', "0"), &CLAIM[1..], &format!("{CLAIM}0"), &CLAIM.replace('b', "g")] {
        let mut sandbox = of_claim();
        sandbox.owner.container_id = id.parse().expect("a container id");
        assert!(!sandbox.is_of_claim(), "{id}");
        assert_eq!(judged(&sandbox, Some(&[]), &[]), GONE, "{id}");
    }
    assert_grace(
        1800,
        Keep::WithinGrace,
        |seen_for| {
            let mut world = Pods::for_holders(&[of_claim()]);
            world.no_more_claims();
            let mut nodes = Nodes::default();
            nodes.see(node(true, "b1"));
            judge(orphaned(&of_claim(), &world, &nodes, &GRACES), seen_for)
        },
        Free::ClaimGone,
    );
}

#[test]
fn every_reason_has_a_name_of_its_own_and_is_explained() {
    let names = Keep::ALL.iter().map(|why| why.name()).chain(Free::ALL.iter().map(|why| why.name()));
    let distinct: std::collections::BTreeSet<_> =
        names.clone().filter(|name| *name != "unlabelled").collect();
    assert_eq!(distinct.len() + 2, names.clone().count());
    let explained = include_str!("../../../docs/reconciler.md");
    for name in names {
        assert!(explained.contains(&format!("`{name}`")), "docs/reconciler.md does not explain {name}");
    }
}

prop_compose! {
    fn some_holder()(
        stamp in prop_oneof![Just(Stamp::Ours), Just(Stamp::Other), Just(Stamp::None)],
        uid in prop::sample::select(vec!["", U1, U2, "s1"]),
        name in prop::sample::select(vec!["", "a", "b", "A/b"]),
        boot in prop::sample::select(vec![None, Some("b1"), Some("b2")]),
        replaced: bool,
        decodes in prop::bool::weighted(0.9),
    ) -> Holder {
        let mut holder = with(|record| {
            record.stamp = stamp;
            record.pod.uid = uid.parse().ok();
            record.pod.name = name.into();
            if name.is_empty() {
                record.pod.namespace.clear();
            }
            record.boot = boot.map(str::to_owned);
            record.replaced = replaced;
        });
        holder.record = holder.record.filter(|_| decodes);
        holder
    }
}

prop_compose! {
    fn some_pod()(
        name in prop::sample::select(vec!["a", "b"]),
        uid in prop::sample::select(vec![U1, U2]),
        is_static: bool,
        finished: bool,
    ) -> (Pod, Phase) {
        let static_uids = if is_static { vec!["s1".to_owned()] } else { Vec::new() };
        (Pod { static_uids, ..pod(name, uid) }, if finished { Phase::Finished } else { Phase::Active })
    }
}

proptest! {
    /// The promise, as an operator would put it: what a live pod may use is never freed.
    #[test]
    fn nothing_of_a_live_pod_is_ever_freed(
        holder in some_holder(),
        pods in prop::collection::vec(some_pod(), 0..4),
        nodes in prop::collection::vec(
            (any::<bool>(), prop::bool::weighted(0.2), prop::sample::select(vec!["", "b1", "b2"])), 0..2),
        seen_for in 0_u64..200_000,
        unlabelled in prop::option::of(0_u64..10_000),
    ) {
        let nodes: Vec<Node> = nodes
            .into_iter()
            .map(|(ready, out_of_service, boot)| Node { out_of_service, ..node(ready, boot) })
            .collect();
        let graces = Graces { unlabelled: unlabelled.map(Duration::from_secs), ..GRACES };
        // The API never lists one pod in two phases. If it did, the last phase would count.
        let mut listed: Vec<(Pod, Phase)> = Vec::new();
        for (pod, phase) in pods {
            let is_another =
                |other: &Pod| other.uid != pod.uid && other.name != pod.name && other.static_uids.is_empty();
            if listed.iter().all(|(other, _)| is_another(other)) {
                listed.push((pod, phase));
            }
        }
        let verdict = verdict_after(Duration::from_secs(seen_for), graces, &holder, &listed, &nodes);
        let Verdict::Free(reason) = verdict else { return Ok(()) };
        let record = holder.record.as_ref().expect("what does not decode is never freed");
        prop_assert_eq!(record.stamp, Stamp::Ours);
        let node = nodes.last();
        prop_assert!(node.is_none_or(|node| node.ready || node.out_of_service), "its node is cut off");
        let is_of = |boot: &str| record.boot.as_deref().is_none_or(|of| boot.is_empty() || boot == of);
        let grace = match (reason, node) {
            (Free::Unlabelled, _) => graces.unlabelled.expect("else such are never freed"),
            (Free::PodFinished, node) if node.is_some() || record.pod.uid.is_some() => graces.finished,
            (_, None) => graces.unknown_node,
            (_, Some(node)) if node.ready && is_of(&node.boot) => graces.ready,
            _ => graces.gone,
        };
        prop_assert!(Duration::from_secs(seen_for) >= grace, "{seen_for} s are too few");
        let is_at_work = node.is_some_and(|node| node.ready && is_of(&node.boot));
        let may_be_static = record.pod.uid.as_ref().is_some_and(|uid| uid.as_str() == "s1");
        prop_assert!(reason != Free::PodGone || !may_be_static || !is_at_work, "a static pod may run");
        let is_its_pod = |pod: &Pod| match record.pod.uid.as_ref().map_or("", PodUid::as_str) {
            "" => pod.name == record.pod.name,
            uid => pod.uid == uid || pod.static_uids.iter().any(|known| known == uid),
        };
        let runs = listed.iter().any(|(pod, phase)| is_its_pod(pod) && *phase == Phase::Active);
        let is_over = |node: &Node| (node.out_of_service && !node.ready) || !is_of(&node.boot);
        let died_with_its_boot = record.replaced && node.is_some_and(is_over);
        prop_assert!(!runs || died_with_its_boot, "its pod runs");
        if record.pod.is_unknown() {
            prop_assert_eq!(reason, Free::Unlabelled);
        }
    }
}
