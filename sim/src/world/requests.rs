//! The fates of a request: it is sent, applied and answered, and each of these may happen late or never.

use std::time::Duration;

use metes_core::known::HighWater;
use metes_core::limits;
use metes_core::txn::{Compare, Op, Txn};
use metes_engine::kv::Failure;
use tokio::time::Instant;

use super::World;
use super::ids::ProcessId;
use super::plan::{LONG_LEASE, Theme};
use super::process::Work;
use super::tree::Changes;
use super::wire::{Answer, Ask, AskId, Sent, WatchId};
use crate::mutant::Guard;

/// A step that may happen next.
#[derive(Debug)]
pub(crate) enum Step {
    /// A request arrives.
    Apply(Request),
    /// An answer arrives.
    Answer {
        id: AskId,
        /// The time at which the process that asked stops waiting, and the answer that it gets then.
        give_up: Instant,
        failed: Answer,
        answer: Answer,
        /// The process that learns the outcome of its commit from the answer.
        settles: Option<ProcessId>,
    },
    /// A watch shows its next event.
    Show(WatchId),
    /// A watch ends, with or without events left to show.
    EndWatch(WatchId),
}

impl Step {
    /// A transaction that is on its way.
    pub(crate) fn transaction(&self) -> Option<&Txn> {
        match self {
            Step::Apply(Request { sent: Sent { ask: Ask::Txn(txn), .. }, .. }) if !txn.only_reads() => {
                Some(txn)
            }
            _ => None,
        }
    }

    /// The process that has sent a request that is on its way.
    pub(crate) fn sender(&self) -> Option<ProcessId> {
        if let Step::Apply(request) = self { Some(request.sent.process) } else { None }
    }

    /// A request that has not arrived yet never does.
    pub(crate) fn lose(&mut self) {
        if let Step::Apply(Request { sent, give_up, .. }) = self {
            let lost = || sent.ask.failed(Failure::Unknown("the store has stopped".to_owned()));
            *self = Step::Answer {
                id: sent.id,
                give_up: *give_up,
                failed: lost(),
                answer: lost(),
                settles: None,
            };
        }
    }

    /// True if its process has found out that it did not take effect.
    pub(crate) fn is_settled(&self) -> bool {
        matches!(self, Step::Apply(request) if request.is_settled)
    }
}

/// A request on its way.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) sent: Sent,
    pub(crate) work: Option<Work>,
    /// The time at which its sender gives it up.
    give_up: Instant,
    fate: Fate,
    /// Its process has found out that it did not take effect, and goes on from there.
    is_settled: bool,
    /// The store as the node of its process knew it when it was sent, where that is judged.
    known: Option<HighWater>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Applied,
    /// Applied; the answer is lost.
    AnswerLost,
    /// Applied; the answer comes after so much time.
    Slow(Duration),
    /// Applied; the answer says that it was not, for want of space.
    SpaceLate,
    /// Nobody waits for it any more.
    Late,
    /// Answered by a member that is behind.
    Stale,
}

