//! The host file in the ConfigMap: the same for all nodes, with paths of files in a pod.

use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use crate::client::TlsFiles;
use crate::failure::Failure;
use crate::files;
use crate::request::Pair;
use metes_config::validate::UNEDITED;

/// The keys that name a file: in `etcd`, and whereabouts' names for them beside it.
const FILES_IN_ETCD: [&str; 4] = ["ca_file", "cert_file", "key_file", "password_file"];
const FILES_BESIDE: [&str; 3] = ["etcd_ca_cert_file", "etcd_cert_file", "etcd_key_file"];

/// The certificate of the client and its key.
const PAIR: [&str; 2] = ["cert_file", "key_file"];
/// The file beside `ca_file` with the authorities of the nodes' identities: of the ConfigMap metes-ca.
const AUTHORITIES_OF_NODES: &str = "nodes.crt";

/// The host file of all nodes.
#[derive(Debug, Clone)]
pub(crate) struct Template {
    path: PathBuf,
    keys: Map<String, Value>,
}

/// A file that the host file names, and its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Named {
    pub(crate) name: String,
    pub(crate) content: Vec<u8>,
}

/// One server of etcd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Endpoint {
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl Endpoint {
    pub(crate) fn ip(&self) -> Option<IpAddr> {
        self.host.parse().ok()
    }

    pub(crate) fn url(&self) -> String {
        match self.ip() {
            Some(IpAddr::V6(ip)) => format!("https://[{ip}]:{}", self.port),
            _ => format!("https://{}:{}", self.host, self.port),
        }
    }
}

impl Template {
    pub(crate) fn read(path: &Path) -> Result<Self, Failure> {
        let content = files::read(path)?;
        let template = Self { path: path.to_owned(), keys: object(path, &content)? };
        match template.keys.get("cluster").and_then(Value::as_str) {
            Some(UNEDITED) => Err(template.refused("cluster", "is to be edited: give this cluster a name")),
            None | Some("") => Err(template.refused("cluster", "is missing: the reconciler goes by it")),
            Some(_) => Ok(template),
        }
    }

    /// Refuses a file by which the authors of networks would choose addresses because somebody forgot to say who does.
    /// Only nodes go by it, so etcd and its certificates need not wait for that decision.
    pub(crate) fn expect_who_chooses(&self) -> Result<(), Failure> {
        let how = "write the networks that `metes validate --print-allowed FILES` prints, or \"any\" if authors of \
                   networks may take any free address";
        let is_pools_only = self.keys.get("pools_only") == Some(&Value::Bool(true));
        match self.keys.get("allowed").unwrap_or(&Value::Null) {
            Value::Object(_) => Ok(()),
            Value::Null if is_pools_only => Ok(()),
            Value::Null => Err(self.refused("allowed", &format!("is missing: {how}"))),
            Value::String(word) if word == "any" => Ok(()),
            Value::String(word) if word == UNEDITED => {
                Err(self.refused("allowed", &format!("is to be edited: {how}")))
            }
            _ => Err(self.refused("allowed", &format!("must be an object or \"any\": {how}"))),
        }
    }

    fn refused(&self, key: &str, why: &str) -> Failure {
        Failure::new(format!("{}: `{key}` {why}", self.path.display()))
    }

    /// The servers of etcd, each as `https://host:port`.
    pub(crate) fn endpoints(&self) -> Result<Vec<Endpoint>, Failure> {
        let listed = self.keys.get("etcd").and_then(|etcd| etcd.get("endpoints")).and_then(Value::as_array);
        let wrong = || self.refused("etcd.endpoints", "must be a list of https://ADDRESS:PORT");
        let endpoints: Option<Vec<Endpoint>> =
            listed.ok_or_else(wrong)?.iter().map(|item| endpoint(item.as_str()?)).collect();
        endpoints.filter(|endpoints| !endpoints.is_empty()).ok_or_else(wrong)
    }

    /// The prefix of all keys in etcd, with a `/` at both ends.
    pub(crate) fn prefix(&self) -> String {
        let prefix = self.keys.get("etcd").and_then(|etcd| etcd.get("prefix")).and_then(Value::as_str);
        format!("/{}/", prefix.unwrap_or("metes").trim_matches('/'))
    }

