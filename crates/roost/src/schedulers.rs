//! The one table of schedulers by name.

use roost_fair::{FeatureError, Features};

/// A scheduler as the command line names it.
#[derive(Clone, Debug)]
pub enum SchedulerSpec {
    /// The kernel's fair class.
    Fair(Features),
}

impl SchedulerSpec {
    /// Reads a name such as `fair@5.19+sis-util`.
    pub fn parse(name: &str) -> Result<Self, FeatureError> {
        Features::parse(name).map(SchedulerSpec::Fair)
    }
}
