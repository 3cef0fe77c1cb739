//! Pods come and go on a real etcd, a real reconciler judges them, and a real Prometheus scrapes all of that. At the
//! end draw.py draws what Prometheus answers. hack/dashboard starts it.

use std::collections::VecDeque;
use std::f64::consts::TAU;
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant, SystemTime};
use std::{env, fs, thread};

use serde_json::{Value, json};
use support::{
    Etcd, EtcdOptions, Node, Pod, Run, World, free_ports, metes, metes_install, network, serve_through,
    spawn_bound, tool, view, wait_for,
};

const TICK: Duration = Duration::from_secs(2);
/// Every so many pods go without a DEL.
const LOST: usize = 15;
const STORAGE: &str = "pool: storage\nnetwork: storage\nranges: [{range: 10.71.0.0/24}]\n";
const EDGE: &str = "pool: edge\nnetwork: edge\ncooldown: 30s\nranges: [{range: 10.72.0.0/26}]\n";

fn main() {
    let [minutes, script, file] =
        env::args().skip(1).collect::<Vec<_>>().try_into().expect("three arguments");
    let lasts = Duration::from_secs(60 * minutes.parse::<u64>().expect("a number of minutes"));
    // Its writes take the time of a disk.
    let etcd = Etcd::start_with(EtcdOptions { mtls: true, fsync: true, ..EtcdOptions::default() });
    let world = World::on(&etcd);
    let server = serve_through(&world, &world.api, "5s", &["--grace", "1m"]);
    let viewer = view(&world, "5s");
    let (mut installer, port) = start_installer(&world);
    let jobs = [
        job("metes-viewer", viewer.port),
        job("metes-reconciler", server.port),
        job("metes-etcd", etcd.metrics_port()),
        installers_job(&etcd, port),
    ];
    let (mut prometheus, url) = start_prometheus(world.cluster.folder(), &jobs);
    let start = SystemTime::UNIX_EPOCH.elapsed().expect("it is later than 1970").as_secs();
    // A container beside each member of etcd writes this.
    let snapshot =
        json!({"v": 1, "snapshot": start - 3 * 3600, "certificate_end": start + 200 * 86_400}).to_string();
    world.cluster.store().put("v1/member/127.0.0.1", snapshot);
    work(&world, lasts);
    let drawn = Run::new("/usr/bin/python3").arguments([&script, &url, &start.to_string(), &file]).run();
    assert!(drawn.succeeded(), "{drawn}");
    prometheus.kill().expect("it runs");
    installer.kill().expect("it runs");
    viewer.end();
    server.end();
    // The bits of addresses that have cooled since the last pass.
    world.cluster.assert_whole();
}

/// The installer of the node on which the pods are, and its port for metrics.
fn start_installer(world: &World) -> (Child, u16) {
    let [port] = free_ports();
    let folder = world.cluster.folder().join("installed");
    fs::create_dir_all(folder.join("bin")).expect("a folder can be made");
    let path = |option: &str, path: &Path| format!("--{option}={}", path.display());
    let arguments = [
        format!("--listen=127.0.0.1:{port}"),
        path("template", &world.node.host_file()),
        path("binary", &metes()),
        path("bin-dir", &folder.join("bin")),
        path("host-dir", &folder.join("host")),
        path("state-dir", &world.node.spool()),
    ];
    let process = spawn_bound(&metes_install(), |command| {
        command.arg("install").args(arguments).env("NODE_NAME", world.node.name());
    });
    (process.expect("it starts"), port)
}

fn job(name: &str, port: u16) -> Value {
    json!({"job_name": name, "static_configs": [{"targets": [format!("127.0.0.1:{port}")]}]})
}

/// As manifests/monitoring has it: an installer shows its metrics to who has a certificate of etcd's authority.
fn installers_job(etcd: &Etcd, port: u16) -> Value {
    let tls = etcd.tls().expect("it has certificates");
    let mut job = job("metes-installer", port);
    job["scheme"] = json!("https");
    job["static_configs"][0]["labels"] = json!({"node": "worker-1"});
    job["tls_config"] = json!({
        "insecure_skip_verify": true, "cert_file": tls.client_cert(), "key_file": tls.client_key(),
    });
    job
}

