//! Numbers as Python writes them.

/// The shortest text that Python's `float` reads as the same number: `0.1`, `1e-05`, `1e+16`, `inf`.
pub fn python_float(value: f64) -> String {
    if !value.is_finite() {
        // `NaN` in Rust.
        return value.to_string().to_lowercase();
    }
    // Rust turns to exponents at the same sizes as Python, but writes `1e16` and `1e-5`.
    let text = format!("{value:?}");
    let Some((digits, exponent)) = text.split_once('e') else {
        return text;
    };
    let (sign, exponent) = match exponent.strip_prefix('-') {
        Some(exponent) => ('-', exponent),
        None => ('+', exponent),
    };
    format!("{digits}e{sign}{exponent:0>2}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponents_have_a_sign_and_two_digits() {
        for (value, text) in [
            (1.0, "1.0"),
            (-0.0, "-0.0"),
            (0.1, "0.1"),
            (1e15, "1000000000000000.0"),
            (9_999_999_999_999_998.0, "9999999999999998.0"),
            (1e16, "1e+16"),
            (1.5e16, "1.5e+16"),
            (0.0001, "0.0001"),
            (0.000_09, "9e-05"),
            (1e-300, "1e-300"),
            (5e-324, "5e-324"),
            (f64::NEG_INFINITY, "-inf"),
            (f64::NAN, "nan"),
        ] {
            assert_eq!(python_float(value), text);
        }
    }
}
