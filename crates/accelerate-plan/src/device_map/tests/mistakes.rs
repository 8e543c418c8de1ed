//! Maps and limits that do not fit.

use super::*;
use crate::Hint;

#[test]
fn all_names_that_do_not_fit_are_told() {
    let layers = vec![small("layer1"), small("layer2"), small("layer10")];
    let model = numbered(module("", "Net", layers));
    let map: DeviceMap =
        serde_json::from_str(r#"{"layer1":0,"layer2.linear1":1,"layr2.linear2":1,"extra":"cpu"}"#)
            .unwrap();
    let error = map.check_device_map(&model).unwrap_err();
    let DeviceMapError::Mismatch { uncovered, unknown } = &error else {
        panic!("{error}");
    };
    let unknown: Vec<_> = unknown
        .iter()
        .map(|unknown| unknown.name.as_str())
        .collect();
    assert_eq!(unknown, ["layr2.linear2", "extra"]);
    assert_eq!(
        uncovered.len(),
        7 + 9,
        "of `layer2` and of all of `layer10`"
    );
    assert!(uncovered.contains(&"layer2.batchnorm.num_batches_tracked".to_owned()));
    assert!(
        error.to_string().contains("`layer10.linear1.weight`"),
        "{error}"
    );
    assert!(
        error.hint().unwrap().contains("`layer2.linear2`"),
        "{error}"
    );
}

#[test]
fn names_of_tensors_and_of_everything_cover_a_model() {
    let model = numbered(small(""));
    let whole = DeviceMap::whole(Placement::Disk);
    whole.check_device_map(&model).unwrap();
    let map: DeviceMap = serde_json::from_str(
        r#"{"linear1.weight":0,"linear1.bias":"cpu","batchnorm":1,"linear2":"cuda:2"}"#,
    )
    .unwrap();
    map.check_device_map(&model).unwrap();
    assert_eq!(map.main_device(), Placement::Accelerator(0));
    assert_eq!(map.placements().len(), 4);
    let nothing = DeviceMap::new().check_device_map(&model).unwrap_err();
    assert!(nothing.hint().unwrap().contains("`\"\"`"));
}

#[test]
fn buffers_outside_of_the_state_need_no_place() {
    let mut model = small("");
    model.buffers.push(TensorShape {
        persistent: false,
        ..TensorShape::buffer("mask", 10, ElementType::Bool, 0)
    });
    let map: DeviceMap =
        serde_json::from_str(r#"{"linear1":0,"batchnorm":0,"linear2":0}"#).unwrap();
    map.check_device_map(&numbered(model.clone())).unwrap();
    model.buffers[0].persistent = true;
    let error = map
        .check_device_map(&numbered(model))
        .unwrap_err()
        .to_string();
    assert!(error.ends_with("it has no place for `mask`"), "{error}");
}

#[test]
fn maps_are_read_strictly() {
    for text in [
        r#"{"a":0,"a":1}"#,
        r#"{"a":"gpu"}"#,
        r#"{"a":-1}"#,
        r#"{"a":null}"#,
        r#"["a"]"#,
    ] {
        assert!(serde_json::from_str::<DeviceMap>(text).is_err(), "{text}");
    }
}

#[test]
fn a_limit_below_the_largest_block_is_told_with_both() {
    let model = numbered(small(""));
    let inferred = infer_auto_device_map(&model, &options("cpu=99")).unwrap();
    assert_eq!(shown(&inferred.device_map), ":disk");
    let error = inferred.check_room().unwrap_err();
    assert_eq!(
        error.to_string(),
        "`linear2` must be whole on `cpu` to be computed and takes 100 bytes, but of the limit of 99 \
         bytes only 99 bytes are left"
    );
    assert!(error.hint().unwrap().contains("at least 100 bytes"));
    let inferred = infer_auto_device_map(&model, &options("0=99")).unwrap();
    let error = inferred.check_room().unwrap_err().to_string();
    assert!(error.contains("whole on `0`"), "{error}");
    for enough in ["cpu=100", "0=164", "0=236,cpu=0", "cpu=236"] {
        let inferred = infer_auto_device_map(&model, &options(enough)).unwrap();
        inferred.check_room().unwrap();
    }
}

#[test]
fn names_that_cannot_be_told_apart_are_refused() {
    let twice = numbered(module("", "Net", vec![small("a"), small("a")]));
    let error = infer_auto_device_map(&twice, &options("0=1GB")).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("`a` cannot be the name of a part of the model")
    );
    let dotted = numbered(module(
        "",
        "Net",
        vec![module("a", "Block", vec![small("b.c")])],
    ));
    let error = infer_auto_device_map(&dotted, &options("0=1GB")).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("`b.c` cannot be the name of a part of `a`")
    );
}
