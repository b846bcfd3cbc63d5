//! Every rule of the host's side: what it allows, and that it names itself where it is broken.

use super::machine::{
    APART, BORN, CLOSE_ONCE, CLOSED_FIRST, COLD, Call, LAST, Machine, NOT_INSIDE, ONE_CONTROL, ONE_DRIVE,
    ORDER, READY,
};
use super::*;

use Call::{
    Build, Cancel, Card, Close, Configure, ConnectPeers, Destroy, DestroyBuilder, Listen, LoadShard, Report,
    Step, StepOwed, Submit, SubmitLate, Warmup,
};

/// A call that begins, ends, or does both.
#[derive(Clone, Copy)]
enum Do {
    Begin(Call),
    End(Call),
    Whole(Call),
}
use Do::{Begin, End, Whole};

fn run(machine: &mut Machine, steps: &[Do]) -> Result<(), &'static str> {
    for step in steps {
        match step {
            Begin(call) => machine.begin(*call, false)?,
            End(call) => machine.end(*call),
            Whole(call) => {
                machine.begin(*call, false)?;
                machine.end(*call);
            }
        }
    }
    Ok(())
}

const BUILT: [Do; 3] = [Whole(Configure), Whole(LoadShard), Whole(Build)];
const WARM: [Do; 5] =
    [Whole(Configure), Whole(LoadShard), Whole(Build), Whole(DestroyBuilder), Whole(Warmup)];

fn after(first: &[Do], then: &[Do]) -> Result<(), &'static str> {
    let mut machine = Machine::default();
    run(&mut machine, first).expect("the way there is allowed");
    run(&mut machine, then)
}

#[test]
fn each_rule_allows_what_it_should_and_names_itself_where_it_is_broken() {
    type Case<'a> = (&'a [Do], &'a [Do], Result<(), &'static str>);
    let cases: &[Case<'_>] = &[
        // The builder.
        (
            &[],
            &[
                Whole(Configure),
                Whole(Listen),
                Whole(LoadShard),
                Whole(ConnectPeers),
                Whole(Build),
                Whole(DestroyBuilder),
            ],
            Ok(()),
        ),
        (&[], &[Whole(DestroyBuilder)], Ok(())),
        (&[Whole(Configure)], &[Whole(DestroyBuilder)], Ok(())),
        (&[Whole(Configure)], &[Whole(Configure)], Err(ORDER)),
        (&[], &[Whole(LoadShard)], Err(ORDER)),
        (&[Whole(Configure)], &[Whole(Build)], Err(ORDER)),
        (&[Whole(Configure), Whole(LoadShard)], &[Whole(Listen)], Err(ORDER)),
        (&BUILT, &[Whole(ConnectPeers)], Err(ORDER)),
        (&BUILT, &[Whole(Build)], Err(ORDER)),
        (&BUILT, &[Whole(DestroyBuilder), Whole(DestroyBuilder)], Err(ORDER)),
        (&[Begin(Configure)], &[Whole(LoadShard)], Err(ONE_CONTROL)),
        (&[Whole(Configure), Begin(LoadShard)], &[Whole(DestroyBuilder)], Err(ONE_CONTROL)),
        // The states.
        (&[Whole(Configure)], &[Whole(Warmup)], Err(BORN)),
        (&BUILT, &[Whole(Submit)], Err(READY)),
        (&BUILT, &[Whole(Step)], Err(READY)),
        (&BUILT, &[Whole(Cancel)], Err(READY)),
        (&BUILT, &[Whole(Card), Whole(Report)], Ok(())),
        (&WARM, &[Whole(Warmup)], Err(COLD)),
        (&WARM, &[Whole(Submit), Whole(Step), Whole(Cancel), Whole(Close), Whole(Destroy)], Ok(())),
        (&WARM, &[Whole(Step), Whole(Warmup)], Err(COLD)),
        (&WARM, &[Begin(Close), Whole(Submit)], Err(READY)),
        (&WARM, &[Begin(Close), Whole(Step), Whole(Cancel), End(Close), Whole(Destroy)], Ok(())),
        (&WARM, &[Whole(Close), Whole(Step)], Err(READY)),
        (&WARM, &[Whole(Close), Whole(Cancel)], Err(READY)),
        (&WARM, &[Whole(Close), Whole(StepOwed), Whole(Report)], Ok(())),
        (&WARM, &[Whole(Close), Whole(SubmitLate), Whole(Destroy)], Ok(())),
        (&WARM, &[Whole(SubmitLate)], Err(READY)),
        (&WARM, &[Whole(Close), Whole(Close)], Err(CLOSE_ONCE)),
        (&WARM, &[Whole(Step), Whole(Destroy)], Err(CLOSED_FIRST)),
        // One that never worked may go without a close: its warm-up failed.
        (&BUILT, &[Whole(Destroy)], Ok(())),
        (&WARM, &[Whole(Destroy), Whole(Card)], Err(LAST)),
        (&WARM, &[Whole(Close), Whole(Destroy), Whole(Destroy)], Err(LAST)),
        (&WARM, &[Whole(Close), Whole(Destroy), Whole(StepOwed)], Err(LAST)),
        // The tags.
        (&BUILT, &[Begin(Warmup), Whole(Warmup)], Err(ONE_CONTROL)),
        (&BUILT, &[Begin(Warmup), Whole(Close)], Err(ONE_CONTROL)),
        (&BUILT, &[Begin(Warmup), Whole(Card), Whole(Report)], Ok(())),
        (&BUILT, &[Begin(Warmup), Whole(Step)], Err(APART)),
        (&WARM, &[Begin(Step), Whole(Step)], Err(ONE_DRIVE)),
        (&WARM, &[Begin(Step), Whole(StepOwed)], Err(ONE_DRIVE)),
        (&WARM, &[Begin(Step), Whole(Submit), Whole(Submit), Whole(Cancel), Whole(Report)], Ok(())),
        (&WARM, &[Begin(Submit), Begin(Submit), Whole(Cancel), End(Submit), End(Submit)], Ok(())),
        (&WARM, &[Begin(Step), Whole(Close)], Ok(())),
        (&WARM, &[Begin(Step), Whole(Close), Whole(Destroy)], Err(LAST)),
        (&WARM, &[Begin(Close), Whole(Destroy)], Err(LAST)),
        (&WARM, &[Begin(Report), Whole(Close), Whole(Destroy)], Err(LAST)),
    ];
    for (i, (first, then, expected)) in cases.iter().enumerate() {
        assert_eq!(after(first, then), *expected, "case {i}");
    }
}

