//! etcdctl against the member on this node, by the address that the host file of all nodes has for it.
//!
//! The name of the Service would need DNS, which runs in pods. An address from Kubernetes has no port, and no
//! brackets if it is of IPv6.

use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::arguments::EtcdctlArgs;
use crate::failure::Failure;
use crate::seat::Seat;
use crate::template::Template;

/// Becomes etcdctl, or says why not.
pub(crate) fn run(arguments: &EtcdctlArgs) -> Result<(), Failure> {
    let EtcdctlArgs { template, node_ip, etcdctl, arguments } = arguments;
    let member = Seat::of_node(&Seat::all(&Template::read(&template.template)?)?, *node_ip)?;
    let e = Command::new(etcdctl).args(arguments).env("ETCDCTL_ENDPOINTS", member.client_url()).exec();
    Err(Failure::on("run", etcdctl)(e))
}
