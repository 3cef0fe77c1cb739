//! The kill matrix: on a real etcd of three members, ADD, DEL, GC and the reconciler's pass are killed, or stopped for
//! longer than their lease. That happens before each request, after it was sent, and after it was answered; alone and
//! among others that queue in the same range. No invariant is broken, the next ADD is served at once, and the runtime's
//! next calls give everything back.
//!
//! `metes pool` and `metes hold` are killed at each request too: a change is made, or it is not.
//!
//! Runs that note the points they pass tell which ones there are. `KILL_CASES=<words>` plays only the cases whose names
//! contain the words.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::process::ExitStatusExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};
use std::{env, fmt, fs, thread};

use serde_json::{Value, json};

use support::{
    Cluster, KubeApi, Node, Outcome, Run, Running, Stopping, Trio, World, failing_metes, failing_reconciler,
    in_parallel, network_as, report, wait_for,
};

/// The number of cases that run at once; mostly they wait.
const AT_ONCE: usize = 20;
/// The least that etcd grants. Runs that are stopped have it, runs that are killed have the usual lease.
const LEASE_S: i64 = 2;
const NEXT_ADD_MAX: Duration = Duration::from_secs(3);
/// All cases together may keep two processors so busy that a time says nothing about metes, or that no run takes the
/// intended way. Such a case is played again, so many at a time and so often.
const CALM: usize = 2;
const TIMED_MAX: usize = 3;
/// So many of these tries must be in time: otherwise the machine is not the reason.
const IN_TIME_MIN: usize = 2;
const STEP_MAX: Duration = Duration::from_secs(30);
/// The time between two questions to etcd: each is a new connection.
const ASK_EVERY: Duration = Duration::from_millis(50);
/// The tries of a case: among others a run may take another way, which does not pass the point.
const TRIES_MAX: usize = 12;
/// The points of a run among others are those that this many runs have all passed.
const LOOKS: usize = 3;
/// The most runs that are tried: on a busy machine few take the intended way.
const REHEARSALS_MAX: usize = 30;
/// The first address of the range, which the subject is given, and as keys write it.
const FIRST: &str = "10.70.0.1";
const FIRST_HEX: &str = "0a460001";
/// The cooldown of that address: longer than the test takes.
const COOLDOWN: &str = "1h";
/// A pass that frees orphans at once.
const FREES: [&str; 4] = ["--grace", "0s", "--finished-grace", "0s"];
/// A pass that remembers orphans.
const REMEMBERS: [&str; 2] = ["--grace", "1h"];

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Subject {
    Add,
    Del,
    Gc,
    /// A pass that sees orphans for the first time.
    Look,
    /// A pass that frees them.
    Free,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Setting {
    Alone,
    /// Another run of its node has left hints in its range; of a DEL, its ADD has left its owner.
    Hinted,
    /// Others queue in its range, before it and behind it.
    Contended,
    /// The address of the subject's container cools when it is free.
    Cooling,
    /// Its address outlives its pod. An earlier pod of the name has had it, on another node.
    Sticky,
    /// And on this node, which has left a hint.
    StickyHinted,
    /// An earlier sandbox of its pod holds the address, and has left its owner on this node.
    TakesOver,
    /// The answer to its commit is lost.
    Unanswered,
    /// And then etcd cannot be reached.
    CutOff,
}

impl Setting {
    /// The faults that are not the end. Points before them are those of [`Setting::Alone`].
    fn plan(self, subject: Subject) -> Vec<&'static str> {
        match (self, subject) {
            (Setting::Alone | Setting::Hinted | Setting::Contended | Setting::Cooling, _) => vec![],
            (Setting::Sticky | Setting::StickyHinted | Setting::TakesOver, _) => vec![],
            // Answered, and so done for sure: what may be done or not leads one way or another.
            (Setting::Unanswered, Subject::Add) => vec!["commit#1.answered=error:unknown"],
            (Setting::Unanswered, _) => vec!["free#1.answered=error:unknown"],
            (Setting::CutOff, Subject::Add) => {
                vec!["commit#1.sent=error:unknown", "revoke#1.before=error:unreachable"]
            }
            (Setting::CutOff, _) => vec!["read#1.before=error:unreachable"],
        }
    }

    fn is_sticky(self) -> bool {
        matches!(self, Setting::Sticky | Setting::StickyHinted)
    }
}

/// All settings that are played, each with the least number of its cases: a little below the real one, which is some
/// 1,500 in all. A pair that is missing cannot happen: a pass that only looks stands in no queue.
const SETTINGS: [(Subject, Setting, usize); 23] = [
    (Subject::Add, Setting::Alone, 75),
    (Subject::Add, Setting::Hinted, 27),
    (Subject::Add, Setting::Contended, 55),
    (Subject::Add, Setting::Unanswered, 35),
    (Subject::Add, Setting::CutOff, 10),
    (Subject::Add, Setting::Sticky, 50),
    (Subject::Add, Setting::StickyHinted, 27),
    (Subject::Add, Setting::TakesOver, 27),
    (Subject::Del, Setting::Alone, 36),
    (Subject::Del, Setting::Hinted, 18),
    (Subject::Del, Setting::Contended, 42),
    (Subject::Del, Setting::Unanswered, 30),
    (Subject::Del, Setting::CutOff, 9),
    (Subject::Del, Setting::Cooling, 45),
    (Subject::Del, Setting::Sticky, 36),
    (Subject::Gc, Setting::Alone, 42),
    (Subject::Gc, Setting::Contended, 90),
    (Subject::Gc, Setting::Unanswered, 9),
    (Subject::Look, Setting::Alone, 62),
    (Subject::Free, Setting::Alone, 80),
    (Subject::Free, Setting::Contended, 105),
    (Subject::Free, Setting::Unanswered, 12),
    (Subject::Free, Setting::Cooling, 95),
];