impl World<'_> {
    /// Takes a request that was just made, and decides its fate.
    pub(crate) fn receive(&mut self, sent: Sent) {
        let work = self.processes.iter().find(|process| process.id == sent.process).map(|p| p.work.clone());
        let mut sent = sent;
        if let Ask::Txn(txn) = &mut sent.ask {
            self.renew_ticket(txn);
        }
        self.note(|| format!("#{} asks {}", sent.process, shown(&sent.ask)));
        if let Ask::Txn(txn) = &sent.ask {
            self.note_hints(txn, sent.process);
        }
        let is_silent = self.is_silent(&sent);
        let faults = if self.is_healing { Default::default() } else { self.plan.faults };
        let (chance, is_api, writes) = (&self.chance, sent.ask.is_of_api(), sent.ask.writes());
        let is_settling = matches!(&sent.ask, Ask::Txn(txn) if txn.step == "settle");
        let give_up = match writes {
            true => sent.until.min(Instant::now() + limits::REQUEST_ATTEMPT),
            false => sent.until,
        };
        let not_known = || Failure::Unknown("the world has lost it".to_owned());
        let answer_now = if is_silent {
            Some(("silent", Failure::Unreachable("it says nothing".into())))
        } else if is_api {
            chance.happens(faults.api).then(|| ("Kubernetes fails", not_known()))
        } else if chance.happens(faults.unreachable) {
            Some(("unreachable", Failure::Unreachable("the world does not let it".into())))
        } else if writes && chance.happens(faults.request_lost) {
            Some(("request lost", not_known()))
        } else {
            None
        };
        if let Some((fault, failure)) = answer_now {
            let answer = sent.ask.failed(failure);
            self.count(fault);
            self.note(|| format!("#{}: {fault}", sent.process));
            let failed = sent.ask.failed(not_known());
            self.steps.push(Step::Answer { id: sent.id, give_up, failed, answer, settles: None });
            return;
        }
        let chance = &self.chance;
        let fate = if is_api {
            Fate::Applied
        } else if writes && (chance.happens(faults.late) || self.strikes_with_delay(&sent)) {
            Fate::Late
        } else if writes && chance.happens(faults.answer_lost) {
            Fate::AnswerLost
        } else if writes && chance.happens(faults.space_late) {
            Fate::SpaceLate
        } else if chance.happens(faults.slow)
            || work.as_ref().is_some_and(|work| self.strikes_with_pause(work))
        {
            Fate::Slow(delay(chance))
        } else if matches!(sent.ask, Ask::Txn(_))
            && !writes
            // The answer of a CHECK tells its reads, and promises nothing more.
            && !matches!(work, Some(Work::Check { .. }))
            // A read that settles an outcome is linearizable, and no compare follows it.
            && !is_settling
            && chance.happens(faults.stale)
        {
            Fate::Stale
        } else {
            Fate::Applied
        };
        let is_late = fate == Fate::Late;
        if is_late {
            let answer = sent.ask.failed(not_known());
            let (process, failed) = (sent.process, sent.ask.failed(not_known()));
            self.steps.push(Step::Answer { id: sent.id, give_up, failed, answer, settles: None });
            self.note(|| format!("#{process}: comes late"));
        }
        let due = self.now() + self.lateness();
        let known = self.known_at(&sent);
        let request = Request { sent, work, give_up, fate, is_settled: false, known };
        if is_late {
            self.held.push((due, Step::Apply(request)));
        } else {
            self.steps.push(Step::Apply(request));
        }
    }

    /// A request arrives at the store, or at Kubernetes.
    pub(crate) fn apply(&mut self, mut request: Request) -> Result<(), String> {
        let answer = self.carry_out(&mut request)?;
        let Request { sent, give_up, fate, .. } = request;
        let failed = sent.ask.failed(Failure::Unknown("the world has lost the answer".to_owned()));
        let is_settling = matches!(&sent.ask, Ask::Txn(txn) if txn.step == "settle");
        let settles =
            (is_settling && fate != Fate::AnswerLost && fate != Fate::SpaceLate).then_some(sent.process);
        let answered = |answer| Step::Answer { id: sent.id, give_up, failed, answer, settles };
        match fate {
            Fate::Applied | Fate::Stale => self.steps.push(answered(answer)),
            Fate::Late => self.count("late"),
            Fate::AnswerLost => {
                self.count("answer lost");
                let lost = sent.ask.failed(Failure::Unknown("the world has lost the answer".to_owned()));
                self.note(|| format!("#{}: the answer is lost", sent.process));
                self.steps.push(answered(lost));
            }
            Fate::SpaceLate => {
                self.count("space noticed late");
                self.without_space.insert(sent.process);
                let refused = sent.ask.failed(Failure::NoSpace("the world says so".to_owned()));
                self.note(|| format!("#{}: applied, and answered with no space", sent.process));
                self.steps.push(answered(refused));
            }
            Fate::Slow(by) => {
                self.count("slow");
                let due = self.now() + by;
                self.held.push((due, answered(answer)));
            }
        }
        Ok(())
    }

    fn carry_out(&mut self, request: &mut Request) -> Result<Answer, String> {
        if self.goes_wrong(&request.sent) {
            return self.carry_out_wrong(&request.sent);
        }
        let Request { sent, work, fate, is_settled, known, .. } = request;
        let process = sent.process;
        let answer = match &mut sent.ask {
            Ask::Txn(txn) => {
                self.result.transactions += 1;
                if self.setup.collects {
                    self.result.guards.extend(Guard::all_of(txn, &self.shared.keys));
                }
                if let Some(mutant) = self.setup.mutant {
                    mutant.apply(txn, &self.shared.keys);
                }
                if *fate == Fate::Stale {
                    let behind = self.chance.below(6) as i64;
                    let revision = (self.model.revision() - behind).max(self.model.oldest());
                    self.count("stale");
                    let reply = self.model.stale(revision, txn);
                    if let Ok(reply) = &reply {
                        self.note_seen(txn, reply, process);
                    }
                    return Ok(Answer::Reply(reply));
                }
                self.note_trust(process, known.as_ref());
                self.note_queue(txn, process, work.as_ref());
                if txn.only_reads() {
                    let reply = self.model.txn(txn);
                    if let Ok(reply) = &reply {
                        self.note_seen(txn, reply, process);
                    }
                    Answer::Reply(reply)
                } else {
                    let facts =
                        self.before(txn, process, work.as_ref()).with_skipped(self.skips(txn, work.as_ref()));
                    if self.is_half_wrong(txn) {
                        return Err(format!(
                            "#{process} {}: half of the endpoints know nothing of it",
                            txn.step
                        ));
                    }
                    if let Some(why) = self.is_too_bold(process, txn) {
                        return Err(format!("#{process} {}: {why}", txn.step));
                    }
                    if let Some(why) = self.forgets(known.as_ref(), txn) {
                        return Err(format!("#{process} {}: {why}", txn.step));
                    }
                    let reply = self.model.txn(txn);
                    self.note(|| {
                        let came = reply.as_ref().map(|reply| (reply.succeeded, reply.revision));
                        format!("#{process} {} applied: {came:?}", txn.step)
                    });
                    if matches!(reply, Err(Failure::NoSpace(_))) {
                        self.without_space.insert(process);
                    }
                    if let Ok(reply) = &reply {
                        self.count_served(txn, reply);
                        self.wastes_little(txn, reply, process)?;
                        self.obeys(txn, reply, process, work.as_ref(), &facts)
                            .map_err(|why| format!("#{process} {}: {why}", txn.step))?;
                        if reply.succeeded && *is_settled {
                            return Err(format!(
                                "#{process} {} took effect after it was settled that it had not",
                                txn.step
                            ));
                        }
                        // A process that has given it up knows nothing of its effect.
                        if *fate != Fate::Late {
                            self.note_seen(txn, reply, process);
                        }
                    }
                    self.follow().map_err(|why| format!("#{process} {}: {why}", txn.step))?;
                    Answer::Reply(reply)
                }
            }
            Ask::Grant(lease, ttl) => {
                let mut granted = self.model.grant(*lease, *ttl);
                if self.is_left_out(Guard::LONG_FENCE) && *ttl == limits::FENCE_TTL {
                    granted = granted.map(|granted| granted.min(limits::FENCE_MOST));
                }
                if matches!(granted, Err(Failure::NoSpace(_))) {
                    self.without_space.insert(process);
                }
                Answer::Granted(granted)
            }
            Ask::Revoke(lease) => {
                if self.setup.collects {
                    self.result.guards.insert(Guard::REVOKE);
                }
                if self.setup.mutant.is_some_and(|mutant| mutant.0 == Guard::REVOKE) {
                    return Ok(Answer::Done(Ok(())));
                }
                let revoked = self.model.revoke(*lease);
                self.follow().map_err(|why| format!("#{process} revoke: {why}"))?;
                Answer::Done(match revoked {
                    Err(Failure::LeaseNotFound) => Ok(()),
                    other => other,
                })
            }
            Ask::Age(lease) => Answer::Age(Ok(self.model.lease_age(*lease))),
            Ask::Watch(keys) => {
                let keys = std::mem::take(keys);
                Answer::Watch(Ok(self.open_watch(keys)))
            }
            Ask::About => Answer::About(Ok(self.model.about())),
            ask => {
                let is_rogue = self.plan.rogue && sent.process % 2 == 0;
                let ask = ask.clone();
                self.ask_api(&ask, is_rogue)
            }
        };
        Ok(answer)
    }

    /// Judges the changes of the store, and lets watches know.
    pub(crate) fn follow(&mut self) -> Result<(), String> {
        if self.model.revision() == self.watched {
            return Ok(());
        }
        self.serve_watches();
        let mut changes = std::mem::take(&mut self.changes);
        let now = self.now();
        self.tree.follow(&self.model, &self.shared.keys, &mut changes)?;
        for change in changes.owners.drain(..) {
            self.truth.follow(&change, now)?;
        }
        let left = std::mem::take(&mut self.tree.left);
        self.left_at.extend(left.into_iter().map(|hold| (hold, now)));
        if let Some((before, after)) = changes.meta.take() {
            self.judge_meta(before.as_ref(), after.as_ref())?;
        }
        self.changes = Changes { owners: changes.owners, ..Changes::default() };
        Ok(())
    }

    /// A process has settled its commits: from now on none that is still on its way may take effect.
    pub(crate) fn settled(&mut self, process: ProcessId) {
        let held = self.held.iter_mut().map(|(_, step)| step);
        for step in self.steps.iter_mut().chain(held) {
            if let Step::Apply(request) = step
                && request.sent.process == process
                && let Ask::Txn(txn) = &request.sent.ask
                && matches!(txn.step, "commit" | "commit-first" | "free-first" | "assign")
            {
                request.is_settled = true;
            }
        }
    }

    /// The time that a request is on its way which nobody waits for: at times longer than its fence may stand.
    fn lateness(&self) -> Duration {
        // A fence that is granted now would stand for longer than the plan says.
        let is_long = self.long_leases_until.is_some() && self.chance.one_in(2);
        let longest = match is_long {
            true => *self.chance.pick(&[2 * self.plan.fenced(), LONG_LEASE]),
            false => self.plan.fenced() + self.plan.leases.prolonged(),
        };
        match self.plan.theme == Theme::Leases && self.chance.one_in(2) {
            true => Duration::from_millis(self.chance.between(20_000, longest.as_millis() as u64)),
            false => delay(&self.chance),
        }
    }

    /// A process that has waited for too long is told that the outcome is unknown.
    pub(crate) fn give_up_waiting(&mut self) {
        let now = Instant::now();
        let late = self.now();
        let mut index = 0;
        while index < self.steps.len() {
            match &self.steps[index] {
                Step::Answer { give_up, .. } if *give_up <= now => {
                    let Step::Answer { id, failed, .. } = self.steps.swap_remove(index) else { continue };
                    self.wire.answer(id, failed);
                }
                Step::Apply(request) if request.give_up <= now && self.wire.is_awaited(request.sent.id) => {
                    let Step::Apply(mut request) = self.steps.swap_remove(index) else { continue };
                    let failure = Failure::Unknown("no answer in time".to_owned());
                    self.wire.answer(request.sent.id, request.sent.ask.failed(failure));
                    if request.sent.ask.writes() && self.chance.one_in(2) {
                        request.fate = Fate::Late;
                        let due = late + self.lateness();
                        self.held.push((due, Step::Apply(request)));
                    }
                }
                _ => index += 1,
            }
        }
        for (due, step) in &mut self.held {
            if let Step::Answer { give_up, .. } = step
                && *give_up <= now
            {
                *due = late;
            }
        }
    }

    /// True if a process was told that there is no space.
    pub(crate) fn lacked_space(&self, id: ProcessId) -> bool {
        self.without_space.contains(&id)
    }

    /// The process of this id, if it is under way.
    pub(crate) fn process(&self, id: ProcessId) -> Option<&super::process::Process> {
        self.processes.iter().find(|process| process.id == id)
    }
}

