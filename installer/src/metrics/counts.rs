//! Counts the runs of the plugin by how they ended and how long they took. Pure.

use std::collections::BTreeMap;

use metes_config::cni::{Code, Verb};
use metes_node::runs::RunLine;
use metes_node::runs_reader::NewRuns;
use metes_serve::exposition::Exposition;

/// The upper bounds of the histogram, in microseconds, and as Prometheus shows them in seconds.
const BUCKETS: [(u64, &str); 12] = [
    (5_000, "0.005"),
    (10_000, "0.01"),
    (25_000, "0.025"),
    (50_000, "0.05"),
    (100_000, "0.1"),
    (250_000, "0.25"),
    (500_000, "0.5"),
    (1_000_000, "1"),
    (2_500_000, "2.5"),
    (5_000_000, "5"),
    (10_000_000, "10"),
    (20_000_000, "20"),
];
const DURATION: &str = "metes_node_run_duration_seconds";

/// The ends that are shown before there is one: a rate sees no increase from nothing to 1.
const FORESEEN: [(Verb, u16); 4] =
    [(Verb::Add, 0), (Verb::Add, Code::TryAgain as u16), (Verb::Del, 0), (Verb::Del, Code::TryAgain as u16)];

/// The runs since this process began.
pub(super) struct RunCounts {
    ended: BTreeMap<(Verb, u16), u64>,
    durations: BTreeMap<Verb, Durations>,
    unread: u64,
    is_suspect: bool,
}

#[derive(Default)]
struct Durations {
    /// The runs in each bucket, without those in the buckets below.
    within: [u64; BUCKETS.len()],
    count: u64,
    micros: u64,
}

impl Default for RunCounts {
    fn default() -> Self {
        Self {
            ended: FORESEEN.map(|end| (end, 0)).into(),
            durations: BTreeMap::new(),
            unread: 0,
            is_suspect: false,
        }
    }
}

impl RunCounts {
    pub(super) fn add(&mut self, new: &NewRuns) {
        self.unread += new.unreadable + u64::from(new.was_full);
        new.lines.iter().for_each(|line| self.add_run(line));
    }

    fn add_run(&mut self, line: &RunLine) {
        self.see_store(line);
        *self.ended.entry((line.verb, line.code)).or_default() += 1;
        let durations = self.durations.entry(line.verb).or_default();
        durations.count += 1;
        durations.micros = durations.micros.saturating_add(line.micros);
        if let Some(at) = BUCKETS.iter().position(|(most, _)| line.micros <= *most) {
            durations.within[at] += 1;
        }
    }

    /// Only an ADD and a STATUS that succeed show that the store is sound: DEL works in a suspect one, too.
    pub(super) fn see_store(&mut self, line: &RunLine) {
        match (line.verb, line.code) {
            _ if line.is_suspect => self.is_suspect = true,
            (Verb::Add | Verb::Status, 0) => self.is_suspect = false,
            _ => {}
        }
    }

    pub(super) fn show(&self, text: &mut Exposition) {
        text.head(
            "metes_node_runs_total",
            "counter",
            "Runs of the plugin by their verb and CNI code, 0 for success.",
        );
        for ((verb, code), count) in &self.ended {
            let code = code.to_string();
            text.sample("metes_node_runs_total", &[("verb", verb.name()), ("code", &code)], count);
        }
        text.head(DURATION, "histogram", "Durations of these runs, from start to answer.");
        self.durations.iter().for_each(|(verb, durations)| durations.show(verb.name(), text));
        text.head(
            "metes_node_runs_unread_total",
            "counter",
            "Damaged lines of runs, and how often so many runs were found that further ones left none.",
        );
        text.sample("metes_node_runs_unread_total", &[], self.unread);
        text.gauge(
            "metes_node_mark_suspect",
            "1 if the last run that could tell found etcd to contradict what this node knows of it.",
            u8::from(self.is_suspect),
        );
    }
}

impl Durations {
    fn show(&self, verb: &str, text: &mut Exposition) {
        let mut sum = 0;
        for ((_, most), within) in BUCKETS.iter().zip(self.within) {
            sum += within;
            text.sample(&format!("{DURATION}_bucket"), &[("verb", verb), ("le", most)], sum);
        }
        text.sample(&format!("{DURATION}_bucket"), &[("verb", verb), ("le", "+Inf")], self.count);
        let seconds = std::time::Duration::from_micros(self.micros).as_secs_f64();
        text.sample(&format!("{DURATION}_sum"), &[("verb", verb)], seconds);
        text.sample(&format!("{DURATION}_count"), &[("verb", verb)], self.count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(verb: Verb, code: u16, micros: u64) -> RunLine {
        RunLine { verb, code, micros, is_suspect: false }
    }

    fn shown(counts: &RunCounts) -> String {
        let mut text = Exposition::default();
        counts.show(&mut text);
        text.into_text()
    }

    #[test]
    fn runs_are_counted_by_verb_code_and_duration() {
        let mut counts = RunCounts::default();
        let lines = vec![
            line(Verb::Add, 0, 5_000),
            line(Verb::Add, 0, 5_001),
            line(Verb::Add, 100, 30_000_000),
            line(Verb::Del, 0, 1),
        ];
        counts.add(&NewRuns { lines, unreadable: 2, was_full: true });
        let text = shown(&counts);
        for sample in [
            "metes_node_runs_total{verb=\"ADD\",code=\"0\"} 2",
            "metes_node_runs_total{verb=\"ADD\",code=\"11\"} 0",
            "metes_node_runs_total{verb=\"ADD\",code=\"100\"} 1",
            "metes_node_run_duration_seconds_bucket{verb=\"ADD\",le=\"0.005\"} 1",
            "metes_node_run_duration_seconds_bucket{verb=\"ADD\",le=\"0.01\"} 2",
            "metes_node_run_duration_seconds_bucket{verb=\"ADD\",le=\"20\"} 2",
            "metes_node_run_duration_seconds_bucket{verb=\"ADD\",le=\"+Inf\"} 3",
            "metes_node_run_duration_seconds_sum{verb=\"ADD\"} 30.010001",
            "metes_node_run_duration_seconds_count{verb=\"DEL\"} 1",
            "metes_node_runs_unread_total 3",
        ] {
            assert!(text.lines().any(|line| line == sample), "{sample} is not in\n{text}");
        }
    }

    #[test]
    fn a_store_is_suspect_until_a_run_finds_it_sound() {
        let mut counts = RunCounts::default();
        let suspect = |verb, code| RunLine { is_suspect: true, ..line(verb, code, 1) };
        for (line, expected) in [
            (line(Verb::Add, 102, 1), 0),
            (suspect(Verb::Add, 102), 1),
            (line(Verb::Del, 0, 1), 1),
            (line(Verb::Add, 11, 1), 1),
            (line(Verb::Status, 0, 1), 0),
            (suspect(Verb::Status, 50), 1),
            (line(Verb::Add, 0, 1), 0),
        ] {
            counts.see_store(&line);
            let text = shown(&counts);
            assert!(text.contains(&format!("\nmetes_node_mark_suspect {expected}\n")), "{line}: {text}");
        }
    }
}
