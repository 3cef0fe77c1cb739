//! One member of etcd, run with a configuration of its own: the settings that all members share, its own endpoint, and
//! the way it begins.
//!
//! A member belongs to its node: its name is the node's address, and its data is on the node. Any pod of the
//! StatefulSet may run there, and no pod can start with the data of another member.
//!
//! Before each start of etcd this program finds out the way to begin. Where only the container starts again, its
//! configuration is there already. If its data are, too, etcd starts with both, whatever has changed around it.

use std::net::IpAddr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use metes_etcd::certificate::Certificate;
use serde_json::{Map, Value, json};

use crate::arguments::{EtcdArgs, MemberArgs};
use crate::client::TlsFiles;
use crate::crl;
use crate::environment;
use crate::failure::Failure;
use crate::files;
use crate::member::{self, Beginning, Place};
use crate::seat::Seat;
use crate::template::{Template, object};

/// The section with the certificate that clients see, and whose certificates they must have.
const CLIENTS: &str = "client-transport-security";
/// The same among the members.
const PEERS: &str = "peer-transport-security";

/// Becomes etcd, or says why not.
pub(crate) fn run(arguments: &EtcdArgs) -> Result<(), Failure> {
    let EtcdArgs { member: MemberArgs { template, node_ip, base }, out, quota_bytes, etcd } = arguments;
    let began = data_of(out)?;
    if let Some(data) = &began
        && member::has_data(data)?
    {
        return exec(etcd, out);
    }
    let seats = || Seat::all(&Template::read(&template.template)?);
    let members = seats()?;
    let mut keys = shared(base)?;
    // A mistake is told before this member joins the others.
    environment::variables(&keys, base, "")?;
    trust_nodes(&mut keys);
    keys.extend(quota_bytes.map(|bytes| ("quota-backend-bytes".to_owned(), json!(bytes))));
    let place = place(&keys, base, &members, *node_ip, began.is_some())?;
    let beginning = member::begin(&place, || match seats()? == members {
        true => Ok(()),
        false => Err(Failure::new("metes.conf names other members than before: begins again")),
    })?;
    let config = config(keys, &members, &place.me, &beginning);
    files::replace(out, format!("{config:#}\n").as_bytes(), 0o600)?;
    exec(etcd, out)
}

/// A node's certificate is of another authority than the members'. If there is a file with both, etcd trusts both.
fn trust_nodes(keys: &mut Map<String, Value>) {
    let Some(files) = keys.get_mut(CLIENTS).and_then(Value::as_object_mut) else { return };
    let certificate = files.get("cert-file").and_then(Value::as_str).map(Path::new);
    let both = certificate.map(|path| path.with_file_name("clients.crt"));
    if let Some(both) = both.filter(|both| both.exists()) {
        files.insert("trusted-ca-file".to_owned(), json!(both));
    }
}

/// Where the data of this member are, if this pod has started etcd before.
fn data_of(out: &Path) -> Result<Option<PathBuf>, Failure> {
    let Some(content) = files::read_if_there(out)? else { return Ok(None) };
    let keys = object(out, &content)?;
    Ok(keys.get("data-dir").and_then(Value::as_str).map(PathBuf::from))
}

/// Returns only if it fails.
fn exec(etcd: &Path, config: &Path) -> Result<(), Failure> {
    let version = Command::new(etcd).arg("--version").output().map_err(Failure::on("run", etcd))?;
    let version = String::from_utf8_lossy(&version.stdout);
    let keys = object(config, &files::read(config)?)?;
    let variables = environment::variables(&keys, config, &version)?;
    // Beside the data: a member that starts again refuses from its first moment what it refused before.
    let crl = files::beside(&path(keys.get("data-dir"), config, "data-dir")?, crl::EXTENSION);
    crl::write_if_missing(&crl)?;
    let e = Command::new(etcd).envs(variables).env("ETCD_CLIENT_CRL_FILE", crl).exec();
    Err(Failure::on("run", etcd)(e))
}

/// The configuration of all members.
fn shared(base: &Path) -> Result<Map<String, Value>, Failure> {
    object(base, &files::read(base)?)
}

/// The certificate with which a member asks others as a client.
pub(crate) fn client_tls(base: &Path) -> Result<TlsFiles, Failure> {
    tls(&shared(base)?, base, CLIENTS)
}

/// When the first of a member's certificates ends, in seconds since 1970 in UTC; none if they cannot be read.
pub(crate) fn certificate_end(base: &Path) -> Option<u64> {
    let keys = shared(base).ok()?;
    let end = |kind| {
        let pem = files::read(&tls(&keys, base, kind).ok()?.certificate).ok()?;
        Certificate::all_in(&pem).first().map(|certificate| certificate.not_after)
    };
    [CLIENTS, PEERS].into_iter().filter_map(end).min()
}

fn tls(keys: &Map<String, Value>, base: &Path, kind: &str) -> Result<TlsFiles, Failure> {
    let file =
        |key: &str| path(keys.get(kind).and_then(|files| files.get(key)), base, &format!("{kind}.{key}"));
    Ok(TlsFiles { ca: file("trusted-ca-file")?, certificate: file("cert-file")?, key: file("key-file")? })
}

