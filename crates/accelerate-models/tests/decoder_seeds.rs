//! New weights of decoders against those of transformers for the same seed.
//!
//! A file of its own, because libtorch has one generator for the whole process.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod recording;

use accelerate::nn::Factory;
use accelerate_models::PretrainedModel;
use accelerate_models::gpt2::GPT2LMHeadModel;
use accelerate_models::llama::LlamaForCausalLM;
use accelerate_models::mixtral::MixtralForCausalLM;
use recording::recorded;
use serde_json::Value;
use tch::Kind;

#[test]
fn new_weights_are_those_of_transformers() {
    let seeded = &recorded("decoders.json")["seeded"];
    check::<GPT2LMHeadModel>(&seeded["GPT2LMHeadModel"]);
    check::<LlamaForCausalLM>(&seeded["LlamaForCausalLM"]);
    check::<MixtralForCausalLM>(&seeded["MixtralForCausalLM"]);
}

fn check<M: PretrainedModel>(recorded: &Value) {
    let config: M::Config = serde_json::from_value(recorded["config"].clone()).unwrap();
    tch::manual_seed(0);
    let model = M::new(&config, &Factory::default()).unwrap();
    for (name, parameter) in model.named_parameters() {
        let found = parameter.tensor().sum(Kind::Double).double_value(&[]);
        let expected = recorded["sums"][&name].as_f64().unwrap();
        assert!(
            (found - expected).abs() < 1e-6,
            "{name}: {found} {expected}"
        );
    }
}
