//! Folders of models: written, read, refused.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::path::Path;

use accelerate::checkpoint::{Metadata, Weights, save_weights};
use accelerate::nn::{Factory, Forward, Module};
use accelerate_models::bert::{
    BertConfig, BertForMaskedLM, BertForPreTraining, BertForSequenceClassification,
    BertForTokenClassification, BertInput, BertModel,
};
use accelerate_models::pretrained::ModelType;
use accelerate_models::t5::{T5Config, T5EncoderModel, T5ForConditionalGeneration, T5Input};
use accelerate_models::{
    AutoModelForMaskedLM, AutoModelForSeq2SeqLM, AutoModelForSequenceClassification, Error,
    PretrainedConfig, PretrainedModel,
};
use serde_json::{Value, json};
use tch::{Device, Kind, Tensor};

fn bert() -> BertConfig {
    let json = r#"{"vocab_size": 20, "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2,
                   "intermediate_size": 16, "max_position_embeddings": 12}"#;
    serde_json::from_str(json).unwrap()
}

fn t5() -> T5Config {
    let json = r#"{"vocab_size": 20, "d_model": 8, "d_kv": 4, "d_ff": 16, "num_layers": 1,
                   "num_heads": 2, "decoder_start_token_id": 0}"#;
    serde_json::from_str(json).unwrap()
}

fn saved<M: PretrainedModel>(config: &M::Config) -> (M, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let model = M::new(config, &Factory::default()).unwrap();
    model.save_pretrained(folder.path()).unwrap();
    (model, folder)
}

fn read<M: PretrainedModel>(folder: &Path) -> accelerate_models::Result<M> {
    M::from_folder(folder, &Factory::default())
}

fn change_config(folder: &Path, change: impl FnOnce(&mut Value)) {
    let path = folder.join("config.json");
    let mut config: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    change(&mut config);
    fs::write(path, config.to_string()).unwrap();
}

/// Writes the weights of a folder again under other names.
fn rename_tensors(folder: &Path, rename: impl Fn(&str) -> String) {
    let weights = Weights::open(folder).unwrap();
    let tensors: Vec<_> = weights
        .tensors()
        .map(|tensor| {
            let shape = tensor.shape().to_vec();
            (
                rename(tensor.name()),
                tensor.dtype(),
                shape,
                tensor.bytes().unwrap().into_owned(),
            )
        })
        .collect();
    drop(weights);
    let data = tensors.iter().map(|(name, dtype, shape, bytes)| {
        accelerate_formats::TensorData::new(name, *dtype, shape, bytes)
    });
    let path = folder.join("model.safetensors");
    accelerate_formats::write_file(path, data, &Metadata::pytorch()).unwrap();
}

/// The message with those of its causes.
fn told(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text += &format!(": {error}");
        cause = error.source();
    }
    text
}

#[track_caller]
fn assert_told<T: std::fmt::Debug>(result: Result<T, Error>, parts: &[&str]) {
    let text = told(&result.unwrap_err());
    for part in parts {
        assert!(text.contains(part), "`{part}` is not told: {text}");
    }
}

#[track_caller]
fn assert_same(one: &dyn Module, other: &dyn Module) {
    let (one, other) = (one.named_parameters(), other.named_parameters());
    assert_eq!(one.len(), other.len());
    for ((name, one), (other_name, other)) in one.into_iter().zip(other) {
        assert_eq!(name, other_name);
        assert_eq!(one.tensor(), other.tensor(), "{name}");
    }
}

#[test]
fn what_is_written_is_read_again() {
    fn round_trip<M: PretrainedModel>(config: &M::Config)
    where
        M::Config: PartialEq,
    {
        let (model, folder) = saved::<M>(config);
        let again: M = read(folder.path()).unwrap();
        assert_same(&model, &again);
        assert_eq!(
            again.config().to_json("x").unwrap(),
            config.to_json("x").unwrap()
        );
        assert!(model.is_training() && !again.is_training());
    }
    round_trip::<BertModel>(&bert());
    round_trip::<BertForSequenceClassification>(&bert().with_num_labels(3));
    round_trip::<BertForTokenClassification>(&bert());
    round_trip::<BertForMaskedLM>(&bert());
    round_trip::<BertForPreTraining>(&bert());
    round_trip::<T5ForConditionalGeneration>(&t5());
    round_trip::<T5EncoderModel>(&t5());
}

