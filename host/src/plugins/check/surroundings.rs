//! Tests of what a plugin does to the process it lives in, and of its own faults inside it.
#![expect(unsafe_code, reason = "asks the C library about this process")]

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::fs;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use cascadia_plugin_api::abi::code;

use super::ask::Ask;
use super::note::note;
use super::rig::Rig;
use super::setup::Setup;
use super::subject::Subject;
use super::{Fault, Outcome, Plan, Test, passed, skip};

pub(super) const TESTS: &[Test] = &[
    Test { name: "two engines live side by side, or the second is refused", run: two },
    Test { name: "the process is left as it was", run: untouched },
    Test { name: "a panic inside does not take the process down", run: panics },
];

fn two(plan: &Plan) -> Outcome {
    let first = Rig::build(plan)?;
    let second = match Rig::of(first.subject, plan) {
        Ok(second) => second,
        Err(Fault::Skipped(why)) => return Err(Fault::Skipped(why)),
        Err(Fault::Failed(why)) => {
            let task = first.submit(&Ask::short(&first.card))?;
            first.finish(&[task])?;
            return Ok(format!("the second is refused: {why}"));
        }
    };
    let ask = Ask::short(&first.card);
    let (a, b) = (first.submit(&ask)?, second.submit(&ask)?);
    note("step of two engines at once");
    std::thread::scope(|scope| -> Result<(), Fault> {
        let other = scope.spawn(|| second.finish(&[b]));
        first.finish(&[a])?;
        Ok(other.join().map_err(|_| "the test panicked")??)
    })?;
    note("the second after the first is gone");
    drop(first);
    let again = second.submit(&ask)?;
    second.finish(&[again])?;
    match second.ear.look(|heard| heard.strangers) {
        None => passed(),
        Some((task, _)) => {
            Err(format!("the second engine heard of task {task:#x}, which it never had").into())
        }
    }
}

/// What a plugin must leave as it is, by name.
fn state() -> BTreeMap<String, String> {
    let mut state = BTreeMap::new();
    let link = |path: &str| fs::read_link(path).map(|p| p.display().to_string()).unwrap_or_default();
    state.insert("working directory".to_owned(), link("/proc/self/cwd"));
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    for (key, name) in [("Umask:", "umask"), ("SigBlk:", "blocked signals")] {
        let line = status.lines().find(|l| l.starts_with(key)).unwrap_or_default();
        state.insert(name.to_owned(), line.to_owned());
    }
    // SAFETY: reads the C library's own texts; nothing else in this process changes them meanwhile.
    unsafe {
        let locale = libc::setlocale(libc::LC_ALL, core::ptr::null());
        if !locale.is_null() {
            state.insert("locale".to_owned(), CStr::from_ptr(locale).to_string_lossy().into_owned());
        }
        let mut at = environ;
        while !at.is_null() && !(*at).is_null() {
            let line = CStr::from_ptr(*at).to_string_lossy();
            let (name, value) = line.split_once('=').unwrap_or((&line, ""));
            state.insert(format!("environment variable {name}"), value.to_owned());
            at = at.add(1);
        }
        for number in 1..=64 {
            let mut action: libc::sigaction = core::mem::zeroed();
            if libc::sigaction(number, core::ptr::null(), &raw mut action) == 0 {
                let text = format!("{:#x} {:#x}", action.sa_sigaction, action.sa_flags);
                state.insert(format!("handler of signal {number}"), text);
            }
        }
    }
    state.insert("rounding and denormals".to_owned(), format!("{:#x}", float_mode()));
    state
}

unsafe extern "C" {
    static environ: *const *const libc::c_char;
}

/// MXCSR without its sticky exception flags.
fn float_mode() -> u32 {
    let mut word = 0_u32;
    // SAFETY: stores one register into a word of ours.
    unsafe { core::arch::asm!("stmxcsr [{}]", in(reg) &raw mut word, options(nostack)) };
    word & !0x3f
}

