//! The states of one builder and its engine, and which call each allows. Pure.

/// A call of the host into a plugin.
#[allow(
    dead_code,
    reason = "this host forms no pipelines: listen and connect_peers are rules without a caller"
)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Call {
    /// `[control]` of the builder.
    Configure,
    /// `[control]` of the builder.
    Listen,
    /// `[control]` of the builder.
    LoadShard,
    /// `[control]` of the builder.
    ConnectPeers,
    /// `[control]` of the builder: its last but one.
    Build,
    /// `[control]` of the builder: its last.
    DestroyBuilder,
    /// `[control]`
    Warmup,
    /// `[any]`
    Card,
    /// `[any]`
    Report,
    /// `[any]`
    Submit,
    /// `[any]` A task for a closed engine, which must refuse it; `plugin check` alone makes it.
    SubmitLate,
    /// `[drive]`
    Step,
    /// `[drive]` A step that collects what close has left; `plugin check` alone makes it.
    StepOwed,
    /// `[any]`
    Cancel,
    /// `[control]`, which steps may run beside.
    Close,
    /// `[control]`: the engine's last.
    Destroy,
}

/// Where an engine stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
enum State {
    /// Its builder has not built it.
    #[default]
    Unborn,
    /// Built, cold.
    Built,
    /// Its warm-up has ended.
    Warmed,
    /// It was given its first task or step.
    Ready,
    /// Close is running.
    Closing,
    /// Close has ended.
    Closed,
    /// Nothing may be called any more.
    Destroyed,
}

pub(super) const ONE_CONTROL: &str = "[control] calls on one object come one at a time";
pub(super) const ONE_DRIVE: &str = "[drive] one step of an engine at a time";
pub(super) const APART: &str = "[control] calls are never beside a step, but close";
pub(super) const NOT_INSIDE: &str = "no call into an engine from inside a push";
pub(super) const ORDER: &str =
    "a builder's calls come in the order configure, listen, load_shard, connect_peers, build, destroy";
pub(super) const BORN: &str = "an engine is called after it was built";
pub(super) const COLD: &str = "warm-up comes once, before the first task and the first step";
pub(super) const READY: &str =
    "submit, step and cancel come between warm-up and close; step and cancel also while close runs";
pub(super) const CLOSE_ONCE: &str = "close comes once";
pub(super) const CLOSED_FIRST: &str = "an engine that had tasks or steps is closed before it is destroyed";
pub(super) const LAST: &str = "destroy is the last call, when no other is running";

/// One worker: its builder and its engine.
#[derive(Debug, Default)]
pub(super) struct Machine {
    /// Place in the order of the builder's latest call; 0 = none came.
    place: u8,
    builder_call: bool,
    state: State,
    engine_call: Option<Call>,
    stepping: bool,
    /// Running calls with the tag `[any]`.
    any: u32,
}

impl Machine {
    /// A call is about to begin; `inside` a push of any engine on the same thread. The error is the rule that forbids it.
    pub(super) fn begin(&mut self, call: Call, inside: bool) -> Result<(), &'static str> {
        if inside {
            return Err(NOT_INSIDE);
        }
        match builder_place(call) {
            Some(place) => self.begin_building(place),
            None => self.begin_engine(call),
        }
    }

    /// The call is over.
    pub(super) fn end(&mut self, call: Call) {
        match call {
            Call::Build => {
                self.builder_call = false;
                // It may have failed; then there is no engine, and nothing to call.
                self.state = State::Built;
            }
            _ if builder_place(call).is_some() => self.builder_call = false,
            Call::Step | Call::StepOwed => self.stepping = false,
            Call::Submit | Call::SubmitLate | Call::Cancel | Call::Card | Call::Report => {
                self.any = self.any.saturating_sub(1)
            }
            Call::Warmup => (self.engine_call, self.state) = (None, State::Warmed),
            Call::Close => (self.engine_call, self.state) = (None, State::Closed),
            _ => self.engine_call = None,
        }
    }

    fn begin_building(&mut self, place: u8) -> Result<(), &'static str> {
        match () {
            () if self.builder_call => Err(ONE_CONTROL),
            () if self.place >= place => Err(ORDER),
            () if place == BUILD && self.place < LOAD || place == LOAD && self.place == 0 => Err(ORDER),
            () => {
                (self.place, self.builder_call) = (place, true);
                Ok(())
            }
        }
    }

    fn begin_engine(&mut self, call: Call) -> Result<(), &'static str> {
        match self.state {
            State::Unborn => return Err(BORN),
            State::Destroyed => return Err(LAST),
            _ => {}
        }
        match call {
            Call::Submit | Call::SubmitLate | Call::Cancel | Call::Card | Call::Report => {
                self.begin_any(call)
            }
            Call::Step | Call::StepOwed => self.begin_step(call),
            _ => self.begin_control(call),
        }
    }

    fn begin_any(&mut self, call: Call) -> Result<(), &'static str> {
        let allowed = match call {
            Call::Submit => State::Warmed..=State::Ready,
            Call::SubmitLate => State::Closed..=State::Closed,
            Call::Cancel => State::Warmed..=State::Closing,
            _ => State::Built..=State::Closed,
        };
        if !allowed.contains(&self.state) {
            return Err(READY);
        }
        if call == Call::Submit {
            self.state = State::Ready;
        }
        self.any += 1;
        Ok(())
    }

    fn begin_step(&mut self, call: Call) -> Result<(), &'static str> {
        let last = if call == Call::StepOwed { State::Closed } else { State::Closing };
        match () {
            () if self.stepping => Err(ONE_DRIVE),
            () if self.engine_call.is_some_and(|other| other != Call::Close) => Err(APART),
            () if !(State::Warmed..=last).contains(&self.state) => Err(READY),
            () => {
                self.state = self.state.max(State::Ready);
                self.stepping = true;
                Ok(())
            }
        }
    }

    fn begin_control(&mut self, call: Call) -> Result<(), &'static str> {
        let next = match call {
            _ if self.engine_call.is_some() && call == Call::Destroy => return Err(LAST),
            _ if self.engine_call.is_some() => return Err(ONE_CONTROL),
            Call::Destroy if self.stepping || self.any > 0 => return Err(LAST),
            Call::Destroy if self.state == State::Ready => return Err(CLOSED_FIRST),
            Call::Destroy => State::Destroyed,
            Call::Close if self.state >= State::Closing => return Err(CLOSE_ONCE),
            Call::Close => State::Closing,
            _ if self.stepping => return Err(APART),
            _ if self.state != State::Built => return Err(COLD),
            _ => State::Built,
        };
        (self.state, self.engine_call) = (next, Some(call));
        Ok(())
    }
}

const LOAD: u8 = 3;
const BUILD: u8 = 5;

/// The call's place in the builder's order; none for a call of the engine.
fn builder_place(call: Call) -> Option<u8> {
    match call {
        Call::Configure => Some(1),
        Call::Listen => Some(2),
        Call::LoadShard => Some(LOAD),
        Call::ConnectPeers => Some(4),
        Call::Build => Some(BUILD),
        Call::DestroyBuilder => Some(6),
        _ => None,
    }
}
