use super::loader_state::DataLoaderState;
use crate::Result;

/// What a prepared loader can be asked for and told, whatever its data.
///
/// An accelerator reaches the loaders that it prepared through it.
pub trait LoaderControl {
    /// Where the loader stands.
    ///
    /// # Errors
    /// Those of reading generators.
    fn state_dict(&self) -> Result<DataLoaderState>;

    /// Makes the next loop go on where `state` was taken.
    ///
    /// # Errors
    /// [`Error::StateMismatch`](crate::Error::StateMismatch) if it is of another loader.
    fn load_state_dict(&self, state: &DataLoaderState) -> Result<()>;

    /// Whether the last step of an epoch is filled up, so that ranks take equal
    /// steps; `None` where that is not a choice.
    fn even_batches(&self) -> Option<bool> {
        None
    }

    /// Changes [`even_batches`](Self::even_batches) from the next epoch on, where it is a choice.
    fn set_even_batches(&self, _even_batches: bool) {}
}
