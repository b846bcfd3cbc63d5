//! `cascadia.adapters/1`: adapters come and go by name.
#![expect(unsafe_code, reason = "calls the extension's table")]

use core::ffi::c_void;

use cascadia_plugin_api::abi::prim::{Array, Str};
use cascadia_plugin_api::abi::{code, ids};
use cascadia_plugin_api::ext::draft::adapters::{AdapterInfo, AdapterSpec, AdaptersOut, AdaptersV1};

use super::super::ask::Ask;
use super::super::note::note;
use super::super::page::Page;
use super::super::rig::Rig;
use super::super::said::Said;
use super::super::setup::going_on;
use super::super::{Fault, Outcome, Plan, Test, passed, skip};
use super::{done, ended_once, refused, task_refused};

pub(in super::super) const TESTS: &[Test] = &[
    Test { name: "adapters: an unknown name is refused, and so is a file that is not there", run: unknown },
    Test {
        name: "adapters: one is loaded, used, unloaded under a task, and loaded again",
        run: comes_and_goes,
    },
];

struct Shelf<'a> {
    rig: &'a Rig,
    table: &'static AdaptersV1,
}

impl Shelf<'_> {
    fn of(rig: &Rig) -> Result<Shelf<'_>, Fault> {
        // SAFETY: the id names the type.
        Ok(Shelf { rig, table: unsafe { rig.subject.offered(ids::ADAPTERS) }? })
    }

    fn load(&self, name: &str, path: &str, more: usize) -> Result<(u32, Said), String> {
        note(&format!("load of adapter {name}"));
        let size = size_of::<AdapterSpec>() + more;
        let spec = AdapterSpec {
            struct_size: size as u32,
            flags: 0,
            name: Str::new(name.as_bytes()),
            path: Str::new(path.as_bytes()),
            scale: 1.0,
            reserved: 0,
        };
        let page = Page::with(&spec, size)?;
        let mut said = Said::default();
        // SAFETY: the engine lives; the page has as many bytes as the struct says, and its texts outlive the call.
        let code = unsafe { (self.table.load)(self.rig.engine(), page.ptr(), going_on(), said.out()) };
        Ok((code, said))
    }

    fn unload(&self, name: &str) -> (u32, Said) {
        note(&format!("unload of adapter {name}"));
        let mut said = Said::default();
        // SAFETY: the engine lives; the text outlives the call.
        let code = unsafe { (self.table.unload)(self.rig.engine(), Str::new(name.as_bytes()), said.out()) };
        (code, said)
    }

    /// Names, and how many tasks use each.
    fn list(&self) -> Result<Vec<(String, u32)>, Fault> {
        unsafe extern "C" fn set(ctx: *mut c_void, adapters: Array) {
            // SAFETY: `ctx` is the vector below, alive for the call; the adapters are lent, a zero one is valid.
            unsafe {
                *ctx.cast::<Vec<(String, u32)>>() =
                    adapters.iter::<AdapterInfo>().map(|a| (a.name.text().into_owned(), a.tasks)).collect();
            }
        }
        let (mut all, mut said) = (Vec::new(), Said::default());
        let out = AdaptersOut { ctx: std::ptr::from_mut(&mut all).cast(), set };
        // SAFETY: the engine lives; the callbacks outlive the call.
        let code = unsafe { (self.table.list)(self.rig.engine(), out, said.out()) };
        done("list", code, &said)?;
        Ok(all)
    }

    fn ask(&self, adapter: &str) -> Ask {
        Ask { adapter: adapter.to_owned(), ..Ask::short(&self.rig.card) }
    }

    fn answer(&self, adapter: &str) -> Result<Vec<u32>, Fault> {
        let task = self.rig.submit(&self.ask(adapter))?;
        self.rig.finish(&[task])?;
        ended_once(self.rig, task)?;
        Ok(self.rig.answer(task).tokens)
    }
}

const ABSENT: &[u32] = &[code::MODEL_NOT_FOUND];

fn unknown(plan: &Plan) -> Outcome {
    let rig = Rig::build(plan)?;
    let shelf = Shelf::of(&rig)?;
    let before = shelf.list()?;
    task_refused("a task with an unknown adapter", rig.submit(&shelf.ask("no-such")), ABSENT)?;
    let (code, said) = shelf.unload("no-such");
    refused("unload of an unknown adapter", code, &said, ABSENT)?;
    let (code, said) = shelf.load("check-absent", "/nonexistent/adapter", 0)?;
    refused("load of a file that is not there", code, &said, &[code::MODEL_NOT_FOUND, code::SHARD_REJECTED])?;
    if shelf.list()? != before {
        return Err("what was refused is in the list".into());
    }
    shelf.answer("")?;
    passed()
}

fn comes_and_goes(plan: &Plan) -> Outcome {
    let rig = Rig::build(plan)?;
    let shelf = Shelf::of(&rig)?;
    let Some(path) = &plan.adapter else { return skip("it needs an adapter, give --adapter PATH") };
    let plain = shelf.answer("")?;
    // Larger than we know it, as a newer host's.
    let (code, said) = shelf.load("check-one", path, 64)?;
    done("load", code, &said)?;
    let (code, said) = shelf.load("check-one", path, 0)?;
    refused("load under a name that is in use", code, &said, &[code::INVALID_CONFIG])?;
    if shelf.list()? != [("check-one".to_owned(), 0)] {
        return Err(format!("one adapter is loaded, the list is {:?}", shelf.list()?).into());
    }
    let adapted = shelf.answer("check-one")?;
    let task = rig.submit(&shelf.ask("check-one"))?;
    if shelf.list()?.iter().all(|(_, tasks)| *tasks != 1) {
        return Err(format!("one task has the adapter, the list says {:?}", shelf.list()?).into());
    }
    let (code, said) = shelf.unload("check-one");
    done("unload", code, &said)?;
    task_refused("a task with an unloaded adapter", rig.submit(&shelf.ask("check-one")), ABSENT)?;
    rig.finish(&[task])?;
    if rig.answer(task).tokens != adapted {
        return Err("a task whose adapter was unloaded under it gives another answer".into());
    }
    if shelf.answer("")? != plain {
        return Err("without the adapter the answer is not what it was".into());
    }
    let (code, said) = shelf.load("check-one", path, 0)?;
    done("load", code, &said)?;
    if shelf.answer("check-one")? != adapted {
        return Err("loaded again, the adapter gives another answer".into());
    }
    Ok(if plain == adapted { "it changes nothing that is seen here" } else { "it changes the answer" }
        .to_owned())
}
