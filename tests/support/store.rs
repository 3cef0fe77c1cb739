//! Raw access to a store, below the plugin, for tests that read and break it.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use etcd_client::{
    AlarmAction, AlarmOptions, AlarmType, Certificate, Client, ConnectOptions, DeleteOptions, Error,
    GetOptions, Identity, PutOptions, TlsOptions, Txn, TxnOp,
};
use serde_json::Value;
use tokio::runtime::Builder;
use tokio::time::timeout;

use super::etcd::Etcd;
use super::tls::Tls;

/// The time for one of several members to show that it answers, and the time for all of them together.
const MEMBER_MAX: Duration = Duration::from_secs(1);
const ANSWER_MAX: Duration = Duration::from_secs(30);
/// The bounds of one transaction, below those of etcd.
const TXN_OPS: usize = 100;
const TXN_BYTES: usize = 1 << 20;

/// Access to a server, connected anew for each request, so that a restarted server is no surprise. Of several members
/// it takes one that answers.
/// Keys are relative to the prefix it was opened with.
#[derive(Clone)]
pub struct Store {
    prefix: String,
    endpoints: Vec<String>,
    options: Option<ConnectOptions>,
}

impl Store {
    pub fn open(etcd: &Etcd, prefix: &str) -> Self {
        Self::of(vec![etcd.endpoint()], etcd.tls(), prefix)
    }

    pub(crate) fn of(endpoints: Vec<String>, tls: Option<&Tls>, prefix: &str) -> Self {
        let options = tls.map(|tls| with_client(tls, &(tls.client_cert(), tls.client_key())));
        Self { prefix: prefix.to_owned(), endpoints, options }
    }

    /// The same as another client: its certificate and key.
    pub fn as_client(&self, tls: &Tls, client: &(PathBuf, PathBuf)) -> Self {
        Self { options: Some(with_client(tls, client)), ..self.clone() }
    }

    /// The same server as a user of etcd's own authentication.
    pub fn as_user(&self, name: &str, password: &str) -> Self {
        let options = self.options.clone().unwrap_or_default().with_user(name, password);
        Self { options: Some(options), ..self.clone() }
    }

    /// Anything that the helpers below do not have: `store.run(async |client| client.alarm(...).await)`.
    #[track_caller]
    pub fn run<T>(&self, work: impl AsyncFnOnce(&mut Client) -> Result<T, Error>) -> T {
        self.try_run(work).expect("etcd does as it is asked")
    }

    pub fn try_run<T>(&self, work: impl AsyncFnOnce(&mut Client) -> Result<T, Error>) -> Result<T, Error> {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime can be built");
        runtime.block_on(async {
            let mut client = self.connect().await?;
            work(&mut client).await
        })
    }

    /// Fills the store until it refuses; the keys lie outside of every test's prefix.
    pub fn fill(&self) {
        let full = self.try_run(async |client| {
            for index in 0..64 {
                client.put(format!("/filling/{index}"), vec![b'x'; 1 << 20], None).await?;
            }
            Ok(())
        });
        match full {
            Err(Error::GRpcStatus(status)) if status.message().contains("database space exceeded") => {}
            other => panic!("the store should be full: {other:?}"),
        }
    }

    /// The last step of an operator whose store was out of space.
    pub fn clear_alarms(&self) {
        self.run(async |client| {
            let alarms = client.alarm(AlarmAction::Get, AlarmType::Nospace, None).await?;
            for alarm in alarms.alarms() {
                let mut member = AlarmOptions::new();
                member.with_member(alarm.member_id());
                client.alarm(AlarmAction::Deactivate, alarm.alarm(), Some(member)).await?;
            }
            Ok(())
        });
    }

    async fn connect(&self) -> Result<Client, Error> {
        if let [endpoint] = self.endpoints.as_slice() {
            return Client::connect([endpoint], self.options.clone()).await;
        }
        let start = Instant::now();
        loop {
            for endpoint in &self.endpoints {
                let client = Client::connect([endpoint], self.options.clone()).await;
                if let Ok(client) = client
                    && answers(&client).await
                {
                    return Ok(client);
                }
            }
            assert!(start.elapsed() < ANSWER_MAX, "no member answers: {:?}", self.endpoints);
        }
    }

    /// The absolute name of a key.
    pub fn key(&self, key: &str) -> String {
        format!("{}{key}", self.prefix)
    }

    pub fn get(&self, key: &str) -> Option<Vec<u8>> {
        let key = self.key(key);
        let answer = self.run(async |client| client.get(key, None).await);
        answer.kvs().first().map(|kv| kv.value().to_vec())
    }

