//! The goals, judged.
//!
//! Each is a ratio of one run, or a number, with an upper bound. A goal that a run did not measure is not judged.

use crate::options::Section;
use crate::results::Results;
use crate::samples::{float, median};

/// A goal, judged.
#[derive(Debug)]
pub(crate) struct Mark {
    pub(crate) what: String,
    /// The median of the runs.
    pub(crate) value: f64,
    /// One value for each run that measured it.
    pub(crate) values: Vec<f64>,
    pub(crate) limit: f64,
}

impl Mark {
    pub(crate) fn is_met(&self) -> bool {
        self.value <= self.limit
    }
}

pub(crate) fn judge(runs: &[Results]) -> Vec<Mark> {
    rules().into_iter().filter_map(|rule| rule.judge(runs)).collect()
}

struct Rule {
    what: String,
    of: Box<Judge>,
}

/// The value in one run and its limit there.
type Judge = dyn Fn(&Results) -> Option<(f64, f64)>;

impl Rule {
    fn new(what: impl Into<String>, limit: f64, value: impl Fn(&Results) -> Option<f64> + 'static) -> Self {
        Self { what: what.into(), of: Box::new(move |results| Some((value(results)?, limit))) }
    }

    fn judge(self, runs: &[Results]) -> Option<Mark> {
        let (values, limits): (Vec<f64>, Vec<f64>) = runs.iter().filter_map(&self.of).unzip();
        let limit = median(limits);
        (!values.is_empty()).then(|| Mark {
            what: self.what,
            value: median(values.iter().copied()),
            values,
            limit,
        })
    }
}

fn rules() -> Vec<Rule> {
    let mut rules = processes(Section::Single, "");
    rules.push(ratio(Section::Single, "ADD p50 / host-local ADD p50", ("add", "host-local-add"), 50, 0.5));
    let alone = ("add-alone", "floor");
    rules.push(ratio(Section::Single, "ADD p50 of a node that adds alone / floor p50", alone, 50, 1.2));
    rules.push(ratio(
        Section::Single,
        "ADD p50 of a quiet node / floor p50",
        ("quiet-add", "floor"),
        50,
        1.45,
    ));
    let join = ("join", "add-alone");
    rules.push(ratio(
        Section::Single,
        "ADD p50 of a pod that comes back / of a node that adds alone",
        join,
        50,
        1.05,
    ));
    rules.push(ratio(Section::Single, "DEL p50 of such a pod / of another", ("leave", "del"), 50, 1.0));
    rules.push(failures(Section::Single, "failures of single processes"));
    for (name, what, limit) in [
        ("add-16", "ADDs over 16 networks", 1.6),
        ("add-1", "ADDs over one network", 2.0),
        ("del-16", "DELs over 16 networks", 1.8),
        ("del-1", "DELs over one network", 3.0),
        ("mixed-16", "ADDs and DELs over 16 networks", 2.0),
        ("mixed-1", "ADDs and DELs over one network", 3.0),
        ("join-1", "pods that come back on other nodes, over one network", 1.5),
    ] {
        rules.extend(storm(Section::Storms, name, what, limit));
    }
    // It may double, but not quadruple. The times are in floors, so that a machine that gets slower does not count.
    rules.push(Rule::new("ADDs over one network: wall of twice as many / wall", 2.5, |results| {
        let floors = |name| Some(results.storm(Section::Storms, name)?.to_floor());
        Some(2.0 * floors("add-1-double")? / floors("add-1")?)
    }));
    rules.push(failures(Section::Storms, "failures in storms"));
    rules.extend(processes(Section::Tls, "mTLS: "));
    rules.extend(storm(Section::Tls, "add-16", "mTLS: ADDs over 16 networks", 2.0));
    rules.push(failures(Section::Tls, "mTLS: failures"));
    rules.extend(pools());
    rules.extend(size());
    rules.extend(commands());
    rules.extend(process());
    rules.extend(cluster());
    rules.extend(slow());
    rules.extend(slices());
    rules.extend(deaths());
    rules.push(Rule::new("puts/s without new users / with two a second", 1.25, |results| {
        let puts = |name| results.number(Section::Identities, name);
        Some(puts("puts-quiet")? / puts("puts-new-users")?)
    }));
    rules
}

fn processes(section: Section, before: &str) -> Vec<Rule> {
    [
        ("ADD p50 / floor p50", ("add", "floor"), 50, 1.5),
        ("ADD p99 / floor p99", ("add", "floor"), 99, 2.5),
        ("DEL p50 / floor p50", ("del", "floor"), 50, 1.8),
        ("CHECK p50 / one-read floor p50", ("check", "read-floor"), 50, 1.3),
    ]
    .into_iter()
    .map(|(what, names, percent, limit)| ratio(section, &format!("{before}{what}"), names, percent, limit))
    .collect()
}

