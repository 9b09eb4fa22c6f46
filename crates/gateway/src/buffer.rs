//! Read buffers, kept per thread and used again: a connection holds one only while bytes are in it.

use bytes::Bytes;
use std::cell::RefCell;

/// Size of a buffer. A head and 64 KiB of body fit into one read.
pub(crate) const BUFFER_BYTES: usize = 72 * 1024;
/// Free buffers kept per thread.
const KEPT: usize = 256;

thread_local! {
    static FREE: RefCell<Vec<Box<[u8]>>> = const { RefCell::new(Vec::new()) };
}

/// A buffer that goes back to the free ones of the thread that drops it.
pub(crate) struct Buffer {
    bytes: Box<[u8]>,
    filled: usize,
}

impl Buffer {
    /// A free buffer, empty.
    pub(crate) fn take() -> Self {
        let kept = FREE.try_with(|free| free.borrow_mut().pop()).ok().flatten();
        Self { bytes: kept.unwrap_or_else(|| vec![0; BUFFER_BYTES].into_boxed_slice()), filled: 0 }
    }

    /// The part that is filled.
    pub(crate) fn filled(&self) -> &[u8] {
        self.bytes.get(..self.filled).unwrap_or_default()
    }

    /// The part that is free.
    pub(crate) fn free_mut(&mut self) -> &mut [u8] {
        self.bytes.get_mut(self.filled..).unwrap_or_default()
    }

    /// Says that so many bytes of the free part were filled.
    pub(crate) fn add_filled(&mut self, bytes: usize) {
        self.filled = (self.filled + bytes).min(self.bytes.len());
    }

    /// Whether nothing is free.
    pub(crate) fn is_full(&self) -> bool {
        self.filled == self.bytes.len()
    }

    /// What is filled, shared without a copy.
    pub(crate) fn freeze(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self.filled()
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        if bytes.is_empty() {
            return;
        }
        let _ = FREE.try_with(|free| {
            let mut free = free.borrow_mut();
            if free.len() < KEPT {
                free.push(bytes);
            }
        });
    }
}

/// Pieces below this are copied where they may have to wait.
const PIECE_BYTES: usize = 8 * 1024;

/// A piece that may wait for long: a small one does not keep a whole buffer from being used.
pub(crate) fn to_keep(piece: Bytes) -> Bytes {
    if piece.len() < PIECE_BYTES { Bytes::copy_from_slice(&piece) } else { piece }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_piece_that_waits_does_not_hold_its_buffer() {
        let mut buffer = Buffer::take();
        buffer.add_filled(PIECE_BYTES);
        let at = buffer.filled().as_ptr();
        let bytes = buffer.freeze();
        let (small, large) = (to_keep(bytes.slice(..100)), to_keep(bytes.clone()));
        assert_eq!((small.len(), large.as_ptr()), (100, at));
        drop((bytes, large));
        assert_eq!(Buffer::take().filled().as_ptr(), at);
        drop(small);
    }

    #[test]
    fn a_buffer_is_used_again_after_the_last_slice_of_it_is_gone() {
        let mut buffer = Buffer::take();
        buffer.free_mut()[..5].copy_from_slice(b"hello");
        buffer.add_filled(5);
        let at = buffer.filled().as_ptr();
        let bytes = buffer.freeze();
        let slice = bytes.slice(1..3);
        drop(bytes);
        assert_eq!(&slice[..], b"el");
        assert_ne!(Buffer::take().filled().as_ptr(), at);
        drop(slice);
        let again = Buffer::take();
        assert_eq!(again.filled().as_ptr(), at);
        assert!(again.filled().is_empty());
    }
}
