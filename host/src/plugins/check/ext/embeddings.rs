//! `cascadia.embeddings/1`: as many vectors as inputs, the same for the same, under the rules of tasks.
#![expect(unsafe_code, reason = "calls the extension's table")]

use core::ffi::c_void;

use cascadia_plugin_api::abi::chunk::FINISH_STOP;
use cascadia_plugin_api::abi::engine::SINK_GO_ON;
use cascadia_plugin_api::abi::prim::{Array, Str};
use cascadia_plugin_api::abi::task::Trace;
use cascadia_plugin_api::abi::{code, ids};
use cascadia_plugin_api::ext::draft::embeddings::{
    EMBED_CAN_SHORTEN, EMBED_NORMALIZE, EmbedInfo, EmbedInput, EmbedOut, EmbedTask, Embedding, EmbeddingsV1,
    POOLING_DEFAULT,
};
use parking_lot::Mutex;

use super::super::ask::Ask;
use super::super::note::note;
use super::super::page::Page;
use super::super::rig::{Refusal, Rig};
use super::super::said::Said;
use super::super::{Fault, Outcome, Plan, Test, passed};
use super::{done, ended_once, task_refused};

pub(in super::super) const TESTS: &[Test] = &[
    Test { name: "embeddings: one vector for each input, as long as declared, tokens counted", run: whole },
    Test { name: "embeddings: the same input has the same vector, whatever is beside it", run: same },
    Test { name: "embeddings: a batch is cancelled in its middle", run: cancelled },
    Test { name: "embeddings: what it lacks is refused", run: lacking },
    Test {
        name: "embeddings: structs of a newer host are welcome, smaller ones are not written behind",
        run: sizes,
    },
];

/// A vector as it came.
#[derive(Debug, Clone)]
struct Got {
    task: u64,
    index: u32,
    tokens: u32,
    vector: Vec<f32>,
}

struct Desk {
    rig: Rig,
    table: &'static EmbeddingsV1,
    got: &'static Mutex<Vec<Got>>,
    info: EmbedInfo,
}

const EMPTY: EmbedInfo = EmbedInfo {
    struct_size: size_of::<EmbedInfo>() as u32,
    flags: 0,
    dimensions: 0,
    max_inputs: 0,
    max_tokens: 0,
    pooling: 0,
};

unsafe extern "C" fn take(ctx: *mut c_void, embeddings: Array) -> u32 {
    // SAFETY: the context lives for ever; the vectors are lent, and an all-zero one is valid.
    unsafe {
        let got = &*ctx.cast::<Mutex<Vec<Got>>>();
        got.lock().extend(embeddings.iter::<Embedding>().map(|e| Got {
            task: e.task,
            index: e.index,
            tokens: e.tokens,
            vector: e.vector.scalars::<f32>().into_owned(),
        }));
    }
    SINK_GO_ON
}

impl Desk {
    fn of(plan: &Plan) -> Result<Desk, Fault> {
        let rig = Rig::build(plan)?;
        // SAFETY: the id names the type.
        let table: &EmbeddingsV1 = unsafe { rig.subject.offered(ids::EMBEDDINGS) }?;
        let (mut info, mut said) = (EMPTY, Said::default());
        // SAFETY: the engine lives; `info` outlives the call.
        let code = unsafe { (table.info)(rig.engine(), &raw mut info) };
        done("info", code, &said)?;
        let got: &'static Mutex<Vec<Got>> = Box::leak(Box::default());
        let out = EmbedOut { ctx: std::ptr::from_ref(got).cast_mut().cast(), take };
        // SAFETY: the engine lives and has no task; the place of vectors lives for ever.
        let code = unsafe { (table.attach)(rig.engine(), out, said.out()) };
        done("attach", code, &said)?;
        Ok(Desk { rig, table, got, info })
    }