    /// The files of a client of etcd.
    pub(crate) fn tls(&self) -> Result<TlsFiles, Failure> {
        let file =
            |key: &str| match self.keys.get("etcd").and_then(|etcd| etcd.get(key)).and_then(Value::as_str) {
                Some(path) => Ok(PathBuf::from(path)),
                None => {
                    Err(self
                        .refused(&format!("etcd.{key}"), "is missing: etcd knows its clients by certificate"))
                }
            };
        Ok(TlsFiles { ca: file("ca_file")?, certificate: file("cert_file")?, key: file("key_file")? })
    }

    /// The name that etcd's certificates must carry, if it is pinned.
    pub(crate) fn server_name(&self) -> Option<&str> {
        self.keys.get("etcd")?.get("server_name")?.as_str()
    }

    /// The name of the cluster.
    pub(crate) fn cluster(&self) -> &str {
        self.keys.get("cluster").and_then(Value::as_str).unwrap_or_default()
    }

    /// All files that it names.
    pub(crate) fn files(&self) -> Result<Vec<Named>, Failure> {
        self.read_all(&FILES_IN_ETCD)
    }

    /// The same without the client's certificate and key, which a node with an identity has from elsewhere.
    pub(crate) fn files_but_pair(&self) -> Result<Vec<Named>, Failure> {
        let others: Vec<&'static str> = FILES_IN_ETCD.into_iter().filter(|key| !PAIR.contains(key)).collect();
        self.read_all(&others)
    }

    /// The names of the certificate and the key on the node.
    pub(crate) fn pair_names(&self) -> Result<[String; 2], Failure> {
        let name = |key: &str| {
            let path = Path::new(self.keys.get("etcd")?.get(key)?.as_str()?);
            Some(path.file_name()?.to_string_lossy().into_owned())
        };
        let [Some(certificate), Some(key)] = PAIR.map(name) else {
            let why = "and `etcd.key_file` must name files, which a signer's certificate and its key become";
            return Err(self.refused("etcd.cert_file", why));
        };
        Ok([certificate, key])
    }

    /// These files, with this certificate and key.
    pub(crate) fn with_pair(&self, mut files: Vec<Named>, pair: &Pair) -> Result<Vec<Named>, Failure> {
        let [certificate, key] = self.pair_names()?;
        add(&mut files, Named { name: certificate, content: pair.certificate.clone() })?;
        add(&mut files, Named { name: key, content: pair.key.clone() })?;
        Ok(files)
    }

    /// The authorities of the nodes' identities, if they are beside the one of etcd.
    pub(crate) fn authorities_of_nodes(&self) -> Result<Option<Vec<u8>>, Failure> {
        let ca = self.keys.get("etcd").and_then(|etcd| etcd.get("ca_file")).and_then(Value::as_str);
        let beside = ca.map(|ca| Path::new(ca).with_file_name(AUTHORITIES_OF_NODES));
        beside.map_or(Ok(None), |path| files::read_if_there(&path))
    }

