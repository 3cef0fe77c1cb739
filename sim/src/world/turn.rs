//! Lets one thing happen after the other. Chance decides what happens next: a request is applied, an answer arrives, a
//! watch shows something, an operation begins, time passes, or something goes wrong.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use tokio::time::{Instant, advance, sleep_until};

use super::World;
use super::ids::ProcessId;
use super::plan::Theme;
use super::process::{Outcome, Process, Work};
use super::requests::Step;
use super::wire::Answer;

/// The longest that is waited for at once.
const LONG: Duration = Duration::from_secs(100);

impl World<'_> {
    /// True if all that is under way waits for its time.
    pub(crate) fn is_quiet(&self) -> bool {
        self.processes.is_empty() && self.steps.is_empty()
    }

    /// Lets one thing happen.
    pub(crate) async fn turn(&mut self) -> Result<(), String> {
        self.go_on()?;
        if !self.is_healing {
            self.happen()?;
            self.strike()?;
            if self.begin_something()? {
                return Ok(());
            }
        }
        if self.steps.is_empty() {
            return self.wait().await;
        }
        if self.chance.one_in(self.plan.pace) {
            let by = self.a_little_time();
            return self.pass(by).await;
        }
        let chosen = self.chance.index(self.steps.len());
        let step = self.steps.swap_remove(chosen);
        self.take(step)
    }

    /// A span of time: mostly less than a process waits for, and now and then more.
    fn a_little_time(&mut self) -> Duration {
        if !self.is_healing && self.chance.happens(self.plan.events.long_time) {
            self.count("long time");
            if self.plan.theme == Theme::Sticky && self.chance.one_in(2) {
                // A pass writes older sightings again.
                return Duration::from_secs(3_700);
            }
            return Duration::from_millis(self.chance.between(5_000, 100_000));
        }
        if self.plan.theme == Theme::Dead {
            // A law says how soon runs are answered.
            return Duration::from_micros(self.chance.between(50, 2_000));
        }
        // While the world heals, no process is ended because it is slow.
        let most = if self.is_healing { 99 } else { 100 };
        let micros = match self.chance.below(most) {
            0..80 => self.chance.between(50, 2_000),
            80..95 => self.chance.between(2_000, 30_000),
            95..99 => self.chance.between(30_000, 400_000),
            _ => self.chance.between(400_000, 2_500_000),
        };
        Duration::from_micros(micros)
    }

    /// Lets every process go on that can.
    fn go_on(&mut self) -> Result<(), String> {
        let mut due = std::mem::take(&mut self.due);
        loop {
            self.ready.take(&mut due);
            if due.is_empty() {
                break;
            }
            for id in due.drain(..) {
                self.let_go_on(id)?;
            }
        }
        self.due = due;
        Ok(())
    }

    fn let_go_on(&mut self, id: ProcessId) -> Result<(), String> {
        let Some(index) = self.processes.iter().position(|process| process.id == id) else { return Ok(()) };
        let now = self.now();
        let process = &mut self.processes[index];
        if process.paused.is_some() {
            process.is_due = true;
            return Ok(());
        }
        if !self.is_healing {
            if process.crash_at.is_some_and(|at| process.steps >= at) {
                self.count("crash");
                self.kill(index, "crashes");
                return Ok(());
            }
            let process = &mut self.processes[index];
            if let Some((at, pause)) = process.pause_at
                && process.steps >= at
            {
                process.pause_at = None;
                process.paused = Some(now + pause);
                process.is_due = true;
                self.count("pause");
                self.note(|| format!("#{id} stands still for {pause:?}"));
                return Ok(());
            }
            if process.forsaken_at.is_some_and(|at| process.steps >= at) && process.is_awaited.replace(false)
            {
                self.count("forsaken");
                self.note(|| format!("#{id}: nobody waits for it any more"));
            }
        }
        let has_ended = self.processes[index].go_on();
        for (process, outcome) in self.wire.take_reported() {
            self.reported(process, outcome)?;
        }
        if has_ended {
            let process = self.processes.swap_remove(index);
            self.ended(&process);
        }
        self.wire.take_sent(&mut self.sent);
        let mut sent = std::mem::take(&mut self.sent);
        for one in sent.drain(..) {
            self.receive(one);
        }
        self.sent = sent;
        Ok(())
    }

    /// Ends a process that has not come to its end.
    pub(crate) fn kill(&mut self, index: usize, how: &str) {
        let process = self.processes.swap_remove(index);
        self.note(|| format!("#{} {} {how}", process.id, process.work.name()));
        self.note_death(process.id);
        self.ended(&process);
    }

    fn ended(&mut self, process: &Process) {
        let id = process.id;
        match &process.work {
            Work::Add { sandbox, .. } => {
                self.truth.sandboxes[*sandbox].adds.retain(|add| *add != id);
                self.truth.excused.remove(&id);
            }
            Work::Del { sandbox, .. } => self.truth.sandboxes[*sandbox].dels -= 1,
            _ => {}
        }
    }

    fn reported(&mut self, id: ProcessId, outcome: Outcome) -> Result<(), String> {
        let Some(process) = self.processes.iter().find(|process| process.id == id) else { return Ok(()) };
        let (work, is_awaited) = (process.work.clone(), process.is_awaited.get());
        self.note(|| format!("#{id} {}: {outcome:?}", work.name()));
        self.heard(id, &work, is_awaited, outcome)
    }

    /// Nothing can happen now: waits for the next timer of a process or of the world.
    async fn wait(&mut self) -> Result<(), String> {
        let now = self.now();
        let pauses = self.processes.iter().filter_map(|process| process.paused);
        let first = self.held.iter().map(|(due, _)| *due).chain(pauses).chain(self.ends()).min();
        let until = Instant::now() + first.map_or(LONG, |first| first.saturating_sub(now)).min(LONG);
        let ready = self.ready.clone();
        let clock = sleep_until(until);
        tokio::pin!(clock);
        poll_fn(|context| match ready.poll_any(context) {
            Poll::Ready(()) => Poll::Ready(()),
            Poll::Pending => clock.as_mut().poll(context),
        })
        .await;
        self.time_has_passed()
    }

    /// Lets time pass.
    pub(crate) async fn pass(&mut self, by: Duration) -> Result<(), String> {
        advance(by).await;
        self.time_has_passed()
    }

    /// Leases end, pauses end, and steps that were held back until now may happen.
    pub(crate) fn time_has_passed(&mut self) -> Result<(), String> {
        let now = self.now();
        let passed = now - self.passed;
        if !passed.is_zero() {
            self.passed = now;
            self.model.pass_time(passed);
            self.follow()?;
        }
        let mut index = 0;
        while index < self.held.len() {
            if self.held[index].0 <= now {
                let (_, step) = self.held.swap_remove(index);
                self.steps.push(step);
            } else {
                index += 1;
            }
        }
        for process in &mut self.processes {
            if process.paused.is_some_and(|until| until <= now) {
                process.paused = None;
                if std::mem::take(&mut process.is_due) {
                    self.ready.push(process.id);
                }
            }
        }
        self.give_up_waiting();
        self.end_what_is_over()
    }

    fn take(&mut self, step: Step) -> Result<(), String> {
        match step {
            Step::Apply(request) => self.apply(request),
            Step::Answer { id, answer, settles, .. } => {
                if let Some(process) = settles
                    && matches!(&answer, Answer::Reply(Ok(_)))
                    && self.wire.is_awaited(id)
                {
                    self.settled(process);
                }
                self.wire.answer(id, answer);
                Ok(())
            }
            Step::Show(watch) => {
                self.show(watch);
                Ok(())
            }
            Step::EndWatch(watch) => {
                self.end_watch(watch);
                Ok(())
            }
        }
    }
}
