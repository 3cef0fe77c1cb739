//! The paths of the real programs.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

static FOUND: Mutex<Vec<(String, PathBuf)>> = Mutex::new(Vec::new());

/// The plugin under test: the release build.
pub fn metes() -> PathBuf {
    named("METES_BIN")
}

/// The reconciler under test: as [`metes()`], and otherwise the one that was built beside it.
pub fn reconciler() -> PathBuf {
    env::var_os("RECONCILER_BIN").map_or_else(|| metes().with_file_name("metes-reconciler"), PathBuf::from)
}

/// The installer: as [`metes()`], and otherwise the one that was built beside it.
pub fn metes_install() -> PathBuf {
    let named = env::var_os("METES_INSTALL_BIN").map(PathBuf::from);
    let path = named.unwrap_or_else(|| metes().with_file_name("metes-install"));
    assert!(path.exists(), "{} is missing: cargo build --workspace", path.display());
    path
}

/// The plugin with failure points.
pub fn failing_metes() -> PathBuf {
    named("FAILPOINTS_BIN")
}

/// The reconciler with failure points.
pub fn failing_reconciler() -> PathBuf {
    named("FAILPOINTS_RECONCILER_BIN")
}

fn named(variable: &str) -> PathBuf {
    env::var_os(variable).unwrap_or_else(|| panic!("{variable} names no program: run hack/test")).into()
}

/// A tool by its name in hack/tool. hack/test has put it in the environment; otherwise hack/tool is asked once.
pub fn tool(name: &str) -> PathBuf {
    if let Some(path) = env::var_os(variable(name)) {
        return path.into();
    }
    let mut found = FOUND.lock().expect("asking for a tool does not panic twice");
    if let Some((_, path)) = found.iter().find(|(known, _)| known == name) {
        return path.clone();
    }
    let path = ask(name);
    found.push((name.to_owned(), path.clone()));
    path
}

/// The root of the repository.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ is in it")
}

fn variable(name: &str) -> &'static str {
    match name {
        "etcd" => "ETCD",
        "etcd-3.4" => "ETCD_34",
        "etcd-clients" => "ETCD_CLIENTS",
        "cnitool" => "CNITOOL",
        "cni-plugins" => "CNI_PLUGINS",
        "cni-plugins-1.1" => "CNI_PLUGINS_11",
        "kube-apiserver" => "KUBE_APISERVER",
        "kubectl" => "KUBECTL",
        "kustomize" => "KUSTOMIZE",
        "helm-3" => "HELM_3",
        "helm-4" => "HELM_4",
        "promtool" => "PROMTOOL",
        "prometheus" => "PROMETHEUS",
        "chromium" => "CHROMIUM",
        _ => panic!("hack/tool has no {name}"),
    }
}

fn ask(name: &str) -> PathBuf {
    let output = Command::new(root().join("hack/tool")).arg(name).output().expect("hack/tool runs");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "hack/tool {name} failed:\n{stderr}");
    let stdout = String::from_utf8_lossy(&output.stdout);
    stdout.lines().last().expect("hack/tool prints a path").into()
}
