//! ResNet against the numbers that `tests/parity` recorded from torchvision and transformers.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod images;

use accelerate::checkpoint::{Metadata, save_weights};
use accelerate::nn::{Factory, Forward, Init, Module};
use accelerate_models::image_classification::{AutoModelForImageClassification, ImageInput};
use accelerate_models::pretrained::{PretrainedConfig, PretrainedModel};
use accelerate_models::resnet::{
    ResNet, ResNetArchitecture, ResNetConfig, ResNetForImageClassification, ResNetModel,
    ResidualKind,
};
use images::{Step, fill, fresh, recorded, shape_of};
use tch::Tensor;

fn networks() -> [(&'static str, ResNetArchitecture); 2] {
    [
        (
            "resnet18",
            ResNetArchitecture::resnet18().with_num_classes(10),
        ),
        (
            "grouped",
            ResNetArchitecture::new(ResidualKind::Bottleneck, [1, 2, 1, 1])
                .with_groups(2, 32)
                .with_num_classes(6),
        ),
    ]
}

#[test]
fn first_steps_are_those_of_torchvision() {
    let _turn = accelerate_testkit::turn();
    let recorded = recorded("resnet.json");
    for (name, network) in networks() {
        let empty = Factory::default().with_init(Init::Skip);
        let model = ResNet::new(&network, &empty).unwrap();
        Step::new(&recorded["cases"][name]).check(&model, |images| model.call(images).unwrap());
    }
}

#[test]
fn first_steps_are_those_of_transformers() {
    let _turn = accelerate_testkit::turn();
    let recorded = recorded("resnet.json");
    for name in ["basic", "bottleneck"] {
        let case = &recorded["transformers"][name];
        let mut config: ResNetConfig = serde_json::from_value(case["config"].clone()).unwrap();
        config.settle();
        let model = ResNetForImageClassification::new(&config, &Factory::default()).unwrap();
        let step = Step::new(case);
        step.check(&model, |images| logits(&model, images));
        fill(&model);
        model.train(true);
        let input = ImageInput {
            pixel_values: step.images(),
            labels: Some(step.labels()),
        };
        let loss = model.call(input).unwrap().loss.unwrap().double_value(&[]);
        let expected = case["losses"][0].as_f64().unwrap();
        assert!(
            (loss - expected).abs() < 1e-5 * expected,
            "{loss} {expected}"
        );
    }
}

fn logits(model: &ResNetForImageClassification, images: Tensor) -> Tensor {
    let input = ImageInput {
        pixel_values: images,
        labels: None,
    };
    model.call(input).unwrap().logits
}

#[test]
fn published_networks_have_their_sizes() {
    let _turn = accelerate_testkit::turn();
    let recorded = recorded("resnet.json");
    for (name, sizes) in recorded["sizes"].as_object().unwrap() {
        let network = ResNetArchitecture::from_name(name).unwrap();
        let empty = Factory::default().with_init(Init::Skip);
        let model = ResNet::new(&network, &empty).unwrap();
        let tensors = model.named_parameters().len() + model.named_buffers().len();
        assert_eq!(sizes["tensors"], tensors, "{name}");
        assert_eq!(sizes["parameters"], model.num_parameters(), "{name}");
    }
}

#[test]
fn new_weights_are_those_of_the_original() {
    let _turn = accelerate_testkit::turn();
    let recorded = recorded("resnet.json");
    let seed = recorded["seed"].as_i64().unwrap();
    let plain = |kind| ResNetArchitecture::new(kind, [1, 1, 1, 1]).with_num_classes(3);
    tch::manual_seed(seed);
    let model = ResNet::new(&plain(ResidualKind::Basic), &Factory::default()).unwrap();
    fresh(&model, &recorded["fresh"]["torchvision"]);
    tch::manual_seed(seed);
    let network = plain(ResidualKind::Bottleneck).with_zero_init_residual();
    let model = ResNet::new(&network, &Factory::default()).unwrap();
    fresh(&model, &recorded["fresh"]["zero_init_residual"]);
    let config = recorded["transformers"]["bottleneck"]["config"].clone();
    let mut config: ResNetConfig = serde_json::from_value(config).unwrap();
    config.settle();
    tch::manual_seed(seed);
    let model = ResNetForImageClassification::new(&config, &Factory::default()).unwrap();
    fresh(&model, &recorded["fresh"]["transformers"]);
}

#[test]
fn a_network_is_read_again_and_may_get_other_classes() {
    let _turn = accelerate_testkit::turn();
    let folder = tempfile::tempdir().unwrap();
    let network = ResNetArchitecture::resnet18()
        .with_num_classes(10)
        .with_planes(8);
    let model = ResNet::new(&network, &Factory::default()).unwrap();
    fill(&model);
    let path = folder.path().join("model.safetensors");
    save_weights(&model, &path, &Metadata::pytorch()).unwrap();
    model.train(false);
    let images = images::filled(&[2, 3, 32, 32], 0);

    let again = ResNet::with_weights_of(&path, &network, &Factory::default()).unwrap();
    assert!(!again.is_training());
    assert_eq!(again.call(&images).unwrap(), model.call(&images).unwrap());

    let other = network.clone().with_num_classes(3);
    let other = ResNet::with_weights_of(&path, &other, &Factory::default()).unwrap();
    assert_eq!(other.call(&images).unwrap().size(), [2, 3]);
    assert_eq!(shape_of(&other, "fc.weight"), [3, 64]);
    let features = network.clone().with_num_classes(0);
    let features = ResNet::with_weights_of(&path, &features, &Factory::default()).unwrap();
    assert_eq!(features.call(&images).unwrap().size(), [2, 64]);

    // timm writes the same weights beside its own configuration.
    model.save(folder.path()).unwrap();
    let again = ResNet::from_folder(folder.path(), &Factory::default()).unwrap();
    assert_eq!(again.call(&images).unwrap(), model.call(&images).unwrap());
    let config = r#"{"architecture": "resnet18", "num_classes": 10, "pretrained_cfg": {}}"#;
    std::fs::write(folder.path().join("config.json"), config).unwrap();
    let error = ResNet::from_folder(folder.path(), &Factory::default()).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("`conv1.weight` (expected [64, 3, 7, 7], found [8, 3, 7, 7])"),
        "{error}"
    );
}

