//! The secrets that must not leave a node, and the plants that must not reach one: secrets in output and in core files,
//! links in the way of files to be written, and input without an end.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use support::{
    Cluster, Etcd, KubeApi, Node, Outcome, Run, in_parallel, metes, network, network_as, report, wait_for,
};

/// Planted wherever a secret can stand.
const SECRET: &str = "s3cr3t-Zq7xPLANTED";
const SOON: Duration = Duration::from_secs(20);

fn range() -> Value {
    network(json!({"range": "10.0.0.0/24"}))
}

fn expect(row: &str, is_right: bool, found: impl std::fmt::Display) -> Option<String> {
    (!is_right).then(|| format!("{row}: {found}"))
}

fn write(path: impl AsRef<Path>, text: impl AsRef<[u8]>, mode: u32) -> PathBuf {
    let path = path.as_ref().to_owned();
    fs::write(&path, text).expect("a file can be written");
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("a mode can be set");
    path
}

fn read(path: impl AsRef<Path>) -> Vec<u8> {
    fs::read(path).expect("a file can be read")
}

fn contains(bytes: &[u8], word: &str) -> bool {
    bytes.windows(word.len()).any(|window| window == word.as_bytes())
}

/// All files below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let paths = entries.map(|entry| entry.expect("an entry can be read").path());
    paths.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

// ---- what is said

/// Configurations that fail, and some that do not, each with secrets in it and around it.
struct Leaks<'a> {
    cluster: &'a Cluster,
    /// A PEM key whose lines are secrets as well.
    key_lines: Vec<String>,
}

impl Leaks<'_> {
    /// The secrets that a run has told, in its output, its log, its spool and its mark, or in the store.
    fn judge(&self, row: &str, outcome: &Outcome, log: &Path) -> Option<String> {
        let secrets = || self.key_lines.iter().map(String::as_str).chain([SECRET]);
        let leaks_in = |bytes: &[u8]| secrets().find(|secret| contains(bytes, secret)).map(str::to_owned);
        let said = leaks_in(outcome.stdout.as_bytes()).or_else(|| leaks_in(outcome.stderr.as_bytes()));
        let logged = fs::read(log).ok().and_then(|log| leaks_in(&log));
        let kept = files(self.cluster.folder())
            .into_iter()
            .filter(|file| file.to_string_lossy().contains("/spool/"))
            // A run of another row may have moved one meanwhile.
            .find_map(|file| leaks_in(&fs::read(file).ok()?));
        let stored = self.cluster.store().entries("").into_iter();
        let stored =
            stored.into_iter().find_map(|(key, value)| leaks_in(key.as_bytes()).or(leaks_in(&value)));
        let leak = [("said", said), ("logged", logged), ("kept", kept), ("stored", stored)];
        let leaks: Vec<_> = leak.into_iter().filter_map(|(how, leak)| Some((how, leak?))).collect();
        expect(row, leaks.is_empty(), format!("{leaks:?} by {outcome}"))
    }
}

/// With secrets in variables that programs like to print.
fn with_environment(run: Run) -> Run {
    ["AWS_SECRET_ACCESS_KEY", "ETCDCTL_PASSWORD", "METES_PASSWORD", "RUST_BACKTRACE_TOKEN", "HTTP_PROXY"]
        .into_iter()
        .fold(run, |run, name| run.env(name, SECRET))
        .env("RUST_BACKTRACE", "full")
        .env("RUST_LOG", "trace")
}

