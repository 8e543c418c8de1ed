//! The worked examples of the facts.

use indexmap::IndexMap;

use super::*;

fn total(model: &ModuleShape, dtype: Option<ElementType>) -> f64 {
    let sizes = compute_module_sizes(model, dtype, &IndexMap::new());
    sizes.total().fractional_bytes()
}

#[test]
fn sizes_follow_the_type_in_which_a_model_is_loaded() {
    let model = numbered(small(""));
    let sizes = |dtype| {
        let sizes = compute_module_sizes(&model, dtype, &IndexMap::new());
        ["", "linear1", "batchnorm", "linear2"].map(|name| sizes.get(name).bytes())
    };
    assert_eq!(sizes(None), [236, 64, 72, 100]);
    assert_eq!(sizes(Some(ElementType::Float16)), [122, 32, 40, 50]);
    assert_eq!(total(&model, Some(ElementType::Float64)), 236.0);
    assert_eq!(total(&model, Some(ElementType::Int4)), 36.5);
    let special = IndexMap::from([("linear1.weight".to_owned(), ElementType::Float32)]);
    let sizes = compute_module_sizes(&model, Some(ElementType::Float16), &special);
    assert_eq!(sizes.total().bytes(), 146);
    assert_eq!(sizes.get("no.such.name"), MemorySize::ZERO);
}

#[test]
fn sizes_come_parameters_first() {
    let model = numbered(small(""));
    let sizes = compute_module_sizes(&model, None, &IndexMap::new());
    let names: Vec<_> = sizes.iter().map(|(name, _)| name).collect();
    assert_eq!(
        names,
        [
            "",
            "linear1",
            "linear1.weight",
            "linear1.bias",
            "batchnorm",
            "batchnorm.weight",
            "batchnorm.bias",
            "linear2",
            "linear2.weight",
            "linear2.bias",
            "batchnorm.running_mean",
            "batchnorm.running_var",
            "batchnorm.num_batches_tracked",
        ]
    );
    let state = model.state_dict_names();
    assert_eq!(state[3], "batchnorm.bias");
    assert_eq!(state[4], "batchnorm.running_mean");
}

/// The small model with a large buffer in each layer, as many rows of 40 bytes as told.
fn with_buffers(rows: &[u64]) -> ModuleShape {
    let mut model = small("");
    if rows.len() > 3 {
        model.children.push(linear("linear3", 4, 5));
    }
    for (child, rows) in model.children.iter_mut().zip(rows) {
        let buffer = TensorShape::buffer("large", 10 * rows, ElementType::Float32, 0);
        child.buffers.push(TensorShape {
            persistent: false,
            ..buffer
        });
    }
    numbered(model)
}

#[test]
fn buffers_count_whether_they_are_part_of_the_state_or_not() {
    let mut model = small("");
    for (name, rows) in [("one", 10), ("two", 20)] {
        let buffer = TensorShape::buffer(name, rows * 10, ElementType::Float32, 0);
        model.buffers.push(TensorShape {
            persistent: false,
            ..buffer
        });
    }
    let model = numbered(model);
    let bytes = compute_module_total_buffer_size(&model, None, &IndexMap::new());
    assert_eq!(bytes.bytes(), 1240);
    assert!(!model.state_dict_names().contains(&"one".to_owned()));
}

#[test]
fn the_largest_layer_is_the_largest_module_without_modules() {
    let (total, largest) = calculate_maximum_sizes(&numbered(small("")), &[]);
    assert_eq!((total.bytes(), largest.size.bytes()), (236, 100));
    assert_eq!(largest.names, ["linear2"]);
    let two = numbered(sequential(vec![small(""), small("")]));
    let (_, largest) = calculate_maximum_sizes(&two, &[]);
    assert_eq!(largest.names, ["0.linear2", "1.linear2"]);
    let (_, largest) = calculate_maximum_sizes(&two, &["ModelForTest".to_owned()]);
    assert_eq!((largest.size.bytes(), largest.names.len()), (236, 2));
}