fn path(value: Option<&Value>, base: &Path, name: &str) -> Result<PathBuf, Failure> {
    match value.and_then(Value::as_str) {
        Some(path) => Ok(PathBuf::from(path)),
        None => Err(Failure::new(format!("{}: `{name}` is missing", base.display()))),
    }
}

fn place(
    keys: &Map<String, Value>,
    base: &Path,
    members: &[Seat],
    me: IpAddr,
    starts_again: bool,
) -> Result<Place, Failure> {
    let me = Seat::of_node(members, me)?;
    let others = members.iter().filter(|seat| **seat != me).copied().collect();
    Ok(Place {
        me,
        others,
        data: path(keys.get("data-dir"), base, "data-dir")?,
        starts_again,
        client_tls: tls(keys, base, CLIENTS)?,
        peer_tls: tls(keys, base, PEERS)?,
    })
}

fn config(mut keys: Map<String, Value>, members: &[Seat], me: &Seat, beginning: &Beginning) -> Value {
    let (state, cluster) = match beginning {
        // etcd goes by its data. Should these vanish in this moment, it finds no other member here, and refuses to
        // start without them: with an empty folder it would break what it has promised the others.
        Beginning::WithData => ("existing", Seat::initial_cluster(&[*me])),
        Beginning::New => ("new", Seat::initial_cluster(members)),
        Beginning::Joining { initial_cluster } => ("existing", initial_cluster.clone()),
    };
    let own = [
        ("name", json!(me.ip())),
        ("listen-client-urls", json!(me.client_url())),
        ("advertise-client-urls", json!(me.client_url())),
        ("listen-peer-urls", json!(me.peer_url())),
        ("initial-advertise-peer-urls", json!(me.peer_url())),
        ("initial-cluster", json!(cluster)),
        ("initial-cluster-state", json!(state)),
    ];
    let probes = keys.get("listen-metrics-urls").and_then(Value::as_str).map(|urls| format!("{urls},"));
    let metrics = format!("{}{}", probes.unwrap_or_default(), me.metrics_url());
    keys.extend(own.map(|(key, value)| (key.to_owned(), value)));
    keys.insert("listen-metrics-urls".to_owned(), json!(metrics));
    Value::Object(keys)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seats(ips: &[&str]) -> Vec<Seat> {
        let seat = |ip: &&str| {
            let ip: IpAddr = ip.parse().expect("an address");
            Seat { client: (ip, 12379).into(), peer: (ip, 12380).into(), metrics: (ip, 12384).into() }
        };
        ips.iter().map(seat).collect()
    }

    fn base() -> Map<String, Value> {
        let tls = json!({"trusted-ca-file": "/ca", "cert-file": "/crt", "key-file": "/key"});
        let base = json!({
            "data-dir": "/data", "quota-backend-bytes": 8, "listen-metrics-urls": "http://127.0.0.1:12381",
            "client-transport-security": tls, "peer-transport-security": tls,
        });
        let Value::Object(keys) = base else { panic!("an object") };
        keys
    }

    #[test]
    fn a_member_is_the_node_that_it_runs_on() {
        let members = seats(&["10.0.0.1", "10.0.0.2"]);
        let place = place(&base(), Path::new("base"), &members, members[1].ip(), false).expect("valid");
        assert_eq!((place.me, place.others.as_slice()), (members[1], &members[..1]));
        assert_eq!((place.data, place.peer_tls.key), (PathBuf::from("/data"), PathBuf::from("/key")));
        let config = config(base(), &members, &place.me, &Beginning::New);
        assert_eq!(config["quota-backend-bytes"], 8);
        assert_eq!(config["name"], "10.0.0.2");
        assert_eq!(config["listen-peer-urls"], "https://10.0.0.2:12380");
        assert_eq!(config["listen-metrics-urls"], "http://127.0.0.1:12381,https://10.0.0.2:12384");
        assert_eq!(config["initial-cluster-state"], "new");
        assert_eq!(
            config["initial-cluster"],
            "10.0.0.1=https://10.0.0.1:12380,10.0.0.2=https://10.0.0.2:12380"
        );
    }

    #[test]
    fn who_joins_gets_the_members_that_etcd_has() {
        let members = seats(&["fd00::1"]);
        let joining = Beginning::Joining { initial_cluster: "a=b".to_owned() };
        let config = config(base(), &members, &members[0], &joining);
        assert_eq!(config["initial-cluster-state"], "existing");
        assert_eq!(config["initial-cluster"], "a=b");
    }

    #[test]
    fn who_has_data_knows_nobody_to_begin_anew_with() {
        let members = seats(&["10.0.0.1", "10.0.0.2"]);
        let config = config(base(), &members, &members[0], &Beginning::WithData);
        assert_eq!(config["initial-cluster-state"], "existing");
        assert_eq!(config["initial-cluster"], "10.0.0.1=https://10.0.0.1:12380");
    }

    #[test]
    fn a_configuration_without_its_files_is_refused() {
        let mut base = base();
        base["peer-transport-security"] = json!({});
        let members = seats(&["10.0.0.1"]);
        let error = place(&base, Path::new("base"), &members, members[0].ip(), false).expect_err("refused");
        assert_eq!(error.to_string(), "base: `peer-transport-security.trusted-ca-file` is missing");
    }
}