#[test]
fn a_model_says_how_wide_it_is_also_by_its_task() {
    let (model, folder) = saved::<BertForMaskedLM>(&bert());
    assert_eq!(model.hidden_sizes(), [8]);
    let factory = Factory::default();
    let found = AutoModelForMaskedLM::from_folder(folder.path(), &factory).unwrap();
    assert_eq!(found.hidden_sizes(), [8]);
    let (model, _) = saved::<T5EncoderModel>(&t5());
    let boxed: Box<dyn Module> = Box::new(model);
    assert_eq!(boxed.hidden_sizes(), [8]);
    // Layers have no configuration.
    let layer = accelerate::nn::Linear::new(8, 4, &factory).unwrap();
    assert_eq!(layer.hidden_sizes(), [0u64; 0]);
}

#[test]
fn tied_weights_are_written_once_and_stay_tied() {
    let (_, folder) = saved::<BertForMaskedLM>(&bert());
    let weights = Weights::open(folder.path()).unwrap();
    let decoders = weights.names().filter(|name| name.contains("decoder"));
    assert_eq!(decoders.count(), 0);
    let again: BertForMaskedLM = read(folder.path()).unwrap();
    let words = "bert.embeddings.word_embeddings.weight";
    let find = |name: &str| {
        let named = again.named_parameters();
        let found = named.into_iter().find(|(other, _)| other == name);
        found.map(|(_, parameter)| parameter.clone())
    };
    assert!(find(words).is_some() && find("cls.predictions.decoder.weight").is_none());

    let (_, folder) = saved::<T5ForConditionalGeneration>(&t5());
    let weights = Weights::open(folder.path()).unwrap();
    let tied = ["shared.weight", "lm_head.weight"].map(|name| weights.get(name).unwrap().name());
    assert_eq!(tied, ["shared.weight"; 2]);
}

#[test]
fn heads_come_and_go() {
    let (whole, folder) = saved::<BertForPreTraining>(&bert());
    let bare: BertModel = read(folder.path()).unwrap();
    let find = |model: &dyn Module, name: &str| {
        let named = model.named_parameters();
        let found = named.into_iter().find(|(other, _)| other == name);
        found.unwrap().1.dense().unwrap()
    };
    assert_eq!(
        find(&bare, "pooler.dense.weight"),
        find(&whole, "bert.pooler.dense.weight")
    );
    // A head that the file lacks is new; nothing else is.
    let tokens: BertForTokenClassification = read(folder.path()).unwrap();
    let head = find(&tokens, "classifier.weight");
    assert!(head.abs().max().double_value(&[]) < 0.2);
    assert!(head.abs().sum(Kind::Float).double_value(&[]) > 0.0);
    assert_eq!(
        find(&tokens, "classifier.bias")
            .abs()
            .max()
            .double_value(&[]),
        0.0
    );
    // The head's output layer is the embeddings', which the file has.
    let bare_folder = tempfile::tempdir().unwrap();
    bare.save_pretrained(bare_folder.path()).unwrap();
    let masked: BertForMaskedLM = read(bare_folder.path()).unwrap();
    let words = "bert.embeddings.word_embeddings.weight";
    assert_eq!(find(&masked, words), find(&whole, words));

    // A head of pre-training may be there while the other is not.
    let (_, masked_folder) = saved::<BertForMaskedLM>(&bert());
    read::<BertForPreTraining>(masked_folder.path()).unwrap();

    let (whole, folder) = saved::<T5ForConditionalGeneration>(&t5());
    let encoder: T5EncoderModel = read(folder.path()).unwrap();
    let last = "encoder.final_layer_norm.weight";
    assert_eq!(find(&encoder, last), find(&whole, last));
    // Half of a model is no head that could be new.
    let encoder_folder = tempfile::tempdir().unwrap();
    encoder.save_pretrained(encoder_folder.path()).unwrap();
    let result = read::<T5ForConditionalGeneration>(encoder_folder.path());
    assert_told(result, &["missing", "`decoder.final_layer_norm.weight`"]);
}