/// The time that a message is on its way: from almost none to longer than any lease.
pub(crate) fn delay(chance: &crate::chance::Chance) -> Duration {
    let millis = match chance.below(10) {
        0..4 => chance.between(0, 50),
        4..7 => chance.between(50, 3_000),
        7..9 => chance.between(3_000, 40_000),
        _ => chance.between(40_000, 150_000),
    };
    Duration::from_millis(millis)
}

/// A request, for people.
fn shown(ask: &Ask) -> String {
    match ask {
        Ask::Txn(txn) => shown_txn(txn),
        Ask::Watch(keys) => keys.iter().map(|key| format!("watch({})", brief(key))).collect(),
        other => format!("{other:?}"),
    }
}

fn shown_txn(txn: &Txn) -> String {
    let mut text = format!("{}:", txn.step);
    for compare in &txn.compares {
        let (what, key, revision) = match compare {
            Compare::Create(key, revision) => ("create", key, *revision),
            Compare::Mod(key, revision) => ("mod", key, *revision),
            Compare::NotOlder(key, revision) => ("not older", key, *revision),
            Compare::Older(key, revision) => ("older", key, *revision),
            Compare::Value(key, _) => ("value", key, 0),
            Compare::Empty(key) => ("empty", key, 0),
        };
        text.push_str(&format!(" {what}({})={revision}", brief(key)));
    }
    for op in &txn.then {
        let (what, key) = match op {
            Op::Get(key) => ("get", key.as_slice()),
            Op::List(list) => ("list", list.start.as_slice()),
            Op::Tickets(queue, _) => ("tickets", queue.as_slice()),
            Op::Put(key, ..) => ("put", key.as_slice()),
            Op::Delete(key) => ("delete", key.as_slice()),
            Op::Nested(inner) => {
                text.push_str(&format!(" [{}]", shown_txn(inner)));
                continue;
            }
        };
        text.push_str(&format!(" {what}({})", brief(key)));
    }
    text
}

/// A key without the prefix that all keys have.
fn brief(key: &[u8]) -> String {
    let key = String::from_utf8_lossy(key);
    key.strip_prefix("/m/v1/").unwrap_or(&key).replace("00000000000000000000ffff", "~")
}
