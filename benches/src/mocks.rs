//! Three models of the mock, each a plugin of its own in a folder that the host follows; one of them, or with `--isolate` all,
//! in processes of their own. Clients ask without a pause, and a breaker a model commits faults.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use anyhow::{Context, Result};
use cascadia_tests::{Dice, Host, TempDir, elf, setup};

use crate::Options;
use crate::books::Books;
use crate::faults::Breaker;
use crate::load::Caller;
use crate::verdict;
use crate::watch::{settled, watch};

/// Clients of each model.
const CLIENTS: u64 = 12;
/// Upgrades without load, which tell what a copy in the host's memory costs. As many go before them: the first ones make the
/// heap grow to what an upgrade needs.
const PROBES: u32 = 10;

/// Plugin id, as long as the mock's own so that its bytes stay in place; model; whether it is isolated in any case.
const MODELS: [(&str, &str, bool); 3] = [("mocb", "b", true), ("mocc", "c", false), ("mocd", "d", false)];

/// Whether the host passed.
pub(crate) fn soak(options: &Options) -> Result<bool> {
    let dir = TempDir::new();
    let mock = fs::read(setup::plugin("mock")).context("read the mock")?;
    let libraries =
        MODELS.map(|(id, ..)| elf::replaced(&mock, "\"id\":\"mock\"", &format!("\"id\":\"{id}\"")));
    for ((id, model, _), library) in MODELS.iter().zip(&libraries) {
        let folder = dir.path().join(model);
        fs::create_dir(&folder)?;
        fs::write(folder.join("plugin.toml"), format!("[[model]]\nname = \"{model}\"\n"))?;
        fs::write(folder.join(format!("lib{id}.so")), library)?;
    }
    let mut host = start(dir.path(), options)?;
    let (books, versions, over) = (Books::default(), AtomicU64::new(0), AtomicBool::new(false));
    let breaker = |n: usize| Breaker {
        client: host.client(),
        host: host.id(),
        model: MODELS[n].1,
        file: dir.path().join(MODELS[n].1).join(format!("lib{}.so", MODELS[n].0)),
        library: &libraries[n],
        isolated: MODELS[n].2 || options.isolate,
        dice: Dice::new(options.seed, 1000 + n as u64),
        books: &books,
        versions: &versions,
    };
    for n in 0..MODELS.len() {
        breaker(n).serves()?;
    }
    let copy = copy_cost(&host, &mut breaker(1))?;
    let before = settled(&host);
    eprintln!(
        "seed {}; a copy in the host's memory takes {copy:.0} KiB; before the load {before:?}",
        options.seed
    );
    let mut looks = Vec::new();
    std::thread::scope(|scope| {
        for (n, (_, model, _)) in MODELS.iter().enumerate() {
            let breaker = breaker(n);
            let over = &over;
            scope.spawn(move || breaker.run(over));
            for client in 0..CLIENTS {
                let caller = Caller {
                    client: host.client(),
                    model,
                    name: format!("{model}-{client}"),
                    dice: Dice::new(options.seed, n as u64 * CLIENTS + client),
                    books: &books,
                };
                scope.spawn(move || caller.run(over));
            }
        }
        watch(&host, options.minutes, &books, &mut looks, || {
            let counts = books.counts();
            let committed: u64 =
                counts.iter().filter(|(what, _)| what.starts_with("fault: ")).map(|(_, n)| n).sum();
            let failed = counts.get("failed in trouble").copied().unwrap_or(0);
            format!("{failed} failed in trouble, {committed} faults committed")
        });
        over.store(true, Ordering::Relaxed);
    });
    let after =
        verdict::Rest { before, copy, isolated: MODELS.iter().filter(|m| m.2 || options.isolate).count() };
    let passed = verdict::judge(&mut host, &after, &looks, &books);
    verdict::tell(options.json, options.seed, &books, &looks, &passed);
    Ok(books.faults().0 == 0)
}

fn start(folder: &Path, options: &Options) -> Result<Host> {
    let folder = folder.to_str().context("the temporary folder's path is text")?;
    let mut args = vec!["--plugin-dir", folder, "--plugin-max-generations", "100000", "--log-level", "info"];
    args.extend(["--max-concurrent", "16", "--max-queued", "1000", "--queue-timeout", "1h"]);
    args.extend(["--set", "limits.stall_timeout=2s"]);
    args.push(if options.isolate { "--isolate" } else { "--isolate=mocb" });
    Ok(Host::start(&args))
}

/// What a copy of a plugin costs in the host's memory, in KiB; less than nothing is nothing.
fn copy_cost(host: &Host, breaker: &mut Breaker<'_>) -> Result<f64> {
    for _ in 0..PROBES {
        breaker.upgrade()?;
    }
    let before = settled(host);
    for _ in 0..PROBES {
        breaker.upgrade()?;
    }
    let after = settled(host);
    let copies = (after.generations - before.generations).max(1.0);
    Ok(((after.memory - before.memory) / copies).max(0.0))
}
