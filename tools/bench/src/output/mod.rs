//! The forms in which results are shown. Each is a text that is made of the results alone.

pub(crate) mod chart;
pub(crate) mod json;
pub(crate) mod table;

use crate::options::Section;

const SECTIONS: [(Section, &str); 12] = [
    (Section::Single, "Single processes"),
    (Section::Storms, "Storms, 128 processes at a time"),
    (Section::Tls, "mTLS"),
    (Section::Pools, "Pools"),
    (Section::Size, "Size"),
    (Section::Commands, "Commands for people"),
    (Section::Process, "One process"),
    (Section::Cluster, "Three members, one fails"),
    (Section::Slow, "Three members, slow links"),
    (Section::Slices, "256 nodes with a range each in one page"),
    (Section::Deaths, "Deaths"),
    (Section::Identities, "Identities of nodes"),
];
