//! Tests of the way from options to a warm engine, of its card and its load report.
#![expect(unsafe_code, reason = "calls the builder with progress of its own")]

use std::collections::BTreeMap;

use cascadia_plugin_api::abi::code;

use super::ask::Ask;
use super::note::note;
use super::rig::Rig;
use super::setup::{Setup, giving_up, shard};
use super::subject::Subject;
use super::{Fault, Outcome, Plan, Test, passed, skip};
use crate::plugins::manifest::{Kind, Spec};

pub(super) const TESTS: &[Test] = &[
    Test { name: "a bad option value is refused as invalid_config, and named", run: bad_options },
    Test { name: "it builds, warms up and closes", run: builds },
    Test { name: "a builder may be given up at any point", run: given_up_builders },
    Test { name: "a load that is told to give up ends", run: told_to_give_up },
    Test { name: "the model card is a JSON object and stays the same", run: card },
    Test { name: "the load report has no more blocks used than there are", run: blocks },
    Test { name: "the load report knows an idle engine from a busy one", run: load_report },
];

fn bad_options(plan: &Plan) -> Outcome {
    let subject = Subject::open(plan)?;
    let bad = bad_values(&subject.manifest.about.options);
    if bad.is_empty() {
        return skip("it has no option whose values can be wrong");
    }
    for (key, value) in &bad {
        let setup = Setup::new(subject, plan)?;
        let mut options = plan.options.clone();
        options.insert(key.clone(), value.clone());
        let (code, said) = setup.configure_code(&options);
        let given = format!("configure with {key}={value:?}");
        if code == code::OK {
            return Err(format!("{given} answered ok").into());
        }
        said.is_clean(&given, code)?;
        if code != code::INVALID_CONFIG {
            return Err(format!("{given} answered {}, not invalid_config", code::name(code)).into());
        }
        if !said.message.contains(key) {
            return Err(format!("{given} does not name the option: {}", said.message).into());
        }
    }
    Ok(format!("{} values", bad.len()))
}

/// Options with a value each that the manifest rules out by its type. The host checks all of a manifest's rules itself; an
/// engine must at least not take text for a number.
fn bad_values(specs: &BTreeMap<String, Spec>) -> Vec<(String, String)> {
    let typed = |(key, spec): (&String, &Spec)| {
        let value = match spec.kind {
            Kind::String => return None,
            Kind::Boolean => "perhaps",
            Kind::Integer | Kind::Number => "twelve",
        };
        Some((key.clone(), value.to_owned()))
    };
    specs.iter().filter_map(typed).collect()
}

fn builds(plan: &Plan) -> Outcome {
    let rig = Rig::of(Subject::open(plan)?, plan)?;
    let took = rig.close(std::time::Duration::from_secs(5))?;
    let device = if rig.card.device.is_empty() { "no device named" } else { &rig.card.device };
    Ok(format!("{device}; closed in {:.1} ms", took.as_secs_f64() * 1e3))
}

fn given_up_builders(plan: &Plan) -> Outcome {
    let subject = Subject::open(plan)?;
    drop(Setup::new(subject, plan)?);
    let configured = Setup::new(subject, plan)?;
    configured.configure(&plan.options)?;
    drop(configured);
    let early = Setup::new(subject, plan)?;
    early.configure(&plan.options)?;
    early.load(plan)?;
    drop(early);
    passed()
}

fn told_to_give_up(plan: &Plan) -> Outcome {
    let setup = Setup::new(Subject::open(plan)?, plan)?;
    setup.configure(&plan.options)?;
    let shard = shard(plan);
    // SAFETY: the shard outlives the call.
    let (code, said) = unsafe { setup.load_code(&raw const shard, giving_up()) };
    match code {
        code::OK => Ok("it was done before it asked".to_owned()),
        code::CANCELLED => Ok("it ended as cancelled".to_owned()),
        _ if plan.model.is_none() => skip("it may need a model, give --model PATH"),
        other => Err(Fault::Failed(format!(
            "load_shard was told to give up and answered {}, neither ok nor cancelled",
            said.words(other)
        ))),
    }
}

fn card(plan: &Plan) -> Outcome {
    let rig = Rig::build(plan)?;
    let Some(before) = rig.card_text()? else { return skip("it has no model card") };
    let task = rig.submit(&Ask::short(&rig.card))?;
    rig.finish(&[task])?;
    if rig.card_text()?.as_ref() != Some(&before) {
        return Err("the card changed while the engine lived".into());
    }
    let card = &rig.card;
    Ok(format!("window {}, tasks {}, {}", card.context_length, card.max_tasks, card.features.join(" ")))
}

fn load_report(plan: &Plan) -> Outcome {
    let rig = Rig::build(plan)?;
    let now = |when: &str| -> Result<u32, Fault> {
        note(&format!("load report {when}"));
        match rig.load()? {
            Some(load) => Ok(load.running + load.waiting),
            None => skip("it has no load report"),
        }
    };
    if let n @ 1.. = now("before the first task")? {
        return Err(format!("it reports {n} tasks before the first one").into());
    }
    let task = rig.submit(&Ask::long(&rig.card))?;
    match now("after a submit")? {
        1 => {}
        n => return Err(format!("it reports {n} tasks after one submit").into()),
    }
    rig.cancel(task);
    rig.finish(&[task])?;
    match now("after the finish")? {
        0 => passed(),
        n => Err(format!("it reports {n} tasks after the only one's finish").into()),
    }
}

fn blocks(plan: &Plan) -> Outcome {
    let rig = Rig::build(plan)?;
    let look = |when: &str| -> Result<(u64, u64), Fault> {
        note(&format!("load report {when}"));
        let Some(load) = rig.load()? else { return skip("it has no load report") };
        let (used, total) = (load.kv_blocks_used, load.kv_blocks_total);
        if total > 0 && used > total {
            return Err(format!("{when} it reports {used} blocks used of {total}").into());
        }
        Ok((used, total))
    };
    let (_, total) = look("before the first task")?;
    let mut tasks = Vec::new();
    for _ in 0..4 {
        tasks.extend(rig.submit(&Ask::long(&rig.card)).ok());
    }
    let mut most = look("after the submits")?.0;
    for _ in 0..4 {
        rig.step()?;
        most = most.max(look("with tasks at work")?.0);
    }
    tasks.iter().for_each(|task| rig.cancel(*task));
    rig.finish(&tasks)?;
    look("after the last task")?;
    if total == 0 { Ok("it reports no blocks".to_owned()) } else { Ok(format!("{most} of {total}")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_typed_option_has_a_value_that_is_not_of_its_type() {
        let specs = serde_json::from_str(
            r#"{"slots":{"type":"integer","default":1},"cb":{"type":"boolean"},"name":{"type":"string"}}"#,
        )
        .expect("valid");
        let keys: Vec<_> = bad_values(&specs).into_iter().map(|(key, _)| key).collect();
        assert_eq!(keys, ["cb", "slots"]);
    }
}
