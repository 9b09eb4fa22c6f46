//! How often somebody may log in, counted by all managers together: each counter is kept by the manager that owns it on the
//! ring, in memory. Whoever cannot be asked is not waited for: then a manager counts by itself.

use super::attempts::Attempts;
use crate::core::Core;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use towpath_bus::{BusError, Message};
use towpath_types::{Digest, ManagerId};
use towpath_wire::manager::{LoginAct, LoginCount, LoginCounter, LoginVerdict};
use towpath_wire::{decode, encode, subject};

/// Name of the service in subjects.
const SERVICE: &str = "login";
/// Longest wait for the owner of a counter.
const PATIENCE: Duration = Duration::from_secs(2);
/// One that did not answer is left alone for so long.
const SHUNNED: Duration = Duration::from_secs(10);

/// The counters.
pub(crate) struct Logins {
    core: Arc<Core>,
    wrong_by_user: Attempts<Digest>,
    wrong_by_source: Attempts<Digest>,
    right_by_user: Attempts<Digest>,
    /// Who did not answer, and when.
    silent: Mutex<Option<(ManagerId, Instant)>>,
}

impl Logins {
    pub(crate) fn new(core: Arc<Core>) -> Self {
        let limits = &core.settings.limits;
        Self {
            wrong_by_user: Attempts::new(limits.wrong_per_user_per_minute),
            wrong_by_source: Attempts::new(limits.wrong_per_address_per_minute),
            right_by_user: Attempts::new(limits.right_per_user_per_minute),
            silent: Mutex::default(),
            core,
        }
    }

    /// Counts an attempt as a wrong one until it turns out to be right; `Some` = it is one too many, come back after that
    /// time. By hashes of the user's name as it was sent, and of the address.
    pub(crate) async fn begin(&self, user: Digest, source: Digest) -> Option<Duration> {
        // An address that is turned away does not use up the user's attempts.
        let source = self.count(LoginCounter::WrongBySource, source, LoginAct::Note).await;
        if source.is_some() {
            return source;
        }
        let right = self.count(LoginCounter::RightByUser, user, LoginAct::Look).await;
        if right.is_some() {
            return right;
        }
        self.count(LoginCounter::WrongByUser, user, LoginAct::Note).await
    }

    /// It was right.
    pub(crate) async fn right(&self, user: Digest, source: Digest) -> Option<Duration> {
        let forgiven = [(LoginCounter::WrongByUser, user), (LoginCounter::WrongBySource, source)];
        for (counter, key) in forgiven {
            self.count(counter, key, LoginAct::Forgive).await;
        }
        self.count(LoginCounter::RightByUser, user, LoginAct::Note).await
    }

    /// At the counter's owner, else here.
    async fn count(&self, counter: LoginCounter, key: Digest, act: LoginAct) -> Option<Duration> {
        let count = LoginCount { counter, key, act };
        let owner = self.core.ownership.owner(&format!("login:{}", key.hex()));
        if owner == self.core.manager || self.is_silent(owner) {
            return self.count_here(&count, Instant::now());
        }
        let asked = encode(&count).into();
        let answer = self.core.bus.request(&subject::service(SERVICE, owner), asked, PATIENCE).await;
        match answer.ok().and_then(|answer| decode::<LoginVerdict>(&answer).ok()) {
            Some(verdict) => verdict.pause_ms.map(Duration::from_millis),
            None => {
                let mut silent = self.silent.lock().unwrap_or_else(PoisonError::into_inner);
                *silent = Some((owner, Instant::now()));
                drop(silent);
                self.count_here(&count, Instant::now())
            }
        }
    }

    fn is_silent(&self, owner: ManagerId) -> bool {
        let silent = self.silent.lock().unwrap_or_else(PoisonError::into_inner);
        silent.is_some_and(|(who, since)| who == owner && since.elapsed() < SHUNNED)
    }

    fn count_here(&self, count: &LoginCount, now: Instant) -> Option<Duration> {
        let attempts = match count.counter {
            LoginCounter::WrongByUser => &self.wrong_by_user,
            LoginCounter::WrongBySource => &self.wrong_by_source,
            LoginCounter::RightByUser => &self.right_by_user,
        };
        match count.act {
            LoginAct::Note => attempts.note(&count.key, now),
            LoginAct::Look => attempts.used_up(&count.key, now),
            LoginAct::Forgive => {
                attempts.forgive(&count.key);
                None
            }
        }
    }

    async fn answer(&self, message: Message) {
        let (Some(reply), Ok(count)) = (message.reply, decode::<LoginCount>(&message.payload)) else {
            return;
        };
        let pause = self.count_here(&count, Instant::now());
        let pause_ms = pause.map(|pause| u64::try_from(pause.as_millis()).unwrap_or(u64::MAX));
        if let Err(error) = self.core.bus.publish(&reply, encode(&LoginVerdict { pause_ms }).into()).await {
            tracing::debug!(%error, "the count of a login was not sent");
        }
    }
}

/// Starts counting for other managers.
pub(super) async fn serve(logins: Arc<Logins>) -> Result<JoinHandle<()>, BusError> {
    let core = logins.core.clone();
    let mut asked = core.bus.subscribe(&subject::service(SERVICE, core.manager)).await?;
    Ok(crate::vitals::spawn(&core.clone(), async move {
        loop {
            tokio::select! {
                message = asked.next() => match message {
                    Some(message) => logins.answer(message).await,
                    None => return core.vitals.broke("the subscription to counts of logins has ended".into()),
                },
                () = core.stopped() => return,
            }
        }
    }))
}
