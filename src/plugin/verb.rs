//! A command carried out: each verb is given what its configuration says.

use super::answer::VerbAnswer;
use crate::cni::Error;
use crate::commands::{Run, add, check, del, gc, status};
use crate::config::command::{AddConfig, ResultConfig};
use crate::config::{StoreCommand, resolv};
use crate::local::{node, setup};
use crate::store::Store;
use crate::store::allot::Ask;

/// What a command that succeeded came to.
pub(super) struct Finished {
    /// What the caller hears.
    pub(super) answer: VerbAnswer,
    /// What is given back if the caller cannot hear it.
    pub(super) unheard: Option<Ask>,
    /// Whether the run carries out what others have spooled.
    pub(super) drains_spool: bool,
}

pub(super) async fn carry_out(run: &Run<'_, Store>, command: StoreCommand) -> Result<Finished, Error> {
    let mut drains_spool = true;
    match command {
        StoreCommand::Add(config) => return add(run, config).await,
        StoreCommand::Del(config) => {
            let former = config.node_name.as_ref().and_then(node::former_name);
            let owner = run.owner(&config.attachment);
            let done = del::del(run, &owner, config.pod_uid.as_ref(), former.as_ref()).await?;
            // What this run could not do it cannot do for others.
            drains_spool = done == del::Done::Freed;
        }
        StoreCommand::Check(config) => {
            let owner = run.owner(&config.attachment);
            check::check(run, &owner, config.pod_uid.as_ref(), &config.sets, &config.previous).await?;
        }
        StoreCommand::Gc(config) => {
            if let Some(valid) = &config.valid {
                gc::gc(run, &config.cni_network, valid, config.grace_s).await?;
            }
        }
        StoreCommand::Status => {
            status::status(run).await?;
            drains_spool = false;
        }
    }
    Ok(Finished { answer: VerbAnswer::Nothing, unheard: None, drains_spool })
}

async fn add(run: &Run<'_, Store>, config: AddConfig) -> Result<Finished, Error> {
    let AddConfig { attachment, labels, wanted, result } = config;
    let result = match &result.resolv_conf {
        None => result,
        Some(path) => ResultConfig { dns: resolv::parse(&setup::resolv_conf(path)?), ..result },
    };
    let ask = run.ask(run.owner(&attachment), labels, wanted);
    let added = add::add(run, &ask).await?;
    Ok(Finished {
        answer: VerbAnswer::addresses(&ask.sets, &added.held, result),
        unheard: (!added.repeats).then_some(ask),
        drains_spool: true,
    })
}
