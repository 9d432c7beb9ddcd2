//! Compiles the policy headers, through their bindings, for user space.

fn main() {
    println!("cargo:rerun-if-changed=include");
    println!("cargo:rerun-if-changed=src/bindings.c");
    cc::Build::new()
        .file("src/bindings.c")
        .include("include")
        .warnings(true)
        .extra_warnings(true)
        .opt_level(2)
        .compile("roost_policy");
}