#[test]
fn a_part_of_a_head_is_no_head() {
    let (_, folder) = saved::<BertForSequenceClassification>(&bert());
    rename_tensors(folder.path(), |name| {
        name.replace("classifier.bias", "cls.bias")
    });
    let result = read::<BertForSequenceClassification>(folder.path());
    assert_told(result, &["1 missing: `classifier.bias`"]);
    rename_tensors(folder.path(), |name| name.replace("classifier.", "cls."));
    read::<BertForSequenceClassification>(folder.path()).unwrap();
}

#[test]
fn older_names_are_understood() {
    let (model, folder) = saved::<BertForSequenceClassification>(&bert());
    rename_tensors(folder.path(), |name| {
        name.replace("LayerNorm.weight", "LayerNorm.gamma")
    });
    assert_same(
        &model,
        &read::<BertForSequenceClassification>(folder.path()).unwrap(),
    );
}

#[test]
fn the_weights_tell_whether_the_output_layer_is_tied() {
    let mut untied = t5();
    untied.tie_word_embeddings = false;
    let (model, folder) = saved::<T5ForConditionalGeneration>(&untied);
    // What newer versions of the original write for such a model.
    change_config(folder.path(), |config| {
        config["tie_word_embeddings"] = true.into()
    });
    let again: T5ForConditionalGeneration = read(folder.path()).unwrap();
    assert!(!again.config().tie_word_embeddings && !again.config().scale_decoder_outputs());
    assert_same(&model, &again);
    // And a file without weights of its own is tied, whatever the configuration says.
    let (model, folder) = saved::<T5ForConditionalGeneration>(&t5());
    change_config(folder.path(), |config| {
        config["tie_word_embeddings"] = false.into()
    });
    assert_same(
        &model,
        &read::<T5ForConditionalGeneration>(folder.path()).unwrap(),
    );
}

#[test]
fn a_task_finds_its_model() {
    let (model, folder) = saved::<BertForSequenceClassification>(&bert());
    assert_eq!(
        ModelType::from_folder(folder.path()).unwrap(),
        ModelType::Bert
    );
    let factory = Factory::default();
    let auto = AutoModelForSequenceClassification::from_folder(folder.path(), &factory).unwrap();
    assert_same(&model, &auto);
    assert_eq!(auto.class_name(), "BertForSequenceClassification");
    let input = BertInput {
        input_ids: Tensor::zeros([1, 3], (Kind::Int64, Device::Cpu)),
        attention_mask: None,
        token_type_ids: None,
        labels: None,
    };
    assert_eq!(auto.call(input).unwrap().logits.size(), [1, 2]);
    let copy = tempfile::tempdir().unwrap();
    auto.save_pretrained(copy.path()).unwrap();
    assert_same(
        &auto,
        &read::<BertForSequenceClassification>(copy.path()).unwrap(),
    );
    let new = AutoModelForMaskedLM::new_like(folder.path(), &factory).unwrap();
    assert_eq!(new.class_name(), "BertForMaskedLM");

    assert_told(
        AutoModelForSeq2SeqLM::from_folder(folder.path(), &factory),
        &[
            "`bert`, which has no model for sequence to sequence",
            "those that have: `t5`",
        ],
    );
    // Without `model_type`, the class says it.
    change_config(folder.path(), |config| {
        config.as_object_mut().unwrap().remove("model_type");
    });
    assert_eq!(
        ModelType::from_folder(folder.path()).unwrap(),
        ModelType::Bert
    );
}

