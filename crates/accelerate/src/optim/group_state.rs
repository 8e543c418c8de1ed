use super::group::ParamGroups;
use super::state_dict::{StateDict, StateReader, StateValue};

impl ParamGroups {
    /// The part of an optimizer's state that every optimizer has.
    pub(super) fn state_dict(&self) -> StateDict {
        let mut state = StateDict::new();
        state.push("step_count", count(self.learning_rates().step_count()));
        for (number, group) in self.groups.iter().enumerate() {
            let rate = self.learning_rates().get(number).unwrap_or_default();
            state.push(
                format!("group.{number}.parameters"),
                count(group.parameters.len() as u64),
            );
            state.push(format!("group.{number}.lr"), StateValue::Float(rate));
            if let Some(initial) = self.learning_rates().recorded_initial(number) {
                state.push(
                    format!("group.{number}.initial_lr"),
                    StateValue::Float(initial),
                );
            }
            let weight_decay = StateValue::Float(group.weight_decay.get());
            state.push(format!("group.{number}.weight_decay"), weight_decay);
        }
        state
    }

    /// Reads what [`state_dict`](Self::state_dict) writes.
    pub(super) fn read(&self, reader: &mut StateReader<'_>) -> Settings {
        let step_count = reader.int("step_count").unwrap_or_default();
        let mut groups = Vec::new();
        for (number, group) in self.groups.iter().enumerate() {
            let expected = group.parameters.len();
            let name = format!("group.{number}.parameters");
            match reader.int(&name) {
                Some(found) if usize::try_from(found) != Ok(expected) => {
                    reader.problem(format!("`{name}`: expected {expected}, found {found}"));
                }
                _ => {}
            }
            let initial = format!("group.{number}.initial_lr");
            groups.push(GroupSettings {
                lr: reader
                    .float(&format!("group.{number}.lr"))
                    .unwrap_or_default(),
                initial: if reader.has(&initial) {
                    reader.float(&initial)
                } else {
                    None
                },
                weight_decay: reader
                    .float(&format!("group.{number}.weight_decay"))
                    .unwrap_or_default(),
            });
        }
        Settings {
            step_count: u64::try_from(step_count).unwrap_or_default(),
            groups,
        }
    }

    /// Puts settings in force that were read.
    pub(super) fn apply(&self, settings: Settings) {
        self.learning_rates().set_step_count(settings.step_count);
        for (number, read) in settings.groups.into_iter().enumerate() {
            self.learning_rates().set(number, read.lr);
            self.learning_rates().set_initial(number, read.initial);
            if let Some(group) = self.groups.get(number) {
                group.weight_decay.set(read.weight_decay);
            }
        }
    }
}

/// Settings of all groups that were read from a saved state.
pub(super) struct Settings {
    step_count: u64,
    groups: Vec<GroupSettings>,
}

struct GroupSettings {
    lr: f64,
    initial: Option<f64>,
    weight_decay: f64,
}

fn count(number: u64) -> StateValue {
    StateValue::Int(i64::try_from(number).unwrap_or(i64::MAX))
}
