use super::group::{IntoParamGroups, ParamGroup, ParamGroups};
use super::optimizer::Optimizer;
use super::state_dict::StateDict;
use crate::{Error, Result};

const NAME: &str = "DummyOptim";

/// What a [`DummyOptim`] says where the DeepSpeed config says `auto`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DummyOptimConfig {
    /// The learning rate.
    pub lr: f64,
    /// The weight decay.
    pub weight_decay: f64,
}

impl Default for DummyOptimConfig {
    fn default() -> Self {
        Self {
            lr: 1e-3,
            weight_decay: 0.0,
        }
    }
}

/// A stand-in for the optimizer that a DeepSpeed config names: it has the parameters, and
/// [`prepare`](crate::Accelerator::prepare) puts the named optimizer into its place.
///
/// Learning rates and weight decays of single groups are kept. It makes no steps itself.
///
/// # Source
/// `accelerate.utils.DummyOptim`. Differs: further arguments, which the original stores and nobody
/// reads, do not exist.
#[derive(Debug)]
pub struct DummyOptim {
    config: DummyOptimConfig,
    groups: ParamGroups,
    /// Learning rate and weight decay that each group was given of its own.
    own: Vec<(Option<f64>, Option<f64>)>,
}

impl DummyOptim {
    /// A stand-in with these parameters.
    ///
    /// # Errors
    /// [`Error::Argument`] if a setting is out of range, there is no parameter, or one is in two
    /// groups or no leaf of the graph.
    pub fn new(parameters: impl IntoParamGroups, config: DummyOptimConfig) -> Result<Self> {
        let groups = parameters.into_param_groups();
        let own = groups.iter().map(|group| (group.lr, group.weight_decay));
        Ok(Self {
            config,
            own: own.collect(),
            groups: ParamGroups::new(NAME, groups, config.lr, config.weight_decay)?,
        })
    }

    /// What it says where the config says `auto`.
    #[must_use]
    pub fn config(&self) -> DummyOptimConfig {
        self.config
    }

    /// The groups as they were given, for the optimizer that takes its place.
    pub(crate) fn param_groups(&self) -> Vec<ParamGroup> {
        let groups = self.own.iter().enumerate();
        groups
            .map(|(number, &(lr, weight_decay))| {
                let parameters = self.groups.parameters(number).unwrap_or_default();
                ParamGroup {
                    parameters: parameters.iter().map(|one| one.shallow_clone()).collect(),
                    lr,
                    weight_decay,
                    names: self.groups.names(number).to_vec(),
                }
            })
            .collect()
    }
}

impl Optimizer for DummyOptim {
    fn name(&self) -> &'static str {
        NAME
    }

    fn groups(&self) -> &ParamGroups {
        &self.groups
    }

    fn stand_in(&self) -> Option<&DummyOptim> {
        Some(self)
    }

    fn step(&mut self) -> Result<()> {
        Err(unprepared("DummyOptim::step"))
    }

    fn state_dict(&self) -> Result<StateDict> {
        Err(unprepared("DummyOptim::state_dict"))
    }

    fn load_state_dict(&mut self, _state: &StateDict) -> Result<()> {
        Err(unprepared("DummyOptim::load_state_dict"))
    }
}

fn unprepared(operation: &'static str) -> Error {
    Error::Argument {
        operation,
        expected: "a stand-in that was prepared".to_owned(),
        found: "one that was not, which is no optimizer yet".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use tch::{Device, Kind, Tensor};

    use super::*;

    fn parameter() -> Tensor {
        Tensor::ones([2], (Kind::Float, Device::Cpu)).set_requires_grad(true)
    }

    #[test]
    fn groups_come_back_as_they_were_given() -> Result<()> {
        let groups = vec![
            ParamGroup::named([("a".to_owned(), parameter())]).lr(0.5),
            ParamGroup::new(vec![parameter(), parameter()]).weight_decay(0.25),
        ];
        let config = DummyOptimConfig {
            lr: 0.1,
            weight_decay: 0.01,
        };
        let dummy = DummyOptim::new(groups, config)?;
        assert_eq!(dummy.learning_rates().all(), [0.5, 0.1]);
        let back = dummy.param_groups();
        let own: Vec<_> = back.iter().map(|one| (one.lr, one.weight_decay)).collect();
        assert_eq!(own, [(Some(0.5), None), (None, Some(0.25))]);
        assert_eq!(back[0].names, ["a"]);
        assert_eq!((back[0].parameters.len(), back[1].parameters.len()), (1, 2));
        Ok(())
    }

    #[test]
    fn by_itself_it_makes_no_step() -> Result<()> {
        let mut dummy = DummyOptim::new(vec![parameter()], DummyOptimConfig::default())?;
        let text = dummy.step().unwrap_err().to_string();
        assert!(text.contains("a stand-in that was prepared"), "{text}");
        assert!(dummy.state_dict().is_err());
        assert!(DummyOptim::new(Vec::<Tensor>::new(), DummyOptimConfig::default()).is_err());
        Ok(())
    }
}