#[test]
fn another_kind_of_model_is_told() {
    let (_, folder) = saved::<BertModel>(&bert());
    let path = folder.path().join("config.json");
    let name = path.to_str().unwrap();
    assert_told(
        read::<T5ForConditionalGeneration>(folder.path()),
        &[name, "`model_type` `t5`, found `bert`"],
    );
    change_config(folder.path(), |config| config["model_type"] = "lama".into());
    let result = read::<BertModel>(folder.path());
    assert_told(
        result,
        &[
            name,
            "one of `llama`, ",
            "`resnet`",
            "found `model_type` `lama`",
        ],
    );
    change_config(folder.path(), |config| {
        config["architectures"] = json!(["WhisperModel"]);
        config.as_object_mut().unwrap().remove("model_type");
    });
    let factory = Factory::default();
    assert_told(
        AutoModelForMaskedLM::from_folder(folder.path(), &factory),
        &[name, "found `architectures` `WhisperModel`"],
    );
    fs::write(&path, "{}").unwrap();
    assert_told(
        AutoModelForMaskedLM::from_folder(folder.path(), &factory),
        &[name, "neither `model_type` nor `architectures`"],
    );
}

#[test]
fn a_damaged_configuration_is_told_by_its_key() {
    let (_, folder) = saved::<BertModel>(&bert());
    let path = folder.path().join("config.json");
    let name = path.to_str().unwrap();
    change_config(folder.path(), |config| {
        config["hidden_size"] = "wide".into()
    });
    assert_told(
        read::<BertModel>(folder.path()),
        &[name, "`hidden_size`", "\"wide\""],
    );
    change_config(folder.path(), |config| {
        config["hidden_size"] = 8.into();
        config["id2label"] = json!({"one": "x"});
    });
    assert_told(
        read::<BertModel>(folder.path()),
        &[name, "`id2label`", "`one`"],
    );
    change_config(folder.path(), |config| {
        config["id2label"] = json!({"0": "x"});
        config["hidden_size"] = 9.into();
    });
    assert_told(
        read::<BertModel>(folder.path()),
        &[
            "BERT with `num_attention_heads`",
            "a divisor of `hidden_size` 9",
        ],
    );
    for text in ["", "[1]", "{\"hidden_size\": 8", "{} {}"] {
        fs::write(&path, text).unwrap();
        assert_told(read::<BertModel>(folder.path()), &[name]);
    }
    fs::remove_file(&path).unwrap();
    assert_told(
        read::<BertModel>(folder.path()),
        &[name, "a model folder holds"],
    );
}

#[test]
fn a_configuration_that_contradicts_the_weights_is_told() {
    let (_, folder) = saved::<T5ForConditionalGeneration>(&t5());
    change_config(folder.path(), |config| {
        config["num_layers"] = 2.into();
        config["d_ff"] = 12.into();
    });
    assert_told(
        read::<T5ForConditionalGeneration>(folder.path()),
        &[
            folder.path().to_str().unwrap(),
            "`T5ForConditionalGeneration`",
            "8 missing: `encoder.block.1.layer.0.SelfAttention.q.weight`",
            "4 mismatched: ",
            "`encoder.block.0.layer.1.DenseReluDense.wi.weight` (expected [12, 8], found [16, 8])",
        ],
    );
}

#[test]
fn damaged_weights_are_told_with_their_file() {
    let (_, folder) = saved::<T5EncoderModel>(&t5());
    let path = folder.path().join("model.safetensors");
    let whole = fs::read(&path).unwrap();
    let mut lying = whole.clone();
    // A header of 2^63 bytes.
    lying[..8].copy_from_slice(&(1u64 << 63).to_le_bytes());
    let mut elsewhere = whole.clone();
    let at = whole
        .windows(14)
        .position(|bytes| bytes == b"\"data_offsets\"")
        .unwrap();
    elsewhere[at + 16] = b'9';
    for content in [
        &whole[..whole.len() - 1],
        &whole[..9],
        b"",
        &lying,
        &elsewhere,
    ] {
        fs::write(&path, content).unwrap();
        assert_told(
            read::<T5EncoderModel>(folder.path()),
            &[path.to_str().unwrap()],
        );
    }
    fs::remove_file(&path).unwrap();
    let result = read::<T5EncoderModel>(folder.path());
    assert_told(
        result,
        &[folder.path().to_str().unwrap(), "model.safetensors"],
    );
}

