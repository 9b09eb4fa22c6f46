//! Builds that go wrong, and say why.

use crate::support::{Yard, follow, write_all};
use towpath_types::{AppName, Digest, ErrorCode, Millis};
use towpath_wire::cell::{CellCommand, CellReply};
use towpath_wire::staging::{StageEvent, StageJob, StageOutput};

/// A source whose build runs a shell script.
fn script(yard: &Yard, script: &str) -> StageJob {
    let dir = tempfile::tempdir().unwrap();
    let package = r#"{"name": "x", "scripts": {"build": "exec bash build.sh"}}"#;
    write_all(dir.path(), &[("package.json", package), ("build.sh", script), ("index.js", "")]);
    yard.job(yard.upload(dir.path()))
}

#[tokio::test]
async fn what_no_builder_knows_is_refused_with_a_list() {
    let yard = Yard::new().await;
    let (code, message) = yard.build(&[("notes.txt", "x"), ("b/c", "x")]).await.1.unwrap_err();
    assert_eq!(code, ErrorCode::NoBuilder);
    for part in ["requirements.txt", "package.json", "Procfile", "b, notes.txt\n"] {
        assert!(message.contains(part), "{part}: {message}");
    }
    let mut job = yard.job(yard.upload(tempfile::tempdir().unwrap().path()));
    job.builder = Some("cobol".into());
    let (code, message) = follow(yard.submit(job).await).await.1.unwrap_err();
    assert_eq!(code, ErrorCode::NoBuilder);
    assert!(message.contains("no builder \"cobol\"") && message.contains("python, node"), "{message}");
    yard.end().await;
}

#[tokio::test]
async fn a_missing_tool_is_named_with_the_way_to_get_it() {
    let yard = Yard::with(|settings| settings.path = "/nowhere".into()).await;
    for (file, package) in [
        ("pom.xml", "default-jre"),
        ("package.json", "nodejs"),
        ("app.py", "python3"),
        ("go.mod", "golang-go"),
    ] {
        let (code, message) = yard.build(&[(file, "{}"), ("main.go", "package main")]).await.1.unwrap_err();
        assert_eq!(code, ErrorCode::ToolMissing, "{message}");
        assert!(message.contains(&format!("apt-get install {package}")), "{message}");
    }
    yard.end().await;
}

#[tokio::test]
async fn a_failed_build_tells_status_and_last_lines() {
    let yard = Yard::new().await;
    if yard.can("node").await {
        let job = script(&yard, "for i in $(seq 100); do echo line $i; done; echo the reason >&2; exit 7");
        let (said, result) = follow(yard.submit(job).await).await;
        let (code, message) = result.unwrap_err();
        assert_eq!(code, ErrorCode::BuildFailed);
        assert!(message.contains("npm ended with status 7") && message.contains("the reason"), "{message}");
        assert!(!message.contains("line 50\n"), "{message}");
        assert!(said.text().contains("line 50"));
        let job = script(&yard, "kill -SEGV $$");
        assert!(follow(yard.submit(job).await).await.1.unwrap_err().1.contains("npm"));
    }
    yard.end().await;
}

#[tokio::test]
async fn sources_that_are_not_what_they_should_be_are_refused() {
    let yard = Yard::new().await;
    let (missing, broken, other) =
        (Digest::from_bytes([1; 32]), Digest::from_bytes([2; 32]), Digest::from_bytes([3; 32]));
    yard.store_source(broken, b"this is no archive".to_vec());
    let dir = tempfile::tempdir().unwrap();
    let good = yard.upload(dir.path());
    let bytes = yard.stored.lock().unwrap()[&format!("/internal/v1/sources/{good}")].to_vec();
    yard.store_source(other, bytes);
    for (source, expected) in
        [(missing, ErrorCode::NotFound), (broken, ErrorCode::BadArchive), (other, ErrorCode::BadArchive)]
    {
        let (code, message) = follow(yard.submit(yard.job(source)).await).await.1.unwrap_err();
        assert_eq!(code, expected, "{message}");
    }
    yard.end().await;
}

#[tokio::test]
async fn a_build_that_takes_too_long_is_ended_with_all_that_it_started() {
    let yard = Yard::new().await;
    if yard.can("node").await {
        let mark = format!("{}.5", fastrand::u32(1_000_000..));
        let mut job =
            script(&yard, &format!("setsid sleep {mark} & (trap '' TERM; sleep {mark}) & sleep {mark}"));
        job.timeout = Millis::secs(3);
        let (said, result) = follow(yard.submit(job).await).await;
        let (code, message) = result.unwrap_err();
        assert_eq!(code, ErrorCode::BuildTimeout);
        assert!(message.contains("after 3 s"), "{message}");
        assert!(said.alive >= 1, "signs of life while nothing is said");
        assert_eq!(processes_with(&mark), Vec::<String>::new());
    }
    yard.end().await;
}

