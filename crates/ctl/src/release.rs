//! `metes release`; `now` ends cooldowns.

mod now;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::filter::{Filter, Place, PodName, pod_name};
use super::input::{answers_come_from_stdin, read_lines};
use super::inventory::{Inventory, Row};
use super::{CliError, Context, Terminal};
use metes_core::cooling::CoolingLeases;
use metes_core::plan::free::Freed;
use metes_core::pool::{Addr, NO_CLUSTER, NetworkName, Owner, OwnerKind, OwnerRecord};
use metes_engine::kv::{Failure, Kv};
use metes_engine::release::{self, FreeError};

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("what").required(true).args(["targets", "containers", "file"]))]
pub(super) struct ReleaseArgs {
    /// Free the owners that hold these addresses, or all containers of these pods
    #[arg(value_name = "ADDRESS|NETWORK/ADDRESS|NAMESPACE/POD", value_parser = release_target)]
    targets: Vec<ReleaseTarget>,
    /// The network of the addresses, if they are held in several
    #[arg(long, value_parser = NetworkName::stored, conflicts_with = "containers")]
    network: Option<NetworkName>,
    /// Free all interfaces of the container with this id, or of the only one whose id begins so; may be given
    /// several times
    #[arg(long = "container", value_name = "ID")]
    containers: Vec<String>,
    /// Free what the lines of this file name, in the form that `list` and `leaks` print with -o name; - for stdin.
    /// Lines that name what nobody holds are ignored
    #[arg(short = 'f', long = "file", value_name = "FILE")]
    file: Option<PathBuf>,
    #[command(flatten)]
    place: Place,
    /// End the cooldown of these addresses: they may be given out at once. It frees none that is held
    #[arg(long, conflicts_with_all = ["containers", "file", "no_cooldown", "node", "cluster"])]
    now: bool,
    /// Free without a cooldown: the addresses may be given out again at once
    #[arg(long)]
    no_cooldown: bool,
    /// Do not ask
    #[arg(short = 'y', long)]
    yes: bool,
}

/// The owners to be freed, as a person names them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ReleaseTarget {
    /// The owners of an address, in any network.
    Address(IpAddr),
    /// The owner of an address in a network. Without a network: the owners that have it as a static address that is
    /// only recorded.
    InNetwork(Option<NetworkName>, IpAddr),
    /// All interfaces of the container with this id, or of the only one whose id begins so.
    Container(String),
    /// All containers of a pod.
    Pod(PodName),
    /// An interface of a container.
    Owner(Owner),
}

/// Reads an address, a network and an address with a slash between, or the names of an owner with slashes between. What
/// stands for no network and no cluster is nothing: a hyphen would look like a flag.
pub(super) fn release_target(text: &str) -> Result<ReleaseTarget, String> {
    let address = |text: &str| text.parse::<IpAddr>();
    if text.split_once('/').is_some_and(|(start, _)| address(start).is_ok()) {
        return Err(format!(
            "{text} is a prefix, and single addresses are released: metes list {text} -o name | metes release -f -"
        ));
    }
    let target = match text.split('/').collect::<Vec<_>>()[..] {
        [one] => address(one).ok().map(ReleaseTarget::Address),
        ["", recorded] => address(recorded).ok().map(|address| ReleaseTarget::InNetwork(None, address)),
        [network, held] => NetworkName::stored(network)
            .ok()
            .zip(address(held).ok())
            .map(|(network, address)| ReleaseTarget::InNetwork(Some(network), address))
            .or_else(|| pod_name(text).ok().map(ReleaseTarget::Pod)),
        [cluster, node, container, ifname] => {
            let cluster = if cluster.is_empty() { NO_CLUSTER } else { cluster };
            Owner::named([cluster, node, container, ifname]).ok().map(ReleaseTarget::Owner)
        }
        _ => None,
    };
    target.ok_or_else(|| {
        "expected ADDRESS, NETWORK/ADDRESS, NAMESPACE/POD or CLUSTER/NODE/CONTAINER/INTERFACE".to_owned()
    })
}

/// The most containers that a message names if it is not clear which one is meant.
const CONTAINERS_NAMED: usize = 3;

/// So many targets are looked up one by one; for more, everything is read.
const LOOKED_UP: usize = 16;

