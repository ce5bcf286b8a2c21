//! Reads ids and field offsets of tracepoints from tracefs. If tracefs is not mounted, it is read through the descriptor of a
//! detached mount (`fsmount`), which ends when the descriptor is closed.

use rustix::fs::{Mode, OFlags, openat};
use rustix::mount::{self, FsMountFlags, FsOpenFlags, MountAttrFlags};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;

/// Contents of the `format` file of a tracepoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TracepointFormat {
    /// `config` of the perf event.
    pub id: u64,
    /// Fields in order.
    pub fields: Vec<TracepointField>,
}

/// A field of a tracepoint's record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TracepointField {
    /// `child_pid`
    pub name: String,
    /// Offset in the record in bytes.
    pub offset: u32,
    /// Size in bytes.
    pub size: u32,
    /// Two's complement.
    pub signed: bool,
    /// C type: `pid_t`, `char[16]`, `__data_loc char[]`, `const char *`.
    pub declared: String,
}

impl TracepointFormat {
    /// Offset of a field by name.
    pub fn offset(&self, name: &str) -> Option<u32> {
        self.fields.iter().find(|field| field.name == name).map(|field| field.offset)
    }
}

/// Mount points of tracefs on most systems.
const MOUNTS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// Id and fields of `category:name`. ENOENT: there is no such tracepoint; EPERM: missing permission.
pub fn tracepoint_format(category: &str, name: &str) -> io::Result<TracepointFormat> {
    parse(&read(&format!("events/{category}/{name}/format"))?)
}

/// A file of tracefs.
pub fn read(below: &str) -> io::Result<String> {
    let mounted = MOUNTS.iter().find_map(|mount| std::fs::read_to_string(format!("{mount}/{below}")).ok());
    mounted.map_or_else(|| read_at(&detached_mount()?, below), Ok)
}

/// Category and name of all tracepoints, sorted.
pub fn tracepoints() -> io::Result<Vec<(String, String)>> {
    let text = read("available_events")?;
    let mut all: Vec<(String, String)> = text
        .lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(category, event)| (category.to_owned(), event.to_owned()))
        .collect();
    all.sort();
    Ok(all)
}

/// Mounts tracefs without a path.
fn detached_mount() -> io::Result<OwnedFd> {
    let context = mount::fsopen("tracefs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    mount::fsconfig_create(&context)?;
    Ok(mount::fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?)
}

fn read_at(dir: &OwnedFd, below: &str) -> io::Result<String> {
    let file = openat(dir, below, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let mut text = String::new();
    File::from(file).read_to_string(&mut text)?;
    Ok(text)
}

fn parse(text: &str) -> io::Result<TracepointFormat> {
    let id = text.lines().find_map(|line| line.strip_prefix("ID:")?.trim().parse().ok());
    let id = id.ok_or_else(|| io::Error::other("a tracepoint's `format` has no `ID:` line"))?;
    Ok(TracepointFormat { id, fields: text.lines().filter_map(parse_field).collect() })
}

/// `field:pid_t child_pid; offset:44; size:4; signed:1;`, with tabs.
fn parse_field(line: &str) -> Option<TracepointField> {
    let mut parts = line.trim().split(';').map(str::trim);
    let declaration = parts.next()?.strip_prefix("field:")?;
    let mut number = |label: &str| -> Option<u32> { parts.next()?.strip_prefix(label)?.parse().ok() };
    let (offset, size, signed) = (number("offset:")?, number("size:")?, number("signed:")?);
    let (base, last) = declaration.rsplit_once(' ')?;
    let (name, dimension) = last.find('[').map_or((last, ""), |at| last.split_at(at));
    let (name, declared) = (name.to_owned(), format!("{base}{dimension}"));
    Some(TracepointField { name, offset, size, signed: signed != 0, declared })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_with_their_offsets() {
        let text = "name: sched_process_fork\nID: 312\nformat:\n\
            \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\n\
            \tfield:char parent_comm[16];\toffset:8;\tsize:16;\tsigned:0;\n\
            \tfield:pid_t child_pid;\toffset:44;\tsize:4;\tsigned:1;\n\nprint fmt: \"x\"\n";
        let format = parse(text).expect("well-formed");
        assert_eq!((format.id, format.fields.len()), (312, 3));
        assert_eq!(format.offset("parent_comm"), Some(8));
        assert_eq!(format.offset("child_pid"), Some(44));
        assert_eq!(format.offset("missing"), None);
        assert_eq!(format.fields[1].declared, "char[16]");
        assert!(parse("format:\n").is_err());
    }

    #[test]
    fn the_kernels_fork_tracepoint_is_found_without_a_mount() {
        if !crate::kernel::features::is_root() {
            eprintln!("skipped: needs root");
            return;
        }
        let format = tracepoint_format("sched", "sched_process_fork").expect("tracefs");
        assert!(format.id > 0 && format.offset("child_pid").is_some(), "{format:?}");
        let detached = parse(
            &read_at(&detached_mount().expect("fsmount"), "events/sched/sched_process_fork/format").unwrap(),
        );
        assert_eq!(detached.expect("same file"), format);
    }
}
