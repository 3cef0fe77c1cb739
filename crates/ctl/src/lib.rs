//! The verbs for people: what is held, how much is used, whether all is well, and releasing.
//!
//! - `args`: the command line and its help; `output`, `filter`: flags of several verbs. The other arguments of a verb
//!   stand beside it.
//! - [`start`]: from the command line and the host file to a command that runs.
//! - `list` (with `watch`), `show`, `usage`, `map`, `top`, `leaks`, `check` (with `mend`, `keeper`, `restore`),
//!   `release`, `hold` (with holds): one verb each; `pool`: the verbs of named pools; `validate`, `version`: what needs
//!   no store; `doctor`: what goes on without one; `complete`: scripts for shells, and the names that they ask for.
//! - `selector`, `overview`, `lookup`, `repair`: what of the store is read for that; what is audited and repaired.
//! - `inventory`, `table`: pure; rows and text. Everything that lists has the flags of `output::ListOutput`.
//!
//! The answer goes to stdout, everything else to stderr. Exit codes: 0 done, 1 the command failed or has found
//! something wrong, 2 (from clap) wrong arguments. `pool` has one more.

mod args;
mod check;
mod complete;
mod doctor;
mod filter;
mod hold;
mod input;
mod inventory;
mod keeper;
mod leaks;
mod list;
mod lookup;
mod map;
mod mend;
mod output;
mod overview;
mod places;
mod pool;
mod release;
mod repair;
mod restore;
mod selector;
mod show;
pub mod start;
mod table;
mod top;
mod usage;
mod validate;
mod version;
mod watch;

use std::io::{self, BufRead, Write};
use std::process::ExitCode;
use std::time::Duration;

use serde::Serialize;
use tokio::time::Instant;

use clap::CommandFactory;
use clap::builder::PossibleValuesParser;

use args::{Cli, Command, about};

use inventory::Inventory;
use metes_config::Settings;
use metes_config::cni::{Code, Error};
use metes_core::keys::Keys;
use metes_core::known::{HighWater, judged_by};
use metes_core::limits;
use metes_core::pool::Meta;
use metes_core::snapshot::Snapshot;
use metes_engine::drive::OutOfTime;
use metes_engine::endpoints::{self, NoStore};
use metes_engine::follow::Follow;
use metes_engine::kv::{Failure, Kv};
use metes_engine::prefix;
use metes_engine::random::random_id;
use metes_engine::session::Session;
use metes_node::errors;
use metes_node::setup::HOST_FILE;
use metes_node::state::NodeState;
use output::{Format, ListFormat, ListOutput};
use table::{Column, Listed, Screen, TableForm};

/// Where a command prints, and whom it asks.
struct Terminal<'a> {
    /// The answer.
    out: &'a mut dyn Write,
    /// Errors, and hints for a person.
    err: &'a mut dyn Write,
    /// Asks a question to be answered with yes or no.
    ask: &'a mut dyn FnMut(&str) -> bool,
    /// Where `out` leads.
    screen: Screen,
    /// True if nothing says where etcd is, so that it is expected on this machine.
    is_etcd_guessed: bool,
}

/// The context of a command.
struct Context<'a, K> {
    session: Session<'a, K>,
    /// This node; none if it has no name.
    node: Option<&'a NodeState>,
    /// The settings of the host file.
    settings: &'a Settings,
    /// The time that the store may take, if that was given.
    timeout: Option<Duration>,
}

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
enum CliError {
    /// The store did not do it.
    #[error("cannot {doing}")]
    Store {
        /// The attempt, in words.
        doing: String,
        /// Why not.
        source: Failure,
    },
    /// There was no time left for what was tried.
    #[error("cannot {0}: {OutOfTime}")]
    OutOfTime(String),
    /// The request cannot be carried out; the sentence names the way to do it instead.
    #[error("{0}")]
    Refused(String),
    /// The answer cannot be written.
    #[error("cannot write the answer")]
    Output(#[source] io::Error),
}

impl CliError {
    fn store(doing: impl Into<String>) -> impl FnOnce(Failure) -> Self {
        let doing = doing.into();
        |source| Self::Store { doing, source }
    }

