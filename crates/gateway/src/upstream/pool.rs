//! The connections of one worker to instances. Nothing here is shared between workers.

use super::AttemptFault;
use super::h1::H1Conn;
use super::h2::H2Conn;
use super::opening::{Openings, Step};
use super::stream::{TlsPeer, UpstreamStream};
use super::trial::{Mark, Trials};
use crate::deadline::Deadline;
use crate::metrics::WorkerMetrics;
use crate::settings::UpstreamPoolSettings;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::poll_fn;
use std::hash::{BuildHasherDefault, Hasher};
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use towpath_route::{Address, Endpoint};
use towpath_types::InstanceId;

/// What connections belong to: one start of one instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct PoolKey {
    instance: InstanceId,
    start: u32,
    /// Of how TLS is spoken; 0 = clear text.
    tls: u64,
    /// It tells of one client: nobody else uses it.
    announced: bool,
}

impl PoolKey {
    #[cfg(test)]
    pub(crate) fn new(instance: InstanceId, start: u32) -> Self {
        Self { instance, start, tls: 0, announced: false }
    }

    /// The key of an endpoint that is spoken to in this way.
    pub(crate) fn of(endpoint: &Endpoint, tls: Option<&TlsPeer>, announced: bool) -> Self {
        Self {
            instance: endpoint.instance(),
            start: endpoint.start(),
            tls: tls.map_or(0, |peer| peer.key | 1),
            announced,
        }
    }
}

/// Where a connection goes, and how it begins.
#[derive(Clone, Copy)]
pub(crate) struct To<'a> {
    /// The endpoint.
    pub(crate) address: &'a Address,
    /// How TLS is spoken; `None` = it is not.
    pub(crate) tls: Option<&'a TlsPeer>,
    /// What is said before everything else, in clear text.
    pub(crate) first: &'a [u8],
}

/// Ids are random already; a multiplication spreads them.
#[derive(Default)]
struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let word = chunk.iter().fold(0, |word, &byte| word << 8 | u64::from(byte));
            self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95);
        }
    }
}

type All = HashMap<PoolKey, Kept, BuildHasherDefault<IdHasher>>;

#[derive(Default)]
struct Kept {
    h1: Vec<H1Conn>,
    h2: Vec<H2Conn>,
}

/// A kept connection that ends within so long after its last response did not end because it was idle.
const RECENT_MS: u64 = 1_000;

/// Most endpoints and names for which connections with TLS are kept: names are what clients ask for, as many as they like.
const MOST_TLS: usize = if cfg!(test) { 2 } else { 2048 };

/// The kept connections.
pub(crate) struct Pool {
    settings: UpstreamPoolSettings,
    metrics: Arc<WorkerMetrics>,
    kept: RefCell<All>,
    /// How many of its keys are for TLS.
    tls_keys: Cell<usize>,
    openings: Openings,
    trials: Trials,
}

impl Pool {
    /// An empty pool.
    pub(crate) fn new(settings: UpstreamPoolSettings, metrics: Arc<WorkerMetrics>) -> Rc<Self> {
        Rc::new(Self {
            settings,
            metrics,
            kept: RefCell::default(),
            tls_keys: Cell::new(0),
            openings: Openings::default(),
            trials: Trials::default(),
        })
    }

    /// The most recently used HTTP/1.1 connection that is still open. For a request that must not be sent twice
    /// (`!safe`) only one whose idle time leaves no doubt.
    pub(crate) fn take_h1(&self, key: PoolKey, safe: bool, now_ms: u64) -> Option<H1Conn> {
        let mut kept = self.kept.borrow_mut();
        let conns = &mut kept.get_mut(&key)?.h1;
        let longest = if safe { self.settings.idle_ms } else { self.settings.idle_unsafe_ms };
        loop {
            let idle = now_ms.saturating_sub(conns.last()?.idle_since_ms);
            if idle > longest && !safe {
                return None;
            }
            let mut conn = conns.pop()?;
            if idle <= longest.min(conn.idle_limit_ms) && conn.is_quiet() {
                self.metrics.reuses.add(1);
                return Some(conn);
            }
            // One that was idle for long may have ended for any reason: that says nothing about the endpoint (ADR 0035).
            self.metrics.stale.add(1);
            if idle < RECENT_MS {
                self.trials.doubt(key, now_ms);
            }
        }
    }

    /// A connection to this endpoint has ended unasked, under a request or just before it: what is opened next is opened one at a time until one stands.
    pub(crate) fn doubt(&self, key: PoolKey, now_ms: u64) {
        self.trials.doubt(key, now_ms);
    }

