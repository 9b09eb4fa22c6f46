//! What needs no build: static files, programs, start commands.

use crate::bench::testbed;
use crate::support::{Yard, follow};
use std::os::unix::fs::PermissionsExt;

#[tokio::test]
async fn a_static_site_is_served_by_the_platform_itself() {
    let yard = Yard::new().await;
    let (said, result) = yard.build(&[("public/index.html", "<p>site"), ("README.md", "x")]).await;
    let result = result.unwrap();
    assert_eq!(
        (result.builder.as_str(), said.steps[1].as_str()),
        ("static", "Building with static (index.html in public)")
    );
    let answer = yard.serve(&result).await;
    assert!(answer.contains("200 OK") && answer.ends_with("<p>site"), "{answer}");
    yard.end().await;
}

#[tokio::test]
async fn a_ready_program_is_run_as_it_is() {
    let yard = Yard::new().await;
    let dir = tempfile::tempdir().unwrap();
    std::fs::copy(testbed(), dir.path().join("server")).unwrap();
    std::fs::write(dir.path().join("data.txt"), "x").unwrap();
    let source = yard.upload(dir.path());
    let result = follow(yard.submit(yard.job(source)).await).await.1.unwrap();
    assert_eq!((result.builder.as_str(), result.command.as_str()), ("binary", "exec ./server"));
    // The program serves files when it is told to.
    std::fs::write(dir.path().join("index.html"), "<p>from a program").unwrap();
    let mut job = yard.job(yard.upload(dir.path()));
    job.command = Some("./server __static .".into());
    job.builder = Some("binary".into());
    let result = follow(yard.submit(job).await).await.1.unwrap();
    assert!(yard.serve(&result).await.ends_with("<p>from a program"));
    yard.end().await;
}

#[tokio::test]
async fn a_program_for_another_processor_is_refused() {
    let yard = Yard::new().await;
    let dir = tempfile::tempdir().unwrap();
    let mut elf = vec![0; 64];
    elf[..6].copy_from_slice(b"\x7fELF\x02\x01");
    elf[18] = 8; // MIPS
    std::fs::write(dir.path().join("server"), elf).unwrap();
    std::fs::set_permissions(dir.path().join("server"), std::fs::Permissions::from_mode(0o755)).unwrap();
    let message = follow(yard.submit(yard.job(yard.upload(dir.path()))).await).await.1.unwrap_err().1;
    assert!(message.contains("another kind of processor"), "{message}");
    yard.end().await;
}

#[tokio::test]
async fn a_procfile_alone_is_enough() {
    let yard = Yard::new().await;
    let files =
        [("Procfile", "worker: ./work\nweb: python3 -m http.server --bind $HOST $PORT\n"), ("hello", "x")];
    let (said, result) = yard.build(&files).await;
    let result = result.unwrap();
    assert_eq!(result.builder, "procfile");
    assert!(said.text().contains("\"worker\" is not run"), "{}", said.text());
    assert!(yard.serve(&result).await.contains("hello"));
    yard.end().await;
}

#[tokio::test]
async fn a_given_command_beats_the_procfile_and_the_recipe() {
    let yard = Yard::new().await;
    let dir = tempfile::tempdir().unwrap();
    crate::support::write_all(
        dir.path(),
        &[("Procfile", "web: false"), ("app.py", "raise SystemExit(1)"), ("x", "")],
    );
    let mut job = yard.job(yard.upload(dir.path()));
    job.command = Some("python3 -m http.server --bind $HOST $PORT".into());
    let result = follow(yard.submit(job).await).await.1.unwrap();
    assert_eq!(result.builder, "python");
    assert!(yard.serve(&result).await.contains("200 OK"));
    yard.end().await;
}