#[test]
fn tied_parameters_are_found_in_a_fixed_order() {
    let model = numbered(sequential(vec![linear("", 4, 4), linear("", 4, 4)]));
    let model = tied(model, "0.weight", "1.weight");
    let model = tied(model, "0.bias", "1.bias");
    assert_eq!(
        find_tied_parameters(&model),
        [["0.bias", "1.bias"], ["0.weight", "1.weight"]]
    );
    assert_eq!(total(&model, None), 80.0);
}

#[test]
fn limits_are_balanced() {
    let model = numbered(small(""));
    for (given, low_zero, expected) in [
        ("0=200,1=200", false, "0=200,1=200"),
        ("0=300,1=300", false, "0=215,1=300"),
        ("0=300,1=500", false, "0=215,1=500"),
        ("0=300,2=300", false, "0=215,2=300"),
        ("0=300,cpu=1000", false, "0=300,cpu=1000"),
        ("0=300,cpu=1000", true, "0=300,cpu=1000"),
        ("0=0,1=300,2=300", false, "0=0,1=215,2=300"),
        ("0=0,1=300,2=300", true, "0=0,1=215,2=300"),
        ("0=300,1=300,2=300", true, "0=0,1=215,2=300"),
        ("0=300,1=100,2=100", true, "0=36,1=100,2=100"),
        ("3=300,5=100,7=100", true, "3=36,5=100,7=100"),
        ("0=300,1=300,disk=5", false, "0=215,1=300,disk=5"),
        ("cpu=1000", false, "cpu=1000"),
        ("mps=300,cpu=1000", false, "mps=300,cpu=1000"),
    ] {
        let balance = Balance {
            low_zero,
            detected: false,
        };
        let balanced = get_balanced_memory(&model, &options(given), balance);
        assert_eq!(balanced.to_string(), expected, "{given}");
    }
}

#[test]
fn blocks_that_may_not_be_split_give_more_slack() {
    let four = || small("");
    let model = numbered(sequential(vec![four(), four(), four(), four()]));
    let limits = "0=10000,1=10000,2=10000";
    let balanced = |options| get_balanced_memory(&model, &options, Balance::default());
    let first = |limits: MaxMemory| limits.get(Placement::Accelerator(0));
    assert_eq!(first(balanced(options(limits))), Some(411));
    assert_eq!(first(balanced(no_split(limits, "ModelForTest"))), Some(609));
}

#[test]
fn one_detected_accelerator_keeps_a_tenth() {
    let model = numbered(small(""));
    let detected = Balance {
        low_zero: false,
        detected: true,
    };
    let balanced = |text| get_balanced_memory(&model, &options(text), detected).to_string();
    assert_eq!(balanced("0=1005,cpu=1000"), "0=904,cpu=1000");
    assert_eq!(balanced("0=1000,1=1000"), "0=215,1=1000");
}

#[test]
fn small_models_are_placed() {
    let model = numbered(small(""));
    for (limits, expected) in [
        ("0=200,1=200", "linear1:0 batchnorm:1 linear2:1"),
        ("0=200,1=172,2=200", "linear1:0 batchnorm:1 linear2:1"),
        ("0=236,cpu=1000", ":0"),
        ("0=235,cpu=1000", "linear1:0 batchnorm:cpu linear2:cpu"),
        ("0=1000000", ":0"),
        ("0=164", "linear1:0 batchnorm:disk linear2:disk"),
        ("0=163,cpu=1000", ":cpu"),
        ("0=0,cpu=1000", ":cpu"),
        ("disk=0", ":disk"),
        ("mps=236,cpu=1000", ":mps"),
    ] {
        assert_eq!(inferred(&model, &options(limits)), expected, "{limits}");
    }
    let tied = tied(model, "linear2.weight", "linear1.weight");
    assert_eq!(total(&tied, None), 188.0);
    assert_eq!(inferred(&tied, &options("0=200,1=200")), ":0");
}

