//! The agent for the times of the GPU (crate `agent`): its file, which processes load, and the sockets to the processes that have.
//!
//! Nothing that a process sends is trusted: a [`Connection`] needs a proof, and reports are checked.

mod agent_file;
mod agent_socket;
mod checks;
mod connection;
mod launch_counts;

pub use agent::message::{MULTIPLE_SUBSCRIBERS, Report, State};
pub use agent_file::AgentFile;
pub use agent_socket::{AgentSocket, Received};
pub use checks::{ReportError, Wanted};
pub use connection::{Connection, Proof};
pub use launch_counts::LaunchCounts;
pub use native::load::Functions as LoaderFunctions;

/// Number of the kind of kernels.
pub const KERNEL: u32 = agent::record::Kind::Kernel as u32;
/// Number of the kind of graphs as a whole.
pub const GRAPH: u32 = agent::record::Kind::Graph as u32;
/// Number of the kind of idle times.
pub const IDLE: u32 = agent::record::Kind::Idle as u32;