#[test]
fn nothing_says_a_secret() {
    let etcd = Etcd::start_mtls();
    let cluster = Cluster::on(&etcd);
    let folder = cluster.folder().to_owned();
    let tls = etcd.tls().expect("it has TLS");
    let key_text = String::from_utf8(read(tls.client_key())).expect("PEM is text");
    let lines = key_text.lines().filter(|line| !line.starts_with("-----") && line.len() > 16);
    let leaks = Leaks { cluster: &cluster, key_lines: lines.map(str::to_owned).collect() };
    assert!(!leaks.key_lines.is_empty(), "a key has lines");

    let half_key = key_text.replace("-----END", "-----MIDDLE");
    let bad_pem = format!("-----BEGIN PRIVATE KEY-----\n{SECRET}\n-----END PRIVATE KEY-----\n");
    let password = write(folder.join("password"), SECRET, 0o600);
    let file = |name: &str, text: &str, mode: u32| write(folder.join(name), text, mode);
    let etcd_keys = |keys: Value| json!({"etcd": keys});
    let rows: Vec<(&str, Value)> = vec![
        ("all is well", json!({})),
        (
            "a password that etcd does not want",
            etcd_keys(json!({"username": "u", "password_file": password})),
        ),
        ("a password in the host file", json!({"etcd_username": "u", "etcd_password": SECRET})),
        ("a password without a user", json!({"etcd_password": SECRET})),
        ("a user that is one", etcd_keys(json!({"username": SECRET}))),
        (
            "an open password",
            etcd_keys(json!({"username": "u", "password_file": file("open", SECRET, 0o644)})),
        ),
        (
            "a password that is no text",
            etcd_keys(json!({"username": "u", "password_file":
                write(folder.join("bytes"), [SECRET.as_bytes(), b"\xff\xfe"].concat(), 0o600)})),
        ),
        ("an open key", etcd_keys(json!({"key_file": file("open.key", &key_text, 0o644)}))),
        ("half a key", etcd_keys(json!({"key_file": file("half.key", &half_key, 0o600)}))),
        ("a key that is no PEM", etcd_keys(json!({"key_file": file("bad.key", &bad_pem, 0o600)}))),
        ("a key that is a secret", etcd_keys(json!({"key_file": file("raw.key", SECRET, 0o600)}))),
        ("a key for the certificate", etcd_keys(json!({"cert_file": tls.client_key()}))),
        ("a key for the authority", etcd_keys(json!({"ca_file": tls.client_key()}))),
        (
            "the keys the wrong way round",
            etcd_keys(json!({"cert_file": tls.client_key(), "key_file":
            file("cert.key", &String::from_utf8_lossy(&read(tls.client_cert())), 0o600)})),
        ),
        ("another's key", etcd_keys(json!({"key_file": tls.server_key()}))),
        ("another authority", etcd_keys(json!({"ca_file": tls.client_cert()}))),
        (
            "an endpoint with a password",
            etcd_keys(json!({"endpoints": [format!("https://u:{SECRET}@127.0.0.1:1")]})),
        ),
        ("an endpoint that is a secret", etcd_keys(json!({"endpoints": [SECRET]}))),
        ("a prefix that is a secret", etcd_keys(json!({"prefix": format!("{SECRET} {SECRET}")}))),
        ("a key that nobody knows", json!({"password": SECRET, "etcd": {"passwd": SECRET}})),
        ("values of other types", json!({"allowed": SECRET})),
        ("a cluster that is a secret", json!({"cluster": {"token": SECRET}})),
        ("nobody listens", etcd_keys(json!({"endpoints": ["https://127.0.0.1:1"]}))),
    ];
    let texts = [
        ("no JSON", format!("{{\"etcd_password\": \"{SECRET}")),
        ("JSON of another kind", format!("\"{SECRET}\"")),
        ("a key for the host file", key_text.clone()),
    ];
    let node = |i: usize| {
        let name = format!("node-{i}");
        let log = folder.join(format!("{name}.log"));
        (cluster.node_with(&name, json!({"log_file": log, "log_level": "debug"})), log)
    };
    let mut scenes: Vec<(&str, Node, PathBuf)> = Vec::new();
    for (row, keys) in rows {
        let (node, log) = node(scenes.len());
        node.change_host_file(keys);
        scenes.push((row, node, log));
    }
    for (row, text) in texts {
        let (node, log) = node(scenes.len());
        node.write_host_file(text);
        scenes.push((row, node, log));
    }
    // Most of the time is spent waiting for those that do not answer.
    let mut failures =
        in_parallel(8, scenes, |(row, node, log)| every_verb(&leaks, row, &node, &log)).concat();
    let (node, log) = node(99);
    node.change_host_file(json!({"resolv_conf": [tls.client_key(), password]}));
    for (row, ipam) in [
        ("a password in a NAD", json!({"range": "10.0.0.0/24", "etcd_password": SECRET})),
        ("a token in a NAD", json!({"range": "10.0.0.0/24", "kubernetes": {"token": SECRET}})),
        ("an unknown key of a NAD", json!({"range": "10.0.0.0/24", "flavour": [SECRET]})),
        ("a slip of a key of a NAD", json!({"range": "10.0.0.0/24", "exlude": [SECRET]})),
        ("a key of a NAD twice", json!({"range": SECRET, "Range": SECRET})),
        ("a key as resolvConf", json!({"subnet": "10.0.0.0/24", "resolvConf": tls.client_key()})),
        ("a secret as resolvConf", json!({"subnet": "10.0.0.0/24", "resolvConf": password})),
    ] {
        let add = with_environment(node.add("a").config(&network(ipam.clone()))).run();
        failures.push(leaks.judge(row, &add, &log));
        node.del("a").config(&network(ipam)).run();
    }
    report(failures);
    cluster.store().delete_prefix("");
    cluster.assert_clean();
}

