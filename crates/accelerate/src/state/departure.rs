//! Leaving together: at one place of the program, whichever rank was asked to end.
//!
//! While nobody is asked nothing is sent. Each rank notes how many collectives are behind it
//! whenever it goes on. A rank that is asked to end asks all ranks for that number; from then on
//! each of them waits, where it would go on the next time, for the answer: the largest number. A
//! rank leaves at the first place where more collectives are behind it. As ranks make the same
//! collectives in the same order, that is one place; ranks that ran out of data earlier, and
//! mirror the others' collectives, come to it behind their loop.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::PartialState;
use super::leave_signal::{self, LeaveSignal, Request};
use super::presence::{self, Answer, Attendance};
use crate::{Error, Result};

/// How long ranks may take to agree.
const PATIENCE: Duration = Duration::from_secs(20);
/// Asks a rank how far it is, and stops it where it would go on.
const ASK: &str = "leave";
/// Tells a rank behind how many collectives it leaves.
const TELL: &str = "after ";
/// Tells a rank why there is no answer.
const FAIL: &str = "failed ";

/// Where this process stands in leaving its job.
#[derive(Debug, Default)]
pub(super) struct Departure {
    inner: Mutex<Inner>,
    settled: Condvar,
}

#[derive(Debug, Default)]
struct Inner {
    /// The collectives that were behind this process when it last went on.
    passed: u64,
    /// Whether some rank was asked to end.
    is_asked: bool,
    /// The ranks leave with more collectives behind them than this; or why they do not agree.
    after: Option<Result<u64, String>>,
}

impl Departure {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers another rank; none if it asks for something else.
    pub(super) fn answer(&self, request: &str) -> Option<Vec<u8>> {
        if request == ASK {
            return Some(self.ask().to_string().into_bytes());
        }
        if let Some(after) = request.strip_prefix(TELL) {
            self.settle(
                after
                    .parse()
                    .map_err(|_| "of an unreadable answer".to_owned()),
            );
            return Some(Vec::new());
        }
        let why = request.strip_prefix(FAIL)?;
        self.settle(Err(why.to_owned()));
        Some(Vec::new())
    }

    /// Stops this process where it would go on; how far it came.
    fn ask(&self) -> u64 {
        let mut inner = self.lock();
        inner.is_asked = true;
        inner.passed
    }

    fn settle(&self, after: Result<u64, String>) {
        self.lock().after.get_or_insert(after);
        self.settled.notify_all();
    }

