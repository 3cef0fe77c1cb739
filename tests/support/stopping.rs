//! A run that stops itself at failure points.

use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use metes_core::limits;

use super::{Cluster, Outcome, Run, Running, failing_metes, wait_for};

const PATIENCE: Duration = Duration::from_secs(30);

/// A run that stops itself at points on its way.
pub struct Stopping {
    pub run: Running,
    /// The file with the points that it has passed.
    list: PathBuf,
}

impl Stopping {
    /// Starts a run of the plugin. `name` is another one for each such run of a cluster.
    pub fn start(cluster: &Cluster, name: &str, run: Run, points: &[&str]) -> Self {
        let list = cluster.folder().join(format!("passed-by-{name}"));
        let plan: Vec<String> = points.iter().map(|point| format!("{point}=stop")).collect();
        let run = run.program(failing_metes()).env("METES_FAIL", plan.join(","));
        Self { run: run.env("METES_FAIL_LIST", &list).spawn(), list }
    }

    /// Starts an ADD and stops it at the head of the queue, and then at `points`. Its first commit takes long, and a
    /// run of `win` is quicker. So it queues.
    pub fn at_head(cluster: &Cluster, run: Run, points: &[&str], win: impl FnOnce()) -> Self {
        let stops = ["commit#1.before", "commit#2.before"];
        let mut head = Self::start(cluster, "head", run, &[&stops, points].concat());
        head.at(stops[0]);
        let began = Instant::now();
        win();
        // The stop is part of the time that the commit takes.
        thread::sleep(limits::CLEAR_WITHIN.saturating_sub(began.elapsed()));
        head.run.resume();
        head.at(stops[1]);
        assert_eq!(cluster.store().keys("v1/ticket/").len(), 1, "the head queues");
        head
    }

    /// The lines about what it has passed.
    pub fn passed(&self) -> Vec<String> {
        fs::read_to_string(&self.list).unwrap_or_default().lines().map(str::to_owned).collect()
    }

    /// Waits until it has stopped at the point.
    pub fn at(&mut self, point: &str) {
        wait_for(point, PATIENCE, || {
            let passed = self.passed();
            assert!(self.run.is_running(), "it has ended before {point}: {passed:?}");
            let is_there = self.run.has_stopped() && passed.iter().any(|line| line == point);
            if is_there { Ok(()) } else { Err(format!("it has passed {passed:?}")) }
        });
    }

    /// Lets it go on to its end.
    pub fn end(self) -> Outcome {
        self.run.resume();
        self.run.wait()
    }
}
