//! Appends lines to a file or to standard output, without a buffer of its own.
//!
//! - Lines of earlier runs are never lost. If a crash cut the last line off, a newline is written first, so that it
//!   can't join a new line.
//! - Once `write` has returned, other processes see the lines. They are on the disk after `sync`.
//! - A terminal gets escapes in place of characters that it would obey. A file and a pipe get the payload as it came.
//! - If the reader of a pipe is slow, a write waits: that is back-pressure, and a time-out would leave half a line.
//! - A write that fails ends the run, because the next one would probably fail for every message.
//! - A file that was moved, removed or replaced is noticed before the next write (D10), and made anew. If that fails, the
//!   destination is away until it works.
//! - A sync that fails ends the run, because a later one may report success for lines that are lost.

use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{Error, ErrorKind, IsTerminal as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{FileExt as _, FileTypeExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use memchr::memchr_iter;
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::Errno;

use crate::base::display::is_escaped;
use crate::base::error::DeliveryError;
use crate::base::folders::{has_no_disk, sync_folder};
use crate::base::open_stores::{FileId, is_open_here, store_is_open};
use crate::base::sync::Mutex;
use crate::sinks::line::LineWriter;
use crate::sinks::{Delivery, Sink, SyncFn, Verdict, Verdicts};

/// Where lines are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// The standard output of the process, which stays open at the end.
    StandardOutput,
    /// A file, which is created if it does not exist.
    File(PathBuf),
}

/// Appends a line for each delivery. The line is on disk before the message counts as delivered.
#[derive(Debug)]
pub(crate) struct LineSink {
    target: Target,
    file: FileSink,
    syncer: Arc<Mutex<Syncer>>,
    writer: LineWriter,
    lines: Vec<u8>,
    is_terminal: bool,
}

/// A second handle of the file, or why its sync failed. The thread that syncs holds the lock meanwhile.
type Syncer = Result<FileSink, DeliveryError>;

impl LineSink {
    /// Opens the target.
    ///
    /// # Errors
    /// [`DeliveryError::Usage`] if the target can't be opened or written. The user should name another file.
    pub(crate) fn open(target: &Target) -> Result<Self, DeliveryError> {
        let file = FileSink::open(target)?;
        let syncer = Arc::new(Mutex::new(Ok(file.try_clone()?)));
        let is_terminal = file.file.is_terminal();
        Ok(Self { target: target.clone(), file, syncer, writer: LineWriter::default(), lines: Vec::new(), is_terminal })
    }

    /// Opens the file that is at the path now, or makes it anew.
    fn open_again(&self) -> Result<(FileSink, Syncer), DeliveryError> {
        let file = FileSink::open(&self.target)?;
        let syncer = file.try_clone()?;
        Ok((file, Ok(syncer)))
    }
}

/// Makes all written lines durable.
///
/// # Errors
/// A sync failed, now or before. The system may report success for a later sync, although lines are lost.
fn sync(syncer: &mut Syncer) -> Result<(), DeliveryError> {
    let synced = syncer.as_ref().map_err(Clone::clone).and_then(FileSink::sync);
    if let Err(error) = &synced {
        *syncer = Err(error.clone());
    }
    synced
}

impl Sink for LineSink {
    fn is_alone(&self) -> bool {
        true
    }

    /// A write to a full pipe waits, and a time-out would leave half a line.
    fn is_cut_off(&self) -> bool {
        false
    }

    fn send(&mut self, deliveries: &[Delivery]) -> Result<Verdicts, DeliveryError> {
        if self.file.is_gone(&self.target) {
            match self.open_again() {
                Ok((file, again)) => {
                    let mut syncer = self.syncer.lock();
                    sync(&mut syncer)?; // the lines in the file before, which no other handle can sync
                    *syncer = again;
                    self.file = file;
                }
                Err(error) => {
                    let reason = format!("the file was moved or removed: {error}");
                    let away = Verdict::Unreachable { reason, retry_after_ms: None };
                    return Ok(Verdicts::Each(vec![away; deliveries.len()]));
                }
            }
        }
        self.lines.clear();
        for delivery in deliveries {
            self.writer.write(&mut self.lines, delivery);
        }
        if self.is_terminal {
            self.lines = with_escapes(&self.lines).into_bytes();
        }
        self.file.write(&self.lines)?;
        Ok(Verdicts::Delivered)
    }

    fn sync(&self) -> Option<SyncFn> {
        let syncer = self.syncer.clone();
        Some(Arc::new(move || sync(&mut syncer.lock())))
    }

    fn close(&mut self) -> Result<(), DeliveryError> {
        sync(&mut self.syncer.lock())
    }
}

/// An open file to which whole lines are appended.
#[derive(Debug)]
pub(crate) struct FileSink {
    file: File,
    id: Option<FileId>,
}

impl FileSink {
    /// Opens the target.
    ///
    /// # Errors
    /// [`DeliveryError::Usage`] if the target can't be opened or written. The user should name another file.
    pub(crate) fn open(target: &Target) -> Result<Self, DeliveryError> {
        match target {
            Target::StandardOutput => {
                let file = std::io::stdout().as_fd().try_clone_to_owned().map_err(|error| {
                    DeliveryError::Usage(format!("standard output can't be written: {}", reason(&error)))
                })?;
                Ok(Self { file: file.into(), id: None })
            }
            Target::File(path) if is_open_here(path) => Err(DeliveryError::Usage(store_is_open(path))),
            Target::File(path) => open_to_append(path).map(|(file, id)| Self { file, id: Some(id) }).map_err(|error| {
                let reason = reason(&error);
                DeliveryError::Usage(format!("{} can't be written: {reason}: name a file that can", path.display()))
            }),
        }
    }

    /// Whether another file, or none, is at the path of this file. Costs one `stat`.
    fn is_gone(&self, target: &Target) -> bool {
        matches!(target, Target::File(path) if FileId::at(path) != self.id)
    }

    /// Writes all of these whole lines.
    ///
    /// # Errors
    /// [`DeliveryError::Failed`]: some of the lines may have been written.
    pub(crate) fn write(&mut self, lines: &[u8]) -> Result<(), DeliveryError> {
        self.file.write_all(lines).map_err(|error| {
            let (reason, count) = (reason(&error), memchr_iter(b'\n', lines).count());
            let part = format!("the last {count} may be written in part");
            DeliveryError::Failed(format!("the destination can't be written: {reason}; {part}"))
        })
    }

    /// Makes all written lines durable, if they are on a disk. Another handle of the same file may write meanwhile.
    ///
    /// # Errors
    /// [`DeliveryError::Failed`]: it is not known which lines are on the disk.
    pub(crate) fn sync(&self) -> Result<(), DeliveryError> {
        match self.file.sync_data() {
            Err(error) if !has_no_disk(&error) => {
                let reason = reason(&error);
                Err(DeliveryError::Failed(format!("the destination can't be synced to disk: {reason}")))
            }
            _ => Ok(()),
        }
    }

    /// Makes a second handle, with which another thread syncs while this thread writes.
    ///
    /// # Errors
    /// [`DeliveryError::Failed`] if the process has too many files open.
    pub(crate) fn try_clone(&self) -> Result<Self, DeliveryError> {
        let failed =
            |error: Error| DeliveryError::Failed(format!("the destination can't be opened: {}", reason(&error)));
        self.file.try_clone().map(|file| Self { file, id: self.id }).map_err(failed)
    }
}

/// The same lines of JSON, without characters that a terminal obeys, or that make one text look like another.
fn with_escapes(lines: &[u8]) -> String {
    let mut escaped = String::with_capacity(lines.len());
    for char in String::from_utf8_lossy(lines).chars() {
        match char {
            '\t' | '\r' => escaped.push(' '), // between two parts of a payload: inside a text they would be escapes
            '\n' => escaped.push('\n'),
            _ if is_escaped(char) => {
                for unit in char.encode_utf16(&mut [0; 2]) {
                    let _ = write!(escaped, "\\u{unit:04x}");
                }
            }
            _ => escaped.push(char),
        }
    }
    escaped
}

fn open_to_append(path: &Path) -> Result<(File, FileId), Error> {
    let mut file = open_or_make(path)?;
    let metadata = file.metadata()?;
    let size = metadata.len();
    let mut last = [0];
    if size > 0 && file.read_at(&mut last, size - 1)? == 1 && last != *b"\n" {
        file.write_all(b"\n")?;
    }
    if size == 0 && metadata.is_file() {
        sync_folder(path)?;
    }
    Ok((file, FileId::of(&metadata)))
}

/// A new file is for its owner alone, and is not made behind a link (D12).
fn open_or_make(path: &Path) -> Result<File, Error> {
    if path.metadata().is_ok_and(|it| it.file_type().is_fifo()) {
        return open_pipe(path);
    }
    let mut options = OpenOptions::new();
    options.read(true).append(true);
    match options.open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        opened => return opened,
    }
    match options.clone().create_new(true).mode(0o600).open(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => options.open(path), // another process made it
        made => made,
    }
}

