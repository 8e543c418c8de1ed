//! The points of a metric, as charts want them and as a table of all of them.

use std::{fmt::Write as _, num::NonZeroUsize, ops::RangeInclusive, sync::Arc, thread};

use accelerate_tracking::{
    Error,
    run::{Curve, Point},
};
use serde::Serialize;

use super::request::Request;
use crate::runs::Run;

const USUAL_POINTS: usize = 800;
const MOST_POINTS: usize = 10_000;
const EVERYTHING: RangeInclusive<i64> = i64::MIN..=i64::MAX;

/// What is asked of a metric.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Wanted {
    metric: String,
    across: Across,
    /// The part of the axis, from and to.
    window: Option<(f64, f64)>,
    points: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Across {
    Step,
    /// Seconds since the start of each run.
    Time,
}

/// A curve, by columns: shorter than by points, and what charts work with.
#[derive(Debug, Serialize)]
pub(super) struct Drawn {
    run: String,
    /// Whether there are more values than points.
    thinned: bool,
    step: Vec<i64>,
    time: Vec<f64>,
    /// `null` for what is no finite number.
    value: Vec<f64>,
}

impl Wanted {
    /// Reads it from the parameters.
    ///
    /// # Errors
    /// What is missing or wrong.
    pub(super) fn of(request: &Request) -> Result<Self, String> {
        let metric = request.parameter("metric");
        let number = |name: &str| match request.parameter(name).map(str::parse::<f64>) {
            None => Ok(None),
            Some(Ok(number)) if number.is_finite() => Ok(Some(number)),
            Some(_) => Err(format!("`{name}`: expected a number")),
        };
        let across = match request.parameter("across") {
            None | Some("step") => Across::Step,
            Some("time") => Across::Time,
            Some(_) => return Err("`across`: expected `step` or `time`".to_owned()),
        };
        let points = match request.parameter("points").map(str::parse::<usize>) {
            None => USUAL_POINTS,
            Some(Ok(points)) if (2..=MOST_POINTS).contains(&points) => points,
            Some(_) => return Err(format!("`points`: expected 2 to {MOST_POINTS}")),
        };
        let window = match (number("from")?, number("to")?) {
            (None, None) => None,
            (Some(from), Some(to)) if from <= to => Some((from, to)),
            _ => return Err("`from` and `to`: expected both, the first no greater".to_owned()),
        };
        Ok(Self {
            metric: metric.ok_or("`metric` is missing")?.to_owned(),
            across,
            window,
            points,
        })
    }

    /// Reads the curves of several runs, on all processors.
    ///
    /// # Errors
    /// If the file of one cannot be read.
    pub(super) fn read(&self, runs: &[Arc<Run>]) -> Result<Vec<Drawn>, Error> {
        let threads = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let share = runs.len().div_ceil(threads).max(1);
        thread::scope(|scope| {
            let parts: Vec<_> = runs
                .chunks(share)
                .map(|runs| {
                    let read = move || -> Result<Vec<Drawn>, Error> {
                        runs.iter().map(|run| self.curve(run)).collect()
                    };
                    scope.spawn(read)
                })
                .collect();
            let mut drawn = Vec::with_capacity(runs.len());
            for part in parts {
                let part = part.join();
                drawn.extend(part.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?);
            }
            Ok(drawn)
        })
    }

    fn curve(&self, run: &Run) -> Result<Drawn, Error> {
        let Curve { points, is_thinned } = self.within(run, self.points)?;
        Ok(Drawn {
            run: run.id().to_owned(),
            thinned: is_thinned,
            step: points.iter().map(|point| point.step).collect(),
            time: points.iter().map(|point| point.seconds).collect(),
            value: points.iter().map(|point| point.value).collect(),
        })
    }

    /// The points in the window and some beside it, in the order of the axis.
    fn within(&self, run: &Run, most: usize) -> Result<Curve, Error> {
        let window = self.window.map(widened);
        let mut curve = match (self.across, window) {
            (_, None) => run.curve(&self.metric, EVERYTHING, most)?,
            (Across::Step, Some((from, to))) => {
                let steps = (from.floor() as i64)..=(to.ceil() as i64);
                run.curve(&self.metric, steps, most)?
            }
            (Across::Time, Some(window)) => self.between(run, window, most)?,
        };
        match self.across {
            Across::Step => curve.points.sort_by_key(|point| point.step),
            Across::Time => {
                let by_time = |one: &Point, other: &Point| one.seconds.total_cmp(&other.seconds);
                curve.points.sort_by(by_time);
            }
        }
        Ok(curve)
    }

