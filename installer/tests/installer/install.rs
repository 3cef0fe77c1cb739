//! The real program on folders of a test's own, as on a node.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Output};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

use crate::support::open_read_fifo;
use serde_json::{Value, json};
use tempfile::TempDir;

/// A node's folders, and the volume of a pod on it.
struct Node {
    folder: TempDir,
}

impl Node {
    fn new() -> Self {
        let node = Self { folder: tempfile::tempdir().expect("a folder can be made") };
        fs::create_dir(node.path("bin")).expect("a folder can be made");
        fs::create_dir(node.path("volume")).expect("a folder can be made");
        node.template(&node.usual_template());
        node.secret("one");
        node.new_plugin("first");
        node
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn usual_template(&self) -> Value {
        let tls = self.path("volume/tls");
        json!({
            "cluster": "c1",
            "allowed": "any",
            "log_level": "info",
            "etcd": {
                "endpoints": ["https://10.0.0.1:12379"],
                "server_name": "etcd.metes.svc",
                "ca_file": tls.join("ca.crt"),
                "cert_file": tls.join("tls.crt"),
                "key_file": tls.join("tls.key"),
            },
        })
    }

    fn template(&self, template: &Value) {
        fs::write(self.path("template"), template.to_string()).expect("a file can be written");
    }

    /// A new generation of a projected volume, exchanged as the kubelet does it.
    fn secret(&self, generation: &str) {
        let volume = self.path("volume");
        let tls = volume.join(format!("..{generation}/tls"));
        fs::create_dir_all(&tls).expect("a folder can be made");
        for name in ["ca.crt", "tls.crt", "tls.key"] {
            fs::write(tls.join(name), format!("{name} {generation}")).expect("a file can be written");
        }
        symlink(format!("..{generation}"), volume.join("..new")).expect("a link can be made");
        fs::rename(volume.join("..new"), volume.join("..data")).expect("a link can be exchanged");
        if !volume.join("tls").exists() {
            symlink("..data/tls", volume.join("tls")).expect("a link can be made");
        }
    }

    /// A program that runs, and that is not like another one.
    fn new_plugin(&self, text: &str) {
        self.plugin_does(&format!("{VERSIONS} # {text}"), "exit 0");
    }

    /// A program that does this for each verb, in the shell's words.
    fn plugin_does(&self, version: &str, status: &str) {
        let verbs = format!("VERSION)\n{version}\n;;\nSTATUS)\n{status}\n;;");
        let script =
            format!("#!/bin/sh\nhere={}\ncase $CNI_COMMAND in\n{verbs}\nesac\n", self.path("").display());
        fs::write(self.path("plugin"), script).expect("a file can be written");
    }

    fn run(&self, arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_metes-install"))
            .args(arguments)
            .args(
                arguments
                    .contains(&"install")
                    .then(|| format!("--template={}", self.path("template").display())),
            )
            .args(["--binary".into(), self.path("plugin")])
            .args(["--bin-dir".into(), self.path("bin")])
            .args(["--host-dir".into(), self.path("host")])
            .env_clear()
            .env("NODE_NAME", "worker-1")
            .output()
            .expect("metes-install runs")
    }

    /// A file of the runtime's configuration, in the folder that a pod has mounted.
    fn runtime_file(&self, name: &str, text: &str) {
        let path = self.path("runtime").join(name);
        fs::create_dir_all(path.parent().expect("a file is in a folder")).expect("a folder can be made");
        fs::write(path, text).expect("a file can be written");
    }

    /// The plugin goes to that folder of the node, whose runtime is configured in that file.
    fn install_where(&self, bin_dir: &str, config: &str, verb: &str) -> Output {
        let mounted = self.path("runtime").display().to_string();
        let (bin_dir, config) = (format!("--node-bin-dir={bin_dir}"), format!("--runtime-config={config}"));
        self.run(&["install", verb, &bin_dir, &config, &format!("--runtime-dir={mounted}")])
    }

    #[track_caller]
    fn install(&self) {
        let output = self.run(&["install", "--once"]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    fn refuses(&self) -> String {
        let output = self.run(&["install", "--once"]);
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).expect("a text")
    }

    fn is_ready(&self) -> bool {
        self.run(&["install", "--check"]).status.success()
    }

    fn host_file(&self) -> Value {
        let text = fs::read(self.path("host/metes.conf")).expect("a host file");
        serde_json::from_slice(&text).expect("JSON")
    }

    /// The three files that the host file names, as a run of the plugin would read them.
    fn tls_contents(&self, host_file: &Value) -> Vec<String> {
        let read = |key| fs::read_to_string(host_file["etcd"][key].as_str().expect("a path"));
        ["ca_file", "cert_file", "key_file"]
            .map(|key| read(key).expect("a file that is named is there"))
            .into()
    }

    fn make_host_file_old(&self) {
        let file = fs::File::options().append(true).open(self.path("host/metes.conf")).expect("it is there");
        let long_ago = SystemTime::now() - Duration::from_secs(3600);
        file.set_modified(long_ago).expect("a time can be set");
    }

    fn folders(&self) -> Vec<String> {
        let entries = fs::read_dir(self.path("host")).expect("it is there");
        let name = |entry: fs::DirEntry| entry.file_name().into_string().expect("a text");
        let mut names: Vec<String> =
            entries.map(|entry| name(entry.expect("readable"))).filter(|n| n.starts_with("tls-")).collect();
        names.sort();
        names
    }
}

/// What a plugin does for VERSION.
const VERSIONS: &str = r#"echo '{"cniVersion":"1.1.0","supportedVersions":["1.0.0","1.1.0"]}'"#;

/// Ends what goes on beside a test, also where the test fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("it is there").permissions().mode() & 0o7777
}

#[test]
fn a_node_gets_the_plugin_a_host_file_of_its_own_and_a_private_key() {
    let node = Node::new();
    assert!(!node.is_ready());
    node.install();
    assert!(node.is_ready());
    let host_file = node.host_file();
    assert_eq!(host_file["node_name"], "worker-1");
    assert_eq!(host_file["cluster"], "c1");
    assert_eq!(host_file["log_level"], "info");
    assert_eq!(host_file["etcd"]["server_name"], "etcd.metes.svc");
    assert_eq!(node.tls_contents(&host_file), ["ca.crt one", "tls.crt one", "tls.key one"]);
    assert!(
        host_file["etcd"]["key_file"]
            .as_str()
            .expect("a path")
            .starts_with(node.path("host").to_str().expect("utf-8"))
    );
    assert_eq!(mode(&node.path("host/metes.conf")), 0o600);
    assert_eq!(mode(Path::new(host_file["etcd"]["key_file"].as_str().expect("a path"))), 0o600);
    assert_eq!(mode(&node.path("host/tls-1")), 0o700);
    assert_eq!(mode(&node.path("bin/metes")), 0o755);
    assert_eq!(fs::read(node.path("bin/metes")).ok(), fs::read(node.path("plugin")).ok());
}

#[test]
fn a_second_pass_changes_nothing() {
    let node = Node::new();
    node.install();
    let before = fs::metadata(node.path("bin/metes")).expect("it is there").modified().expect("a time");
    let output = node.run(&["install", "--once"]);
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    assert_eq!(
        fs::metadata(node.path("bin/metes")).expect("it is there").modified().expect("a time"),
        before
    );
    assert_eq!(node.folders(), ["tls-1"]);
}

/// A pod may start at any moment of an upgrade.
#[test]
fn there_is_always_a_plugin_that_runs() {
    let node = Node::new();
    node.install();
    let plugin = node.path("bin/metes");
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let over = Over(&is_over);
        let runs = scope.spawn(|| {
            let mut runs = 0;
            while !is_over.load(Ordering::Relaxed) {
                let status = Command::new(&plugin).status();
                let looks = fs::metadata(&plugin);
                assert!(status.as_ref().is_ok_and(ExitStatus::success), "run {runs}: {status:?}, {looks:?}");
                runs += 1;
            }
            runs
        });
        for i in 0..40 {
            node.new_plugin(&format!("upgrade {i}"));
            node.install();
        }
        drop(over);
        assert!(runs.join().expect("no run failed") > 10);
    });
    assert_eq!(fs::read(&plugin).ok(), fs::read(node.path("plugin")).ok());
}

