//! `towpath simulate cells`: many light cells against real managers. They say on the bus what cells say, and run nothing.

mod fleet;
mod light;

use crate::exit::{Exit, Failure, Outcome};
use crate::screen::Screen;
use clap::{Args, Subcommand};
use fleet::{Counts, Fleet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::Instant;
use towpath_bus::{Bus, NatsAuth, NatsBus, NatsConfig};
use towpath_types::Millis;

/// Between two looks at whether the counts have changed.
const LOOK: Duration = Duration::from_millis(200);

/// Arguments of `simulate`.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  towpath simulate cells --count 1000 --instances 100 --nats nats://10.0.0.1:4222"
)]
pub(crate) struct SimulateArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Cells that announce, ask what to run, and pretend to run it
    Cells(CellsArgs),
}

/// Arguments of `simulate cells`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  towpath simulate cells --count 1000 --instances 100 --nats nats://10.0.0.1:4222

Their instances become ready without being there: never simulate cells in a cluster that serves
anybody. A line is printed whenever the counts change; SIGTERM or Ctrl-C ends them all.")]
pub(crate) struct CellsArgs {
    /// NATS server; several may be given
    #[arg(long, value_name = "URL", env = "TOWPATH_NATS", required = true)]
    nats: Vec<String>,
    /// File with NATS credentials
    #[arg(long, value_name = "FILE", env = "TOWPATH_NATS_CREDENTIALS")]
    nats_credentials: Option<PathBuf>,
    /// How many
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    count: u32,
    /// Room for instances of usual size on each
    #[arg(long, value_name = "M", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    instances: u32,
    /// Zones over which they are spread
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    zones: u32,
    /// From the start of an instance until it is ready
    #[arg(long, value_name = "TIME", default_value = "300ms")]
    start_time: Millis,
}

impl SimulateArgs {
    pub(crate) fn run(self, screen: &Screen) -> Outcome {
        let What::Cells(args) = self.what;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| Failure::io("cannot start", &error))?;
        runtime.block_on(args.run(screen))
    }
}

impl CellsArgs {
    async fn run(self, screen: &Screen) -> Outcome {
        let listen = |kind| signal(kind).map_err(|error| Failure::io("cannot listen for signals", &error));
        let (mut terminate, mut interrupt) =
            (listen(SignalKind::terminate())?, listen(SignalKind::interrupt())?);
        let auth = self.nats_credentials.clone().map_or(NatsAuth::None, NatsAuth::CredentialsFile);
        let config = NatsConfig { urls: self.nats.clone(), auth, ..NatsConfig::new(String::new()) };
        let bus = NatsBus::connect(config).await.map_err(|error| unreachable("NATS", &error))?;
        let bus: Arc<dyn Bus> = Arc::new(bus);
        let fleet = Fleet::start(&bus, self.count, self.instances, self.zones, self.start_time.duration());
        let fleet = fleet.await.map_err(|error| unreachable("the bus", &error))?;
        let (began, mut told) = (Instant::now(), None);
        loop {
            let counts = fleet.counts();
            if told != Some(counts) {
                told = Some(counts);
                let Counts { instances, ready } = counts;
                let (at, cells) = (began.elapsed().as_secs_f64(), self.count);
                screen.line(format!("at={at:.1} cells={cells} instances={instances} ready={ready}"))?;
            }
            tokio::select! {
                () = tokio::time::sleep(LOOK) => {}
                _ = terminate.recv() => break,
                _ = interrupt.recv() => break,
            }
        }
        fleet.leave().await;
        // What was said has to be out before the process ends.
        drop(bus.flush().await);
        Ok(())
    }
}

fn unreachable(what: &str, error: &dyn std::error::Error) -> Failure {
    Failure::new(Exit::Failed, format!("{what} cannot be reached: {error}"))
}
