//! Tests of the rule that lets tables grow: a struct of a newer host is larger and welcome, one of an older host is
//! smaller and refused, or enough, and nothing is touched beyond the size a struct says.
#![expect(unsafe_code, reason = "passes structs of other sizes")]

use cascadia_plugin_api::abi::builder::Shard;
use cascadia_plugin_api::abi::code;
use cascadia_plugin_api::abi::plugin::EngineInfo;
use cascadia_plugin_api::abi::prim::{Array, Kv, Str};
use cascadia_plugin_api::abi::task::Task;
use cascadia_plugin_api::ext::LoadReport;

use super::ask::Ask;
use super::note::note;
use super::page::Page;
use super::rig::Rig;
use super::setup::{Setup, going_on, shard};
use super::subject::Subject;
use super::{Fault, Outcome, Plan, Test, passed, skip};

pub(super) const TESTS: &[Test] = &[
    Test { name: "engine_info keeps to the size it is offered", run: infos },
    Test { name: "a larger shard is accepted, and nothing is read behind a smaller one", run: shards },
    Test { name: "a larger task is accepted, a smaller one refused", run: tasks },
    Test { name: "options that lie further apart are read by their stride", run: wide_options },
    Test { name: "tokens that lie further apart are read by their stride", run: wide_tokens },
    Test { name: "the load report keeps to the size it is offered", run: reports },
];

/// By how much a newer struct is larger.
const MORE: usize = 64;
/// Only `struct_size` and `flags`: nothing that any call could do without.
const HEAD: usize = 8;

fn infos(plan: &Plan) -> Outcome {
    let subject = Subject::open(plan)?;
    let ask = |size: usize| -> Result<u32, String> {
        let info =
            EngineInfo { struct_size: size as u32, flags: 0, name: Str::EMPTY, description: Str::EMPTY };
        note(&format!("engine_info with a struct of {size} bytes"));
        let page = Page::with(&info, size)?;
        // SAFETY: the page has as many bytes as the struct says.
        Ok(unsafe { (subject.plugin.engine_info)(0, page.ptr()) })
    };
    if ask(size_of::<EngineInfo>() + MORE)? != code::OK {
        return Err("engine_info refuses the larger struct of a newer host".into());
    }
    // Whether it fills what there is or refuses: it may not write beyond it.
    ask(HEAD)?;
    ask(size_of::<EngineInfo>() - 16)?;
    passed()
}

fn shards(plan: &Plan) -> Outcome {
    let subject = Subject::open(plan)?;
    let load = |size: usize| -> Result<_, Fault> {
        let setup = Setup::new(subject, plan)?;
        setup.configure(&plan.options)?;
        if size == size_of::<Shard>() {
            // Whether there is a model at all; skips if not.
            setup.load(plan)?;
            return Ok((code::OK, super::said::Said::default()));
        }
        let page = Page::with(&Shard { struct_size: size as u32, ..shard(plan) }, size)?;
        note(&format!("load_shard with a struct of {size} bytes"));
        // SAFETY: the page has as many bytes as the struct says; the plan outlives the call.
        Ok(unsafe { setup.load_code(page.ptr(), going_on()) })
    };
    load(size_of::<Shard>())?;
    let (code, said) = load(size_of::<Shard>() + MORE)?;
    if code != code::OK {
        let why = said.words(code);
        return Err(format!("load_shard refuses the larger struct of a newer host: {why}").into());
    }
    // An engine without weights may take them: it needs nothing of what is missing.
    for size in [HEAD, size_of::<Shard>() - 8] {
        let (code, said) = load(size)?;
        if code != code::OK {
            said.is_clean("load_shard of a smaller struct", code)?;
        }
    }
    passed()
}

fn tasks(plan: &Plan) -> Outcome {
    let rig = Rig::build(plan)?;
    let ask = Ask::short(&rig.card);
    let submit = |size: usize| -> Result<_, String> {
        let id = rig.fresh_id();
        let page = Page::with(&Task { struct_size: size as u32, ..ask.wire(id) }, size)?;
        note(&format!("submit with a struct of {size} bytes"));
        // SAFETY: the page has as many bytes as the struct says; `ask` outlives the call.
        Ok(unsafe { rig.submit_raw(id, ask.tokens.len(), page.ptr()) })
    };
    let larger = submit(size_of::<Task>() + MORE)?.map_err(|refusal| {
        format!("submit refuses the larger struct of a newer host: {}", refusal.said.words(refusal.code))
    })?;
    match submit(HEAD)? {
        Ok(_) => return Err("submit takes a struct that ends before the task's id".into()),
        Err(refusal) => refusal.said.is_clean("submit of a smaller struct", refusal.code)?,
    }
    let mut accepted = vec![larger];
    // An engine that reads no further than this may take it.
    accepted.extend(submit(size_of::<Task>() - 8)?.ok());
    note("step");
    rig.finish(&accepted)?;
    passed()
}

