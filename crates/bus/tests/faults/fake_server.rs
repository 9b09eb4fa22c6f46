//! As much of a NATS server as a client needs to be up; it counts who comes when. All in the test's own runtime, so that
//! its clock is the clients'.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::spawn_local;
use tokio::time::Instant;

/// Whether it lets clients in.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mood {
    Open,
    /// Everybody is thrown out, and at once when they come again.
    Shut,
}

pub(crate) struct FakeServer {
    pub(crate) url: String,
    mood: Rc<watch::Sender<Mood>>,
    arrivals: Rc<RefCell<Vec<Instant>>>,
}

impl FakeServer {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let mood = Rc::new(watch::Sender::new(Mood::Open));
        let arrivals = Rc::new(RefCell::new(Vec::new()));
        let (moods, seen) = (mood.clone(), arrivals.clone());
        spawn_local(async move {
            while let Ok((stream, _)) = listener.accept().await {
                seen.borrow_mut().push(Instant::now());
                let mut moods = moods.subscribe();
                if *moods.borrow() == Mood::Shut {
                    continue;
                }
                spawn_local(async move {
                    tokio::select! {
                        _ = moods.wait_for(|mood| *mood == Mood::Shut) => {}
                        _ = talk(stream, port) => {}
                    }
                });
            }
        });
        Self { url: format!("nats://127.0.0.1:{port}"), mood, arrivals }
    }

    pub(crate) fn set(&self, mood: Mood) {
        self.mood.send_replace(mood);
    }

    /// When somebody came since the last call.
    pub(crate) fn take_arrivals(&self) -> Vec<Instant> {
        std::mem::take(&mut *self.arrivals.borrow_mut())
    }
}

/// Serves one client. Messages go to its own subscriptions only.
async fn talk(stream: TcpStream, port: u16) -> io::Result<()> {
    let mut stream = BufReader::new(stream);
    let info = format!(
        "INFO {{\"server_id\":\"FAKE\",\"server_name\":\"fake\",\"version\":\"2.9.10\",\"proto\":1,\"host\":\"127.0.0.1\",\
         \"port\":{port},\"headers\":true,\"max_payload\":1048576,\"client_id\":1}}\r\n"
    );
    stream.write_all(info.as_bytes()).await?;
    let mut subscriptions: Vec<(String, String)> = Vec::new();
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await? == 0 {
            return Ok(());
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["PING"] => stream.write_all(b"PONG\r\n").await?,
            ["SUB", subject, .., sid] => subscriptions.push((subject.to_owned(), sid.to_owned())),
            ["PUB", subject, .., size] => {
                let mut payload = vec![0; size.parse::<usize>().unwrap() + 2];
                stream.read_exact(&mut payload).await?;
                let hit = |pattern: &str| {
                    pattern == subject
                        || pattern.strip_suffix('*').is_some_and(|start| subject.starts_with(start))
                };
                for (_, sid) in subscriptions.iter().filter(|(pattern, _)| hit(pattern)) {
                    stream.write_all(format!("MSG {subject} {sid} {size}\r\n").as_bytes()).await?;
                    stream.write_all(&payload).await?;
                }
            }
            _ => {}
        }
        stream.flush().await?;
    }
}
