//! From a spec to a running process.

use super::elsewhere::Elsewhere;
use super::life::Life;
use crate::disk;
use crate::disk_limit;
use crate::driver::Process;
use crate::instance::start_request;
use crate::ledger::Entry;
use std::sync::Arc;

/// Why a bring-up did not end in a process.
pub(super) enum Halt {
    /// It is not wanted any more.
    Unwanted,
    /// It could not be prepared or started, in words for people.
    Failed(String),
}

impl Life {
    /// Fetches, copies, starts.
    pub(super) async fn bring_up(&mut self) -> Result<Box<dyn Process>, Halt> {
        let spec = self.wish().ok_or(Halt::Unwanted)?;
        self.elsewhere = Elsewhere::default();
        self.show_start();
        let context = Arc::clone(&self.context);
        let secrets = context.secrets.of(self.instance, &spec.secrets).map_err(Halt::Failed)?;
        let failed = |error: &dyn std::fmt::Display| Halt::Failed(error.to_string());
        let fetching = context.artifacts.get(spec.artifact, spec.artifact_bytes);
        let unpacked = tokio::select! {
            fetched = fetching => fetched.map_err(|error| failed(&error))?,
            () = self.unwanted() => return Err(Halt::Unwanted),
        };
        if self.user.is_none() && context.users.are_separate() {
            let users = Arc::clone(&context.users);
            let taken = tokio::task::spawn_blocking(move || users.take()).await.ok().flatten();
            self.user = Some(taken.ok_or_else(|| failed(&"no user id is free for it"))?);
        }
        // Before the tree is copied, which would be for nothing without one.
        let old = std::mem::take(&mut self.port);
        context.ports.free(old);
        self.port = context.ports.take().ok_or_else(|| failed(&"no port is free on the cell"))?;
        let driver = &context.driver;
        driver.prepare(self.instance, &unpacked.tree, self.user).await.map_err(|error| failed(&error))?;
        drop(unpacked);
        let base = disk_limit::measure(driver.app_dir(self.instance)).await;
        self.disk_base = Some(base);
        if self.wish().is_none() {
            return Err(Halt::Unwanted);
        }
        self.write_entry().await;
        let home = driver.app_dir(self.instance);
        let mut request =
            start_request(&spec, &context.settings, self.port, self.user, &home, &context.binary);
        request.secrets = secrets;
        let process = driver.start(request).await.map_err(|error| failed(&error))?;
        context.ledger.change_entry(self.instance, |entry| entry.started = Some(process.started().clone()));
        Ok(process)
    }

    /// What an adopter needs is on disk before there is anything to adopt: in the ledger, and beside the instance in case the ledger
    /// is lost.
    async fn write_entry(&self) {
        let entry = Entry {
            spec: (*self.spec).clone(),
            port: self.port,
            user: self.user,
            started: None,
            ready: false,
            disk_base: self.disk_base,
            restarts: self.restarts,
            crashes: self.crashes,
        };
        let record = self.context.driver.record_dir(self.instance).join(super::ENTRY_FILE);
        let copy = entry.clone();
        let written = tokio::task::spawn_blocking(move || disk::write_json(&record, &copy)).await;
        if let Ok(Err(error)) = written {
            tracing::warn!(instance = %self.instance, %error, "the instance's record was not written");
        }
        let version = self.context.ledger.change(|ledger| {
            ledger.instances.insert(self.instance, entry);
        });
        self.context.ledger.written(version).await;
    }
}