    /// The files of these keys of `etcd`, and those beside it. The files of one volume are of one generation: the
    /// kubelet changes them all at once.
    fn read_all(&self, keys: &[&'static str]) -> Result<Vec<Named>, Failure> {
        let mut folders: BTreeMap<PathBuf, PathBuf> = BTreeMap::new();
        let mut files: Vec<Named> = Vec::new();
        for path in self.paths(keys)? {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let folder = path.parent().unwrap_or(Path::new("/"));
            let generation = folders.entry(folder.to_owned()).or_insert_with(|| generation(folder));
            let path = generation.join(&name);
            let content = files::read(&path)?;
            if content.is_empty() {
                return Err(Failure::new(format!("{} is empty", path.display())));
            }
            add(&mut files, Named { name, content })?;
        }
        Ok(files)
    }

    /// The file with the authority of etcd and its clients.
    pub(crate) fn authority(&self) -> Result<PathBuf, Failure> {
        let inside = self.keys.get("etcd").and_then(|etcd| etcd.get("ca_file"));
        let path = inside.or_else(|| self.keys.get("etcd_ca_cert_file")).and_then(Value::as_str);
        path.map(PathBuf::from).ok_or_else(|| self.refused("etcd.ca_file", "is missing"))
    }

    fn paths(&self, keys: &[&'static str]) -> Result<Vec<PathBuf>, Failure> {
        let etcd = self.keys.get("etcd").and_then(Value::as_object);
        let inside = keys.iter().filter_map(|key| Some((*key, etcd?.get(*key)?)));
        let beside = FILES_BESIDE.iter().filter_map(|key| Some((*key, self.keys.get(*key)?)));
        let path = |(key, value): (&str, &Value)| match value.as_str() {
            Some(path) if path.starts_with('/') => Ok(PathBuf::from(path)),
            _ => Err(self.refused(key, "must be a path that starts with /")),
        };
        inside.chain(beside).map(path).collect()
    }

    /// The host file of one node, whose files are in `folder`.
    pub(crate) fn host_file(&self, node: &str, folder: &Path) -> String {
        let mut keys = self.keys.clone();
        keys.insert("node_name".to_owned(), json!(node));
        FILES_BESIDE.iter().for_each(|key| move_file(&mut keys, key, folder));
        if let Some(etcd) = keys.get_mut("etcd").and_then(Value::as_object_mut) {
            FILES_IN_ETCD.iter().for_each(|key| move_file(etcd, key, folder));
        }
        format!("{:#}\n", Value::Object(keys))
    }
}

fn move_file(keys: &mut Map<String, Value>, key: &str, folder: &Path) {
    let Some(value) = keys.get_mut(key) else { return };
    let name = value.as_str().and_then(|path| Path::new(path).file_name()).unwrap_or_default();
    *value = json!(folder.join(name));
}

/// One folder on the node gets the files of several folders of a pod.
fn add(files: &mut Vec<Named>, file: Named) -> Result<(), Failure> {
    match files.iter().find(|other| other.name == file.name) {
        Some(other) if *other != file => {
            Err(Failure::new(format!("two different files are called {}: rename one", file.name)))
        }
        Some(_) => Ok(()),
        None => {
            files.push(file);
            Ok(())
        }
    }
}

/// Where the files of `folder` are now. The kubelet keeps them behind the link `..data`, in the folder itself or
/// above it, and exchanges that link. A path without links leads to one generation, or fails.
fn generation(folder: &Path) -> PathBuf {
    let data = fs::canonicalize(folder.join("..data"));
    data.or_else(|_| fs::canonicalize(folder)).unwrap_or_else(|_| folder.to_owned())
}

pub(crate) fn object(path: &Path, content: &[u8]) -> Result<Map<String, Value>, Failure> {
    match serde_json::from_slice(content) {
        Ok(Value::Object(keys)) => Ok(keys),
        Ok(_) => Err(Failure::new(format!("{} is not a JSON object", path.display()))),
        // It tells the position, and nothing of the content, which may have a password.
        Err(e) => Err(Failure::new(format!("{} is not JSON: {e}", path.display()))),
    }
}

fn endpoint(url: &str) -> Option<Endpoint> {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest).trim_end_matches('/');
    let (host, port) = rest.rsplit_once(':')?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let port = port.parse().ok().filter(|port| *port != 0)?;
    (!host.is_empty()).then(|| Endpoint { host: host.to_owned(), port })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_has_a_host_and_a_port() {
        let found = |url: &str| endpoint(url).map(|e| (e.host, e.port));
        assert_eq!(found("https://10.0.0.1:2379"), Some(("10.0.0.1".to_owned(), 2379)));
        assert_eq!(found("https://[fd00::1]:2379/"), Some(("fd00::1".to_owned(), 2379)));
        assert_eq!(found("etcd.example:1"), Some(("etcd.example".to_owned(), 1)));
        for bad in ["", "https://10.0.0.1", "https://:1", "https://h:0", "https://h:x"] {
            assert_eq!(found(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn only_what_differs_by_node_differs() {
        let keys = json!({
            "cluster": "c", "allowed": {"default": ["10.0.0.0/8"]}, "etcd_key_file": "/a/k.pem",
            "etcd": {"endpoints": ["https://h:1"], "ca_file": "/etc/metes/tls/ca.crt"},
        });
        let Value::Object(keys) = keys else { panic!("an object") };
        let text = Template { path: PathBuf::new(), keys }.host_file("n1", Path::new("/host/tls-3"));
        let expected = json!({
            "cluster": "c", "allowed": {"default": ["10.0.0.0/8"]}, "etcd_key_file": "/host/tls-3/k.pem",
            "etcd": {"endpoints": ["https://h:1"], "ca_file": "/host/tls-3/ca.crt"}, "node_name": "n1",
        });
        assert_eq!(serde_json::from_str::<Value>(&text).expect("JSON"), expected);
    }
}
