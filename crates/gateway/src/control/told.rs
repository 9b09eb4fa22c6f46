//! What the control thread tells: reports to managers, explanations, the snapshot file. Of two processes that are one gateway for a
//! while one tells.

use super::{Control, explain};
use crate::clock;
use crate::hand_over::{Duty, Status};
use bytes::Bytes;
use std::collections::BTreeMap;
use tokio::time::Instant;
use towpath_bus::Message;
use towpath_types::InstanceId;
use towpath_wire::gateway::{ExplainRequest, GatewayReport};
use towpath_wire::{decode, encode, subject};

impl Control {
    /// Follows the resources that are listeners, once the table has what they lead to.
    pub(super) fn listen(&mut self) {
        let told = self.listeners.change(self.resources.take_listeners());
        self.changed |= !told.is_empty();
        self.state.take_listeners(told);
    }

    /// Tells managers what the gateway serves, or the process that does so what this one does.
    pub(super) async fn report(&mut self) {
        let own = Status {
            revision: self.state.revision(),
            heard: self.state.heard(),
            draining: self.draining.clone(),
        };
        let Some(status) = self.word.of_all(own) else { return };
        let duty = *self.word.duty.borrow();
        match duty {
            Duty::Active => {}
            Duty::Waiting => return,
            Duty::HandedOver => {
                self.word.told.send_replace(Some(status));
                return;
            }
        }
        let report = GatewayReport {
            gateway: self.identity.gateway,
            incarnation: self.identity.incarnation,
            place: self.settings.place.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            listeners: self.listeners.urls(),
            revision: status.revision,
            heard: status.heard,
            draining: status.draining,
            refused: self.state.refused().clone(),
            leaving: self.leaving,
        };
        let subject = subject::gateway_report(self.identity.gateway);
        if let Err(error) = self.bus.publish(&subject, Bytes::from(encode(&report))).await {
            tracing::debug!(%error, "a report could not be sent");
        }
    }

    pub(super) fn in_flight_to_draining(&self) -> BTreeMap<InstanceId, u64> {
        self.state.table().draining().into_iter().filter(|(_, requests)| *requests > 0).collect()
    }

    /// The end: what is known goes into the file.
    pub(super) async fn finish(mut self) {
        self.flush().await;
    }

    /// Writes what is known, if the file is this process's to write.
    pub(super) async fn flush(&mut self) {
        self.note_written().await;
        if self.dirty && self.word.is_active() {
            self.write_snapshot();
            self.note_written().await;
        }
    }

    /// Waits for the write that is under way. One that failed is owed still.
    pub(super) async fn note_written(&mut self) {
        if let Some(writing) = self.writing.take() {
            self.dirty |= !writing.await.unwrap_or(false);
        }
    }

    /// Writes the file off this thread: for a large table it takes a while, and announcements do not wait.
    pub(super) fn write_snapshot(&mut self) {
        self.dirty = false;
        self.written = Instant::now();
        let (snapshot, dir) = (self.state.snapshot(), self.settings.data_dir.clone());
        self.writing = Some(tokio::task::spawn_blocking(move || {
            let written = snapshot.write(&dir);
            if let Err(error) = &written {
                tracing::warn!(%error, "the snapshot cannot be written");
            }
            written.is_ok()
        }));
    }

    pub(super) async fn explain(&self, message: Message) {
        if !self.word.is_active() {
            return;
        }
        let (Some(reply), Ok(request)) = (message.reply, decode::<ExplainRequest>(&message.payload)) else {
            return;
        };
        let about = (&self.identity, &self.settings.place, self.state.revision());
        let explanation = explain::explain(
            &request,
            self.state.table(),
            &self.state.inside(),
            &self.sticky,
            about,
            clock::now_ns(),
        );
        if let Err(error) = self.bus.publish(&reply, Bytes::from(encode(&explanation))).await {
            tracing::debug!(%error, "an explanation could not be sent");
        }
    }
}
