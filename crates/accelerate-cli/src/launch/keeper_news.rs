//! What keepers tell the launcher while they live, through a pipe.
//!
//! The launcher holds both ends. A keeper opens the far end by its name under `/proc`, so that no
//! process has to inherit it. Each message is one short line, which a pipe takes in one piece. Where
//! a system has no such names, a keeper says nothing: then its own end is all there is to know.

use std::{
    fs::OpenOptions,
    io::{self, BufRead as _, BufReader, PipeWriter, Write as _},
    thread,
};

use rustix::process::Pid;

use super::tree::Exit;

/// One message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum News {
    /// The program runs.
    Started { keeper: Pid, program: Pid },
    /// The program has ended; the keeper stays with what the program left behind.
    Ended { keeper: Pid, exit: Exit },
    /// Everything that was said before [`Inbox::flush`] has arrived.
    Flushed { attempt: usize },
}

impl News {
    fn to_line(self) -> String {
        match self {
            Self::Started { keeper, program } => format!("{keeper} started {program}\n"),
            Self::Ended { keeper, exit } => match exit {
                Exit::Code(code) => format!("{keeper} code {code}\n"),
                Exit::Signal(signal) => format!("{keeper} signal {signal}\n"),
            },
            Self::Flushed { attempt } => format!("0 flushed {attempt}\n"),
        }
    }

    fn from_line(line: &str) -> Option<Self> {
        let mut words = line.split_ascii_whitespace();
        let (keeper, word, number) = (words.next()?, words.next()?, words.next()?);
        let pid = |text: &str| text.parse().ok().and_then(Pid::from_raw);
        Some(match word {
            "started" => Self::Started {
                keeper: pid(keeper)?,
                program: pid(number)?,
            },
            "code" => Self::Ended {
                keeper: pid(keeper)?,
                exit: Exit::Code(number.parse().ok()?),
            },
            "signal" => Self::Ended {
                keeper: pid(keeper)?,
                exit: Exit::Signal(number.parse().ok()?),
            },
            "flushed" => Self::Flushed {
                attempt: number.parse().ok()?,
            },
            _ => return None,
        })
    }
}

/// Where the launcher gets the messages.
#[derive(Debug)]
pub(crate) struct Inbox {
    writer: PipeWriter,
}

impl Inbox {
    /// Calls `deliver` for each message, on a thread of its own, until it returns `false`.
    pub(crate) fn open(deliver: impl Fn(News) -> bool + Send + 'static) -> io::Result<Self> {
        let (reader, writer) = io::pipe()?;
        let lines = BufReader::new(reader).lines().map_while(Result::ok);
        thread::Builder::new()
            .name("keeper news".to_owned())
            .spawn(move || {
                lines.filter_map(|line| News::from_line(&line)).all(deliver);
            })?;
        Ok(Self { writer })
    }

    /// The address for keepers; `None` if this system has none.
    pub(crate) fn address(&self) -> Option<String> {
        use std::os::fd::AsRawFd as _;
        cfg!(target_os = "linux").then(|| {
            let descriptor = self.writer.as_raw_fd();
            format!("/proc/{}/fd/{descriptor}", std::process::id())
        })
    }

    /// Asks for [`News::Flushed`] once all earlier messages are delivered.
    pub(crate) fn flush(&self, attempt: usize) -> io::Result<()> {
        let line = News::Flushed { attempt }.to_line();
        (&self.writer).write_all(line.as_bytes())
    }
}

/// Sends a message to the launcher.
pub(crate) fn tell(address: &str, news: News) -> io::Result<()> {
    let mut pipe = OpenOptions::new().write(true).open(address)?;
    pipe.write_all(news.to_line().as_bytes())
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn messages_arrive_in_order() {
        let (sender, receiver) = mpsc::channel();
        let inbox = Inbox::open(move |news| sender.send(news).is_ok()).unwrap();
        let pid = |number| Pid::from_raw(number).unwrap();
        let sent = [
            News::Started {
                keeper: pid(17),
                program: pid(18),
            },
            News::Ended {
                keeper: pid(17),
                exit: Exit::Signal(9),
            },
            News::Ended {
                keeper: pid(19),
                exit: Exit::Code(101),
            },
        ];
        let Some(address) = inbox.address() else {
            return;
        };
        for news in sent {
            tell(&address, news).unwrap();
        }
        inbox.flush(3).unwrap();
        let arrived: Vec<_> = receiver.iter().take(4).collect();
        assert_eq!(arrived[..3], sent);
        assert_eq!(arrived[3], News::Flushed { attempt: 3 });
    }

    #[test]
    fn a_keeper_of_a_launcher_that_is_gone_is_told_so() {
        let news = News::Flushed { attempt: 0 };
        assert!(tell("/proc/0/fd/9", news).is_err());
    }
}
