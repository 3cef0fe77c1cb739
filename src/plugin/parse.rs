//! From what a run was given to a command with all that it needs: the request first, then the host file, and by its
//! settings the network configuration.

use super::Input;
use metes_config::cni::{Code, Error, Request, Verb};
use metes_config::command::{AddConfig, CheckConfig, DelConfig, GcConfig};
use metes_config::{IpamSettings, Settings, Source, StoreCommand};
use metes_core::limits::Patience;
use metes_node::node;
use metes_node::setup;
use metes_node::state::state_folder;

/// A command that works with the store, and how that is reached.
pub(super) struct Call {
    pub(super) settings: Settings,
    pub(super) command: StoreCommand,
    pub(super) patience: Patience,
}

/// Reads all that was given. Returns the command, and one line for each key without effect for the details of an error;
/// `None` for VERSION, for which nothing else is read.
pub(super) fn parse(input: &Input) -> Result<Option<(Call, Vec<String>)>, Error> {
    let stdin = input.stdin.as_ref().map_err(setup::stdin_error)?;
    let request = Request::parse(&input.environment, stdin)?;
    let verb = request.verb;
    let settings = || settings(&request, input);
    let (settings, command, notes) = match verb {
        Verb::Version => return Ok(None),
        Verb::Add => {
            refuse_own_netns(&request)?;
            let settings = settings()?;
            let (add, notes) = AddConfig::parse(request, &settings)?;
            settings.notes.iter().chain(&notes).for_each(|note| tracing::warn!("{note}"));
            (settings, StoreCommand::Add(Box::new(add)), notes)
        }
        Verb::Del => {
            refuse_own_netns(&request)?;
            let settings = settings()?;
            let del = DelConfig::parse(request)?;
            (settings, StoreCommand::Del(del), Vec::new())
        }
        Verb::Check => {
            let settings = settings()?;
            let check = CheckConfig::parse(request, &settings)?;
            (settings, StoreCommand::Check(check), Vec::new())
        }
        Verb::Gc => {
            let settings = settings()?;
            let gc = GcConfig::parse(request, &settings)?;
            (settings, StoreCommand::Gc(gc), Vec::new())
        }
        Verb::Status => {
            let settings = settings()?;
            // No ADD can use it.
            if let Some(unclear) = settings.unclear {
                return Err(Error { code: Code::NotAvailable, ..unclear });
            }
            (settings, StoreCommand::Status, Vec::new())
        }
    };
    Ok(Some((Call { settings, command, patience: verb.patience() }, notes)))
}

/// Reads the host file, decides what the run goes by, and starts the log.
fn settings(request: &Request, input: &Input) -> Result<Settings, Error> {
    let said = IpamSettings::of(request);
    let from_network = said.configuration_path.as_deref().filter(|_| input.is_nad_etcd_allowed);
    let host = setup::host_file(input.host_file.as_deref(), from_network)?;
    let missing = || match request.verb {
        Verb::Status => Error { code: Code::NotAvailable, ..setup::no_host_file() },
        // A DEL does not know under which names it would have to be spooled: the runtime repeats it.
        _ => setup::no_host_file(),
    };
    let source = Source::of(host, input.is_nad_etcd_allowed).ok_or_else(missing)?;
    let settings = Settings::for_verb(request.verb, source, &said)?;
    let _ = input.state_folder.set(state_folder(&settings));
    setup::start_log(settings.log_file.as_deref(), settings.log_level.unwrap_or_default());
    // An ADD and a STATUS answer it.
    if let (Verb::Del | Verb::Check | Verb::Gc, Some(unclear)) = (request.verb, &settings.unclear) {
        // In another store or under other names, a DEL would find nothing, say that it is done, and never be repeated.
        if settings.is_store_unclear {
            return Err(unclear.clone());
        }
        tracing::warn!("{}", unclear.msg);
    }
    Ok(settings)
}

/// ADD and DEL take CNI_NETNS for the container's, unless the caller says that the plugin's own is meant.
fn refuse_own_netns(request: &Request) -> Result<(), Error> {
    if request.netns_override || request.netns.is_empty() || !node::is_own_netns(&request.netns) {
        return Ok(());
    }
    Err(Error::new(Code::InvalidNetns, "plugin's netns and netns from CNI_NETNS should not be the same")
        .with_details("set CNI_NETNS_OVERRIDE=1 if that is meant"))
}
