//! Programs that are run to their end, within a limit of time: one that hangs is killed.
//!
//! Takes a prepared command and its input, gives its output. It is written to and read from at once, since a program
//! may answer before it has read everything; and what it may say is bounded, for it is kept in memory.

use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, ioctl_fionbio};
use rustix::process::{Pid, Signal, kill_process_group};

/// Ten times what `iptables-save` says of a hundred thousand rules.
const MOST_OUTPUT: usize = 128 << 20;
/// How long a program that was killed, or has closed its pipes, is waited for between two looks.
const FIRST_PAUSE: Duration = Duration::from_micros(100);
const LONGEST_PAUSE: Duration = Duration::from_millis(20);
/// One that waits for a device cannot even be killed: it is left behind.
const DEATH: Duration = Duration::from_secs(1);

/// Runs a program to its end; one that takes longer than the limit is killed, with all that it started.
pub fn run(command: &mut Command, input: &[u8], limit: Duration) -> io::Result<Output> {
    converse(start(command)?, input, limit)
}

/// Starts a program to converse with.
pub fn start(command: &mut Command) -> io::Result<Child> {
    // Pipes, since a container may have no /dev/null.
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0).spawn()
}

/// Gives a program that was started its input, and waits for its end; likewise.
pub fn converse(mut child: Child, input: &[u8], limit: Duration) -> io::Result<Output> {
    let end = Instant::now() + limit;
    let heard = Conversation::with(&mut child, input).and_then(|conversation| conversation.hold(end));
    let output = heard.and_then(|(stdout, stderr)| {
        let status = end_of(&mut child, end)?.ok_or(ErrorKind::TimedOut)?;
        Ok(Output { status, stdout, stderr })
    });
    output.map_err(|error| {
        kill(&mut child);
        match error.kind() {
            ErrorKind::TimedOut => io::Error::new(
                ErrorKind::TimedOut,
                format!("it did not end within {} s, and was killed", limit.as_secs()),
            ),
            _ => error,
        }
    })
}

/// What is still to be said to a program, and what it said.
struct Conversation<'a> {
    stdin: Option<OwnedFd>,
    unsent: &'a [u8],
    stdout: Stream,
    stderr: Stream,
}

/// What a program says by one of its pipes.
struct Stream {
    /// Until it is closed.
    pipe: Option<OwnedFd>,
    heard: Vec<u8>,
}

impl<'a> Conversation<'a> {
    fn with(child: &mut Child, input: &'a [u8]) -> io::Result<Self> {
        let stdin = child.stdin.take().map(OwnedFd::from);
        let [stdout, stderr] =
            [child.stdout.take().map(OwnedFd::from), child.stderr.take().map(OwnedFd::from)];
        [&stdin, &stdout, &stderr].into_iter().flatten().try_for_each(|pipe| ioctl_fionbio(pipe, true))?;
        let [stdout, stderr] = [stdout, stderr].map(|pipe| Stream { pipe, heard: Vec::new() });
        Ok(Self { stdin, unsent: input, stdout, stderr })
    }

    /// Writes and reads until the program has closed its pipes.
    fn hold(mut self, end: Instant) -> io::Result<(Vec<u8>, Vec<u8>)> {
        loop {
            self.write();
            self.stdout.read()?;
            self.stderr.read()?;
            if self.stdout.pipe.is_none() && self.stderr.pipe.is_none() {
                return Ok((self.stdout.heard, self.stderr.heard));
            }
            self.wait(end)?;
        }
    }

    fn write(&mut self) {
        while let Some(stdin) = self.stdin.as_ref().filter(|_| !self.unsent.is_empty()) {
            match rustix::io::write(stdin, self.unsent) {
                Ok(written) => self.unsent = self.unsent.get(written..).unwrap_or_default(),
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR) => {}
                // A program that stopped reading says why in a moment.
                Err(_) => break,
            }
        }
        self.stdin = None;
    }

    fn wait(&self, end: Instant) -> io::Result<()> {
        let left = end.saturating_duration_since(Instant::now());
        let readers = [&self.stdout, &self.stderr].into_iter().filter_map(|stream| stream.pipe.as_ref());
        let mut pipes: Vec<PollFd<'_>> = readers.map(|pipe| PollFd::new(pipe, PollFlags::IN)).collect();
        pipes.extend(self.stdin.iter().map(|stdin| PollFd::new(stdin, PollFlags::OUT)));
        match poll(&mut pipes, Timespec::try_from(left).ok().as_ref()) {
            Ok(0) if left.is_zero() => Err(ErrorKind::TimedOut.into()),
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }
}

impl Stream {
    fn read(&mut self) -> io::Result<()> {
        let mut piece = [0; 16 * 1024];
        while let Some(pipe) = &self.pipe {
            match rustix::io::read(pipe, &mut piece) {
                Ok(0) => self.pipe = None,
                Ok(length) => self.heard.extend_from_slice(piece.get(..length).unwrap_or_default()),
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
            if self.heard.len() > MOST_OUTPUT {
                let words = format!("it said more than {} MiB, and was killed", MOST_OUTPUT >> 20);
                return Err(io::Error::other(words));
            }
        }
        Ok(())
    }
}

/// Waits for the end of a program; none if that does not come.
fn end_of(child: &mut Child, end: Instant) -> io::Result<Option<ExitStatus>> {
    let mut pause = FIRST_PAUSE;
    loop {
        let status = child.try_wait()?;
        if status.is_some() || Instant::now() >= end {
            return Ok(status);
        }
        thread::sleep(pause);
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

fn kill(child: &mut Child) {
    // It may have ended, or lead no group: then there is nobody to kill.
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    _ = group.map(|group| kill_process_group(group, Signal::KILL));
    _ = child.kill();
    _ = end_of(child, Instant::now() + DEATH);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Far more than a program of the tests needs, on any machine.
    const AMPLE: Duration = Duration::from_secs(60);

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_program_gets_its_input_and_gives_its_output_however_long_both_are() {
        let input = vec![b'x'; 3_000_000];
        let output = run(&mut shell("tee /dev/stderr; exit 3"), &input, AMPLE).unwrap();
        assert!(output.stdout == input && output.stderr == input && output.status.code() == Some(3));
    }

    #[test]
    fn one_that_does_not_read_or_reads_nothing_is_no_trouble() {
        let output = run(&mut shell("exec <&-; echo done"), &vec![b'x'; 1_000_000], AMPLE).unwrap();
        assert_eq!(output.stdout, b"done\n");
        assert_eq!(run(&mut shell("cat"), b"", AMPLE).unwrap().stdout, b"");
    }

    #[test]
    fn one_that_hangs_is_killed_with_what_it_started() {
        let begun = Instant::now();
        for script in ["sleep 1000", "sleep 1000 & wait", "exec >&- 2>&-; sleep 1000"] {
            let error = run(&mut shell(script), b"", Duration::from_secs(1)).unwrap_err();
            assert_eq!(error.to_string(), "it did not end within 1 s, and was killed");
        }
        assert!(begun.elapsed() < AMPLE);
    }

    #[test]
    fn one_that_never_stops_talking_is_killed() {
        let error = run(&mut shell("exec yes"), b"", AMPLE).unwrap_err();
        assert_eq!(error.to_string(), "it said more than 128 MiB, and was killed");
    }
}
