//! The installations of manifests/ work: every example's configuration, the etcd, the installer, and its end.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use metes_config::{HostFile, Settings};
use serde_json::{Value, json};
use support::{
    Cluster, Etcd, Node, Run, free_ports, in_parallel, metes, metes_install, network, spawn_bound, tool,
    wait_for,
};
use tempfile::TempDir;

const MEMBERS: [Ipv4Addr; 3] =
    [Ipv4Addr::new(127, 0, 1, 11), Ipv4Addr::new(127, 0, 1, 12), Ipv4Addr::new(127, 0, 1, 13)];

fn manifests() -> PathBuf {
    support::root().join("manifests")
}

fn read(path: impl AsRef<Path>) -> String {
    let path = path.as_ref();
    fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Every configuration in manifests/examples, with the file that it is in.
fn examples() -> Vec<(String, Value)> {
    let mut found = Vec::new();
    for folder in ["examples", "examples/default-network"] {
        for entry in fs::read_dir(manifests().join(folder)).expect("a folder").flatten() {
            let path = entry.path();
            let name = entry.file_name().to_string_lossy().into_owned();
            match path.extension().and_then(|extension| extension.to_str()) {
                Some("conflist") => found.push((name, read(&path))),
                Some("yaml") => {
                    found.extend(configurations(&read(&path)).into_iter().map(|text| (name.clone(), text)));
                }
                _ => {}
            }
        }
    }
    found.sort();
    let value = |name: &str, text: &str| serde_json::from_str(text).unwrap_or_else(|e| panic!("{name}: {e}"));
    found.into_iter().map(|(name, text)| (name.clone(), value(&name, &text))).collect()
}

/// The text below each `config: |`.
fn configurations(yaml: &str) -> Vec<String> {
    let mut texts = Vec::new();
    let mut lines = yaml.lines().peekable();
    while let Some(line) = lines.next() {
        if line.trim() != "config: |" {
            continue;
        }
        let mut text = String::new();
        while let Some(line) = lines.next_if(|line| line.starts_with("    ")) {
            text.push_str(line);
            text.push('\n');
        }
        texts.push(text);
    }
    texts
}

/// The configurations that reach metes on stdin: the plugin's own section, with the list's name and version.
fn as_delegated(config: &Value) -> Vec<Value> {
    let plugins = config["plugins"].as_array().cloned().unwrap_or_else(|| vec![config.clone()]);
    let with_ipam = plugins.into_iter().filter(|plugin| !plugin["ipam"].is_null());
    with_ipam
        .map(|mut plugin| {
            plugin["cniVersion"] = config["cniVersion"].clone();
            plugin["name"] = config["name"].clone();
            if plugin["type"] == "flannel" {
                // From subnet.env, as flannel itself fills it in.
                plugin["ipam"]["ranges"] = json!([[{"subnet": "10.244.3.0/24"}]]);
                plugin["ipam"]["routes"] = json!([{"dst": "10.244.0.0/16"}]);
            }
            plugin
        })
        .collect()
}

/// Applies the pools that stand in the comment of an example.
fn apply_pools_of(node: &Node, example: &str) {
    let example = read(manifests().join("examples").join(example));
    let lines = example.lines().skip_while(|line| !line.ends_with("<<END")).skip(1);
    let text: Vec<&str> =
        lines.map_while(|line| line.strip_prefix("#   ").filter(|line| *line != "END")).collect();
    let file = node.spool().with_file_name("pool.yaml");
    fs::create_dir_all(file.parent().expect("a folder")).expect("a folder");
    fs::write(&file, text.join("\n")).expect("written");
    let outcome = node.cli(["pool", "apply", "--yes", "-f", file.to_str().expect("a plain path")]);
    assert!(outcome.succeeded(), "{outcome}");
}

#[test]
fn every_example_gives_an_address() {
    let cluster = Cluster::new();
    let node = cluster.node("n1");
    apply_pools_of(&node, "pool.yaml");
    apply_pools_of(&node, "pool-auto.yaml");
    apply_pools_of(&node, "statefulset.yaml");
    let mut count = 0;
    for (file, config) in examples() {
        for plugin in as_delegated(&config) {
            assert_eq!(plugin["ipam"]["type"], "metes", "{file}");
            count += 1;
            let container = format!("c{count}");
            let outcome = node.add(&container).config(&plugin).pod("default", "db-0", &container).run();
            assert!(!outcome.ok()["ips"][0]["address"].is_null(), "{file}: {outcome}");
            assert!(!outcome.stderr.contains("unknown"), "{file}: {outcome}");
            node.del(&container).config(&plugin).run().silent();
        }
    }
    assert_eq!(
        count, 14,
        "an example for each main plugin, two of pools, and one whose addresses outlive a pod"
    );
    let kept = node.cli(["holds", "-o", "json"]).json();
    assert_eq!((kept.as_array().map(Vec::len), &kept[0]["pod"]["name"]), (Some(1), &json!("db-0")), "{kept}");
    assert!(node.cli(["hold", "--remove", kept[0]["address"].as_str().expect("one")]).succeeded());
    cluster.assert_nothing_held();
    cluster.assert_clean();
}

/// The images that the manifests name are those that this tree builds and is tested with.
#[test]
fn versions_agree() {
    let images = read(manifests().join("images/kustomization.yaml"));
    let tag = |name: &str| {
        let (_, rest) = images.split_once(&format!("name: {name}\n")).expect(name);
        let (_, rest) = rest.split_once("newTag: ").expect(name);
        rest.lines().next().unwrap_or_default().to_owned()
    };
    for image in ["metes-install", "metes-reconciler"] {
        assert_eq!(tag(image), env!("CARGO_PKG_VERSION"), "{image}");
    }
    let tools = read(manifests().join("../hack/tool"));
    assert!(tools.contains(&format!("ETCD_VERSION={}\n", tag("quay.io/coreos/etcd"))), "etcd");
}

/// Every text that an operator is told to edit is a host file in the real parser's eyes.
#[test]
fn host_files_are_accepted() {
    let docs = read(manifests().join("../docs/install.md"));
    let (_, rest) = docs.split_once("```json\n").expect("an example");
    let (example, _) = rest.split_once("```").expect("its end");
    let texts = [
        read(manifests().join("base/metes.conf")),
        read(manifests().join("byo-etcd/metes.conf")),
        example.into(),
    ];
    for text in texts {
        let text = text.replace(r#""allowed": "change-me""#, r#""allowed": "any""#);
        let file = HostFile::parse(text.as_bytes()).unwrap_or_else(|e| panic!("{e} in {text}"));
        let settings = Settings::from_host(file).unwrap_or_else(|e| panic!("{e} in {text}"));
        assert!(settings.notes.is_empty(), "{:?} in {text}", settings.notes);
    }
}

/// Each path below manifests/ that the documentation names is there.
#[test]
fn documents_name_what_is_there() {
    let root = manifests().join("..");
    for document in ["docs/install.md", "README.md", "docs/security.md", "manifests/kustomization.yaml"] {
        let text = read(root.join(document));
        let ends = |c: char| !(c.is_ascii_alphanumeric() || "-_./*".contains(c));
        for word in text.split(ends).filter(|word| word.starts_with("manifests/") && !word.contains('*')) {
            let path = word.trim_end_matches('.');
            assert!(root.join(path).exists(), "{document} names {path}");
        }
    }
}

/// An installation on folders of a test's own: the mounts of the pods of manifests/, and a node's folders.
struct Installation {
    folder: TempDir,
    template: Value,
}

impl Installation {
    fn new(etcd: Value) -> Self {
        let folder = tempfile::tempdir().expect("a folder can be made");
        fs::create_dir(folder.path().join("bin")).expect("a folder can be made");
        let mut installation = Self { folder, template: Value::Null };
        let state = installation.path("state");
        let template = json!({"cluster": "c1", "allowed": "any", "spool_dir": state, "etcd": etcd});
        installation.set_template(template);
        installation
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn set_template(&mut self, template: Value) {
        fs::write(self.path("metes.conf"), template.to_string()).expect("a file can be written");
        self.template = template;
    }

    fn installer(&self, arguments: &[&str]) -> Output {
        self.installer_command(arguments).output().expect("the installer runs")
    }

    fn installer_command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(metes_install());
        command
            .args(arguments)
            .args(
                (arguments[0] != "uninstall")
                    .then(|| format!("--template={}", self.path("metes.conf").display())),
            )
            .env_clear()
            .envs([("NODE_NAME", "worker-1"), ("NAMESPACE", "metes-system")])
            .current_dir(self.folder.path());
        command
    }

    /// A verb about this node.
    fn on_node(&self, verb: &str) -> Output {
        self.on_node_by(verb, &metes())
    }

    /// The same with another program in the place of the plugin that the installer brings along.
    fn on_node_by(&self, verb: &str, binary: &Path) -> Output {
        let paths = [
            ("--binary", binary.to_owned()),
            ("--bin-dir", self.path("bin")),
            ("--host-dir", self.path("host")),
        ];
        let state = verb.starts_with("uninstall").then(|| ("--state-dir", self.path("state")));
        let paths = paths.into_iter().chain(state);
        let paths: Vec<String> = paths.map(|(option, path)| format!("{option}={}", path.display())).collect();
        let mut arguments: Vec<&str> = verb.split(' ').collect();
        arguments.extend(paths.iter().map(String::as_str));
        self.installer(&arguments)
    }

    /// A run of the installed program, with the installed host file.
    fn plugin(&self, command: &str, container: &str) -> Run {
        let config = config();
        Run::new(self.path("bin/metes"))
            .env("METES_CONF", self.path("host/metes.conf"))
            .env("CNI_COMMAND", command)
            .container(container)
            .ifname("net1")
            .netns("/run/netns/made-up")
            .cni_path(self.path("bin"))
            .pod("shop", "web-0", "u-1")
            .config(&config)
    }
}

#[track_caller]
fn said(output: &Output, succeeded: bool) -> String {
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.success(), succeeded, "{text}");
    text
}

#[test]
fn uninstalling_is_refused_while_the_node_holds_an_address() {
    let etcd = Etcd::start();
    let installation = Installation::new(etcd.host_keys("/uninstall/"));
    said(&installation.on_node("install --once"), true);
    installation.plugin("ADD", "c1").run().ok();
    let text = said(&installation.on_node("uninstall"), false);
    assert!(text.contains("this node holds 10.0.0.1 (pod shop/web-0)"), "{text}");
    said(&installation.on_node("install --check"), true);

    installation.plugin("DEL", "c1").run().silent();
    // Another cluster that shares the store has a node of this name, which is none of this one's business.
    let mut other: Value =
        serde_json::from_slice(&fs::read(installation.path("host/metes.conf")).expect("it is there"))
            .expect("JSON");
    other["cluster"] = json!("other");
    fs::write(installation.path("other.conf"), other.to_string()).expect("written");
    let its = || installation.path("other.conf");
    installation.plugin("ADD", "c2").env("METES_CONF", its()).run().ok();
    said(&installation.on_node("uninstall --check"), false);
    said(&installation.on_node("uninstall"), true);
    said(&installation.on_node("uninstall --check"), true);
    for folder in ["bin", "host"] {
        let left: Vec<_> = fs::read_dir(installation.path(folder)).expect("it is there").flatten().collect();
        assert!(left.is_empty(), "{left:?}");
    }
    assert!(!installation.path("state").exists());
    said(&installation.on_node("uninstall"), true);
}

/// The installer has node state at another path than the plugin, as in its pod.
#[test]
fn the_installer_counts_the_runs_of_the_plugin_that_it_has_installed() {
    let etcd = Etcd::start_mtls();
    let installation = Installation::new(etcd.host_keys("/counted/"));
    fs::create_dir(installation.path("state")).expect("a folder can be made");
    std::os::unix::fs::symlink("state", installation.path("mounted")).expect("a link can be made");
    said(&installation.on_node("install --once"), true);
    let [port] = free_ports();
    let path = |option: &str, path: PathBuf| format!("--{option}={}", path.display());
    let arguments = [
        "install".to_owned(),
        format!("--listen=127.0.0.1:{port}"),
        path("template", installation.path("metes.conf")),
        path("binary", metes()),
        path("bin-dir", installation.path("bin")),
        path("host-dir", installation.path("host")),
        path("state-dir", installation.path("mounted")),
    ];
    let mut installer = spawn_bound(&metes_install(), |command| {
        command.args(arguments).env("NODE_NAME", "worker-1").stderr(Stdio::null());
    })
    .expect("the installer starts");
    let tls = etcd.tls().expect("it has certificates");
    let metrics = || {
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--insecure", "--noproxy", "*", "--cert"]).arg(tls.client_cert());
        curl.arg("--key").arg(tls.client_key()).arg(format!("https://127.0.0.1:{port}/metrics"));
        String::from_utf8(curl.output().expect("curl runs").stdout).expect("a text")
    };
    let shows = |sample: &str| match metrics() {
        text if text.lines().any(|line| line == sample) => Ok(()),
        text => Err(format!("{sample} is not in {text}")),
    };
    wait_for("the first pass", Duration::from_secs(30), || shows("metes_node_installed 1"));
    for container in ["c1", "c2"] {
        installation.plugin("ADD", container).run().ok();
    }
    installation.plugin("DEL", "c1").run().silent();
    installation.plugin("ADD", "c3").config(&network(json!({"range": "nowhere"}))).run().error(7);
    for sample in [
        "metes_node_runs_total{verb=\"ADD\",code=\"0\"} 2",
        "metes_node_runs_total{verb=\"ADD\",code=\"7\"} 1",
        "metes_node_runs_total{verb=\"DEL\",code=\"0\"} 1",
        "metes_node_run_duration_seconds_count{verb=\"ADD\"} 3",
        "metes_node_spooled_dels 0",
    ] {
        shows(sample).unwrap_or_else(|e| panic!("{e}"));
    }
    etcd.stop();
    installation.plugin("DEL", "c2").run().silent();
    shows("metes_node_spooled_dels 1").unwrap_or_else(|e| panic!("{e}"));
    let version = env!("CARGO_PKG_VERSION");
    shows(&format!("metes_node_info{{version=\"{version}\",installer_version=\"{version}\"}} 1"))
        .unwrap_or_else(|e| panic!("{e}"));
    installer.kill().expect("it can be killed");
    installer.wait().expect("it ends");
}

/// The plugin comes from one image, and then from others. An outage of etcd stops none of them.
#[test]
fn a_plugin_takes_the_place_of_another_one_only_if_etcd_serves_it_as_well() {
    let mut etcd = Etcd::start();
    let installation = Installation::new(etcd.host_keys("/upgrade/"));
    let image = |name: &str, end: &[u8]| {
        let mut program = fs::read(metes()).expect("it can be read");
        program.extend_from_slice(end);
        fs::write(installation.path(name), program).expect("a file can be written");
        installation.path(name)
    };
    let [first, second] = [image("first", b"1"), image("second", b"2")];
    let text = said(&installation.on_node_by("install --once", &first), true);
    assert!(!text.contains("though"), "{text}");
    installation.plugin("ADD", "c1").run().ok();
    let text = said(&installation.on_node_by("install --once", &second), true);
    assert!(!text.contains("though"), "{text}");

    // A plugin that cannot use the host file, as one of a version before a key of it.
    let refusing = installation.path("refusing");
    let script = format!(
        "#!/bin/sh\ntest $CNI_COMMAND = STATUS && METES_CONF=/nowhere\nexport METES_CONF\nexec '{}'\n",
        metes().display()
    );
    fs::write(&refusing, script).expect("a file can be written");
    let text = said(&installation.on_node_by("install --once", &refusing), false);
    assert!(text.contains("is refused") && text.contains("the host file /nowhere"), "{text}");
    said(&installation.on_node_by("install --check", &refusing), false);
    said(&installation.on_node_by("install --check", &second), true);

    // In a pod, what the plugin keeps on the node is not mounted.
    fs::rename(installation.path("state"), installation.path("mounted-elsewhere")).expect("renamed");
    etcd.kill();
    let text = said(&installation.on_node_by("install --once", &first), true);
    assert!(text.contains("though its STATUS") && text.contains("etcd cannot be reached"), "{text}");
    said(&installation.on_node_by("install --check", &first), true);
    let _ = fs::remove_dir_all(installation.path("state"));
    fs::rename(installation.path("mounted-elsewhere"), installation.path("state")).expect("renamed");
    etcd.restart();
    installation.plugin("DEL", "c1").run().silent();
    said(&installation.on_node_by("uninstall", &metes()), true);
}

/// A pod starts right after the installer was told that the node holds nothing.
#[test]
fn an_address_that_is_taken_after_the_question_keeps_the_plugin() {
    let etcd = Etcd::start();
    let installation = Installation::new(etcd.host_keys("/uninstall/"));
    said(&installation.on_node("install --once"), true);
    // `metes list`, and once after it an ADD by the installed program.
    fs::write(installation.path("config"), config().to_string()).expect("a file can be written");
    let add =
        "CNI_COMMAND=ADD CNI_CONTAINERID=c1 CNI_IFNAME=net1 CNI_NETNS=/run/netns/made-up CNI_PATH=/nowhere";
    let script = format!(
        "#!/bin/sh\n'{metes}' \"$@\" || exit\nmkdir '{folder}/asked' 2>/dev/null || exit 0\n\
         {add} METES_CONF='{folder}/host/metes.conf' '{folder}/bin/metes' <'{folder}/config' >'{folder}/answer'\n",
        metes = metes().display(),
        folder = installation.folder.path().display(),
    );
    // Copied by another process: a child that another test starts meanwhile would keep a file open that is written
    // here, and a file that is open to be written cannot be run.
    let (text, binary) = (installation.path("script"), installation.path("list-then-add"));
    fs::write(&text, script).expect("a file can be written");
    let copied = Command::new("install").arg("-m755").args([&text, &binary]).status();
    assert!(copied.expect("install runs").success());
    let text = said(&installation.on_node_by("uninstall", &binary), false);
    assert!(text.contains("this node holds 10.0.0.1 (container c1)"), "{text}");
    assert!(read(installation.path("answer")).contains("10.0.0.1"), "an address was given");
    said(&installation.on_node("install --check"), true);

    installation.plugin("DEL", "c1").run().silent();
    said(&installation.on_node_by("uninstall", &binary), true);
    said(&installation.on_node("uninstall --check"), true);
}

#[test]
fn uninstalling_is_refused_while_etcd_cannot_be_asked() {
    let mut etcd = Etcd::start();
    let installation = Installation::new(etcd.host_keys("/uninstall/"));
    said(&installation.on_node("install --once"), true);
    etcd.kill();
    let text = said(&installation.on_node("uninstall"), false);
    assert!(text.contains("cannot find out what node worker-1 holds"), "{text}");
    said(&installation.on_node("install --check"), true);
}

/// Killed when the test ends, however that ends.
struct Member(Child);

impl Drop for Member {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A port that is free, with the five after it, at the addresses of all members.
fn free_port() -> u16 {
    let first = 10_000 + u16::try_from(std::process::id() % 3_000).expect("it is small") * 6;
    let is_free = |port| MEMBERS.iter().all(|ip| TcpListener::bind((*ip, port)).is_ok());
    let mut ports = (first..30_000).step_by(6).chain((10_000..first).step_by(6));
    ports.find(|port| (0..6).all(|i| is_free(port + i))).expect("there are free ports")
}

/// manifests/etcd/etcd.json with the folders of a test, completed and run as in a pod.
fn start_member(installation: &Installation, ip: Ipv4Addr, metrics_port: u16) -> Member {
    let base = read(manifests().join("etcd/etcd.json"))
        .replace("/var/lib/etcd/data", &installation.path(&format!("data-{ip}")).display().to_string())
        .replace("/etc/etcd/server", &installation.path("metes-etcd-server").display().to_string())
        .replace("/etc/etcd/peer", &installation.path("metes-etcd-peer").display().to_string())
        .replace("http://127.0.0.1:12381", &format!("http://{ip}:{metrics_port}"));
    let shared = format!("shared-{ip}.json");
    fs::write(installation.path(&shared), base).expect("a file can be written");
    let (base, out, me) =
        (format!("--base={shared}"), format!("--out=etcd-{ip}.json"), format!("--node-ip={ip}"));
    let etcd = format!("--etcd={}", tool("etcd").display());
    let log = fs::File::create(installation.path(&format!("log-{ip}"))).expect("a file can be made");
    let child = installation
        .installer_command(&["etcd", &base, &me, &out, &etcd])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .expect("etcd starts");
    Member(child)
}

/// Unpacks each Secret into a folder of its name, with openssl as the judge of base64.
fn unpack_secrets(installation: &Installation) {
    let list: Value = serde_json::from_str(&read(installation.path("secrets.json"))).expect("JSON");
    let items = list["items"].as_array().expect("a list").iter();
    for secret in items.filter(|one| one["kind"] == "Secret") {
        let folder = installation.path(secret["metadata"]["name"].as_str().expect("a name"));
        fs::create_dir_all(&folder).expect("a folder can be made");
        for (name, data) in secret["data"].as_object().expect("data") {
            let encoded = installation.path("encoded");
            fs::write(&encoded, data.as_str().expect("a text")).expect("a file can be written");
            let decoded = Command::new("openssl")
                .args(["base64", "-d", "-A", "-in"])
                .arg(&encoded)
                .output()
                .expect("openssl runs");
            assert!(decoded.status.success() && !decoded.stdout.is_empty(), "{name}");
            fs::write(folder.join(name), decoded.stdout).expect("a file can be written");
        }
    }
}

/// The etcd of manifests/, three members with the certificates of the Job, and the plugin as the DaemonSet installs it.
#[test]
fn three_members_serve_an_installed_node_and_one_may_go() {
    let mut installation = Installation::new(Value::Null);
    let port = free_port();
    let client = installation.path("metes-node");
    let mut template: Value = serde_json::from_str(&read(manifests().join("base/metes.conf"))).expect("JSON");
    template["cluster"] = json!("c1");
    template["allowed"] = json!("any");
    template["spool_dir"] = json!(installation.path("state"));
    template["etcd"]["endpoints"] = json!(MEMBERS.map(|ip| format!("https://{ip}:{port}")));
    for (key, file) in [("ca_file", "ca.crt"), ("cert_file", "tls.crt"), ("key_file", "tls.key")] {
        template["etcd"][key] = json!(client.join(file));
    }
    installation.set_template(template);
    said(&installation.installer(&["certificates", "--one-key", "--out=secrets.json"]), true);
    unpack_secrets(&installation);
    // None begins without the others.
    let mut members = in_parallel(MEMBERS.len(), MEMBERS, |ip| start_member(&installation, ip, port + 2));

    said(&installation.on_node("install --once"), true);
    wait_for("three members to serve", Duration::from_secs(30), || {
        let outcome = installation.plugin("STATUS", "c1").run();
        if outcome.succeeded() { Ok(()) } else { Err(outcome.to_string()) }
    });
    installation.plugin("ADD", "c1").run().ok();

    // A renewal, by the same authority: neither side is restarted.
    said(
        &installation.installer(&[
            "certificates",
            "--one-key",
            "--ca=metes-ca",
            "--node-ca=metes-node-ca",
            "--out=secrets.json",
        ]),
        true,
    );
    unpack_secrets(&installation);
    let text = said(&installation.on_node("install --once"), true);
    assert!(text.contains("new certificates"), "{text}");
    installation.plugin("CHECK", "c1").config(&check_config(&installation)).run().silent();

    drop(members.remove(0));
    // If that was the leader, a DEL may be spooled, and the next one carries it out.
    wait_for("nothing to be held", Duration::from_secs(30), || {
        installation.plugin("DEL", "c1").run().silent();
        let list = Run::new(metes())
            .env("METES_CONF", installation.path("host/metes.conf"))
            .arguments(["list", "-o", "json"])
            .run();
        if list.succeeded() && list.stdout.trim() == "[]" { Ok(()) } else { Err(list.to_string()) }
    });
}

fn config() -> Value {
    support::network_as("1.1.0", "net", json!({"range": "10.0.0.0/24"}))
}

/// A CHECK is given the result of the ADD.
fn check_config(installation: &Installation) -> Value {
    let mut config = config();
    config["prevResult"] = installation.plugin("ADD", "c1").run().ok();
    config
}
