//! Helpers and kfuncs. Each takes its arguments from r1 to r5 and returns r0; an argument that the kernel's verifier would refuse
//! is a trap.

use super::maps::errno;
use super::memory::Kind;
use super::{BOOT_AHEAD_NS, Frame, Machine, Map, MapKind, Run, Trap};
use crate::outcome::Signal;
use codegen::bpf::helper::Helper;

/// BPF_MAX_LOOPS
const MAX_LOOPS: u64 = 8 << 20;

/// A call in progress: its arguments, and the helper's name for messages.
struct Args<'a> {
    frame: &'a Frame,
    helper: &'static str,
}

impl Args<'_> {
    fn get(&self, n: u8) -> Result<u64, Trap> {
        self.frame.get(n)
    }

    fn refuse<T>(&self, what: impl Into<String>) -> Result<T, Trap> {
        Err(Trap::Argument { helper: self.helper, what: what.into() })
    }

    /// A size argument: the verifier requires it to be small and not negative.
    fn size(&self, n: u8) -> Result<u64, Trap> {
        let size = self.get(n)?;
        if size >= 1 << 29 { self.refuse(format!("a size of {size:#x}")) } else { Ok(size) }
    }

    /// A flags argument; flags outside of `known` are refused.
    fn flags(&self, n: u8, known: u64) -> Result<u64, Trap> {
        let flags = self.get(n)?;
        if flags & !known != 0 { self.refuse(format!("flags {flags:#x}")) } else { Ok(flags) }
    }
}

fn name(id: u32) -> &'static str {
    Helper::by_number(id).map_or("a helper", Helper::name)
}

impl Machine {
    /// Calls a helper by number.
    pub(super) fn helper(&mut self, run: &mut Run, frame: &Frame, id: u32) -> Result<u64, Trap> {
        let args = Args { frame, helper: name(id) };
        let moment = run.hit.moment;
        let pair = |high: u32, low: u32| u64::from(high) << 32 | u64::from(low);
        match id {
            1 => self.lookup(&args, moment.cpu),
            2 => self.update(&args, moment.cpu),
            3 => self.delete(&args),
            5 => Ok(moment.time_ns.wrapping_sub(BOOT_AHEAD_NS)),
            7 => Ok(u64::from(self.random())),
            8 => Ok(u64::from(moment.cpu)),
            14 => Ok(pair(moment.tgid, moment.tid)),
            15 => Ok(pair(moment.gid, moment.uid)),
            16 => self.comm(run, &args),
            27 => self.stack_id(run, &args),
            42 => Ok(u64::from(moment.numa_node())),
            67 => self.get_stack(run, &args),
            80 => Ok(moment.cgroup),
            109 => self.send_signal(run, &args, false),
            112 => self.read_user(run, &args),
            113 => self.read_kernel(&args),
            114 => self.read_user_str(run, &args),
            115 => self.read_kernel_str(&args),
            117 => self.send_signal(run, &args, true),
            118 => Ok(moment.jiffies()),
            120 => self.namespace_pid(run, &args),
            125 => Ok(moment.time_ns),
            130 => self.ring_output(&args),
            131 => self.ring_reserve(&args),
            132 => self.ring_end(&args, true),
            133 => self.ring_end(&args, false),
            158 => Ok(self.task.handle.address(0)),
            164 => self.for_each(run, &args),
            174 => self.context_argument(run, &args, 1).map(|()| run.hit.cookie),
            175 => self.task_registers(&args),
            181 => self.repeat(run, &args),
            195 => self.lookup_cpu(&args),
            other => Err(Trap::Helper(other)),
        }
    }

    /// Calls a kfunc by name.
    pub(super) fn kfunc(&mut self, run: &mut Run, _frame: &Frame, name: &str) -> Result<u64, Trap> {
        match name {
            "bpf_preempt_disable" => return forbid_preemption(run, true),
            "bpf_preempt_enable" => return forbid_preemption(run, false),
            _ => {}
        }
        let session = run.hit.session.ok_or_else(|| Trap::Kfunc(format!("{name} outside of a session")));
        match name {
            "bpf_session_is_return" => session.map(|(_, is_return)| u64::from(is_return)),
            "bpf_session_cookie" => session.map(|(cookie, _)| cookie),
            other => Err(Trap::Kfunc(other.into())),
        }
    }

