//! Links the plugin at a fixed address and, with glibc, statically.
//!
//! A plugin lives for a few milliseconds, and a good part of them would go into its start: relocating a
//! position-independent executable writes thousands of pointers, and loading shared libraries maps and resolves them
//! anew for each of the sixteen interfaces of a pod. A static binary also runs on nodes whose C library is another
//! one.
//!
//! `-C target-feature=+crt-static` would ask for the same, but cargo hands it to proc macros too, which cannot be
//! static. Instead the linker is told `-static` for this binary alone, and finds, under the names of the shared
//! libraries that rustc asks for, scripts that name the static ones.

use std::env;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The libraries that rustc links a program for glibc with, each with its static counterpart.
const LIBRARIES: [(&str, &str); 7] = [
    ("c", "libc.a"),
    ("dl", "libdl.a"),
    ("gcc_s", "libgcc_eh.a"),
    ("m", "libm.a"),
    ("pthread", "libpthread.a"),
    ("rt", "librt.a"),
    ("util", "libutil.a"),
];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-link-arg-bins=-no-pie");
    let is_native = env::var("HOST")? == env::var("TARGET")?;
    if !is_native || env::var("CARGO_CFG_TARGET_ENV")? != "gnu" {
        return Ok(());
    }
    let Some(found) = LIBRARIES.iter().map(|(name, file)| Some((name, find(file)?))).collect() else {
        println!(
            "cargo::warning=no static C library was found: metes is linked dynamically and starts slower"
        );
        return Ok(());
    };
    let folder = PathBuf::from(env::var("OUT_DIR")?);
    write_scripts(&folder, found)?;
    println!("cargo::rustc-link-arg-bins=-static");
    println!("cargo::rustc-link-arg-bins=-L{}", folder.display());
    Ok(())
}

/// Where the C compiler has a library; it answers with the bare name where it has none.
fn find(file: &str) -> Option<PathBuf> {
    let linker = env::var("RUSTC_LINKER").unwrap_or_else(|_| "cc".to_owned());
    let answer = Command::new(linker).arg(format!("-print-file-name={file}")).output().ok()?;
    let path = PathBuf::from(String::from_utf8(answer.stdout).ok()?.trim());
    (path.is_absolute() && path.is_file()).then_some(path)
}

fn write_scripts(folder: &Path, found: Vec<(&&str, PathBuf)>) -> Result<(), Box<dyn Error>> {
    for (name, library) in found {
        let script = format!("INPUT(\"{}\")\n", fs::canonicalize(library)?.display());
        fs::write(folder.join(format!("lib{name}.a")), script)?;
    }
    Ok(())
}