/// The steps that must be among the points, or the settings are not what they say.
const LANDMARKS: [(Subject, Setting, &[&str]); 20] = [
    (Subject::Add, Setting::Alone, &["about", "found", "grant", "read", "commit", "mark", "print"]),
    (Subject::Add, Setting::Hinted, &["commit-first", "mark", "print"]),
    (Subject::Add, Setting::Contended, &["grant", "read", "ticket", "watch", "mark", "print"]),
    (Subject::Add, Setting::Unanswered, &["revoke", "settle", "print"]),
    (Subject::Add, Setting::CutOff, &["spool"]),
    (Subject::Add, Setting::Sticky, &["grant", "read", "commit", "mark", "print"]),
    (Subject::Add, Setting::StickyHinted, &["commit-first", "mark", "print"]),
    (Subject::Add, Setting::TakesOver, &["commit-first", "mark", "print"]),
    (Subject::Del, Setting::Alone, &["grant", "read", "free"]),
    (Subject::Del, Setting::Hinted, &["grant", "free-hinted"]),
    (Subject::Del, Setting::Sticky, &["grant", "read", "free"]),
    (Subject::Del, Setting::Contended, &["grant", "read", "ticket", "watch"]),
    (Subject::Del, Setting::Unanswered, &["read"]),
    (Subject::Del, Setting::CutOff, &["spool"]),
    (Subject::Del, Setting::Cooling, &["grant", "read", "free"]),
    (Subject::Gc, Setting::Contended, &["grant", "read", "ticket", "watch", "free"]),
    (Subject::Look, Setting::Alone, &["read", "identity", "grant", "sightings"]),
    (Subject::Free, Setting::Alone, &["read", "identity", "free"]),
    (Subject::Free, Setting::Contended, &["grant", "read", "ticket", "watch", "free"]),
    (Subject::Free, Setting::Cooling, &["read", "identity", "grant", "free"]),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// Then a kubelet does its next calls.
    Killed,
    /// And the runtime tries the same ADD once more.
    Repeated,
    /// And nothing follows but the reconciler.
    Abandoned,
    Stopped,
    /// Stopped, and meanwhile the runtime has gone on without it: with a DEL after an ADD, with an ADD otherwise.
    Overtaken,
}

impl Fate {
    fn stops(self) -> bool {
        matches!(self, Fate::Stopped | Fate::Overtaken)
    }
}

#[derive(Clone, Debug)]
struct Case {
    subject: Subject,
    setting: Setting,
    point: String,
    fate: Fate,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { subject, setting, point, fate } = self;
        write!(f, "{subject:?} {setting:?} {point} {fate:?}")
    }
}

#[test]
#[allow(clippy::print_stdout, reason = "figures, for whoever asks for them with --nocapture")]
fn every_request_of_every_verb_may_be_the_last_one() {
    let _alone = support::alone();
    let trio = Trio::start();
    let began = Instant::now();
    let wanted = env::var("KILL_CASES").ok();
    let mut cases = all_cases(&trio);
    let all = cases.len();
    for (subject, setting, least) in SETTINGS {
        let count = cases.iter().filter(|case| (case.subject, case.setting) == (subject, setting)).count();
        println!("{subject:?} {setting:?}: {count} cases, at least {least}");
        assert!(count >= least, "only {count} cases of {subject:?} {setting:?}");
    }
    let known = names(&cases);
    cases.retain(|case| wanted.as_ref().is_none_or(|words| case.to_string().contains(words.as_str())));
    assert!(
        !cases.is_empty(),
        "KILL_CASES: no case has {:?} in its name; there are\n{known}",
        wanted.unwrap_or_default()
    );
    let played = in_parallel(AT_ONCE, &cases, |case| play(&trio, case));
    let again: Vec<&Case> =
        cases.iter().zip(&played).filter(|(_, end)| end.asks_for_calm()).map(|(case, _)| case).collect();
    let latest = played.iter().filter_map(End::late).max();
    println!(
        "{} of {all} cases in {:?}; late or missed: {}, late by at most {latest:?}",
        cases.len(),
        began.elapsed(),
        again.len()
    );
    let again = in_parallel(CALM, again, |case| play_calmly(&trio, case));
    println!("all of it took {:?}", began.elapsed());
    report(played.into_iter().chain(again).map(End::what_is_wrong));
}

/// The names of all cases, those with one point in one line.
fn names(cases: &[Case]) -> String {
    let of_point = cases.chunk_by(|one, next| one.point == next.point && one.setting == next.setting);
    let line = |cases: &[Case]| {
        let fates: Vec<String> = cases.iter().map(|case| format!("{:?}", case.fate)).collect();
        let Case { subject, setting, point, .. } = &cases[0];
        format!("{subject:?} {setting:?} {point} {}", fates.join("|"))
    };
    of_point.map(line).collect::<Vec<_>>().join("\n")
}