#[test]
fn nothing_is_called_from_inside_a_push() {
    for call in [Submit, Step, Cancel, Report, Card, Close, Destroy, Configure] {
        let mut machine = Machine::default();
        run(&mut machine, &WARM).expect("allowed");
        assert_eq!(machine.begin(call, true), Err(NOT_INSIDE), "{call:?}");
    }
}

#[cfg(debug_assertions)]
#[test]
fn a_breach_of_the_host_is_a_panic_that_names_the_rule_even_when_the_push_hides_it() {
    let said = |body: &dyn Fn()| {
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)).expect_err("a breach");
        caught.downcast_ref::<String>().cloned().unwrap_or_default()
    };
    let warm = || {
        let strict = Strict::default();
        for call in [Configure, LoadShard, Build, DestroyBuilder, Warmup] {
            drop(strict.enter(call));
        }
        strict
    };
    let strict = warm();
    let step = strict.enter(Step);
    assert!(said(&|| drop(strict.enter(Step))).contains(ONE_DRIVE));
    drop(step);
    // What happens inside a push is caught at its edge; the end of the step tells it all the same.
    let strict = warm();
    let told = said(&|| {
        let _step = strict.enter(Step);
        let hidden = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _push = pushing();
            drop(strict.enter(Cancel));
        }));
        assert!(hidden.is_err());
    });
    assert!(told.contains("Cancel") && told.contains(NOT_INSIDE), "{told}");
    drop(strict.enter(Cancel));
}

#[test]
fn a_kind_is_told_once_per_worker() {
    let (one, two) = (Strict::default(), Strict::default());
    assert!(one.is_first(2));
    assert!(!one.is_first(2));
    assert!(one.is_first(0));
    assert!(two.is_first(2));
}
