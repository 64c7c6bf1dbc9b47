use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::cause::Meeting;
use crate::process::proto;

/// The current activity of this process, which the watchdog checks and sends to rank 0.
#[derive(Debug)]
pub(crate) struct Activity(Mutex<Inner>);

#[derive(Debug)]
struct Inner {
    step: Option<u64>,
    phase: &'static str,
    /// The collectives that threads wait in, by a number that increases with each wait.
    waits: BTreeMap<u64, Wait>,
    n_waits: u64,
}

/// A collective that a thread waits in.
#[derive(Debug)]
struct Wait {
    meeting: Meeting,
    /// The ranks of the job that take part in the collective.
    ranks: Vec<usize>,
    since: Instant,
    deadline: Duration,
}

/// A guard for a wait in a collective. Dropping the guard ends the wait.
#[derive(Debug)]
pub(crate) struct Waiting<'a> {
    activity: &'a Activity,
    number: u64,
}

/// A collective whose deadline has passed.
#[derive(Debug)]
pub(crate) struct Overdue {
    pub(crate) meeting: Meeting,
    /// The ranks of the job that take part in the collective.
    pub(crate) ranks: Vec<usize>,
    pub(crate) waited: Duration,
}

impl Activity {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Inner { step: None, phase: "start", waits: BTreeMap::new(), n_waits: 0 }))
    }

    pub(crate) fn set_step(&self, step: u64) {
        self.lock().step = Some(step);
    }

    pub(crate) fn set_stage(&self, phase: &'static str) {
        self.lock().phase = phase;
    }

    pub(crate) fn step(&self) -> Option<u64> {
        self.lock().step
    }

    /// Records that a thread waits in a collective from now on.
    pub(crate) fn enter(&self, meeting: Meeting, ranks: &[usize], deadline: Duration) -> Waiting<'_> {
        let mut inner = self.lock();
        let number = inner.n_waits;
        inner.n_waits += 1;
        let ranks = ranks.to_vec();
        let since = Instant::now();
        inner.waits.insert(number, Wait { meeting, ranks, since, deadline });
        Waiting { activity: self, number }
    }

    /// Extends the deadlines of all waits by `slept`, a time in which this process did not run.
    pub(crate) fn leave_out(&self, slept: Duration) {
        self.lock().waits.values_mut().for_each(|wait| wait.since += slept);
    }

    /// Returns a collective whose deadline has passed, if there is one. If there are several, returns the one whose
    /// wait began first.
    pub(crate) fn overdue(&self, now: Instant) -> Option<Overdue> {
        let inner = self.lock();
        inner.waits.values().find_map(|wait| {
            let waited = now.saturating_duration_since(wait.since);
            (wait.deadline < waited).then(|| Overdue {
                meeting: wait.meeting.clone(),
                ranks: wait.ranks.clone(),
                waited,
            })
        })
    }

    pub(crate) fn doing(&self, now: Instant) -> proto::Doing {
        let inner = self.lock();
        proto::Doing {
            step: inner.step,
            phase: inner.phase.to_owned(),
            meetings: inner
                .waits
                .values()
                .map(|wait: &Wait| {
                    let Meeting { collective, number, group } = wait.meeting.clone();
                    let waited_ms = now.saturating_duration_since(wait.since).as_millis() as u64;
                    proto::Meeting { collective, number, group, waited_ms }
                })
                .collect(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.activity.lock().waits.remove(&self.number);
    }
}

/// Formats the activity, as `in backward of step 7, waiting in all_reduce_sum of 5 f32 (collective 8) for 0.3 s`.
impl fmt::Display for proto::Doing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.step {
            Some(step) => write!(f, "in {} of step {step}", self.phase)?,
            None => write!(f, "in {} before the first step", self.phase)?,
        }
        for meeting in &self.meetings {
            write!(f, ", waiting in {meeting} for {}", Seconds::of_ms(meeting.waited_ms))?;
        }
        Ok(())
    }
}

impl fmt::Display for proto::Meeting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { collective, number, group, .. } = self.clone();
        Meeting { collective, number, group }.fmt(f)
    }
}

/// A duration, shown in messages as seconds with one decimal.
pub(crate) struct Seconds(pub(crate) Duration);

impl Seconds {
    pub(crate) fn of_ms(ms: u64) -> Self {
        Self(Duration::from_millis(ms))
    }
}

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1} s", self.0.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meeting(number: u64) -> Meeting {
        Meeting { collective: "barrier".to_owned(), number, group: String::new() }
    }

    #[test]
    fn a_collective_is_overdue_after_its_own_deadline_and_until_it_is_over() {
        let activity = Activity::new();
        let long = activity.enter(meeting(1), &[0], Duration::from_secs(9));
        let short = activity.enter(meeting(2), &[0], Duration::from_secs(5));
        let at = |seconds| Instant::now() + Duration::from_secs(seconds);
        let overdue = |seconds| activity.overdue(at(seconds)).map(|overdue| overdue.meeting.number);
        assert_eq!((overdue(4), overdue(6), overdue(10)), (None, Some(2), Some(1)));
        drop(long);
        assert_eq!(overdue(10), Some(2));
        // This call reports that the process was stopped for 7 s.
        activity.leave_out(Duration::from_secs(7));
        assert_eq!((overdue(10), overdue(13)), (None, Some(2)));
        drop(short);
        assert_eq!(overdue(20), None);
    }

    #[test]
    fn activity_of_a_rank_is_formatted_in_one_line() {
        let activity = Activity::new();
        assert_eq!(activity.doing(Instant::now()).to_string(), "in start before the first step");
        activity.set_step(7);
        activity.set_stage("sync");
        let _waiting = activity.enter(meeting(8), &[0], Duration::from_secs(5));
        let told = activity.doing(Instant::now() + Duration::from_millis(2500)).to_string();
        assert_eq!(told, "in sync of step 7, waiting in barrier (collective 8) for 2.5 s");
    }
}
