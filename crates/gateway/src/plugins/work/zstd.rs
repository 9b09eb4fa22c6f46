//! `zstd`: responses are compressed.

use super::compression::{Chosen, Coding, Compress, Compressor, Which};
use crate::plugins::filter::BodyFilter;
use crate::plugins::{Phase, Phases, Plugin, Reply};
use std::io;
use std::sync::Arc;
use towpath_resources::plugins::zstd::Config;
use zstd::stream::write::Encoder;

/// Binary logarithm of the largest window that browsers take (RFC 9659).
const WINDOW: u32 = 23;

/// See the module.
pub(in crate::plugins) struct Zstd(Arc<Config>);

impl Zstd {
    pub(in crate::plugins) fn new(config: &Arc<Config>) -> Self {
        Self(config.clone())
    }
}

impl Plugin for Zstd {
    fn phases(&self) -> Phases {
        Phases::of([Phase::ResponseHead, Phase::ResponseBody])
    }

    fn response_head(&self, reply: &mut Reply<'_>) {
        let Config { types, min_length, http_version, vary, .. } = &*self.0;
        let (min_length, http_version, vary) = (*min_length, *http_version, *vary);
        let which = Which { coding: Coding::Zstd, types, min_length, http_version, vary };
        if let Some(chosen) = which.mark(reply) {
            reply.record.running.get_or_insert_default().note(self, chosen);
        }
    }

    fn response_body(&self, reply: &mut Reply<'_>) -> Option<Box<dyn BodyFilter>> {
        let chosen = reply.record.running.get_or_insert_default().noted::<Self, Chosen>(self)?.clone();
        // It fails only without memory, or with a level that the schema does not permit.
        let mut encoder = Encoder::new(Vec::new(), self.0.comp_level).ok()?;
        let _ = encoder.window_log(WINDOW.min(if self.0.comp_level < 10 { 20 } else { WINDOW }));
        Some(Box::new(Compress::new(encoder, Coding::Zstd, chosen)))
    }
}

impl Compressor for Encoder<'_, Vec<u8>> {
    fn made(&mut self) -> &mut Vec<u8> {
        self.get_mut()
    }

    fn finish(&mut self) -> io::Result<()> {
        self.do_finish()
    }
}
