//! `metes-sim`: plays worlds, and plays one again. `hack/sim` builds and starts it.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;
use std::{fs, thread};

use clap::Parser;
use metes_sim::campaign::{Campaign, Noticed, Sighting, Sum, hunt, sightings};
use metes_sim::mutant::Guard;
use metes_sim::world::Theme;

/// The most trace lines that are shown for a violation.
const SHOWN: usize = 400;

/// Runs metes on a model of etcd that fails, in worlds that seeds decide.
#[derive(Debug, Parser)]
#[command(name = "metes-sim")]
struct Arguments {
    /// How many worlds
    #[arg(long, default_value_t = 10_000)]
    seeds: u64,
    /// How many operations in all: an ADD, DEL, GC or CHECK, or a pass of the reconciler
    #[arg(long, default_value_t = 10_000_000)]
    ops: u64,
    /// The first seed
    #[arg(long, default_value_t = 1)]
    from: u64,
    /// Only this seed, with the operations that --ops and --seeds give each world
    #[arg(long)]
    seed: Option<u64>,
    /// What happened in it, line by line
    #[arg(long, requires = "seed")]
    trace: bool,
    /// Only this kind of world
    #[arg(long)]
    theme: Option<String>,
    /// Leaves out one guard of the transactions after the other, and names those whose absence nobody notices in so
    /// many worlds of each kind
    #[arg(long)]
    mutants: Option<u64>,
    /// A file of an earlier hunt: it says where the absence of each guard is noticed, and is asked first; a guard
    /// alone was noticed nowhere, and is not searched for
    #[arg(long, requires = "mutants")]
    known: Option<PathBuf>,
    /// Writes this file anew with what is noticed; then every guard is searched for
    #[arg(long, requires = "known")]
    keep: bool,
    /// Only guards with this in their names, like `hold/`
    #[arg(long, requires = "mutants")]
    guard: Option<String>,
    /// At the same time; as many as there are processors, if nothing is said
    #[arg(long)]
    threads: Option<usize>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let mut out = io::stdout().lock();
    match run(&arguments, &mut out) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            let _ = writeln!(io::stderr(), "metes-sim: {e}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments, out: &mut impl Write) -> io::Result<bool> {
    let theme = match &arguments.theme {
        None => None,
        Some(name) => Some(
            Theme::named(name)
                .ok_or_else(|| io::Error::other(format!("no kind of world is called {name}")))?,
        ),
    };
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let campaign = Campaign {
        first: arguments.from,
        seeds: arguments.seeds,
        operations: (arguments.ops / arguments.seeds.max(1)).max(1),
        theme,
        mutant: None,
        target: None,
        collects: false,
        threads: arguments.threads.unwrap_or(processors),
        enough: 1,
    };
    if let Some(seeds) = arguments.mutants {
        return mutants(&campaign, seeds, arguments, out);
    }
    if let Some(seed) = arguments.seed {
        return replay(&campaign, seed, arguments.trace, out);
    }
    let start = Instant::now();
    let sum = campaign.run();
    report(&sum, start, out)?;
    for (seed, violation) in &sum.violations {
        writeln!(out, "\nseed {seed}: {violation}")?;
        let played = campaign.replay(*seed, true);
        let from = played.trace.len().saturating_sub(SHOWN);
        for line in &played.trace[from..] {
            writeln!(out, "{line}")?;
        }
        let (seeds, ops) = (arguments.seeds, arguments.ops);
        writeln!(out, "again: hack/sim --seeds {seeds} --ops {ops} --seed {seed} --trace")?;
    }
    Ok(sum.violations.is_empty())
}

fn mutants(campaign: &Campaign, seeds: u64, arguments: &Arguments, out: &mut impl Write) -> io::Result<bool> {
    let only = arguments.guard.as_deref().unwrap_or_default();
    let known = arguments.known.as_ref().map(fs::read_to_string).transpose()?.unwrap_or_default();
    let mut kept = String::new();
    let start = Instant::now();
    let collecting = Campaign { collects: true, enough: usize::MAX, ..campaign.clone() };
    let mut guards = collecting.run().guards;
    guards.extend(Guard::IDENTITIES);
    guards.insert(Guard::LONG_FENCE);
    guards.retain(|guard| guard.to_string().contains(only));
    writeln!(out, "{} guards", guards.len())?;
    let mut all_noticed = true;
    let mut known = sightings(&known);
    if arguments.keep {
        known.retain(|_, sighting| sighting.is_some());
    }
    for (guard, caught) in hunt(&guards, &known, seeds, campaign.operations, campaign.threads) {
        let Some(Noticed { sighting: Sighting { theme, seed, strikes }, violation }) = caught else {
            all_noticed = false;
            writeln!(out, "survives {guard}")?;
            kept += &format!("{guard}\n");
            continue;
        };
        let struck = if strikes { " struck" } else { "" };
        writeln!(out, "noticed {guard} in {} {seed}{struck}: {violation}", theme.name())?;
        kept += &format!("{guard} {} {seed}{struck}\n", theme.name());
    }
    if let (Some(file), true) = (&arguments.known, arguments.keep) {
        fs::write(file, kept)?;
    }
    writeln!(out, "{:.1} s", start.elapsed().as_secs_f64())?;
    Ok(all_noticed)
}

fn replay(campaign: &Campaign, seed: u64, traced: bool, out: &mut impl Write) -> io::Result<bool> {
    let played = campaign.replay(seed, traced);
    for line in &played.trace {
        writeln!(out, "{line}")?;
    }
    writeln!(out, "seed {seed}: {} operations, digest {:016x}", played.operations, played.digest)?;
    if let Some(violation) = &played.violation {
        writeln!(out, "{violation}")?;
    }
    Ok(played.violation.is_none())
}

fn report(sum: &Sum, start: Instant, out: &mut impl Write) -> io::Result<()> {
    let seconds = start.elapsed().as_secs_f64();
    writeln!(
        out,
        "{} worlds, {} operations, {} transactions in {seconds:.1} s: {:.0} operations a second",
        sum.seeds,
        sum.operations,
        sum.transactions,
        sum.operations as f64 / seconds
    )?;
    let list = |of: &std::collections::BTreeMap<&'static str, u64>| {
        of.iter().map(|(name, count)| format!("{name} {count}")).collect::<Vec<_>>().join(", ")
    };
    writeln!(out, "operations: {}", list(&sum.outcomes))?;
    writeln!(out, "faults: {}", list(&sum.faults))
}
