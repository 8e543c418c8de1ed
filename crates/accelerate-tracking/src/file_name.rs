//! Names of people as names of files.

/// The longest name of a file that is made here.
const LONGEST: usize = 120;

/// The name with everything replaced that could lead elsewhere or that some file system refuses.
pub(crate) fn safe(name: &str) -> String {
    let replaced: String = name
        .chars()
        .take(LONGEST)
        .map(|c| match c {
            _ if c.is_alphanumeric() => c,
            '-' | '_' | '.' | ' ' => c,
            _ => '_',
        })
        .collect();
    match replaced.trim_matches([' ', '.']) {
        "" => "_".to_owned(),
        name => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_leads_elsewhere() {
        for (name, expected) in [
            ("loss", "loss"),
            ("train/loss", "train_loss"),
            ("../../etc", "_.._etc"),
            ("..", "_"),
            ("", "_"),
            ("größe 1", "größe 1"),
        ] {
            assert_eq!(safe(name), expected);
        }
    }
}