    fn map_argument(&self, args: &Args, n: u8) -> Result<usize, Trap> {
        let at = self.memory.find(args.get(n)?)?;
        let map = self.map_handles.iter().position(|handle| (*handle, 0) == at);
        map.map_or_else(|| args.refuse(format!("no map as argument {n}")), Ok)
    }

    fn function_argument(&self, args: &Args, n: u8) -> Result<usize, Trap> {
        let at = self.memory.find(args.get(n)?)?;
        let function = self.code_handles.iter().position(|handle| (*handle, 0) == at);
        function.map_or_else(|| args.refuse(format!("no function as argument {n}")), Ok)
    }

    fn context_argument(&self, run: &Run, args: &Args, n: u8) -> Result<(), Trap> {
        match args.get(n)? == run.context.address(0) {
            true => Ok(()),
            false => args.refuse(format!("something else than its context as argument {n}")),
        }
    }

    fn task_registers(&self, args: &Args) -> Result<u64, Trap> {
        match args.get(1)? == self.task.handle.address(0) {
            true => Ok(self.task.regs.address(0)),
            false => args.refuse("something else than a task"),
        }
    }

    fn key(&self, args: &Args, map: &Map) -> Result<Vec<u8>, Trap> {
        Ok(self.memory.read(args.get(2)?, u64::from(map.def.key_size))?.to_vec())
    }

    /// Map and key of a call. Ring buffers and stack maps are refused, since they have other helpers.
    fn keyed(&self, args: &Args) -> Result<(usize, Vec<u8>), Trap> {
        let map = self.map_argument(args, 1)?;
        if matches!(self.maps[map].def.kind, MapKind::Ring | MapKind::StackTrace) {
            return args.refuse("a map without keys of the script");
        }
        Ok((map, self.key(args, &self.maps[map])?))
    }

    fn lookup(&mut self, args: &Args, cpu: u32) -> Result<u64, Trap> {
        let (map, key) = self.keyed(args)?;
        self.maps[map].used(&key);
        Ok(self.maps[map].lookup(&key, cpu, &mut self.memory).map_or(0, |cell| cell.address(0)))
    }

    fn lookup_cpu(&mut self, args: &Args) -> Result<u64, Trap> {
        let (map, key) = self.keyed(args)?;
        if !self.maps[map].def.kind.is_per_cpu() {
            return args.refuse("a map that is not per CPU");
        }
        self.maps[map].used(&key);
        let cells = self.maps[map].lookup_all(&key, &mut self.memory);
        Ok(cells.get(args.get(3)? as u32 as usize).map_or(0, |cell| cell.address(0)))
    }

    fn update(&mut self, args: &Args, cpu: u32) -> Result<u64, Trap> {
        let (map, key) = self.keyed(args)?;
        let size = u64::from(self.maps[map].def.value_size);
        let value = self.memory.read(args.get(3)?, size)?.to_vec();
        let flags = args.get(4)?;
        let result = self.maps[map].update(&key, &value, flags, cpu, &mut self.memory);
        self.maps[map].used(&key);
        Ok(result as u64)
    }

    fn delete(&mut self, args: &Args) -> Result<u64, Trap> {
        let (map, key) = self.keyed(args)?;
        Ok(self.maps[map].delete(&key) as u64)
    }

    fn send_signal(&mut self, run: &Run, args: &Args, thread: bool) -> Result<u64, Trap> {
        let (number, moment) = (args.get(1)? as u32, run.hit.moment);
        self.signals.push(Signal { tgid: moment.tgid, tid: moment.tid, number, thread });
        Ok(0)
    }

    fn comm(&mut self, run: &Run, args: &Args) -> Result<u64, Trap> {
        let size = args.size(2)? as usize;
        let comm = run.hit.moment.comm.as_bytes();
        let mut bytes = vec![0; size];
        let len = comm.len().min(15).min(size.saturating_sub(1));
        bytes[..len].copy_from_slice(&comm[..len]);
        self.memory.write(args.get(1)?, &bytes)?;
        Ok(0)
    }

