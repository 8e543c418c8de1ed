//! What happened while the network was trained.

use std::path::Path;

use accelerate_examples::curves::{Curves, CurvesError};

/// Values over updates.
#[derive(Debug, Default)]
pub(crate) struct History {
    losses: Vec<(u64, f64)>,
    rates: Vec<(u64, f64)>,
    norms: Vec<(u64, f64)>,
    evaluated_losses: Vec<(u64, f64)>,
    accuracies: Vec<(u64, f64)>,
    updates: u64,
}

impl History {
    /// Notes an update: the mean loss of its batches, the learning rate, and the norm of the
    /// gradients where it is known.
    pub(crate) fn update(&mut self, loss: f64, rate: f64, norm: Option<f64>) {
        self.updates += 1;
        self.losses.push((self.updates, loss));
        self.rates.push((self.updates, rate));
        self.norms.extend(norm.map(|norm| (self.updates, norm)));
    }

    /// Notes how good the network is on what it has not seen.
    pub(crate) fn evaluated(&mut self, loss: f64, accuracy: f64) {
        self.evaluated_losses.push((self.updates, loss));
        self.accuracies.push((self.updates, accuracy));
    }

    /// How many updates there were.
    pub(crate) fn updates(&self) -> u64 {
        self.updates
    }

    /// The mean loss of the updates after the first `before`.
    pub(crate) fn mean_loss_since(&self, before: u64) -> f64 {
        let losses: Vec<f64> = self
            .losses
            .iter()
            .filter(|(update, _)| *update > before)
            .map(|(_, loss)| *loss)
            .collect();
        losses.iter().sum::<f64>() / losses.len().max(1) as f64
    }

    /// Writes the curves as a picture.
    pub(crate) fn draw(&self, path: &Path) -> Result<(), CurvesError> {
        let curves = Curves::new("images")
            .line("loss/training", &self.losses)
            .line("loss/held out", &self.evaluated_losses)
            .line("learning rate", &self.rates)
            .line("accuracy", &self.accuracies);
        let curves = match self.norms.as_slice() {
            [] => curves,
            norms => curves.line("norm of the gradients", norms),
        };
        curves.save(path)
    }
}