/// Frees whole owners, after naming all that they hold, or ends the cooldown of addresses.
pub(super) async fn release<K: Kv>(
    context: &Context<'_, K>,
    args: &ReleaseArgs,
    terminal: &mut Terminal<'_>,
) -> Result<ExitCode, CliError> {
    if args.now {
        return now::end_cooldowns(context, args, terminal).await;
    }
    let targets = targets(args)?;
    let inventory =
        read(context, args, &targets).await.map_err(CliError::store("look up what is to be released"))?;
    let owners = chosen(&inventory, args, &targets, terminal)?;
    if owners.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    for owner in &owners {
        terminal.tell(&plan_words(&inventory, owner));
    }
    terminal.confirm(
        args.yes,
        "Free them? Make sure that nothing uses them any more.",
        "nothing was freed",
    )?;
    let mut leases = CoolingLeases::default();
    let mut code = ExitCode::SUCCESS;
    for owner in owners {
        let leases = (!args.no_cooldown).then_some(&mut leases);
        // How long a person thinks does not count, nor how many there are.
        let revision = inventory.owners.get(owner).map_or(0, |seen| seen.revision);
        match free_owner(&context.renewed(), owner, revision, leases).await {
            Ok(()) => terminal.answer(&format!("freed {}: {}\n", owner, held_words(&inventory, owner)))?,
            Err(CliError::Refused(why)) => {
                terminal.tell(&format!("metes: {why}"));
                code = ExitCode::FAILURE;
            }
            Err(failed) => return Err(failed),
        }
    }
    Ok(code)
}

/// Reads the targets from the command line, or from the file that it names.
fn targets(args: &ReleaseArgs) -> Result<Vec<ReleaseTarget>, CliError> {
    let Some(file) = &args.file else {
        let containers = args.containers.iter().cloned().map(ReleaseTarget::Container);
        return Ok(args.targets.iter().cloned().chain(containers).collect());
    };
    if !args.yes {
        answers_come_from_stdin(file, "nothing was freed", "the list")?;
    }
    Ok(read_lines(file, "nothing was freed", release_target)?.1)
}

/// Reads the part of the store that has the targets, and all addresses of their owners.
async fn read<K: Kv>(
    context: &Context<'_, K>,
    args: &ReleaseArgs,
    targets: &[ReleaseTarget],
) -> Result<Inventory, Failure> {
    if targets.len() > LOOKED_UP {
        return context.everything().await;
    }
    let keys = context.session.keys;
    let mut inventory = Inventory::default();
    for target in targets {
        let found = match target {
            ReleaseTarget::Address(address) | ReleaseTarget::InNetwork(Some(_), address) => {
                let mut found = context.of_address(&context.networks().await?, *address).await?;
                // Without a network, an address that is only recorded may be meant as well.
                if matches!(target, ReleaseTarget::Address(_)) && args.network.is_none() {
                    found.take(context.recorded(&|held| held == *address).await?);
                }
                found
            }
            ReleaseTarget::InNetwork(None, address) => context.recorded(&|held| held == *address).await?,
            ReleaseTarget::Container(id) => {
                context.of_all_owners(&|owner, _| owner.container_id.as_str().starts_with(id)).await?
            }
            ReleaseTarget::Pod(pod) => {
                let is_its = |record: &OwnerRecord| pod.is(&record.labels.pod);
                context.of_all_owners(&|_, record| record.is_none_or(is_its)).await?
            }
            ReleaseTarget::Owner(owner) => {
                context.of_owners(&[keys.owner(owner)], &|found, _| found == owner).await?
            }
        };
        let owners: BTreeSet<Owner> = found.rows.iter().filter_map(Row::owner).cloned().collect();
        inventory.take(found);
        let of_each: Vec<_> = owners.iter().map(|owner| keys.owner(owner)).collect();
        inventory.take(context.of_owners(&of_each, &|owner, _| owners.contains(owner)).await?);
    }
    Ok(inventory.sorted())
}

