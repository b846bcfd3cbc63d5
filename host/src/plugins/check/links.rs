//! Tests of an engine as a stage of a pipeline: two of them, linked by their builders, in one process. Skipped where the
//! engine has no pipeline.
//!
//! The stages are built side by side, since each may wait for the other, and the rear one is driven by a thread of its own.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use cascadia_plugin_api::abi::chunk::FINISH_ERROR;
use cascadia_plugin_api::abi::code;

use super::ask::Ask;
use super::note::note;
use super::rig::Rig;
use super::setup::Setup;
use super::sink::Answer;
use super::subject::Subject;
use super::{Fault, Outcome, Plan, Test, skip};
use crate::plugins::link::Link as Worker;
use crate::plugins::transport;
use crate::plugins::transport::until::Until;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::transport::TransportMetrics;

pub(super) const TESTS: &[Test] = &[
    Test { name: "two linked stages answer as one engine does", run: linked },
    Test { name: "a peer that breaks off does not end a stage", run: broken_peers },
    Test { name: "a stage whose peer is gone ends its tasks", run: gone },
    Test { name: "a stage whose peer is silent closes in time", run: silent },
];

/// Any free port of this machine.
const ANYWHERE: &str = "127.0.0.1:0";

/// Two linked stages.
struct Pipe {
    front: Rig,
    rear: Rig,
}

impl Pipe {
    /// Builds both; `before` is done while only the rear one is there, with its address and what it listens for.
    fn build(plan: &Plan, before: impl FnOnce(&str, &[String]) -> Result<(), Fault>) -> Result<Pipe, Fault> {
        let subject = Subject::open(plan)?;
        std::thread::scope(|scope| {
            let (tell, told) = sync_channel(1);
            let rear = scope.spawn(move || -> Result<Rig, Fault> {
                let setup = Setup::new(subject, plan)?;
                setup.configure(&plan.options)?;
                let bound = setup.listen(ANYWHERE)?;
                // The other side may have failed; then nobody asks.
                drop(tell.send((bound, setup.link.ends().purposes())));
                setup.load_as(plan, (1, 2))?;
                Rig::finish_setup(setup, plan)
            });
            let front = match told.recv() {
                // It ended without a listener and says why itself.
                Err(_) => None,
                Ok((bound, purposes)) => Some(before(&bound, &purposes).and_then(|()| {
                    let setup = Setup::new(subject, plan)?;
                    setup.configure(&plan.options)?;
                    setup.load_as(plan, (0, 2))?;
                    setup.connect(&bound)?;
                    Rig::finish_setup(setup, plan)
                })),
            };
            let rear = rear.join().map_err(|_| "the test panicked")?;
            match front {
                None => rear.and_then(|_| Err("the rear stage was built without listening".into())),
                Some(front) => Ok(Pipe { front: front?, rear: rear? }),
            }
        })
    }

    /// The front stage's answer, with the rear one driven beside it.
    fn answer(&self, ask: &Ask) -> Result<Answer, Fault> {
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let rear = scope.spawn(|| self.rear.tend(&stop));
            let answered = one(&self.front, ask);
            stop.store(true, Ordering::Release);
            self.rear.wake();
            rear.join().map_err(|_| "the test panicked")?.map_err(|why| format!("the rear stage: {why}"))?;
            answered
        })
    }
}

fn one(rig: &Rig, ask: &Ask) -> Result<Answer, Fault> {
    note("submit");
    let task = rig.submit(ask)?;
    rig.finish(&[task])?;
    Ok(rig.answer(task))
}

/// Whether two answers say the same; that one failed is told with its reason.
fn same(alone: &Answer, piped: &Answer) -> Result<(), Fault> {
    if let Some((number, message)) = &piped.error {
        return Err(format!("the task failed: {message} ({})", code::name(*number)).into());
    }
    if (&alone.tokens, &alone.bytes) == (&piped.tokens, &piped.bytes) {
        return Ok(());
    }
    let (a, b) = (alone.tokens.len(), piped.tokens.len());
    Err(format!("the stages answer otherwise than one engine: {b} tokens, not the same {a}").into())
}