    /// Tells it to whoever asked for the command.
    fn told(&self, terminal: &mut Terminal<'_>) -> ExitCode {
        let cause = std::error::Error::source(self).map(|cause| format!(": {cause}")).unwrap_or_default();
        terminal.tell(&format!("metes: {self}{cause}{}", self.advice(terminal.is_etcd_guessed)));
        ExitCode::FAILURE
    }

    /// The remedy, after the sentence with the fault.
    fn advice(&self, is_etcd_guessed: bool) -> String {
        match self {
            CliError::Store { source: Failure::Unreachable(_), .. } if is_etcd_guessed => format!(
                "; no host file says where etcd is (looked at --config, METES_CONF and {HOST_FILE}): give --config \
                 FILE or --endpoints URL"
            ),
            CliError::Store { source, .. } => format!("; {}", source.remedy()),
            CliError::OutOfTime(_) => format!("; {}", OutOfTime::REASONS),
            CliError::Refused(_) | CliError::Output(_) => String::new(),
        }
    }
}

/// The command line, with the fields that each list can be sorted by.
fn command() -> clap::Command {
    let sorts = |command: clap::Command, columns: &[Column]| {
        let fields = PossibleValuesParser::new(table::fields(columns));
        command
            .mut_arg("sort_by", |arg| arg.value_parser(fields).ignore_case(true).hide_possible_values(true))
    };
    Cli::command()
        .mut_subcommand("list", |list| sorts(list, &inventory::COLUMNS))
        .mut_subcommand("show", |show| sorts(show, &inventory::COLUMNS))
        .mut_subcommand("usage", |usage| sorts(usage, &usage::COLUMNS))
        .mut_subcommand("top", |top| sorts(top, &top::SORTED_BY))
        .mut_subcommand("leaks", |leaks| sorts(leaks, &leaks::COLUMNS))
        .mut_subcommand("holds", |holds| sorts(holds, &hold::COLUMNS))
        .mut_subcommand("pool", |pool| {
            pool.mut_subcommand("list", |list| sorts(list, &pool::LIST_COLUMNS))
                .mut_subcommand("status", |status| sorts(status, &pool::STATUS_COLUMNS))
        })
}

/// Carries out one command on `node`. When it returns, it has said all that it has to say.
async fn run<K: Kv + Follow>(
    command: Command,
    kv: &K,
    (settings, keys): (&Settings, &Keys),
    node: Option<&NodeState>,
    timeout: Option<Duration>,
    terminal: &mut Terminal<'_>,
) -> ExitCode {
    let session = Session { kv, keys, until: Instant::now() };
    let context = Context { session, node, settings, timeout }.renewed();
    let done = match command {
        Command::List(args) => list::list(&context, &args, terminal).await,
        Command::Show(args) => show::show(&context, &args, terminal).await,
        Command::Usage(args) => usage::usage(&context, &args, terminal).await,
        Command::Map(args) => map::map(&context, &args, terminal).await,
        Command::Top(args) => top::top(&context, &args, terminal).await,
        Command::Leaks(args) => leaks::leaks(&context, &args, terminal).await,
        Command::Check(args) => check::check(&context, &args, terminal).await,
        Command::Release(args) => release::release(&context, &args, terminal).await,
        Command::Hold(args) => hold::hold(&context, &args, terminal).await,
        Command::Holds(args) => hold::holds(&context, &args, terminal).await,
        Command::Pool(verb) => pool::pool(&context, &verb, terminal).await,
    };
    done.unwrap_or_else(|failed| failed.told(terminal))
}

impl<K: Kv> Context<'_, K> {
    /// When what begins now must be done: how long a person thinks does not count.
    fn deadline(&self) -> Instant {
        Instant::now() + self.timeout.unwrap_or(limits::CLI_DEADLINE)
    }

    /// The same with the whole time of a command before it.
    fn renewed(&self) -> Self {
        let session = self.session.by(self.deadline());
        Self { session, ..*self }
    }

    /// The store as this node has seen it; none if no plugin has run here.
    fn known(&self) -> Option<HighWater> {
        Some(self.node?.mark().read()?.seen)
    }