#[test]
fn a_folder_of_transformers_is_read_and_written() {
    let _turn = accelerate_testkit::turn();
    let folder = tempfile::tempdir().unwrap();
    let recorded = recorded("resnet.json");
    let config = &recorded["transformers"]["basic"]["config"];
    let mut config: ResNetConfig = serde_json::from_value(config.clone()).unwrap();
    config.settle();
    let model = ResNetForImageClassification::new(&config, &Factory::default()).unwrap();
    fill(&model);
    model.save_pretrained(folder.path()).unwrap();
    model.train(false);
    let input = || ImageInput {
        pixel_values: images::filled(&[2, 3, 32, 32], 0),
        labels: None,
    };
    let again = AutoModelForImageClassification::from_folder(folder.path(), &Factory::default());
    let again = again.unwrap();
    assert!(matches!(again, AutoModelForImageClassification::ResNet(_)));
    assert_eq!(
        again.call(input()).unwrap().logits,
        model.call(input()).unwrap().logits
    );
    let bare = ResNetModel::from_folder(folder.path(), &Factory::default()).unwrap();
    let output = bare.call(input().pixel_values).unwrap();
    assert_eq!(output.pooler_output.size(), [2, 32, 1, 1]);
    let other = config.with_num_labels(2);
    let error =
        ResNetForImageClassification::with_weights_of(folder.path(), &other, &Factory::default());
    assert!(
        error
            .unwrap_err()
            .to_string()
            .contains("classifier.1.weight")
    );
}

#[test]
fn configurations_that_cannot_be_are_told() {
    let _turn = accelerate_testkit::turn();
    for (json, key) in [
        (r#"{"hidden_sizes": [], "depths": []}"#, "hidden_sizes"),
        (r#"{"depths": [3, 4]}"#, "depths"),
        (r#"{"num_channels": 0}"#, "num_channels"),
    ] {
        let config: ResNetConfig = serde_json::from_str(json).unwrap();
        let error = config.check().unwrap_err().to_string();
        assert!(error.contains(&format!("`{key}`")), "{json}: {error}");
    }
    assert!(serde_json::from_str::<ResNetConfig>(r#"{"layer_type": "round"}"#).is_err());
}