/// A run reads the host file once, and the files that it names after that.
#[test]
fn a_run_never_sees_files_of_two_generations() {
    let node = Node::new();
    node.install();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let over = Over(&is_over);
        let reader = scope.spawn(|| {
            let mut seen = 0;
            while !is_over.load(Ordering::Relaxed) {
                let contents = node.tls_contents(&node.host_file());
                let generation = |text: &String| text.split(' ').nth(1).map(str::to_owned);
                let first = generation(&contents[0]);
                assert!(contents.iter().all(|text| generation(text) == first), "{contents:?}");
                seen += 1;
            }
            seen
        });
        for i in 0..40 {
            node.secret(&format!("g{i}"));
            node.install();
        }
        drop(over);
        assert!(reader.join().expect("no run failed") > 10);
    });
    assert_eq!(node.tls_contents(&node.host_file())[2], "tls.key g39");
}

/// A plugin is refused: the installed one stays, the pod is not ready, and the log says all of `words`.
#[track_caller]
fn assert_refused(node: &Node, words: &[&str]) {
    let installed = || fs::read(node.path("bin/metes")).ok();
    let before = installed();
    let text = node.refuses();
    assert!(words.iter().all(|word| text.contains(word)), "{words:?}: {text}");
    assert_eq!(installed(), before, "{words:?}");
    assert!(!node.is_ready(), "{words:?}");
    let left = fs::read_dir(node.path("bin")).expect("it is there").count();
    assert_eq!(left, usize::from(before.is_some()), "{words:?}");
}