/// Frees one owner, if its record is the one that was shown: of this mod revision, or none (0). The only place where a
/// command of a person frees anything without a violation.
async fn free_owner<K: Kv>(
    context: &Context<'_, K>,
    owner: &Owner,
    revision: i64,
    leases: Option<&mut CoolingLeases>,
) -> Result<(), CliError> {
    let session = context.session;
    match release::release_as_read(session, owner, revision, leases).await {
        Ok(Freed::Addresses(_)) => Ok(()),
        // Its record is gone: another command freed it, or a try of this one that was not answered.
        Ok(Freed::Nothing) if revision > 0 => Ok(()),
        Ok(Freed::Nothing) => Err(CliError::Refused(format!(
            "{owner} was not freed: it has no record; metes check --mend reservation-without-owner frees what is \
             reserved for it"
        ))),
        Ok(Freed::Younger | Freed::Elsewhere(_)) => Err(CliError::Refused(format!(
            "{owner} was not freed: its record was written anew meanwhile; look again with metes list"
        ))),
        Err(FreeError::Store(failure)) => Err(CliError::store(format!("free {owner}"))(failure)),
        Err(FreeError::OutOfTime(_)) => Err(CliError::OutOfTime(format!("free {owner}"))),
        Err(FreeError::Bad(bad)) => Err(CliError::Refused(format!(
            "{owner} was not freed: {bad}; what cannot be decoded counts as held"
        ))),
    }
}

/// Why a target is not freed, in a sentence that says what to do.
#[derive(Debug, PartialEq, Eq)]
struct Unchosen {
    why: String,
    /// Nobody holds it.
    is_gone: bool,
}

impl From<String> for Unchosen {
    fn from(why: String) -> Self {
        Self { why, is_gone: false }
    }
}

impl Unchosen {
    fn gone(why: String) -> Self {
        Self { why, is_gone: true }
    }
}

/// The owners to free. What a file names and nobody holds is only told.
fn chosen<'a>(
    inventory: &'a Inventory,
    args: &ReleaseArgs,
    targets: &[ReleaseTarget],
    terminal: &mut Terminal<'_>,
) -> Result<BTreeSet<&'a Owner>, CliError> {
    let mut owners = BTreeSet::new();
    let mut refused = Vec::new();
    for target in targets {
        match owners_of(inventory, args, target) {
            Ok(found) => owners.extend(found),
            Err(Unchosen { why, is_gone: true }) if args.file.is_some() => {
                terminal.tell(&format!("metes: {why}"))
            }
            Err(Unchosen { why, .. }) => refused.push(why),
        }
    }
    match &refused[..] {
        [] => Ok(owners),
        [why] if targets.len() == 1 => Err(CliError::Refused(why.clone())),
        _ => {
            refused.iter().for_each(|why| terminal.tell(&format!("metes: {why}")));
            Err(CliError::Refused("nothing was freed".to_owned()))
        }
    }
}

fn owners_of<'a>(
    inventory: &'a Inventory,
    args: &ReleaseArgs,
    target: &ReleaseTarget,
) -> Result<Vec<&'a Owner>, Unchosen> {
    let is_in_network = |row: &&Row| match target {
        ReleaseTarget::InNetwork(network, _) => row.network == *network,
        _ => args.network.is_none() || row.network == args.network,
    };
    let owners = match target {
        ReleaseTarget::Address(address) | ReleaseTarget::InNetwork(_, address) => {
            vec![holder_of(inventory, *address, args, &is_in_network)?]
        }
        ReleaseTarget::Container(id) => owners_of_container(inventory, id, &args.place)?,
        ReleaseTarget::Pod(pod) => owners_of_pod(inventory, pod, &args.place)?,
        ReleaseTarget::Owner(owner) => {
            let known = known_owners(inventory).find(|known| *known == owner);
            refuse_undecodable(inventory, &|undecodable| undecodable == owner)?;
            vec![known.ok_or_else(|| Unchosen::gone(format!("{owner} holds nothing")))?]
        }
    };
    owners.iter().try_for_each(|owner| match owner.kind() {
        OwnerKind::Container(_) | OwnerKind::Unknown => Ok(()),
        OwnerKind::Subject(subject) => Err(Unchosen::from(format!(
            "its addresses outlive each {subject}: metes hold --remove ADDRESS ends that, and release --container \
             frees what one container uses"
        ))),
        OwnerKind::Aside(network, address) => Err(Unchosen::from(format!(
            "{address} of network {network} is set aside, and no container has it: metes hold --remove {address} \
             --network {network} ends that"
        ))),
    })?;
    Ok(owners)
}

