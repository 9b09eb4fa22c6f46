//! Session tickets: what lets a client resume without the dear part of a handshake.
//!
//! The key of a period is derived from one secret, so all workers have it, and with a shared key file all gateways do, without
//! a word between them. A ticket says its period; those of the present one, the one before and the one after (clocks differ)
//! are taken. A scope is part of the key: tickets of one are nothing in another.

use crate::sticky::StickyKey;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};
use rustls::server::ProducesTickets;
use std::sync::Arc;

/// How long a key makes tickets, seconds.
const PERIOD: u64 = 6 * 60 * 60;
/// Longest ticket that is looked at: one can hold a client's chain of certificates.
const LONGEST: usize = 16 * 1024;

/// The secret that keys of tickets come from.
pub(crate) struct TicketKeys {
    secret: hmac::Key,
    now: fn() -> u64,
}

impl std::fmt::Debug for TicketKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TicketKeys")
    }
}

impl TicketKeys {
    /// Those of this process alone: nobody can read a recorded session after its end.
    pub(crate) fn random() -> std::io::Result<Arc<Self>> {
        let mut secret = [0; 32];
        SystemRandom::new().fill(&mut secret).map_err(|_| std::io::Error::other("no random numbers"))?;
        Ok(Arc::new(Self::of(&secret, unix_seconds)))
    }

    /// Those of all gateways with this key.
    pub(crate) fn shared(key: &StickyKey) -> Arc<Self> {
        Arc::new(Self::of(&key.derive(b"tls session tickets"), unix_seconds))
    }

    pub(super) fn of(secret: &[u8; 32], now: fn() -> u64) -> Self {
        Self { secret: hmac::Key::new(hmac::HMAC_SHA256, secret), now }
    }

    /// Tickets of a scope.
    pub(crate) fn of_scope(self: &Arc<Self>, scope: Option<[u8; 32]>) -> Tickets {
        Tickets { keys: self.clone(), scope }
    }

    fn key(&self, scope: Option<&[u8; 32]>, period: u64) -> Option<LessSafeKey> {
        let mut mac = hmac::Context::with_key(&self.secret);
        mac.update(&period.to_be_bytes());
        mac.update(scope.map_or(&[], <[u8; 32]>::as_slice));
        UnboundKey::new(&CHACHA20_POLY1305, mac.sign().as_ref()).ok().map(LessSafeKey::new)
    }
}

fn unix_seconds() -> u64 {
    crate::clock::unix_ms() / 1000
}

/// Tickets of one scope.
#[derive(Debug)]
pub(crate) struct Tickets {
    keys: Arc<TicketKeys>,
    scope: Option<[u8; 32]>,
}

impl ProducesTickets for Tickets {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        PERIOD as u32
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        let period = (self.keys.now)() / PERIOD;
        let key = self.keys.key(self.scope.as_ref(), period)?;
        let mut nonce = [0; NONCE_LEN];
        SystemRandom::new().fill(&mut nonce).ok()?;
        let mut ticket = Vec::with_capacity(8 + NONCE_LEN + plain.len() + CHACHA20_POLY1305.tag_len());
        ticket.extend_from_slice(&period.to_be_bytes());
        ticket.extend_from_slice(&nonce);
        let mut sealed = plain.to_vec();
        let aad = Aad::from(period.to_be_bytes());
        key.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), aad, &mut sealed).ok()?;
        ticket.append(&mut sealed);
        Some(ticket)
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        if ticket.len() > LONGEST {
            return None;
        }
        let (period, rest) = ticket.split_first_chunk::<8>()?;
        let (nonce, sealed) = rest.split_first_chunk::<NONCE_LEN>()?;
        let period = u64::from_be_bytes(*period);
        if ((self.keys.now)() / PERIOD).abs_diff(period) > 1 {
            return None;
        }
        let key = self.keys.key(self.scope.as_ref(), period)?;
        let mut plain = sealed.to_vec();
        let aad = Aad::from(period.to_be_bytes());
        let len = key.open_in_place(Nonce::assume_unique_for_key(*nonce), aad, &mut plain).ok()?.len();
        plain.truncate(len);
        Some(plain)
    }
}