fn alone(plan: &Plan, ask: impl Fn(&Rig) -> Ask) -> Result<(Ask, Answer), Fault> {
    let rig = Rig::build(plan)?;
    let ask = ask(&rig);
    let answer = one(&rig, &ask).map_err(|fault| fault.elsewhere("there is no answer"))?;
    Ok((ask, answer))
}

fn linked(plan: &Plan) -> Outcome {
    let (ask, expected) = alone(plan, |rig| Ask::short(&rig.card))?;
    let pipe = Pipe::build(plan, |_, _| Ok(()))?;
    for _ in 0..3 {
        same(&expected, &pipe.answer(&ask)?)?;
    }
    // The rear stage goes first here and second in the next test; an engine must close in either order.
    let (sent, received) = pipe.front.frames();
    let Pipe { front, rear } = pipe;
    rear.close(Duration::from_secs(2))?;
    drop(rear);
    front.close(Duration::from_secs(2))?;
    if sent + received == 0 {
        return Ok("over links of its own".to_owned());
    }
    Ok(format!("{sent} frames sent, {received} received"))
}

/// What a peer does after it was let in.
const BREAKS: &[(&str, &[u8])] = &[
    ("leaves at once", b""),
    ("leaves inside a header", b"CFR1\x01\x05"),
    ("leaves inside a frame", b"CFR1\x02\0\0\0\xe8\x03\0\0\0\0\0\0half of it"),
    ("sends garbage", &[0xa5; 64]),
    ("announces more than there is", b"CFR1\x01\x05\x01\0\xff\xff\xff\xff\xff\xff\xff\xff"),
    ("sends an unknown element type", b"CFR1\x01\x63\x01\0\x04\0\0\0\0\0\0\0\x04\0\0\0\0\0\0\0abcd"),
    ("sends an empty control frame", b"CFR1\x02\0\0\0\0\0\0\0\0\0\0\0"),
];

fn broken_peers(plan: &Plan) -> Outcome {
    let (ask, expected) = alone(plan, |rig| Ask::short(&rig.card))?;
    let whole = Pipe::build(plan, |_, _| Ok(())).and_then(|pipe| same(&expected, &pipe.answer(&ask)?));
    whole.map_err(|fault| fault.elsewhere("the stages do not work together"))?;
    let pipe = Pipe::build(plan, |bound, purposes| {
        let [purpose] = purposes else { return skip("it does not listen by the host's transport") };
        for (what, bytes) in BREAKS {
            note(&format!("a peer {what}"));
            break_off(bound, purpose, bytes, plan.patience())
                .map_err(|why| format!("a peer that {what}: {why}"))?;
        }
        note("the right peer");
        Ok(())
    })?;
    same(&expected, &pipe.answer(&ask)?)?;
    drop(pipe);
    Ok(format!("{} kinds", BREAKS.len()))
}

/// A peer that is let in, says `bytes` and goes.
fn break_off(bound: &str, purpose: &str, bytes: &[u8], patience: Duration) -> Result<(), String> {
    let hello = transport::greeting(purpose);
    let mut stream = TcpStream::connect(bound).map_err(|e| format!("cannot reach the stage: {e}"))?;
    stream.set_read_timeout(Some(patience)).map_err(|e| e.to_string())?;
    stream.write_all(&hello).map_err(|e| format!("is not heard: {e}"))?;
    let mut welcome = vec![0; hello.len()];
    stream.read_exact(&mut welcome).map_err(|e| match e.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => format!("is not accepted within {patience:?}"),
        _ => format!("is not accepted: {e}"),
    })?;
    // The stage may have left already: what it makes of this is its own.
    drop(stream.write_all(bytes));
    drop(stream.shutdown(Shutdown::Both));
    Ok(())
}