    fn submit(&self, inputs: &[Vec<u32>], change: impl FnOnce(&mut EmbedTask)) -> Result<u64, Refusal> {
        let id = self.rig.fresh_id();
        let wire: Vec<_> =
            inputs.iter().map(|ids| EmbedInput { tokens: Array::new(ids), text: Str::EMPTY }).collect();
        let mut task = EmbedTask {
            struct_size: size_of::<EmbedTask>() as u32,
            flags: EMBED_NORMALIZE,
            task: id,
            request_id: Str::new(b"check"),
            trace: Trace { trace_id: [0; 16], span_id: [0; 8], flags: 0 },
            inputs: Array::new(&wire),
            pooling: POOLING_DEFAULT,
            dimensions: 0,
            priority: 0,
            reserved: 0,
            deadline_ns: 0,
            adapter: Str::EMPTY,
            options: Array::EMPTY,
        };
        change(&mut task);
        let size = task.struct_size as usize;
        let Ok(page) = Page::with(&task, size.next_multiple_of(8)) else {
            return Err(Refusal { code: code::OUT_OF_MEMORY, said: Said::default() });
        };
        let count = inputs.iter().map(Vec::len).sum();
        // SAFETY: the engine lives; the page has the size that the struct says, and what it views outlives the call.
        self.rig
            .submit_by(id, count, |err| unsafe { (self.table.submit)(self.rig.engine(), page.ptr(), err) })
    }

    fn vectors(&self, task: u64) -> Vec<Got> {
        self.got.lock().iter().filter(|got| got.task == task).cloned().collect()
    }

    /// Inputs of different lengths.
    fn inputs(&self, n: usize) -> Vec<Vec<u32>> {
        let most = if self.info.max_tokens == 0 { 64 } else { self.info.max_tokens.min(64) as usize };
        (0..n).map(|at| Ask::of(&self.rig.card, 1 + at * 7 % most).tokens).collect()
    }

    /// The vectors of a whole batch, by their inputs.
    fn embed(&self, inputs: &[Vec<u32>], change: impl FnOnce(&mut EmbedTask)) -> Result<Vec<Got>, Fault> {
        let task = self.submit(inputs, change)?;
        self.rig.finish(&[task])?;
        ended_once(&self.rig, task)?;
        let answer = self.rig.answer(task);
        if let Some((number, message)) = answer.error {
            return Err(format!("it failed: {message} ({})", code::name(number)).into());
        }
        if answer.finishes != [FINISH_STOP] {
            return Err(format!("the finish of a whole batch is {:?}, not stop", answer.finishes).into());
        }
        let mut got = self.vectors(task);
        got.sort_by_key(|g| g.index);
        if got.iter().map(|g| g.index as usize).ne(0..inputs.len()) {
            let have: Vec<_> = got.iter().map(|g| g.index).collect();
            return Err(format!("{} inputs, and vectors for {have:?}", inputs.len()).into());
        }
        for (input, g) in inputs.iter().zip(&got) {
            if g.tokens as usize != input.len() {
                return Err(format!(
                    "input {} has {} tokens, {} were counted",
                    g.index,
                    input.len(),
                    g.tokens
                )
                .into());
            }
            if g.vector.iter().any(|x| !x.is_finite()) {
                return Err(format!("vector {} has a value that is no number", g.index).into());
            }
        }
        let all: usize = inputs.iter().map(Vec::len).sum();
        match answer.prompt_tokens {
            Some(n) if n as usize == all => Ok(got),
            other => Err(format!("{all} tokens in all, the finish says {other:?}").into()),
        }
    }
}

fn whole(plan: &Plan) -> Outcome {
    let desk = Desk::of(plan)?;
    let dimensions = desk.info.dimensions as usize;
    if dimensions == 0 {
        return Err("info says that vectors have no dimensions".into());
    }
    for got in desk.embed(&desk.inputs(5), |_| {})? {
        if got.vector.len() != dimensions {
            let n = got.vector.len();
            return Err(format!("vector {} has {n} dimensions, {dimensions} are declared", got.index).into());
        }
        let length = got.vector.iter().map(|x| x * x).sum::<f32>().sqrt();
        if (length - 1.0).abs() > 1e-3 {
            return Err(format!("vector {} was to have length 1 and has {length}", got.index).into());
        }
    }
    if desk.info.flags & EMBED_CAN_SHORTEN != 0 && dimensions > 1 {
        let half = dimensions as u32 / 2;
        let short = desk.embed(&desk.inputs(1), |task| task.dimensions = half)?;
        if short[0].vector.len() != half as usize {
            return Err(format!("{half} dimensions were wanted, {} came", short[0].vector.len()).into());
        }
    }
    Ok(format!("{dimensions} dimensions"))
}