#[tokio::test]
async fn a_daemon_that_a_build_leaves_behind_is_ended_with_it() {
    let yard = Yard::new().await;
    if yard.can("node").await {
        let mark = format!("{}.25", fastrand::u32(1_000_000..));
        let daemon = format!("setsid nohup sleep {mark} >/dev/null 2>&1 < /dev/null & disown; echo started");
        let (said, result) = follow(yard.submit(script(&yard, &daemon)).await).await;
        assert!(result.is_ok() && said.text().contains("started"));
        assert_eq!(processes_with(&mark), Vec::<String>::new());
    }
    yard.end().await;
}

#[tokio::test]
async fn a_cancelled_build_ends_at_once_and_its_slot_is_free() {
    let yard = Yard::new().await;
    if yard.can("node").await {
        let job = script(&yard, "echo begun; sleep 1000");
        let (operation, mut output) = (job.operation, yard.submit(job.clone()).await);
        loop {
            let event: StageEvent = towpath_wire::decode(&output.next().await.unwrap().payload).unwrap();
            if matches!(event.event, StageOutput::Line { text } if text == "begun") {
                break;
            }
        }
        // The same operation again is the same build; another one waits.
        assert_eq!(yard.stage.command(&CellCommand::Stage(job)).await, CellReply::Accepted);
        let waiting = yard.submit(script(&yard, "echo second")).await;
        assert_eq!(yard.stage.command(&CellCommand::CancelStage { operation }).await, CellReply::Accepted);
        let last = loop {
            let event: StageEvent = towpath_wire::decode(&output.next().await.unwrap().payload).unwrap();
            if let StageOutput::Failed { code, .. } = event.event {
                break code;
            }
        };
        assert_eq!(last, ErrorCode::Superseded);
        let (said, result) = follow(waiting).await;
        assert!(result.is_ok());
        assert_eq!(said.steps[0], "Waiting for other builds on this cell");
    }
    yard.end().await;
}

#[tokio::test]
async fn a_cell_that_stops_ends_its_builds_and_says_so() {
    let mut yard = Yard::new().await;
    if yard.can("node").await {
        let mark = format!("{}.75", fastrand::u32(1_000_000..));
        let mut output = yard.submit(script(&yard, &format!("echo begun; sleep {mark}"))).await;
        loop {
            let event: StageEvent = towpath_wire::decode(&output.next().await.unwrap().payload).unwrap();
            if matches!(event.event, StageOutput::Line { text } if text == "begun") {
                break;
            }
        }
        yard.stage.stop(towpath_cell::StopMode::LeaveRunning).await;
        let (code, _) = follow(output).await.1.unwrap_err();
        assert_eq!(code, ErrorCode::Busy);
        assert_eq!(processes_with(&mark), Vec::<String>::new());
        yard.stage.start().await;
    }
    yard.end().await;
}

#[tokio::test]
async fn floods_colours_and_binary_output_become_a_bounded_number_of_lines() {
    let yard = Yard::new().await;
    if yard.can("node").await {
        let flood = r"printf '\033[31mred\033[0m\n'; printf '10%%\r50%%\r100%%\n'; head -c 300000 /dev/urandom; echo; yes flood | head -c 20000000; head -c 5000000 /dev/zero | tr '\0' x; echo; echo last";
        let began = std::time::Instant::now();
        let (said, result) = follow(yard.submit(script(&yard, flood)).await).await;
        result.unwrap();
        assert!(said.lines.iter().any(|line| line == "red") && said.lines.iter().any(|line| line == "100%"));
        // 5,000 at once and 1,000 a second, of more than four million, however long the machine takes.
        let most = 10_000 + 1_000 * usize::try_from(began.elapsed().as_secs()).unwrap();
        assert!(said.lines.len() < most, "{} lines, at most {most}", said.lines.len());
        assert!(said.text().contains("lines left out"));
    }
    yard.end().await;
}

#[tokio::test]
async fn many_apps_are_built_one_after_another() {
    let yard = Yard::new().await;
    let dir = tempfile::tempdir().unwrap();
    write_all(dir.path(), &[("index.html", "x")]);
    let source = yard.upload(dir.path());
    let mut outputs = Vec::new();
    for n in 0..12 {
        let mut job = yard.job(source);
        job.app.app = AppName::new(&format!("app{n}")).unwrap();
        outputs.push(yard.submit(job).await);
    }
    for output in outputs {
        assert!(follow(output).await.1.is_ok());
    }
    let builds = yard.stage.dir.path().join("data/run/builds");
    assert_eq!(std::fs::read_dir(builds).unwrap().count(), 0, "nothing is left of a build");
    yard.end().await;
}

/// Command lines of living processes that contain the text.
fn processes_with(text: &str) -> Vec<String> {
    let pids = std::fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter(|e| e.file_name().to_string_lossy().parse::<u32>().is_ok());
    let lines = pids.filter_map(|e| std::fs::read(e.path().join("cmdline")).ok());
    let lines = lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
    lines.filter(|line| line.starts_with("sleep") && line.contains(text)).collect()
}