    /// True if the store contradicts what this node knows of it, and what it shows of itself; none if it has no meta.
    async fn compared(&self, known: Option<&HighWater>) -> Result<(bool, Option<HighWater>), CliError> {
        let (session, keys) = (self.session, self.session.keys);
        let Some(node) = self.node else { return Ok((false, None)) };
        let own = keys.node(&node.identity.key());
        let compared = async {
            let mut seen = Snapshot::default();
            session.read(&judged_by(keys, &own, known), &mut seen).await?;
            let is_another = match known {
                Some(known) => prefix::contradicts(session, known, &mut seen).await?,
                None => false,
            };
            let etcd = session.kv.cluster().unwrap_or_default();
            let shown = HighWater::shown(keys, &seen, &own, known);
            Ok((is_another, shown.map(|shown| HighWater { etcd, ..shown })))
        };
        compared.await.map_err(CliError::store("compare the store with what this node knows"))
    }

    /// Refuses to write to a store that is not the one which this node knows; `undone` says what was not done. Where
    /// no store is known, more than half of the endpoints must agree on one. Returns whether there is a store.
    async fn must_know_store(&self, undone: &str) -> Result<bool, CliError> {
        let Some(known) = self.known() else {
            if let Some(other) = self.node.and_then(NodeState::other_prefix) {
                let Error { msg, details, .. } = other.error(Code::StoredState);
                return Err(CliError::Refused(format!("{msg}: {undone}; {details}")));
            }
            return self.must_agree(undone).await;
        };
        if self.compared(Some(&known)).await?.0 {
            return Err(CliError::Refused(format!(
                "this node knows a store that had more in it than this one has: {undone}; metes check says more"
            )));
        }
        Ok(true)
    }

    /// Refuses to write where more than half of the endpoints do not agree on one store, or on none. Returns whether
    /// there is one.
    async fn must_agree(&self, undone: &str) -> Result<bool, CliError> {
        let agreed = endpoints::ask_all(self.renewed().session, None, limits::ALL_ASKED).await;
        Ok(agreed.map_err(|why| no_store(why, undone))?.is_some())
    }

    /// The same before a command that may be the first to write: it founds the store where there is none, unless this
    /// machine has used another.
    async fn must_have_store(&self, undone: &str) -> Result<(), CliError> {
        if self.must_know_store(undone).await? {
            return Ok(());
        }
        if let Some(other) = self.node.and_then(NodeState::other_store) {
            let Error { msg, details, .. } = errors::other_store_used(&other);
            return Err(CliError::Refused(format!("{msg}: {undone}; {details}")));
        }
        let founded = endpoints::found(self.renewed().session, &Meta::first(random_id())).await;
        founded.map(|_| ()).map_err(|why| no_store(why, undone))
    }

    /// Raises the mark of a node on which the plugin runs, to the store as it is after a command has written. If the
    /// store does not answer any more, the mark stays: the next run raises it.
    async fn remember_store(&self) {
        let (Some(node), Some(known)) = (self.node, self.known()) else { return };
        match self.compared(Some(&known)).await {
            Ok((false, Some(shown))) => node.mark().raise(shown, |_| {}),
            Ok(_) => {}
            Err(error) => tracing::warn!(%error, "what was written is not in this node's mark yet"),
        }
    }

    /// Reads all that is held, at one moment.
    async fn inventory(&self, doing: &str) -> Result<Inventory, CliError> {
        self.everything().await.map_err(CliError::store(doing))
    }
}

/// Why nothing was written: `undone` says what.
fn no_store(why: NoStore, undone: &str) -> CliError {
    match why {
        NoStore::Failed(failure) => CliError::store("ask all endpoints which store they are")(failure),
        NoStore::Differ(_) => CliError::Refused(format!("{why}: {undone}; {}", NoStore::MEMBERS_OF_ONE)),
        NoStore::Bad(_) | NoStore::LostMeta(_) => {
            CliError::Refused(format!("{why}: {undone}; metes check says more"))
        }
        NoStore::TooOld(_) => CliError::Refused(format!("{why}: {undone}")),
    }
}

