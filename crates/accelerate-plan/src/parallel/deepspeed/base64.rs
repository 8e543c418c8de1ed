//! Base64 with the alphabet for addresses, in which a launcher hands a config over.

/// The bytes of a text in URL-safe base64, with or without padding; [`None`] if it is none. The two
/// characters of the usual alphabet are understood too.
pub(super) fn decode(text: &str) -> Option<Vec<u8>> {
    let digits = text.trim().trim_end_matches('=');
    let mut bytes = Vec::with_capacity(digits.len() * 3 / 4);
    let (mut buffer, mut bits) = (0_u32, 0);
    for digit in digits.bytes() {
        buffer = (buffer << 6) | value(digit)?;
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push(u8::try_from((buffer >> bits) & 0xFF).ok()?);
            buffer &= (1 << bits) - 1;
        }
    }
    // A single digit too many holds no byte.
    (bits < 6 && buffer == 0).then_some(bytes)
}

fn value(digit: u8) -> Option<u32> {
    Some(u32::from(match digit {
        b'A'..=b'Z' => digit - b'A',
        b'a'..=b'z' => digit - b'a' + 26,
        b'0'..=b'9' => digit - b'0' + 52,
        b'-' | b'+' => 62,
        b'_' | b'/' => 63,
        _ => return None,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back_with_and_without_padding() {
        for (text, bytes) in [
            ("", &b""[..]),
            ("eyJhIjogMX0=", b"{\"a\": 1}"),
            ("eyJhIjogMX0", b"{\"a\": 1}"),
            ("_-8=", &[0xFF, 0xEF]),
            ("/+8", &[0xFF, 0xEF]),
        ] {
            assert_eq!(decode(text).as_deref(), Some(bytes), "{text}");
        }
        for text in ["a", "ab!c", "ds_config.json", "Zh"] {
            assert_eq!(decode(text), None, "{text}");
        }
    }
}
