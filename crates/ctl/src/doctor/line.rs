//! A line of what a doctor says, and how it is printed. Pure.

use std::fmt::Write;

use serde::Serialize;

use crate::table::{Screen, many, printable};

/// The state of something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Verdict {
    Ok,
    /// Nothing needs to be done.
    Note,
    /// Runs do their work, and somebody should look.
    Warn,
    /// Runs fail, or will.
    Bad,
}

impl Verdict {
    fn word(self) -> &'static str {
        match self {
            Verdict::Ok => "ok",
            Verdict::Note => "note",
            Verdict::Warn => "warn",
            Verdict::Bad => "bad",
        }
    }

    fn shown(self, screen: Screen) -> String {
        let word = format!("{:4}", self.word());
        match self {
            Verdict::Ok => screen.green(&word),
            Verdict::Note => word,
            Verdict::Warn => screen.yellow(&word),
            Verdict::Bad => screen.red(&word),
        }
    }
}

/// The thing that a line is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Check {
    HostFile,
    User,
    File,
    Endpoint,
    Cluster,
    Certificate,
    Clock,
    Users,
    Read,
    Write,
    Store,
    Mark,
    Name,
    Machine,
    Others,
    Spool,
    Outage,
}

impl Check {
    /// The title of the section that has its lines.
    fn title(self) -> &'static str {
        match self {
            Check::HostFile | Check::User | Check::File => "HOST FILE",
            Check::Endpoint | Check::Cluster | Check::Users => "ETCD",
            Check::Certificate | Check::Clock => "CERTIFICATES AND CLOCK",
            Check::Read | Check::Write | Check::Store | Check::Mark => "STORE",
            Check::Name | Check::Machine | Check::Others | Check::Spool | Check::Outage => "NODE",
        }
    }
}

/// A line about one thing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct CheckLine {
    pub(super) check: Check,
    pub(super) verdict: Verdict,
    pub(super) what: String,
    /// The remedy; none if there is nothing to do.
    pub(super) remedy: Option<String>,
}

impl CheckLine {
    pub(super) fn ok(check: Check, what: impl Into<String>) -> Self {
        Self { check, verdict: Verdict::Ok, what: what.into(), remedy: None }
    }

    pub(super) fn note(check: Check, what: impl Into<String>) -> Self {
        Self { verdict: Verdict::Note, ..Self::ok(check, what) }
    }

    pub(super) fn warn(check: Check, what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { verdict: Verdict::Warn, ..Self::bad(check, what, remedy) }
    }

    pub(super) fn bad(check: Check, what: impl Into<String>, remedy: impl Into<String>) -> Self {
        let remedy = Some(remedy.into()).filter(|remedy| !remedy.is_empty());
        Self { check, verdict: Verdict::Bad, what: what.into(), remedy }
    }
}

/// All lines, and the worst verdict among them.
#[derive(Debug, Serialize)]
pub(super) struct Diagnosis {
    pub(super) verdict: Verdict,
    checks: Vec<CheckLine>,
}

impl Diagnosis {
    pub(super) fn of(checks: Vec<CheckLine>) -> Self {
        let worst = checks.iter().map(|line| line.verdict).max();
        Self { verdict: worst.unwrap_or(Verdict::Ok), checks }
    }

    /// For people: one screen.
    pub(super) fn words(&self, screen: Screen) -> String {
        let (mut text, mut title) = (String::new(), "");
        for line in &self.checks {
            if line.check.title() != title {
                title = line.check.title();
                let _ = writeln!(text, "{}", screen.bold(title));
            }
            let _ = writeln!(text, "  {}  {}", line.verdict.shown(screen), printable(&line.what));
            if let Some(remedy) = &line.remedy {
                let _ = writeln!(text, "        what to do: {}", printable(remedy));
            }
        }
        let _ = writeln!(text, "{}", self.sum());
        text
    }

    fn sum(&self) -> String {
        let count = |verdict| self.checks.iter().filter(|line| line.verdict == verdict).count();
        match (count(Verdict::Bad), count(Verdict::Warn)) {
            (0, 0) => "all is well".to_owned(),
            (0, warned) => format!("nothing is bad; {}", many(warned, "warning")),
            (bad, 0) => format!("{bad} bad"),
            (bad, warned) => format!("{bad} bad, {}", many(warned, "warning")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_stand_under_titles_and_remedies_under_lines() {
        let lines = vec![
            CheckLine::ok(Check::HostFile, "/x, of root"),
            CheckLine::note(Check::File, "nothing"),
            CheckLine::warn(Check::Spool, "2 DELs \u{1b}[2J wait", "run a DEL"),
        ];
        let diagnosis = Diagnosis::of(lines);
        assert_eq!(
            diagnosis.words(Screen::default()),
            "HOST FILE\n  ok    /x, of root\n  note  nothing\nNODE\n  warn  2 DELs \u{fffd}[2J wait\n        \
             what to do: run a DEL\nnothing is bad; 1 warning\n"
        );
        assert_eq!(diagnosis.verdict, Verdict::Warn);
        let coloured = Screen { has_colour: true, ..Screen::default() };
        assert!(diagnosis.words(coloured).contains("\u{1b}[33mwarn\u{1b}[0m"));
        assert_eq!(Diagnosis::of(Vec::new()).words(Screen::default()), "all is well\n");
        let bad = CheckLine::bad(Check::Read, "denied", "");
        assert_eq!(bad.remedy, None);
        assert_eq!(
            serde_json::to_value(Diagnosis::of(vec![bad])).expect("JSON"),
            serde_json::json!({
                "verdict": "bad",
                "checks": [{"check": "read", "verdict": "bad", "what": "denied", "remedy": null}],
            })
        );
    }
}
