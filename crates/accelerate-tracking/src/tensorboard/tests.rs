use super::*;

fn started(folder: &Path) -> TensorBoard {
    let mut tracker = TensorBoard::new();
    tracker
        .start(&RunContext::new("project").logging_dir(folder))
        .unwrap();
    tracker
}

/// All files below, by their paths relative to `folder`, with their bytes.
fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    let mut left = vec![folder.to_owned()];
    while let Some(next) = left.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                left.push(path);
            } else {
                let name = path.strip_prefix(folder).unwrap();
                found.push((
                    name.to_string_lossy().into_owned(),
                    fs::read(&path).unwrap(),
                ));
            }
        }
    }
    found.sort();
    found
}

/// The payloads of a file, each with its checksums checked.
fn payloads(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
        let payload = bytes[12..12 + length].to_vec();
        let mut again = Vec::new();
        record::write(&mut again, &payload).unwrap();
        assert_eq!(again, bytes[..length + 16]);
        found.push(payload);
        bytes = &bytes[length + 16..];
    }
    found
}

fn holds(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

#[test]
fn values_go_where_their_kind_goes() {
    let folder = tempfile::tempdir().unwrap();
    let mut tracker = started(folder.path());
    let values = Values::new()
        .with("total_loss", 0.1)
        .with("iteration", 1)
        .with("my_text", "some_value")
        .with("list", vec![Value::from(1)])
        .with("a/b", Values::from([("x", 1.0)]));
    tracker.log(&values, Some(2), &Values::new()).unwrap();
    tracker.log_histogram("h", &[1.0, 2.0], None).unwrap();
    tracker.finish().unwrap();
    let files = files(&folder.path().join("project"));
    let names: Vec<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
    assert!(
        names[0].starts_with("a_b_x/events.out.tfevents."),
        "{names:?}"
    );
    assert!(
        names[1].starts_with("events.out.tfevents.") && names.len() == 2,
        "{names:?}"
    );
    let main = payloads(&files[1].1);
    assert_eq!(main.len(), 3);
    // Step 2, then the summary; the first value is `total_loss`.
    assert_eq!(main[1][9..12], [0x10, 2, 0x2a]);
    assert!(holds(&main[1], b"total_loss\x15") && holds(&main[1], b"my_text/text_summary"));
    assert!(!holds(&main[1], b"list"));
    // Without a step there is no such field.
    assert_eq!(main[2][9], 0x2a);
    assert!(holds(
        &payloads(&files[0].1)[1],
        b"\x0a\x03a/b\x15\0\0\x80\x3f"
    ));
    let error = tracker.log(&values, None, &Values::new()).unwrap_err();
    assert!(matches!(error, Error::NotRunning { .. }), "{error}");
}

#[test]
fn settings_are_kept_as_records_and_as_text() {
    let folder = tempfile::tempdir().unwrap();
    let mut tracker = started(folder.path());
    let settings = Values::new()
        .with("num_iterations", 12)
        .with("learning_rate", 0.01)
        .with("some_boolean", false)
        .with("some_string", "some_value");
    tracker.store_init_configuration(&settings).unwrap();
    let files = files(&folder.path().join("project"));
    let text = files
        .iter()
        .find(|(name, _)| name.ends_with("/hparams.yml"))
        .unwrap();
    assert_eq!(
        String::from_utf8_lossy(&text.1),
        "num_iterations: 12\nlearning_rate: 0.01\nsome_boolean: false\nsome_string: some_value\n"
    );
    let records = files
        .iter()
        .filter(|(name, _)| name.contains("/events"))
        .map(|(_, bytes)| payloads(bytes));
    let records: Vec<Vec<u8>> = records.flatten().collect();
    for tag in ["experiment", "session_start_info", "session_end_info"] {
        let tag = format!("_hparams_/{tag}");
        assert!(
            records.iter().any(|record| holds(record, tag.as_bytes())),
            "{tag}"
        );
    }
}

#[test]
fn pictures_of_one_name_stand_in_one_grid() {
    let image = |value| Image::new(2, 1, Colour::Grey, vec![value; 2]).unwrap();
    let images: Vec<Image> = (1..=9).map(image).collect();
    let grid = grid(&images).unwrap().unwrap();
    assert_eq!((grid.width(), grid.height()), (16, 2));
    assert_eq!(grid.pixels()[..4], [1, 1, 2, 2]);
    assert_eq!(grid.pixels()[16..20], [9, 9, 0, 0]);
    assert!(super::grid(&[]).unwrap().is_none());
    let other = Image::new(1, 1, Colour::Grey, vec![0]).unwrap();
    assert!(super::grid(&[image(1), other]).is_err());
}

#[test]
fn a_folder_is_needed() {
    let error = TensorBoard::new().start(&RunContext::new("p")).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("Logging with `tensorboard` requires a `logging_dir`"),
        "{error}"
    );
}
