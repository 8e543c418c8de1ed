//! One test per way a header can lie, and the agreement with the reference reader.

use proptest::prelude::*;
use safetensors::SafeTensors;

use super::*;

/// A file with this header and `data` zeros.
fn file(json: &str, data: usize) -> Vec<u8> {
    let mut bytes = (json.len() as u64).to_le_bytes().to_vec();
    bytes.extend(json.as_bytes());
    bytes.resize(bytes.len() + data, 0);
    bytes
}

fn entry(name: &str, dtype: &str, shape: &str, begin: usize, end: usize) -> String {
    format!(r#""{name}":{{"dtype":"{dtype}","shape":{shape},"data_offsets":[{begin},{end}]}}"#)
}

fn fault_of(entries: &[String], data: usize) -> HeaderFault {
    parse(&file(&format!("{{{}}}", entries.join(",")), data)).unwrap_err()
}

macro_rules! assert_fault {
    ($fault:expr, $pattern:pat $(if $guard:expr)?) => {{
        let fault = $fault;
        assert!(matches!(&fault, $pattern $(if $guard)?), "{fault:?}: {fault}");
    }};
}

#[test]
fn a_sound_header_gives_ranges_of_the_file_in_data_order() {
    let entries = [
        entry("late", "U8", "[3]", 8, 11),
        entry("none", "F32", "[0]", 8, 8),
        entry("early", "F32", "[2,1]", 0, 8),
    ];
    let json = format!(r#" {{"__metadata__":{{"k":"v"}},{}}} "#, entries.join(","));
    let header = parse(&file(&json, 11)).unwrap();
    let begin = 8 + json.len();
    let read: Vec<_> = header
        .tensors
        .iter()
        .map(|t| (t.name.as_str(), t.dtype, t.range.clone()))
        .collect();
    let expected = [
        ("early", Dtype::F32, begin..begin + 8),
        ("none", Dtype::F32, begin + 8..begin + 8),
        ("late", Dtype::U8, begin + 8..begin + 11),
    ];
    assert_eq!(read, expected);
    assert_eq!(header.tensors[0].shape, [2, 1]);
    assert_eq!(header.metadata.get("k"), Some("v"));
}

#[test]
fn a_file_without_tensors_is_sound() {
    assert!(parse(&file("{}", 0)).unwrap().tensors.is_empty());
    assert!(
        parse(&file(r#"{"__metadata__":null}"#, 0))
            .unwrap()
            .metadata
            .is_empty()
    );
}

#[test]
fn lengths_that_lie() {
    assert_fault!(
        parse(&[]).unwrap_err(),
        HeaderFault::TooShort { found_bytes: 0 }
    );
    assert_fault!(
        parse(&[1; 7]).unwrap_err(),
        HeaderFault::TooShort { found_bytes: 7 }
    );
    assert_fault!(
        parse(&u64::MAX.to_le_bytes()).unwrap_err(),
        HeaderFault::HeaderTooLong {
            header_bytes: u64::MAX,
            limit_bytes: 100_000_000
        }
    );
    assert_fault!(
        parse(&100_000_000u64.to_le_bytes()).unwrap_err(),
        HeaderFault::HeaderPastEnd {
            header_bytes: 100_000_000,
            file_bytes: 8
        }
    );
}

#[test]
fn other_files_are_recognised() {
    let pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n";
    assert_fault!(parse(pointer).unwrap_err(), HeaderFault::GitLfsPointer);
    assert_fault!(
        parse(b"PK\x03\x04 and so on").unwrap_err(),
        HeaderFault::ZipArchive
    );
}

#[test]
fn headers_that_are_no_json_object() {
    let mut bytes = file("{}", 0);
    bytes[8] = 0xff;
    assert_fault!(parse(&bytes).unwrap_err(), HeaderFault::NotUtf8 { .. });
    for json in ["", "[]", "{", "{}{}", "null", r#"{"a"}"#] {
        assert_fault!(
            parse(&file(json, 0)).unwrap_err(),
            HeaderFault::NotJson { .. }
        );
    }
}

#[test]
fn metadata_must_be_text() {
    for value in [r#"{"k":1}"#, "[]", r#""text""#] {
        let json = format!(r#"{{"__metadata__":{value}}}"#);
        assert_fault!(
            parse(&file(&json, 0)).unwrap_err(),
            HeaderFault::BadMetadata { .. }
        );
    }
}

#[test]
fn names_that_stand_twice() {
    let twice = [
        entry("a", "U8", "[1]", 0, 1),
        entry(r"\u0061", "U8", "[1]", 1, 2),
    ];
    assert_fault!(fault_of(&twice, 2), HeaderFault::DuplicateName { name } if name == "a");
    let metadata = file(r#"{"__metadata__":{"k":"1","k":"2"}}"#, 0);
    assert_fault!(parse(&metadata).unwrap_err(), HeaderFault::DuplicateName { name } if name == "k");
    let metadata = file(r#"{"__metadata__":{},"__metadata__":{}}"#, 0);
    assert_fault!(parse(&metadata).unwrap_err(), HeaderFault::DuplicateName { name } if name == "__metadata__");
}

#[test]
fn malformed_entries_name_the_tensor() {
    let values = [
        "3",
        r#"{"dtype":"U8","shape":[1]}"#,
        r#"{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}"#,
        r#"{"dtype":"U8","shape":[1],"data_offsets":[0]}"#,
        r#"{"dtype":"U8","shape":[1.5],"data_offsets":[0,1]}"#,
        r#"{"dtype":"U8","dtype":"I8","shape":[1],"data_offsets":[0,1]}"#,
    ];
    for value in values {
        assert_fault!(fault_of(&[format!(r#""x":{value}"#)], 1), HeaderFault::BadEntry { tensor, .. } if tensor == "x");
    }
    assert_fault!(
        fault_of(&[entry("x", "F128", "[1]", 0, 16)], 16),
        HeaderFault::UnknownDtype { tensor, source } if tensor == "x" && source.found == "F128"
    );
}

#[test]
fn places_that_lie() {
    let a = entry("a", "U8", "[4]", 0, 4);
    assert_fault!(
        fault_of(&[a.clone(), entry("b", "U8", "[4]", 5, 9)], 9),
        HeaderFault::Hole { tensor, expected: 4, found: 5 } if tensor == "b"
    );
    assert_fault!(
        fault_of(&[entry("b", "U8", "[4]", 1, 5)], 5),
        HeaderFault::Hole { tensor, expected: 0, found: 1 } if tensor == "b"
    );
    assert_fault!(
        fault_of(&[a.clone(), entry("b", "U8", "[4]", 3, 7)], 7),
        HeaderFault::Overlap { tensor, previous, begin: 3, previous_end: 4 } if tensor == "b" && previous == "a"
    );
    assert_fault!(
        fault_of(&[entry("b", "U8", "[4]", 0, 4), a.clone()], 4),
        HeaderFault::Overlap {
            begin: 0,
            previous_end: 4,
            ..
        }
    );
    assert_fault!(
        fault_of(&[a.clone(), entry("b", "U8", "[0]", 4, 2)], 4),
        HeaderFault::EndBeforeBegin { tensor, begin: 4, end: 2 } if tensor == "b"
    );
    assert_fault!(
        fault_of(std::slice::from_ref(&a), 3),
        HeaderFault::Truncated {
            expected_bytes: 4,
            found_bytes: 3
        }
    );
    assert_fault!(
        fault_of(&[a], 5),
        HeaderFault::TrailingBytes {
            expected_bytes: 4,
            found_bytes: 5
        }
    );
    let far = entry("a", "U8", &format!("[{}]", usize::MAX), 0, usize::MAX);
    assert_fault!(fault_of(&[far], 0), HeaderFault::SizeOverflow { .. });
}

#[test]
fn sizes_that_lie() {
    assert_fault!(
        fault_of(&[entry("x", "F32", "[2]", 0, 6)], 6),
        HeaderFault::WrongSize { tensor, dtype: Dtype::F32, shape, expected_bytes: 8, found_bytes: 6 }
            if tensor == "x" && *shape == [2]
    );
    assert_fault!(
        fault_of(&[entry("x", "F32", "[4294967296,4294967296]", 0, 0)], 0),
        HeaderFault::SizeOverflow { tensor, dtype: Dtype::F32, .. } if tensor == "x"
    );
    assert_fault!(
        fault_of(&[entry("x", "F4", "[3]", 0, 2)], 2),
        HeaderFault::PartialByte { tensor, dtype: Dtype::F4, .. } if tensor == "x"
    );
}

#[test]
fn deep_nesting_does_not_exhaust_the_stack() {
    let deep = format!(r#"{{"x":{}1{}}}"#, "[".repeat(200_000), "]".repeat(200_000));
    assert!(parse(&file(&deep, 0)).is_err());
}

/// Entries that fill the data one after the other, some of them with a lie in one place.
fn nearly_sound() -> impl Strategy<Value = (Vec<String>, usize)> {
    let dtype = prop::sample::select(vec![
        ("U8", 8),
        ("F16", 16),
        ("F32", 32),
        ("F4", 4),
        ("F6_E2M3", 6),
    ]);
    let tensors = prop::collection::vec((dtype, prop::collection::vec(0usize..4, 0..3)), 0..5);
    let lie = prop_oneof![2 => Just([0, 0, 0]), 3 => [0..5usize, 0..3usize, 0..3usize]];
    (tensors, lie, any::<bool>(), 0usize..10).prop_map(
        |(tensors, [at, begin_by, end_by], backwards, more)| {
            let mut end = 0;
            let mut entries = Vec::new();
            for (number, ((dtype, bits), shape)) in tensors.into_iter().enumerate() {
                let begin = end;
                end += (shape.iter().product::<usize>() * bits).div_ceil(8);
                let (begin_by, end_by) = if number == at {
                    (begin_by, end_by)
                } else {
                    (0, 0)
                };
                entries.push(entry(
                    &number.to_string(),
                    dtype,
                    &format!("{shape:?}"),
                    begin + begin_by,
                    end + end_by,
                ));
            }
            if backwards {
                entries.reverse();
            }
            (entries, end + usize::from(more == 9))
        },
    )
}

proptest! {
    /// Whatever the reference reader refuses is refused here and explained; what it takes is
    /// taken here, with the same bytes for each name.
    #[test]
    fn agrees_with_the_reference((entries, data) in nearly_sound()) {
        let mut bytes = file(&format!("{{{}}}", entries.join(",")), data);
        let first = bytes.len() - data;
        bytes[first..].iter_mut().zip(0..).for_each(|(byte, value)| *byte = value);
        match (parse(&bytes), SafeTensors::deserialize(&bytes)) {
            (Ok(ours), Ok(theirs)) => {
                prop_assert_eq!(ours.tensors.len(), theirs.len());
                for tensor in &ours.tensors {
                    prop_assert_eq!(&bytes[tensor.range.clone()], theirs.tensor(&tensor.name).unwrap().data());
                }
            }
            (Err(fault), Err(_)) => prop_assert!(!matches!(fault, HeaderFault::Refused { .. }), "{:?}", fault),
            (ours, theirs) => prop_assert!(false, "{:?} {:?}", ours, theirs.err()),
        }
    }

    /// No byte changed in a sound file and no cut makes the reader panic or hand out a range
    /// outside it.
    #[test]
    fn damage_is_an_error_or_harmless(
        at in any::<prop::sample::Index>(),
        to in any::<u8>(),
        cut in prop_oneof![Just(0usize), 1..140usize],
    ) {
        let json = format!("{{{},{}}}", entry("a", "F32", "[2]", 0, 8), entry("b", "U8", "[3]", 8, 11));
        let mut bytes = file(&json, 11);
        let place = at.index(bytes.len());
        bytes[place] = to;
        bytes.truncate(bytes.len().saturating_sub(cut));
        match parse(&bytes) {
            Ok(header) => prop_assert!(header.tensors.iter().all(|tensor| bytes.get(tensor.range.clone()).is_some())),
            Err(fault) => prop_assert!(!fault.to_string().is_empty()),
        }
    }
}
