//! Output is kept, read, followed.

use crate::support::{PATIENCE, Stage};
use std::time::Duration;
use towpath_bus::Bus;
use towpath_types::health::Probe;
use towpath_types::{ErrorCode, InstanceId};
use towpath_wire::cell::{CellCommand, CellOrder, CellReply, InstanceState};
use towpath_wire::log::{LogChunk, LogLine, LogQuery, LogSource};
use towpath_wire::subject;

pub(crate) fn query(instance: InstanceId, tail: usize, follow_ms: u64) -> CellCommand {
    CellCommand::Logs(LogQuery { instance, tail, follow_ms })
}

async fn tail(stage: &Stage, instance: InstanceId, lines: usize) -> Vec<LogLine> {
    match stage.command(&query(instance, lines, 0)).await {
        CellReply::Log { lines } => lines,
        other => panic!("{other:?}"),
    }
}

pub(crate) async fn until_logged(stage: &Stage, instance: InstanceId, text: &str) -> Vec<LogLine> {
    let search = async {
        loop {
            // Refused until the cell has heard of the instance.
            if let CellReply::Log { lines } = stage.command(&query(instance, 1000, 0)).await
                && lines.iter().any(|line| line.text.contains(text))
            {
                return lines;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, search).await.unwrap()
}

#[tokio::test]
async fn both_streams_are_kept_with_their_source_across_restarts_and_after_the_end() {
    let mut stage = Stage::new().await;
    stage.start().await;
    let spec = stage.spec(&[], "echo out; echo err >&2; printf 'no end of line'; sleep 0.2; exit 7");
    let id = spec.instance;
    stage.want(vec![spec]).await;
    let lines = until_logged(&stage, id, "exited with status 7").await;
    let find = |text: &str| {
        lines.iter().find(|line| line.text == text).unwrap_or_else(|| panic!("{text}: {lines:?}"))
    };
    assert_eq!(find("out").source, LogSource::Stdout);
    assert_eq!(find("err").source, LogSource::Stderr);
    assert_eq!(find("no end of line").source, LogSource::Stdout);
    assert!(find("out").at_ms > 1_600_000_000_000);
    let own = lines.iter().find(|line| line.source == LogSource::Cell).unwrap();
    assert!(own.text.ends_with("; starting it again at once"), "{}", own.text);
    stage.want(vec![]).await;
    stage.until_gone(id).await;
    assert!(tail(&stage, id, 1000).await.len() >= 3, "it can be read when the instance is gone");
    stage.end().await;
}

#[tokio::test]
async fn a_follower_gets_each_line_once_in_order_while_its_lease_lasts() {
    let mut stage = Stage::new().await;
    stage.start().await;
    let mut spec = stage.spec(&[], "n=0; while :; do n=$((n+1)); echo line $n; sleep 0.01; done");
    spec.health.probe = Probe::Process;
    let id = spec.instance;
    let mut chunks = stage.bus.subscribe(&subject::instance_log(id)).await.unwrap();
    stage.want(vec![spec]).await;
    stage.until_state(id, InstanceState::Ready).await;
    let reply = stage.command(&query(id, 5, 4_000)).await;
    let CellReply::Log { lines } = reply else { panic!("{reply:?}") };
    let mut last = lines.last().unwrap().text.clone();
    let mut seen = 0;
    let mut next_seq = None;
    // A second query while the first lease runs must not double anything.
    stage.command(&query(id, 0, 4_000)).await;
    while let Ok(Some(message)) = tokio::time::timeout(Duration::from_secs(6), chunks.next()).await {
        let chunk: LogChunk = towpath_wire::decode(&message.payload).unwrap();
        assert_eq!(chunk.instance, id);
        assert!(next_seq.is_none_or(|next| next == chunk.seq));
        next_seq = Some(chunk.seq + chunk.lines.len() as u64);
        for line in chunk.lines {
            let number = |text: &str| text.strip_prefix("line ").unwrap().parse::<u32>().unwrap();
            assert_eq!(number(&line.text), number(&last) + 1);
            last = line.text;
            seen += 1;
        }
    }
    assert!(seen > 10, "{seen}");
    stage.end().await;
}

#[tokio::test]
async fn unknown_instances_and_unreadable_commands_are_refused() {
    let mut stage = Stage::new().await;
    stage.start().await;
    let reply = stage.command(&query(InstanceId::mint(1, [9; 10]), 5, 0)).await;
    assert!(matches!(reply, CellReply::Refused { code: ErrorCode::NotFound, .. }), "{reply:?}");
    let cell = stage.cell.as_ref().unwrap().id();
    let answer = stage.bus.request(&subject::cell_command(cell), "nonsense".into(), PATIENCE).await.unwrap();
    let reply: CellReply = towpath_wire::decode(&answer).unwrap();
    assert!(matches!(reply, CellReply::Refused { code: ErrorCode::Malformed, .. }), "{reply:?}");
    assert_eq!(stage.command(&CellCommand::Cordon { on: true }).await, CellReply::Accepted);
    stage.until("the cordon", |a| a.cordoned).await;
    stage.stop(towpath_cell::StopMode::LeaveRunning).await;
    stage.start().await;
    stage.until("the cordon again", |a| a.cordoned && a.seq == 1).await;
    stage.end().await;
}

#[tokio::test]
async fn what_a_manager_orders_that_was_superseded_is_not_done() {
    let mut stage = Stage::new().await;
    stage.start().await;
    let cordon = |epoch, on| CellOrder { epoch, command: CellCommand::Cordon { on } };
    assert_eq!(stage.order(&cordon(900, true)).await, CellReply::Accepted);
    stage.until("the cordon", |a| a.cordoned).await;
    assert_eq!(stage.order(&cordon(899, false)).await, CellReply::Outdated { epoch: 900 });
    assert!(
        stage.order(&CellOrder { epoch: 899, command: query(InstanceId::mint(1, [9; 10]), 5, 0) }).await
            == CellReply::Outdated { epoch: 900 }
    );
    stage.until("it still holds", |a| a.cordoned).await;
    // Managers of the version before say no epoch.
    assert_eq!(stage.command(&CellCommand::Cordon { on: false }).await, CellReply::Accepted);
    stage.until("no cordon", |a| !a.cordoned).await;
    assert_eq!(stage.order(&cordon(900, true)).await, CellReply::Accepted, "the same owner again");
    stage.end().await;
}