#[test]
fn token_ids_and_labels_out_of_range_are_told() {
    let ids = |values: &[i64]| Some(Tensor::from_slice(values).unsqueeze(0));
    let model = BertForMaskedLM::new(&bert(), &Factory::default()).unwrap();
    let run = |tokens: &[i64], labels: Option<Tensor>| {
        let input = BertInput {
            input_ids: ids(tokens).unwrap(),
            attention_mask: None,
            token_type_ids: None,
            labels,
        };
        model.call(input).map(|_| ()).unwrap_err().to_string()
    };
    assert!(run(&[1, 20], None).contains("within 0..20 (`vocab_size`), found 20"));
    assert!(run(&[-1, 2], None).contains("found -1"));
    assert!(run(&[1; 13], None).contains("at most 12 tokens (`max_position_embeddings`)"));
    assert!(run(&[1, 2], ids(&[-100, 20])).contains("labels within 0..20, or -100"));
    assert!(run(&[1, 2], ids(&[3])).contains("each of the 2 rows of logits, found 1 labels"));

    let model = T5ForConditionalGeneration::new(&t5(), &Factory::default()).unwrap();
    let run = |input: T5Input| model.call(input).map(|_| ()).unwrap_err().to_string();
    let (input_ids, labels) = (ids(&[3, 20]), ids(&[4]));
    let text = run(T5Input {
        input_ids,
        labels,
        ..T5Input::default()
    });
    assert!(
        text.contains("`T5Stack` needs token ids within 0..20"),
        "{text}"
    );
    let text = run(T5Input {
        input_ids: ids(&[3]),
        ..T5Input::default()
    });
    assert!(text.contains("`decoder_input_ids` or `labels`"), "{text}");
    let (input_ids, labels) = (ids(&[3]), ids(&[4]));
    let attention_mask = ids(&[1, 1]);
    let text = run(T5Input {
        input_ids,
        labels,
        attention_mask,
        ..T5Input::default()
    });
    assert!(
        text.contains("an attention mask of shape [1, 1], found [1, 2]"),
        "{text}"
    );
    let mut config = t5();
    config.decoder_start_token_id = None;
    let model = T5ForConditionalGeneration::new(&config, &Factory::default()).unwrap();
    let (input_ids, labels) = (ids(&[3]), ids(&[4]));
    let input = T5Input {
        input_ids,
        labels,
        ..T5Input::default()
    };
    let text = model.call(input).map(|_| ()).unwrap_err().to_string();
    assert!(text.contains("`decoder_start_token_id`"), "{text}");
}

#[test]
fn other_types_are_kept_where_the_factory_says_so() {
    let factory = Factory::new(Device::Cpu, Kind::BFloat16);
    let folder = tempfile::tempdir().unwrap();
    let model = BertModel::new(&bert(), &factory).unwrap();
    model.save_pretrained(folder.path()).unwrap();
    let config: Value =
        serde_json::from_slice(&fs::read(folder.path().join("config.json")).unwrap()).unwrap();
    assert_eq!(config["dtype"], "bfloat16");
    assert_eq!(config["architectures"], json!(["BertModel"]));
    assert_same(
        &model,
        &BertModel::from_folder(folder.path(), &factory).unwrap(),
    );
    let wide: BertModel = read(folder.path()).unwrap();
    assert_eq!(wide.parameters()[0].tensor().kind(), Kind::Float);

    // The narrowing layers of T5 stay float32 in float16.
    let half = Factory::new(Device::Cpu, Kind::Half);
    let model = T5EncoderModel::new(&t5(), &half).unwrap();
    let kinds: Vec<Kind> = model
        .named_parameters()
        .into_iter()
        .filter(|(name, _)| name.ends_with("wo.weight"))
        .map(|(_, parameter)| parameter.tensor().kind())
        .collect();
    assert_eq!(kinds, [Kind::Float]);
}

#[test]
fn a_folder_that_cannot_be_written_is_told() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("file");
    fs::write(&file, "").unwrap();
    let model = BertModel::new(&bert(), &Factory::default()).unwrap();
    let folder = file.join("model");
    assert_told(model.save_pretrained(&folder), &[folder.to_str().unwrap()]);
    // Weights alone are no folder of a model.
    let folder = tempfile::tempdir().unwrap();
    save_weights(
        &model,
        folder.path().join("model.safetensors"),
        &Metadata::new(),
    )
    .unwrap();
    assert_told(read::<BertModel>(folder.path()), &["config.json"]);
}
