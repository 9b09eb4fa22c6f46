//! How many commits a second a store takes from many clients at once:
//! `cargo run --release -p towpath-store --example throughput -- store.db 64 5`
//! `cargo run --release -p towpath-store --example throughput -- postgres://user@host/database 64 5`
//! (clients, seconds). Each client writes the status of a resource of its own.
#![allow(clippy::print_stdout, reason = "an example that prints its result")]

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};
use towpath_store::{Expect, PostgresConfig, PostgresStore, SqliteStore, Store, Transaction, Write};
use towpath_types::Kind;
use towpath_types::resource::Key;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let place = arguments.next().ok_or("where is the store? a file or a postgres:// URL")?;
    let clients: u64 = arguments.next().map_or(Ok(64), |text| text.parse())?;
    let seconds: u64 = arguments.next().map_or(Ok(5), |text| text.parse())?;
    let store: Arc<dyn Store> = if place.starts_with("postgres") {
        Arc::new(PostgresStore::connect(PostgresConfig::new(place)).await?)
    } else {
        Arc::new(SqliteStore::open(place).await?)
    };
    let end = Instant::now() + Duration::from_secs(seconds);
    let tasks: Vec<_> = (0..clients).map(|client| tokio::spawn(run(store.clone(), client, end))).collect();
    let mut waits = Vec::new();
    for task in tasks {
        waits.extend(task.await?.map_err(|error| error.to_string())?);
    }
    waits.sort_unstable();
    let at = |part: f64| waits.get((waits.len() as f64 * part) as usize).copied().unwrap_or_default();
    println!(
        "clients={clients} commits_per_second={} p50_ms={:.2} p99_ms={:.2}",
        waits.len() as u64 / seconds.max(1),
        at(0.5).as_secs_f64() * 1000.0,
        at(0.99).as_secs_f64() * 1000.0
    );
    Ok(())
}

async fn run(
    store: Arc<dyn Store>,
    client: u64,
    end: Instant,
) -> Result<Vec<Duration>, towpath_store::StoreError> {
    let key = Key { kind: Kind::Group, org: None, space: None, name: format!("client-{client}") };
    let mut waits = Vec::new();
    for number in 0_u64.. {
        let begin = Instant::now();
        if begin >= end {
            break;
        }
        let id = format!("throughput-{client}");
        let status = Some(serde_json::json!({ "number": number, "run": std::process::id() }));
        let write = Write::Put { key: key.clone(), id, expect: Expect::Any, spec: None, status };
        store.commit(Transaction { writes: vec![write], fence: None, idempotency: None }).await?;
        waits.push(begin.elapsed());
    }
    Ok(waits)
}