    fn stack_id(&mut self, run: &Run, args: &Args) -> Result<u64, Trap> {
        const USER: u64 = 1 << 8;
        self.context_argument(run, args, 1)?;
        let map = self.map_argument(args, 2)?;
        let flags = args.flags(3, USER | 1 << 9 | 1 << 10 | 0xff)?;
        if self.maps[map].def.kind != MapKind::StackTrace {
            return args.refuse("a map that keeps no stacks");
        }
        let moment = run.hit.moment;
        let frames = if flags & USER != 0 { &moment.user_stack } else { &moment.kernel_stack };
        let frames = frames.get((flags & 0xff) as usize..).unwrap_or_default();
        Ok(self.maps[map].stack_id(frames) as u64)
    }

    /// Writes as many addresses as fit, and returns their size in bytes.
    fn get_stack(&mut self, run: &Run, args: &Args) -> Result<u64, Trap> {
        const USER: u64 = 1 << 8;
        self.context_argument(run, args, 1)?;
        let (to, size) = (args.get(2)?, args.size(3)?);
        let flags = args.flags(4, USER | 0xff)?;
        let moment = run.hit.moment;
        let frames = if flags & USER != 0 { &moment.user_stack } else { &moment.kernel_stack };
        let kept = frames.iter().take(size as usize / 8).flat_map(|address| address.to_le_bytes());
        let mut bytes: Vec<u8> = kept.collect();
        let found = bytes.len();
        bytes.resize(size as usize, 0);
        self.memory.write(to, &bytes)?;
        Ok(if found == 0 { -errno::EFAULT as u64 } else { found as u64 })
    }

    fn read_user(&mut self, run: &Run, args: &Args) -> Result<u64, Trap> {
        let size = args.size(2)?;
        let bytes = run.hit.user.read(args.get(3)?, size);
        let result = if bytes.is_some() { 0 } else { -errno::EFAULT };
        self.memory.write(args.get(1)?, &bytes.unwrap_or_else(|| vec![0; size as usize]))?;
        Ok(result as u64)
    }

    /// Reads from the program's own memory, which must have been written.
    fn read_kernel(&mut self, args: &Args) -> Result<u64, Trap> {
        let bytes = self.memory.read(args.get(3)?, args.size(2)?)?.to_vec();
        self.memory.write(args.get(1)?, &bytes)?;
        Ok(0)
    }

    fn read_kernel_str(&mut self, args: &Args) -> Result<u64, Trap> {
        let (to, size, from) = (args.get(1)?, args.size(2)?, args.get(3)?);
        if size == 0 {
            return Ok(0);
        }
        self.memory.room(to, size)?;
        let mut text = Vec::new();
        while (text.len() as u64) < size - 1 {
            match self.memory.read(from + text.len() as u64, 1)?[0] {
                0 => break,
                byte => text.push(byte),
            }
        }
        text.push(0);
        self.memory.write(to, &text)?;
        Ok(text.len() as u64)
    }

    /// Reads a string. The kernel leaves the bytes after the NUL unchanged, so a program that relies on them is
    /// detected. On failure it zeroes the buffer.
    fn read_user_str(&mut self, run: &Run, args: &Args) -> Result<u64, Trap> {
        let (to, size) = (args.get(1)?, args.size(2)?);
        if size == 0 {
            return Ok(0);
        }
        // The whole buffer must belong to the program, even if the text is short.
        self.memory.room(to, size)?;
        let Some(mut text) = run.hit.user.read_str(args.get(3)?, size) else {
            self.memory.write(to, &vec![0; size as usize])?;
            return Ok(-errno::EFAULT as u64);
        };
        text.push(0);
        self.memory.write(to, &text)?;
        Ok(text.len() as u64)
    }

    /// There is a single pid namespace in the world.
    fn namespace_pid(&mut self, run: &Run, args: &Args) -> Result<u64, Trap> {
        if args.size(4)? != 8 {
            return args.refuse("a size other than 8");
        }
        let moment = run.hit.moment;
        let [pid, tgid] = [moment.tid, moment.tgid].map(u32::to_le_bytes);
        self.memory.write(args.get(3)?, &[pid, tgid].concat())?;
        Ok(0)
    }

    fn ring_argument(&self, args: &Args) -> Result<usize, Trap> {
        let map = self.map_argument(args, 1)?;
        match self.maps[map].def.kind {
            MapKind::Ring => Ok(map),
            _ => args.refuse("a map that is no ring buffer"),
        }
    }