    /// Whether this is where the ranks leave, with so many collectives behind this one.
    fn leaves_behind(&self, collectives: u64, patience: Duration) -> Result<bool> {
        let mut inner = self.lock();
        if !inner.is_asked {
            inner.passed = collectives;
            return Ok(false);
        }
        let end = Instant::now() + patience;
        loop {
            match &inner.after {
                Some(Ok(after)) => return Ok(collectives > *after),
                Some(Err(why)) => return Err(Error::NoDeparture { why: why.clone() }),
                None => {}
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let why = format!("no answer came within {} s", patience.as_secs());
                return Err(Error::NoDeparture { why });
            }
            let waited = self.settled.wait_timeout(inner, left);
            inner = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl PartialState {
    /// Notices `signals` from now on, and asks all ranks to leave when one comes.
    pub(crate) fn leave_on(&self, signals: &[LeaveSignal]) -> Result<()> {
        leave_signal::catch(signals)?;
        if self.process_group().is_none() || !self.begin_to_attend() {
            return Ok(());
        }
        let state = self.downgrade();
        let waiting = move || {
            Request::of_process().wait();
            if let Some(state) = state() {
                state.agree();
            }
        };
        thread::Builder::new()
            .name("accelerate-leaving".to_owned())
            .spawn(waiting)
            .map_err(|source| {
                // The next call tries again.
                self.stop_attending();
                Error::Signals { source }
            })?;
        Ok(())
    }

    /// As a signal would.
    pub(crate) fn ask_to_leave(&self) {
        Request::of_process().raise();
    }

    /// Whether the ranks leave here.
    pub(crate) fn leaves_here(&self) -> Result<bool> {
        if self.process_group().is_none() {
            return Ok(Request::of_process().is_raised());
        }
        let collectives = self.calls().count();
        self.departure().leaves_behind(collectives, PATIENCE)
    }

    /// Finds out where the ranks leave, and tells them.
    fn agree(&self) {
        let own = self.departure().ask();
        let after = self.furthest(own);
        let told = match &after {
            Ok(after) => format!("{TELL}{after}"),
            Err(why) => format!("{FAIL}{why}"),
        };
        // Others first: this rank may be the last to hold them up.
        let answers = self.ask_ranks(&told);
        let after = after.and_then(|after| missing(&answers).map_or(Ok(after), Err));
        self.departure().settle(after);
    }

    /// How far the furthest rank is.
    fn furthest(&self, own: u64) -> Result<u64, String> {
        let answers = self.ask_ranks(ASK);
        if let Some(why) = missing(&answers) {
            return Err(why);
        }
        if let Some(why) = unheard(&answers) {
            return Err(why);
        }
        let read = |answer: Answer| {
            let text = String::from_utf8(answer.news).ok()?;
            text.parse::<u64>().ok()
        };
        let here = answers.into_iter().filter(is_here);
        let all: Option<Vec<u64>> = here.map(read).collect();
        let all = all.ok_or("a rank runs another version of this library")?;
        Ok(all.into_iter().fold(own, u64::max))
    }

    fn ask_ranks(&self, request: &str) -> Vec<Answer> {
        let (own, world) = (self.process_index(), self.num_processes());
        let asked = self
            .process_group()
            .map(|group| presence::ask_all(group.store(), self.store_host(), own, world, request));
        match asked {
            Some(Ok(answers)) => answers,
            _ => vec![Answer::without_news(0, Attendance::Silent)],
        }
    }
}

fn is_here(answer: &Answer) -> bool {
    answer.attendance == Attendance::Here
}

/// Why not all ranks can be asked, if so. Those that have finished need not.
fn missing(answers: &[Answer]) -> Option<String> {
    let wrong = answers.iter().find(|answer| {
        let fine = [Attendance::Here, Attendance::Left];
        !fine.contains(&answer.attendance)
    })?;
    let what = match wrong.attendance {
        Attendance::Ended => "has ended",
        Attendance::Silent => "does not answer",
        _ => "cannot be asked",
    };
    Some(format!("rank {} {what}", wrong.rank))
}

/// Which rank lives and did not get to say how far it is, if one.
fn unheard(answers: &[Answer]) -> Option<String> {
    let mut here = answers.iter().filter(|answer| is_here(answer));
    let silent = here.find(|answer| answer.news.is_empty())?;
    Some(format!("rank {} does not answer", silent.rank))
}

/// That of a process, shared with what answers for it.
pub(super) type SharedDeparture = Arc<Departure>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_leave_behind_the_furthest() {
        let (near, far) = (Departure::default(), Departure::default());
        let leaves = |departure: &Departure, behind| {
            departure
                .leaves_behind(behind, Duration::from_secs(5))
                .unwrap()
        };
        assert!(!leaves(&near, 10) && !leaves(&far, 10) && !leaves(&far, 12));
        // The signal comes to the rank that is behind.
        let asked = |departure: &Departure| {
            let answer = departure.answer(ASK).unwrap();
            String::from_utf8(answer).unwrap().parse::<u64>().unwrap()
        };
        assert_eq!((asked(&near), asked(&far)), (10, 12));
        for departure in [&near, &far] {
            departure.answer("after 12").unwrap();
        }
        assert!(!leaves(&near, 12) && leaves(&near, 14) && leaves(&far, 14));
        assert!(leaves(&far, 20), "it stays so");
        assert_eq!(asked(&far), 12, "a second signal changes nothing");
        assert!(near.answer("news").is_none());
    }

    #[test]
    fn who_goes_on_waits_for_the_answer() {
        let departure = SharedDeparture::default();
        departure.ask();
        let telling = Arc::clone(&departure);
        let teller = thread::spawn(move || {
            thread::sleep(Duration::from_millis(50));
            telling.settle(Ok(3));
        });
        assert!(departure.leaves_behind(4, Duration::from_secs(5)).unwrap());
        teller.join().unwrap();
    }

    #[test]
    fn no_answer_is_an_error_that_says_why() {
        let departure = Departure::default();
        departure.ask();
        let late = departure.leaves_behind(4, Duration::ZERO).unwrap_err();
        assert!(late.to_string().contains("no answer came"), "{late}");
        departure.answer("failed rank 2 has ended").unwrap();
        let gone = departure.leaves_behind(4, Duration::ZERO).unwrap_err();
        assert!(gone.to_string().contains("rank 2 has ended"), "{gone}");
    }

    #[test]
    fn who_lives_and_says_nothing_does_not_answer() {
        let mut answer = Answer::without_news(1, Attendance::Here);
        let left = || Answer::without_news(0, Attendance::Left);
        let heard = [left(), Answer::without_news(1, Attendance::Here)];
        assert_eq!(unheard(&heard).unwrap(), "rank 1 does not answer");
        answer.news = b"12".to_vec();
        assert!(unheard(&[left(), answer]).is_none());
    }
}