/// Refuses a target whose record does not decode: its addresses are not known.
fn refuse_undecodable(inventory: &Inventory, is_meant: &dyn Fn(&Owner) -> bool) -> Result<(), Unchosen> {
    let mut undecodable = inventory.unreadable.iter().filter_map(|one| one.owner.as_ref());
    match undecodable.find(|owner| is_meant(owner)) {
        Some(owner) => Err(Unchosen::from(format!(
            "the record of {owner} cannot be decoded, so what it holds counts as held: if a newer metes wrote it, \
             use that one; else metes check --mend undecodable-owner frees it"
        ))),
        None => Ok(()),
    }
}

/// All owners. One whose reservations are gone has no row, and one whose record is gone only rows.
fn known_owners(inventory: &Inventory) -> impl Iterator<Item = &Owner> {
    inventory.rows.iter().filter_map(Row::owner).chain(inventory.owners.keys())
}

fn holder_of<'a>(
    inventory: &'a Inventory,
    address: IpAddr,
    args: &ReleaseArgs,
    is_in_network: &dyn Fn(&&Row) -> bool,
) -> Result<&'a Owner, Unchosen> {
    let wanted = |row: &&Row| {
        row.address == Addr::from(address)
            && is_in_network(row)
            && row.owner().is_none_or(|owner| args.place.holds(owner))
    };
    let rows: Vec<&Row> = inventory.rows.iter().filter(wanted).collect();
    match rows[..] {
        [] => Err(Unchosen::gone(not_held(inventory, address, args))),
        [row] => Ok(row.owner().ok_or_else(|| {
            format!("the reservation of {address} cannot be decoded: it counts as held and is not freed")
        })?),
        _ => Err(ambiguous(address, &rows).into()),
    }
}

fn not_held(inventory: &Inventory, address: IpAddr, args: &ReleaseArgs) -> String {
    if !inventory.rows.iter().any(|row| row.address == Addr::from(address)) {
        return format!("nobody holds {address}, in any network: there is nothing to free");
    }
    let place = Filter { network: args.network.clone(), place: args.place.clone(), ..Filter::default() };
    format!(
        "{address} is not held{place}, so there is nothing to free; metes show {address} says where it is"
    )
}

fn ambiguous(address: IpAddr, rows: &[&Row]) -> String {
    let networks: BTreeSet<&NetworkName> = rows.iter().filter_map(|row| row.network.as_ref()).collect();
    if networks.len() == rows.len() {
        let names: Vec<&str> = networks.into_iter().map(NetworkName::as_str).collect();
        return format!(
            "{address} is held in the networks {}: say which with --network",
            names.join(" and ")
        );
    }
    let owners: Vec<String> = rows.iter().filter_map(|row| row.owner()).map(Owner::to_string).collect();
    format!("{address} belongs to {}: say which with --container", owners.join(" and to "))
}

fn owners_of_container<'a>(
    inventory: &'a Inventory,
    id: &str,
    place: &Place,
) -> Result<Vec<&'a Owner>, Unchosen> {
    let known = |test: &dyn Fn(&str) -> bool| -> Vec<&Owner> {
        let is_it = |owner: &&Owner| test(owner.container_id.as_str()) && place.holds(owner);
        // A hold for a pod has the pod's name there.
        let has_id = |owner: &&Owner| !owner.is_for_subject();
        known_owners(inventory).filter(has_id).filter(is_it).collect()
    };
    let mut owners = known(&|known| known == id);
    if owners.is_empty() {
        refuse_undecodable(inventory, &|owner| {
            owner.container_id.as_str().starts_with(id) && place.holds(owner)
        })?;
        owners = known(&|known| known.starts_with(id));
    }
    if owners.is_empty() {
        return Err(Unchosen::gone(format!(
            "no container with the id {id:?} holds an address{place}; metes list shows those that do"
        )));
    }
    let ids: BTreeSet<&str> = owners.iter().map(|owner| owner.container_id.as_str()).collect();
    if ids.len() > 1 {
        let some: Vec<&str> = ids.iter().copied().take(CONTAINERS_NAMED).collect();
        return Err(Unchosen::from(format!(
            "{} containers have ids that begin with {id:?}, such as {}: give more of it",
            ids.len(),
            some.join(" and ")
        )));
    }
    let names = |name: fn(&Owner) -> &str| owners.iter().map(|owner| name(owner)).collect::<BTreeSet<_>>();
    let nodes: Vec<&str> = names(|owner| owner.node.as_str()).into_iter().collect();
    if nodes.len() > 1 {
        let nodes = nodes.join(" and on ");
        return Err(format!("a container {id:?} is on {nodes}: say which with --node").into());
    }
    let clusters: Vec<&str> = names(|owner| owner.cluster_or_dash()).into_iter().collect();
    if clusters.len() > 1 {
        let clusters = clusters.join(" and in ");
        return Err(
            format!("a container {id:?} is in the clusters {clusters}: say which with --cluster").into()
        );
    }
    Ok(owners)
}