    /// The queue that the record under an owner's key names. The record leaves out the network that the name of the
    /// queue begins with, if that is the network of its first address.
    pub fn queue_of(&self, owner: &str) -> String {
        let record = self.get(owner).expect("it holds an address");
        let record: Value = serde_json::from_slice(&record).expect("an owner record is JSON");
        let scope = record["scope"].as_str().expect("it names its queue");
        let network = record["addresses"][0]["net"].as_str().filter(|_| scope.starts_with(','));
        format!("{}{scope}", network.unwrap_or_default())
    }

    /// Every key that begins with `prefix` and its value, in order; names are relative.
    pub fn entries(&self, prefix: &str) -> Vec<(String, Vec<u8>)> {
        let prefix = self.key(prefix);
        let options = GetOptions::new().with_prefix();
        let answer = self.run(async |client| client.get(prefix, Some(options)).await);
        let relative = |key: &[u8]| String::from_utf8_lossy(&key[self.prefix.len()..]).into_owned();
        answer.kvs().iter().map(|kv| (relative(kv.key()), kv.value().to_vec())).collect()
    }

    pub fn keys(&self, prefix: &str) -> Vec<String> {
        self.entries(prefix).into_iter().map(|(key, _)| key).collect()
    }

    pub fn put(&self, key: &str, value: impl Into<Vec<u8>>) {
        let key = self.key(key);
        self.run(async |client| client.put(key, value, None).await);
    }

    /// Gives `v1/meta` these keys besides or instead of those that it has; `null` takes one away.
    pub fn change_meta(&self, keys: &Value) {
        let meta = self.get("v1/meta").expect("there is a meta");
        let mut meta: serde_json::Map<String, Value> = serde_json::from_slice(&meta).expect("meta is JSON");
        for (key, value) in keys.as_object().expect("keys are an object") {
            meta.insert(key.clone(), value.clone());
        }
        meta.retain(|_, value| !value.is_null());
        self.put("v1/meta", Value::Object(meta).to_string());
    }

    /// Very many keys, a hundred in one transaction.
    pub fn put_all(&self, entries: impl IntoIterator<Item = (String, Vec<u8>)>) {
        let mut entries = entries.into_iter().peekable();
        self.run(async |client| {
            while entries.peek().is_some() {
                let (mut ops, mut bytes) = (Vec::new(), 0);
                while ops.len() < TXN_OPS && bytes < TXN_BYTES {
                    let Some((key, value)) = entries.next() else { break };
                    bytes += value.len();
                    ops.push(TxnOp::put(self.key(&key), value, None));
                }
                client.txn(Txn::new().and_then(ops)).await?;
            }
            Ok(())
        });
    }

    /// A key on a new lease of `ttl_s`, as a queue's ticket is; the id of the lease.
    pub fn put_leased(&self, key: &str, value: impl Into<Vec<u8>>, ttl_s: i64) -> i64 {
        let key = self.key(key);
        self.run(async |client| {
            let lease = client.lease_grant(ttl_s, None).await?.id();
            client.put(key, value, Some(PutOptions::new().with_lease(lease))).await?;
            Ok(lease)
        })
    }

    pub fn delete(&self, key: &str) {
        let key = self.key(key);
        self.run(async |client| client.delete(key, None).await);
    }

    pub fn delete_prefix(&self, prefix: &str) {
        let prefix = self.key(prefix);
        let options = DeleteOptions::new().with_prefix();
        self.run(async |client| client.delete(prefix, Some(options)).await);
    }

    /// The store's revision now: unchanged means that nothing was written at all.
    pub fn revision(&self) -> i64 {
        let answer = self.run(async |client| client.get("\0", None).await);
        answer.header().expect("an answer has a header").revision()
    }
}

fn with_client(tls: &Tls, (cert, key): &(PathBuf, PathBuf)) -> ConnectOptions {
    let read = |path: &Path| fs::read(path).expect("a certificate can be read");
    let identity = Identity::from_pem(read(cert), read(key));
    let authority = Certificate::from_pem(read(&tls.ca()));
    ConnectOptions::new().with_tls(TlsOptions::new().ca_certificate(authority).identity(identity))
}

/// A member without a quorum answers no read; that it may not be read is an answer.
async fn answers(client: &Client) -> bool {
    let mut kv = client.kv_client();
    match timeout(MEMBER_MAX, kv.get("\0", None)).await {
        Ok(Ok(_)) => true,
        Ok(Err(Error::GRpcStatus(status))) => status.message().contains("permission denied"),
        _ => false,
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}
