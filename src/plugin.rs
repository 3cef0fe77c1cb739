//! One run of the plugin: from the environment and stdin to what is printed.

use std::collections::HashSet;
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::unix::process::parent_id;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::time::Instant;

use crate::cni::result::{Dns, IpConfig, Success};
use crate::cni::version::version_json;
use crate::cni::{Code, Environment, Error, Json, Request, Verb, Version, previous};
use crate::commands::{Run, add, check, del, gc, state_folder, status};
use crate::config::settings::Rule;
use crate::config::{self, Config, IpamSettings, Settings};
use crate::local::files::Trust;
use crate::local::mark::MarkFile;
use crate::local::node::{self, Identity};
use crate::local::setup;
use crate::local::spool::Spool;
use crate::pool::Addr;
use crate::pool::names::NodeName;
use crate::pool::record::{Held, Labels, Owner, RunStart};
use crate::random::random_id;
use crate::store::allot::Ask;
use crate::store::keys::{Keys, digest_hex};
use crate::store::session::Session;
use crate::store::{self, Store};

/// What a run was given.
pub struct Input {
    /// When it began.
    pub start: Result<RunStart, Error>,
    /// When it began, for its deadline.
    pub began: Instant,
    /// The process that called, as it was then.
    pub parent: u32,
    /// The CNI_* variables.
    pub environment: Environment,
    /// METES_CONF.
    pub host_file: Option<String>,
    /// Stdin, up to its bound.
    pub stdin: io::Result<Vec<u8>>,
    /// Set as soon as the caller's answer stands: what fails after that is not to be answered once more.
    pub answered: &'static AtomicBool,
}

/// A failed run: the error and the version that it is told in, if that is known.
pub struct Failed {
    /// The error.
    pub error: Error,
    /// The configuration's version.
    pub version: Option<Version>,
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self { error, version: None }
    }
}

/// Carries out one command of CNI and prints its answer to `out`.
///
/// # Errors
/// [`Failed`]; then nothing was printed.
pub async fn run(input: Input, out: &mut impl Write) -> Result<(), Failed> {
    if input.environment.verb() == Some(Verb::Version) {
        Request::parse(&input.environment, b"")?;
        return print(out, &version_json(), input.answered).map_err(Failed::from);
    }
    let stdin = input.stdin.map_err(|e| setup::stdin_error(&e))?;
    let failed = |error| Failed { error, version: version_of(&stdin) };
    let request = Request::parse(&input.environment, &stdin).map_err(failed)?;
    let Input { began, parent, answered, .. } = input;
    let begun = Begun { start: input.start?, began, parent, answered };
    carry_out(&request, begun, input.host_file.as_deref(), out).await.map_err(failed)
}

/// The version that a configuration asks to be answered in, valid or not otherwise.
fn version_of(stdin: &[u8]) -> Option<Version> {
    let config = Json::parse(stdin).ok()?;
    Version::exactly(config.get("cniVersion")?.text()?)
}

/// How a run began.
struct Begun {
    start: RunStart,
    began: Instant,
    parent: u32,
    answered: &'static AtomicBool,
}

async fn carry_out(
    request: &Request,
    begun: Begun,
    host_file: Option<&str>,
    out: &mut impl Write,
) -> Result<(), Error> {
    refuse_own_netns(request)?;
    // Only ADD needs all of `ipam` to be valid; a DEL must not fail over any of it.
    let config = match request.verb {
        Verb::Add => Some(Config::parse(request)?),
        _ => None,
    };
    let mut notes = config.as_ref().map(|config| config.notes.clone()).unwrap_or_default();
    let settings = settings(request, host_file, &mut notes).map_err(|e| e.with_notes(&notes))?;
    let done = act(request, config, begun, &settings, &notes, out).await;
    done.map_err(|e| e.with_notes(&notes))
}

/// Does what is asked; `notes` are for the log.
async fn act(
    request: &Request,
    config: Option<Config>,
    begun: Begun,
    settings: &Settings,
    notes: &[String],
    out: &mut impl Write,
) -> Result<(), Error> {
    if let Some(config) = &config {
        settings.check_allowed(config)?;
        settings.notes.iter().chain(notes).for_each(|note| tracing::warn!("{note}"));
    }
    let identity = setup::identity(settings)?;
    let kv = store::open(setup::access(settings, Trust::OwnerReads, request.verb.gives_up_after())?);
    let keys = Keys::new(&settings.prefix);
    let folder = state_folder(settings);
    let run = Run {
        session: Session { kv: &kv, keys: &keys, until: begun.began + request.verb.deadline() },
        identity: &identity,
        clock: &|| node::later(&begun.start),
        start: begun.start.clone(),
        awaited: &|| parent_id() == begun.parent,
        spool: Spool::new(&folder, &identity),
        mark: MarkFile::new(&folder, &identity, &setup::urls(settings)),
    };
    let owner = || request.attachment().map(|attachment| run.owner(attachment));
    match (request.verb, config) {
        (Verb::Add, Some(config)) => {
            add_and_print(&run, owner()?, request, &config, (out, begun.answered)).await?
        }
        (Verb::Del, _) => {
            let former = former_name(settings, &identity);
            if del::del(&run, &owner()?, request.args.pod.uid.as_ref(), former.as_ref()).await?
                == del::Done::Spooled
            {
                // What this run could not do it cannot do for others.
                return Ok(());
            }
        }
        (Verb::Check, _) => check_previous(&run, &owner()?, request).await?,
        (Verb::Status, _) => return status::status(&run).await,
        (Verb::Gc, _) => collect(&run, request, settings.gc_grace_s).await?,
        (Verb::Add | Verb::Version, _) => {}
    }
    begun.answered.store(true, Ordering::Relaxed);
    run.drain_spool().await;
    Ok(())
}