/// Every point of every subject in every setting, with every fate that makes sense there.
fn all_cases(trio: &Trio) -> Vec<Case> {
    let looks = SETTINGS.iter().flat_map(|setting| (0..LOOKS).map(move |_| *setting));
    let looked = in_parallel(AT_ONCE, looks, |(subject, setting, _)| rehearse(trio, subject, setting));
    let mut cases = Vec::new();
    for ((subject, setting, _), looks) in SETTINGS.into_iter().zip(looked.chunks(LOOKS)) {
        let points = looks[0].iter().filter(|point| looks.iter().all(|look| look.contains(point)));
        for point in points {
            let fates = fates(subject, point).into_iter();
            cases.extend(fates.map(|fate| Case { subject, setting, point: point.clone(), fate }));
        }
    }
    cases
}

/// The points of the subject on the intended way: its landmarks are on it, and among others it waits once. A run that
/// waits for longer than usual looks around, and passes more points, which another run need not.
fn rehearse(trio: &Trio, subject: Subject, setting: Setting) -> Vec<String> {
    let of_setting = LANDMARKS.iter().filter(|(one, other, _)| (*one, *other) == (subject, setting));
    let landmarks: Vec<&str> = of_setting.flat_map(|(_, _, steps)| steps.iter().copied()).collect();
    let mut points = Vec::new();
    for _ in 0..REHEARSALS_MAX {
        points = Scene::new(trio, subject, setting).rehearse(setting);
        let has = |step: &&str| points.iter().any(|point| point.split('#').next() == Some(step));
        if landmarks.iter().all(has) && !points.iter().any(|point| point.starts_with("watch#2")) {
            return points;
        }
    }
    panic!("{subject:?} {setting:?} does not pass all of {landmarks:?}, or waits twice: {points:?}");
}

fn fates(subject: Subject, point: &str) -> Vec<Fate> {
    let mut fates = vec![Fate::Killed, Fate::Stopped];
    if matches!(subject, Subject::Add | Subject::Del | Subject::Gc) {
        fates.push(Fate::Overtaken);
    }
    let may_hold = ["commit", "settle", "spool", "mark", "print"].iter().any(|step| point.starts_with(step));
    if subject == Subject::Add {
        fates.push(Fate::Repeated);
    }
    if subject == Subject::Add && may_hold {
        fates.push(Fate::Abandoned);
    }
    fates
}

/// The end of a case.
enum End {
    Whole,
    /// All is as it should be, but for the time that the next ADD took.
    Late(Duration),
    /// It took another way than the one with its point.
    Missed,
    Wrong(String),
}

impl End {
    fn late(&self) -> Option<Duration> {
        if let End::Late(took) = self { Some(*took) } else { None }
    }

    /// True if the machine may have been too busy to tell.
    fn asks_for_calm(&self) -> bool {
        matches!(self, End::Late(_) | End::Missed)
    }

    /// The fault. Cases that ask for calm are played again, and that says the rest.
    fn what_is_wrong(self) -> Option<String> {
        if let End::Wrong(what) = self { Some(what) } else { None }
    }
}

fn play(trio: &Trio, case: &Case) -> End {
    for _ in 0..TRIES_MAX {
        match catch_unwind(AssertUnwindSafe(|| Scene::new(trio, case.subject, case.setting).play(case))) {
            Ok(End::Missed) => {}
            Ok(end) => return end,
            Err(panic) => {
                let text = panic.downcast_ref::<String>().cloned();
                let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
                return End::Wrong(format!("{case}: {}", text.unwrap_or_default()));
            }
        }
    }
    End::Missed
}

/// Plays a case a few times more that was late or missed its point among many: it must be in time most of them.
fn play_calmly(trio: &Trio, case: &Case) -> End {
    let mut in_time = 0;
    let mut took = Vec::new();
    for _ in 0..TIMED_MAX {
        match play(trio, case) {
            End::Late(late) => took.push(late),
            End::Whole => in_time += 1,
            End::Missed => {
                return End::Wrong(format!("{case}: not passed in {TRIES_MAX} tries, though it was calm"));
            }
            wrong @ End::Wrong(_) => return wrong,
        }
        if in_time == IN_TIME_MIN {
            return End::Whole;
        }
    }
    End::Wrong(format!("{case}: the next ADD was late again: {took:?}"))
}

/// A prefix of its own, and the addresses that are known to be held there.
struct Scene {
    subject: Subject,
    setting: Setting,
    world: World,
    /// The node of the others, beside the subject's own.
    other: Node,
    /// The file with the points that the subject has passed.
    list: PathBuf,
    /// Answers that still hold: container and address.
    told: Mutex<BTreeMap<String, String>>,
}