fn storm(section: Section, name: &'static str, what: &str, limit: f64) -> [Rule; 2] {
    [
        wall(section, name, what, limit),
        Rule::new(format!("{what}: p99 of one / whole storm"), 0.1, move |results| {
            let storm = results.storm(section, name)?;
            Some(storm.each.percentile(99) / 1000.0 / storm.wall_s)
        }),
    ]
}

fn wall(section: Section, name: &'static str, what: &str, limit: f64) -> Rule {
    Rule::new(format!("{what}: wall / floor's wall"), limit, move |results| {
        Some(results.storm(section, name)?.to_floor())
    })
}

fn pools() -> Vec<Rule> {
    let ratios = [
        ("pool-2", "config-2", "ADD p50 from a pool of 2 ranges / from a configuration"),
        ("pool-200", "config-200", "ADD p50 from a pool of 200 ranges / from a configuration"),
        ("cooling", "pool-2", "ADD p50 beside 4,000 cooling addresses / beside none"),
    ];
    let mut rules: Vec<Rule> =
        ratios.into_iter().map(|(of, to, what)| ratio(Section::Pools, what, (of, to), 50, 1.2)).collect();
    rules.push(failures(Section::Pools, "failures with pools"));
    rules
}

/// The largest ratio with a third round trip; etcd's metrics tell if there was one.
const THIRD_TRIP: f64 = 1.4;
const TWO_TRIPS: f64 = 1.2;

fn size() -> Vec<Rule> {
    let held = [
        ("add-8", "requests-8", "ADD p50 in a filled /8 / in an empty network"),
        ("add-64", "requests-64", "ADD p50 in a filled /64 / in an empty network"),
        ("add-last", "requests-last", "ADD p50 of the last free address / in an empty network"),
    ];
    let mut rules: Vec<Rule> = held
        .into_iter()
        .map(|(name, requests, what)| Rule {
            what: what.to_owned(),
            of: Box::new(move |results| {
                let value =
                    p(results, Section::Size, name, 50)? / p(results, Section::Size, "add-empty", 50)?;
                let third = results.number(Section::Size, requests)? > 2.5;
                Some((value, if third { THIRD_TRIP } else { TWO_TRIPS }))
            }),
        })
        .collect();
    let number =
        |what, name, limit| Rule::new(what, limit, move |results| results.number(Section::Size, name));
    rules.push(number("bytes of etcd per held address", "bytes", 600.0));
    let waiting = ("add-others-wait", "add-nobody-waits");
    rules.push(ratio(Section::Size, "ADD p50 with 5,000 waiting elsewhere / with nobody", waiting, 50, 1.2));
    rules
}

/// Meant for a million addresses.
fn commands() -> Vec<Rule> {
    let more = |name: &'static str| {
        move |results: &Results| {
            let p50 = |size: &str| p(results, Section::Commands, &format!("{name}-{size}"), 50);
            Some(p50("many")? - p50("few")?)
        }
    };
    let number = |name: &'static str| move |results: &Results| results.number(Section::Commands, name);
    let usage = |results: &Results| Some(p(results, Section::Commands, "usage-many", 50)? / 1000.0);
    vec![
        Rule::new("`show ADDRESS`, ms more than with ten addresses", 20.0, more("show")),
        Rule::new("`list --network --limit 100`, ms more than with ten", 20.0, more("list")),
        Rule::new("`usage`, s", 2.0, usage),
        Rule::new("`check`, s", 20.0, number("check-many")),
        Rule::new("resident memory of `check`, MiB", 100.0, number("check-memory-many")),
    ]
}

fn process() -> Vec<Rule> {
    [
        ("resident memory of an ADD, MiB", "resident", 4.0),
        ("threads of an ADD", "threads", 1.0),
        ("size of the binary, MiB", "binary", 4.3),
        ("loaders that the binary needs (0: static)", "loaders", 0.0),
        ("symbol tables in the binary (0: stripped)", "symbols", 0.0),
    ]
    .into_iter()
    .map(|(what, name, limit)| Rule::new(what, limit, move |results| results.number(Section::Process, name)))
    .collect()
}

/// Goals for one failed member of three. It may add a refusal, one attempt to connect, and one attempt of a request.
fn cluster() -> Vec<Rule> {
    let differences = [
        ("add-killed", "ADD p99 with one of three members killed, ms more", 50.0),
        ("add-cut-off", "ADD p99 with one of three members cut off, ms more", 350.0),
        ("add-stopped", "ADD p99 with one of three members stopped, ms more", 1900.0),
    ];
    let difference = |(name, what, limit)| {
        Rule::new(what, limit, move |results| {
            Some(p(results, Section::Cluster, name, 99)? - p(results, Section::Cluster, "add-healthy", 99)?)
        })
    };
    let mut rules: Vec<Rule> = differences.into_iter().map(difference).collect();
    rules.push(failures(Section::Cluster, "failures with one of three members gone"));
    rules
}

