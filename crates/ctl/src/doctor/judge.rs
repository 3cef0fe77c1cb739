//! From all that was seen to lines. Pure.

use super::about_certificates::certificates;
use super::about_etcd::{etcd, store};
use super::about_node::{files, host_file, node};
use super::facts::DoctorFacts;
use super::line::CheckLine;

/// One line for each thing that was looked at, in the order in which they are printed.
pub(super) fn judge(facts: &DoctorFacts) -> Vec<CheckLine> {
    let mut lines = host_file(&facts.host_file, facts.user);
    lines.extend(files(&facts.files));
    lines.extend(etcd(&facts.etcd));
    lines.extend(certificates(&facts.certificates, facts.now, &facts.etcd));
    if let Some(of_node) = &facts.node {
        lines.extend(store(&facts.etcd, of_node));
        lines.extend(node(of_node, &facts.etcd));
    }
    lines
}