impl Scene {
    fn new(trio: &Trio, subject: Subject, setting: Setting) -> Self {
        let world = World::of(Cluster::on_trio(trio), KubeApi::shared());
        world.node.change_host_file(json!({"gc_grace_s": 0}));
        let other = world.cluster.node("other");
        let list = world.cluster.folder().join("passed");
        let scene = Self { subject, setting, world, other, list, told: Mutex::default() };
        scene.prepare();
        if (subject, setting) == (Subject::Add, Setting::Hinted) {
            scene.tell("before", &scene.add_other(&scene.world.node, "before").run());
        }
        scene
    }

    /// "s" is the container of the subject, "y" is one that it must leave alone.
    fn prepare(&self) {
        match self.subject {
            Subject::Add if self.setting.is_sticky() => {
                let node = if self.setting == Setting::Sticky { &self.other } else { &self.world.node };
                let earlier = node.add("earlier").pod(&self.world.namespace, "s", "uid-earlier");
                assert_eq!(earlier.config(&self.config()).run().address(), FIRST);
                node.del("earlier").config(&self.config()).run().silent();
            }
            Subject::Add if self.setting == Setting::TakesOver => {
                self.tell("older", &self.add_for_pod("older").run());
            }
            Subject::Add => {}
            Subject::Del => {
                self.tell("s", &self.add_subject().run());
                if self.setting != Setting::Hinted {
                    self.world.node.forget_owners();
                }
            }
            Subject::Gc => {
                self.tell("s", &self.add_subject().run());
                self.tell("y", &self.world.attach_as("y", "y", "uid-y").run());
            }
            Subject::Look | Subject::Free => {
                self.tell("s", &self.add_subject().run());
                let pod = self.world.living("y");
                self.tell("y", &self.world.attach(&pod).run());
            }
        }
    }

    fn add_subject(&self) -> Run {
        self.add_for_pod("s")
    }

    /// An ADD for a container of the subject's pod.
    fn add_for_pod(&self, container: &str) -> Run {
        self.world.attach_as(container, "s", &self.uid_of_subject()).config(&self.config())
    }

    fn uid_of_subject(&self) -> String {
        format!("uid-s-{}", self.world.namespace)
    }

    fn config(&self) -> Value {
        let mut config = World::config();
        if self.setting == Setting::Cooling {
            config["ipam"]["cooldown"] = json!(COOLDOWN);
        }
        if self.setting.is_sticky() {
            config["ipam"]["sticky"] = json!("pod");
        }
        config
    }

    /// An ADD of somebody else: of no pod, and of another network of CNI's, so that no GC and no pass is about it.
    fn add_other(&self, node: &Node, container: &str) -> Run {
        node.add(container).config(&network_as("1.0.0", "others", World::config()["ipam"].clone()))
    }

    fn del(&self, node: &Node, container: &str) -> Run {
        self.told.lock().expect("no case shares it").remove(container);
        node.del(container).config(&World::config())
    }

    fn gc(&self) -> Run {
        let mut config = World::config();
        config["cniVersion"] = json!("1.1.0");
        config["cni.dev/valid-attachments"] = json!([{"containerID": "y", "ifname": "eth0"}]);
        self.world.node.gc().config(&config)
    }

    fn tell(&self, container: &str, outcome: &Outcome) {
        let mut told = self.told.lock().expect("no case shares it");
        told.insert(container.to_owned(), outcome.address());
    }

    /// The subject with failure points, on its way.
    fn start(&self, plan: &str, lease_s: Option<i64>) -> Running {
        let _ = fs::remove_file(&self.list);
        let mut env =
            vec![("METES_FAIL", plan.to_owned()), ("METES_FAIL_LIST", self.list.display().to_string())];
        env.extend(lease_s.map(|s| ("METES_FAIL_LEASE", s.to_string())));
        let flags: &[&str] = if self.subject == Subject::Look { &REMEMBERS } else { &FREES };
        let run = match self.subject {
            Subject::Add => self.add_subject(),
            // As a runtime calls it, with the pod.
            Subject::Del => {
                self.del(&self.world.node, "s").pod(&self.world.namespace, "s", &self.uid_of_subject())
            }
            Subject::Gc => self.gc(),
            Subject::Look | Subject::Free => {
                let pass = self.world.reconciler(&self.world.api).args(flags).program(failing_reconciler());
                return env.into_iter().fold(pass, |pass, (name, value)| pass.env(name, value)).spawn();
            }
        };
        env.into_iter().fold(run.program(failing_metes()), |run, (name, value)| run.env(name, value)).spawn()
    }

    /// The points of the subject when nothing happens to it.
    fn rehearse(&self, setting: Setting) -> Vec<String> {
        let (subject, others) = self.with_others(setting, "", None);
        let outcome = subject.wait();
        let is_expected = match (self.subject, setting) {
            (Subject::Add, Setting::CutOff) => outcome.error_code() == Some(11),
            _ => outcome.succeeded(),
        };
        assert!(is_expected, "{:?} {setting:?}: {outcome}", self.subject);
        self.all_served(others);
        self.world.cluster.leave_unclean();
        let points = passed(&self.list).into_iter().filter(|line| !line.starts_with("lease "));
        let plan = setting.plan(self.subject);
        let Some(last) = plan.last().and_then(|entry| entry.split('=').next()) else {
            return points.collect();
        };
        points.skip_while(|point| point != last).skip(1).collect()
    }

