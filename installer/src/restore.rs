//! Restores one member of etcd from a snapshot.
//!
//! All members must be restored from one snapshot. Its digest is in the token of the new cluster, so members that were
//! restored from different ones refuse each other.

use std::fs::{self, File, TryLockError};
use std::path::Path;
use std::process::Command;

use time::OffsetDateTime;

use crate::arguments::EtcdRestoreArgs;
use crate::failure::Failure;
use crate::files;
use crate::seat::Seat;
use crate::snapshots::{digest, stamp};
use crate::template::Template;

/// The number of characters of the digest in the token.
const TOKEN: usize = 16;

/// Says what it has done. The data that was there stays, under another name.
pub(crate) fn restore(arguments: &EtcdRestoreArgs) -> Result<String, Failure> {
    let EtcdRestoreArgs { template, node_ip, snapshot, data_dir, etcdutl, once_for } = arguments;
    // Not in the data, where etcd would complain of it.
    let marker = files::beside(data_dir, "restored-for");
    if let Some(name) = once_for
        && files::read_if_there(&marker)?.is_some_and(|done| done == name.as_bytes())
    {
        return Ok(format!("member {node_ip} was restored before by this pod"));
    }
    let members = Seat::all(&Template::read(&template.template)?)?;
    let member = Seat::of_node(&members, *node_ip)?;
    refuse_if_it_runs(data_dir)?;
    let digest = digest(snapshot)?;
    // A run that was killed has left it.
    let new = files::beside(data_dir, "restoring");
    files::remove_if_there(&new)?;
    let token = format!("restored-{}", &digest[..TOKEN]);
    let run = Command::new(etcdutl)
        .args(["snapshot".as_ref(), "restore".as_ref(), snapshot.as_os_str()])
        .args(["--data-dir".as_ref(), new.as_os_str()])
        .args(["--name", &member.ip().to_string(), "--initial-cluster", &Seat::initial_cluster(&members)])
        .args(["--initial-cluster-token", &token])
        .args(["--initial-advertise-peer-urls", &member.peer_url()])
        .status();
    let status = run.map_err(Failure::on("run", etcdutl))?;
    if !status.success() {
        return Err(Failure::new(format!("{} failed ({status}): see above", etcdutl.display())));
    }
    let old = files::beside(data_dir, &format!("old-{}", stamp(OffsetDateTime::now_utc())));
    let set_aside = data_dir.exists();
    if set_aside {
        fs::rename(data_dir, &old).map_err(Failure::on("write", &old))?;
    }
    fs::rename(&new, data_dir).map_err(Failure::on("write", data_dir))?;
    files::sync(data_dir.parent().unwrap_or(Path::new("/")))?;
    if let Some(name) = once_for {
        files::replace(&marker, name.as_bytes(), 0o600)?;
    }
    let aside = if set_aside { format!("; what was there is in {}", old.display()) } else { String::new() };
    Ok(format!("restored member {node_ip} from the snapshot with digest {}{aside}", &digest[..TOKEN]))
}

/// A member that runs has its database locked.
fn refuse_if_it_runs(data_dir: &Path) -> Result<(), Failure> {
    let database = data_dir.join("member/snap/db");
    let Ok(file) = File::open(&database) else { return Ok(()) };
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => Err(Failure::new(format!(
            "etcd is running on {}: scale the StatefulSet down to 0 first",
            data_dir.display()
        ))),
        Err(TryLockError::Error(e)) => Err(Failure::on("lock", &database)(e)),
        Ok(()) => Ok(()),
    }
}