#[test]
fn a_plugin_that_does_not_run_on_the_node_takes_no_place() {
    let node = Node::new();
    // An ELF file says at its 19th byte for which machine it is.
    let mut elsewhere = fs::read("/bin/true").expect("/bin/true is there");
    elsewhere[18..20].copy_from_slice(&[0xff, 0x7f]);
    let programs: [(&dyn Fn(), &[&str]); 6] = [
        (&|| fs::write(node.path("plugin"), &elsewhere).expect("written"), &["another architecture"]),
        (&|| fs::write(node.path("plugin"), "garbage").expect("written"), &["another architecture"]),
        (&|| fs::write(node.path("plugin"), "#!/nowhere/loader\n").expect("written"), &["a loader"]),
        (&|| node.plugin_does("echo no memory >&2; exit 3", "exit 0"), &["exit status: 3", "no memory"]),
        (&|| node.plugin_does("echo hello", "exit 0"), &["lists no versions", "hello"]),
        (&|| node.plugin_does(r#"echo '{"supportedVersions":[]}'"#, "exit 0"), &["lists no versions"]),
    ];
    for present in ["none", "one that runs"] {
        for (program, words) in &programs {
            program();
            assert_refused(&node, &[&["does not run here"], *words].concat());
        }
        node.new_plugin(present);
        node.install();
        assert!(node.is_ready());
    }
    // Certificates are renewed all the same.
    programs[0].0();
    node.secret("two");
    assert_refused(&node, &["does not run here", "new certificates in"]);
    assert_eq!(node.tls_contents(&node.host_file())[0], "ca.crt two");
}

/// What the shell does for a STATUS that fails as metes' does.
const FAILS: &str = r#"echo '{"code":50,"msg":"no such key","details":"name it"}'; exit 1"#;

#[test]
fn a_plugin_whose_status_fails_takes_the_place_of_none_whose_status_succeeds() {
    let succeeds = "exit 0";
    // The first STATUS fails and the next one does not, or the reverse: an outage ends, or begins.
    let at_first = format!("test -e $here/asked || {{ : >$here/asked; {FAILS}; }}");
    let later = format!("test ! -e $here/asked && : >$here/asked || {{ {FAILS}; }}");
    for (old, new, is_refused) in [
        (succeeds, succeeds, false),
        (FAILS, succeeds, false),
        (FAILS, FAILS, false),
        (succeeds, FAILS, true),
        (succeeds, &at_first, false),
        (&at_first, FAILS, false),
        (&later, FAILS, false),
    ] {
        let node = Node::new();
        node.plugin_does(&format!("{VERSIONS} # old"), old);
        node.install();
        let _ = fs::remove_file(node.path("asked"));
        node.plugin_does(&format!("{VERSIONS} # new"), new);
        if is_refused {
            assert_refused(&node, &["its STATUS fails", "no such key; name it", "the image before"]);
            continue;
        }
        let output = node.run(&["install", "--once"]);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && node.is_ready(), "{old} {new}: {text}");
        assert_eq!(text.contains("though its STATUS ends with"), new != succeeds, "{old} {new}: {text}");
    }
    // There is none yet.
    let node = Node::new();
    node.plugin_does(VERSIONS, FAILS);
    node.install();
    assert!(node.is_ready());
}

#[test]
fn a_plugin_that_hangs_is_killed_with_all_that_it_has_started() {
    let node = Node::new();
    node.plugin_does("/bin/sleep 600 & echo $! >$here/sleeps; wait", "exit 0");
    assert_refused(&node, &["does not run here", "not ended within 10 s"]);
    let pid = fs::read_to_string(node.path("sleeps")).expect("it has begun");
    let state = fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    // Nobody may have waited for it yet.
    assert!(state.is_empty() || state.contains(") Z "), "{state}");
}

#[test]
fn both_plugins_are_asked_as_the_runtime_asks_with_the_host_file_in_place() {
    let node = Node::new();
    let noted = r#"read -r config; echo "$0 $CNI_COMMAND $CNI_PATH $METES_CONF $config" >>$here/asked"#;
    node.plugin_does(VERSIONS, noted);
    node.install();
    fs::remove_file(node.path("asked")).expect("it was asked");
    node.plugin_does(VERSIONS, &format!("{noted}; {FAILS}"));
    let mut template = node.usual_template();
    template["log_level"] = json!("debug");
    node.template(&template);
    node.refuses();
    assert_eq!(node.host_file()["log_level"], "debug", "the new one");
    let asked = fs::read_to_string(node.path("asked")).expect("they were asked");
    let places = [".metes-install-metes", "metes", ".metes-install-metes", "metes", ".metes-install-metes"];
    let lines: Vec<&str> = asked.lines().collect();
    assert_eq!(lines.len(), places.len(), "{asked}");
    for (line, place) in lines.iter().zip(places) {
        let bin = node.path("bin").display().to_string();
        let start = format!("{bin}/{place} STATUS {bin} {} ", node.path("host/metes.conf").display());
        let config = line.strip_prefix(&start).unwrap_or_else(|| panic!("{start}: {line}"));
        let config: Value = serde_json::from_str(config).expect("JSON");
        assert_eq!((&config["cniVersion"], &config["ipam"]["type"]), (&json!("1.1.0"), &json!("metes")));
    }
}

/// The kubelet exchanges a volume's files whenever it wants to, also between two that a pass reads.
#[test]
fn files_that_are_exchanged_during_a_pass_are_those_of_one_generation() {
    let node = Node::new();
    // A pass stands still at the second file until somebody writes it.
    let slow = node.path("volume/..one/tls/tls.crt");
    fs::remove_file(&slow).expect("it is there");
    assert!(Command::new("mkfifo").arg(&slow).status().expect("mkfifo runs").success());
    thread::scope(|scope| {
        let pass = scope.spawn(|| node.run(&["install", "--once"]));
        // Opened when the pass has opened it to read.
        let mut writer = open_read_fifo(&slow);
        node.secret("two");
        writer.write_all(b"tls.crt one").expect("it can be written");
        drop(writer);
        let output = pass.join().expect("no panic");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    });
    assert_eq!(node.tls_contents(&node.host_file()), ["ca.crt one", "tls.crt one", "tls.key one"]);
    node.install();
    assert_eq!(node.tls_contents(&node.host_file()), ["ca.crt two", "tls.crt two", "tls.key two"]);
}

#[test]
fn an_older_key_goes_when_no_run_can_need_it_any_more() {
    let node = Node::new();
    node.install();
    node.secret("two");
    assert!(!node.is_ready());
    node.install();
    assert_eq!(node.folders(), ["tls-1", "tls-2"]);
    node.make_host_file_old();
    node.install();
    assert_eq!(node.folders(), ["tls-2"]);
    assert_eq!(node.tls_contents(&node.host_file())[0], "ca.crt two");
    assert!(node.is_ready());
}

/// What a killed installer leaves is neither used nor in the way.
#[test]
fn it_goes_on_after_it_was_killed() {
    let node = Node::new();
    fs::create_dir_all(node.path("host/tls-7")).expect("a folder can be made");
    fs::write(node.path("host/tls-7/ca.crt"), "half").expect("a file can be written");
    fs::write(node.path("host/.metes-install-metes.conf"), "half").expect("a file can be written");
    fs::write(node.path("bin/.metes-install-metes"), "half").expect("a file can be written");
    node.install();
    assert_eq!(node.tls_contents(&node.host_file())[0], "ca.crt one");
    assert!(node.is_ready());
    node.make_host_file_old();
    node.install();
    assert_eq!(node.folders(), ["tls-8"]);
    let left: Vec<_> = fs::read_dir(node.path("bin")).expect("it is there").flatten().collect();
    assert_eq!(left.len(), 1, "{left:?}");
}

#[test]
fn what_cannot_be_right_leaves_the_node_as_it_is() {
    let node = Node::new();
    node.install();
    let before = node.host_file();
    let mut template = node.usual_template();
    template["cluster"] = json!("change-me");
    node.template(&template);
    assert!(node.refuses().contains("`cluster` is to be edited"));
    template["cluster"] = Value::Null;
    node.template(&template);
    assert!(node.refuses().contains("`cluster` is missing"));
    let rows = [
        (json!("change-me"), Value::Null, "`allowed` is to be edited"),
        (Value::Null, Value::Null, "`allowed` is missing"),
        (Value::Null, json!(false), "`allowed` is missing"),
        (json!("Any"), Value::Null, "`allowed` must be"),
        (json!(["10.0.0.0/8"]), Value::Null, "`allowed` must be"),
    ];
    for (allowed, pools_only, expected) in rows {
        let mut template = node.usual_template();
        (template["allowed"], template["pools_only"]) = (allowed, pools_only);
        node.template(&template);
        let text = node.refuses();
        let words = [expected, "metes validate --print-allowed", "\"any\""];
        assert!(words.iter().all(|word| text.contains(word)), "{expected}: {text}");
    }
    fs::write(node.path("template"), "{\"cluster\": \"secret").expect("a file can be written");
    let text = node.refuses();
    assert!(text.contains("is not JSON") && !text.contains("secret"), "{text}");
    node.template(&node.usual_template());
    fs::write(node.path("volume/tls/tls.key"), "").expect("a file can be written");
    assert!(node.refuses().contains("tls.key is empty"));
    fs::remove_file(node.path("volume/tls/tls.key")).expect("it is there");
    assert!(node.refuses().contains("cannot read"));
    assert_eq!(node.host_file(), before);
    assert_eq!(node.tls_contents(&before)[2], "tls.key one");
}

#[test]
fn an_etcd_without_certificates_needs_none() {
    let node = Node::new();
    let etcd = json!({"endpoints": ["http://127.0.0.1:2379"]});
    node.template(&json!({"cluster": "c1", "pools_only": true, "etcd": etcd}));
    node.install();
    let expected = json!({"cluster": "c1", "pools_only": true, "etcd": etcd, "node_name": "worker-1"});
    assert_eq!(node.host_file(), expected);
    assert!(node.is_ready());
}

const CONTAINERD: &str = "/etc/containerd/config.toml";
const K3S: &str = "/var/lib/rancher/k3s/agent/etc/containerd/config.toml";
const CRIO: &str = "/etc/crio/crio.conf";

/// Names and texts.
type Files = &'static [(&'static str, &'static str)];

/// Configurations as nodes have them: where the file is, what is in its folder, where the runtime looks.
const RUNTIMES: [(&str, Files, &[&str]); 6] = [
    // containerd 1.7 with a drop-in.
    (
        CONTAINERD,
        &[
            (
                "config.toml",
                r#"version = 2
imports = ["/etc/containerd/conf.d/*.toml"]
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "registry.k8s.io/pause:3.10"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/opt/cni/bin"
    conf_dir = "/etc/cni/net.d""#,
            ),
            (
                "conf.d/50-plugins.toml",
                r#"version = 2
[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "/usr/lib/cni""#,
            ),
            ("conf.d/60-saved.toml.orig", "not TOML"),
        ],
        &["/usr/lib/cni"],
    ),
    // containerd 2.1, with the keys of `containerd config default`.
    (
        CONTAINERD,
        &[(
            "config.toml",
            r#"version = 3
imports = []
[plugins.'io.containerd.cri.v1.runtime']
  enable_selinux = false
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dir = ''
    bin_dirs = ['/home/kubernetes/bin', '/opt/cni/bin']
    conf_dir = '/etc/cni/net.d'"#,
        )],
        &["/home/kubernetes/bin", "/opt/cni/bin"],
    ),
    // One that leaves it at the default.
    (
        CONTAINERD,
        &[(
            "config.toml",
            r#"version = 2
[plugins."io.containerd.grpc.v1.cri".containerd]
  discard_unpacked_layers = true"#,
        )],
        &["/opt/cni/bin"],
    ),
    (
        K3S,
        &[(
            "config.toml",
            r#"# File generated by k3s. DO NOT EDIT. Use config-v3.toml.tmpl instead.
version = 3
imports = ["/var/lib/rancher/k3s/agent/etc/containerd/config-v3.toml.d/*.toml"]
root = "/var/lib/rancher/k3s/agent/containerd"
[plugins.'io.containerd.cri.v1.runtime'.cni]
  bin_dirs = ["/var/lib/rancher/k3s/data/cni"]
  conf_dir = "/var/lib/rancher/k3s/agent/etc/cni/net.d""#,
        )],
        &["/var/lib/rancher/k3s/data/cni"],
    ),
    // OpenShift: no crio.conf, and a file whose name has no ending.
    (
        CRIO,
        &[(
            "crio.conf.d/00-default",
            r#"[crio.runtime]
selinux = true
[crio.network]
network_dir = "/etc/kubernetes/cni/net.d/"
plugin_dirs = [
    "/var/lib/cni/bin",
    "/usr/libexec/cni",
]"#,
        )],
        &["/var/lib/cni/bin", "/usr/libexec/cni"],
    ),
    (
        CRIO,
        &[
            ("crio.conf", "[crio]\n[crio.network]\nplugin_dirs = [\"/opt/cni/bin/\"]"),
            ("crio.conf.d/10-crun.conf", "[crio.runtime]\ndefault_runtime = \"crun\""),
        ],
        &["/opt/cni/bin"],
    ),
];

#[test]
fn the_plugin_goes_only_where_the_runtime_looks() {
    for (config, files, folders) in RUNTIMES {
        let node = Node::new();
        files.iter().for_each(|(name, text)| node.runtime_file(name, text));
        for verb in ["--once", "--check"] {
            let refused = node.install_where("/somewhere/else", config, verb);
            let text = String::from_utf8_lossy(&refused.stderr);
            assert_eq!(refused.status.code(), Some(1), "{text}");
            let said = format!(
                "looks for plugins in {}, not in /somewhere/else, says {config}",
                folders.join(" and ")
            );
            assert!(text.contains(&said) && text.contains("overlay"), "{text}");
        }
        let is_empty = |name| fs::read_dir(node.path(name)).is_ok_and(|mut folder| folder.next().is_none());
        assert!(is_empty("bin") && !node.path("host").exists(), "nothing is written");
        for folder in folders {
            let done = node.install_where(folder, config, "--once");
            let text = String::from_utf8_lossy(&done.stderr);
            assert!(done.status.success() && !text.contains("not known"), "{text}");
            assert!(node.install_where(folder, config, "--check").status.success());
        }
    }
}

#[test]
fn it_says_if_it_cannot_tell_where_the_runtime_looks() {
    for (config, text, why) in [
        (CONTAINERD, None, "/etc/containerd/config.toml cannot be read: No such file"),
        (CRIO, None, "there is neither /etc/crio/crio.conf nor a file in /etc/crio/crio.conf.d"),
        (CONTAINERD, Some("version = 2\npassword = secret"), "config.toml is not TOML at line 2"),
        (CONTAINERD, Some("imports = ['/run/x.toml']"), "/run/x.toml is outside of /etc/containerd"),
        (CONTAINERD, Some("disabled_plugins = ['cri']"), "disables the plugin that serves the kubelet"),
    ] {
        let node = Node::new();
        if let Some(text) = text {
            node.runtime_file("config.toml", text);
        }
        let output = node.install_where("/opt/cni/bin", config, "--once");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success() && said.contains("it is not known if") && said.contains(why),
            "{said}"
        );
        assert!(!said.contains("secret"), "{said}");
        assert!(node.install_where("/opt/cni/bin", config, "--check").status.success());
    }
}

#[test]
fn a_folder_for_plugins_that_is_missing_is_not_made() {
    let node = Node::new();
    fs::remove_dir(node.path("bin")).expect("it is there");
    let text = node.refuses();
    assert!(text.contains(&format!("{} is not a folder of this node", node.path("bin").display())), "{text}");
    assert!(!node.path("bin").exists() && !node.path("host").exists() && !node.is_ready());
}

#[test]
fn a_plugin_that_nobody_can_ask_about_is_not_removed() {
    let node = Node::new();
    node.install();
    fs::remove_file(node.path("host/metes.conf")).expect("it is there");
    let state = ["uninstall", "--state-dir", "/nonexistent"];
    let output = node.run(&state);
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && text.contains("nobody can say what this node holds"), "{text}");
    assert!(node.path("bin/metes").exists());
    fs::remove_file(node.path("bin/metes")).expect("it is there");
    assert!(node.run(&state).status.success());
    assert!(node.run(&["uninstall", "--check"]).status.success());
}

#[test]
fn without_a_verb_it_says_what_there_is() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let run = |arguments: &[&str]| {
        let mut program = Command::new(env!("CARGO_BIN_EXE_metes-install"));
        // It has what it would need to install.
        program.args(arguments).env("NODE_NAME", "worker-1").current_dir(folder.path());
        program.output().expect("metes-install runs")
    };
    let bare = run(&[]);
    let (help, of_install) = (run(&["--help"]), run(&["install", "--help"]));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert_eq!((bare.status.code(), text(&bare.stdout).as_str()), (Some(2), ""));
    for (words, shown) in [
        ("Usage: metes-install <COMMAND>", text(&bare.stderr)),
        ("etcd-restore", text(&bare.stderr)),
        ("Usage: metes-install <COMMAND>", text(&help.stdout)),
        ("--template <FILE>", text(&of_install.stdout)),
        ("[env: NODE_NAME=", text(&of_install.stdout)),
    ] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    assert!(help.status.success() && of_install.status.success());
    let misspelt = run(&["instal"]);
    assert_eq!(misspelt.status.code(), Some(2));
    assert!(
        text(&misspelt.stderr).contains("unrecognized subcommand 'instal'"),
        "{}",
        text(&misspelt.stderr)
    );
}
