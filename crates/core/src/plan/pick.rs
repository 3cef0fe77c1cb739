//! The free addresses that an ADD takes, by the keys that were read. Pure. A run decides with it for itself, and the
//! run at the head of a queue for those behind it.

use std::collections::BTreeSet;

use super::refused::{Halt, Refused, require};
use super::resolved::{Resolved, need_key};
use crate::builder;
use crate::keys::{Key, Keys, NetworkAddress};
use crate::pool::choose::{Choice, Refusal, choose};
use crate::pool::{Addr, Bits, Need, NetworkName, Page, Undecodable, View};
use crate::snapshot::{BadRecord, Snapshot};

/// The end of picking.
pub(crate) enum Picked {
    /// These addresses are free.
    Addresses(Picks),
    /// No address of this set is free.
    Full { set: usize },
    /// This address is asked for, and is not given.
    Refused { address: NetworkAddress, why: Refusal },
}

/// The addresses that an ADD is to reserve.
#[derive(Debug)]
pub(crate) struct Picks {
    /// One for each set.
    pub(crate) taken: Vec<NetworkAddress>,
    /// The static ones that are reserved.
    pub(crate) pinned: Vec<NetworkAddress>,
}

impl Picks {
    pub(crate) fn all(&self) -> impl Iterator<Item = &NetworkAddress> {
        self.taken.iter().chain(&self.pinned)
    }
}

/// One ADD, and the keys that were read.
#[derive(Clone, Copy)]
pub(crate) struct Picking<'a> {
    pub(crate) asked: &'a Resolved<'a>,
    pub(crate) keys: &'a Keys,
    pub(crate) snapshot: &'a Snapshot,
    /// True if an address that is asked for is judged by its bit alone, without reads of its reservation and of its
    /// cooldown. A clear bit says that there is neither, and the commit compares that. A bit that is set may be stray.
    pub(crate) goes_by_bits: bool,
}