    /// The moment at which a request chooses its endpoint, see [`Pool::open_h1`].
    pub(crate) fn mark(&self) -> Mark {
        self.trials.mark()
    }

    /// A new HTTP/1.1 connection before the deadline, unless one to this endpoint has failed since it was chosen.
    pub(crate) async fn open_h1(
        &self,
        key: PoolKey,
        chosen: Mark,
        to: To<'_>,
        deadline: &Deadline,
    ) -> Result<H1Conn, AttemptFault> {
        let turn = self.trials.turn(key, chosen, deadline).await?;
        let opened = self.connect(to, deadline).await;
        turn.ends(&opened, deadline.now_ms());
        opened.map(H1Conn::new)
    }

    /// Keeps a connection whose response has ended, unless `most` are kept already.
    pub(crate) fn put_h1(&self, key: PoolKey, mut conn: H1Conn, most: usize, now_ms: u64) {
        let mut kept = self.kept.borrow_mut();
        if !self.has_room(&kept, key) {
            return;
        }
        let conns = &mut kept.entry(key).or_default().h1;
        if conns.len() < self.settings.idle_per_endpoint.min(most) {
            conn.idle_since_ms = now_ms;
            conns.push(conn);
        }
    }

    /// Whether connections of this key can be kept; if so they are going to be.
    fn has_room(&self, kept: &All, key: PoolKey) -> bool {
        if key.tls == 0 || kept.contains_key(&key) {
            return true;
        }
        let keys = self.tls_keys.get();
        if keys < MOST_TLS {
            self.tls_keys.set(keys + 1);
        }
        keys < MOST_TLS
    }

    /// An HTTP/2 connection with room for another stream.
    pub(crate) fn find_h2(&self, key: PoolKey, now_ms: u64) -> Option<H2Conn> {
        let mut kept = self.kept.borrow_mut();
        let conns = &mut kept.get_mut(&key)?.h2;
        conns.retain(H2Conn::is_open);
        let conn = conns.iter().min_by_key(|conn| conn.streams())?;
        if conn.streams() >= self.settings.h2_streams {
            return None;
        }
        conn.touch(now_ms);
        self.metrics.reuses.add(1);
        Some(conn.clone())
    }

    /// A new HTTP/2 connection before the deadline, shared from now on: of several requests that need one, one makes it.
    pub(crate) async fn open_h2(
        &self,
        key: PoolKey,
        to: To<'_>,
        deadline: &Deadline,
    ) -> Result<H2Conn, AttemptFault> {
        let turn = match self.openings.next(key, self.settings.h2_streams, deadline).await? {
            Step::Shared(conn) => return Ok(conn),
            Step::Open(turn) => turn,
        };
        let opened = match self.connect(to, deadline).await {
            Ok(stream) => H2Conn::start(stream, deadline.now_ms()).await,
            Err(fault) => Err(fault),
        };
        if let Ok(conn) = &opened {
            let mut kept = self.kept.borrow_mut();
            if self.has_room(&kept, key) {
                kept.entry(key).or_default().h2.push(conn.clone());
            }
        }
        turn.ends(&opened);
        opened
    }

    /// Closes what has been idle for too long or was closed by its peer.
    pub(crate) fn sweep(&self, now_ms: u64) {
        let idle_ms = self.settings.idle_ms;
        self.trials.sweep(now_ms);
        let mut all = self.kept.borrow_mut();
        all.retain(|_, kept| {
            kept.h1.retain_mut(|conn| {
                now_ms.saturating_sub(conn.idle_since_ms) <= idle_ms.min(conn.idle_limit_ms)
                    && conn.is_quiet()
            });
            kept.h2.retain(|conn| conn.is_open() && (conn.streams() > 0 || conn.idle_ms(now_ms) <= idle_ms));
            !kept.h1.is_empty() || !kept.h2.is_empty()
        });
        self.tls_keys.set(all.keys().filter(|key| key.tls != 0).count());
    }

