//! Maps the errors of each layer to CNI errors, by one exhaustive match each.

use std::fmt::Write;
use std::time::Duration;

use metes_config::cni::error::{Code, Error};
use metes_config::keys;
use metes_core::meta::OutOfService;
use metes_core::plan::allot::{Refused, Seated};
use metes_core::plan::pools::PoolRefused;
use metes_core::pool::choose::Refusal;
use metes_core::pool::range::Standing;
use metes_core::pool::{
    Held, Owner, POOLS_MAX, Pod, PoolDefinition, PoolName, Range, RangeSet, RangeState, VERSION, some_of,
};
use metes_core::snapshot::BadRecord;
use metes_engine::drive::OutOfTime;
use metes_engine::endpoints::NoStore;
use metes_engine::kv::Failure;
use metes_engine::prefix::Doubt;
use metes_engine::release::{FreeError, NotFreed};
use metes_node::errors::{stranger, suspect};

/// The remedy for a state that contradicts itself.
const LOOK_AT_STORE: &str = "run `metes check` and look at what it reports; nothing was changed";

/// An error of another layer, as a runtime hears it.
pub trait ToCni {
    /// The same as an error of CNI.
    fn to_cni(self) -> Error;
}

/// A result whose error a runtime hears.
pub trait OrCni<T> {
    /// The same with an error of CNI.
    ///
    /// # Errors
    /// [`ToCni::to_cni`]
    fn or_cni(self) -> Result<T, Error>;
}

impl<T, E: ToCni> OrCni<T> for Result<T, E> {
    fn or_cni(self) -> Result<T, Error> {
        self.map_err(ToCni::to_cni)
    }
}

impl ToCni for Failure {
    fn to_cni(self) -> Error {
        let code = match self {
            Failure::Unreachable(_)
            | Failure::Unknown(_)
            | Failure::LeaseNotFound
            | Failure::LeaseExists
            | Failure::Compacted => Code::TryAgain,
            Failure::Corrupt(_) | Failure::NoSpace(_) | Failure::Refused(_) | Failure::LongLease(_) => {
                Code::Refused
            }
            Failure::Denied(_) => Code::PermissionDenied,
        };
        Error::new(code, self.to_string()).with_details(self.remedy())
    }
}

impl ToCni for NoStore {
    fn to_cni(self) -> Error {
        let text = self.to_string();
        match self {
            NoStore::Differ(_) => Error::new(Code::StoredState, text).with_details(NoStore::MEMBERS_OF_ONE),
            NoStore::Failed(failure) => failure.to_cni(),
            NoStore::Bad(bad) => bad.to_cni(),
            NoStore::TooOld(_) => Error::new(Code::Refused, text),
            NoStore::LostMeta(_) => {
                let text = format!("stored state contradicts itself: {text}");
                Error::new(Code::StoredState, text).with_details(LOOK_AT_STORE)
            }
        }
    }
}

impl ToCni for BadRecord {
    fn to_cni(self) -> Error {
        Error::new(Code::StoredState, format!("stored state cannot be decoded: {self}"))
            .with_details(LOOK_AT_STORE)
    }
}

impl ToCni for FreeError {
    fn to_cni(self) -> Error {
        match self {
            FreeError::Store(failure) => failure.to_cni(),
            FreeError::Bad(bad) => bad.to_cni(),
            FreeError::OutOfTime(_) => out_of_time(),
        }
    }
}

impl ToCni for Doubt {
    fn to_cni(self) -> Error {
        match self {
            Doubt::Suspect(epoch) => suspect(epoch),
            Doubt::Stranger { known, found } => stranger(&known, found.as_deref()),
        }
    }
}

impl ToCni for NotFreed {
    fn to_cni(self) -> Error {
        match self {
            NotFreed::Failed(failed) => failed.to_cni(),
            NotFreed::Suspect(doubt) => doubt.to_cni(),
        }
    }
}

