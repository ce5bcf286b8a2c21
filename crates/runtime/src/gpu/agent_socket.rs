//! The socket to the agent of a process: requests and reports.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use agent::message::{PATHS, Report, Request};
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags};

use super::checks::{self, RecordRequest, ReportError};
use super::launch_counts::{CounterMemory, LaunchCounts};

/// The socket to the agent of a process, which has proven that it is one.
#[derive(Debug)]
pub struct AgentSocket {
    socket: OwnedFd,
    pid: u32,
    /// Last request to the agent.
    wanted: Option<RecordRequest>,
    last: Option<Report>,
    counters: Option<CounterMemory>,
}

/// Result of receiving from an agent.
#[derive(Clone, Debug)]
pub enum ReceiveOutcome {
    /// A report, which was checked.
    Report(Report),
    /// An invalid packet: the process is not to be trusted any more.
    Wrong(ReportError),
    /// No packet yet.
    Nothing,
    /// The process has ended, or executes another program.
    End,
}

impl AgentSocket {
    /// The socket of a process that has proven that it is an agent.
    pub(super) fn new(socket: OwnedFd, pid: u32) -> AgentSocket {
        AgentSocket { socket, pid, wanted: None, last: None, counters: None }
    }

    /// The process.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// A descriptor that is readable when a report has come.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Asks for records. `paths`: where CUPTI may be, for a process that has not loaded it.
    ///
    /// # Errors
    /// EPIPE if the process has ended; no descriptor is left.
    pub fn request(&mut self, wanted: RecordRequest, paths: &[PathBuf]) -> io::Result<()> {
        self.wanted = Some(wanted);
        let RecordRequest { kinds, flush_ms } = wanted;
        let mut request = Request { kinds: kinds.to_bits(), flush_ms, paths: [0; PATHS] };
        let mut used = 0;
        for path in paths {
            let bytes = path.as_os_str().as_encoded_bytes();
            // The last byte stays zero.
            if used + bytes.len() + 1 < PATHS {
                request.paths[used..][..bytes.len()].copy_from_slice(bytes);
                used += bytes.len() + 1;
            }
        }
        // SAFETY: a struct of numbers without padding.
        let bytes =
            unsafe { std::slice::from_raw_parts((&raw const request).cast::<u8>(), size_of::<Request>()) };
        let counters = self.counters.insert(CounterMemory::new()?);
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut room);
        let passed = [counters.as_fd()];
        control.push(SendAncillaryMessage::ScmRights(&passed));
        rustix::net::sendmsg(&self.socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// Launches of the process so far, and how many of these have a record; `None` if they are not counted.
    pub fn launches(&self) -> Option<LaunchCounts> {
        self.counters.as_ref()?.read()
    }

    /// Asks for the end. The last records come before the last report.
    pub fn end(&self) {
        // An agent that has ended needs no request.
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Write);
    }

    /// The next report.
    pub fn receive(&mut self) -> ReceiveOutcome {
        // One byte more than a report has: a longer packet is wrong.
        let mut packet = [MaybeUninit::<u8>::uninit(); size_of::<Report>() + 1];
        let bytes = match rustix::net::recv(&self.socket, &mut packet[..], RecvFlags::DONTWAIT) {
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return ReceiveOutcome::Nothing,
            Ok(((bytes, _), _)) if !bytes.is_empty() => bytes,
            _ => return ReceiveOutcome::End,
        };
        match self.checked(bytes) {
            Ok(report) => ReceiveOutcome::Report(*self.last.insert(report)),
            Err(error) => ReceiveOutcome::Wrong(error),
        }
    }

    /// The report in a packet.
    fn checked(&self, packet: &[u8]) -> Result<Report, ReportError> {
        if packet.len() != size_of::<Report>() {
            return Err(ReportError::Size(packet.len()));
        }
        // SAFETY: the struct consists of numbers, and the packet has its size.
        let report = unsafe { packet.as_ptr().cast::<Report>().read_unaligned() };
        let wanted = self.wanted.ok_or(ReportError::Early)?;
        checks::check(&report, self.last.as_ref(), wanted).map(|()| report)
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::gpu::{Kind, KindSet};
    use crate::tests::numbers::Numbers;
    use rustix::net::{AddressFamily, SocketFlags, SocketType};

    /// Random packets, and reports with random words; `CUDATRACE_FUZZ_SECONDS` is the time that is tried.
    #[test]
    fn any_packet_of_a_process_is_a_valid_report_or_an_error() {
        let seconds = std::env::var("CUDATRACE_FUZZ_SECONDS").ok().and_then(|text| text.parse().ok());
        let limit = Duration::from_secs(seconds.unwrap_or(2));
        let wanted = RecordRequest { kinds: KindSet::of(Kind::Kernel), flush_ms: 100 };
        let (start, mut numbers) = (Instant::now(), Numbers(0x2545_f491_4f6c_dd1d));
        let mut random = move |below: u64| numbers.below(below);
        let (mut taken, mut total) = (0, 0u64);
        while start.elapsed() < limit {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let pair = rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
            let (process, tracer) = pair.expect("a socket pair");
            let mut agent = AgentSocket::new(tracer, 7);
            agent.wanted = Some(wanted).filter(|_| random(20) > 0);
            let mut last = Report::default();
            for _ in 0..random(6) {
                let version = [0, 28, 130_001, u32::MAX][random(4) as usize];
                let mut report = Report { state: 3, version, passed: last.passed, ..last };
                report.passed[0] += random(1 << 20);
                // SAFETY: a struct of numbers without padding.
                let bytes = unsafe {
                    std::slice::from_raw_parts_mut((&raw mut report).cast::<u8>(), size_of::<Report>())
                };
                for _ in 0..random(3) {
                    let at = random(bytes.len() as u64 / 8) as usize * 8;
                    let word = [0, 1, 3, u64::MAX, 1 << 63, 1 << 47][random(6) as usize];
                    bytes[at..at + 8].copy_from_slice(&u64::to_ne_bytes(word));
                }
                let length = if random(8) == 0 { random(2000) as usize } else { bytes.len() };
                let packet: Vec<u8> =
                    bytes.iter().copied().chain(std::iter::repeat(7)).take(length).collect();
                rustix::net::send(&process, &packet, SendFlags::NOSIGNAL).expect("there is room");
                match agent.receive() {
                    ReceiveOutcome::Report(report) => {
                        let sum = report
                            .passed
                            .iter()
                            .fold(0u64, |sum, count| sum.checked_add(*count).expect("no overflow"));
                        assert!(report.passed[0] >= last.passed[0] && sum == report.passed[0]);
                        assert!((1..=5).contains(&report.state));
                        (taken, total) = (taken + 1, total.checked_add(sum).expect("no overflow"));
                        last = report;
                    }
                    ReceiveOutcome::Wrong(_) | ReceiveOutcome::End => break,
                    ReceiveOutcome::Nothing => panic!("a packet was sent"),
                }
            }
        }
        assert!(taken > 0 && total > 0, "some reports are right");
    }
}
