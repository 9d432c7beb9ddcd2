//! Scenes: the scheduler `roost`, as it is loaded into kernels, in situations that show one of its decisions each.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod events;
mod groups;
mod kit;
mod large;
mod limits;
mod place;
mod shares;
