//! Links the binary at a fixed address.
//!
//! A position-independent binary relocates its tables of pointers (vtables, function registries) when
//! it starts and thereby gives every process a private copy of those pages. Thousands of SQL nodes run
//! side by side, so they are linked to share them instead.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux") {
        println!("cargo:rustc-link-arg-bins=-no-pie");
    }
}
