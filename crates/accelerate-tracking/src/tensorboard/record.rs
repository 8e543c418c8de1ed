//! Records of an event file: length, checksum, payload, checksum.

use std::io::{self, Write};

/// The remainders of all bytes by the reflected Castagnoli polynomial.
const TABLE: [u32; 256] = table();

const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut remainder = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            let carry = remainder & 1;
            remainder = (remainder >> 1) ^ (carry * 0x82f6_3b78);
            bit += 1;
        }
        table[byte] = remainder;
        byte += 1;
    }
    table
}

/// CRC-32C.
pub(super) fn crc32c(bytes: &[u8]) -> u32 {
    let step = |sum: u32, byte: &u8| {
        let [low, ..] = sum.to_le_bytes();
        let remainder = TABLE
            .get(usize::from(low ^ byte))
            .copied()
            .unwrap_or_default();
        (sum >> 8) ^ remainder
    };
    !bytes.iter().fold(!0, step)
}

/// The checksum as it is stored: turned and shifted, so that one over data with checksums in it is not
/// weak.
fn masked(bytes: &[u8]) -> [u8; 4] {
    crc32c(bytes)
        .rotate_right(15)
        .wrapping_add(0xa282_ead8)
        .to_le_bytes()
}

/// Writes one record.
pub(super) fn write(file: &mut impl Write, payload: &[u8]) -> io::Result<()> {
    let length = (payload.len() as u64).to_le_bytes();
    let mut record = Vec::with_capacity(payload.len() + 16);
    record.extend_from_slice(&length);
    record.extend_from_slice(&masked(&length));
    record.extend_from_slice(payload);
    record.extend_from_slice(&masked(payload));
    // One call, so that a killed process leaves whole records.
    file.write_all(&record)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensorboard::event;

    #[test]
    fn the_checksum_has_its_check_value() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }

    #[test]
    fn records_have_the_bytes_that_the_original_writes() {
        let mut file = Vec::new();
        write(&mut file, &event::version(0.0)).unwrap();
        let expected = [
            &[0x18, 0, 0, 0, 0, 0, 0, 0, 0xa3, 0x7f, 0x4b, 0x22][..],
            &[0x09, 0, 0, 0, 0, 0, 0, 0, 0, 0x1a, 0x0d],
            b"brain.Event:2",
            &[0xee, 0xdf, 0x28, 0xa3],
        ]
        .concat();
        assert_eq!(file, expected);

        file.clear();
        write(
            &mut file,
            &event::summary(0.0, Some(3), &[event::scalar("loss", 0.5)]),
        )
        .unwrap();
        let expected = [
            &[0x1a, 0, 0, 0, 0, 0, 0, 0, 0x12, 0x9b, 0xd8, 0x2d][..],
            &[
                0x09, 0, 0, 0, 0, 0, 0, 0, 0, 0x10, 0x03, 0x2a, 0x0d, 0x0a, 0x0b, 0x0a, 0x04,
            ],
            b"loss",
            &[0x15, 0, 0, 0, 0x3f, 0xe2, 0x5a, 0xd2, 0x74],
        ]
        .concat();
        assert_eq!(file, expected);
    }
}
