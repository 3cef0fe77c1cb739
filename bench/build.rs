//! Links the floor as the plugin is linked (see the workspace's build.rs): what both gain must not look like a merit
//! of one.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-link-arg-bins=-no-pie");
}
