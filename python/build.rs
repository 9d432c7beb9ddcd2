//! Tells the package which commit it is built from, as the program knows it.

#[path = "../crates/roost/build.rs"]
mod program;

fn main() {
    program::main();
}
