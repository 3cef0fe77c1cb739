//! Links the plugin at a fixed address.
//!
//! A plugin lives for a few milliseconds, and a good part of them goes into relocating a
//! position-independent executable: thousands of pointers are written, and each page of them is
//! copied, before main begins.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-link-arg-bins=-no-pie");
}