fn gone(plan: &Plan) -> Outcome {
    let (ask, _) = alone(plan, |rig| Ask::short(&rig.card))?;
    let pipe =
        Pipe::build(plan, |_, _| Ok(())).map_err(|fault| fault.elsewhere("there are no linked stages"))?;
    let Pipe { front, rear } = pipe;
    rear.close(Duration::from_secs(2))?;
    drop(rear);
    note("submit without the peer");
    let begun = Instant::now();
    let how = match front.submit(&ask) {
        Err(refusal) => format!("submit: {}", refusal.said.words(refusal.code)),
        Ok(task) => match front.finish(&[task]) {
            Ok(()) => match front.answer(task) {
                Answer { error: Some((number, message)), .. } => {
                    format!("{message} ({})", code::name(number))
                }
                answer if answer.finishes.contains(&FINISH_ERROR) => "an error without a reason".to_owned(),
                _ => "it was answered without the peer".to_owned(),
            },
            // The engine as a whole may fail: the host builds it anew.
            Err(why) if why.starts_with("step failed") => why,
            Err(why) => return Err(why.into()),
        },
    };
    front.close(Duration::from_secs(2))?;
    Ok(format!("after {:.1} s: {how}", begun.elapsed().as_secs_f32()))
}

/// How long a stage gets to close, and its step to return beside it.
const CLOSE: Duration = Duration::from_secs(2);

fn silent(plan: &Plan) -> Outcome {
    let (ask, _) = alone(plan, |rig| Ask::short(&rig.card))?;
    let subject = Subject::open(plan)?;
    let rear = Setup::new(subject, plan)?;
    rear.configure(&plan.options)?;
    rear.listen(ANYWHERE)?;
    let Some(purpose) = rear.link.ends().purposes().pop() else {
        return skip("it does not listen by the host's transport");
    };
    drop(rear);
    let peer = Worker::new("check");
    let metrics = Metrics::new().transport;
    let listening = peer.ends().listen(ANYWHERE, &purpose, &metrics);
    let (listener, address) = listening.map_err(|e| format!("the test cannot listen: {e}"))?;
    let (tell, heard) = sync_channel(1);
    std::thread::scope(|scope| {
        // Ends with the stage's link, which its rig closes.
        scope.spawn(|| drop(say_nothing(listener, &metrics, || tell.try_send(()).unwrap_or_default())));
        let setup = Setup::new(subject, plan)?;
        setup.configure(&plan.options)?;
        setup.load_as(plan, (0, 2))?;
        setup.connect(&address)?;
        let front = Rig::finish_setup(setup, plan)?;
        let stop = AtomicBool::new(false);
        std::thread::scope(|inner| {
            // What a step beside a close answers is not asked here, only that it returns.
            let driver = inner.spawn(|| drop(front.tend(&stop)));
            front.submit(&ask)?;
            front.wake();
            let sent = heard.recv_timeout(plan.patience()).is_ok();
            note("close beside a step that waits for a silent peer");
            let begun = Instant::now();
            let closed = front.close(CLOSE);
            stop.store(true, Ordering::Release);
            front.wake();
            driver.join().map_err(|_| "the test panicked")?;
            closed?;
            match begun.elapsed() {
                took if took > 2 * CLOSE => Err(Fault::Failed(format!(
                    "the step waited for its peer for {:.1} s after close, whose deadline was {CLOSE:?}",
                    took.as_secs_f32()
                ))),
                took if sent => Ok(format!("{:.1} ms", took.as_secs_f64() * 1e3)),
                _ => Ok("nothing was sent to the peer".to_owned()),
            }
        })
    })
}

/// A peer that lets a stage in and then only listens; `heard` is called when something came.
fn say_nothing(listener: u64, metrics: &Arc<TransportMetrics>, heard: impl Fn()) -> transport::Result<()> {
    let link = transport::link(transport::accept(listener, Until::Default, metrics)?)?;
    loop {
        link.recv(Until::Default, |_| heard())?;
    }
}