/// Opens a pipe that has a reader. If this process could read it too, a pipe without a reader would take lines, which
/// would be lost at its close.
fn open_pipe(path: &Path) -> Result<File, Error> {
    let at_once = OFlags::NONBLOCK.bits() as i32; // else this waits for a reader, and no signal ends that
    let opened = OpenOptions::new().write(true).custom_flags(at_once).open(path);
    let pipe = opened.map_err(|error| match Errno::from_io_error(&error) {
        Some(Errno::NXIO) => Error::other("it is a pipe without a reader"),
        _ => error,
    })?;
    fcntl_setfl(&pipe, OFlags::empty())?;
    Ok(pipe)
}

/// The text of the operating system, without the number.
fn reason(error: &Error) -> String {
    if Errno::from_io_error(error) == Some(Errno::FBIG) {
        return "File too large for the file system, or for the limit that ulimit -f shows".to_owned();
    }
    let text = error.to_string();
    text.split_once(" (os error").map_or(&*text, |(words, _)| words).to_owned()
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::message::{Body, Message};
    use crate::sinks::Verdict;

    fn sink(path: &Path) -> FileSink {
        FileSink::open(&Target::File(path.to_owned())).unwrap()
    }

    #[test]
    fn lines_are_appended_and_seen_at_once__d10() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.ndjson");
        let mut first = sink(&path);
        first.write(b"one\ntwo\n").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"one\ntwo\n");
        first.sync().unwrap();
        sink(&path).write(b"three\n").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"one\ntwo\nthree\n");
    }

    #[test]
    fn a_terminal_gets_the_same_json_with_escapes__d12() {
        let lines = "{\"id\":\"a\u{9b}2J\u{7f}\u{202e}é\u{2069}\"}\n";
        let escaped = with_escapes(lines.as_bytes());
        assert_eq!(escaped, "{\"id\":\"a\\u009b2J\\u007f\\u202eé\\u2069\"}\n");
        let read = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
        assert_eq!(read(&escaped), read(lines));
    }

    #[test]
    fn a_last_line_that_a_crash_cut_off_can_not_join_a_new_one__d10() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.ndjson");
        std::fs::write(&path, b"before\ncut o").unwrap();
        sink(&path).write(b"a\n").unwrap();
        drop(sink(&path));
        assert_eq!(std::fs::read(&path).unwrap(), b"before\ncut o\na\n");
    }

    #[test]
    fn a_file_that_can_not_be_opened_is_wrong_usage__d2() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("none").join("out.ndjson");
        let DeliveryError::Usage(text) = FileSink::open(&Target::File(path.clone())).unwrap_err() else { panic!() };
        assert_eq!(
            text,
            format!("{} can't be written: No such file or directory: name a file that can", path.display())
        );
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_full_disk_says_so_and_what_may_be_half_written__d2() {
        let mut full = sink(Path::new("/dev/full"));
        let DeliveryError::Failed(text) = full.write(b"a\nb\n").unwrap_err() else { panic!() };
        assert_eq!(
            text,
            "the destination can't be written: No space left on device; the last 2 may be written in part"
        );
    }

    #[test]
    fn what_has_no_disk_needs_no_sync_and_a_second_handle_syncs_too__d5() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = sink(&folder.path().join("out"));
        let syncing = writer.try_clone().unwrap();
        writer.write(b"a\n").unwrap();
        syncing.sync().unwrap();
        sink(Path::new("/dev/null")).sync().unwrap();
        FileSink::open(&Target::StandardOutput).unwrap().sync().unwrap();
        let (mut reading, writing) = std::io::pipe().unwrap();
        let mut pipe = FileSink { file: File::from(std::os::fd::OwnedFd::from(writing)), id: None };
        pipe.write(b"a\n").unwrap();
        pipe.sync().unwrap();
        drop(pipe);
        let mut read = String::new();
        reading.read_to_string(&mut read).unwrap();
        assert_eq!(read, "a\n");
    }

    fn delivery(id: &str) -> Delivery {
        let message = Message { body: Body::new(None, id, b"1", true), due_ms: 0, delay_ms: None };
        Delivery::from_parts(message, 1, 0, 0, 1, false)
    }

    fn send(sink: &mut LineSink, id: &str) -> Verdicts {
        sink.send(&[delivery(id)]).unwrap()
    }

    fn has(path: &Path, id: &str) -> bool {
        std::fs::read_to_string(path).unwrap().contains(&format!("\"id\":\"{id}\""))
    }

    #[test]
    fn a_file_that_was_moved_or_removed_or_replaced_is_made_anew_before_the_next_batch__d10() {
        let folder = tempfile::tempdir().unwrap();
        let (path, moved) = (folder.path().join("out.ndjson"), folder.path().join("out.1"));
        let mut sink = LineSink::open(&Target::File(path.clone())).unwrap();
        let sync = sink.sync().unwrap();
        assert_eq!(send(&mut sink, "a"), Verdicts::Delivered);
        std::fs::rename(&path, &moved).unwrap();
        assert_eq!(send(&mut sink, "b"), Verdicts::Delivered);
        sync().unwrap();
        assert!(has(&moved, "a") && !has(&moved, "b"));
        assert!(has(&path, "b"));
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(send(&mut sink, "c"), Verdicts::Delivered);
        assert!(has(&path, "c") && !has(&path, "b"));
        std::fs::rename(&moved, &path).unwrap();
        assert_eq!(send(&mut sink, "d"), Verdicts::Delivered);
        assert!(has(&path, "a") && has(&path, "d"), "a file that is there already gets the next lines");
        sync().unwrap();
    }

    #[test]
    fn a_sync_that_fails_before_the_file_is_made_anew_ends_the_run_and_no_later_one_works__d6() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.ndjson");
        let mut sink = LineSink::open(&Target::File(path.clone())).unwrap();
        let sync = sink.sync().unwrap();
        assert_eq!(send(&mut sink, "a"), Verdicts::Delivered);
        let only_a_path = OFlags::PATH.bits() as i32; // such a file can't be synced
        let file = OpenOptions::new().read(true).custom_flags(only_a_path).open(&path).unwrap();
        *sink.syncer.lock() = Ok(FileSink { file, id: None });
        std::fs::rename(&path, folder.path().join("out.1")).unwrap();
        let failures = [sink.send(&[delivery("b")]).unwrap_err(), sync().unwrap_err(), sink.close().unwrap_err()];
        for failure in failures {
            let DeliveryError::Failed(text) = failure else { panic!("{failure:?}") };
            assert_eq!(text, "the destination can't be synced to disk: Bad file descriptor");
        }
        assert!(sink.syncer.lock().is_err(), "no handle is left for which the system may report success");
    }

    #[test]
    fn a_file_that_can_not_be_made_anew_is_a_destination_that_is_away__d10_d6() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("inner");
        std::fs::create_dir(&inner).unwrap();
        let path = inner.join("out.ndjson");
        let mut sink = LineSink::open(&Target::File(path.clone())).unwrap();
        send(&mut sink, "a");
        std::fs::remove_dir_all(&inner).unwrap();
        let Verdicts::Each(verdicts) = send(&mut sink, "b") else { panic!("nothing can be written") };
        let [Verdict::Unreachable { reason, .. }] = &verdicts[..] else { panic!("{verdicts:?}") };
        let text = "can't be written: No such file or directory: name a file that can";
        assert_eq!(*reason, format!("the file was moved or removed: {} {text}", path.display()));
        sink.sync().unwrap()().unwrap();
        std::fs::create_dir(&inner).unwrap();
        assert_eq!(send(&mut sink, "c"), Verdicts::Delivered);
        assert!(has(&path, "c"));
    }

    #[test]
    fn a_new_file_is_for_its_owner_alone_and_is_not_made_behind_a_link__d12() {
        let folder = tempfile::tempdir().unwrap();
        let (path, link) = (folder.path().join("out.ndjson"), folder.path().join("link"));
        drop(sink(&path));
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let elsewhere = folder.path().join("elsewhere");
        std::os::unix::fs::symlink(&elsewhere, &link).unwrap();
        assert!(FileSink::open(&Target::File(link.clone())).is_err() && !elsewhere.exists());
        std::fs::write(&elsewhere, "").unwrap();
        sink(&link).write(b"a\n").unwrap();
        assert_eq!(std::fs::read(&elsewhere).unwrap(), b"a\n", "a link to a file that exists is followed");
    }
}
