//! What stands in an app's directory: `towpath.toml`, `manifest.yml`, `Procfile`. Reading ends with manifests or with problems that
//! name their file, and never otherwise.
#![no_main]
// The binary has no library: its readers are compiled in here.
#![allow(dead_code, unused_imports, unreachable_pub)]

use libfuzzer_sys::fuzz_target;
use std::cell::OnceCell;

#[path = "../../crates/towpath/src"]
mod readers {
    pub(crate) mod document;
    pub(crate) mod manifest;
    pub(crate) mod suggest;
}
use readers::{document, manifest, suggest};

mod exit {
    pub(crate) fn reason(error: &std::io::Error) -> String {
        error.to_string()
    }
}

thread_local! {
    static FOLDER: OnceCell<tempfile::TempDir> = const { OnceCell::new() };
}

fuzz_target!(|input: (u8, &[u8])| {
    let names: &[&str] = match input.0 % 4 {
        0 => &["towpath.toml"],
        1 => &["manifest.yml"],
        2 => &["Procfile"],
        _ => &["towpath.toml", "Procfile"],
    };
    FOLDER.with(|folder| {
        let folder = folder.get_or_init(|| tempfile::tempdir().expect("a folder")).path();
        for name in names {
            std::fs::write(folder.join(name), input.1).expect("the folder can be written");
        }
        match manifest::load::load(folder, None) {
            Ok(found) => assert!(
                found.iter().all(|one| one.name.as_ref().is_none_or(|name| !name.as_str().is_empty()))
            ),
            Err(problems) => {
                assert!(!problems.is_empty());
                for problem in problems {
                    assert!(names.iter().any(|name| problem.to_string().starts_with(name)), "{problem}");
                }
            }
        }
        for name in names {
            std::fs::remove_file(folder.join(name)).expect("the folder can be written");
        }
    });
});
