//! Trees, as their owners leave them and while somebody else works in them.

use super::*;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

#[test]
fn a_tree_is_copied_with_links_and_modes_and_removed_whatever_its_rights() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    fs::create_dir_all(from.join("a/b")).unwrap();
    fs::write(from.join("a/b/run"), "x").unwrap();
    set_mode(&from.join("a/b/run"), 0o755).unwrap();
    std::os::unix::fs::symlink("a/b/run", from.join("link")).unwrap();
    copy_tree(&from, &to, None).unwrap();
    assert_eq!(fs::read_link(to.join("link")).unwrap(), Path::new("a/b/run"));
    assert_eq!(fs::metadata(to.join("a/b/run")).unwrap().permissions().mode() & 0o777, 0o755);
    assert_eq!(fs::metadata(&to).unwrap().permissions().mode() & 0o777, 0o700);
    assert!(tree_size(&to) > 4096);
    set_mode(&to.join("a"), 0o000).unwrap();
    remove_tree(&to).unwrap();
    assert!(!to.exists());
    remove_tree(&to).unwrap();
}

#[test]
fn a_used_copy_is_made_as_new_and_what_is_unchanged_is_not_written() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    fs::create_dir_all(from.join("a/b")).unwrap();
    fs::create_dir_all(from.join("lost/deep")).unwrap();
    for name in ["same", "changed", "shorter", "mode", "linked", "a/b/gone", "lost/deep/file", "becomes-dir"]
    {
        fs::write(from.join(name), format!("content of {name}")).unwrap();
    }
    std::os::unix::fs::symlink("same", from.join("link")).unwrap();
    copy_tree(&from, &to, None).unwrap();
    let inode = |name: &str| fs::metadata(to.join(name)).unwrap().ino();
    let before = inode("same");
    fs::write(to.join("changed"), "CONTENT OF changed").unwrap();
    fs::write(to.join("shorter"), "").unwrap();
    set_mode(&to.join("mode"), 0o777).unwrap();
    fs::hard_link(to.join("linked"), to.join("second-name")).unwrap();
    fs::remove_file(to.join("a/b/gone")).unwrap();
    fs::remove_dir_all(to.join("lost")).unwrap();
    fs::remove_file(to.join("becomes-dir")).unwrap();
    fs::create_dir_all(to.join("becomes-dir/x")).unwrap();
    fs::remove_file(to.join("link")).unwrap();
    std::os::unix::fs::symlink("/etc", to.join("link")).unwrap();
    fs::create_dir(to.join("new")).unwrap();
    fs::write(to.join("new/file"), "x").unwrap();
    set_mode(&to.join("a"), 0o000).unwrap();
    reset_tree(&from, &to, None).unwrap();
    let listing = |root: &Path| {
        let mut found = Vec::new();
        let mut waiting = vec![PathBuf::new()];
        while let Some(dir) = waiting.pop() {
            for entry in fs::read_dir(root.join(&dir)).unwrap().flatten() {
                let path = dir.join(entry.file_name());
                let about = fs::symlink_metadata(entry.path()).unwrap();
                let content = if about.is_dir() {
                    waiting.push(path.clone());
                    String::new()
                } else if about.is_symlink() {
                    format!("-> {}", fs::read_link(entry.path()).unwrap().display())
                } else {
                    fs::read_to_string(entry.path()).unwrap()
                };
                found.push((path, about.mode(), content));
            }
        }
        found.sort();
        found
    };
    assert_eq!(listing(&to), listing(&from));
    assert_eq!(inode("same"), before);
    assert_eq!(fs::metadata(&to).unwrap().permissions().mode() & 0o777, 0o700);
}

#[test]
fn dependencies_are_shared_with_an_owner_who_cannot_change_them() {
    let dir = tempfile::tempdir().unwrap();
    let from = dir.path().join("from");
    fs::create_dir_all(from.join("node_modules/left-pad")).unwrap();
    fs::write(from.join("node_modules/left-pad/index.js"), "x").unwrap();
    fs::write(from.join("app.js"), "x").unwrap();
    let me = nix::unistd::geteuid();
    let inode = |path: PathBuf| fs::metadata(path).unwrap().ino();
    copy_tree(&from, &dir.path().join("own"), None).unwrap();
    let file = "node_modules/left-pad/index.js";
    assert_ne!(inode(dir.path().join("own").join(file)), inode(from.join(file)));
    let other = if me.is_root() { 200_000 } else { me.as_raw() };
    let to = dir.path().join("to");
    copy_tree(&from, &to, Some(other)).unwrap();
    assert_eq!(inode(to.join(file)), inode(from.join(file)));
    assert_eq!(fs::metadata(to.join(file)).unwrap().uid(), me.as_raw(), "still the cell's");
    assert_eq!(fs::metadata(to.join("app.js")).unwrap().uid(), other);
    assert_eq!(fs::metadata(to.join("node_modules/left-pad")).unwrap().uid(), other);
}

#[test]
fn json_is_replaced_whole() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.json");
    write_json(&path, &[1, 2]).unwrap();
    write_json(&path, &[3]).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "[3]");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn a_closed_parent_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    set_mode(dir.path(), 0o700).unwrap();
    assert!(!is_open_to_all(dir.path()));
    set_mode(dir.path(), 0o711).unwrap();
    assert!(is_open_to_all(dir.path()));
    assert!(free_space(dir.path()).unwrap() > 0);
}

/// Directories inside each other, far beyond the longest path that the kernel takes.
fn nest(top: &Path, depth: usize) {
    let mut here = Dir::at(top).unwrap();
    for _ in 0..depth {
        here = here.make("d".as_ref()).unwrap();
    }
    let mut file = here.create_file("bottom".as_ref()).unwrap();
    file.write_all(&[1; 8192]).unwrap();
    here.make_link("out".as_ref(), "/etc".as_ref()).unwrap();
}

