//! Tests of the library itself: file, manifest, entry, ids, services. No engine is built, but for the last.
#![expect(unsafe_code, reason = "calls the plugin's first table")]

use core::ffi::c_void;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use cascadia_plugin_api::abi::entry::HostV1;
use cascadia_plugin_api::abi::plugin::EngineInfo;
use cascadia_plugin_api::abi::prim::Str;
use cascadia_plugin_api::abi::{code, ids};

use super::ask::Ask;
use super::ext;
use super::note::note;
use super::rig::Rig;
use super::said::Said;
use super::setup::new_builder;
use super::subject::Subject;
use super::{Outcome, Plan, Test, passed, skip};
use crate::plugins::link::Link;
use crate::plugins::{load, services};

pub(super) const TESTS: &[Test] = &[
    Test { name: "the manifest is read without running anything, in under 100 ms", run: describe },
    Test { name: "the library opens with every symbol bound, and starts", run: opens },
    Test { name: "the manifest names the engines that the code has", run: manifest_is_code },
    Test {
        name: "an unknown extension id is null, and so is a known one with more behind it",
        run: ids_are_whole,
    },
    Test { name: "tables stay where they are", run: tables_stay },
    Test { name: "an unknown engine name gives no builder, and a reason", run: unknown_engine },
    Test { name: "it runs with only the host services that it requires", run: few_services },
];

fn describe(plan: &Plan) -> Outcome {
    let begun = Instant::now();
    load::inspect(&plan.library).map_err(|e| e.message)?;
    // The quicker of two: the first may have waited for the disk.
    let again = Instant::now();
    load::inspect(&plan.library).map_err(|e| e.message)?;
    let took = again.elapsed().min(again - begun);
    if took > Duration::from_millis(100) {
        return Err(format!("it took {} ms; is the library very large?", took.as_millis()).into());
    }
    Ok(format!("{:.1} ms", took.as_secs_f64() * 1e3))
}

fn opens(plan: &Plan) -> Outcome {
    let begun = Instant::now();
    Subject::try_open(plan)?;
    let took = begun.elapsed();
    if took > plan.patience() {
        return Err(format!("opening took {} s; init must be quick", took.as_secs_f32()).into());
    }
    Ok(format!("{:.1} ms", took.as_secs_f64() * 1e3))
}

fn manifest_is_code(plan: &Plan) -> Outcome {
    let subject = Subject::open(plan)?;
    // SAFETY: a function of the plugin without arguments.
    let count = unsafe { (subject.plugin.engine_count)() };
    let info = |index: u32| {
        note("engine_info");
        let mut info = EngineInfo {
            struct_size: size_of::<EngineInfo>() as u32,
            flags: 0,
            name: Str::EMPTY,
            description: Str::EMPTY,
        };
        // SAFETY: `info` outlives the call; the texts live as long as the library.
        unsafe {
            let code = (subject.plugin.engine_info)(index, &raw mut info);
            (code, info.name.text().into_owned())
        }
    };
    let mut names = Vec::new();
    for index in 0..count.min(64) {
        let (code, name) = info(index);
        if code != code::OK {
            return Err(format!("engine_count is {count}, and engine_info({index}) failed").into());
        }
        names.push(name);
    }
    if info(count).0 == code::OK {
        return Err(format!("engine_count is {count}, and engine_info({count}) answered ok").into());
    }
    let mut said: Vec<_> = subject.manifest.about.engines.iter().map(|e| e.name.clone()).collect();
    names.sort();
    said.sort();
    if names != said {
        let (said, names) = (said.join(", "), names.join(", "));
        return Err(format!("the manifest names the engines {said}, the code {names}").into());
    }
    Ok(names.join(", "))
}

fn ids_are_whole(plan: &Plan) -> Outcome {
    let subject = Subject::open(plan)?;
    let mut wrong = vec!["cascadia.no-such-thing/1".to_owned(), "cascadia.".to_owned(), String::new()];
    for known in known_ids() {
        let name = known.split('/').next().unwrap_or(known);
        wrong.extend([
            format!("{known}1"),
            format!("{known}\0"),
            format!("{known} "),
            format!("{known}/1"),
            format!(" {known}"),
            known[..known.len() - 1].to_owned(),
            name.to_owned(),
            name[..name.len() - 1].to_owned(),
            format!("{name}/99"),
            known.to_uppercase(),
        ]);
    }
    for id in wrong {
        note(&format!("get_extension({id:?})"));
        if !subject.extension(id.as_bytes()).is_null() {
            return Err(format!("get_extension({id:?}) gave a table").into());
        }
    }
    passed()
}

/// The ids that a plugin may have tables for.
fn known_ids() -> impl Iterator<Item = &'static str> {
    let own = [ids::PLUGIN, ids::BUILDER, ids::ENGINE, ids::MODEL_CARD, ids::LOAD_REPORT];
    own.into_iter().chain(ext::IDS.iter().copied())
}

fn tables_stay(plan: &Plan) -> Outcome {
    let subject = Subject::open(plan)?;
    for id in known_ids() {
        let first = subject.extension(id.as_bytes());
        let other = std::thread::scope(|scope| {
            scope.spawn(|| subject.extension(id.as_bytes()) as usize).join().unwrap_or_default()
        });
        if first as usize != other {
            return Err(format!("get_extension({id:?}) gave another table the second time").into());
        }
        if !first.is_null() && !(first as usize).is_multiple_of(8) {
            return Err(format!("its table {id} is not aligned").into());
        }
    }
    passed()
}

fn unknown_engine(plan: &Plan) -> Outcome {
    let subject = Subject::open(plan)?;
    for name in ["no-such-engine", ""] {
        let mut said = Said::default();
        if !new_builder(subject, name.as_bytes(), Link::new("check"), &mut said).is_null() {
            return Err(format!("new_builder({name:?}) gave a builder").into());
        }
        said.is_clean(&format!("new_builder({name:?})"), said.code)?;
    }
    passed()
}

/// What the manifest requires; read by the function below, which has no context of its own.
static REQUIRED: OnceLock<Vec<String>> = OnceLock::new();

unsafe extern "C" fn required_only(id: Str) -> *const c_void {
    // SAFETY: the plugin lends the text for the call.
    let wanted = unsafe { id.bytes() };
    if REQUIRED.get().is_some_and(|all| all.iter().any(|known| known.as_bytes() == wanted)) {
        // SAFETY: the host's own table, with the id as it came.
        return unsafe { ((*services::table()).get_service)(id) };
    }
    core::ptr::null()
}

fn few_services(plan: &Plan) -> Outcome {
    static HOST: HostV1 =
        HostV1 { struct_size: size_of::<HostV1>() as u32, flags: 0, get_service: required_only };
    let Ok(candidate) = load::inspect(&plan.library) else { return skip("it does not open") };
    let about = candidate.manifest.about;
    let without: Vec<_> = about.uses.iter().filter(|id| !about.requires.contains(id)).cloned().collect();
    REQUIRED.get_or_init(|| about.requires.clone());
    let rig = Rig::of(Subject::open_with(plan, &raw const HOST)?, plan)?;
    let task = rig.submit(&Ask::short(&rig.card))?;
    note("step");
    rig.finish(&[task])?;
    let list = if without.is_empty() { "nothing".to_owned() } else { without.join(", ") };
    Ok(format!("without {list}"))
}
