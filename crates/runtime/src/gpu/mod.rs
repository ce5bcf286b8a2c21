//! The tracer's side of the agent, which reports the times of the GPU (crate `agent`): the file that processes load, and the sockets to
//! the processes that have loaded it.
//!
//! Nothing that a process sends is trusted: a [`Connection`] needs a proof, and reports are checked.

mod agent_file;
mod agent_socket;
mod checks;
mod connection;
mod launch_counts;

pub use agent::kind_set::KindSet;
pub use agent::message::{MULTIPLE_SUBSCRIBERS, Operators, Report, State};
pub use agent::record::Kind;
pub use agent_file::AgentFile;
pub use agent_socket::{AgentSocket, ReceiveOutcome};
pub use checks::{RecordRequest, ReportError};
pub use connection::{Connection, Proof};
pub use launch_counts::LaunchCounts;
pub use native::load::Functions as LoaderFunctions;

use wire::manifest::{GPU_LAUNCHES, GPU_OPERATORS, GPU_RANGES};

// The compiler writes these bits into the manifest, and does not know the agent.
const _: () = assert!(
    GPU_LAUNCHES == KindSet::LAUNCHES.to_bits()
        && GPU_RANGES == KindSet::RANGES.to_bits()
        && GPU_OPERATORS == KindSet::OPERATORS.to_bits()
);
