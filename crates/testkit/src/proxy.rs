//! A TCP proxy that breaks connections where a test wants them broken.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};

/// What happens when the client sends certain bytes. Happens once, then the rule is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// They are passed on; what the server answers is not: the connection is cut.
    LoseAnswer,
    /// They are not passed on; the connection is cut.
    LoseRequest,
    /// They are kept; nothing passes until [`TcpProxy::thaw`].
    Freeze,
}

/// A proxy on a free port of 127.0.0.1; ends with this guard.
pub struct TcpProxy {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    rule: Option<(Vec<u8>, Fault)>,
    triggered: u64,
    frozen: bool,
    refusing: bool,
    closed: bool,
    streams: Vec<TcpStream>,
}

impl TcpProxy {
    /// Passes everything on to `target` until told otherwise.
    pub fn start(target: SocketAddr) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port to listen on");
        let address = listener.local_addr().expect("a listener has an address");
        let shared = Arc::new(Shared::default());
        let accepting = shared.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let state = accepting.state.lock().unwrap();
                if state.closed {
                    return;
                }
                if state.refusing {
                    continue;
                }
                drop(state);
                let Ok(server) = TcpStream::connect(target) else { continue };
                accepting.join(client, server);
            }
        });
        Self { address, shared }
    }

    /// Where clients connect to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// When a client sends `bytes` (in one piece), `fault` happens.
    pub fn when_client_sends(&self, bytes: &[u8], fault: Fault) {
        self.shared.state.lock().unwrap().rule = Some((bytes.to_vec(), fault));
    }

    /// How often a rule was triggered.
    pub fn triggered(&self) -> u64 {
        self.shared.state.lock().unwrap().triggered
    }

    /// Cuts all connections and refuses new ones until [`TcpProxy::restore`].
    pub fn cut(&self) {
        let mut state = self.shared.state.lock().unwrap();
        state.refusing = true;
        state.cut_streams();
        drop(state);
        self.shared.changed.notify_all();
    }

    /// Connections stay, new ones are refused until [`TcpProxy::restore`].
    pub fn refuse(&self) {
        self.shared.state.lock().unwrap().refusing = true;
    }

    /// Accepts connections again.
    pub fn restore(&self) {
        self.shared.state.lock().unwrap().refusing = false;
    }

    /// Connections stay, nothing passes.
    pub fn freeze(&self) {
        self.shared.state.lock().unwrap().frozen = true;
    }

    /// Everything passes again, what was kept too.
    pub fn thaw(&self) {
        self.shared.state.lock().unwrap().frozen = false;
        self.shared.changed.notify_all();
    }
}

impl Drop for TcpProxy {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock().unwrap();
        state.closed = true;
        state.frozen = false;
        state.cut_streams();
        drop(state);
        self.shared.changed.notify_all();
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(self.address);
    }
}

impl State {
    fn cut_streams(&mut self) {
        for stream in self.streams.drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Shared {
    fn join(self: &Arc<Self>, client: TcpStream, server: TcpStream) {
        let _ = (client.set_nodelay(true), server.set_nodelay(true));
        let copy = |stream: &TcpStream| stream.try_clone().expect("a socket handle");
        self.state.lock().unwrap().streams.extend([copy(&client), copy(&server)]);
        let muted = Arc::new(AtomicBool::new(false));
        let (shared, from, to, mute) = (self.clone(), copy(&client), copy(&server), muted.clone());
        std::thread::spawn(move || shared.pump_requests(from, to, &mute));
        let shared = self.clone();
        std::thread::spawn(move || shared.pump_answers(server, client, &muted));
    }

    fn pump_requests(&self, mut client: TcpStream, mut server: TcpStream, muted: &AtomicBool) {
        let mut buffer = vec![0; 1 << 20];
        while let Ok(size) = client.read(&mut buffer) {
            let bytes = &buffer[..size];
            let fault = if size == 0 { Some(Fault::LoseRequest) } else { self.fault_for(bytes) };
            match fault {
                Some(Fault::LoseRequest) => break,
                Some(Fault::LoseAnswer) => {
                    // First the way back is closed; the server is not to notice before it has read everything.
                    muted.store(true, Ordering::SeqCst);
                    let _ = client.shutdown(Shutdown::Both);
                    let _ = server.write_all(bytes);
                    let _ = server.shutdown(Shutdown::Write);
                    return;
                }
                Some(Fault::Freeze) | None => {}
            }
            self.wait_while_frozen();
            if server.write_all(bytes).is_err() {
                break;
            }
        }
        let _ = (client.shutdown(Shutdown::Both), server.shutdown(Shutdown::Both));
    }

    fn pump_answers(&self, mut server: TcpStream, mut client: TcpStream, muted: &AtomicBool) {
        let mut buffer = vec![0; 1 << 20];
        while let Ok(size @ 1..) = server.read(&mut buffer) {
            self.wait_while_frozen();
            if !muted.load(Ordering::SeqCst) && client.write_all(&buffer[..size]).is_err() {
                break;
            }
        }
        let _ = (client.shutdown(Shutdown::Both), server.shutdown(Shutdown::Both));
    }

    /// What is to happen to these bytes of a client.
    fn fault_for(&self, bytes: &[u8]) -> Option<Fault> {
        let mut state = self.state.lock().unwrap();
        let hit = |(needle, _): &&(Vec<u8>, Fault)| bytes.windows(needle.len()).any(|at| at == needle);
        let fault = state.rule.as_ref().filter(hit)?.1;
        state.rule = None;
        state.triggered += 1;
        state.frozen |= fault == Fault::Freeze;
        Some(fault)
    }

    fn wait_while_frozen(&self) {
        let mut state = self.state.lock().unwrap();
        while state.frozen {
            state = self.changed.wait(state).unwrap();
        }
    }
}
