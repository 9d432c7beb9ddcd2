//! Tells the package its commit, as `build.rs` of the program does.

#[path = "../crates/roost/build.rs"]
mod program;

fn main() {
    program::main();
}
