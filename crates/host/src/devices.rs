//! Character devices and the version of NVIDIA's driver.

/// The major number of a name in the text of `/proc/devices`, whose first part lists the character devices.
pub(crate) fn major(list: &str, name: &str) -> Option<u32> {
    let characters = list.split("Block devices:").next()?;
    let rows = characters.lines().filter_map(|line| line.trim().split_once(' '));
    let (number, _) = rows.into_iter().find(|(_, known)| known.trim() == name)?;
    number.parse().ok()
}

/// The first number of the version of NVIDIA's driver, if it is loaded.
pub(crate) fn release() -> Option<u32> {
    let version = std::fs::read_to_string("/sys/module/nvidia/version").ok()?;
    version.split('.').next()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn majors_are_those_of_character_devices() {
        let list = "Character devices:\n  1 mem\n195 nvidia\n195 nvidiactl\n508 nvidia-uvm\n\nBlock devices:\n259 blkext\n  7 loop\n";
        let majors = ["mem", "nvidia", "nvidia-uvm", "loop", "uvm"].map(|name| major(list, name));
        assert_eq!(majors, [Some(1), Some(195), Some(508), None, None]);
    }
}