/// The plugin's verbs, those of people, and a pass of the reconciler.
fn every_verb(leaks: &Leaks<'_>, row: &str, node: &Node, log: &Path) -> Vec<Option<String>> {
    let status = network_as("1.1.0", "net", json!({"range": "10.0.0.0/24"}));
    let plugin = [
        ("ADD", node.add("a").config(&range())),
        ("STATUS", node.status().config(&status)),
        ("DEL", node.del("a").config(&range())),
    ];
    let mut failures: Vec<_> = plugin
        .into_iter()
        .map(|(verb, run)| leaks.judge(&format!("{row}, {verb}"), &with_environment(run).run(), log))
        .collect();
    let cli = Run::new(metes()).env("METES_CONF", node.host_file()).arguments(["list"]);
    failures.push(leaks.judge(&format!("{row}, list"), &with_environment(cli).run(), log));
    let pass = leaks.cluster.reconciler(KubeApi::shared()).config(node.host_file());
    let pass = pass.args(["--timeout", "3s"]).env("ETCDCTL_PASSWORD", SECRET).env("RUST_LOG", "trace").run();
    failures.push(leaks.judge(&format!("{row}, a pass"), &pass, log));
    failures
}

// ---- core files

/// A run that waits for an etcd which does not answer, with its keys in memory, where core files would be made.
fn waiting_run(cluster: &Cluster, folder: &Path, program: &Path, arguments: &[&str]) -> std::process::Child {
    let node = cluster.node("a");
    let words: Vec<String> = arguments.iter().map(|word| format!("'{word}'")).collect();
    // A shell lets its programs in the background ignore SIGQUIT, and so would a program that this test starts.
    let program = format!("env --default-signal '{}'", program.display());
    let command = format!("ulimit -c unlimited && exec {program} {}", words.join(" "));
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(command).current_dir(folder).stdout(Stdio::null()).stderr(Stdio::null());
    if arguments.is_empty() {
        let netns = "/run/netns/made-up";
        let variables = [("CNI_COMMAND", "ADD"), ("CNI_CONTAINERID", "c1"), ("CNI_IFNAME", "eth0")];
        shell.envs(variables).env("CNI_NETNS", netns).env("CNI_PATH", folder);
    }
    shell.env("METES_CONF", node.host_file());
    let config = folder.join("config.json");
    fs::write(&config, range().to_string()).expect("a file can be written");
    shell.stdin(File::open(config).expect("it is there")).spawn().expect("sh runs")
}

/// Until it has ended: the runtime of Rust lets the first SIGSEGV and SIGBUS that no fault has caused pass.
fn end_by(child: &mut std::process::Child, signal: Signal) -> std::process::ExitStatus {
    let pid = Pid::from_child(child);
    wait_for("a process to end by a signal", SOON, || {
        kill_process(pid, signal).expect("an own child that was not waited for can be signalled");
        let ended = child.try_wait().expect("an own child can be asked");
        ended.ok_or_else(|| format!("{signal:?} does not end it"))
    })
}

fn core_limit(child: &std::process::Child) -> String {
    let limits = fs::read_to_string(format!("/proc/{}/limits", child.id())).unwrap_or_default();
    limits.lines().find(|line| line.starts_with("Max core file size")).unwrap_or_default().to_owned()
}

