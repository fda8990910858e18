//! The lifeline: no process outlives the system it belongs to.
//!
//! The supervisor makes a pipe and keeps its only write end. Everything it starts, and everything they
//! start, inherits the read end. When the supervisor is gone, in whatever way, the kernel closes the
//! write end and every reader sees the end of the pipe.

use rustix::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use rustix::io::FdFlags;
use std::io;

/// The supervisor's side. Dropping it ends every process that holds the other.
pub struct Supervisor {
    // Never written to.
    _write_end: OwnedFd,
    read_end: OwnedFd,
}

impl Supervisor {
    /// A new lifeline. The read end is inherited by processes started from here on; the write end is
    /// not.
    ///
    /// # Errors
    /// If no pipe can be made.
    pub fn new() -> io::Result<Self> {
        let (read_end, write_end) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        rustix::io::fcntl_setfd(&read_end, FdFlags::empty())?;
        Ok(Supervisor { _write_end: write_end, read_end })
    }

    /// The descriptor to pass as `--lifeline-fd`.
    pub fn fd(&self) -> RawFd {
        use std::os::fd::AsRawFd;
        self.read_end.as_raw_fd()
    }
}

/// A process's own side.
pub struct Lifeline {
    read_end: OwnedFd,
}

impl Lifeline {
    /// Takes over the descriptor given as `--lifeline-fd`.
    ///
    /// # Errors
    /// If it is not an open descriptor.
    pub fn from_fd(fd: RawFd) -> io::Result<Self> {
        if fd < 0 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // SAFETY: only borrowed for one fcntl, which reports EBADF if it is not open.
        rustix::io::fcntl_getfd(unsafe { BorrowedFd::borrow_raw(fd) })?;
        // SAFETY: it is open (checked above), and it was opened for this process by whoever passed its
        // number on the command line; nothing else here owns it.
        let read_end = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Lifeline { read_end })
    }

    /// The descriptor, to pass on to processes started by this one. It stays inheritable.
    pub fn fd(&self) -> RawFd {
        use std::os::fd::AsRawFd;
        self.read_end.as_raw_fd()
    }

    /// Ends this process when the supervisor is gone. Waits on a small thread of its own, so that a
    /// blocked runtime cannot delay it.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn end_process_with_it(&self) -> io::Result<()> {
        let read_end = self.read_end.try_clone()?;
        // The copy is for this thread alone.
        rustix::io::fcntl_setfd(&read_end, FdFlags::CLOEXEC)?;
        std::thread::Builder::new().name("lifeline".into()).stack_size(64 << 10).spawn(move || {
            wait_for_end(read_end.as_fd());
            std::process::exit(0);
        })?;
        Ok(())
    }
}

fn wait_for_end(fd: BorrowedFd<'_>) {
    let mut buffer = [0; 16];
    loop {
        match rustix::io::read(fd, &mut buffer) {
            // Nobody writes; whatever arrives is not the end.
            Ok(count) if count > 0 => {}
            Err(rustix::io::Errno::INTR) => {}
            _ => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_is_seen_when_the_supervisor_goes() {
        let supervisor = Supervisor::new().unwrap();
        let copy = rustix::io::dup(&supervisor.read_end).unwrap();
        let waiting = std::thread::spawn(move || wait_for_end(copy.as_fd()));
        assert!(!waiting.is_finished());
        drop(supervisor);
        waiting.join().unwrap();
    }

    #[test]
    fn children_inherit_the_end_to_read_and_no_other() {
        let supervisor = Supervisor::new().unwrap();
        let is_inherited =
            |fd: &OwnedFd| !rustix::io::fcntl_getfd(fd).unwrap().contains(rustix::io::FdFlags::CLOEXEC);
        assert!(is_inherited(&supervisor.read_end));
        assert!(!is_inherited(&supervisor._write_end));
        let copy = rustix::io::dup(&supervisor.read_end).unwrap();
        let lifeline = Lifeline::from_fd(std::os::fd::IntoRawFd::into_raw_fd(copy)).unwrap();
        assert!(is_inherited(&lifeline.read_end), "it is passed on");
    }

    #[test]
    fn a_number_that_is_no_descriptor_is_refused() {
        assert!(Lifeline::from_fd(-1).is_err());
        assert!(Lifeline::from_fd(9_999).is_err());
    }
}