/// What the node was called before its host file named it, if that is another name.
fn former_name(settings: &Settings, identity: &Identity) -> Option<NodeName> {
    let derived = settings.node_name.as_ref().and_then(|_| node::derived_name().ok());
    derived.filter(|name| *name != identity.node)
}

/// Reads the host file and decides what the run goes by; starts the log.
fn settings(request: &Request, named: Option<&str>, notes: &mut Vec<String>) -> Result<Settings, Error> {
    let said = IpamSettings::of(request);
    let host = setup::host_file(named, said.configuration_path.as_deref())?;
    let settings = Settings::for_verb(request.verb, host, &said)?;
    setup::start_log(settings.log_file.as_deref(), settings.log_level.as_deref());
    if request.verb == Verb::Add && settings.rule == Rule::HostFile {
        notes.extend(said.without_effect());
    }
    Ok(settings)
}

fn refuse_own_netns(request: &Request) -> Result<(), Error> {
    let concerns = matches!(request.verb, Verb::Add | Verb::Del) && !request.netns_override;
    if concerns && !request.netns.is_empty() && node::is_own_netns(&request.netns) {
        return Err(Error::new(
            Code::InvalidNetns,
            "plugin's netns and netns from CNI_NETNS should not be the same",
        )
        .with_details("set CNI_NETNS_OVERRIDE=1 if that is meant"));
    }
    Ok(())
}

async fn add_and_print(
    run: &Run<'_, Store>,
    owner: Owner,
    request: &Request,
    config: &Config,
    (out, answered): (&mut impl Write, &AtomicBool),
) -> Result<(), Error> {
    let dns = match &config.resolv_conf {
        None => config.dns.clone(),
        Some(path) => config::resolv::parse(&setup::resolv_conf(path)?),
    };
    let ask = ask(run, owner, request, config);
    let added = add::add(run, &ask).await?;
    let answer = success(config, &added.held, dns).render(request.version);
    let printed = answer.and_then(|answer| print(out, &answer, answered));
    if printed.is_err() && !added.repeats {
        add::undo(run, &ask).await;
    }
    printed
}

fn ask(run: &Run<'_, Store>, owner: Owner, request: &Request, config: &Config) -> Ask {
    let pod = request.args.pod.clone();
    let hash =
        u64::from_str_radix(&digest_hex(run.identity.node.as_str().as_bytes())[..16], 16).unwrap_or_default();
    Ask {
        owner,
        start: run.start.clone(),
        machine: run.identity.machine.clone(),
        store_id: random_id(),
        labels: Labels { pod, cni_network: request.name.clone() },
        created_at: node::timestamp(),
        sets: config.sets.clone(),
        requests: config.requests.clone(),
        statics: config
            .statics
            .iter()
            .map(|fixed| Held { address: fixed.address.ip(), network: fixed.network.clone() })
            .collect(),
        order: config.order,
        node_seed: hash,
    }
}

/// What is held, with the prefix lengths and gateways of the configuration.
fn success(config: &Config, held: &[Held], dns: Dns) -> Success {
    let from_set = |(set, held): (usize, &Held)| {
        let range = config.sets[set].covers(Addr::from(held.address));
        IpConfig {
            address: held.address,
            prefix_len: range
                .map_or(if held.address.is_ipv4() { 32 } else { 128 }, |range| range.prefix_len()),
            gateway: range.and_then(|range| range.gateway()),
        }
    };
    let sets = config.sets.len().min(held.len());
    let mut ips: Vec<IpConfig> = held[..sets].iter().enumerate().map(from_set).collect();
    ips.extend(config.statics.iter().map(|fixed| IpConfig {
        address: fixed.address.ip(),
        prefix_len: fixed.address.prefix(),
        gateway: fixed.gateway,
    }));
    Success { ips, routes: config.routes.clone(), dns }
}

async fn check_previous(run: &Run<'_, Store>, owner: &Owner, request: &Request) -> Result<(), Error> {
    let config = Config::parse(request)?;
    let previous = previous::prev_result_addresses(&request.config)?.unwrap_or_default();
    let previous: Vec<IpAddr> = previous.into_iter().map(|(address, _)| address).collect();
    check::check(run, owner, request.args.pod.uid.as_ref(), &config.sets, &previous).await
}

async fn collect(run: &Run<'_, Store>, request: &Request, grace_s: u64) -> Result<(), Error> {
    let Some(valid) = previous::valid_attachments(&request.config)? else { return Ok(()) };
    let valid: HashSet<_> = valid.into_iter().collect();
    gc::gc(run, &request.name, &valid, grace_s).await
}

fn print(out: &mut impl Write, text: &str, answered: &AtomicBool) -> Result<(), Error> {
    #[cfg(feature = "failpoints")]
    crate::failpoints::pass("print.before");
    let printed = writeln!(out, "{text}").and_then(|()| out.flush());
    answered.store(printed.is_ok(), Ordering::Relaxed);
    #[cfg(feature = "failpoints")]
    crate::failpoints::pass("print.after");
    printed.map_err(|e| Error::io(format!("the answer cannot be written to stdout: {e}")))
}