/// Another user where this process may give files away, else its own.
fn other_user() -> u32 {
    let me = nix::unistd::geteuid();
    if me.is_root() { 200_000 } else { me.as_raw() }
}

#[test]
fn a_tree_deeper_than_any_path_is_measured_given_and_removed() {
    const DEPTH: usize = 5_000;
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    fs::create_dir_all(from.join("a")).unwrap();
    fs::write(from.join("a/file"), "x").unwrap();
    copy_tree(&from, &to, Some(other_user())).unwrap();
    nest(&to.join("a"), DEPTH);
    assert!(tree_size(&to) >= 8192);
    own_tree(&to, other_user()).unwrap();
    reset_tree(&from, &to, Some(other_user())).unwrap();
    assert_eq!(fs::read_dir(to.join("a")).unwrap().count(), 1);
}

/// Swaps a directory of a tree and a link that leads out of it, again and again, until it is dropped.
struct Swapper {
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Swapper {
    fn start(dir: PathBuf, one: &'static str, other: &'static str) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let work = move || {
            while !told.load(Ordering::Relaxed) {
                let (one, other) = (dir.join(one), dir.join(other));
                let flags = rustix::fs::RenameFlags::EXCHANGE;
                let _ = rustix::fs::renameat_with(rustix::fs::CWD, &one, rustix::fs::CWD, &other, flags);
            }
        };
        Self { stop, thread: Some(std::thread::spawn(work)) }
    }
}

impl Drop for Swapper {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What must not change: names, owners, modes.
fn state_of(outside: &Path) -> Vec<(PathBuf, u32, u32)> {
    let mut found = Vec::new();
    for path in ["", "secret", "closed", "closed/deep", "closed/deep/file"] {
        let about = fs::symlink_metadata(outside.join(path)).unwrap();
        found.push((path.into(), about.uid(), about.mode()));
    }
    found
}

#[test]
fn a_process_that_swaps_directories_for_links_harms_nothing_outside() {
    let dir = tempfile::tempdir().unwrap();
    let (from, outside) = (dir.path().join("from"), dir.path().join("outside"));
    fs::create_dir_all(outside.join("closed/deep")).unwrap();
    fs::write(outside.join("secret"), "s").unwrap();
    fs::write(outside.join("closed/deep/file"), "f").unwrap();
    set_mode(&outside.join("closed"), 0o500).unwrap();
    fs::create_dir_all(from.join("sub/closed/deep")).unwrap();
    for name in ["sub/secret", "sub/closed/deep/file", "sub/closed/more"] {
        fs::write(from.join(name), "other content").unwrap();
    }
    let before = state_of(&outside);
    for round in 0..25 {
        let to = dir.path().join(format!("to-{round}"));
        copy_tree(&from, &to, None).unwrap();
        for n in 0..20 {
            fs::create_dir_all(to.join(format!("sub/closed/extra-{n}"))).unwrap();
        }
        std::os::unix::fs::symlink(&outside, to.join("link")).unwrap();
        let swapper = Swapper::start(to.clone(), "sub", "link");
        // Each may fail for the changes that it meets; none may leave the tree.
        let _ = own_tree(&to, other_user());
        tree_size(&to);
        let _ = reset_tree(&from, &to, Some(other_user()));
        let _ = copy_tree(&from, &to.join("sub").join("again"), None).is_ok();
        let removed = remove_tree(&to);
        drop(swapper);
        assert!(removed.is_ok() || remove_tree(&to).is_ok(), "{removed:?}");
        let _ = fs::remove_dir_all(outside.join("again"));
    }
    assert_eq!(state_of(&outside), before);
    set_mode(&outside.join("closed"), 0o700).unwrap();
}

#[test]
fn what_others_may_write_is_copied_and_not_shared() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    fs::create_dir_all(from.join("node_modules/left-pad")).unwrap();
    let modes = [("own", 0o644), ("group", 0o664), ("world", 0o646), ("setuid", 0o4755)];
    for (name, mode) in modes {
        let path = from.join("node_modules/left-pad").join(name);
        fs::write(&path, "x").unwrap();
        set_mode(&path, mode).unwrap();
    }
    copy_tree(&from, &to, Some(other_user())).unwrap();
    let about = |root: &Path, name| fs::metadata(root.join("node_modules/left-pad").join(name)).unwrap();
    let shared = |name| about(&from, name).ino() == about(&to, name).ino();
    assert_eq!(modes.map(|(name, _)| shared(name)), [true, false, false, false]);
    assert_eq!(about(&to, "setuid").mode() & 0o7777, 0o755);
    // Nor is one kept that an earlier copy has shared.
    let world = to.join("node_modules/left-pad/world");
    fs::remove_file(&world).unwrap();
    fs::hard_link(from.join("node_modules/left-pad/world"), &world).unwrap();
    reset_tree(&from, &to, Some(other_user())).unwrap();
    assert!(shared("own") && !shared("world"));
}

#[test]
fn a_file_of_somebody_else_is_not_given_away() {
    let dir = tempfile::tempdir().unwrap();
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let (foreign, tree) = (dir.path().join("foreign"), dir.path().join("tree"));
    fs::write(&foreign, "secret").unwrap();
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("own"), "x").unwrap();
    own_tree(&tree, 200_000).unwrap();
    fs::hard_link(&foreign, tree.join("linked")).unwrap();
    own_tree(&tree, 200_001).unwrap();
    assert_eq!(fs::metadata(&foreign).unwrap().uid(), 0);
    assert_eq!(fs::metadata(tree.join("own")).unwrap().uid(), 200_001);
    assert!(!tree.join("linked").exists());
}
