//! Whole training steps: forward, backward, AdamW.

use std::error::Error;
use std::time::{Duration, Instant};

use accelerate::nn::Forward;
use accelerate::optim::{AdamW, AdamWConfig, Optimizer};
use accelerate_models::PretrainedModel;
use accelerate_models::bert::{BertForSequenceClassification, BertInput};
use accelerate_models::decoder::CausalLmInput;
use accelerate_models::gpt2::GPT2LMHeadModel;
use accelerate_models::image_classification::ImageInput;
use accelerate_models::llama::LlamaForCausalLM;
use accelerate_models::mixtral::MixtralForCausalLM;
use accelerate_models::resnet::ResNetForImageClassification;
use accelerate_models::t5::{T5ForConditionalGeneration, T5Input};
use accelerate_models::vit::ViTForImageClassification;
use tch::Tensor;

use super::measures::{Measures, median};
use super::shapes::{self, Shape};

type Outcome<T> = Result<T, Box<dyn Error>>;

const WARM_UP: usize = 3;
const LEAST_STEPS: usize = 5;
const MOST_STEPS: usize = 40;
/// How long steps are made, if there are enough.
const TIME: Duration = Duration::from_secs(2);

/// Every model in every size.
pub(crate) fn run(measures: &mut Measures) -> Outcome<()> {
    for (name, sizes) in shapes::read()? {
        for (size, shape) in sizes {
            let steps = steps_of(&name, &shape)?;
            let key = format!("{name}_{size}");
            measures.check(format!("{key}_parameters"), steps.parameters);
            measures.check(format!("{key}_loss"), (steps.first_loss * 100.0).round());
            measures.time(format!("{key}_step_s"), steps.seconds);
        }
    }
    Ok(())
}

struct Steps {
    parameters: f64,
    first_loss: f64,
    seconds: f64,
}

fn steps_of(name: &str, shape: &Shape) -> Outcome<Steps> {
    match name {
        "bert" => {
            let (ids, labels) = (shape.token_ids(None)?, shape.classes(2)?);
            steps(shape, |model: &BertForSequenceClassification| {
                Ok(model.call(texts(&ids, &labels))?.loss)
            })
        }
        "gpt2" => {
            let ids = shape.token_ids(None)?;
            steps(shape, |model: &GPT2LMHeadModel| {
                Ok(model.call(tokens(&ids))?.loss)
            })
        }
        "llama" => {
            let ids = shape.token_ids(None)?;
            steps(shape, |model: &LlamaForCausalLM| {
                Ok(model.call(tokens(&ids))?.loss)
            })
        }
        "mixtral" => {
            let ids = shape.token_ids(None)?;
            steps(shape, |model: &MixtralForCausalLM| {
                Ok(model.call(tokens(&ids))?.loss)
            })
        }
        "t5" => {
            let ids = shape.token_ids(None)?;
            steps(shape, |model: &T5ForConditionalGeneration| {
                Ok(model.call(pair(&ids))?.loss)
            })
        }
        "resnet" => {
            let (images, labels) = (shape.images()?, shape.classes(shape.rows())?);
            steps(shape, |model: &ResNetForImageClassification| {
                Ok(model.call(pictures(&images, &labels))?.loss)
            })
        }
        "vit" => {
            let (images, labels) = (shape.images()?, shape.classes(shape.rows())?);
            steps(shape, |model: &ViTForImageClassification| {
                Ok(model.call(pictures(&images, &labels))?.loss)
            })
        }
        other => Err(format!("no model `{other}`").into()),
    }
}

fn texts(ids: &Tensor, labels: &Tensor) -> BertInput {
    BertInput {
        input_ids: ids.shallow_clone(),
        attention_mask: None,
        token_type_ids: None,
        labels: Some(labels.shallow_clone()),
    }
}

fn tokens(ids: &Tensor) -> CausalLmInput {
    CausalLmInput::new(ids).with_labels(ids)
}

fn pair(ids: &Tensor) -> T5Input {
    T5Input {
        input_ids: Some(ids.shallow_clone()),
        labels: Some(ids.shallow_clone()),
        ..T5Input::default()
    }
}

fn pictures(images: &Tensor, labels: &Tensor) -> ImageInput {
    ImageInput {
        pixel_values: images.shallow_clone(),
        labels: Some(labels.shallow_clone()),
    }
}

/// The median step of a new model after some that warm up.
fn steps<M: PretrainedModel>(
    shape: &Shape,
    loss: impl Fn(&M) -> accelerate::Result<Option<Tensor>>,
) -> Outcome<Steps> {
    let model = shape.model::<M>()?;
    model.train(true);
    let parameters: Vec<Tensor> = model
        .parameters()
        .iter()
        .map(|parameter| parameter.tensor().shallow_clone())
        .collect();
    let count: usize = parameters.iter().map(Tensor::numel).sum();
    let config = AdamWConfig {
        lr: 1e-4,
        ..AdamWConfig::default()
    };
    let mut optimizer = AdamW::new(parameters, config)?;
    let mut step = || -> Outcome<f64> {
        let loss = loss(&model)?.ok_or("a batch without labels")?;
        loss.f_backward()?;
        optimizer.step()?;
        optimizer.zero_grad()?;
        Ok(loss.f_double_value(&[])?)
    };
    let first_loss = step()?;
    for _ in 0..WARM_UP {
        step()?;
    }
    let (mut times, begin) = (Vec::new(), Instant::now());
    while times.len() < LEAST_STEPS || (times.len() < MOST_STEPS && begin.elapsed() < TIME) {
        let start = Instant::now();
        step()?;
        times.push(start.elapsed());
    }
    Ok(Steps {
        parameters: count as f64,
        first_loss,
        seconds: median(times),
    })
}
