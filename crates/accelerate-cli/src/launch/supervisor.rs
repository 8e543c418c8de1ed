//! What lasts as long as the job: signals, output, log files, the time limit.

use std::{
    io,
    sync::{
        Arc, Once,
        mpsc::{self, Receiver, Sender},
    },
    time::Instant,
};

use super::{
    events::{Event, Outside, StopRequest},
    handling::Handling,
    keeper_news::Inbox,
    log_files::LogFolder,
    output::Console,
    signals::{self, Notice},
    tree,
};
use crate::{
    error::{Error, Result},
    report,
};

/// What all attempts of a job have in common.
#[derive(Debug)]
pub(crate) struct Supervisor<'a> {
    pub(crate) handling: &'a Handling,
    pub(crate) events: Receiver<Event>,
    pub(crate) sender: Sender<Event>,
    pub(crate) console: Arc<Console>,
    pub(crate) logs: Option<LogFolder>,
    pub(crate) keepers: Inbox,
    pub(crate) stop: StopRequest,
    pub(crate) log_warning: Arc<Once>,
}

impl<'a> Supervisor<'a> {
    /// Prepares for a job. From here on signals do not end this process by themselves.
    ///
    /// # Errors
    /// If the log folder cannot be made, or the system refuses something.
    pub(crate) fn new(handling: &'a Handling) -> Result<Self> {
        let refused = |doing| move |source: io::Error| Error::System { doing, source };
        let logs = match &handling.log_dir {
            Some(folder) => LogFolder::create(folder, &handling.run_id, handling.tee.as_ref())?,
            None => None,
        };
        if let (None, Some(_), false) = (&handling.log_dir, &handling.tee, handling.quiet) {
            let why = "all output is shown in any case".to_owned();
            report::note("`--tee` writes files only with `--log_dir`:", &[why]);
        }
        // A limit beyond what the clock can count is none.
        let limit = handling.time_limit;
        let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
        let stop = StopRequest::new(deadline);
        let (sender, events) = mpsc::channel();
        let (to_signals, to_keepers) = (sender.clone(), sender.clone());
        let flag = stop.clone();
        signals::listen(move |notice| {
            if let Notice::Stop { signal, .. } = notice {
                flag.signal_arrived(signal);
            }
            to_signals.send(Event::Signal(notice)).is_ok()
        })
        .map_err(refused("watch for signals"))?;
        tree::adopt_orphans().map_err(refused("adopt orphans"))?;
        let keepers = Inbox::open(move |news| to_keepers.send(Event::Keeper(news)).is_ok())
            .map_err(refused("listen to the ranks"))?;
        let console = Console::of_process().map_err(refused("use the output streams"))?;
        Ok(Self {
            handling,
            events,
            sender,
            console: Arc::new(console),
            logs,
            keepers,
            stop,
            log_warning: Arc::new(Once::new()),
        })
    }

    /// The way for other machines to end an attempt on this one.
    pub(crate) fn outside(&self, attempt: usize) -> Outside {
        Outside::new(attempt, self.sender.clone())
    }
}