    /// What was logged between two moments. Runs are read by step: a coarse look says which steps
    /// those are.
    fn between(&self, run: &Run, (from, to): (f64, f64), most: usize) -> Result<Curve, Error> {
        let coarse = run.curve(&self.metric, EVERYTHING, most.max(USUAL_POINTS))?;
        let points = &coarse.points;
        let first = points.iter().rposition(|point| point.seconds < from);
        let last = points.iter().position(|point| point.seconds > to);
        let near = first.unwrap_or(0)..=last.unwrap_or(points.len().saturating_sub(1));
        let near = points.get(near).unwrap_or_default();
        let steps = near.iter().map(|point| point.step);
        let (Some(low), Some(high)) = (steps.clone().min(), steps.max()) else {
            return Ok(Curve::default());
        };
        let mut curve = match coarse.is_thinned {
            true => run.curve(&self.metric, low..=high, most)?,
            false => coarse,
        };
        curve
            .points
            .retain(|point| (from..=to).contains(&point.seconds));
        Ok(curve)
    }

    /// Every point of the runs, as CSV.
    ///
    /// # Errors
    /// If the file of one cannot be read.
    pub(super) fn csv(&self, runs: &[Arc<Run>]) -> Result<Vec<u8>, Error> {
        let mut text = "run,metric,step,seconds,value\r\n".to_owned();
        let metric = cell(&self.metric);
        for run in runs {
            let name = cell(run.id());
            let curve = self.within(run, usize::MAX)?;
            let inside = curve.points.iter().filter(|point| self.is_inside(point));
            for point in inside {
                let Point {
                    step,
                    seconds,
                    value,
                } = point;
                // Writing to a `String` cannot fail.
                let _ = write!(text, "{name},{metric},{step},{seconds},{value}\r\n");
            }
        }
        Ok(text.into_bytes())
    }

    fn is_inside(&self, point: &Point) -> bool {
        let x = match self.across {
            Across::Step => point.step as f64,
            Across::Time => point.seconds,
        };
        self.window
            .is_none_or(|(from, to)| (from..=to).contains(&x))
    }
}

/// A little more on both sides, so that lines reach the edges of a chart.
fn widened((from, to): (f64, f64)) -> (f64, f64) {
    let room = (to - from) * 0.05 + 1.0;
    (from - room, to + room)
}

/// A name as a cell of a table. One that a spreadsheet would compute is marked as text.
fn cell(text: &str) -> String {
    let computed = text.starts_with(['=', '+', '-', '@', '\t', '\r']);
    let text = format!("{}{text}", if computed { "'" } else { "" });
    match text.contains([',', '"', '\r', '\n']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(query: &str) -> Result<Wanted, String> {
        let text = format!("GET /api/curves?{query} HTTP/1.1\r\n\r\n");
        Wanted::of(&Request::read(&mut text.as_bytes()).unwrap().unwrap())
    }

    #[test]
    fn parameters_are_read_and_wrong_ones_named() {
        let usual = Wanted {
            metric: "loss".to_owned(),
            across: Across::Step,
            window: None,
            points: USUAL_POINTS,
        };
        assert_eq!(wanted("metric=loss"), Ok(usual));
        let zoomed = wanted("metric=a&across=time&from=1.5&to=2&points=10").unwrap();
        assert_eq!(
            (zoomed.across, zoomed.window),
            (Across::Time, Some((1.5, 2.0)))
        );
        for (query, name) in [
            ("", "metric"),
            ("metric=a&points=1", "points"),
            ("metric=a&points=x", "points"),
            ("metric=a&from=1", "from"),
            ("metric=a&from=2&to=1", "from"),
            ("metric=a&from=nan&to=1", "from"),
            ("metric=a&across=day", "across"),
        ] {
            assert!(wanted(query).unwrap_err().contains(name), "{query}");
        }
    }

    #[test]
    fn cells_are_quoted_where_they_must_be() {
        assert_eq!(cell("train/loss"), "train/loss");
        assert_eq!(cell("a,\"b\""), "\"a,\"\"b\"\"\"");
        assert_eq!(cell("=1+1"), "'=1+1");
    }
}
