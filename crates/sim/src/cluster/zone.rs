//! The loss of a zone: everything that stood there is replaced, at a bounded rate.

use super::world::World;
use super::{Broken, Cluster, Scale, check, clients, watched};
use std::path::Path;
use std::time::Duration;
use tokio::time::Instant;
use towpath_manager::ManagerSettings;

/// Instances of each app.
const COUNT: u32 = 60;
/// The zone that is lost.
const ZONE: &str = "zone-0";
/// Seconds' worth of starts that a manager may have saved up.
const SAVED: f64 = 4.0;
/// Windows in which starts are counted, seconds.
const WINDOWS: [f64; 4] = [1.0, 3.0, 10.0, 30.0];

/// What the loss was like.
#[derive(Debug)]
pub struct Loss {
    /// Instances that were lost.
    pub lost: usize,
    /// Starts since then.
    pub started: usize,
    /// Most starts in any second.
    pub most_in_a_second: usize,
    /// From the first start to the last, virtual seconds.
    pub spread_s: f64,
    /// From the loss until all was as wanted again, virtual seconds.
    pub settled_s: f64,
}

/// Large enough that what a manager has saved up does not cover the loss.
pub(super) fn scale() -> Scale {
    Scale { managers: 1, cells: 30, gateways: 1, apps: 20, ..Scale::default() }
}

pub(super) async fn play(seed: u64, directory: &Path) -> Result<Loss, Broken> {
    let world = World::new(seed, None);
    let scale = scale();
    let played = async {
        let cluster = Cluster::start(&world, &scale, directory);
        let wanted = clients::still(&cluster, scale.apps, COUNT).await;
        let calm = Duration::from_secs(scale.calm_s);
        check::settle(&cluster, &wanted, calm).await?;
        world.take_starts();
        let mut lost = 0;
        for cell in cluster.cells.iter().filter(|cell| cell.place().zone == ZONE) {
            lost += cell.lives().len();
            cell.kill();
        }
        world.note(format_args!("{ZONE} is lost, with {lost} instances"));
        let began = Instant::now();
        let settled_s = check::settle(&cluster, &wanted, calm).await?;
        let starts = world.take_starts();
        let starts: Vec<f64> = starts.iter().map(|at| (*at - began).as_secs_f64()).collect();
        judge(&starts, lost, settled_s, scale.managers, directory)
    };
    watched(&world, played).await
}

/// Checks that starts were bounded, and that there was something to be bounded.
fn judge(
    starts: &[f64],
    lost: usize,
    settled_s: f64,
    managers: u64,
    directory: &Path,
) -> Result<Loss, String> {
    let rate = ManagerSettings::new(directory).rollout.replaced_per_second;
    #[expect(clippy::cast_precision_loss, reason = "a handful of managers")]
    let managers = managers as f64;
    for window in WINDOWS {
        let most = most_within(starts, window);
        let permitted = managers * rate * (SAVED + window);
        #[expect(clippy::cast_precision_loss, reason = "a few thousand starts")]
        if most as f64 > permitted {
            return Err(format!(
                "{most} instances were started within {window} s, {permitted} are permitted"
            ));
        }
    }
    if starts.len() < lost {
        return Err(format!("{lost} instances were lost and {} started", starts.len()));
    }
    let spread_s = starts.last().copied().unwrap_or_default() - starts.first().copied().unwrap_or_default();
    let most_in_a_second = most_within(starts, 1.0);
    Ok(Loss { lost, started: starts.len(), most_in_a_second, spread_s, settled_s })
}

/// Most starts in any stretch of so many seconds. Starts are in order.
fn most_within(starts: &[f64], window: f64) -> usize {
    let mut first = 0;
    let mut most = 0;
    for (last, at) in starts.iter().enumerate() {
        while starts.get(first).is_some_and(|begin| at - begin >= window) {
            first += 1;
        }
        most = most.max(last + 1 - first);
    }
    most
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_storm_is_told_from_bounded_starts() {
        let directory = Path::new("/nowhere");
        let calm: Vec<f64> = (0..600_u32).map(|n| 20.0 + f64::from(n) / 128.0).collect();
        let loss = judge(&calm, 600, 30.0, 2, directory).unwrap();
        assert_eq!((loss.lost, loss.started, loss.most_in_a_second), (600, 600, 128));
        assert!(judge(&[20.0; 601], 601, 30.0, 2, directory).unwrap_err().contains("within 1 s"));
        assert!(judge(&calm, 601, 30.0, 2, directory).is_err(), "one was never replaced");
    }
}
