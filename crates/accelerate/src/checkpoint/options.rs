//! What can be chosen for a save.

/// How the state of a training is saved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct SaveStateOptions {
    /// Whether weights are written as `model.safetensors`, and not as `pytorch_model.bin`; on if
    /// not changed.
    pub safe_serialization: bool,
    /// What a save in the background does while an earlier one is not finished.
    pub while_saving: WhileSaving,
}

/// What a save in the background does while an earlier one is not finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WhileSaving {
    /// It waits.
    #[default]
    Wait,
    /// It is refused on all ranks.
    Refuse,
}

impl Default for SaveStateOptions {
    fn default() -> Self {
        Self {
            safe_serialization: true,
            while_saving: WhileSaving::Wait,
        }
    }
}

impl SaveStateOptions {
    /// Chooses the form of the weights.
    #[must_use]
    pub fn safe_serialization(mut self, safe: bool) -> Self {
        self.safe_serialization = safe;
        self
    }

    /// Chooses what happens while an earlier save is not finished.
    #[must_use]
    pub fn while_saving(mut self, choice: WhileSaving) -> Self {
        self.while_saving = choice;
        self
    }
}
