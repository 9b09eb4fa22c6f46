//! From the path of a request to a file of the site.

use std::path::{Path, PathBuf};

/// What a path leads to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// A file inside the site, without links.
    File(PathBuf),
    /// A directory: the same path with a slash at its end.
    Slash(String),
    /// Nothing.
    Missing,
}

/// Finds what `path` (as in the request, percent-encoded) leads to. Blocks.
pub(super) fn resolve(root: &Path, path: &str) -> Target {
    let Some(parts) = parts(path) else { return Target::Missing };
    let wanted: PathBuf =
        std::iter::once(root.to_path_buf()).chain(parts.iter().map(PathBuf::from)).collect();
    let slash = path.ends_with('/');
    if let Some(found) = inside(root, &wanted) {
        if found.is_file() && !slash {
            return Target::File(found);
        }
        if found.is_dir() {
            let index = inside(root, &wanted.join("index.html")).filter(|index| index.is_file());
            return match index {
                Some(index) if slash || parts.is_empty() => Target::File(index),
                // One slash at the beginning: two would name another host.
                Some(_) => Target::Slash(format!("/{}/", path.trim_matches('/'))),
                None => Target::Missing,
            };
        }
    }
    let page = wanted.file_name().map(|name| {
        let mut name = name.to_os_string();
        name.push(".html");
        wanted.with_file_name(name)
    });
    let page = page.filter(|_| !slash && !parts.is_empty()).and_then(|page| inside(root, &page));
    page.filter(|page| page.is_file()).map_or(Target::Missing, Target::File)
}

/// The real path, if it is inside the root.
pub(super) fn inside(root: &Path, path: &Path) -> Option<PathBuf> {
    let real = path.canonicalize().ok()?;
    real.starts_with(root).then_some(real)
}

/// The decoded parts of a path; `None` if one of them may not be served.
fn parts(path: &str) -> Option<Vec<String>> {
    let mut parts = Vec::new();
    for part in path.split('/').filter(|part| !part.is_empty()) {
        let part = decode(part)?;
        let hidden = part.starts_with('.') && !(parts.is_empty() && part == ".well-known");
        if hidden || part.contains(['/', '\0']) {
            return None;
        }
        parts.push(part);
    }
    Some(parts)
}

/// Decodes `%41`; `None` if it is no UTF-8 then.
fn decode(part: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(part.len());
    let mut rest = part.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || rest.next().and_then(|b| char::from(b).to_digit(16));
        let value = digit()? * 16 + digit()?;
        bytes.push(u8::try_from(value).ok()?);
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn paths_lead_to_files_of_the_site_and_nowhere_else() {
        let outer = tempfile::tempdir().unwrap();
        let root = outer.path().canonicalize().unwrap().join("site");
        fs::create_dir_all(root.join("a b/c")).unwrap();
        fs::create_dir_all(root.join(".well-known")).unwrap();
        for file in
            ["index.html", "a b/index.html", "a b/x.txt", "about.html", ".env", ".well-known/t", "../secret"]
        {
            fs::write(root.join(file), file).unwrap();
        }
        std::os::unix::fs::symlink("../secret", root.join("out")).unwrap();
        std::os::unix::fs::symlink("a b/x.txt", root.join("in")).unwrap();
        std::os::unix::fs::symlink("/etc", root.join("etc")).unwrap();
        let file = |path: &str| Target::File(root.join(path));
        for (path, target) in [
            ("/", file("index.html")),
            ("/a%20b/", file("a b/index.html")),
            ("/a%20b", Target::Slash("/a%20b/".into())),
            ("//a%20b", Target::Slash("/a%20b/".into())),
            ("/a%20b/x.txt", file("a b/x.txt")),
            ("/about", file("about.html")),
            ("/in", file("a b/x.txt")),
            ("/.well-known/t", file(".well-known/t")),
        ] {
            assert_eq!(resolve(&root, path), target, "{path}");
        }
        for path in [
            "/../secret",
            "/%2e%2e/secret",
            "/a%20b/../../secret",
            "/..%2fsecret",
            "/out",
            "/etc/passwd",
            "/.env",
            "/a%00",
            "/%",
            "/%f",
            "/%zz",
            "/%ff",
            "/a%20b/c/",
            "/about/",
            "/none",
            "/a%20b/.well-known/t",
            "/index.html/",
        ] {
            assert_eq!(resolve(&root, path), Target::Missing, "{path}");
        }
    }
}
