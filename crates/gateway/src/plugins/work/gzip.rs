//! `gzip`: responses are compressed.

use super::compression::{Chosen, Coding, Compress, Compressor, Which};
use crate::plugins::filter::BodyFilter;
use crate::plugins::{Phase, Phases, Plugin, Reply};
use flate2::Compression;
use flate2::write::GzEncoder;
use std::io;
use std::sync::Arc;
use towpath_resources::plugins::gzip::Config;

/// See the module.
pub(in crate::plugins) struct Gzip(Arc<Config>);

impl Gzip {
    pub(in crate::plugins) fn new(config: &Arc<Config>) -> Self {
        Self(config.clone())
    }
}

impl Plugin for Gzip {
    fn phases(&self) -> Phases {
        Phases::of([Phase::ResponseHead, Phase::ResponseBody])
    }

    fn response_head(&self, reply: &mut Reply<'_>) {
        let Config { types, min_length, http_version, vary, .. } = &*self.0;
        let (min_length, http_version, vary) = (*min_length, *http_version, *vary);
        let which = Which { coding: Coding::Gzip, types, min_length, http_version, vary };
        if let Some(chosen) = which.mark(reply) {
            reply.record.running.get_or_insert_default().note(self, chosen);
        }
    }

    fn response_body(&self, reply: &mut Reply<'_>) -> Option<Box<dyn BodyFilter>> {
        let chosen = reply.record.running.get_or_insert_default().noted::<Self, Chosen>(self)?.clone();
        let encoder = GzEncoder::new(Vec::new(), Compression::new(self.0.comp_level));
        Some(Box::new(Compress::new(encoder, Coding::Gzip, chosen)))
    }
}

impl Compressor for GzEncoder<Vec<u8>> {
    fn made(&mut self) -> &mut Vec<u8> {
        self.get_mut()
    }

    fn finish(&mut self) -> io::Result<()> {
        self.try_finish()
    }
}