#[test]
fn no_core_file_holds_a_key() {
    let etcd = Etcd::start_mtls();
    let cluster = Cluster::on(&etcd);
    let folder = cluster.folder().join("cores");
    fs::create_dir(&folder).expect("a folder can be made");
    let host_file = cluster.node("a").host_file();
    let host_file = host_file.to_str().expect("a path is a text");
    let kubeconfig = {
        use support::Reachable;
        KubeApi::shared().access().kubeconfig(&folder)
    };
    let kubeconfig = kubeconfig.to_str().expect("a path is a text");
    // The core limit here of a process that does nothing about it.
    let mut other = waiting_run(&cluster, &folder, Path::new("/bin/sleep"), &["60"]);
    wait_for("sleep to run", SOON, || match core_limit(&other) {
        limit if limit.contains("unlimited") => Ok(()),
        limit => Err(limit),
    });
    let dumps_here = end_by(&mut other, Signal::ABORT).core_dumped();
    remove_cores(&folder);

    etcd.stop();
    let reconciler = support::reconciler();
    for (row, program, arguments) in [
        ("the plugin", metes(), vec![]),
        ("metes list", metes(), vec!["list", "--config", host_file]),
        ("the reconciler", reconciler, vec!["--config", host_file, "--kubeconfig", kubeconfig]),
    ] {
        for signal in [Signal::ABORT, Signal::SEGV, Signal::QUIT, Signal::BUS] {
            let mut child = waiting_run(&cluster, &folder, &program, &arguments);
            wait_for("the limit to be set", SOON, || match core_limit(&child) {
                limit if limit.split_whitespace().filter(|word| *word == "0").count() == 2 => Ok(()),
                limit => Err(format!("{row}: {limit}")),
            });
            let status = end_by(&mut child, signal);
            assert_eq!(status.signal(), Some(signal.as_raw()), "{row}: {status}");
            assert!(!status.core_dumped(), "{row} left a core behind by {signal:?}");
            assert_eq!(cores(&folder), Vec::<PathBuf>::new(), "{row}, {signal:?}; dumps here: {dumps_here}");
        }
    }
    etcd.resume();
    cluster.assert_clean();
}

/// Files that the kernel makes in a process' folder, whatever core_pattern calls them.
fn cores(folder: &Path) -> Vec<PathBuf> {
    let is_own = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        name == "config.json"
            || name.ends_with(".conf")
            || name.contains("kubeconfig")
            || name.ends_with(".json")
    };
    files(folder)
        .into_iter()
        .filter(|path| !is_own(path))
        .filter(|path| {
            let mut magic = [0; 4];
            File::open(path).and_then(|mut file| file.read_exact(&mut magic)).is_ok() && &magic == b"\x7fELF"
        })
        .collect()
}

fn remove_cores(folder: &Path) {
    cores(folder).iter().for_each(|core| fs::remove_file(core).expect("a file can be removed"));
}

// ---- what is planted

/// The folder for a node's state that a run made; there is one for each prefix.
fn state_folder(node: &Node) -> PathBuf {
    let mut entries = fs::read_dir(node.spool()).expect("a run has made it");
    entries.next().expect("a run has made it").expect("it can be read").path()
}

/// A file that nobody may touch, and its state.
struct Victim {
    path: PathBuf,
    before: (Vec<u8>, u32, i64, u64),
}

impl Victim {
    fn new(folder: &Path, text: &str) -> Self {
        let path = write(folder.join("victim"), text, 0o640);
        let before = Self::state(&path);
        Self { path, before }
    }

    fn state(path: &Path) -> (Vec<u8>, u32, i64, u64) {
        let meta = fs::metadata(path).expect("the victim is there");
        (read(path), meta.mode(), meta.mtime_nsec(), meta.ino())
    }

    fn judge(&self, row: &str, outcome: &Outcome) -> Option<String> {
        let after = Self::state(&self.path);
        let text = String::from_utf8_lossy(&after.0).into_owned();
        expect(row, after == self.before, format!("written to or changed, now {text:?}: {outcome}"))
    }
}

