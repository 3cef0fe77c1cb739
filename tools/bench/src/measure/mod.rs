//! The sections, each against a server of its own.

mod cluster;
mod commands;
mod deaths;
mod identities;
mod pools;
mod process;
mod single;
mod size;
mod slices;
mod slow;
mod storms;
mod tls;

use crate::options::{Options, Section};
use crate::results::Results;

/// Adds a section's rows.
type Measure = fn(&Options, &mut Results);

/// Measures every section that is asked for, once.
pub(crate) fn run(options: &Options, run: usize) -> Results {
    let mut results = Results::default();
    let sections: [(Section, Measure); 12] = [
        (Section::Single, single::measure),
        (Section::Storms, storms::measure),
        (Section::Tls, tls::measure),
        (Section::Pools, pools::measure),
        (Section::Size, size::measure),
        (Section::Commands, commands::measure),
        (Section::Process, process::measure),
        (Section::Cluster, cluster::measure),
        (Section::Slow, slow::measure),
        (Section::Slices, slices::measure),
        (Section::Deaths, deaths::measure),
        (Section::Identities, identities::measure),
    ];
    for (section, measure) in sections.into_iter().filter(|(section, _)| options.asks_for(*section)) {
        eprintln!("run {run} of {}: {section:?}", options.runs);
        measure(options, &mut results);
    }
    results
}