    /// Reserves space for a record; false if the ring buffer is full.
    fn ring_take(&mut self, ring: usize, size: u64) -> bool {
        let ring = &mut self.maps[ring];
        let room = ring.used + Map::ring_space(size) <= u64::from(ring.def.max_entries);
        ring.used += if room { Map::ring_space(size) } else { 0 };
        room
    }

    fn ring_output(&mut self, args: &Args) -> Result<u64, Trap> {
        let (ring, size) = (self.ring_argument(args)?, args.size(3)?);
        args.flags(4, 3)?;
        let bytes = self.memory.read(args.get(2)?, size)?.to_vec();
        if !self.ring_take(ring, size) {
            return Ok(-errno::E2BIG as u64);
        }
        self.maps[ring].records.push(bytes);
        Ok(0)
    }

    fn ring_reserve(&mut self, args: &Args) -> Result<u64, Trap> {
        let (ring, size) = (self.ring_argument(args)?, args.size(2)?);
        args.flags(3, 0)?;
        if !self.ring_take(ring, size) {
            return Ok(0);
        }
        let name = format!("a record of {}", self.maps[ring].def.name);
        let record = self.memory.add(name, Kind::Record, vec![0; size as usize]);
        self.open.push((record, ring));
        Ok(record.address(0))
    }

    fn ring_end(&mut self, args: &Args, submit: bool) -> Result<u64, Trap> {
        args.flags(2, 3)?;
        let at = self.memory.find(args.get(1)?)?;
        let Some(open) = self.open.iter().position(|(record, _)| (*record, 0) == at) else {
            return args.refuse("no reserved record");
        };
        let (record, ring) = self.open.remove(open);
        let size = self.memory.bytes(record).len() as u64;
        if submit {
            let bytes = self.memory.read(record.address(0), size)?.to_vec();
            self.maps[ring].records.push(bytes);
        }
        self.memory.end(record);
        Ok(0)
    }

    fn for_each(&mut self, run: &mut Run, args: &Args) -> Result<u64, Trap> {
        let map = self.map_argument(args, 1)?;
        let function = self.function_argument(args, 2)?;
        let (data, handle) = (args.get(3)?, self.map_handles[map].address(0));
        args.flags(4, 0)?;
        if matches!(self.maps[map].def.kind, MapKind::Ring | MapKind::StackTrace) {
            return args.refuse("a map that has no elements");
        }
        let here = self.memory.add("a key", Kind::ReadOnly, vec![]);
        let mut visited = 0;
        for key in self.maps[map].visited() {
            // Keys that the loop has removed are skipped.
            let cpu = run.hit.moment.cpu;
            let Some(cell) = self.maps[map].lookup(&key, cpu, &mut self.memory) else { continue };
            self.memory.fill(here, &key);
            visited += 1;
            if self.callback(run, function, &[handle, here.address(0), cell.address(0), data])? {
                break;
            }
        }
        self.memory.end(here);
        Ok(visited)
    }

    fn repeat(&mut self, run: &mut Run, args: &Args) -> Result<u64, Trap> {
        let (count, data) = (args.get(1)?, args.get(3)?);
        let function = self.function_argument(args, 2)?;
        args.flags(4, 0)?;
        if count > MAX_LOOPS {
            return Ok(-errno::E2BIG as u64);
        }
        for index in 0..count {
            if self.callback(run, function, &[index, data])? {
                return Ok(index + 1);
            }
        }
        Ok(count)
    }

    /// Whether the callback ends the loop.
    fn callback(&mut self, run: &mut Run, function: usize, args: &[u64]) -> Result<bool, Trap> {
        match self.call(run, function, args)? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(Trap::Callback(other)),
        }
    }

    /// Adds the session cookie of a call, 8 bytes, and returns its address.
    pub fn session_cookie(&mut self) -> u64 {
        self.memory.add("the session cookie", Kind::Value, vec![0; 8]).address(0)
    }
}
/// Disables or enables preemption; both must alternate.
fn forbid_preemption(run: &mut Run, forbid: bool) -> Result<u64, Trap> {
    match std::mem::replace(&mut run.preemption_forbidden, forbid) == forbid {
        true => Err(Trap::Preemption),
        false => Ok(0),
    }
}
