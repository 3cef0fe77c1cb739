//! Asks etcd: each endpoint by itself, and the store by whichever serves; all at once, and nothing for long.

use std::time::Duration;

use tokio::net::TcpStream;
use tokio::task::{JoinSet, LocalSet};
use tokio::time::{Instant, timeout_at};

use super::facts::{
    CertificateFacts, CertificateOf, EndpointFacts, EtcdFacts, Machines, MarkFacts, NodeFacts, StoreFacts,
    StoreSeen,
};
use super::node::obstacle;
use metes_config::Settings;
use metes_core::keys::{Bytes, Key, Keys, LeaseId, NodeKey};
use metes_core::known::{LastWritten, judged_by};
use metes_core::limits;
use metes_core::meta::writable;
use metes_core::pool::{Meta, NodeName, OwnerRecord, Record};
use metes_core::snapshot::Snapshot;
use metes_core::txn::{List, Op, Txn};
use metes_engine::kv::{Failure, Kv};
use metes_engine::obstacle::Obstacle;
use metes_engine::prefix;
use metes_engine::random::random_id;
use metes_engine::session::Session;
use metes_engine::walk::walk;
use metes_etcd::certificate::Certificate;
use metes_etcd::client::Access;
use metes_etcd::handshake::presented;
use metes_node::files::Trust;
use metes_node::setup;

/// Asks etcd, for at most `most`. Returns its answers and the certificates that its endpoints show.
pub(super) async fn ask(
    settings: &Settings,
    may_ask: bool,
    node: &NodeFacts,
    most: Duration,
) -> (EtcdFacts, Vec<CertificateFacts>) {
    let access = match may_ask {
        true => setup::access(settings, Trust::of_commands(), limits::DOCTOR_UNREACHABLE)
            .map_err(|e| Some(obstacle(e))),
        // The host file's line says why.
        false => Err(None),
    };
    let until = Instant::now() + most;
    match access {
        Ok(access) => LocalSet::new().run_until(asked(access, settings, node, until)).await,
        Err(why) => (not_asked(settings, why, until).await, Vec::new()),
    }
}

/// Tries only to connect to each endpoint, because no request can be sent.
async fn not_asked(settings: &Settings, why: Option<Obstacle>, until: Instant) -> EtcdFacts {
    let tried = settings.endpoints.iter().map(|endpoint| {
        let (url, address) = (endpoint.url(), (endpoint.host().to_owned(), endpoint.port()));
        async move {
            let refused = match timeout_at(until, TcpStream::connect((address.0.as_str(), address.1))).await {
                Ok(Ok(_)) => None,
                Ok(Err(e)) => Some(e.to_string()),
                Err(_) => Some("no connection in time".to_owned()),
            };
            (url, refused)
        }
    });
    EtcdFacts::NotAsked { why, endpoints: LocalSet::new().run_until(all(tried)).await }
}

async fn asked(
    access: Access,
    settings: &Settings,
    node: &NodeFacts,
    until: Instant,
) -> (EtcdFacts, Vec<CertificateFacts>) {
    let keys = Keys::new(&settings.prefix);
    let each = settings.urls().into_iter().map(|url| {
        let alone = Access { endpoints: vec![url], ..access.clone() };
        endpoint(alone, keys.clone(), until)
    });
    let kv = metes_etcd::open(access.clone());
    let session = Session { kv: &kv, keys: &keys, until };
    let users =
        async { if settings.is_over_a_network() { kv.asks_for_users(until).await.ok() } else { None } };
    let (found, store, users) = tokio::join!(all(each), ask_store(session, settings, node), users);
    let (endpoints, certificates): (Vec<_>, Vec<_>) = found.into_iter().unzip();
    let certificates = certificates.into_iter().flatten().collect();
    (EtcdFacts::Asked { endpoints, users, store: Box::new(store) }, certificates)
}

/// Waits for all of them at once; their results in the same order.
async fn all<T: 'static, F: Future<Output = T> + 'static>(futures: impl IntoIterator<Item = F>) -> Vec<T> {
    let mut set = JoinSet::new();
    for (at, future) in futures.into_iter().enumerate() {
        set.spawn_local(async move { (at, future.await) });
    }
    let mut done = set.join_all().await;
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, one)| one).collect()
}

/// The answers of one endpoint, and the certificate that it shows.
async fn endpoint(access: Access, keys: Keys, until: Instant) -> (EndpointFacts, Option<CertificateFacts>) {
    let url = access.endpoints[0].clone();
    let tls = access.tls.clone().filter(|_| url.starts_with("https://"));
    let shown = async {
        let certificate = timeout_at(until, presented(&url, tls.as_ref()?)).await.ok()??;
        Some(certificate)
    };
    let kv = metes_etcd::open(access);
    let asked = async {
        match kv.connect(until).await {
            Ok(()) => tokio::join!(timed_read(&kv, &keys, until), kv.about(until)),
            Err(failure) => (Err(failure.clone()), Err(failure)),
        }
    };
    let ((read, about), shown) = tokio::join!(asked, shown);
    let of_server = |certificate: Certificate| CertificateFacts {
        of: CertificateOf::Server,
        place: url.clone(),
        certificate,
    };
    let shown = shown.map(of_server);
    (EndpointFacts { url, read, about }, shown)
}

