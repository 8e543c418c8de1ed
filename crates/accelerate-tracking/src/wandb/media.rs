//! Pictures and tables as files of a run, and what a row says of them.

use sha2::{Digest as _, Sha256};

use crate::file_name::safe;
use crate::media::{Image, Table};
use crate::value::{Value, Values};

pub(super) fn image_path(name: &str, step: &str) -> String {
    format!("media/images/{}_{step}.png", safe(name))
}

pub(super) fn table_path(name: &str, step: &str) -> String {
    format!("media/table/{}_{step}.table.json", safe(name))
}

/// What a row says of pictures of one name. The sizes are those of the first.
pub(super) fn images(images: &[Image], paths: &[String]) -> Value {
    let (width, height) = images
        .first()
        .map_or((0, 0), |image| (image.width(), image.height()));
    let mut values = Values::new()
        .with("_type", "images/separated")
        .with("width", width)
        .with("height", height)
        .with("format", "png")
        .with("count", images.len())
        .with("filenames", list(paths.iter().map(String::as_str)));
    if images.iter().any(|image| image.caption().is_some()) {
        let captions = images
            .iter()
            .map(|image| image.caption().unwrap_or_default());
        values.insert("captions", list(captions));
    }
    values.into()
}

/// What a row says of a table.
pub(super) fn table(table: &Table, path: &str, bytes: &[u8]) -> Value {
    Values::new()
        .with("_type", "table-file")
        .with("path", path)
        .with("sha256", sha256(bytes))
        .with("size", bytes.len())
        .with("ncols", table.columns().len())
        .with("nrows", table.rows().len())
        .into()
}

fn list<'a>(texts: impl Iterator<Item = &'a str>) -> Vec<Value> {
    texts.map(Value::from).collect()
}

fn sha256(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_has_its_check_value() {
        assert_eq!(
            sha256(b"abc"),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }
}