impl ToCni for Refused {
    fn to_cni(self) -> Error {
        match self {
            Refused::Deleted => Error::new(Code::TryAgain, "a DEL of this container came after this ADD began")
                .with_details("an ADD that is still wanted may be repeated"),
            Refused::Outlived(owner) => Error::new(
                Code::TryAgain,
                format!("a younger sandbox of this pod, {}, holds its addresses", owner.container_id),
            )
            .with_details("the sandbox that asked has been replaced"),
            Refused::OtherMachine(other) => Error::new(
                Code::InvalidConfig,
                other.to_string(),
            )
            .with_details(
                "give each machine a node_name of its own in its host file; if this machine was installed anew, \
                 free what it held before: metes release --container",
            ),
            Refused::Unfit(held, wanted) => Error::new(
                Code::InvalidConfig,
                format!(
                    "this container's interface holds {}, and the configuration asks for {wanted}",
                    list(&held)
                ),
            )
            .with_details("DEL first, or repeat the ADD with the configuration that it was made with"),
            Refused::Pool(why) => pool(why),
            Refused::Seated(seated) => in_use(*seated),
            Refused::HoldUnfit(unfit) => hold_unfit(&unfit.0, &unfit.1, &unfit.2),
            Refused::Address(address, network, why) => Error::new(
                Code::AddressNotAvailable,
                format!("the requested address {address} in network {network} {}", because(why)),
            )
            .with_details("ask for another address, or for none"),
            Refused::Held(address, network, held) => {
                let Pod { namespace, name, .. } = &held.pod;
                let pod =
                    if name.is_empty() { String::new() } else { format!(" (pod {namespace}/{name})") };
                let (by, since) = (&held.owner, &held.since);
                Error::new(
                    Code::AddressNotAvailable,
                    format!(
                        "the address {address} requested from network {network} has been held by {by}{pod} since \
                         {since}"
                    ),
                )
                .with_details(format!(
                    "ask for another address, or for none where a range gives one; `metes show {address}` says more \
                     about the holder"
                ))
            }
            Refused::SetAside(address, network, note) => Error::new(
                Code::AddressNotAvailable,
                format!("the requested address {address} in network {network} is set aside: {note}"),
            )
            .with_details("ask for another address, or for none; `metes hold --remove` ends it"),
            Refused::Cooling(address, network) => Error::new(
            Code::TryAgain,
            format!("the requested address {address} of network {network} is cooling: it was freed a short while ago"),
        )
        .with_details("ask again after the `cooldown` of its range or pool, or ask for another address"),
        Refused::OutOfService(why) => out_of_service(why),
            Refused::Bad(bad) => bad.to_cni(),
            Refused::Contradiction(text) => {
                let text = format!("stored state contradicts itself: {text}");
                Error::new(Code::StoredState, text).with_details(LOOK_AT_STORE)
            }
        }
    }
}

/// The hold of the pod's name has addresses that the configuration does not give.
fn hold_unfit(hold: &Owner, held: &[Held], wanted: &str) -> Error {
    let text = format!("{hold} has {}, and the configuration asks for {wanted}", list(held));
    Error::new(Code::InvalidConfig, text).with_details(format!(
        "its addresses stay until the hold ends: metes hold --remove {} ends it, and the next pod of that name gets \
         new ones",
        Held::words(held)
    ))
}

/// A container uses the addresses of the pod's name.
fn in_use(Seated { hold, user, pod, taken_at }: Seated) -> Error {
    let uid = pod.uid.map_or(String::new(), |uid| format!(", pod UID {uid}"));
    let (node, container) = (&user.node, &user.container_id);
    Error::new(
        Code::TryAgain,
        format!("{hold} is in use since {taken_at} by container {container} on node {node}{uid}"),
    )
    .with_details(format!(
        "the runtime asks again, and gets it when that container is gone; if its DEL never comes: \
         metes release --container {container}"
    ))
}

