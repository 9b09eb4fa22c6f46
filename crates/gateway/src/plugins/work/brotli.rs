//! `brotli`: responses are compressed.

use super::compression::{Chosen, Coding, Compress, Compressor, Which};
use crate::plugins::filter::BodyFilter;
use crate::plugins::{Phase, Phases, Plugin, Reply};
use brotli::CompressorWriter;
use brotli::enc::BrotliEncoderParams;
use brotli::enc::backward_references::BrotliEncoderMode;
use std::io::{self, Write};
use std::sync::Arc;
use towpath_resources::plugins::brotli::Config;

/// Bytes that the compressor writes at a time.
const BUFFER: usize = 4096;

/// See the module.
pub(in crate::plugins) struct Brotli(Arc<Config>);

impl Brotli {
    pub(in crate::plugins) fn new(config: &Arc<Config>) -> Self {
        Self(config.clone())
    }
}

impl Plugin for Brotli {
    fn phases(&self) -> Phases {
        Phases::of([Phase::ResponseHead, Phase::ResponseBody])
    }

    fn response_head(&self, reply: &mut Reply<'_>) {
        let Config { types, min_length, http_version, vary, .. } = &*self.0;
        let (min_length, http_version, vary) = (*min_length, *http_version, *vary);
        let which = Which { coding: Coding::Brotli, types, min_length, http_version, vary };
        if let Some(chosen) = which.mark(reply) {
            reply.record.running.get_or_insert_default().note(self, chosen);
        }
    }

    fn response_body(&self, reply: &mut Reply<'_>) -> Option<Box<dyn BodyFilter>> {
        let chosen = reply.record.running.get_or_insert_default().noted::<Self, Chosen>(self)?.clone();
        let number = |value: u32| i32::try_from(value).unwrap_or_default();
        let mut params = BrotliEncoderParams { quality: number(self.0.comp_level), ..Default::default() };
        params.lgwin = if self.0.lgwin == 0 { 19 } else { number(self.0.lgwin) };
        params.lgblock = number(self.0.lgblock);
        params.mode = match self.0.mode {
            1 => BrotliEncoderMode::BROTLI_MODE_TEXT,
            2 => BrotliEncoderMode::BROTLI_MODE_FONT,
            _ => BrotliEncoderMode::BROTLI_MODE_GENERIC,
        };
        let writer = CompressorWriter::with_params(Vec::new(), BUFFER, &params);
        let compressor = Encoder { writer: Some(writer), ended: Vec::new() };
        Some(Box::new(Compress::new(compressor, Coding::Brotli, chosen)))
    }
}

/// Ends by giving its writer away.
struct Encoder {
    writer: Option<CompressorWriter<Vec<u8>>>,
    ended: Vec<u8>,
}

impl Write for Encoder {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.writer.as_mut().map_or(Ok(bytes.len()), |writer| writer.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.as_mut().map_or(Ok(()), Write::flush)
    }
}

impl Compressor for Encoder {
    fn made(&mut self) -> &mut Vec<u8> {
        match &mut self.writer {
            Some(writer) => writer.get_mut(),
            None => &mut self.ended,
        }
    }

    fn finish(&mut self) -> io::Result<()> {
        if let Some(writer) = self.writer.take() {
            self.ended = writer.into_inner();
        }
        Ok(())
    }
}