    /// Opens a connection to an endpoint before the deadline.
    pub(crate) async fn connect(
        &self,
        to: To<'_>,
        deadline: &Deadline,
    ) -> Result<UpstreamStream, AttemptFault> {
        let mut connecting = pin!(async {
            let mut stream = match to.address {
                Address::Socket(address) => TcpStream::connect(address).await?,
                Address::Name(name, port) => TcpStream::connect((name.as_str(), *port)).await?,
            };
            stream.set_nodelay(true)?;
            if !to.first.is_empty() {
                stream.write_all(to.first).await?;
            }
            Ok::<_, io::Error>(stream)
        });
        self.metrics.connects.add(1);
        let connected = poll_fn(|cx| match connecting.as_mut().poll(cx) {
            Poll::Ready(result) => Poll::Ready(result.map_err(AttemptFault::Connect)),
            Poll::Pending if deadline.is_over(cx) => {
                Poll::Ready(Err(AttemptFault::of_late_connect(deadline)))
            }
            Poll::Pending => Poll::Pending,
        })
        .await;
        let connected = match (connected, to.tls) {
            (Ok(stream), Some(peer)) => UpstreamStream::secure(stream, peer, deadline).await,
            (connected, _) => connected.map(UpstreamStream::Tcp),
        };
        if connected.is_err() {
            self.metrics.connect_failures.add(1);
        }
        connected
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deadline::Deadlines;
    use std::io::Read;
    use std::task::{Context, Waker};

    fn pool() -> Rc<Pool> {
        let settings = crate::GatewaySettings::in_dir(std::path::Path::new("unused")).upstream;
        Pool::new(settings, Arc::default())
    }

    /// A pool that keeps three connections to an endpoint, all of which have ended, and is asked for one `idle_ms` after
    /// their last response.
    async fn after_the_end(idle_ms: u64) -> (Rc<Pool>, PoolKey) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let (pool, key) = (pool(), PoolKey::new(InstanceId::mint(1, [0; 10]), 1));
        for _ in 0..3 {
            let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            pool.put_h1(key, H1Conn::new(UpstreamStream::Tcp(stream)), usize::MAX, 0);
        }
        for _ in 0..3 {
            let (mut instance, _) = listener.accept().unwrap();
            instance.shutdown(std::net::Shutdown::Both).unwrap();
            assert_eq!(instance.read(&mut [0]).unwrap(), 0);
        }
        while pool.metrics.stale.get() < 3 {
            // Whether the ends have been noticed yet is for the runtime to say.
            if let Some(conn) = pool.take_h1(key, true, idle_ms) {
                pool.put_h1(key, conn, usize::MAX, 0);
            }
            tokio::task::yield_now().await;
        }
        (pool, key)
    }

    #[tokio::test]
    async fn names_that_clients_make_up_keep_no_more_connections_than_there_is_room() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let (pool, instance) = (pool(), InstanceId::mint(1, [0; 10]));
        let put = async |tls| {
            let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let key = PoolKey { instance, start: 1, tls, announced: false };
            pool.put_h1(key, H1Conn::new(UpstreamStream::Tcp(stream)), usize::MAX, 0);
        };
        for tls in [0, 1, 3, 5, 7, 1] {
            put(tls).await;
        }
        let kept = |tls| {
            pool.kept
                .borrow()
                .get(&PoolKey { instance, start: 1, tls, announced: false })
                .map_or(0, |kept| kept.h1.len())
        };
        assert_eq!([0, 1, 3, 5, 7].map(kept), [1, 2, 1, 0, 0]);
        pool.sweep(u64::MAX);
        assert_eq!((pool.tls_keys.get(), pool.kept.borrow().len()), (0, 0));
    }

    fn is_next(pool: &Pool, key: PoolKey, deadline: &Deadline) -> bool {
        let mut turn = pin!(pool.trials.turn(key, pool.mark(), deadline));
        match turn.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(turn) => turn.is_ok(),
            Poll::Pending => false,
        }
    }

    #[tokio::test]
    async fn connections_that_ended_long_after_their_last_response_hold_nobody_up() {
        let deadline = Rc::new(Deadlines::default()).add();
        let (pool, key) = after_the_end(RECENT_MS).await;
        let held = pool.trials.turn(key, pool.mark(), &deadline).await.unwrap();
        assert!(is_next(&pool, key, &deadline), "nobody waits for a trial");
        drop(held);
        pool.doubt(key, 0);
        let trial = pool.trials.turn(key, pool.mark(), &deadline).await.unwrap();
        assert!(!is_next(&pool, key, &deadline), "one that ended under a request is another matter");
        drop(trial);
    }

    #[tokio::test]
    async fn connections_that_ended_soon_after_their_last_response_let_one_request_find_out() {
        let deadline = Rc::new(Deadlines::default()).add();
        let (pool, key) = after_the_end(RECENT_MS - 1).await;
        let trial = pool.trials.turn(key, pool.mark(), &deadline).await.unwrap();
        assert!(!is_next(&pool, key, &deadline), "the others wait");
        trial.ends(&Ok(()), 0);
        assert!(is_next(&pool, key, &deadline), "until a connection stands");
    }
}