fn start_prometheus(folder: &Path, jobs: &[Value]) -> (Child, String) {
    let [port] = free_ports();
    let config = folder.join("prometheus.yml");
    let manifest =
        fs::read_to_string(support::root().join("manifests/monitoring/rules.yaml")).expect("it stands there");
    let rules = folder.join("rules.yaml");
    let (_, groups) = manifest.split_once("\nspec:\n").expect("it has groups");
    fs::write(&rules, groups).expect("a file can be written");
    let global = json!({"scrape_interval": "5s", "evaluation_interval": "5s"});
    let text = json!({"global": global, "rule_files": [rules], "scrape_configs": jobs});
    fs::write(&config, text.to_string()).expect("a file can be written");
    let process = spawn_bound(&tool("prometheus"), |command| {
        command.arg(format!("--config.file={}", config.display()));
        command.arg(format!("--storage.tsdb.path={}", folder.join("prometheus").display()));
        command.arg(format!("--web.listen-address=127.0.0.1:{port}")).arg("--log.level=error");
    });
    let url = format!("http://127.0.0.1:{port}");
    let ready = Run::new("curl").arguments(["-sSf", "--noproxy", "*", &format!("{url}/-/ready")]);
    wait_for("Prometheus", Duration::from_secs(60), || match ready.clone().run() {
        answer if answer.succeeded() => Ok(()),
        answer => Err(answer.to_string()),
    });
    (process.expect("it starts"), url)
}

/// A network whose pods come and go: there are `wanted` of them, by how much of the time is over.
struct Team {
    name: &'static str,
    config: Value,
    wanted: fn(f64) -> f64,
    pods: VecDeque<Pod>,
}

/// Real pods of a real API server, an ADD for each of them, and a DEL for most.
fn work(world: &World, lasts: Duration) {
    assert_applied(&world.node, STORAGE);
    assert_applied(&world.node, EDGE);
    let hold =
        ["hold", "--note", "printers", "--network", "storage", "10.71.0.200", "10.71.0.201", "10.99.0.1"];
    let held = world.node.cli(hold);
    assert!(held.succeeded(), "{held}");
    let team = |name, ipam, wanted| Team { name, config: network(ipam), wanted, pods: VecDeque::new() };
    let mut teams = [
        team("storage", json!({"pool": "storage"}), |over| 40.0 + 170.0 * over),
        team("edge", json!({"pool": "edge"}), |over| 18.0 + 8.0 * (2.0 * TAU * over).sin()),
        team("web", json!({"range": "10.73.0.0/25"}), |over| 60.0 + 25.0 * (3.0 * TAU * over).sin()),
        team("db", json!({"range": "10.74.0.0/27", "network_name": "db"}), |over| 16.0 + 6.0 * over),
    ];
    let start = Instant::now();
    for tick in 0.. {
        let over = start.elapsed().as_secs_f64() / lasts.as_secs_f64();
        if over >= 1.0 {
            break;
        }
        for team in &mut teams {
            team.turn(world, tick, over);
        }
        thread::sleep(TICK.saturating_sub(start.elapsed() - TICK * u32::try_from(tick).expect("some hours")));
    }
}

fn assert_applied(node: &Node, pool: &str) {
    let applied = node.pool(&["apply", "--yes", "-f", "-"], pool);
    assert!(applied.succeeded(), "{applied}");
}

impl Team {
    /// A pod comes, and if there are too many then, up to two of the oldest go.
    fn turn(&mut self, world: &World, tick: usize, over: f64) {
        let pod = world.api.pod(&world.namespace, &format!("{}-{tick}", self.name)).phase("Running").create();
        self.run(world.node.add(pod.name()), &pod).address();
        self.pods.push_back(pod);
        for lost in [tick.is_multiple_of(LOST), false] {
            if self.pods.len() as f64 > (self.wanted)(over) {
                let pod = self.pods.pop_front().expect("there are too many");
                if !lost {
                    self.run(world.node.del(pod.name()), &pod).silent();
                }
                pod.delete();
            }
        }
    }

    fn run(&self, verb: Run, pod: &Pod) -> support::Outcome {
        verb.config(&self.config).pod(pod.namespace(), pod.name(), pod.uid()).run()
    }
}
