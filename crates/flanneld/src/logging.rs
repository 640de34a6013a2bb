//! The log: one short line an event on standard error. Takes the verbosity, the form and RUST_LOG; gives a
//! subscriber for the whole process.

use std::io::{self, Write};

use flannel_plan::quoted::line;
use tracing::Subscriber;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;

use crate::options::LogFormat;

/// A log that cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    #[error(
        "RUST_LOG: {text:?} is no filter ({source}); write LEVEL or TARGET=LEVEL with commas between, or unset it"
    )]
    Filter { text: String, source: ParseError },
    #[error("bug: the log was set up twice")]
    Twice,
}

/// Sends the log of this process to standard error.
pub fn start(verbosity: i32, format: LogFormat) -> Result<(), LogError> {
    // Bytes that are not text become marks that no filter has, so they are refused as well.
    let rust_log = std::env::var_os("RUST_LOG").map(|text| text.to_string_lossy().into_owned());
    let filter = filter(verbosity, rust_log.as_deref())?;
    tracing::subscriber::set_global_default(subscriber(filter, format, io::stderr))
        .map_err(|_| LogError::Twice)
}

/// What is logged: RUST_LOG's choice if it makes one, else klog's.
fn filter(verbosity: i32, rust_log: Option<&str>) -> Result<EnvFilter, LogError> {
    if let Some(text) = rust_log.filter(|text| !text.is_empty()) {
        return EnvFilter::builder()
            .parse(text)
            .map_err(|source| LogError::Filter { text: text.to_owned(), source });
    }
    let ours = match verbosity {
        ..=0 => "info",
        1..=3 => "debug",
        4.. => "trace",
    };
    // Every crate of ours begins with `flannel`; what libraries say at debug is noise.
    Ok(EnvFilter::new(format!("info,flannel={ours}")))
}

fn subscriber<W: Write + 'static>(
    filter: EnvFilter,
    format: LogFormat,
    writer: impl Fn() -> W + Send + Sync + 'static,
) -> Box<dyn Subscriber + Send + Sync> {
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_target(false).with_ansi(false);
    match format {
        LogFormat::Text => Box::new(log.with_writer(move || OneLine(writer())).finish()),
        LogFormat::Json => Box::new(
            log.json()
                .flatten_event(true)
                .with_current_span(false)
                .with_span_list(false)
                .with_writer(writer)
                .finish(),
        ),
    }
}

/// Keeps an event on its line: an error of several lines must not look like several events, and what strangers wrote
/// must not act on the terminal of whoever reads it.
struct OneLine<W>(W);

impl<W: Write> Write for OneLine<W> {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(event.strip_suffix(b"\n").unwrap_or(event)).replace('\n', "\\n");
        self.0.write_all(format!("{}\n", line(&text)).as_bytes())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Paper(Arc<Mutex<Vec<u8>>>);

    impl Write for Paper {
        fn write(&mut self, text: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend(text);
            Ok(text.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// What is written while something is done.
    fn written(filter: EnvFilter, format: LogFormat, act: impl FnOnce()) -> String {
        let paper = Paper::default();
        let copy = paper.clone();
        tracing::subscriber::with_default(subscriber(filter, format, move || copy.clone()), act);
        let text = paper.0.lock().unwrap().clone();
        String::from_utf8(text).unwrap()
    }

    fn one_of_each_level() {
        tracing::error!("e");
        tracing::warn!("w");
        tracing::info!("i");
        tracing::debug!("d");
        tracing::trace!("t");
        tracing::debug!(target: "hyper", "noise");
    }

    #[test]
    fn verbosity_chooses_the_levels_and_rust_log_overrides_it() {
        let cases = [
            (-1, None, "ewi"),
            (0, None, "ewi"),
            (0, Some(""), "ewi"),
            (1, None, "ewid"),
            (3, None, "ewid"),
            (4, None, "ewidt"),
            (10, None, "ewidt"),
            (4, Some("warn"), "ew"),
            (0, Some("error,flanneld=debug"), "ewid"),
        ];
        for (verbosity, rust_log, expected) in cases {
            let filter = filter(verbosity, rust_log).unwrap();
            let text = written(filter, LogFormat::Text, one_of_each_level);
            let levels: String = text.lines().filter_map(|line| line.chars().last()).collect();
            assert_eq!(levels, expected, "-v {verbosity}, RUST_LOG {rust_log:?}");
        }
    }

    #[test]
    fn an_event_is_one_line_of_time_level_message_and_fields() {
        let text = written(filter(0, None).unwrap(), LogFormat::Text, || {
            tracing::info!(subnet = "10.244.7.0/24", count = 3, "route\ncreated");
        });
        let (time, rest) = text.split_once(' ').unwrap();
        assert!(time.starts_with("20") && time.ends_with('Z'), "{time}");
        assert_eq!(rest, " INFO route\\ncreated subnet=\"10.244.7.0/24\" count=3\n");
    }

    #[test]
    fn nothing_that_strangers_wrote_acts_on_the_terminal_of_a_reader() {
        let text = written(filter(0, None).unwrap(), LogFormat::Text, || {
            let hostile = "\u{1b}[2J\u{202e}\r".to_owned() + &"x".repeat(9000);
            tracing::warn!(by = %hostile, "{hostile}");
        });
        assert!(text.chars().count() < 2100 && text.ends_with("…\n"), "{text}");
        assert!(!text.trim_end().contains(['\u{1b}', '\u{202e}', '\r', '\n']), "{text}");
    }

    #[test]
    fn an_event_in_json_is_one_flat_object() {
        let text = written(filter(0, None).unwrap(), LogFormat::Json, || {
            tracing::warn!(count = 3, "two\nlines");
        });
        let mut event: serde_json::Value = serde_json::from_str(text.strip_suffix('\n').unwrap()).unwrap();
        assert!(event.as_object_mut().unwrap().remove("timestamp").is_some(), "{text}");
        assert_eq!(event, serde_json::json!({"level": "WARN", "message": "two\nlines", "count": 3}));
    }

    #[test]
    fn a_filter_with_faults_is_refused() {
        let fault = filter(0, Some("flanneld=loud")).unwrap_err().to_string();
        assert!(fault.starts_with("RUST_LOG: \"flanneld=loud\" is no filter ("), "{fault}");
        assert!(fault.ends_with("write LEVEL or TARGET=LEVEL with commas between, or unset it"), "{fault}");
    }
}
