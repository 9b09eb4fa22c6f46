//! What `/proc` says of processes. Every reader returns `None` for a process that has gone meanwhile.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};

/// A process that cannot be mistaken for a later one with the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct ProcessRef {
    /// Its number.
    pub(crate) pid: u32,
    /// Field 22 of its `stat`: clock ticks from boot to its start.
    pub(crate) start: u64,
}

impl ProcessRef {
    /// The process that has this number now.
    pub(crate) fn of(pid: u32) -> Option<Self> {
        Some(Self { pid, start: stat(pid)?.start })
    }

    /// Whether this very process is there and not a zombie.
    pub(crate) fn is_alive(self) -> bool {
        stat(self.pid).is_some_and(|now| now.start == self.start && now.state != b'Z' && now.state != b'X')
    }
}

/// The fields of `/proc/<pid>/stat` that are used here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stat {
    pub(crate) state: u8,
    pub(crate) parent: u32,
    /// Own and reaped children's CPU time, user and kernel, in clock ticks.
    pub(crate) ticks: u64,
    pub(crate) start: u64,
}

fn parse_stat(text: &str) -> Option<Stat> {
    // The command is in parentheses and may hold spaces and parentheses itself: the fields begin after the last one.
    let fields: Vec<&str> = text.get(text.rfind(')')? + 1..)?.split_ascii_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    Some(Stat {
        state: *fields.first()?.as_bytes().first()?,
        parent: u32::try_from(number(1)?).ok()?,
        ticks: number(11)? + number(12)? + number(13)? + number(14)?,
        start: number(19)?,
    })
}

fn file(pid: u32, name: &str) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/{name}"))
}

/// `/proc/<pid>/stat`.
pub(crate) fn stat(pid: u32) -> Option<Stat> {
    parse_stat(&String::from_utf8_lossy(&std::fs::read(file(pid, "stat")).ok()?))
}

/// Whether a signal has stopped it (a debugger that holds it is another state).
pub(crate) fn is_stopped(pid: u32) -> bool {
    stat(pid).is_some_and(|now| now.state == b'T')
}

/// Numbers of all processes.
pub(crate) fn pids() -> Vec<u32> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// All processes with their `stat`.
pub(crate) fn all_stats() -> HashMap<u32, Stat> {
    pids().into_iter().filter_map(|pid| Some((pid, stat(pid)?))).collect()
}

/// `root` and all that descends from it, from a look at all processes.
pub(crate) fn tree_in(stats: &HashMap<u32, Stat>, roots: &[u32]) -> HashMap<u32, Vec<u32>> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    for (pid, stat) in stats {
        children.entry(stat.parent).or_default().push(*pid);
    }
    let below = |root: u32| {
        let (mut found, mut at) = (vec![root], 0);
        while let Some(pid) = found.get(at).copied() {
            found.extend(children.get(&pid).into_iter().flatten().filter(|child| **child != root));
            at += 1;
        }
        found
    };
    roots.iter().map(|root| (*root, below(*root))).collect()
}

/// The descendants of a process, itself not among them, without a look at unrelated processes.
pub(crate) fn descendants(root: u32) -> Vec<u32> {
    let (mut found, mut seen, mut waiting) = (Vec::new(), BTreeSet::from([root]), vec![root]);
    while let Some(pid) = waiting.pop() {
        for child in children(pid) {
            if seen.insert(child) {
                found.push(child);
                waiting.push(child);
            }
        }
    }
    found
}

/// Children of all threads of the process; without the kernel's help, by a look at all processes.
fn children(pid: u32) -> Vec<u32> {
    if !Path::new("/proc/thread-self/children").exists() {
        let is_child = |(child, stat): (u32, Stat)| (stat.parent == pid).then_some(child);
        return all_stats().into_iter().filter_map(is_child).collect();
    }
    let Ok(threads) = std::fs::read_dir(file(pid, "task")) else { return Vec::new() };
    let lists =
        threads.flatten().filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
    lists
        .flat_map(|list| list.split_ascii_whitespace().filter_map(|n| n.parse().ok()).collect::<Vec<u32>>())
        .collect()
}

/// Resident memory in bytes, shared pages included.
pub(crate) fn resident(pid: u32) -> Option<u64> {
    let text = std::fs::read_to_string(file(pid, "statm")).ok()?;
    Some(text.split_ascii_whitespace().nth(1)?.parse::<u64>().ok()? * page_size())
}

