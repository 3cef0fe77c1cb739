//! A reconciler that stays, and the metrics that it tells.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use super::etcd::free_ports;
use super::kube::Reachable;
use super::outcome::Outcome;
use super::reconcile::Reconciler;
use super::run::Running;
use super::wait::wait_for;
use super::world::World;

/// The longest time that a test waits for something that should take a second or two.
const SOON: Duration = Duration::from_secs(30);
const HTTP_MAX: Duration = Duration::from_secs(3);

/// A server that makes a pass so often, without any grace.
pub fn serve(world: &World, every: &str) -> Server {
    serve_through(world, &world.api, every, &[])
}

/// The same through another API server, and with more flags.
pub fn serve_through(world: &World, api: &impl Reachable, every: &str, args: &[&str]) -> Server {
    start(world.cluster.reconciler(api).args(args), every)
}

/// The same of a reconciler that is being prepared.
pub fn start(reconciler: Reconciler, every: &str) -> Server {
    let [port] = free_ports();
    let listen = format!("127.0.0.1:{port}");
    let reconciler =
        reconciler.env("METES_RECONCILER_GRACE", "0s").args(["--listen", &listen, "--every", every]);
    let server = Server { running: reconciler.spawn(), port };
    wait_for("the server to answer", SOON, || server.get("/healthz").map_err(|e| e.to_string()));
    server
}

/// A viewer, which reads so often. It needs no Kubernetes.
pub fn view(world: &World, every: &str) -> Server {
    start(world.cluster.reconciler(&world.api).kubeconfig("/nonexistent").args(["view"]), every)
}

impl World {
    /// What a viewer shows now.
    #[track_caller]
    pub fn viewed(&self) -> Metrics {
        Metrics::parse(&self.shown())
    }

    /// The same as it stands there.
    #[track_caller]
    pub fn shown(&self) -> String {
        let server = view(self, "1m");
        server.wait_for_page("/readyz", 200);
        let (_, text) = server.get("/metrics").expect("it answers");
        server.end();
        text
    }
}

/// A reconciler that stays.
pub struct Server {
    pub running: Running,
    pub port: u16,
}

impl Server {
    /// Status and body.
    pub fn get(&self, path: &str) -> io::Result<(u16, String)> {
        let answer = self.ask(&format!("GET {path} HTTP/1.1\r\nHost: metes\r\n\r\n"))?;
        let (head, body) = answer.split_once("\r\n\r\n").ok_or(io::ErrorKind::UnexpectedEof)?;
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        Ok((status.ok_or(io::ErrorKind::InvalidData)?, body.to_owned()))
    }

    pub fn ask(&self, request: &str) -> io::Result<String> {
        let mut stream = self.connect()?;
        stream.write_all(request.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }

    pub fn connect(&self) -> io::Result<TcpStream> {
        let stream =
            TcpStream::connect_timeout(&SocketAddr::from((Ipv4Addr::LOCALHOST, self.port)), HTTP_MAX)?;
        stream.set_read_timeout(Some(HTTP_MAX * 4))?;
        Ok(stream)
    }

    #[track_caller]
    pub fn metrics(&self) -> Metrics {
        let (status, body) = self.get("/metrics").expect("it answers");
        assert_eq!(status, 200);
        Metrics::parse(&body)
    }

    #[track_caller]
    pub fn is_leader(&self) -> bool {
        self.metrics().value("leader") == 1.0
    }

    #[track_caller]
    pub fn passes(&self, outcome: &str) -> f64 {
        self.metrics().value(&format!("passes_total{{outcome=\"{outcome}\"}}"))
    }

    #[track_caller]
    pub fn wait_for_lead(&self, deadline: Duration) {
        wait_for(
            "the lead",
            deadline,
            || if self.is_leader() { Ok(()) } else { Err("another leads".into()) },
        );
    }

    #[track_caller]
    pub fn wait_for_page(&self, path: &str, status: u16) -> String {
        wait_for(&format!("{path} to say {status}"), SOON, || match self.get(path) {
            Ok((found, body)) if found == status => Ok(body),
            other => Err(format!("{other:?}")),
        })
    }

    /// A restart of it would be of no use.
    #[track_caller]
    pub fn assert_healthy(&self) {
        assert_eq!(self.get("/healthz").expect("it answers"), (200, "ok\n".to_owned()));
    }

    #[track_caller]
    pub fn end(self) -> Outcome {
        self.running.terminate();
        let outcome = self.running.wait();
        assert!(outcome.succeeded(), "{outcome}");
        assert!(outcome.stdout.is_empty(), "{outcome}");
        outcome
    }
}

/// Text in Prometheus' format, read strictly. Names are without `metes_reconciler_`, if they begin with it.
pub struct Metrics(BTreeMap<String, f64>);

impl Metrics {
    #[track_caller]
    pub fn parse(text: &str) -> Self {
        assert!(text.ends_with('\n'), "{text}");
        let mut values = BTreeMap::new();
        let mut heads: Vec<(String, String)> = Vec::new();
        let mut help = String::new();
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                help = rest.split_once(' ').expect("a name and words").0.to_owned();
                assert!(heads.iter().all(|(name, _)| *name != help), "{help} comes twice");
            } else if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').expect("a name and a type");
                assert_eq!(name, help, "its help stands before it");
                assert!(["gauge", "counter"].contains(&kind), "{line}");
                assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
                heads.push((name.to_owned(), kind.to_owned()));
            } else {
                let (sample, value) = line.rsplit_once(' ').expect("a sample and its value");
                let name = sample.split('{').next().expect("split yields a part");
                assert_eq!(heads.last().map(|(name, _)| name.as_str()), Some(name), "{line}");
                if let Some(labels) = sample.strip_prefix(name).filter(|labels| !labels.is_empty()) {
                    let inner = labels.strip_prefix('{').and_then(|labels| labels.strip_suffix("\"}"));
                    for pair in inner.expect("labels").split("\",") {
                        let (label, value) = pair.split_once("=\"").expect("a label and its value");
                        assert!(label.bytes().all(|b| b.is_ascii_lowercase()), "{line}");
                        assert!(!value.is_empty() && !value.contains(['"', '\\']), "{line}");
                    }
                }
                assert!(sample.starts_with("metes_"), "{line}");
                let sample = sample.strip_prefix("metes_reconciler_").unwrap_or(sample);
                let known = values.insert(sample.to_owned(), value.parse().expect("a number"));
                assert_eq!(known, None, "{sample} comes twice");
            }
        }
        Self(values)
    }

    pub fn has(&self, sample: &str) -> bool {
        self.0.contains_key(sample)
    }

    #[track_caller]
    pub fn value(&self, sample: &str) -> f64 {
        *self.0.get(sample).unwrap_or_else(|| panic!("no {sample} in {:?}", self.0))
    }

    #[track_caller]
    pub fn assert(&self, expected: &[(&str, f64)]) {
        for (sample, value) in expected {
            assert_eq!(self.value(sample), *value, "{sample}");
        }
    }
}
