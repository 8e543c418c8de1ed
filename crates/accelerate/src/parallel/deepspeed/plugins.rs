use std::cell::Cell;

use accelerate_plan::parallel::{DeepSpeedPlugins, ParallelPlan};

use super::DeepSpeed;
use crate::{Error, Result};

/// The configs of a job by name, one of which is selected: by it things are prepared.
#[derive(Debug)]
pub(crate) struct Plugins {
    /// As they were told.
    told: DeepSpeedPlugins,
    /// What became of each, in the same order, with its plan as far as that was known at first.
    sessions: Vec<(DeepSpeed, ParallelPlan)>,
    selected: Cell<usize>,
}

impl Plugins {
    /// Configs in the order of their names in `told`. The first one is selected.
    ///
    /// # Errors
    /// [`Error::Sharding`] for a config that makes no plan; [`Error::Argument`] if they are not all in
    /// one precision, which is the job's.
    pub(crate) fn new(told: DeepSpeedPlugins, sessions: Vec<DeepSpeed>) -> Result<Self> {
        let sessions = sessions.into_iter().map(|session| {
            let preview = session.preview()?;
            Ok((session, preview))
        });
        let sessions: Vec<_> = sessions.collect::<Result<_>>()?;
        let precisions = sessions
            .iter()
            .map(|(own, _)| own.config().mixed_precision());
        let precisions: Vec<_> = precisions.collect();
        if precisions
            .windows(2)
            .any(|both| both.first() != both.last())
        {
            let each = told.names().zip(&precisions);
            let each: Vec<String> = each
                .map(|(name, precision)| format!("`{name}` in `{precision}`"))
                .collect();
            return Err(Error::Argument {
                operation: "Accelerator",
                expected: "DeepSpeed configs of one precision".to_owned(),
                found: each.join(", "),
            });
        }
        Ok(Self {
            told,
            sessions,
            selected: Cell::new(0),
        })
    }

    /// The selected one; none only where there is none.
    pub(crate) fn selected(&self) -> Option<&DeepSpeed> {
        let (session, _) = self.sessions.get(self.selected.get())?;
        Some(session)
    }

    /// The selected one's plan, as far as it is known.
    pub(crate) fn plan(&self) -> Option<&ParallelPlan> {
        let (session, preview) = self.sessions.get(self.selected.get())?;
        Some(session.plan().unwrap_or(preview))
    }

    /// Selects another one.
    ///
    /// # Errors
    /// [`Error::Sharding`] with all names.
    pub(crate) fn select(&self, name: &str) -> Result<()> {
        self.selected.set(self.place(name)?);
        Ok(())
    }

    /// The one with a name.
    ///
    /// # Errors
    /// [`Error::Sharding`] with all names.
    pub(crate) fn get(&self, name: &str) -> Result<Option<&DeepSpeed>> {
        let session = self.sessions.get(self.place(name)?);
        Ok(session.map(|(session, _)| session))
    }

    /// The names, in the order in which they were given.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.told.names()
    }

    fn place(&self, name: &str) -> Result<usize> {
        let _known = self.told.get(name)?;
        let place = self.told.names().position(|own| own == name);
        Ok(place.unwrap_or_default())
    }
}