impl Terminal<'_> {
    /// Writes what was asked for. A reader that has seen enough is no failure.
    fn answer(&mut self, text: &str) -> Result<(), CliError> {
        match self.out.write_all(text.as_bytes()).and_then(|()| self.out.flush()) {
            Err(e) if e.kind() != io::ErrorKind::BrokenPipe => Err(CliError::Output(e)),
            _ => Ok(()),
        }
    }

    /// Prints a list in the form that was asked for.
    fn list<T: Listed>(
        &mut self,
        columns: &[Column],
        mut rows: Vec<T>,
        output: &ListOutput,
    ) -> Result<(), CliError> {
        if let Some(field) = &output.sort_by {
            table::sort_by(columns, &mut rows, field);
        }
        let form = |is_wide| TableForm { is_wide, no_headers: output.no_headers, screen: self.screen };
        let cells = |rows: &[T]| rows.iter().map(Listed::cells).collect();
        match output.format {
            ListFormat::Table => self.answer(&table::table_of(columns, cells(&rows), form(false))),
            ListFormat::Wide => self.answer(&table::table_of(columns, cells(&rows), form(true))),
            ListFormat::Json => self.answer_json(&rows),
            ListFormat::Yaml => self.answer_yaml(&rows),
            ListFormat::Name => {
                let mut names: Vec<String> = rows.iter().map(|row| row.name() + "\n").collect();
                names.dedup();
                self.answer(&names.concat())
            }
        }
    }

    /// Prints one document in the form that was asked for.
    fn document(
        &mut self,
        value: &impl Serialize,
        format: Format,
        text: impl FnOnce() -> String,
    ) -> Result<(), CliError> {
        match format {
            Format::Table => self.answer(&text()),
            Format::Json => self.answer_json(value),
            Format::Yaml => self.answer_yaml(value),
        }
    }

    fn answer_yaml(&mut self, value: &impl Serialize) -> Result<(), CliError> {
        let text = yaml_serde::to_string(value).map_err(|e| CliError::Output(io::Error::other(e)))?;
        self.answer(&text)
    }

    fn answer_json(&mut self, value: &impl Serialize) -> Result<(), CliError> {
        let text = serde_json::to_string_pretty(value).map_err(|e| CliError::Output(e.into()))?;
        self.answer(&(text + "\n"))
    }

    /// Goes on if `yes` was given, or if whoever is asked says yes; else it is refused, with `undone` as what was not
    /// done.
    fn confirm(&mut self, yes: bool, question: &str, undone: &str) -> Result<(), CliError> {
        if yes || (self.ask)(question) {
            return Ok(());
        }
        Err(CliError::Refused(format!("{undone}: it was not confirmed (--yes skips the question)")))
    }

    /// Names a record that does not decode: something is held by it all the same.
    fn tell_damaged(&mut self, record: &dyn std::fmt::Display) {
        self.tell(&format!("metes: cannot decode {record}; metes check says what to do about it"));
    }

    /// Says something besides.
    fn tell(&mut self, text: &str) {
        // Where stderr is closed nobody listens.
        let _ = writeln!(self.err, "{}", table::printable(text));
    }
}

/// Asks on `err` and reads the answer from `input`; everything but yes is no, the end too.
fn ask(question: &str, input: &mut impl BufRead, err: &mut impl Write) -> bool {
    let mut answer = String::new();
    let asked = write!(err, "{question} [y/N] ").and_then(|()| err.flush());
    asked.is_ok()
        && input.read_line(&mut answer).is_ok()
        && matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes")
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Closed;

    impl Write for Closed {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_reader_that_has_seen_enough_is_no_failure() {
        let mut err = Vec::new();
        let mut terminal = Terminal {
            out: &mut Closed,
            err: &mut err,
            ask: &mut |_| false,
            screen: Screen::default(),
            is_etcd_guessed: false,
        };
        assert!(terminal.answer("text").is_ok());
    }

    #[test]
    fn the_command_line_is_sound() {
        command().debug_assert();
    }

    #[test]
    fn only_yes_is_yes() {
        for (typed, expected) in
            [("y\n", true), ("YES\n", true), ("\n", false), ("", false), ("yep\n", false)]
        {
            let mut err = Vec::new();
            assert_eq!(ask("Sure?", &mut typed.as_bytes(), &mut err), expected, "{typed:?}");
            assert_eq!(err, b"Sure? [y/N] ");
        }
    }
}
