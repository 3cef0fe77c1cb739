//! The result of a soak.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use support::Outcome;

/// Counted while it runs.
#[derive(Debug)]
pub(crate) struct Report {
    seed: u64,
    /// By verb, and by code.
    ends: BTreeMap<(String, String), u64>,
    /// By kind.
    faults: BTreeMap<&'static str, u64>,
    longest_add: Duration,
    /// When an ADD found no free address: the smallest number of addresses that etcd held in the network, and the
    /// smallest number of owners there that nobody had begun to delete.
    fewest_when_full: Option<(usize, usize)>,
    pub(super) intervals: usize,
    pub(super) overlaps: usize,
    pub(super) violations: Vec<String>,
}

impl Report {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            seed,
            ends: BTreeMap::new(),
            faults: BTreeMap::new(),
            longest_add: Duration::ZERO,
            fewest_when_full: None,
            intervals: 0,
            overlaps: 0,
            violations: Vec::new(),
        }
    }

    pub(super) fn ended(&mut self, verb: &str, outcome: &Outcome, was_stopped: bool) {
        *self.ends.entry((verb.to_owned(), code(outcome))).or_default() += 1;
        if verb == "ADD" && !was_stopped {
            self.longest_add = self.longest_add.max(outcome.elapsed);
        }
    }

    pub(super) fn was_full(&mut self, held: usize, known: usize) {
        let (fewest, fewest_known) = self.fewest_when_full.unwrap_or((held, known));
        self.fewest_when_full = Some((fewest.min(held), fewest_known.min(known)));
    }

    pub(super) fn befell(&mut self, fault: &'static str) {
        *self.faults.entry(fault).or_default() += 1;
    }

    /// Nothing is wrong so far.
    pub(crate) fn is_sound(&self) -> bool {
        self.violations.is_empty()
    }

    /// Real plugin processes.
    pub(crate) fn processes(&self) -> u64 {
        self.ends.values().sum()
    }

    pub(crate) fn faults(&self) -> u64 {
        self.faults.values().sum()
    }
}

/// The error's code, how it was killed, or success.
pub(super) fn code(outcome: &Outcome) -> String {
    match (outcome.succeeded(), outcome.status.code()) {
        (true, _) => "ok".to_owned(),
        (false, None) => "killed".to_owned(),
        (false, Some(_)) => outcome.error_code().map_or("no answer".to_owned(), |code| code.to_string()),
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "processes    {}", self.processes())?;
        let mut verbs: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for ((verb, code), count) in &self.ends {
            verbs.entry(verb).or_default().push(format!("{code} {count}"));
        }
        for (verb, codes) in verbs {
            writeln!(f, "  {verb:<10} {}", codes.join(", "))?;
        }
        writeln!(f, "faults       {}", self.faults())?;
        for (fault, count) in &self.faults {
            writeln!(f, "  {count:>4} {fault}")?;
        }
        writeln!(f, "longest ADD  {:.1} s, of those that were not stopped", self.longest_add.as_secs_f64())?;
        if let Some((held, known)) = self.fewest_when_full {
            writeln!(
                f,
                "no address free: with {held} or more held, {known} or more of them by pods that stay"
            )?;
        }
        writeln!(f, "intervals    {}", self.intervals)?;
        writeln!(f, "overlaps     {}", self.overlaps)?;
        write!(f, "violations   {}", self.violations.len())?;
        if !self.is_sound() {
            write!(f, "\nseed {}", self.seed)?;
        }
        self.violations.iter().take(20).try_for_each(|violation| write!(f, "\n  {violation}"))
    }
}