/// The containers of a pod that hold an address. What stays with the pod's name is not theirs.
fn owners_of_pod<'a>(
    inventory: &'a Inventory,
    pod: &PodName,
    place: &Place,
) -> Result<Vec<&'a Owner>, Unchosen> {
    let PodName { namespace, name } = pod;
    let owners: BTreeSet<&Owner> = inventory
        .rows
        .iter()
        .filter(|row| row.holder.as_ref().is_some_and(|holder| pod.is(&holder.labels.pod)))
        .filter_map(Row::container)
        .filter(|owner| place.holds(owner))
        .collect();
    if owners.is_empty() {
        return Err(Unchosen::gone(format!(
            "no container of the pod {namespace}/{name} holds an address{place}; metes list shows those that do"
        )));
    }
    Ok(owners.into_iter().collect())
}

fn plan_words(inventory: &Inventory, owner: &Owner) -> String {
    format!("{} holds {}", owner, held_words(inventory, owner))
}

/// All that an owner holds.
fn held_words(inventory: &Inventory, owner: &Owner) -> String {
    let held: Vec<String> = inventory
        .rows
        .iter()
        .filter(|row| row.owner() == Some(owner))
        .map(|row| match (&row.network, &row.kept) {
            (Some(network), None) => format!("{} of network {network}", row.address),
            (Some(network), Some(kept)) => {
                format!("{} of network {network}, which stays with {}", row.address, kept.hold)
            }
            (None, _) => format!("{} (only recorded)", row.address),
        })
        .collect();
    if held.is_empty() { "nothing that is reserved".to_owned() } else { held.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inventory::Holder;
    use metes_audit::fixture;
    use std::rc::Rc;

    fn row(network: Option<&str>, address: &str, owner: Option<(&str, &str, &str)>) -> Row {
        let holder = owner.map(|(node, container, ifname)| Holder {
            owner: Owner::named([if container == "c5" { "west" } else { "-" }, node, container, ifname])
                .expect("plain names"),
            labels: Rc::default(),
            created_at: None,
            hold: None,
        });
        let network = network.map(|network| NetworkName::stored(network).expect("network"));
        Row {
            network,
            address: Addr::from(address.parse::<IpAddr>().expect("ip")),
            holder,
            pool: None,
            kept: None,
        }
    }

    fn inventory() -> Inventory {
        let rows = vec![
            row(Some("a"), "10.0.0.1", Some(("n1", "c1", "net1"))),
            row(Some("a"), "fd00::1", Some(("n1", "c1", "net1"))),
            row(Some("b"), "10.0.0.1", Some(("n1", "c2", "net1"))),
            row(Some("b"), "10.0.0.2", Some(("n2", "c2", "net1"))),
            row(Some("b"), "10.0.0.3", None),
            row(None, "192.0.2.1", Some(("n1", "c3", "net1"))),
            row(None, "192.0.2.1", Some(("n2", "c4", "net1"))),
            row(Some("a"), "10.0.0.5", Some(("n1", "c5", "net1"))),
            row(Some("b"), "10.0.0.6", Some(("n1", "c6", "net1"))),
            row(Some("b"), "10.0.0.7", Some(("n1", "c6", "net2"))),
            row(Some("b"), "10.0.0.8", Some(("@b", "00000000000000000000ffff0a000008", "hold"))),
        ];
        let mut rows = rows;
        // One container id on nodes of one name, in two clusters.
        rows.iter_mut().filter(|row| row.address == fixture::addr("10.0.0.7")).for_each(|row| {
            row.holder.as_mut().expect("it is held").owner.cluster = "east".parse().ok();
        });
        rows.iter_mut().filter(|row| row.address == fixture::addr("10.0.0.2")).for_each(|row| {
            let pod = &mut Rc::make_mut(&mut row.holder.as_mut().expect("it is held").labels).pod;
            (pod.namespace, pod.name) = ("ns".to_owned(), "web-0".to_owned());
        });
        let mut inventory = Inventory::default();
        inventory.rows = rows;
        inventory
    }

    fn args(line: &str) -> ReleaseArgs {
        use crate::args::{CliVerb, Command};
        use clap::Parser;
        let words = ["metes", "release"].into_iter().chain(line.split_whitespace());
        match super::super::Cli::try_parse_from(words).expect("parses").verb {
            CliVerb::Store(Command::Release(args)) => args,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_is_freed_is_told_apart() {
        let inventory = inventory();
        for (line, expected) in [
            ("fd00::1", Ok("net1 of container c1 on n1")),
            ("10.0.0.1 --network b", Ok("net1 of container c2 on n1")),
            ("--container c1", Ok("net1 of container c1 on n1")),
            ("--container c2 --node n2", Ok("net1 of container c2 on n2")),
            ("10.0.0.1", Err("networks a and b: say which with --network")),
            ("10.0.0.9", Err("nobody holds 10.0.0.9, in any network")),
            ("10.0.0.9 --network a --node n1", Err("nobody holds 10.0.0.9, in any network")),
            ("10.0.0.1 --network c", Err("not held in network c")),
            ("10.0.0.3", Err("cannot be decoded")),
            ("192.0.2.1", Err("say which with --container")),
            ("10.0.0.5 --cluster west", Ok("net1 of container c5 on n1 of cluster west")),
            (
                "10.0.0.5 --cluster east",
                Err("10.0.0.5 is not held in cluster east, so there is nothing to free; metes show"),
            ),
            ("--container c6 --cluster -", Ok("net1 of container c6 on n1")),
            ("--container c6 --cluster east", Ok("net2 of container c6 on n1 of cluster east")),
            ("--container c6", Err("is in the clusters - and in east: say which with --cluster")),
            ("--container c2", Err("is on n1 and on n2: say which with --node")),
            ("10.0.0.8", Err("metes hold --remove 10.0.0.8 --network b ends that")),
            ("--container 00000000000000000000ffff0a000008", Err("metes hold --remove")),
            ("--container c9", Err("no container with the id \"c9\"")),
            ("--container c", Err("6 containers have ids that begin with \"c\", such as c1 and c2 and c3")),
            ("b/10.0.0.1", Ok("net1 of container c2 on n1")),
            ("/192.0.2.1", Err("say which with --container")),
            ("ns/web-0", Ok("net1 of container c2 on n2")),
            ("ns/web-1", Err("no container of the pod ns/web-1 holds an address")),
            ("/n2/c4/net1", Ok("net1 of container c4 on n2")),
            ("/n2/c3/net1", Err("net1 of container c3 on n2 holds nothing")),
            ("a/10.0.0.1 fd00::1 b/10.0.0.2", Ok("net1 of container c1 on n1, net1 of container c2 on n2")),
        ] {
            let args = args(line);
            let targets = targets(&args).expect("no file");
            let found: Result<Vec<_>, _> =
                targets.iter().map(|target| owners_of(&inventory, &args, target)).collect();
            match (found, expected) {
                (Ok(owners), Ok(expected)) => {
                    let owners: BTreeSet<&Owner> = owners.into_iter().flatten().collect();
                    let owners: Vec<String> = owners.into_iter().map(Owner::to_string).collect();
                    assert_eq!(owners.join(", "), expected, "{line}");
                }
                (Err(found), Err(expected)) => assert!(found.why.contains(expected), "{line}: {found:?}"),
                (found, expected) => panic!("{line}: {found:?}, expected {expected:?}"),
            }
        }
    }

    #[test]
    fn an_owner_is_named_with_all_that_it_holds() {
        let inventory = inventory();
        let owner = inventory.rows[0].owner().expect("owner");
        let expected = "net1 of container c1 on n1 holds 10.0.0.1 of network a, fd00::1 of network a";
        assert_eq!(plan_words(&inventory, owner), expected);
    }
}