/// The array of a newer host, whose pairs are larger: what a newer pair has besides looks like a pair, and is none.
fn wide_options(plan: &Plan) -> Outcome {
    let subject = Subject::open(plan)?;
    if plan.options.len() < 2 {
        return skip("it has fewer than two options, so there is no distance");
    }
    Setup::new(subject, plan)?
        .configure(&plan.options)
        .map_err(|why| Fault::from(why).elsewhere("it does not take its options"))?;
    let text = |s: &String| Str::new(s.as_bytes());
    let more = Kv { key: Str::new(b"behind-the-pair"), value: Str::new(b"not to be read") };
    let pairs: Vec<_> =
        plan.options.iter().map(|(k, v)| [Kv { key: text(k), value: text(v) }, more]).collect();
    let setup = Setup::new(subject, plan)?;
    note("configure with pairs of a newer host");
    // SAFETY: each element begins with a pair; the texts outlive the call.
    let (code, said) = unsafe { setup.configure_with(Array::new(&pairs)) };
    if code != code::OK {
        let why = said.words(code);
        return Err(format!("configure does not read its options by their stride: {why}").into());
    }
    Ok(format!("{} options", pairs.len()))
}

/// The same of the ids of a prompt: what lies between them is no id of any vocabulary.
fn wide_tokens(plan: &Plan) -> Outcome {
    let rig = Rig::build(plan)?;
    let ask = Ask::short(&rig.card);
    let submit = |tokens: Array| -> Result<Vec<u8>, Fault> {
        let id = rig.fresh_id();
        let task = Task { tokens, ..ask.wire(id) };
        note("submit of a prompt");
        // SAFETY: the ids and `ask` outlive the call.
        unsafe { rig.submit_raw(id, ask.tokens.len(), &raw const task) }?;
        rig.finish(&[id])?;
        let answer = rig.answer(id);
        if let Some((number, message)) = answer.error {
            return Err(format!("the task failed: {message} ({})", code::name(number)).into());
        }
        let ids = answer.tokens.iter().flat_map(|token| token.to_le_bytes());
        Ok(ids.chain(answer.bytes.iter().copied()).collect())
    };
    let usual = |fault: Fault| fault.elsewhere("there is no answer");
    let first = submit(Array::new(&ask.tokens)).map_err(usual)?;
    let same = submit(Array::new(&ask.tokens)).map_err(usual)? == first;
    let apart: Vec<_> = ask.tokens.iter().map(|id| [*id, u32::MAX, u32::MAX]).collect();
    match submit(Array::new(&apart)) {
        Err(Fault::Failed(why)) => {
            Err(format!("a prompt whose ids lie 12 bytes apart is not read by its stride: {why}").into())
        }
        Err(skipped) => Err(skipped),
        Ok(answer) if same && answer != first => {
            Err("a prompt whose ids lie 12 bytes apart has another answer; is its stride read?".into())
        }
        Ok(_) if same => passed(),
        Ok(_) => Ok("taken; its answers differ by themselves".to_owned()),
    }
}

fn reports(plan: &Plan) -> Outcome {
    let rig = Rig::build(plan)?;
    let Some(table) = rig.subject.report else { return skip("it has no load report") };
    let empty = LoadReport {
        struct_size: 0,
        running: 0,
        waiting: 0,
        flags: 0,
        kv_blocks_used: 0,
        kv_blocks_total: 0,
        tokens_cached: 0,
    };
    let ask = |size: usize| -> Result<(u32, Page), String> {
        note(&format!("the load report with a struct of {size} bytes"));
        let page = Page::with(&LoadReport { struct_size: size as u32, ..empty }, size)?;
        // SAFETY: the engine lives; the page has as many bytes as the struct says.
        Ok((unsafe { (table.report)(rig.engine(), page.ptr()) }, page))
    };
    let (code, page) = ask(size_of::<LoadReport>() + MORE)?;
    if code != code::OK {
        return Err("the load report refuses the larger struct of a newer host".into());
    }
    if page.bytes(size_of::<LoadReport>() + MORE)[size_of::<LoadReport>()..].iter().any(|byte| *byte != 0) {
        return Err("the load report writes behind the fields that it knows".into());
    }
    // Whether it fills what there is or refuses: it may not write beyond it.
    for size in [HEAD, size_of::<LoadReport>() - 8] {
        ask(size)?;
    }
    passed()
}
