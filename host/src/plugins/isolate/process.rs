//! Starting, watching and ending the child of an isolated plugin. One place for what this system knows of processes.
//!
//! What must hold: the child dies with the host. The kernel's death signal is about the thread that started it, so one
//! thread, which lives as long as the process, starts them all. A [`Process`] that is dropped is killed and reaped.
#![expect(
    unsafe_code,
    reason = "death signals, process descriptors and memory files, which std does not have"
)]

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};
use std::sync::OnceLock;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

/// How much of the address space the child's heap takes ahead, in KiB, where that space is bounded: by itself it would be
/// 1 GiB at once.
const RESERVE: (&str, &str) = ("MIMALLOC_ARENA_RESERVE", "65536");

/// How a child is started.
pub(super) struct Start<'a> {
    /// Variables that the plugin needs.
    pub(super) env: Vec<(&'a str, &'a str)>,
    /// Most detailed log level.
    pub(super) level: tracing::Level,
    /// Bound on its address space, in bytes.
    pub(super) memory: Option<u64>,
    /// The plugin's bytes.
    pub(super) image: &'a File,
}

/// A running child.
pub(super) struct Process {
    /// None once it was handed to the one who reaps.
    child: Option<Child>,
    descriptor: OwnedFd,
}

impl Process {
    /// Starts `cascadia-host plugin-run` and answers it with the host's end of the socket.
    pub(super) fn start(start: &Start<'_>) -> io::Result<(Process, UnixStream)> {
        let (ours, theirs) = UnixStream::pair()?;
        // The file of this very program, whatever lies at its path by now.
        let mut command = Command::new("/proc/self/exe");
        command.arg0("cascadia-host").arg("plugin-run");
        command.args(["--parent", &std::process::id().to_string(), "--level", start.level.as_str()]);
        if let Some(bytes) = start.memory {
            command.args(["--memory", &bytes.to_string()]).env(RESERVE.0, RESERVE.1);
        }
        command.envs(start.env.iter().copied());
        // The socket and the image come as input and output; the child moves them. A group of its own keeps the
        // terminal's signals away.
        command.stdin(OwnedFd::from(theirs)).stdout(start.image.try_clone()?).process_group(0);
        let mut child = nursery()?.start(command)?;
        match descriptor(&child) {
            Ok(descriptor) => Ok((Process { child: Some(child), descriptor }, ours)),
            Err(error) => {
                // It ends by itself too: its socket is closed.
                drop(child.kill());
                drop(child.wait());
                Err(error)
            }
        }
    }