fn slow() -> Vec<Rule> {
    let alone = ("add-5ms", "floor-5ms");
    let mut rules = vec![ratio(
        Section::Slow,
        "links of 5 ms: ADD p50 of a node that adds alone / floor p50",
        alone,
        50,
        1.2,
    )];
    for (name, what, limit) in [
        ("add-1-5ms", "links of 5 ms: ADDs over one network", 3.0),
        ("add-1-1ms", "links of 1 ms: ADDs over one network", 2.5),
        ("add-16-5ms", "links of 5 ms: ADDs over 16 networks", 2.0),
    ] {
        rules.push(wall(Section::Slow, name, what, limit));
    }
    rules.push(failures(Section::Slow, "failures on slow links"));
    rules
}

/// Ranges that share a page share its queue.
fn slices() -> Vec<Rule> {
    let number = |name: &'static str| move |results: &Results| results.number(Section::Slices, name);
    vec![
        Rule::new("ADDs from a /28 each in one /20: wall / that of one range", 2.0, |results| {
            Some(results.storm(Section::Slices, "add-slices")?.to_floor())
        }),
        Rule::new("ADDs from a /28 each in one /20: proposals of each", 4.0, number("add-slices-proposals")),
        Rule::new("ranges that share a page: bits that DELs have left", 0.0, number("left")),
        failures(Section::Slices, "failures of ranges that share a page"),
    ]
}

fn deaths() -> Vec<Rule> {
    let mut rules = Vec::new();
    for (links, after) in [("", ""), ("links of 5 ms: ", "-5ms")] {
        for (killed, limit) in [(2, 1.5), (10, 3.0)] {
            let name = format!("killed-{killed}{after}");
            let what = format!("{links}wall with {killed} % killed / with none");
            rules.push(Rule::new(what, limit, move |results| {
                Some(results.storm(Section::Deaths, &name)?.to_floor())
            }));
        }
        let name = format!("killed-10{after}");
        let what = format!("{links}failures among the living with 10 % killed");
        rules.push(Rule::new(what, 0.0, move |results| {
            Some(float(results.storm(Section::Deaths, &name)?.each.failures))
        }));
    }
    for (name, what) in [
        ("restarts", "ADDs that fail while members restart"),
        ("restarts-busy", "ADDs that fail while members restart, busy"),
    ] {
        rules.push(Rule::new(what, 0.0, move |results| {
            Some(float(results.sample(Section::Deaths, name)?.failures))
        }));
    }
    for (name, what) in [("far-takeover", "takeover"), ("far-repeat", "ADD again")] {
        let what = format!("{what} at 600 ms a request, in requests");
        rules.push(ratio(Section::Deaths, &what, (name, "far-floor"), 50, 4.0));
    }
    rules
}

fn ratio(
    section: Section,
    what: &str,
    (of, to): (&'static str, &'static str),
    percent: usize,
    limit: f64,
) -> Rule {
    Rule::new(what, limit, move |results| {
        Some(p(results, section, of, percent)? / p(results, section, to, percent)?)
    })
}

fn failures(section: Section, what: &str) -> Rule {
    Rule::new(what, 0.0, move |results| results.failures(section).map(float))
}