/// Links in the place of files that are written: the mark, a spooled DEL, its temporary file, the log.
#[test]
fn nothing_is_written_through_a_link() {
    let cluster = Cluster::new();
    let node = cluster.node("a");
    node.add("c1").config(&range()).run().ok();
    let state = state_folder(&node);
    let victim = Victim::new(cluster.folder(), "precious");
    let dead = json!({"etcd": {"endpoints": ["http://127.0.0.1:1"]}});
    let alive = json!({"etcd": {"endpoints": [Etcd::shared().endpoint()]}});
    let mut failures = Vec::new();

    let mark = state.join("mark");
    for hard in [false, true] {
        fs::remove_file(&mark).expect("a run has left a mark");
        link(&victim.path, &mark, hard);
        let add = node.add("c2").config(&range()).run();
        failures.push(victim.judge(&format!("the mark, hard: {hard}"), &add));
        failures.push(expect("the mark", add.succeeded(), &add));
    }
    // One that has another name is replaced, so that the node keeps its mark.
    failures.push(expect("a mark with another name", contains(&read(&mark), "revision"), mark.display()));
    fs::remove_file(&mark).expect("a mark is there");

    // A spooled DEL has a name that can be known.
    node.change_host_file(dead.clone());
    node.del("c1").config(&range()).run().silent();
    let spooled = files(&state.join("spool"));
    assert_eq!(spooled.len(), 1, "{spooled:?}");
    fs::remove_file(&spooled[0]).expect("it can be removed");
    fs::remove_dir(state.join("spool")).expect("it is empty");
    symlink(cluster.folder(), state.join("spool")).expect("a link can be made");
    let through = node.del("c1").config(&range()).run();
    failures.push(victim.judge("a folder of root's behind a link of root's", &through));
    fs::remove_file(state.join("spool")).expect("the link is there");
    for entry in
        files(cluster.folder()).into_iter().filter(|file| file.extension().is_some_and(|e| e == "del"))
    {
        fs::remove_file(entry).expect("it can be removed");
    }

    let log = cluster.folder().join("log");
    for hard in [false, true] {
        link(&victim.path, &log, hard);
        node.change_host_file(json!({"log_file": log, "log_level": "debug"}));
        node.change_host_file(alive.clone());
        let add = node.add("c3").config(&range()).run();
        failures.push(victim.judge(&format!("the log, hard: {hard}"), &add));
        failures.push(expect("the log", add.succeeded() && add.stderr.contains("log"), &add));
        fs::remove_file(&log).expect("the link is there");
    }
    report(failures);
    node.del("c1").config(&range()).run().silent();
    cluster.assert_clean();
}

fn link(target: &Path, link: &Path, hard: bool) {
    if hard { fs::hard_link(target, link) } else { symlink(target, link) }.expect("a link can be made");
}

/// Pipes and devices in their place do not hold a run up.
#[test]
fn what_is_no_file_is_not_waited_for() {
    let cluster = Cluster::new();
    let node = cluster.node("a");
    node.add("c1").config(&range()).run().ok();
    let pipe = |path: &Path| {
        let made = Command::new("mkfifo").arg(path).status().expect("mkfifo runs");
        assert!(made.success(), "mkfifo {}", path.display());
    };
    let mark = state_folder(&node).join("mark");
    fs::remove_file(&mark).expect("a run has left a mark");
    pipe(&mark);
    let log = cluster.folder().join("log");
    pipe(&log);
    node.change_host_file(json!({"log_file": log}));
    let add = node.add("c2").config(&range()).run();
    assert!(add.succeeded() && add.elapsed < Duration::from_secs(5), "{add}");
    node.change_host_file(json!({"log_file": "/dev/null"}));
    node.add("c3").config(&range()).run().ok();
    for (row, key) in [("ca_file", "ca_file"), ("key_file", "key_file"), ("password_file", "password_file")] {
        let mut keys = json!({"endpoints": ["https://127.0.0.1:1"], "ca_file": "/dev/null"});
        if key == "key_file" {
            keys["cert_file"] = json!("/dev/null");
        }
        if key == "password_file" {
            keys["username"] = json!("u");
        }
        keys[key] = json!(log);
        node.change_host_file(json!({"etcd": keys}));
        let refused = node.add("c4").config(&range()).run();
        assert!(
            refused.error_code() == Some(7) && refused.elapsed < Duration::from_secs(5),
            "{row}: {refused}"
        );
    }
    cluster.assert_clean();
}