impl Picking<'_> {
    /// Picks free addresses from the pages that are known.
    pub(crate) fn pick(&self) -> Result<Picked, Halt> {
        require(self.snapshot, self.asked.cursor_keys(self.keys))?;
        let wishes = self.asked.wishes(self.keys, self.snapshot);
        let mut view = View::default();
        let mut needs = BTreeSet::new();
        let pinned: Vec<NetworkAddress> =
            self.asked.pinned().map(|(network, address)| (network.clone(), address)).collect();
        if let Some(address) = self.pin(&pinned, &mut view, &mut needs)? {
            return Ok(Picked::Refused { address, why: Refusal::Taken });
        }
        self.refuse_cooling()?;
        loop {
            match choose(&wishes, &view) {
                Choice::Need(more) => self.supply(&more, &pinned, &mut view, &mut needs)?,
                Choice::Full { set } => {
                    self.refuse_bad_pages(&needs)?;
                    return Ok(Picked::Full { set });
                }
                Choice::Refused { set, address, why } => {
                    let network = self.asked.sets()[set]
                        .set
                        .covers(address)
                        .map_or_else(NetworkName::default, |range| range.network().clone());
                    return Ok(Picked::Refused { address: (network, address), why });
                }
                Choice::Chosen(picks) => {
                    let taken = picks.into_iter().map(|pick| (pick.network, pick.address)).collect();
                    return Ok(Picked::Addresses(Picks { taken, pinned }));
                }
            }
        }
    }

    /// Why an address that is asked for is not given, in words; or what must be read to say it.
    pub(crate) fn refuse(&self, address: NetworkAddress, why: Refusal) -> Halt {
        match Refused::address(address, why, self.keys, self.snapshot) {
            Ok(refused) => Halt::Refuse(refused),
            Err(unread) => Halt::read(unread),
        }
    }

    /// A page that does not decode counts as full. But then the answer is not that the range is full.
    fn refuse_bad_pages(&self, needs: &BTreeSet<Need>) -> Result<(), Halt> {
        for need in needs {
            if let Need::Page(network, page) = need {
                self.refuse_bad_page(network, *page)?;
            }
        }
        Ok(())
    }

    pub(crate) fn refuse_bad_page(&self, network: &NetworkName, page: Page) -> Result<(), Halt> {
        let key = self.keys.page(network, page);
        if builder::bits(self.snapshot, &key).is_some() {
            return Ok(());
        }
        let why = Undecodable::Malformed { kind: "page", reason: "not a bitmap of 512 bytes".to_owned() };
        Err(BadRecord { key: String::from_utf8_lossy(&key).into_owned(), why }.into())
    }

    /// An address that is asked for may be cooling. Its bit does not tell.
    fn refuse_cooling(&self) -> Result<(), Halt> {
        if !self.goes_by_bits {
            require(self.snapshot, self.asked.cooling_keys(self.keys).collect())?;
        }
        let is_cooling = |(network, address): &(&NetworkName, Addr)| {
            self.snapshot.entry(&self.keys.cooling(network, *address)).is_some()
        };
        match self.asked.named_addresses().find(is_cooling) {
            None => Ok(()),
            Some((network, address)) => Err(Halt::Refuse(Refused::Cooling(address, network.clone()))),
        }
    }

    /// Reserved static addresses come first, so that no set picks one of them. Returns one that is not free.
    fn pin(
        &self,
        pinned: &[NetworkAddress],
        view: &mut View,
        needs: &mut BTreeSet<Need>,
    ) -> Result<Option<NetworkAddress>, Halt> {
        let mut wanted = Vec::new();
        for (network, address) in pinned {
            wanted.push(Need::Reservation(network.clone(), *address));
            wanted.push(Need::Page(network.clone(), address.page()));
        }
        self.supply(&wanted, pinned, view, needs)?;
        let mut seen = BTreeSet::new();
        let mut taken = pinned.iter().filter(|(network, address)| {
            self.is_held(network, *address) || !seen.insert((network.clone(), *address))
        });
        Ok(taken.next().cloned())
    }

    /// True if the address is reserved, as far as that is read.
    fn is_held(&self, network: &NetworkName, address: Addr) -> bool {
        let page = self.keys.page(network, address.page());
        let has_bit = || builder::bits(self.snapshot, &page).is_none_or(|bits| bits.get(address.bit()));
        self.snapshot.entry(&self.keys.ip(network, address)).is_some() || self.goes_by_bits && has_bit()
    }

    /// Puts the known pages and summaries into the view, or asks for the unknown ones.
    fn supply(
        &self,
        wanted: &[Need],
        pinned: &[NetworkAddress],
        view: &mut View,
        needs: &mut BTreeSet<Need>,
    ) -> Result<(), Halt> {
        let read = |need: &Need| match need {
            Need::Reservation(network, address) if self.goes_by_bits => {
                self.keys.page(network, address.page())
            }
            need => need_key(self.keys, need),
        };
        require(self.snapshot, wanted.iter().map(read).collect())?;
        for need in wanted {
            needs.insert(need.clone());
            let key = need_key(self.keys, need);
            match need {
                Need::Page(network, page) => view.set_page(network, *page, self.page(network, *page, pinned)),
                Need::Summary(network, summary) => {
                    // A summary that does not decode says nothing, so the pages themselves are read.
                    let bits = builder::bits(self.snapshot, &key).unwrap_or_else(Bits::empty);
                    view.set_summary(network, *summary, bits);
                }
                Need::Reservation(network, address) => {
                    // A set must not pick an address that is requested besides the sets.
                    let is_pinned = pinned.iter().any(|(n, a)| n == network && a == address);
                    view.set_held(network, *address, is_pinned || self.is_held(network, *address));
                }
            }
        }
        Ok(())
    }

    /// A page on which the bits of all known reservations are set. If the page does not decode, all its bits are.
    fn page(&self, network: &NetworkName, page: Page, pinned: &[NetworkAddress]) -> Bits {
        let key = self.keys.page(network, page);
        let Some(mut bits) = builder::bits(self.snapshot, &key) else { return Bits::full() };
        for address in self.reserved_in(network, page) {
            bits.set(address.bit());
        }
        for (_, address) in pinned.iter().filter(|(n, a)| n == network && a.page() == page) {
            bits.set(address.bit());
        }
        bits
    }

    /// The reservations of a page that were read at the page's last write or later. One that was read earlier may
    /// have been freed by that write. If the page does not exist, nobody knows since when: those count that were
    /// read no earlier than the page.
    pub(crate) fn reserved_in(&self, network: &NetworkName, page: Page) -> Vec<Addr> {
        let (first, last) = (self.keys.ip(network, page.first()), self.keys.ip(network, page.last()));
        let page = self.keys.page(network, page);
        let since = match self.snapshot.mod_revision(&page) {
            0 => self.snapshot.read_at(&page),
            written => written,
        };
        self.snapshot
            .existing(&first, &last, since)
            .filter_map(|entry| match self.keys.parse(&entry.key) {
                Ok(Key::Ip(_, address)) => Some(address),
                _ => None,
            })
            .collect()
    }
}
