//! From the command line and the host file to a command that runs.

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::SystemTime;

use clap::FromArgMatches;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use tokio::time::Instant;

use super::args::{CliVerb, Command};
use super::check::CheckArgs;
use super::doctor::{NO_USERS, NO_USERS_REMEDY, doctor};
use super::table::Screen;
use super::validate::validate;
use super::version::version;
use super::{Cli, Terminal, about, ask, check, command, complete, run};
use metes_config::cni::{Error, Version};
use metes_config::keys::nearest;
use metes_config::settings::LogLevel;
use metes_core::keys::Keys;
use metes_core::limits;
use metes_node::files::Trust;
use metes_node::setup;
use metes_node::state::NodeState;

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
    if std::env::args_os().nth(1).is_some_and(|first| first == complete::ASKED) {
        return complete::names(std::env::args_os().skip(2), host_file_of_environment());
    }
    let given = command().try_get_matches().and_then(|given| Cli::from_arg_matches(&given));
    let cli = given.unwrap_or_else(|wrong| without_far_tips(wrong).exit());
    match start(cli) {
        Ok(code) => code,
        Err(e) => {
            let _ = writeln!(io::stderr().lock(), "metes: {e}");
            ExitCode::FAILURE
        }
    }
}

/// An error about a flag suggests only a flag that is like it: any other one may write.
fn without_far_tips(mut error: clap::Error) -> clap::Error {
    if error.kind() == ErrorKind::UnknownArgument {
        error.remove(ContextKind::Suggested);
        let flag = |kind| match error.get(kind) {
            Some(ContextValue::String(flag)) => Some(flag.trim_start_matches('-').to_owned()),
            _ => None,
        };
        let pair = flag(ContextKind::InvalidArg).zip(flag(ContextKind::SuggestedArg));
        if pair.is_some_and(|(given, meant)| nearest(&given, &[&meant], usize::MAX).is_none()) {
            error.remove(ContextKind::SuggestedArg);
            // It has the flag, too.
            error.remove(ContextKind::Usage);
        }
    }
    error
}

/// The command line, for manual pages.
#[must_use]
pub fn described() -> clap::Command {
    command()
}

fn host_file_of_environment() -> Option<PathBuf> {
    std::env::var_os("METES_CONF").filter(|path| !path.is_empty()).map(PathBuf::from)
}

fn start(mut cli: Cli) -> Result<ExitCode, Error> {
    cli.config = cli.config.or_else(host_file_of_environment);
    let (mut out, mut err) = (io::stdout().lock(), io::stderr());
    let mut confirm = |question: &str| ask(question, &mut io::stdin().lock(), &mut io::stderr());
    let screen = screen(&out);
    let is_etcd_guessed =
        cli.config.is_none() && cli.endpoints.is_empty() && !Path::new(setup::HOST_FILE).exists();
    let mut terminal = Terminal { out: &mut out, err: &mut err, ask: &mut confirm, screen, is_etcd_guessed };
    let settings = || {
        let mut settings = setup::own_settings(cli.config.as_deref())?;
        settings.use_endpoints(&cli.endpoints)?;
        Ok(settings)
    };
    setup::start_log(None, LogLevel::default());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|e| Error::io(format!("this process cannot wait for the network: {e}")))?;
    let done = match cli.verb {
        CliVerb::Store(Command::Check(CheckArgs { explain: Some(explained), .. })) => {
            terminal.answer(&check::explain(&explained)).map(|()| ExitCode::SUCCESS)
        }
        CliVerb::Store(command) => {
            let settings = settings()?;
            settings.notes.iter().for_each(|note| tracing::warn!("{note}"));
            let give_up = cli.timeout.unwrap_or(limits::UNREACHABLE);
            let access = setup::access(&settings, Trust::of_commands(), give_up)?;
            if matches!(command, Command::Check(_)) && settings.is_over_a_network() {
                let etcd = metes_etcd::Etcd::new(access.clone());
                let asked = async { etcd.asks_for_users(Instant::now() + give_up).await };
                if runtime.block_on(asked) == Ok(false) {
                    tracing::warn!("{NO_USERS}; {NO_USERS_REMEDY}");
                }
            }
            let kv = metes_etcd::open(access);
            let (keys, node) = (Keys::new(&settings.prefix), NodeState::known(&settings));
            let done = run(command, &kv, (&settings, &keys), node.as_ref(), cli.timeout, &mut terminal);
            Ok(runtime.block_on(done))
        }
        CliVerb::Validate(args) => validate(cli.config.as_deref(), &args, &mut terminal),
        CliVerb::Doctor(output) => {
            let of = (cli.config.as_deref(), cli.endpoints.as_slice());
            runtime.block_on(doctor(of, cli.timeout, &output, &mut terminal))
        }
        CliVerb::Completion { shell } => {
            terminal.answer(&complete::script(shell)).map(|()| ExitCode::SUCCESS)
        }
        CliVerb::Version(args) => runtime.block_on(version(settings, &args, &mut terminal)),
    };
    // A resolver that does not answer would be waited for.
    runtime.shutdown_background();
    Ok(done.unwrap_or_else(|e| e.told(&mut terminal)))
}

/// The terminal that stdout is, if it is one; without colour where NO_COLOR is set to anything (no-color.org).
fn screen(out: &io::StdoutLock<'_>) -> Screen {
    if !out.is_terminal() {
        return Screen::default();
    }
    let variable = |name: &str| std::env::var_os(name).unwrap_or_default();
    let has_colour = variable("NO_COLOR").is_empty() && variable("TERM") != "dumb";
    let width = rustix::termios::tcgetwinsize(out).ok().map(|size| usize::from(size.ws_col));
    let width = width.filter(|width| *width > 0);
    Screen { width, has_colour, has_utf8: has_utf8(variable), now: Some(SystemTime::now()) }
}

/// True if the locale is one of UTF-8: the first of these variables that is not empty says it.
fn has_utf8(variable: impl Fn(&str) -> OsString) -> bool {
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].map(variable).into_iter().find(|value| !value.is_empty());
    let locale = locale.unwrap_or_default().to_string_lossy().to_ascii_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names of all commands, and of those below them with a hyphen between.
    fn names(command: &clap::Command, above: &str) -> Vec<String> {
        let below = command.get_subcommands().flat_map(|command| {
            let name = format!("{above}{}", command.get_name());
            let below = names(command, &format!("{name}-"));
            std::iter::once(name).chain(below)
        });
        below.collect()
    }

    #[test]
    fn every_command_has_a_manual_page() {
        let folder = tempfile::tempdir().expect("a folder");
        clap_mangen::generate_to(described(), folder.path()).expect("pages");
        let names = names(&described(), "");
        assert!(names.len() > 20, "{names:?}");
        for name in names {
            assert!(folder.path().join(format!("metes-{name}.1")).exists(), "{name}");
        }
    }
}