fn same(plan: &Plan) -> Outcome {
    let desk = Desk::of(plan)?;
    let inputs = desk.inputs(6);
    let together = desk.embed(&inputs, |_| {})?;
    // A generation may be at work beside it.
    let beside = desk.rig.submit(&Ask::short(&desk.rig.card)).ok();
    for (input, other) in inputs.iter().zip(&together) {
        let alone = desk.embed(std::slice::from_ref(input), |_| {})?;
        let far = alone[0].vector.iter().zip(&other.vector).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        if far > 1e-3 {
            return Err(format!("an input's vector differs by {far} when it is alone").into());
        }
    }
    desk.rig.finish(beside.as_slice())?;
    passed()
}

fn cancelled(plan: &Plan) -> Outcome {
    let desk = Desk::of(plan)?;
    let most = if desk.info.max_inputs == 0 { 200 } else { desk.info.max_inputs.min(200) as usize };
    let task = desk.submit(&desk.inputs(most), |_| {})?;
    note("step of a batch");
    desk.rig.step()?;
    note("cancel of a batch");
    desk.rig.cancel(task);
    desk.rig.finish(&[task])?;
    let got = desk.vectors(task).len();
    desk.rig.step()?;
    desk.rig.step()?;
    ended_once(&desk.rig, task)?;
    if desk.vectors(task).len() > got {
        return Err("vectors came after the task's finish".into());
    }
    desk.embed(&desk.inputs(2), |_| {})?;
    Ok(format!("after {got} of {most} vectors"))
}

fn lacking(plan: &Plan) -> Outcome {
    let desk = Desk::of(plan)?;
    let inputs = desk.inputs(2);
    let codes = [code::INVALID_CONFIG, code::UNSUPPORTED];
    let more = desk.info.dimensions.saturating_add(1);
    task_refused("more dimensions than there are", desk.submit(&inputs, |t| t.dimensions = more), &codes)?;
    task_refused("a pooling that is none", desk.submit(&inputs, |t| t.pooling = 99), &codes)?;
    let absent = [code::MODEL_NOT_FOUND, code::INVALID_CONFIG, code::UNSUPPORTED];
    let other = desk.submit(&inputs, |t| t.adapter = Str::new(b"no-such"));
    task_refused("a batch with an unknown adapter", other, &absent)?;
    task_refused("a batch without inputs", desk.submit(&[], |_| {}), &codes)?;
    if desk.info.max_inputs > 0 && desk.info.max_inputs < 100_000 {
        let many = vec![inputs[0].clone(); desk.info.max_inputs as usize + 1];
        task_refused("more inputs than it takes", desk.submit(&many, |_| {}), &codes)?;
    }
    desk.embed(&inputs, |_| {})?;
    passed()
}

fn sizes(plan: &Plan) -> Outcome {
    const MORE: usize = 64;
    let desk = Desk::of(plan)?;
    let info = |size: usize| -> Result<u32, String> {
        note(&format!("info with a struct of {size} bytes"));
        let page = Page::with(&EmbedInfo { struct_size: size as u32, ..EMPTY }, size)?;
        // SAFETY: the engine lives; the page has as many bytes as the struct says.
        Ok(unsafe { (desk.table.info)(desk.rig.engine(), page.ptr()) })
    };
    if info(size_of::<EmbedInfo>() + MORE)? != code::OK {
        return Err("info refuses the larger struct of a newer host".into());
    }
    info(8)?;
    let larger = (size_of::<EmbedTask>() + MORE) as u32;
    desk.embed(&desk.inputs(1), |task| task.struct_size = larger)?;
    let smaller = desk.submit(&desk.inputs(1), |task| task.struct_size = 8);
    task_refused("a struct that ends before its inputs", smaller, &[code::INVALID_CONFIG])?;
    passed()
}