/// A plant that stands in the way, and the function that puts it there: of a folder that it may lead to, at a path.
type Plant = (&'static str, fn(&Path, &Path));

/// A spool in a folder where everybody writes, and the files that another user put there before: `nobody`, here.
#[test]
fn a_folder_that_another_planted_is_not_used() {
    const NOBODY: u32 = 65_534;
    let cluster = Cluster::new();
    let open = cluster.folder().join("open");
    fs::create_dir(&open).expect("a folder can be made");
    fs::set_permissions(&open, fs::Permissions::from_mode(0o1777)).expect("a mode can be set");
    let target = cluster.folder().join("target");
    let plants: [Plant; 6] = [
        ("a folder of another's", |_, at| {
            fs::create_dir(at).expect("a folder can be made");
            chown(at, Some(NOBODY), Some(NOBODY)).expect("root can give it away");
        }),
        ("a link of another's to a folder of root's", |target, at| {
            symlink(target, at).expect("a link can be made");
            std::os::unix::fs::lchown(at, Some(NOBODY), Some(NOBODY)).expect("root can give it away");
        }),
        ("a link of another's to nowhere", |target, at| {
            symlink(target.join("nowhere"), at).expect("a link can be made");
            std::os::unix::fs::lchown(at, Some(NOBODY), Some(NOBODY)).expect("root can give it away");
        }),
        ("a link of root's to a link of another's to a folder of root's", |target, at| {
            let theirs = at.with_extension("theirs");
            symlink(target, &theirs).expect("a link can be made");
            std::os::unix::fs::lchown(&theirs, Some(NOBODY), Some(NOBODY)).expect("root can give it away");
            symlink(theirs, at).expect("a link can be made");
        }),
        ("a folder that everybody may change", |_, at| {
            fs::create_dir(at).expect("a folder can be made");
            fs::set_permissions(at, fs::Permissions::from_mode(0o777)).expect("a mode can be set");
        }),
        ("a file of another's", |_, at| {
            fs::write(at, "theirs").expect("a file can be written");
            chown(at, Some(NOBODY), Some(NOBODY)).expect("root can give it away");
        }),
    ];
    report(plants.into_iter().enumerate().flat_map(|(i, (row, plant))| {
        fs::create_dir_all(&target).expect("a folder can be made");
        let at = open.join(format!("metes-{i}"));
        let node = cluster.node_with("a", json!({"spool_dir": at}));
        // Honest folders serve where everybody writes, too.
        let honest = cluster.node_with("b", json!({"spool_dir": open.join(format!("honest-{i}"))}));
        honest.add("c0").config(&range()).run().ok();
        let kept = files(&open.join(format!("honest-{i}")));
        plant(&target, &at);
        let before = files(&open);
        let add = node.add("c1").config(&range()).run();
        node.change_host_file(json!({"etcd": {"endpoints": ["http://127.0.0.1:1"]}}));
        let del = node.del("c1").config(&range()).run();
        let written: Vec<PathBuf> = files(&target).into_iter().chain(files(&open)).collect();
        let new: Vec<&PathBuf> = written.iter().filter(|file| !before.contains(file)).collect();
        let failures = [
            expect(row, !kept.is_empty(), "an honest folder is not used"),
            expect(row, add.succeeded(), format!("an ADD needs no spool: {add}")),
            expect(row, del.error_code() == Some(11), format!("the spool was used: {del}")),
            expect(row, new.is_empty(), format!("written: {new:?}")),
        ];
        for (node, container) in [(&node, "c1"), (&honest, "c0")] {
            node.change_host_file(json!({"etcd": {"endpoints": [Etcd::shared().endpoint()]}}));
            node.del(container).config(&range()).run().silent();
        }
        failures
    }));
    cluster.assert_nothing_held();
    cluster.assert_whole();
}

/// A DEL that somebody else spooled frees nothing.
#[test]
fn what_another_spooled_is_not_carried_out() {
    let cluster = Cluster::new();
    let node = cluster.node("a");
    node.add("c1").config(&range()).run().ok();
    node.change_host_file(json!({"etcd": {"endpoints": ["http://127.0.0.1:1"]}}));
    node.del("c1").config(&range()).run().silent();
    let spool = state_folder(&node).join("spool");
    let file = files(&spool).pop().expect("it was spooled");
    node.change_host_file(json!({"etcd": {"endpoints": [Etcd::shared().endpoint()]}}));
    let rows: [(&str, &dyn Fn(bool)); 3] = [
        ("a file of another's", &|theirs| {
            chown(&file, Some(if theirs { 65_534 } else { 0 }), None).expect("given")
        }),
        ("a folder of another's", &|theirs| {
            chown(&spool, Some(if theirs { 65_534 } else { 0 }), None).expect("given");
        }),
        ("a folder that everybody may change", &|theirs| {
            let mode = if theirs { 0o777 } else { 0o700 };
            fs::set_permissions(&spool, fs::Permissions::from_mode(mode)).expect("a mode can be set");
        }),
    ];
    report(rows.into_iter().map(|(row, give)| {
        give(true);
        let add = node.add("c2").config(&range()).run();
        let held = node.list().len();
        node.del("c2").config(&range()).run().silent();
        give(false);
        expect(row, held == 2, format!("{held} are held after {add}"))
    }));
    node.add("c3").config(&range()).run().ok();
    assert_eq!(node.list().len(), 1, "root's own is carried out");
    cluster.assert_clean();
}

/// Keys and passwords of another user, or that others may read or write, are not used.
#[test]
fn keys_of_others_are_refused() {
    let etcd = Etcd::start_mtls();
    let cluster = Cluster::on(&etcd);
    let tls = etcd.tls().expect("it has TLS");
    let copies = [("key_file", tls.client_key()), ("cert_file", tls.client_cert()), ("ca_file", tls.ca())];
    let mut failures = Vec::new();
    for (key, from) in copies {
        let copy = write(cluster.folder().join(key), read(from), 0o600);
        let node = cluster.node_with("a", json!({"etcd": {(key): copy}}));
        let mut run = |row: &str, expected: Option<&str>| {
            let add = node.add("c1").config(&range()).run();
            let is_right = match expected {
                None => add.succeeded(),
                Some(words) => {
                    add.error_code() == Some(7) && add.stdout.contains(words) && add.stdout.contains(key)
                }
            };
            failures.push(expect(&format!("{key}, {row}"), is_right, &add));
        };
        run("root's own", None);
        chown(&copy, Some(65_534), None).expect("root can give it away");
        run("another user's", Some("belongs to user 65534"));
        chown(&copy, Some(0), None).expect("root can take it");
        fs::set_permissions(&copy, fs::Permissions::from_mode(0o620)).expect("a mode can be set");
        run("a group's to write", Some("0620"));
        if key == "key_file" {
            for mode in [0o604, 0o640, 0o700] {
                fs::set_permissions(&copy, fs::Permissions::from_mode(mode)).expect("a mode can be set");
                run("of a loose mode", Some("its mode is"));
            }
        }
    }
    report(failures);
    cluster.assert_clean();
}

// ---- what has no end

/// A pipe that never ends, and a run that must not read all of it.
fn endless(node: &Node, verb: &str) -> (i32, String, Duration) {
    let start = Instant::now();
    let mut child = Command::new(metes())
        .env_clear()
        .env("METES_CONF", node.host_file())
        .envs([("CNI_COMMAND", verb), ("CNI_CONTAINERID", "c1"), ("CNI_IFNAME", "eth0"), ("CNI_NETNS", "/n")])
        .env("CNI_PATH", "/opt/cni/bin")
        .stdin(File::open("/dev/zero").expect("Linux has it"))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("metes runs");
    let mut text = String::new();
    child.stdout.take().expect("stdout is piped").read_to_string(&mut text).expect("it is text");
    let status = child.wait().expect("it can be waited for");
    (status.code().unwrap_or(-1), text, start.elapsed())
}

#[test]
fn all_input_has_a_bound() {
    const MIB: usize = 1 << 20;
    let cluster = Cluster::new();
    let node = cluster.node("a");
    let revision = cluster.store().revision();
    for verb in ["ADD", "DEL", "CHECK", "GC", "STATUS"] {
        let (code, text, elapsed) = endless(&node, verb);
        let error: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{verb}: {e}: {text}"));
        assert!(
            code == 1 && error["code"] == 6 && elapsed < Duration::from_secs(5),
            "{verb}: {text} {elapsed:?}"
        );
    }
    // As much as there may be, and one byte more.
    let mut config = range();
    config["padding"] = json!("");
    let room = MIB - config.to_string().len();
    for (length, expected) in [(room, None), (room + 1, Some(6))] {
        config["padding"] = json!("x".repeat(length));
        let add = node.add("c1").config(&config).run();
        assert_eq!(add.error_code(), expected, "stdin of {} bytes: {add}", config.to_string().len());
    }
    node.del("c1").config(&range()).run().silent();
    let rows: Vec<(&str, Value, Value)> = vec![
        (
            "a NAD of many keys",
            network(json!({"range": "10.0.0.0/24", "exclude": vec!["10.0.0.5"; 20_000]})),
            json!({}),
        ),
        ("a host file", range(), json!({"padding": "x".repeat(MIB)})),
        ("a key", range(), {
            let large = write(cluster.folder().join("large"), vec![b'x'; MIB + 1], 0o600);
            json!({"etcd": {"endpoints": ["https://127.0.0.1:1"], "ca_file": large}})
        }),
        ("an endless key", range(), {
            json!({"etcd": {"endpoints": ["https://127.0.0.1:1"], "ca_file": "/dev/zero"}})
        }),
        ("a password", range(), {
            let large = write(cluster.folder().join("password"), vec![b'x'; MIB + 1], 0o600);
            json!({"etcd": {"username": "u", "password_file": large}})
        }),
    ];
    let before = cluster.store().entries("v1/net/").len();
    report(rows.into_iter().map(|(row, config, keys)| {
        let node = cluster.node_with("a", keys);
        let outcome = node.add("c2").config(&config).run();
        let answered = outcome.error_code() == Some(7) || outcome.succeeded() && row.starts_with("a NAD");
        node.del("c2").config(&range()).run();
        expect(row, answered && outcome.elapsed < Duration::from_secs(5), outcome)
    }));
    let resolv = write(cluster.folder().join("resolv.conf"), "nameserver 10.0.0.1\n".repeat(4000), 0o644);
    let node = cluster.node_with("a", json!({"resolv_conf": [resolv]}));
    node.add("c3").config(&network(json!({"subnet": "10.0.0.0/24", "resolvConf": resolv}))).run().error(7);
    // The kernel lets no variable be longer than 128 KiB.
    let long = "x".repeat(100_000);
    for run in [
        node.add("c4").args(&format!("IgnoreUnknown=1;K8S_POD_NAME={long}")),
        node.add("c4").args(&format!("{long}={long}").repeat(1)[..100_000]),
        node.add(&long),
        node.add("c4").ifname(&long),
        node.add("c4").netns(&long),
    ] {
        let outcome = run.config(&range()).run();
        assert!(outcome.error_code() == Some(4) || outcome.succeeded(), "{outcome}");
        // It may repeat one of them.
        assert!(outcome.stdout.len() < 2 * long.len(), "{} bytes", outcome.stdout.len());
    }
    node.del("c4").config(&range()).run().silent();
    assert!(cluster.store().revision() >= revision && cluster.store().entries("v1/net/").len() >= before);
    cluster.assert_nothing_held();
    cluster.assert_clean();
}

/// A mark and spooled DELs that have grown beyond all reason are passed over.
#[test]
fn state_of_any_size_is_passed_over() {
    let cluster = Cluster::new();
    let node = cluster.node("a");
    node.add("c1").config(&range()).run().ok();
    let state = state_folder(&node);
    let large = vec![b' '; 32 << 20];
    write(state.join("mark"), &large, 0o600);
    fs::create_dir_all(state.join("spool")).expect("a folder can be made");
    let spooled = write(state.join("spool/x.del"), &large, 0o600);
    let add = node.add("c2").config(&range()).run();
    assert!(add.succeeded() && add.elapsed < Duration::from_secs(5), "{add}");
    assert!(fs::metadata(state.join("mark")).expect("it is there").len() < 65_536, "it is written anew");
    assert!(spooled.exists(), "what cannot be read stays");
    assert_eq!(node.list().len(), 2);
    cluster.assert_clean();
}
