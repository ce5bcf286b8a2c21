//! Which processes may share the memory of a session.
//!
//! All of them can write it, and read what the script keeps there of the others. So they must be processes that could do that to each
//! other anyway. The rule is the one of ptrace(2), but stricter: the ids, the capabilities and the user namespace must be equal, where the
//! kernel only wants the tracer to have at least as many rights. The first traced process sets them. Later ones with other rights are
//! refused, and one that changes its rights is cut off from the memory (`patching.rs`).
//!
//! ```text
//! the job of a user, its children      share
//! a setuid or setgid program, one with capabilities; a service of root among the user's processes      refused
//! a worker that gives up root: setuid(2) after fork(2), unshare(2)      leaves
//! ```

use linux::proc::{self, Status};
use std::fmt;
use std::io;
use std::os::unix::fs::MetadataExt;

/// The rights of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    /// Users and groups: real, effective, saved, of files.
    users: String,
    groups: String,
    /// Permitted capabilities.
    capabilities: String,
    /// The user namespace.
    namespace: String,
    /// The user who may control it: root if it is protected from its own, as after executing a setuid program.
    controller: u32,
}

impl Owner {
    /// Rights of a process.
    ///
    /// # Errors
    /// It has ended, or is hidden.
    pub(super) fn of(pid: u32) -> io::Result<Owner> {
        let status = Status::of(pid)?;
        let words = |name: &str| {
            let words = status.field(name).map(|text| text.split_whitespace().collect::<Vec<_>>().join(" "));
            words.ok_or(io::ErrorKind::InvalidData)
        };
        Ok(Owner {
            users: words("Uid")?,
            groups: words("Gid")?,
            capabilities: words("CapPrm")?,
            namespace: proc::namespace_name(pid, "user")?,
            controller: std::fs::metadata(format!("/proc/{pid}"))?.uid(),
        })
    }

    /// How these rights differ from others, as the end of a sentence.
    fn other_than(&self, other: &Owner) -> String {
        let differs = |what: &str, own: &str, others: &str| {
            (own != others).then(|| format!("it has {what} {own}, they have {others}"))
        };
        differs("users", &self.users, &other.users)
            .or_else(|| differs("groups", &self.groups, &other.groups))
            .or_else(|| differs("the user namespace", &self.namespace, &other.namespace))
            .or_else(|| differs("capabilities", &self.capabilities, &other.capabilities))
            .unwrap_or_else(|| "one of them is protected from its own user, as setuid programs are".into())
    }
}

/// The rights that all processes of a session have.
#[derive(Debug, Default)]
pub(super) struct CommonOwner(Option<Owner>);

/// The rights of a process are not those of the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OtherOwner(String);

impl fmt::Display for OtherOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl CommonOwner {
    /// Admits a process with these rights.
    ///
    /// # Errors
    /// [`OtherOwner`]
    pub(super) fn admit(&mut self, owner: Owner) -> Result<(), OtherOwner> {
        let common = self.0.get_or_insert_with(|| owner.clone());
        if *common == owner { Ok(()) } else { Err(OtherOwner(owner.other_than(common))) }
    }

    /// How the rights of a process differ from the common ones by now, if they do, or if they cannot be read. One that has ended has none.
    pub(super) fn changed(&self, pid: u32) -> Option<OtherOwner> {
        let common = self.0.as_ref()?;
        match Owner::of(pid) {
            Ok(owner) => (owner != *common).then(|| OtherOwner(owner.other_than(common))),
            Err(error) if has_ended(&error) => None,
            Err(error) => Some(OtherOwner(format!("they cannot be read: {error}"))),
        }
    }
}

fn has_ended(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_process_decides() {
        let own = Owner::of(std::process::id()).expect("this process");
        let mut common = CommonOwner::default();
        assert_eq!(common.changed(std::process::id()), None);
        assert_eq!(common.admit(own.clone()), Ok(()));
        assert_eq!(common.admit(own.clone()), Ok(()));
        assert_eq!(common.changed(std::process::id()), None);
        let other = Owner { users: "7 7 7 7".into(), ..own.clone() };
        let refused = common.admit(other).expect_err("another user");
        assert_eq!(refused.to_string(), format!("it has users 7 7 7 7, they have {}", own.users));
        let protected = Owner { controller: own.controller.wrapping_add(1), ..own };
        let refused = common.admit(protected).expect_err("a setuid program");
        assert!(refused.to_string().contains("setuid"), "{refused}");
    }
}
