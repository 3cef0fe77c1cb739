//! The rule by which a member with an empty folder begins a new etcd or joins one. Pure.
//!
//! A member that has lost its data and begins anew under its old name breaks its promises: it may vote twice, and
//! commits may vanish. So a new etcd begins only if this step has seen the folder of every other member empty, while
//! its own was. The step does not end before the others know as much: a step that has ended does not answer any more,
//! and the others would wait for it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// The last answer of another member.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Answer {
    /// Its folder is empty too, and these it has seen empty.
    Empty { seen: BTreeSet<IpAddr> },
    /// An etcd runs there.
    Etcd,
    /// Nothing that can be read, and why.
    Silence(String),
}

/// The next act of this step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Decision {
    /// Begin a new etcd.
    New,
    /// Join the etcd that runs, as soon as it lets this member in.
    Join,
    /// Ask again.
    Wait,
}

/// Why nothing is known of a member at first.
const UNASKED: &str = "it was not asked yet";

/// The knowledge about one other member.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Known {
    /// It has not answered, and why.
    Silent(String),
    /// Its etcd runs, and nobody has seen its folder empty.
    Runs,
    /// Its step waits with an empty folder, and has seen these empty.
    Empty { seen: BTreeSet<IpAddr> },
    /// Its folder was empty, and its step has ended.
    Ended { runs: bool },
}

impl Known {
    fn was_empty(&self) -> bool {
        matches!(self, Self::Empty { .. } | Self::Ended { .. })
    }

    fn runs(&self) -> bool {
        matches!(self, Self::Runs | Self::Ended { runs: true })
    }
}

/// The knowledge about all other members since this step began. All the time its own folder was empty.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Seen {
    me: IpAddr,
    others: BTreeMap<IpAddr, Known>,
}

impl Seen {
    pub(super) fn new(me: IpAddr, others: impl IntoIterator<Item = IpAddr>) -> Self {
        let unknown = Known::Silent(UNASKED.to_owned());
        Self { me, others: others.into_iter().map(|other| (other, unknown.clone())).collect() }
    }

    pub(super) fn hear(&mut self, from: IpAddr, answer: Answer) {
        let was_empty = self.others.get(&from).is_some_and(Known::was_empty);
        let known = match answer {
            Answer::Empty { seen } => Known::Empty { seen },
            Answer::Etcd if was_empty => Known::Ended { runs: true },
            Answer::Silence(_) if was_empty => Known::Ended { runs: false },
            Answer::Etcd => Known::Runs,
            Answer::Silence(why) => Known::Silent(why),
        };
        self.others.insert(from, known);
    }

    /// The others whose folder was empty at any time since this step began.
    pub(super) fn empty(&self) -> BTreeSet<IpAddr> {
        self.others.iter().filter(|(_, known)| known.was_empty()).map(|(other, _)| *other).collect()
    }

    pub(super) fn decision(&self) -> Decision {
        let all_were_empty = self.empty().len() == self.others.len();
        // An etcd of a member that was empty has only begun first.
        if all_were_empty && self.nobody_needs_me() {
            return Decision::New;
        }
        let one_runs = self.others.values().any(Known::runs);
        if one_runs && !all_were_empty { Decision::Join } else { Decision::Wait }
    }

    /// True if all that wait have seen everybody they can see, and enough of them for a majority have. The others can
    /// join then. An answer that got lost looks like an end, so an end alone does not count.
    fn nobody_needs_me(&self) -> bool {
        let is_done = |(other, known)| self.unseen_by(other, known).is_empty();
        let ended =
            self.others.values().filter(|known| matches!(known, Known::Ended { runs: false })).count();
        let members = self.others.len() + 1;
        self.others.iter().all(is_done) && members - ended > members / 2
    }

    /// The members that a waiting step has not seen empty and may yet see so. Nobody sees that of a member whose etcd
    /// runs.
    fn unseen_by(&self, other: &IpAddr, known: &Known) -> Vec<IpAddr> {
        let Known::Empty { seen } = known else { return Vec::new() };
        let answering = self.others.iter().filter(|(_, known)| !known.runs()).map(|(ip, _)| *ip);
        answering.chain([self.me]).filter(|ip| ip != other && !seen.contains(ip)).collect()
    }

    /// For whom it waits, and why, for the log.
    pub(super) fn awaited(&self) -> String {
        let unseen = |(other, known): (&IpAddr, &Known)| match known {
            Known::Silent(why) => Some(format!("{other} ({why})")),
            Known::Runs => Some(format!("{other} (its etcd runs)")),
            Known::Empty { .. } | Known::Ended { .. } => None,
        };
        let unfinished = |(other, known): (&IpAddr, &Known)| match known {
            Known::Ended { runs: false } => Some(format!("{other} (it does not answer any more)")),
            _ => {
                let unseen: Vec<String> =
                    self.unseen_by(other, known).iter().map(IpAddr::to_string).collect();
                (!unseen.is_empty())
                    .then(|| format!("{other} (it has not seen {} yet)", unseen.join(" and ")))
            }
        };
        let mut awaited: Vec<String> = self.others.iter().filter_map(unseen).collect();
        if awaited.is_empty() {
            awaited = self.others.iter().filter_map(unfinished).collect();
        }
        awaited.join(", ")
    }
}

#[cfg(test)]
mod tests;