#[test]
fn blocks_are_taken_apart_where_their_class_allows_it() {
    let model = numbered(sequential(vec![small(""), small(""), small("")]));
    assert_eq!(
        inferred(&model, &options("0=500,1=500")),
        "0:0 1.linear1:0 1.batchnorm:0 1.linear2:1 2:1"
    );
    let kept = no_split("0=500,1=500", "ModelForTest");
    assert_eq!(inferred(&model, &kept), "0:0 1:1 2:1");
}

#[test]
fn tied_parts_come_along() {
    let layers = vec![small("layer1"), small("layer2"), small("layer3")];
    let model = numbered(module("", "Net", layers));
    let model = tied(model, "layer1.linear2.weight", "layer3.linear2.weight");
    assert_eq!(
        inferred(&model, &options("0=400,1=500")),
        "layer1:0 layer3.linear2:0 layer2:1 layer3.linear1:1 layer3.batchnorm:1"
    );
    let model = tied(model, "layer1.linear2.weight", "layer2.linear2.weight");
    let map = infer_auto_device_map(&model, &options("0=400,1=500"))
        .unwrap()
        .device_map;
    for name in [
        "layer1.linear1.weight",
        "layer2.linear2.bias",
        "layer3.linear2.bias",
    ] {
        assert_eq!(
            map.placement_of(name),
            Some(Placement::Accelerator(0)),
            "{name}"
        );
    }
    for name in [
        "layer2.linear1.bias",
        "layer2.batchnorm.bias",
        "layer3.batchnorm.bias",
    ] {
        assert_eq!(
            map.placement_of(name),
            Some(Placement::Accelerator(1)),
            "{name}"
        );
    }

    let layers = [4, 6, 4, 6].map(|size| linear("", size, size));
    let model = numbered(sequential(layers.into()));
    let model = tied(tied(model, "0.weight", "2.weight"), "0.bias", "2.bias");
    let map = infer_auto_device_map(&model, &options("0=250,1=400"))
        .unwrap()
        .device_map;
    let places = ["0", "1", "2", "3"].map(|name| map.placement_of(name).unwrap().to_string());
    assert_eq!(places, ["0", "1", "0", "1"]);
}

#[test]
fn a_smaller_part_is_found_for_an_empty_place() {
    let layers = vec![
        linear("linear1", 10, 4),
        linear("linear2", 4, 4),
        linear("linear3", 4, 8),
    ];
    let model = numbered(module("", "Net", vec![module("module", "Block", layers)]));
    let fallback = |limits| InferOptions {
        fallback_allocation: true,
        ..options(limits)
    };
    let map = infer_auto_device_map(&model, &fallback("0=256"))
        .unwrap()
        .device_map;
    let places = ["linear1", "linear2", "linear3"].map(|name| {
        let place = map.placement_of(&format!("module.{name}"));
        place.unwrap().to_string()
    });
    assert_eq!(places, ["disk", "0", "disk"]);
    assert_eq!(inferred(&model, &options("0=256")), ":disk");

    let two = numbered(sequential(vec![linear("", 10, 10), linear("", 10, 10)]));
    let two = tied(two, "0.weight", "1.weight");
    assert_eq!(inferred(&two, &fallback("0=600")), ":0");
}

#[test]
fn buffers_without_room_are_warned_of() {
    let three = with_buffers(&[2, 3, 3]);
    let four = with_buffers(&[2, 3, 3, 2]);
    for (model, limits, expected, warns) in [
        (
            &three,
            "0=400,cpu=1GB",
            "linear1:0 batchnorm:cpu linear2:cpu",
            true,
        ),
        (
            &four,
            "0=400,1=400,cpu=1GB",
            "linear1:0 batchnorm:1 linear2:cpu linear3:cpu",
            false,
        ),
        (
            &four,
            "0=400,1=200,cpu=1GB",
            "linear1:0 batchnorm:1 linear2:cpu linear3:cpu",
            true,
        ),
    ] {
        let stays = infer_auto_device_map(model, &options(limits)).unwrap();
        assert_eq!(shown(&stays.device_map), expected);
        assert_eq!(stays.buffer_warning.is_some(), warns, "{limits}");
        let goes = InferOptions {
            offload_buffers: true,
            ..options(limits)
        };
        let goes = infer_auto_device_map(model, &goes).unwrap();
        assert_eq!(goes.buffer_warning, None);
        assert_eq!(goes.device_map, stays.device_map);
    }
    let small = infer_auto_device_map(&numbered(small("")), &options("0=164")).unwrap();
    assert_eq!(small.buffer_warning.unwrap().size.bytes(), 40);
}