/// Standard output as a file in memory, until dropped.
struct Muted {
    before: OwnedFd,
    memory: OwnedFd,
}

impl Muted {
    fn new() -> Result<Muted, String> {
        // SAFETY: descriptors of our own; the two that are made are owned from here on.
        unsafe {
            let before = libc::fcntl(1, libc::F_DUPFD_CLOEXEC, 3);
            let memory = libc::memfd_create(c"stdout".as_ptr(), libc::MFD_CLOEXEC);
            if before < 0 || memory < 0 || libc::dup2(memory, 1) < 0 {
                return Err("the test cannot watch standard output".to_owned());
            }
            Ok(Muted { before: OwnedFd::from_raw_fd(before), memory: OwnedFd::from_raw_fd(memory) })
        }
    }

    fn written(&self) -> u64 {
        fs::metadata(format!("/proc/self/fd/{}", self.memory.as_raw_fd())).map_or(0, |m| m.len())
    }
}

impl Drop for Muted {
    fn drop(&mut self) {
        // SAFETY: puts back what was there.
        unsafe { libc::dup2(self.before.as_raw_fd(), 1) };
    }
}

fn untouched(plan: &Plan) -> Outcome {
    let (before, stdout) = (state(), Muted::new()?);
    let rig = Rig::build(plan)?;
    let task = rig.submit(&Ask::short(&rig.card))?;
    note("step");
    rig.finish(&[task])?;
    drop(rig);
    // The C library may keep lines back.
    // SAFETY: flushes every stream of this process.
    unsafe { libc::fflush(core::ptr::null_mut()) };
    let after = state();
    let mut changed: Vec<_> =
        before.iter().filter(|(k, v)| after.get(*k) != Some(*v)).map(|(k, _)| k).collect();
    changed.extend(after.keys().filter(|k| !before.contains_key(*k)));
    if let n @ 1.. = stdout.written() {
        return Err(format!("it wrote {n} bytes to standard output").into());
    }
    if changed.is_empty() {
        return passed();
    }
    let names: Vec<_> = changed.iter().map(|s| s.as_str()).collect();
    Err(format!("it changed: {}", names.join(", ")).into())
}

/// A plugin may offer an option `panic-in` whose choices are calls that shall go wrong (`none` is not one); it is the only
/// way to try its guards.
fn panics(plan: &Plan) -> Outcome {
    let subject = Subject::open(plan)?;
    let choices = subject.manifest.about.options.get("panic-in").and_then(|spec| spec.choices.clone());
    let Some(choices) = choices else { return skip("it has no option panic-in to try it with") };
    let calls: Vec<_> = choices.iter().filter_map(|c| c.as_str()).filter(|c| *c != "none").collect();
    run_through(subject, plan).map_err(|fault| fault.elsewhere("it fails without a panic too"))?;
    for call in &calls {
        note(&format!("a panic in {call}"));
        let mut plan = plan.clone();
        plan.options.insert("panic-in".to_owned(), (*call).to_owned());
        let failed = match run_through(subject, &plan) {
            Err(Fault::Failed(why)) => why,
            Err(Fault::Skipped(why)) => return Err(Fault::Skipped(why)),
            Ok(()) => return Err(format!("nothing failed though {call} was to panic").into()),
        };
        if !failed.contains(&format!("({})", code::name(code::PANIC))) {
            return Err(format!("a panic in {call} was answered otherwise than with panic: {failed}").into());
        }
    }
    Ok(calls.join(", "))
}

fn run_through(subject: &'static Subject, plan: &Plan) -> Result<(), Fault> {
    drop(Setup::new(subject, plan)?);
    let rig = Rig::of(subject, plan)?;
    let task = rig.submit(&Ask::short(&rig.card))?;
    rig.finish(&[task])?;
    rig.cancel(task);
    rig.step()?;
    rig.close(std::time::Duration::from_secs(2))?;
    Ok(())
}
