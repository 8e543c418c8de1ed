//! Numbers that a recording in Python and a test here both compute, so that no fixture has to
//! hold them: `tests/parity/recorders/formula.py`.

/// `count` values around `centre`, at most `spread` away.
///
/// Value `i` is `centre + spread * (x % 2001 - 1000) / 1000`, where `x` is a hash of `i` and the
/// salt.
pub fn formula(count: usize, salt: u32, centre: f64, spread: f64) -> Vec<f32> {
    let value = |number: u64| {
        let step = i64::from(hashed(number, salt) % 2001) - 1000;
        #[expect(
            clippy::cast_possible_truncation,
            reason = "rounded as the recording does"
        )]
        let value = (centre + spread * (step as f64 / 1000.0)) as f32;
        value
    };
    (0..count as u64).map(value).collect()
}

/// The salt of a parameter or buffer: the CRC-32 of its name, modulo 65536.
pub fn formula_salt(name: &str) -> u32 {
    crc32fast::hash(name.as_bytes()) % 65536
}

#[expect(clippy::cast_possible_truncation, reason = "32 bits are kept")]
fn hashed(number: u64, salt: u32) -> u32 {
    let x = number
        .wrapping_mul(2_654_435_761)
        .wrapping_add(u64::from(salt) * 40_503) as u32;
    let x = (x ^ (x >> 15)).wrapping_mul(739_982_445);
    x ^ (x >> 12)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_of_the_recording() {
        // Printed by `formula.py`.
        assert_eq!(formula_salt("layer1.0.conv1.weight"), 59118);
        assert_eq!(formula(4, 50, 1.0, 0.5), [0.824, 1.0965, 1.2665, 0.9245]);
    }
}