async fn timed_read<K: Kv>(kv: &K, keys: &Keys, until: Instant) -> Result<Duration, Failure> {
    let began = Instant::now();
    kv.txn(&Txn::read(vec![Op::Get(keys.meta())]), until).await.map(|_| began.elapsed())
}

async fn ask_store<K: Kv>(session: Session<'_, K>, settings: &Settings, node: &NodeFacts) -> StoreFacts {
    let read = seen(session, node).await;
    let may_write = match &read {
        Ok(seen) => seen.meta.as_ref().is_ok_and(|meta| meta.iter().all(|meta| writable(meta).is_ok())),
        Err(failure) => !matches!(failure, Failure::Unreachable(_)),
    };
    let write = async { if may_write { Some(write(session).await) } else { None } };
    let others = async {
        let (Ok((name, _)), Ok(_)) = (&node.name, &read) else { return None };
        Some(machines(session, settings, name).await)
    };
    let (write, others) = tokio::join!(write, others);
    StoreFacts { prefix: settings.prefix.clone(), read, write, others }
}

async fn seen<K: Kv>(session: Session<'_, K>, node: &NodeFacts) -> Result<StoreSeen, Failure> {
    let key = session.keys.meta();
    let known = match &node.mark {
        MarkFacts::Known(known) => Some(known),
        MarkFacts::None | MarkFacts::NotThisNodes | MarkFacts::OtherCluster(_) | MarkFacts::Hidden => None,
    };
    let judged = known.map(|known| judged_by(session.keys, &key, Some(known))).unwrap_or_default();
    let some = |prefix: &Vec<u8>| Op::List(List { keys_only: true, ..List::prefix(prefix, 1) });
    let ops =
        [key.clone()].into_iter().chain(judged.into_iter().filter(|judged| *judged != key)).map(Op::Get);
    let former = node.former.iter().map(|(name, _)| Op::Get(session.keys.node(name)));
    let own = own_key(session.keys, node);
    let more = former.chain(own.clone().map(Op::Get));
    let ops = ops.chain(session.keys.allocations().iter().map(some)).chain(more).collect();
    let mut snapshot = Snapshot::default();
    session.read_all(ops, &mut snapshot).await?;
    let is_another = match known {
        Some(known) => prefix::contradicts(session, known, &mut snapshot).await?,
        None => false,
    };
    let meta = snapshot.record::<Meta>(&key).map_err(|bad| bad.to_string());
    let used_names = used_names(session.keys, node, meta.as_ref().ok().and_then(Option::as_ref), &snapshot);
    let counts = session.keys.allocations().map(|prefix| snapshot.count(&prefix, &key));
    Ok(StoreSeen {
        meta,
        revision: snapshot.revision,
        has_allocations: counts.iter().any(|count| count.unwrap_or_default() > 0),
        is_another,
        used_names,
        has_own_key: own.is_some_and(|own| snapshot.entry(&own).is_some()),
    })
}

/// The key that an ADD leaves under the node's present name; none without a name or a machine id.
fn own_key(keys: &Keys, node: &NodeFacts) -> Option<Bytes> {
    let (name, _) = node.name.as_ref().ok()?;
    let machine = node.machine.as_ref()?.digest.clone();
    Some(keys.node(&NodeKey { cluster: node.cluster.clone(), node: name.clone(), machine }))
}

/// The former names of this node whose own key is there, and which may be another machine's now.
fn used_names(keys: &Keys, node: &NodeFacts, meta: Option<&Meta>, seen: &Snapshot) -> Vec<NodeKey> {
    let may_be_used = |(name, written): &&(NodeKey, Option<LastWritten>)| {
        let found = seen.mod_revision(&keys.node(name));
        found > 0 && !written.as_ref().is_some_and(|written| written.is_last_of(meta, found))
    };
    node.former.iter().filter(may_be_used).map(|(name, _)| name.clone()).collect()
}

/// Writes a key as runs write one on their leases, and removes it. If this program dies in between, the key goes with
/// its lease.
async fn write<K: Kv>(session: Session<'_, K>) -> Result<Duration, Failure> {
    let id = random_id();
    let name: NodeName = format!("metes-doctor-{id}").parse().expect("letters, digits and hyphens");
    let lease = LeaseId(i64::from_str_radix(&id[..15], 16).expect("hex digits").max(1));
    session.kv.grant(lease, limits::DOCTOR_TTL, session.until).await?;
    let began = Instant::now();
    let put = Op::Put(session.keys.fence(&name), Vec::new(), Some(lease));
    let written = session.txn(&Txn { step: "doctor", then: vec![put], ..Txn::default() }).await;
    let took = began.elapsed();
    // If that fails, the key ends with its lease.
    let _ = session.kv.revoke(lease, session.until).await;
    written.map(|_| took)
}

/// The machines that hold something under this node's name.
async fn machines<K: Kv>(
    session: Session<'_, K>,
    settings: &Settings,
    name: &NodeName,
) -> Result<Machines, Failure> {
    let prefix = session.keys.owners_of(settings.cluster.as_ref(), name);
    let (machines, _) = walk(session, &prefix, Machines::new, |machines, entry| {
        let (Ok(Key::Owner(owner)), Ok(record)) =
            (session.keys.parse(&entry.key), OwnerRecord::decode(&entry.value))
        else {
            return;
        };
        machines.entry(record.machine).or_insert((0, owner)).0 += 1;
    })
    .await?;
    Ok(machines)
}
