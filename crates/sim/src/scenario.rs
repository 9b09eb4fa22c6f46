//! What is simulated: instances, hosts, clients.

use towpath_types::upstream::Balancer;

/// A study of one balancer.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// The same seed gives the same hosts, arrivals and work, whatever the balancer.
    pub seed: u64,
    /// The one that is studied.
    pub balancer: Balancer,
    /// Instances.
    pub instances: usize,
    /// So many of them are slower,
    pub slow: usize,
    /// by this factor.
    pub slowness: f64,
    /// Instances on one host.
    pub per_host: usize,
    /// Requests that an instance works on at once; others wait in its queue.
    pub workers: usize,
    /// Work of a request at full speed, seconds, on average; exponentially distributed.
    pub work: f64,
    /// Gateways, each with its own view.
    pub gateways: usize,
    /// Arriving work as a share of what all instances together can do.
    pub utilisation: f64,
    /// Virtual seconds that are not measured, and that are.
    pub warm_up: f64,
    /// Measured virtual seconds.
    pub measured: f64,
    /// Seconds between load reports.
    pub report_interval: f64,
}

impl Scenario {
    /// 20 instances of which 2 are 5 times slower, unevenly busy hosts, 80 % busy, three gateways, a report every 2 s.
    pub fn standard(seed: u64, balancer: Balancer) -> Self {
        Self {
            seed,
            balancer,
            instances: 20,
            slow: 2,
            slowness: 5.0,
            per_host: 2,
            workers: 4,
            work: 0.010,
            gateways: 3,
            utilisation: 0.8,
            warm_up: 20.0,
            measured: 40.0,
            report_interval: 2.0,
        }
    }
}

/// An instance as it is.
#[derive(Debug, Clone)]
pub struct Instance {
    /// Work per second of one worker, 1 = full speed.
    pub speed: f64,
    /// One of the slow ones.
    pub slow: bool,
    /// CPU share that others take of its host.
    pub host_busy: f64,
    /// Memory shares of host and instance.
    pub memory: (f32, f32),
}

/// The instances of a scenario.
pub fn instances(scenario: &Scenario) -> Vec<Instance> {
    let mut rng = fastrand::Rng::with_seed(scenario.seed ^ 0x1057);
    let hosts = scenario.instances.div_ceil(scenario.per_host.max(1));
    let busy: Vec<f64> = (0..hosts).map(|_| rng.f64() * 0.7).collect();
    let memory: Vec<f32> = (0..hosts).map(|_| 0.2 + 0.6 * rng.f32()).collect();
    let mut all: Vec<Instance> = (0..scenario.instances)
        .map(|n| {
            let host = n / scenario.per_host.max(1);
            let host_busy = busy.get(host).copied().unwrap_or_default();
            let memory = (memory.get(host).copied().unwrap_or_default(), 0.2 + 0.5 * rng.f32());
            Instance { speed: 1.0 - 0.6 * host_busy, slow: false, host_busy, memory }
        })
        .collect();
    let mut order: Vec<usize> = (0..all.len()).collect();
    rng.shuffle(&mut order);
    for at in order.into_iter().take(scenario.slow) {
        if let Some(instance) = all.get_mut(at) {
            instance.speed /= scenario.slowness;
            instance.slow = true;
        }
    }
    all
}