fn p(results: &Results, section: Section, name: &str, percent: usize) -> Option<f64> {
    Some(results.sample(section, name)?.percentile(percent))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Data;
    use crate::samples::{Storm, sample_of_ms};

    fn single(add_ms: u64) -> Results {
        let mut results = Results::default();
        for (name, ms) in [("floor", 10), ("add", add_ms), ("host-local-add", 40)] {
            results.add(Section::Single, name, name, Data::Times(sample_of_ms([ms]), None));
        }
        results
    }

    fn mark<'a>(marks: &'a [Mark], what: &str) -> &'a Mark {
        marks.iter().find(|mark| mark.what == what).unwrap_or_else(|| panic!("no {what} in {marks:?}"))
    }

    #[test]
    fn the_median_of_the_runs_is_judged() {
        let marks = judge(&[single(14), single(90), single(15)]);
        let add = mark(&marks, "ADD p50 / floor p50");
        assert_eq!((add.value, add.values.len(), add.limit, add.is_met()), (1.5, 3, 1.5, true));
        let marks = judge(&[single(14), single(90), single(16)]);
        assert!(!mark(&marks, "ADD p50 / floor p50").is_met());
    }

    #[test]
    fn what_was_not_measured_is_not_judged() {
        let marks = judge(&[single(10)]);
        let what: Vec<&str> = marks.iter().map(|mark| mark.what.as_str()).collect();
        assert_eq!(
            what,
            [
                "ADD p50 / floor p50",
                "ADD p99 / floor p99",
                "ADD p50 / host-local ADD p50",
                "failures of single processes"
            ]
        );
    }

    #[test]
    fn a_storm_is_judged_by_its_floor_its_slowest_and_its_failures() {
        let mut results = Results::default();
        let each = sample_of_ms([100, 600]).with_failures(1);
        let storm = Storm { wall_s: 5.0, floor_s: 2.5, each };
        results.add(Section::Storms, "add-1", "", Data::Storm(vec![storm]));
        let marks = judge(&[results]);
        let met = |what| (mark(&marks, what).value, mark(&marks, what).is_met());
        assert_eq!(met("ADDs over one network: wall / floor's wall"), (2.0, true));
        assert_eq!(met("ADDs over one network: p99 of one / whole storm"), (0.12, false));
        assert_eq!(met("failures in storms"), (1.0, false));
    }

    #[test]
    fn slow_links_are_judged_each_by_their_own_floor() {
        let mut results = Results::default();
        for (name, ms) in [("floor-1ms", 6), ("floor-5ms", 20), ("add-1ms", 20), ("add-5ms", 24)] {
            results.add(Section::Slow, name, name, Data::Times(sample_of_ms([ms]), None));
        }
        for (name, wall_s) in [("add-1-1ms", 5.0), ("add-1-5ms", 7.0)] {
            let storm = Storm { wall_s, floor_s: 2.0, each: sample_of_ms([100]) };
            results.add(Section::Slow, name, name, Data::Storm(vec![storm]));
        }
        let marks = judge(&[results]);
        let met = |what| (mark(&marks, what).value, mark(&marks, what).is_met());
        assert_eq!(met("links of 5 ms: ADD p50 of a node that adds alone / floor p50"), (1.2, true));
        assert_eq!(met("links of 1 ms: ADDs over one network: wall / floor's wall"), (2.5, true));
        assert_eq!(met("links of 5 ms: ADDs over one network: wall / floor's wall"), (3.5, false));
        assert_eq!(met("failures on slow links"), (0.0, true));
    }

    #[test]
    fn storms_with_deaths_are_judged_by_those_without() {
        let mut results = Results::default();
        for (name, wall_s, failures) in [("killed-2", 3.0, 0), ("killed-10", 8.0, 2)] {
            let each = sample_of_ms([100]).with_failures(failures);
            results.add(Section::Deaths, name, name, Data::Storm(vec![Storm { wall_s, floor_s: 2.0, each }]));
        }
        for (name, ms) in [("far-floor", 600), ("far-takeover", 2400)] {
            results.add(Section::Deaths, name, name, Data::Times(sample_of_ms([ms]), None));
        }
        let marks = judge(&[results]);
        let met = |what| (mark(&marks, what).value, mark(&marks, what).is_met());
        assert_eq!(met("wall with 2 % killed / with none"), (1.5, true));
        assert_eq!(met("wall with 10 % killed / with none"), (4.0, false));
        assert_eq!(met("failures among the living with 10 % killed"), (2.0, false));
        assert_eq!(met("takeover at 600 ms a request, in requests"), (4.0, true));
    }

    #[test]
    fn a_member_that_fails_is_judged_by_what_it_adds() {
        let mut results = Results::default();
        for (name, ms) in [("add-healthy", 10), ("add-killed", 60), ("add-cut-off", 361)] {
            results.add(Section::Cluster, name, name, Data::Times(sample_of_ms([ms]), None));
        }
        let marks = judge(&[results]);
        let met = |what| (mark(&marks, what).value, mark(&marks, what).is_met());
        assert_eq!(met("ADD p99 with one of three members killed, ms more"), (50.0, true));
        assert_eq!(met("ADD p99 with one of three members cut off, ms more"), (351.0, false));
    }

    #[test]
    fn a_third_round_trip_has_a_limit_of_its_own() {
        for (requests, limit) in [(2.05, 1.2), (3.0, 1.4)] {
            let mut results = Results::default();
            for (name, ms) in [("add-empty", 10), ("add-8", 13)] {
                results.add(Section::Size, name, name, Data::Times(sample_of_ms([ms]), None));
            }
            results.add(Section::Size, "requests-8", "", Data::Number(vec![requests], ""));
            let marks = judge(&[results]);
            assert_eq!(mark(&marks, "ADD p50 in a filled /8 / in an empty network").limit, limit);
        }
    }
}