/// Resident memory in bytes, each shared page divided by the number of its users. Costs a walk over the page tables.
pub(crate) fn proportional(pid: u32) -> Option<u64> {
    let text = std::fs::read_to_string(file(pid, "smaps_rollup")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

/// Memory of a tree: what one process has resident; of several, who share pages, the proportional sum.
pub(crate) fn tree_memory(pids: &[u32]) -> u64 {
    match pids {
        [one] => resident(*one).unwrap_or(0),
        many => many.iter().filter_map(|pid| proportional(*pid).or_else(|| resident(*pid))).sum(),
    }
}

/// Bytes read from and written to block devices.
pub(crate) fn block_io(pid: u32) -> Option<u64> {
    let text = std::fs::read_to_string(file(pid, "io")).ok()?;
    let field = |name: &str| text.lines().find_map(|l| l.strip_prefix(name)?.trim().parse::<u64>().ok());
    Some(field("read_bytes:")? + field("write_bytes:")?)
}

/// The words of its command line.
pub(crate) fn command_line(pid: u32) -> Option<Vec<Vec<u8>>> {
    let text = std::fs::read(file(pid, "cmdline")).ok()?;
    Some(text.split(|b| *b == 0).map(<[u8]>::to_vec).collect())
}

/// Whether its first environment has exactly this `KEY=value`.
pub(crate) fn has_environment(pid: u32, entry: &str) -> bool {
    std::fs::read(file(pid, "environ"))
        .is_ok_and(|env| env.split(|b| *b == 0).any(|found| found == entry.as_bytes()))
}

/// The user that it runs as.
pub(crate) fn user(pid: u32) -> Option<u32> {
    use std::os::unix::fs::MetadataExt;
    Some(std::fs::metadata(format!("/proc/{pid}")).ok()?.uid())
}

/// Users of all processes.
pub(crate) fn busy_users() -> BTreeSet<u32> {
    pids().into_iter().filter_map(user).collect()
}

/// Which boot of the machine this is: start times of processes are only comparable inside one.
pub(crate) fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

/// Bytes in a page.
pub(crate) fn page_size() -> u64 {
    nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE)
        .ok()
        .flatten()
        .and_then(|n| u64::try_from(n).ok())
        .unwrap_or(4096)
}

/// Clock ticks in a second.
pub(crate) fn ticks_per_second() -> u64 {
    nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK)
        .ok()
        .flatten()
        .and_then(|n| u64::try_from(n).ok())
        .unwrap_or(100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_with_spaces_and_parentheses_does_not_shift_the_fields() {
        let line = "42 (a) b) (c) S 7 42 42 0 -1 4194560 1 2 3 4 10 20 30 40 20 0 1 0 987654 1 2";
        assert_eq!(parse_stat(line), Some(Stat { state: b'S', parent: 7, ticks: 100, start: 987_654 }));
        assert_eq!(parse_stat("42 (x"), None);
        assert_eq!(parse_stat("42 (x) S 1"), None);
    }

    #[test]
    fn a_process_with_another_start_time_is_another_process() {
        let me = ProcessRef::of(std::process::id()).unwrap();
        assert!(me.is_alive());
        assert!(!ProcessRef { start: me.start + 1, ..me }.is_alive());
    }

    #[test]
    fn trees_are_found_and_loops_do_not_hang() {
        let stat = |parent| Stat { state: b'S', parent, ticks: 0, start: 0 };
        let stats = HashMap::from([(2, stat(1)), (3, stat(2)), (4, stat(2)), (5, stat(1)), (6, stat(6))]);
        let trees = tree_in(&stats, &[2, 6]);
        let mut tree = trees[&2].clone();
        tree.sort_unstable();
        assert_eq!(tree, [2, 3, 4]);
        assert_eq!(trees[&6], [6]);
    }

    #[test]
    fn own_children_are_descendants() {
        let mut child = std::process::Command::new("sleep").arg("30").spawn().unwrap();
        let found = descendants(std::process::id());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(found.contains(&child.id()));
    }

    #[test]
    fn memory_of_oneself_is_read_both_ways() {
        let pid = std::process::id();
        assert!(resident(pid).unwrap() > 0);
        assert!(proportional(pid).unwrap() > 0);
        assert!(tree_memory(&[pid]) > 0);
    }
}
