//! The checksums that S3 knows of objects.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::digest;

/// Eight tables a polynomial: as many bytes are taken at once.
type Tables = [[u64; 256]; 8];

/// Tables of a reflected polynomial of up to 64 bits.
const fn tables(polynomial: u64) -> Tables {
    let mut tables = [[0; 256]; 8];
    let mut n = 0;
    while n < 256 {
        let mut value = n as u64;
        let mut bit = 0;
        while bit < 8 {
            value = if value & 1 == 1 { value >> 1 ^ polynomial } else { value >> 1 };
            bit += 1;
        }
        #[expect(clippy::indexing_slicing, reason = "n < 256; evaluated by the compiler")]
        {
            tables[0][n] = value;
        }
        n += 1;
    }
    let mut k = 1;
    while k < 8 {
        let mut n = 0;
        while n < 256 {
            #[expect(clippy::indexing_slicing, reason = "k < 8, n < 256; evaluated by the compiler")]
            {
                let before: u64 = tables[k - 1][n];
                tables[k][n] = before >> 8 ^ tables[0][(before & 255) as usize];
            }
            n += 1;
        }
        k += 1;
    }
    tables
}

/// ISO-HDLC, as in zip and Ethernet.
static CRC32: Tables = tables(0xedb8_8320);
/// Castagnoli, as in iSCSI.
static CRC32C: Tables = tables(0x82f6_3b78);
/// NVMe's.
static CRC64NVME: Tables = tables(0x9a6c_9329_ac4b_c9b5);

fn look(table: &[u64; 256], byte: u64) -> u64 {
    table.get((byte & 255) as usize).copied().unwrap_or_default()
}

fn crc(tables: &Tables, mut state: u64, bytes: &[u8]) -> u64 {
    let [t0, t1, t2, t3, t4, t5, t6, t7] = tables;
    let (eights, rest) = bytes.as_chunks::<8>();
    for eight in eights {
        let x = state ^ u64::from_le_bytes(*eight);
        state = look(t7, x)
            ^ look(t6, x >> 8)
            ^ look(t5, x >> 16)
            ^ look(t4, x >> 24)
            ^ look(t3, x >> 32)
            ^ look(t2, x >> 40)
            ^ look(t1, x >> 48)
            ^ look(t0, x >> 56);
    }
    for &byte in rest {
        state = state >> 8 ^ look(t0, state ^ u64::from(byte));
    }
    state
}

/// A checksum in the making.
#[derive(Clone)]
pub struct Checksum(State);

#[derive(Clone)]
enum State {
    Crc32(u64),
    Crc32c(u64),
    Crc64Nvme(u64),
    Digest(Box<digest::Context>),
}

impl Checksum {
    /// By the name of the header or trailer that holds it.
    pub fn of_header(name: &str) -> Option<Self> {
        Some(Self(match name {
            "x-amz-checksum-crc32" => State::Crc32(0xffff_ffff),
            "x-amz-checksum-crc32c" => State::Crc32c(0xffff_ffff),
            "x-amz-checksum-crc64nvme" => State::Crc64Nvme(u64::MAX),
            "x-amz-checksum-sha1" => {
                State::Digest(Box::new(digest::Context::new(&digest::SHA1_FOR_LEGACY_USE_ONLY)))
            }
            "x-amz-checksum-sha256" => State::Digest(Box::new(digest::Context::new(&digest::SHA256))),
            _ => return None,
        }))
    }

    /// More bytes.
    pub fn add(&mut self, bytes: &[u8]) {
        match &mut self.0 {
            State::Crc32(state) => *state = crc(&CRC32, *state, bytes),
            State::Crc32c(state) => *state = crc(&CRC32C, *state, bytes),
            State::Crc64Nvme(state) => *state = crc(&CRC64NVME, *state, bytes),
            State::Digest(context) => context.update(bytes),
        }
    }

    /// As headers and trailers hold it: base64 of its bytes, the highest first.
    pub fn text(self) -> String {
        match self.0 {
            State::Crc32(state) | State::Crc32c(state) => {
                let [_, _, _, _, low @ ..] = (!state).to_be_bytes();
                STANDARD.encode(low)
            }
            State::Crc64Nvme(state) => STANDARD.encode((!state).to_be_bytes()),
            State::Digest(context) => STANDARD.encode(context.finish()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str, bytes: &[u8]) -> String {
        let mut checksum = Checksum::of_header(name).unwrap();
        checksum.add(bytes);
        checksum.text()
    }

    /// The check values of the catalogue of CRC algorithms, of `123456789`.
    #[test]
    fn check_values() {
        let check = b"123456789";
        let hex = |text: &str| crate::encode::hex(&STANDARD.decode(text).unwrap());
        assert_eq!(hex(&of("x-amz-checksum-crc32", check)), "cbf43926");
        assert_eq!(hex(&of("x-amz-checksum-crc32c", check)), "e3069283");
        assert_eq!(hex(&of("x-amz-checksum-crc64nvme", check)), "ae8b14860a799888");
        assert_eq!(hex(&of("x-amz-checksum-sha1", b"")), "da39a3ee5e6b4b0d3255bfef95601890afd80709");
        assert_eq!(of("x-amz-checksum-sha256", b""), "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=");
        assert!(Checksum::of_header("x-amz-checksum-md5").is_none());
    }

    #[test]
    fn pieces_make_the_same_as_the_whole() {
        let bytes: Vec<u8> = (0..1000_u32).map(|n| (n * 7) as u8).collect();
        for name in ["x-amz-checksum-crc32", "x-amz-checksum-crc32c", "x-amz-checksum-crc64nvme"] {
            let whole = of(name, &bytes);
            for size in [1, 3, 8, 13, 999] {
                let mut checksum = Checksum::of_header(name).unwrap();
                bytes.chunks(size).for_each(|piece| checksum.add(piece));
                assert_eq!(checksum.text(), whole, "{name} {size}");
            }
        }
    }
}
