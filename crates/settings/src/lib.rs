//! The settings of roost, each defined once.
//!
//! The same names are used everywhere:
//!
//! | where | how |
//! |---|---|
//! | settings file | `cling = false`, `llc-imbalance = 2`, `slice-us = 3000` |
//! | `roost run`, `scx_roost` | `--no-cling --llc-imbalance 2 --slice-us 3000 --config FILE` |
//! | a scheduler's name in `roost compare` | `roost+no-cling+llc-imbalance=2+config=FILE` |
//! | the simulated fair class, if it has the setting | `fair@7.2+no-cling+config=FILE` |
//!
//! | module | what it has |
//! |---|---|
//! | `table` | every setting: name, range, default, meaning |
//! | `settings` | values of some of them, from a file or a scheduler's name |
//! | `command` | the command line of `scx_roost`, which `roost run` shares |

mod command;
mod settings;
mod table;

pub use command::{Action, Invocation, SECONDS, after_help, arguments, command};
pub use settings::{Settings, SettingsError, Value, example};
pub use table::{Kind, Setting, all, find, mechanisms, tunables};