#[test]
fn modes_fill_devices_in_their_ways() {
    let layers: Vec<_> = (0..8).map(|_| linear("", 100, 100)).collect();
    let model = numbered(sequential(layers));
    let counts = |mode: &str, limits: &str| {
        let mode: Mode = mode.parse().unwrap();
        let map = mode
            .infer(&model, &options(limits), false)
            .unwrap()
            .device_map;
        ["0", "1", "2", "cpu"].map(|place| {
            let places = (0..8).map(|layer| map.placement_of(&layer.to_string()).unwrap());
            places.filter(|found| found.to_string() == place).count()
        })
    };
    let wide = "0=1000000,1=1000000,2=1000000";
    assert_eq!(counts("auto", wide), [2, 3, 3, 0]);
    assert_eq!(counts("balanced", wide), [2, 3, 3, 0]);
    assert_eq!(counts("balanced_low_0", wide), [0, 5, 3, 0]);
    assert_eq!(counts("sequential", wide), [8, 0, 0, 0]);
    let narrow = "0=120000,1=120000,2=120000,cpu=1000000";
    for mode in Mode::NAMES {
        assert_eq!(counts(mode, narrow), [1, 2, 2, 3], "{mode}");
    }
    assert!("even".parse::<Mode>().is_err());
}

#[test]
fn maps_are_cleaned() {
    for (map, expected) in [
        (r#"{"a":0,"b":0,"c":0}"#, r#"{"":0}"#),
        (r#"{"a":0}"#, r#"{"a":0}"#),
        (
            r#"{"a.x":0,"a.y":0,"b.x.0":1,"b.x.1":1,"b.y.0":2,"b.y.1":2,"c":2}"#,
            r#"{"a":0,"b.x":1,"b.y":2,"c":2}"#,
        ),
        (
            r#"{"h.1.x":0,"h.1.y":0,"h.10.x":1,"h.10.y":1}"#,
            r#"{"h.1":0,"h.10":1}"#,
        ),
    ] {
        let map: DeviceMap = serde_json::from_str(map).unwrap();
        assert_eq!(
            serde_json::to_string(&clean_device_map(&map)).unwrap(),
            expected
        );
    }
}

#[test]
fn what_was_decided_is_told() {
    let model = numbered(small(""));
    let told = infer_auto_device_map(&model, &no_split("0=164", "Block")).unwrap();
    assert_eq!(
        told.explanation.to_string(),
        "no module has class `Block`, which may not be split\n\
         0: `linear1` (64 bytes); 0 bytes left\n\
         0 is full: `batchnorm` (72 bytes) does not fit into the limit of 164 bytes, of which 64 \
         bytes are used and 100 bytes kept for the largest part; it has no parts\n\
         disk: `batchnorm` (72 bytes)\n\
         disk: `linear2` (100 bytes)\n"
    );
    assert_eq!(told.explanation.not_fitting().count(), 1);
    assert!(told.minimum_required.is_empty());
    assert_eq!(told.used_on(Placement::Disk).bytes(), 172);
    assert_eq!(told.largest_offloaded.as_ref().unwrap().0, "linear2");

    let told = infer_auto_device_map(&model, &options("0=163,cpu=1000")).unwrap();
    let required = told.minimum_required.get(&Placement::Accelerator(0));
    assert_eq!(required.unwrap().bytes(), 164);
    assert!(!told.is_offloaded(), "the CPU computes what it holds");
}
