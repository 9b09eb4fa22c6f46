//! Several servers as one bus, plain or encrypted with keys. Each client is at a server of its own, so that what one says
//! to another passes between servers.

use crate::rig::{Rig, SOON, answer, until};
use async_trait::async_trait;
use bytes::Bytes;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::watch;
use towpath_bus::{Bus, BusError, BusState, NatsAuth, NatsBus, NatsConfig, NatsTls, Subscription};
use towpath_testkit::tls::Authority;
use towpath_testkit::{NatsCluster, NatsOptions, nats};

/// What kind of servers.
#[derive(Default, Clone, Copy)]
pub(crate) struct Make {
    pub(crate) servers: usize,
    /// Encrypted, with certificates on both sides, and clients known by their nkeys.
    pub(crate) secure: bool,
    /// A newer version than the system's.
    pub(crate) newer: bool,
}

pub(crate) struct ClusterRig {
    cluster: NatsCluster,
    usual: NatsConfig,
    /// One client at each server that answers whoever asks.
    posts: Vec<Arc<NatsBus>>,
    clients: Mutex<Vec<Arc<Settled>>>,
    next: AtomicUsize,
}

impl ClusterRig {
    pub(crate) async fn start(make: Make) -> Self {
        let mut options = NatsOptions {
            jetstream: true,
            program: make.newer.then(nats::newer_server),
            ..NatsOptions::default()
        };
        let mut usual = NatsConfig::new("");
        if make.secure {
            secure(&mut options);
        }
        let cluster = NatsCluster::start_with(make.servers, &options);
        if make.secure {
            let path = |name: &str| cluster.server(0).directory().join(name);
            usual.auth = NatsAuth::NkeyFile(path("client.nk"));
            let certificate = Some((path("client.pem"), path("client.key")));
            usual.tls = NatsTls { required: true, ca: Some(path("ca.pem")), certificate };
        }
        let mut posts = Vec::new();
        for (number, url) in cluster.urls().into_iter().enumerate() {
            let bus =
                Arc::new(NatsBus::connect(NatsConfig { urls: vec![url], ..usual.clone() }).await.unwrap());
            answer(bus.clone(), bus.subscribe(&post(number)).await.unwrap(), "");
            posts.push(bus);
        }
        Self { cluster, usual, posts, clients: Mutex::default(), next: AtomicUsize::new(0) }
    }
}

/// Certificates for servers and clients, and a user with an nkey.
fn secure(options: &mut NatsOptions) {
    let authority = Authority::new();
    let (server, client) = (authority.issue(&["127.0.0.1"]), authority.issue(&["client"]));
    let user = nkeys::KeyPair::new_user();
    let tls = "cert_file: \"$DIR/server.pem\", key_file: \"$DIR/server.key\", ca_file: \"$DIR/ca.pem\", verify: true";
    options.config = format!(
        "tls {{ {tls} }}\nauthorization {{ users: [ {{ nkey: \"{}\" }} ] }}\n{}",
        user.public_key(),
        options.config
    );
    let file = |name: &str, content: String| (name.to_owned(), content);
    options.files = vec![
        file("ca.pem", authority.pem()),
        file("server.pem", server.certificate),
        file("server.key", server.key),
        file("client.pem", client.certificate),
        file("client.key", client.key),
        file("client.nk", user.seed().unwrap()),
    ];
}

fn post(number: usize) -> String {
    format!("post.{number}")
}

impl Rig for ClusterRig {
    async fn client_with_capacity(&self, capacity: usize) -> Arc<dyn Bus> {
        let urls = self.cluster.urls();
        let at = self.next.fetch_add(1, Ordering::Relaxed) % urls.len();
        let config = NatsConfig {
            urls: vec![urls[at].clone()],
            subscription_capacity: capacity,
            ..self.usual.clone()
        };
        let bus = NatsBus::connect(config).await.unwrap();
        let client = Arc::new(Settled { bus, servers: urls.len() });
        client.settle().await;
        self.clients.lock().unwrap().push(client.clone());
        client
    }

    fn take_down(&mut self) {
        self.cluster.stop();
    }

    fn bring_up(&mut self) {
        self.cluster.restart();
    }

    async fn settle(&self) {
        for post in &self.posts {
            until(&**post, BusState::Up).await;
        }
        let clients = self.clients.lock().unwrap().clone();
        for client in clients {
            until(&*client, BusState::Up).await;
            client.settle().await;
        }
    }

    /// A server prefers its own clients.
    fn shares_evenly(&self) -> bool {
        self.posts.len() == 1
    }
}

/// A client whose subscriptions are known to all servers when they are made. (NATS says so of its own server only; what
/// follows a subscription on the way to another server comes there after it.)
struct Settled {
    bus: NatsBus,
    servers: usize,
}

impl Settled {
    async fn settle(&self) {
        let asking = async {
            for number in 0..self.servers {
                while self.bus.request(&post(number), Bytes::new(), Duration::from_secs(1)).await.is_err() {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            }
        };
        tokio::time::timeout(SOON, asking).await.expect("an answer from each server");
    }

    async fn settle_if_up(&self) {
        if *self.bus.state().borrow() == BusState::Up {
            self.settle().await;
        }
    }
}

#[async_trait]
impl Bus for Settled {
    async fn publish(&self, subject: &str, payload: Bytes) -> Result<(), BusError> {
        self.bus.publish(subject, payload).await
    }

    async fn request(&self, subject: &str, payload: Bytes, timeout: Duration) -> Result<Bytes, BusError> {
        self.bus.request(subject, payload, timeout).await
    }

    async fn subscribe(&self, pattern: &str) -> Result<Subscription, BusError> {
        let subscription = self.bus.subscribe(pattern).await?;
        self.settle_if_up().await;
        Ok(subscription)
    }

    async fn subscribe_queue(&self, pattern: &str, queue: &str) -> Result<Subscription, BusError> {
        let subscription = self.bus.subscribe_queue(pattern, queue).await?;
        self.settle_if_up().await;
        Ok(subscription)
    }

    fn state(&self) -> watch::Receiver<BusState> {
        self.bus.state()
    }

    async fn flush(&self) -> Result<(), BusError> {
        self.bus.flush().await
    }
}
