//! From the command line and the host file to a command that runs.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use clap::FromArgMatches;

use super::args::CliVerb;
use super::table::Screen;
use super::validate::validate;
use super::{Cli, Terminal, about, ask, command, run};
use crate::cni::{Error, Version};
use crate::config::Settings;
use crate::limits;
use crate::local::files::Trust;
use crate::local::mark::Mark;
use crate::local::setup;
use crate::local::state::{NodeState, state_folder};
use crate::store;
use crate::store::keys::Keys;

/// `metes` as a person starts it: without arguments it says what it is, as other plugins do.
#[must_use]
pub fn main() -> ExitCode {
    let mut err = io::stderr().lock();
    if std::env::args_os().len() < 2 {
        let versions = Version::ALL.map(Version::name);
        // Where stderr is closed nobody listens.
        let _ = writeln!(err, "{}", about(&versions));
        return ExitCode::SUCCESS;
    }
    drop(err);
    let cli = Cli::from_arg_matches(&command().get_matches()).unwrap_or_else(|wrong| wrong.exit());
    match start(cli) {
        Ok(code) => code,
        Err(e) => {
            let _ = writeln!(io::stderr().lock(), "metes: {e}");
            ExitCode::FAILURE
        }
    }
}

fn start(cli: Cli) -> Result<ExitCode, Error> {
    let (mut out, mut err) = (io::stdout().lock(), io::stderr());
    let mut confirm = |question: &str| ask(question, &mut io::stdin().lock(), &mut io::stderr());
    let screen = screen(&out);
    let mut terminal = Terminal { out: &mut out, err: &mut err, ask: &mut confirm, screen };
    let command = match cli.verb {
        CliVerb::Store(command) => command,
        CliVerb::Validate(args) => {
            let done = validate(cli.config.as_deref(), &args, &mut terminal);
            return Ok(done.unwrap_or_else(|e| e.told(&mut terminal)));
        }
    };
    let mut settings = setup::own_settings(cli.config.as_deref())?;
    settings.use_endpoints(&cli.endpoints)?;
    setup::start_log(None, None);
    settings.notes.iter().for_each(|note| tracing::warn!("{note}"));
    let mark = mark(&settings);
    let kv =
        store::open(setup::access(&settings, Trust::OwnerReads, cli.timeout.unwrap_or(limits::UNREACHABLE))?);
    let keys = Keys::new(&settings.prefix);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|e| Error::io(format!("this process cannot wait for the network: {e}")))?;
    Ok(runtime.block_on(run(command, &kv, (&settings, &keys), mark, cli.timeout, &mut terminal)))
}

/// The terminal that stdout is, if it is one; without colour where NO_COLOR is set to anything (no-color.org).
fn screen(out: &io::StdoutLock<'_>) -> Screen {
    if !out.is_terminal() {
        return Screen::default();
    }
    let variable = |name| std::env::var_os(name).unwrap_or_default();
    let has_colour = variable("NO_COLOR").is_empty() && variable("TERM") != "dumb";
    let width = rustix::termios::tcgetwinsize(out).ok().map(|size| usize::from(size.ws_col));
    Screen { width: width.filter(|width| *width > 0), has_colour }
}

/// What this node has seen of the store, if the plugin runs here: nothing is made for it.
fn mark(settings: &Settings) -> Option<Mark> {
    state_folder(settings).exists().then(|| NodeState::of(settings).ok())??.mark().read()
}
