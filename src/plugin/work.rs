//! From a parsed command to its answer: connect to the store, carry the command out, print what it came to.

use std::io::Write;
use std::os::unix::process::parent_id;

use super::Input;
use super::answer::VerbAnswer;
use super::parse::Call;
use crate::commands::add::AddDone;
use crate::commands::status::Served;
use crate::commands::{Run, add, check, del, gc, status};
use metes_config::StoreCommand;
use metes_config::cni::Error;
use metes_config::command::{AddConfig, ResultConfig};
use metes_config::resolv;
use metes_core::keys::Keys;
use metes_core::plan::ask::Ask;
use metes_engine::session::Session;
use metes_etcd::{self, Store};
use metes_node::files::Trust;
use metes_node::node;
use metes_node::setup;
use metes_node::state::NodeState;

/// Connects, carries out the command, prints its answer, and carries out what others have spooled.
pub(super) async fn work(input: &Input, call: Call, out: &mut impl Write) -> Result<(), Error> {
    let Call { settings, command, patience } = call;
    let start = input.start.clone()?;
    let node = NodeState::of(&settings)?;
    let kv = metes_etcd::open(setup::access(&settings, Trust::OwnerReads, patience)?);
    let keys = Keys::new(&settings.prefix);
    let session = Session { kv: &kv, keys: &keys, until: input.until };
    let (clock, awaited) = (|| node::later(&start), || parent_id() == input.parent);
    let run = Run::new(session, &node, start.clone(), &clock, &awaited);

    let done = carry_out(&run, command).await?;
    if let Err(unheard) = done.answer.print(out, input.answered) {
        if let Some(ask) = &done.unheard {
            add::undo(&run, ask).await;
        }
        return Err(unheard);
    }
    match done.drain {
        Drain::Nothing => {}
        Drain::AfterAnswer => run.drain_spool().await,
        Drain::WithinDeadline => run.drain_spool_by(session.until).await,
    }
    Ok(())
}

/// The result of a command that succeeded.
struct Finished {
    answer: VerbAnswer,
    /// The reservation to give back if the caller cannot hear the answer.
    unheard: Option<Ask>,
    drain: Drain,
}

/// What a run that has answered does for DELs that others have spooled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Drain {
    Nothing,
    /// It carries some out, and takes the time of a DEL for them.
    AfterAnswer,
    /// It carries some out in what is left of its own time.
    WithinDeadline,
}

async fn carry_out(run: &Run<'_, Store>, command: StoreCommand) -> Result<Finished, Error> {
    let mut drain = Drain::AfterAnswer;
    match command {
        StoreCommand::Add(config) => return add(run, *config).await,
        StoreCommand::Del(config) => {
            let owner = run.owner(&config.attachment);
            let done = del::del(run, &owner, config.pod_uid.as_ref()).await?;
            // What this run could not do it cannot do for others.
            if done == del::Done::Spooled {
                drain = Drain::Nothing;
            }
        }
        StoreCommand::Check(config) => check::check(run, &config).await?,
        StoreCommand::Gc(config) => {
            if let Some(containers) = &config.containers {
                gc::gc(run, &config.cni_network, containers, config.grace_s).await?;
            }
        }
        StoreCommand::Status => {
            // It may be all that runs on a node for days. containerd holds a lock until it has ended.
            drain = match status::status(run).await? {
                Served::Known => Drain::WithinDeadline,
                Served::Unknown => Drain::Nothing,
            };
        }
    }
    Ok(Finished { answer: VerbAnswer::Nothing, unheard: None, drain })
}

async fn add(run: &Run<'_, Store>, config: AddConfig) -> Result<Finished, Error> {
    let AddConfig { attachment, labels, wanted, sticky, result } = config;
    let result = match &result.resolv_conf {
        None => result,
        Some(path) => ResultConfig { dns: resolv::parse(&setup::resolv_conf(path)?), ..result },
    };
    let ask = run.ask(run.owner(&attachment), labels, wanted).sticky(sticky);
    let AddDone { held, repeats, of_pools } = add::add(run, &ask).await?;
    Ok(Finished {
        answer: VerbAnswer::addresses(&ask.wanted, &held, of_pools, result),
        unheard: (!repeats).then_some(ask),
        drain: Drain::AfterAnswer,
    })
}