    /// The subject, and the others that queue where it does.
    fn with_others(
        &self,
        setting: Setting,
        plan: &str,
        lease_s: Option<i64>,
    ) -> (Running, Vec<(&'static str, Running)>) {
        let plan = setting.plan(self.subject).into_iter().chain([plan]).collect::<Vec<_>>().join(",");
        if setting != Setting::Contended {
            return (self.start(&plan, lease_s), Vec::new());
        }
        let head = self.head_of_queue();
        let mut subject = self.start(&plan, lease_s);
        wait_for("the subject to queue, stop or end", STEP_MAX, || {
            let is_waiting = passed(&self.list).iter().any(|line| line == "watch#1.answered");
            let is_over = subject.has_stopped() || !subject.is_running();
            if is_waiting || is_over { Ok(()) } else { Err("it is on its way".to_owned()) }
        });
        let before = self.tickets();
        let mut runs = vec![
            ("here", self.add_other(&self.world.node, "here")),
            ("there", self.add_other(&self.other, "there")),
        ];
        // A DEL gives up after less than two seconds and lets those behind it go on. Where the subject's ticket stays
        // for half a minute, because it is killed, nothing but the patience of the others may help them.
        if lease_s.is_some() {
            runs.push(("first", self.del(&self.other, "first")));
        }
        let mut others: Vec<_> = runs.into_iter().map(|(name, run)| (name, run.spawn())).collect();
        let all = before + others.len();
        self.poll("the others to queue", || {
            let tickets = self.tickets();
            let has_ended = others.iter_mut().any(|(_, run)| !run.is_running());
            if tickets >= all || has_ended { Ok(()) } else { Err(format!("{tickets} of {all} tickets")) }
        });
        head.resume();
        others.push(("head", head));
        (subject, others)
    }

    /// An ADD that has stopped itself at the head of the queue.
    fn head_of_queue(&self) -> Running {
        let head = self.add_other(&self.other, "head");
        let win = || self.tell("first", &self.add_other(&self.other, "first").run());
        Stopping::at_head(&self.world.cluster, head, &[], win).run
    }

    fn tickets(&self) -> usize {
        self.world.cluster.store().keys("v1/ticket/").len()
    }

    fn poll<T>(&self, what: &str, mut look: impl FnMut() -> Result<T, String>) -> T {
        wait_for(what, STEP_MAX, || look().inspect_err(|_| thread::sleep(ASK_EVERY)))
    }

    fn play(&self, case: &Case) -> End {
        let action = if case.fate.stops() { "stop" } else { "kill" };
        let lease_s = case.fate.stops().then_some(LEASE_S);
        let (mut subject, others) =
            self.with_others(case.setting, &format!("{}={action}", case.point), lease_s);
        wait_for("the subject's end", STEP_MAX, || {
            let is_over = subject.has_stopped() || !subject.is_running();
            if is_over { Ok(()) } else { Err(format!("it has passed {:?}", passed(&self.list).last())) }
        });
        if passed(&self.list).iter().rfind(|line| !line.starts_with("lease ")) != Some(&case.point) {
            subject.wait();
            others.into_iter().for_each(|(_, run)| _ = run.wait());
            self.world.cluster.leave_unclean();
            return End::Missed;
        }
        let next = self.add_other(&self.other, "next").run();
        self.tell("next", &next);
        self.all_served(others);
        self.assert_whole(case);
        match case.fate {
            Fate::Killed | Fate::Repeated | Fate::Abandoned => {
                assert_eq!(subject.wait().status.signal(), Some(9));
                self.after_a_kill(case.fate);
            }
            Fate::Stopped | Fate::Overtaken => {
                if case.fate == Fate::Overtaken {
                    self.overtake();
                }
                self.let_leases_end();
                subject.resume();
                let outcome = subject.wait();
                self.after_a_stop(case.fate, &outcome);
            }
        }
        self.assert_whole(case);
        if next.elapsed <= NEXT_ADD_MAX {
            return End::Whole;
        }
        End::Late(next.elapsed)
    }

    fn all_served(&self, others: Vec<(&'static str, Running)>) {
        for (name, run) in others {
            let outcome = run.wait();
            if name == "first" { outcome.silent() } else { self.tell(name, &outcome) }
        }
        // A DEL behind a head that is dead may have no time left but for the spool.
        self.drain(&self.other);
    }

    /// Does the work of a kubelet after a run that died, or of the reconciler if the kubelet does nothing.
    fn after_a_kill(&self, fate: Fate) {
        match (self.subject, fate) {
            (Subject::Look | Subject::Free, _) | (_, Fate::Abandoned) => {
                for _ in 0..2 {
                    self.world.pass(FREES).ok();
                }
                self.forget("s");
                self.forget("older");
                let stray = &self.audit()["stray_bits"];
                assert_eq!(stray, &json!([]), "two passes left bits behind");
            }
            (Subject::Add | Subject::Del, _) => {
                if fate == Fate::Repeated {
                    self.tell("s", &self.add_subject().run());
                    self.assert_ledger(&[]);
                }
                self.del(&self.world.node, "s").run().silent();
            }
            (Subject::Gc, _) => self.collect(),
        }
        self.assert_ledger(&[]);
    }

    fn collect(&self) {
        self.gc().run().silent();
        self.forget("s");
    }

    fn forget(&self, container: &str) {
        self.told.lock().expect("no case shares it").remove(container);
    }

    /// The runtime has given the subject up.
    fn overtake(&self) {
        match self.subject {
            Subject::Add => self.del(&self.world.node, "s").run().silent(),
            _ => self.tell("s", &self.add_subject().run()),
        }
    }

    /// All leases that the subject was granted have ended, and so has one that began after it had stopped.
    fn let_leases_end(&self) {
        let store = self.world.cluster.store();
        let lines = passed(&self.list);
        let ids: Vec<i64> =
            lines.iter().filter_map(|line| line.strip_prefix("lease ")?.parse().ok()).collect();
        let witness = store.run(async |client| client.lease_grant(LEASE_S, None).await).id();
        self.poll("leases to end", || {
            let left = store.run(async |client| client.leases().await);
            // The leases of sightings and cooling addresses live on: they are no fences.
            let is_left = |id: i64| left.leases().iter().any(|lease| lease.id() == id) && !self.is_long(id);
            if is_left(witness) || ids.iter().any(|id| is_left(*id)) {
                Err("not yet".to_owned())
            } else {
                Ok(())
            }
        });
    }

    fn is_long(&self, lease: i64) -> bool {
        let store = self.world.cluster.store();
        let told = store.run(async |client| client.lease_time_to_live(lease, None).await);
        told.granted_ttl() > 100
    }

    fn after_a_stop(&self, fate: Fate, outcome: &Outcome) {
        match (self.subject, fate) {
            (Subject::Add, Fate::Overtaken) => self.drain(&self.world.node),
            (Subject::Add, _) => {
                let address = self.address_or_error(outcome);
                self.drain(&self.world.node);
                self.assert_ledger(&[]);
                self.tell("s", &self.add_subject().run());
                let again = self.told.lock().expect("no case shares it")["s"].clone();
                assert!(address.is_none_or(|address| address == again), "another address than in {outcome}");
                self.assert_ledger(&[]);
                self.del(&self.world.node, "s").run().silent();
            }
            (Subject::Del | Subject::Gc, Fate::Overtaken) => {
                self.silent_or_error(outcome);
                self.drain(&self.world.node);
            }
            (Subject::Del, _) => {
                self.silent_or_error(outcome);
                self.del(&self.world.node, "s").run().silent();
                assert_eq!(self.world.node.spooled_dels().len(), 0);
            }
            (Subject::Gc, _) => {
                self.silent_or_error(outcome);
                self.collect();
            }
            (Subject::Look | Subject::Free, _) => {
                for _ in 0..2 {
                    self.world.pass(FREES).ok();
                }
                self.forget("s");
            }
        }
        self.assert_ledger(&[]);
    }

    /// The result of an ADD that was stopped.
    fn address_or_error(&self, outcome: &Outcome) -> Option<String> {
        if !outcome.succeeded() {
            outcome.error(outcome.error_code().unwrap_or_default());
            return None;
        }
        self.tell("s", outcome);
        Some(outcome.address())
    }

    fn silent_or_error(&self, outcome: &Outcome) {
        match outcome.succeeded() {
            true => outcome.silent(),
            false => _ = outcome.error(outcome.error_code().unwrap_or_default()),
        }
    }

    /// Later runs on a node carry out the DELs that were spooled there.
    fn drain(&self, node: &Node) {
        wait_for("the spool to be empty", STEP_MAX, || {
            let left = node.spooled_dels().len();
            if left == 0 {
                return Ok(());
            }
            node.del("nobody").config(&World::config()).run().silent();
            Err(format!("{left} left"))
        });
    }

    /// The subject's first address is either held by it still or again, or it cools.
    fn assert_cools(&self) {
        let rows = self.other.list();
        let mut holders = rows.iter().filter(|row| row["address"] == FIRST).map(|row| &row["container_id"]);
        let store = self.world.cluster.store();
        let cools = store.keys("v1/net/default/cooling/").iter().any(|key| key.ends_with(FIRST_HEX));
        assert!(holders.all(|holder| holder == "s"), "it was given away: {rows:?}");
        let is_held = rows.iter().any(|row| row["address"] == FIRST);
        assert!(is_held != cools, "{FIRST} is held: {is_held}, it cools: {cools}");
    }

    /// The address that outlives the subject's pod is held, by nobody else than the subject.
    fn assert_stays(&self) {
        let rows = self.other.list();
        let holders: Vec<&Value> =
            rows.iter().filter(|row| row["address"] == FIRST).map(|row| &row["container_id"]).collect();
        assert!(holders.len() == 1 && (holders[0].is_null() || holders[0] == "s"), "{rows:?}");
    }

    /// Every container that was told an address holds it and nothing else, and nobody else holds any. Nobody knows
    /// whether the `unsure` ones hold theirs.
    fn assert_ledger(&self, unsure: &[&str]) {
        let text = |row: &Value, key: &str| row[key].as_str().unwrap_or_default().to_owned();
        let rows = self.other.list();
        // A hold that no container uses.
        let is_unused = |row: &&Value| self.setting.is_sticky() && row["container_id"].is_null();
        let rows = rows.iter().filter(|row| !is_unused(row));
        let mut held: Vec<(String, String)> =
            rows.map(|row| (text(row, "container_id"), text(row, "address"))).collect();
        held.sort();
        // The subject takes over what the earlier sandbox of its pod had.
        if held.iter().any(|(holder, _)| holder == "s") {
            self.forget("older");
        }
        let mut told = self.told.lock().expect("no case shares it").clone();
        for container in unsure {
            match held.iter().find(|(holder, _)| holder == container) {
                None => _ = told.remove(*container),
                Some((_, address)) => _ = told.entry((*container).to_owned()).or_insert(address.clone()),
            }
        }
        let addresses: BTreeSet<&String> = told.values().collect();
        assert_eq!(addresses.len(), told.len(), "an address was told twice: {told:?}");
        assert_eq!(held, Vec::from_iter(told), "what is held is not what was told");
    }

    /// No invariant is broken, at any time. Work that the subject left undone is no fault.
    fn assert_whole(&self, case: &Case) {
        let audit = self.audit();
        // Only a DEL that is short of time leaves a bit behind, and among others there is one.
        if case.setting != Setting::Contended && case.subject != Subject::Del {
            assert_eq!(audit["stray_bits"], json!([]), "{audit:#}");
        }
        self.assert_ledger(&["s"]);
        if case.setting == Setting::Cooling {
            self.assert_cools();
        }
        if case.setting.is_sticky() {
            self.assert_stays();
        }
    }

    fn audit(&self) -> Value {
        // A violation is a failure of its own accord.
        let audit = self.other.cli(["check", "-o", "json"]).ok();
        self.world.cluster.leave_unclean();
        audit
    }
}

fn passed(list: &Path) -> Vec<String> {
    let text = fs::read_to_string(list).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// A change of pools: the texts before it, its arguments, and its stdin.
type PoolChange = (&'static [&'static str], &'static [&'static str], &'static str);

const POOL: &str = "pool: a\nranges: [{range: 10.70.0.0/29}, {range: 10.71.0.0/29, state: closed}]\n";
const MOVED: &str = "pool: a\nranges: [{range: 10.72.0.0/29}]\n";
const CLOSED: &str = "pool: b\nranges: [{range: 10.73.0.0/29, state: closed}]\n";
const TWO: &str = "pool: b\nranges: [{range: 10.73.0.0/29}]\n---\npool: c\nranges: [{range: 10.74.0.0/29}]\n";

const POOL_CHANGES: [PoolChange; 5] = [
    // It also founds the store.
    (&[], &["apply", "--yes", "-f", "-"], POOL),
    (&[POOL], &["apply", "--yes", "-f", "-"], MOVED),
    (&[POOL], &["apply", "--yes", "-f", "-"], TWO),
    (&[POOL], &["drain", "a", "--range", "10.70.0.0/29", "--yes"], ""),
    (&[POOL, CLOSED], &["delete", "b", "--yes"], ""),
];

/// An operator who changes pools of a prefix of their own.
struct PoolScene {
    cluster: Cluster,
    node: Node,
    list: PathBuf,
}

impl PoolScene {
    fn new(trio: &Trio, before: &[&str]) -> Self {
        let cluster = Cluster::on_trio(trio);
        let node = cluster.node("operator");
        let list = cluster.folder().join("passed");
        let scene = Self { cluster, node, list };
        if !before.is_empty() {
            let applied = scene.node.pool(&["apply", "--yes", "-f", "-"], &before.join("---\n"));
            assert!(applied.succeeded(), "{applied}");
            // A container that holds an address keeps it, whatever becomes of the pool.
            scene.add().ok();
        }
        scene
    }

    fn add(&self) -> Outcome {
        self.node.add("c").config(&network_as("1.0.0", "net", json!({"pool": "a"}))).run()
    }

    fn change(&self, (_, arguments, text): PoolChange, plan: &str) -> Outcome {
        let run = self.node.pool_run(arguments, text).program(failing_metes());
        run.env("METES_FAIL", plan).env("METES_FAIL_LIST", self.list.display().to_string()).run()
    }

    fn pools(&self) -> BTreeMap<String, Vec<u8>> {
        self.cluster.store().entries("v1/pool/").into_iter().collect()
    }
}

/// Each pool is as it was or as it is to be, whole. The command, given once more, finishes it.
#[test]
fn a_change_of_pools_that_is_killed_is_made_or_not() {
    let _alone = support::alone();
    let trio = Trio::start();
    let mut cases = Vec::new();
    for change in POOL_CHANGES {
        let scene = PoolScene::new(&trio, change.0);
        let before = scene.pools();
        let done = scene.change(change, "");
        assert!(matches!(done.status.code(), Some(0 | 3)), "{done}");
        let after = scene.pools();
        scene.cluster.assert_clean();
        let points = passed(&scene.list);
        assert!(points.iter().any(|point| point.starts_with("pool#1.")), "{points:?}");
        cases.extend(points.into_iter().map(|point| (change, point, before.clone(), after.clone())));
    }
    assert!(cases.len() > 40, "only {} cases", cases.len());
    let played = in_parallel(AT_ONCE, &cases, |(change, point, before, after)| {
        let scene = PoolScene::new(&trio, change.0);
        let killed = scene.change(*change, &format!("{point}=kill"));
        let is_killed = killed.status.signal() == Some(9);
        let has_founded = scene.cluster.store().get("v1/meta").is_some();
        let found = scene.pools();
        let is_whole = before.keys().chain(after.keys()).chain(found.keys()).all(|name| {
            let is = found.get(name);
            is == before.get(name) || is == after.get(name)
        });
        // The store is founded before: a command that is killed in between leaves its meta and nothing else.
        let is_founded = has_founded || change.0.is_empty() && found.is_empty();
        let again = scene.change(*change, "");
        // A pool that was deleted before the end is not there any more.
        let is_again =
            matches!(again.status.code(), Some(0 | 3)) || change.1[0] == "delete" && found == *after;
        let is_done = is_again && scene.pools() == *after;
        if !change.0.is_empty() {
            assert_eq!(scene.add().address(), "10.70.0.1");
        }
        scene.cluster.assert_clean();
        let is_right = is_killed && is_whole && is_founded && is_done;
        (!is_right).then(|| format!("{:?} at {point}: {found:?}: {killed} {again}", change.1))
    });
    report(played);
}

/// A command about a hold for the pods of `db-0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HoldChange {
    /// Made beforehand.
    Made,
    /// Made for the container that has the address.
    OfContainer,
    /// Ended, and no container uses it.
    Ended,
    /// Ended, and the container that uses it has the address itself.
    HandedOver,
}

/// An operator and a pod on a prefix of their own.
struct HoldScene {
    cluster: Cluster,
    node: Node,
    list: PathBuf,
}

impl HoldScene {
    fn new(trio: &Trio, change: HoldChange) -> Self {
        let cluster = Cluster::on_trio(trio);
        let node = cluster.node("n1");
        let list = cluster.folder().join("passed");
        let scene = Self { cluster, node, list };
        let made = scene.node.cli(["hold", "10.70.0.99", "--network", "default", "--force", "--note", "x"]);
        assert!(made.succeeded(), "{made}");
        match change {
            HoldChange::Made => {}
            HoldChange::OfContainer => _ = scene.add("c1", false).ok(),
            HoldChange::Ended => {
                scene.add("c1", true).ok();
                scene.node.del("c1").config(&scene.config(true)).run().silent();
            }
            HoldChange::HandedOver => _ = scene.add("c1", true).ok(),
        }
        scene
    }