fn pool(why: PoolRefused) -> Error {
    match why {
        PoolRefused::Missing(name) => no_such_pool(&name, &[]),
        PoolRefused::ForNobody(facts) => Error::new(Code::InvalidConfig, format!("no pool is for {facts}"))
            .with_details(
                "`for` of a pool says whom `auto` gives its addresses: `metes pool which` explains it",
            ),
        PoolRefused::NotOnNode(name) => {
            Error::invalid_config(format!("pool {name}, which `auto` chooses, may not be used on this node"))
                .with_details(
                    "the host file's `allowed` says which pools may be used, and by which namespaces",
                )
        }
        PoolRefused::TooMany(many) => Error::new(
            Code::InvalidConfig,
            format!("{many} pools of one priority are for this pod: expected at most {POOLS_MAX}"),
        )
        .with_details("give some of them another `priority`, or a `for` that means fewer"),
        PoolRefused::NotAllowed { name, why: fact, .. } => {
            Error::new(Code::InvalidConfig, format!("pool {name} is not for {fact}"))
                .with_details("`allow` of the pool says who may use it: `metes pool show` prints it")
        }
        PoolRefused::NotSticky(name) => Error::new(
            Code::InvalidConfig,
            format!("`ipam.sticky` asks for addresses that outlive the pod, and pool {name} has no `keep`"),
        )
        .with_details("`keep` of a pool says for how long they stay unused; its operator decides that"),
        PoolRefused::Closed { .. } => {
            Error::new(Code::NoFreeAddress, "no range of the pool is open").with_details(OPEN_RANGE)
        }
        PoolRefused::Outside(address, pools) => Error::new(
            Code::AddressNotAvailable,
            format!("the requested address {address} is in no range of pool {pools}"),
        )
        .with_details("ask for an address of these, or for none"),
        PoolRefused::NotOpen(address, name, state) => Error::new(
            Code::AddressNotAvailable,
            format!("the requested address {address} is in a range of pool {name} that is {state}"),
        )
        .with_details("ask for another address, or for none; `metes pool show` prints the ranges"),
        PoolRefused::Bad(bad) => bad.to_cni(),
    }
}

/// There is no pool of this name.
#[must_use]
pub fn no_such_pool(name: &PoolName, known: &[PoolName]) -> Error {
    Error::new(Code::InvalidConfig, keys::no_such_pool(name, known))
        .with_details("`metes pool list` prints the pools, `metes pool apply` makes one")
}

/// What is said of the addresses that a full range or pool does not give.
pub const HELD: &str = "held";
/// The same where some of them are cooling.
pub const OR_COOLING: &str = "held or cooling";

/// All that nobody holds of a range or pool is cooling: at least so many addresses. `left`: for how long the first one
/// that is known still does. `full` is what is said of the range or pool, with [`OR_COOLING`].
#[must_use]
pub fn all_cool(count: usize, left: Option<Duration>, full: Error) -> Error {
    let counted = match count {
        1 => "1 address is".to_owned(),
        count => format!("{count} addresses are"),
    };
    let first = left.map(|left| {
        let left = Duration::from_secs(left.as_secs() + 1);
        format!(", and the first one ends in {}", humantime::format_duration(left))
    });
    Error::new(Code::TryAgain, format!("{}: {counted} cooling{}", full.msg, first.unwrap_or_default())).with_details(
        "freed addresses rest for the `cooldown` of their range or pool; `cooldown_when_full` may be \"reuse\"",
    )
}

