//! What a reader cannot see at a glance: which modules stay pure, and that nothing unfinished is left.

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// What is built is not looked into, nor what is hidden.
fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        let name = entry.file_name();
        if name == "target" || name.as_encoded_bytes().starts_with(b".") {
            continue;
        }
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|ext| ext == "rs") {
            files.push(path);
        }
    }
    files
}

/// The file without its inline tests.
fn production(path: &Path) -> String {
    let text = fs::read_to_string(path).expect("a source file");
    text.split("#[cfg(test)]").next().unwrap_or_default().to_owned()
}

/// What judges, and what makes sense of what others wrote.
const PURE_IN_RECONCILER: [&str; 7] = [
    "adopt/demand.rs",
    "holder.rs",
    "import/gather.rs",
    "import/nads.rs",
    "import/pools.rs",
    "verdict.rs",
    "world.rs",
];

#[test]
fn pure_modules_do_no_io_and_know_no_time() {
    let src = root().join("src");
    let mut pure: Vec<PathBuf> =
        ["pool", "config", "cni"].iter().flat_map(|dir| rust_files(&src.join(dir))).collect();
    pure.extend(
        ["keys", "txn", "snapshot", "plan", "allot"].iter().map(|m| src.join(format!("store/{m}.rs"))),
    );
    let reconciler = root().join("reconciler/src");
    pure.extend(PURE_IN_RECONCILER.iter().map(|file| reconciler.join(file)));
    let impure = [
        "async ",
        ".await",
        "tokio",
        "etcd_client",
        "tonic",
        "std::fs",
        "std::env",
        "std::net::Tcp",
        "std::process",
        "Instant",
        "SystemTime",
        "tracing",
        "getrandom",
        "rustix",
        "println!",
        "crate::local",
        "crate::commands",
    ];
    for path in pure {
        let text = production(&path);
        for word in impure {
            assert!(!text.contains(word), "{} contains {word:?}", path.display());
        }
    }
}

#[test]
fn imports_go_one_way() {
    let src = root().join("src");
    let never = [
        ("pool", vec!["crate::cni", "crate::config", "crate::store", "crate::commands", "crate::local"]),
        ("cni", vec!["crate::config", "crate::store", "crate::commands", "crate::local"]),
        ("config", vec!["crate::store", "crate::commands", "crate::local"]),
        ("store", vec!["crate::cni", "crate::config", "crate::commands", "crate::local", "crate::cli"]),
    ];
    for (module, others) in never {
        for path in rust_files(&src.join(module)) {
            for other in &others {
                assert!(!production(&path).contains(other), "{} imports {other}", path.display());
            }
        }
    }
}

/// Where there are source files, at least.
const FOLDERS: [&str; 7] = ["src", "reconciler", "installer", "sim", "fuzz", "tests", "tools"];

#[test]
fn nothing_unfinished_is_left() {
    let marks = [
        ["TO", "DO"].concat(),
        ["FIX", "ME"].concat(),
        ["#[", "ignore"].concat(),
        ["should_", "panic"].concat(),
    ];
    let files = rust_files(&root());
    for folder in FOLDERS {
        let folder = root().join(folder);
        assert!(files.iter().any(|path| path.starts_with(&folder)), "nothing of {}", folder.display());
    }
    for path in files {
        let text = fs::read_to_string(&path).expect("a source file");
        for mark in &marks {
            assert!(!text.contains(mark.as_str()), "{} contains {mark}", path.display());
        }
    }
}
