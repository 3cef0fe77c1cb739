//! A run's knowledge of the cluster's bitmaps, and the questions that are open.

use std::collections::BTreeMap;

use super::{Addr, Bits, NetworkName, Page, Summary};

/// Something of the cluster's state that a choice depends on.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Need {
    /// The bits of a page.
    Page(NetworkName, Page),
    /// The full pages below a summary.
    Summary(NetworkName, Summary),
    /// The reservation of an address, or its absence.
    Reservation(NetworkName, Addr),
}

/// A partial view of the cluster. A thing that was never set here is unknown, which is not the same as empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct View {
    networks: BTreeMap<NetworkName, KnownNetwork>,
}

/// The known things of one network.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct KnownNetwork {
    pub(super) pages: BTreeMap<Page, Bits>,
    pub(super) summaries: BTreeMap<Summary, Bits>,
    held: BTreeMap<Addr, bool>,
}

impl View {
    /// Records a page as read. A page without a key is an empty one.
    pub fn set_page(&mut self, network: &NetworkName, page: Page, bits: Bits) {
        self.known_mut(network).pages.insert(page, bits);
    }

    /// The page, if it is known.
    #[must_use]
    pub fn page(&self, network: &NetworkName, page: Page) -> Option<&Bits> {
        self.known(network)?.pages.get(&page)
    }

    /// Records a summary as read. A summary without a key is an empty one.
    pub fn set_summary(&mut self, network: &NetworkName, summary: Summary, bits: Bits) {
        self.known_mut(network).summaries.insert(summary, bits);
    }

    /// The summary, if it is known.
    #[must_use]
    pub fn summary(&self, network: &NetworkName, summary: Summary) -> Option<&Bits> {
        self.known(network)?.summaries.get(&summary)
    }

    /// Records whether an address has a reservation.
    pub fn set_held(&mut self, network: &NetworkName, address: Addr, held: bool) {
        self.known_mut(network).held.insert(address, held);
    }

    /// True if an address has a reservation; none if that is not known.
    pub(crate) fn held(&self, network: &NetworkName, address: Addr) -> Option<bool> {
        self.known(network)?.held.get(&address).copied()
    }

    /// True if `need` needs no asking any more.
    #[must_use]
    pub fn knows(&self, need: &Need) -> bool {
        match need {
            Need::Page(network, page) => self.page(network, *page).is_some(),
            Need::Summary(network, summary) => self.summary(network, *summary).is_some(),
            Need::Reservation(network, address) => self.held(network, *address).is_some(),
        }
    }

    /// Sets the bit of an address in its page. An unknown page stays unknown; a page that is
    /// set afterwards replaces the bit.
    #[cfg(test)]
    pub(crate) fn take(&mut self, network: &NetworkName, address: Addr) {
        let known = self.networks.get_mut(network);
        if let Some(bits) = known.and_then(|known| known.pages.get_mut(&address.page())) {
            bits.set(address.bit());
        }
    }

    /// All that is known of one network, if anything is.
    pub(super) fn known(&self, network: &NetworkName) -> Option<&KnownNetwork> {
        self.networks.get(network)
    }

    fn known_mut(&mut self, network: &NetworkName) -> &mut KnownNetwork {
        self.networks.entry(network.clone()).or_default()
    }
}