/// Every open range of a pool is full. `taken` is [`HELD`] or [`OR_COOLING`].
#[must_use]
pub fn pool_full(pool: &PoolDefinition, taken: &str) -> Error {
    let size_of = |state: RangeState| {
        let ranges = pool.all_ranges().unwrap_or_default();
        let of_state = ranges.iter().zip(&pool.ranges).filter(|(_, range)| range.state == state);
        of_state.fold(0, |sum: u128, (range, _)| sum.saturating_add(range.size()))
    };
    let [open, draining, closed] = RangeState::ALL.map(size_of);
    let (name, network) = (&pool.pool, &pool.network);
    let what = match open {
        0 => "no range of it is open".to_owned(),
        _ => format!("size {open}, {taken} {open}"),
    };
    let beside = [(draining, "draining"), (closed, "closed")].map(|(size, state)| match size {
        0 => String::new(),
        1 => format!("; its {state} ranges have 1 address"),
        _ => format!("; its {state} ranges have {size} addresses"),
    });
    let remedy = match open {
        0 => OPEN_RANGE,
        _ => "`metes pool show` prints the ranges, `metes list` who holds what; another range makes room",
    };
    Error::new(
        Code::NoFreeAddress,
        format!("no free address in pool {name} of network {network}: {what}{}", beside.concat()),
    )
    .with_details(remedy)
}

/// The remedy for a pool without an open range.
const OPEN_RANGE: &str = "`metes pool open` opens a range again, `metes pool apply` adds another one";

fn out_of_service(why: OutOfService) -> Error {
    match why {
        OutOfService::Suspect(epoch) => suspect(epoch),
        OutOfService::Paused(why) => Error::new(Code::TryAgain, format!("new addresses are paused: {why}"))
            .with_details("a migration is under way; ADD works again when it has finished"),
        OutOfService::NoMeta => {
            Error::new(Code::TryAgain, "the store has no meta: it was emptied a moment ago")
                .with_details("run `metes check`; the request may be repeated")
        }
        OutOfService::Newer(version) => Error::new(
            Code::StoredState,
            format!(
                "the store is written by version {version} of the records, and this metes writes version \
                 {VERSION}"
            ),
        )
        .with_details("install the newer metes on this node"),
    }
}

/// There is no time left.
#[must_use]
pub fn out_of_time() -> Error {
    Error::new(Code::TryAgain, OutOfTime.to_string()).with_details(OutOfTime::REASONS)
}

/// No address of a set is free. `taken` is [`HELD`] or [`OR_COOLING`].
#[must_use]
pub fn full(set: &RangeSet, taken: &str) -> Error {
    let ranges = set.ranges();
    let words = |range: &Range| format!("{} ({} to {})", range.subnet(), range.first(), range.last());
    let names: Vec<String> = ranges.iter().map(words).collect();
    let (network, size) = (ranges[0].network(), set.size());
    Error::new(
        Code::NoFreeAddress,
        format!(
            "no free address in network {network}, range {}: size {size}, {taken} {size}",
            some_of(&names)
        ),
    )
    .with_details(
        "`metes usage` and `metes list` show who holds them; a larger range, or fewer excludes, makes room",
    )
}

/// The same, with how many of the held addresses are set aside.
#[must_use]
pub fn with_set_aside(full: Error, count: usize) -> Error {
    let verb = if count == 1 { "is" } else { "are" };
    match count {
        0 => full,
        _ => Error { msg: format!("{}; {count} of them {verb} set aside", full.msg), ..full },
    }
}

fn because(why: Refusal) -> &'static str {
    match why {
        Refusal::Taken => "is taken",
        Refusal::Standing(Standing::Gateway) => "is the gateway",
        Refusal::Standing(Standing::Excluded) => "is excluded",
        Refusal::Standing(Standing::OutsideBounds) => "is outside the start and end of its range",
        Refusal::Standing(Standing::NetworkAddress) => "is the network address",
        Refusal::Standing(Standing::Broadcast) => "is the broadcast address",
        Refusal::Standing(Standing::OutsideSubnet) => "is outside every range",
        Refusal::Standing(Standing::Assignable) => "cannot be had",
    }
}

fn list(held: &[Held]) -> String {
    let mut text = String::new();
    for (i, held) in held.iter().enumerate() {
        let _ = write!(text, "{}{}", if i == 0 { "" } else { ", " }, held.address);
    }
    if text.is_empty() { "no address".to_owned() } else { text }
}