    /// Readable once the process has ended.
    pub(super) fn ended(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    /// Its id.
    pub(super) fn id(&self) -> u32 {
        self.child.as_ref().map_or(0, Child::id)
    }

    /// How it ended, waiting for that so long.
    pub(super) fn status(&mut self, most: Duration) -> Option<ExitStatus> {
        let until = Instant::now() + most;
        let child = self.child.as_mut()?;
        loop {
            if let Some(status) = child.try_wait().ok()? {
                return Some(status);
            }
            if Instant::now() >= until {
                return None;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Kills it and what it has started.
    pub(super) fn kill(&mut self) {
        let Some(child) = &mut self.child else { return };
        if matches!(child.try_wait(), Ok(None)) {
            let group = libc::pid_t::try_from(child.id()).unwrap_or(0);
            if group > 0 {
                // SAFETY: the child was not reaped, so its id is its own; it leads its group.
                unsafe { libc::kill(-group, libc::SIGKILL) };
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
        if self.status(Duration::from_millis(500)).is_none()
            && let (Some(child), Ok(nursery)) = (self.child.take(), nursery())
        {
            // A driver may hold it for a while; it is reaped when it lets go.
            nursery.reap(child);
        }
    }
}

/// What ended a process, in words.
pub(super) fn words(status: Option<ExitStatus>) -> String {
    match status {
        None => "ended, and the system does not say how".to_owned(),
        Some(status) => match (status.signal(), status.code()) {
            (Some(libc::SIGKILL), _) => {
                "was killed by SIGKILL: by somebody, or by the kernel, as it does when memory runs out"
                    .to_owned()
            }
            (Some(number), _) => format!("was killed by {}", signal(number)),
            (None, Some(code)) => format!("exited with status {code}"),
            (None, None) => "ended".to_owned(),
        },
    }
}

fn signal(number: i32) -> String {
    let name = match number {
        libc::SIGSEGV => "SIGSEGV (a bad memory access)",
        libc::SIGABRT => "SIGABRT (it gave itself up)",
        libc::SIGBUS => "SIGBUS (a bad memory access)",
        libc::SIGILL => "SIGILL (an instruction this processor does not have)",
        libc::SIGFPE => "SIGFPE (an impossible calculation)",
        libc::SIGTERM => "SIGTERM",
        libc::SIGINT => "SIGINT",
        _ => return format!("signal {number}"),
    };
    name.to_owned()
}

/// A file in memory with these bytes, which nobody can change any more.
pub(super) fn sealed(bytes: &[u8]) -> io::Result<File> {
    // SAFETY: the name is a C string; a descriptor that is not negative is ours alone.
    let mut file = unsafe {
        let fd = libc::memfd_create(c"cascadia-plugin".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        File::from_raw_fd(fd)
    };
    file.write_all(bytes)?;
    let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_WRITE | libc::F_SEAL_SEAL;
    // SAFETY: the descriptor is open.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(file)
}

/// A descriptor that becomes readable when the child ends, before a core is written or a grandchild lets go of a socket.
fn descriptor(child: &Child) -> io::Result<OwnedFd> {
    // SAFETY: the child was not reaped, so the id is its own; a descriptor that is not negative is ours alone.
    unsafe {
        let fd = libc::syscall(libc::SYS_pidfd_open, libc::c_long::from(child.id()), 0);
        match i32::try_from(fd) {
            Ok(fd) if fd >= 0 => Ok(OwnedFd::from_raw_fd(fd)),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// The one thread that starts children.
struct Nursery(SyncSender<Job>);

enum Job {
    Start(Box<Command>, SyncSender<io::Result<Child>>),
    Reap(Child),
}

fn nursery() -> io::Result<&'static Nursery> {
    static NURSERY: OnceLock<Option<Nursery>> = OnceLock::new();
    let nursery = NURSERY.get_or_init(|| {
        // A sender waits while many are being started at once.
        let (sender, jobs) = sync_channel::<Job>(16);
        let work = move || {
            let mut leaving: Vec<Child> = Vec::new();
            loop {
                match jobs.recv_timeout(Duration::from_secs(if leaving.is_empty() { 3600 } else { 1 })) {
                    // Nobody waits for the answer any more; then the child ends with its socket.
                    Ok(Job::Start(mut command, answer)) => drop(answer.send(command.spawn())),
                    Ok(Job::Reap(child)) => leaving.push(child),
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => return,
                }
                leaving.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
            }
        };
        std::thread::Builder::new().name("nursery".to_owned()).spawn(work).ok().map(|_| Nursery(sender))
    });
    nursery.as_ref().ok_or_else(|| io::Error::other("no thread to start processes with"))
}

impl Nursery {
    fn start(&self, command: Command) -> io::Result<Child> {
        let (answer, started) = sync_channel(1);
        let gone = || io::Error::other("the thread that starts processes has ended");
        self.0.send(Job::Start(Box::new(command), answer)).map_err(|_| gone())?;
        started.recv_timeout(Duration::from_secs(30)).map_err(|_| gone())?
    }

    fn reap(&self, child: Child) {
        // It lives as long as the process, which reaps what is left.
        drop(self.0.send(Job::Reap(child)));
    }
}

/// What the child was given.
pub(super) struct Given {
    pub(super) socket: UnixStream,
    pub(super) image: File,
}

/// Makes the process a child that dies with its host. Called first, before anything is open.
pub(super) fn settle(parent: u32, memory: Option<u64>) -> io::Result<Given> {
    unsafe extern "C" fn nothing(_signal: libc::c_int) {}
    let check = |answer: libc::c_int| if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(answer) };
    // SAFETY: each call's arguments are plain values or live through it; descriptors 0 and 1 are the socket and the image,
    // and the copies made of them are ours alone.
    unsafe {
        check(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL))?;
        if u32::try_from(libc::getppid()) != Ok(parent) {
            return Err(io::Error::other("the host that started this has ended"));
        }
        // What the host had open without a mark is nothing for a plugin.
        libc::syscall(libc::SYS_close_range, 3_u32, u32::MAX, 0);
        // The host drains first and then says so; a handler, unlike ignoring, is not inherited by what a plugin starts.
        let handler = nothing as unsafe extern "C" fn(libc::c_int) as libc::sighandler_t;
        for number in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT] {
            libc::signal(number, handler);
        }
        // Writing a core of large weights would keep the socket open for minutes. One byte, unlike none, also keeps the
        // system's collector of cores from being started.
        limit(libc::RLIMIT_CORE, 1)?;
        if let Some(bytes) = memory {
            limit(libc::RLIMIT_AS, bytes)?;
        }
        let socket = check(libc::fcntl(0, libc::F_DUPFD_CLOEXEC, 3))?;
        let image = check(libc::fcntl(1, libc::F_DUPFD_CLOEXEC, 3))?;
        let null = File::open("/dev/null")?;
        check(libc::dup2(null.as_raw_fd(), 0))?;
        check(libc::dup2(2, 1))?;
        Ok(Given { socket: UnixStream::from_raw_fd(socket), image: File::from_raw_fd(image) })
    }
}

/// # Safety
/// `what` must be a resource of `setrlimit`.
unsafe fn limit(what: libc::__rlimit_resource_t, bytes: u64) -> io::Result<()> {
    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
    // SAFETY: the struct lives through the call.
    if unsafe { libc::setrlimit(what, &raw const limit) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn a_sealed_file_reads_and_does_not_change() {
        let file = sealed(b"bytes").expect("sealed");
        let mut text = String::new();
        let mut again = File::open(format!("/proc/self/fd/{}", file.as_raw_fd())).expect("opened");
        again.read_to_string(&mut text).expect("read");
        assert_eq!(text, "bytes");
        assert!((&file).write_all(b"more").is_err());
    }

    #[test]
    fn an_end_has_words() {
        let killed = ExitStatus::from_raw(libc::SIGSEGV);
        assert_eq!(words(Some(killed)), "was killed by SIGSEGV (a bad memory access)");
        assert_eq!(words(Some(ExitStatus::from_raw(3 << 8))), "exited with status 3");
    }
}