    fn config(&self, is_sticky: bool) -> Value {
        let mut config = World::config();
        if is_sticky {
            config["ipam"]["sticky"] = json!("pod");
        }
        config
    }

    fn add(&self, container: &str, is_sticky: bool) -> Outcome {
        self.node.add(container).config(&self.config(is_sticky)).pod("prod", "db-0", container).run()
    }

    fn change(&self, change: HoldChange, plan: &str) -> Outcome {
        let arguments: &[&str] = match change {
            HoldChange::Made | HoldChange::OfContainer => {
                &["hold", FIRST, "--network", "default", "--pod", "prod/db-0", "--interface", "eth0"]
            }
            HoldChange::Ended | HoldChange::HandedOver => {
                &["hold", "--remove", FIRST, "--network", "default"]
            }
        };
        let run = self.node.cli_run(arguments.iter().copied()).program(failing_metes());
        run.env("METES_FAIL", plan).env("METES_FAIL_LIST", self.list.display().to_string()).run()
    }

    /// All that is stored of the hold, of its seat and of the container.
    fn stored(&self) -> Vec<String> {
        let store = self.cluster.store();
        let mut keys = store.keys("v1/owner/");
        keys.extend(store.keys("v1/seat/"));
        keys.extend(store.keys("v1/net/default/ip/"));
        keys
    }
}

#[test]
fn a_change_of_a_hold_that_is_killed_is_made_or_not() {
    let _alone = support::alone();
    let trio = Trio::start();
    let mut cases = Vec::new();
    for change in [HoldChange::Made, HoldChange::OfContainer, HoldChange::Ended, HoldChange::HandedOver] {
        let scene = HoldScene::new(&trio, change);
        let before = scene.stored();
        let done = scene.change(change, "");
        assert!(done.succeeded(), "{done}");
        let after = scene.stored();
        assert_ne!(before, after, "{change:?}");
        scene.cluster.assert_clean();
        cases.extend(
            passed(&scene.list).into_iter().map(|point| (change, point, before.clone(), after.clone())),
        );
    }
    assert!(cases.len() > 40, "only {} cases", cases.len());
    let played = in_parallel(AT_ONCE, &cases, |(change, point, before, after)| {
        let scene = HoldScene::new(&trio, *change);
        let killed = scene.change(*change, &format!("{point}=kill"));
        let found = scene.stored();
        scene.cluster.assert_clean();
        // A hold that was ended before the kill is not there any more.
        let again = scene.change(*change, "");
        let ends = matches!(change, HoldChange::Ended | HoldChange::HandedOver);
        let is_again = again.succeeded() || ends && found == *after;
        let is_whole = killed.status.signal() == Some(9) && [before, after].contains(&&found);
        let is_done = is_again && scene.stored() == *after;
        scene.cluster.assert_clean();
        (!is_whole || !is_done).then(|| format!("{change:?} at {point}: {found:?}: {killed} {again}"))
    });
    report(played);
}
