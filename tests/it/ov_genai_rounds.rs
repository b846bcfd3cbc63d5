//! What clients that come and go leave in the real engine: nothing.

use anyhow::Result;
use cascadia_tests::client::{CHAT, Client, Stream, streamed};
use cascadia_tests::http::Request;
use cascadia_tests::{Dice, Host, Scrape, setup, wait};
use serde_json::json;

use crate::ov_genai;

const INFERENCES: &str = "cascadia_plugin_ov_genai_inferences_total";
/// As the library reports it, prefixes included.
const OCCUPIED: &str = "cascadia_plugin_ov_genai_kv_cache_usage_ratio";
/// As the host computes it from the engine's own count of blocks.
const USED: &str = "cascadia_engine_kv_cache_usage_ratio";

/// A cache of a fixed size, of which nothing is kept; small, since its pages count as memory once they were used.
const CACHE: [&str; 4] = ["--cb", "--cb-num-kv-blocks", "64", "--cb-prefix-caching=false"];

/// Blocks of the whole cache.
const BLOCKS: f64 = 64.0;

/// The library's blocks and the engine's own count of those that its generations need.
fn blocks(metrics: &Scrape) -> (f64, f64) {
    (metrics.sum(OCCUPIED, &[]) * BLOCKS, metrics.sum(USED, &[]) * BLOCKS)
}

fn begin(host: &Host, question: &str, id: &str) -> Result<Stream> {
    let body = ov_genai::ask(question, &json!({"max_tokens": 4000, "ignore_eos": true}));
    host.begin(&Request::post(CHAT, &streamed(body)).header("x-request-id", id))?.stream()
}

#[test]
fn a_client_that_is_killed_frees_its_cache_within_one_step() -> Result<()> {
    let Some(host) = ov_genai::host(&CACHE) else { return Ok(()) };
    // It goes on all the time, so that the library goes on reporting.
    let mut witness = begin(&host, "Count upwards.", "witness")?;
    witness.pieces(1)?;
    for (i, gone) in [1.0, 2.0, 3.0].into_iter().enumerate() {
        let mut stream = begin(&host, &"one more word ".repeat(80), &format!("k{i}"))?;
        stream.pieces(2)?;
        let (occupied, used) = blocks(&host.scrape());
        assert!(
            occupied > 10.0 && used > 10.0,
            "{occupied} and {used} blocks, most of them of the long prompt"
        );
        match i {
            0 => stream.reset(),
            1 => drop(stream),
            _ => host.cancel(&format!("k{i}"))?,
        }
        let known = host.until("cancelled generations", gone, |s| s.ended("cancelled")).sum(INFERENCES, &[]);
        // One step may have been on its way; in the next the library lets go.
        wait("two more steps", || {
            let metrics = host.scrape();
            let (occupied, used) = blocks(&metrics);
            let steps = metrics.sum(INFERENCES, &[]) - known;
            assert!(
                steps < 3.0 || occupied <= used + 1.0,
                "{occupied} blocks for {used} after {steps} steps"
            );
            if steps < 3.0 { Err(format!("{steps} steps")) } else { Ok(()) }
        });
        assert_eq!(ov_genai::running(&host.scrape()), 1.0);
    }
    drop(witness);
    let metrics = host.quiet();
    assert_eq!(blocks(&host.until("the library's cache", 0.0, |s| s.sum(OCCUPIED, &[]))), (0.0, 0.0));
    assert_eq!((metrics.ended("cancelled"), metrics.all_ended()), (4.0, 4.0));
    // Alone, with nothing after it that would step: the one step that is owed, and no more.
    let mut alone = begin(&host, "Count upwards.", "alone")?;
    alone.pieces(5)?;
    alone.reset();
    let known = host.until("cancelled generations", 5.0, |s| s.ended("cancelled")).sum(INFERENCES, &[]);
    let metrics = host.until("the library's cache", 0.0, |s| s.sum(OCCUPIED, &[]));
    assert!(metrics.sum(INFERENCES, &[]) - known <= 2.0, "{} after {known}", metrics.sum(INFERENCES, &[]));
    Ok(())
}

/// One client that does this and that.
struct Player {
    client: Client,
    dice: Dice,
    name: String,
}

impl Player {
    fn play(&mut self, round: u64) -> Result<()> {
        let tokens = 1 + self.dice.roll(8);
        let question = "word ".repeat(1 + self.dice.roll(24) as usize);
        let body = ov_genai::ask(&question, &json!({"max_tokens": tokens, "ignore_eos": true}));
        let long = ov_genai::ask(&question, &json!({"max_tokens": 2000, "ignore_eos": true}));
        let id = format!("{}-{round}", self.name);
        let begin = |body| self.client.begin(&Request::post(CHAT, body).header("x-request-id", &id));
        match self.dice.roll(6) {
            0 => assert_eq!(self.client.post(CHAT, &body)?.completion_tokens(), tokens),
            1 => assert_eq!(self.client.told(CHAT, &streamed(body))?.completion_tokens(), tokens),
            2 => {
                let mut stream = begin(&streamed(long))?.stream()?;
                stream.pieces(1 + tokens as usize / 3)?;
                self.client.cancel(&id)?;
                assert_eq!(stream.rest()?.finish(), "stop");
            }
            3 => {
                let mut stream = begin(&streamed(long))?.stream()?;
                stream.pieces(1 + tokens as usize / 3)?;
                stream.reset();
            }
            4 => drop(begin(&streamed(long))?.stream()?),
            _ => begin(&long)?.reset(),
        }
        Ok(())
    }
}

/// So many rounds of several clients at once; then nothing is going on any more.
pub(crate) fn play(host: &Host, seed: u64, count: u64) -> Result<Scrape> {
    const CLIENTS: u64 = 8;
    std::thread::scope(|scope| {
        let players: Vec<_> = (0..CLIENTS)
            .map(|n| {
                let (client, dice) = (host.client(), Dice::new(seed, n));
                let mut player = Player { client, dice, name: format!("{seed}-{n}") };
                scope.spawn(move || (0..count / CLIENTS).try_for_each(|round| player.play(round)))
            })
            .collect();
        players.into_iter().try_for_each(|p| p.join().expect("PANIC: a client's assertion failed, see above"))
    })?;
    Ok(host.quiet())
}

/// The same, and the library's cache has let go of all of them.
fn rounds(host: &Host, seed: u64, count: u64) -> Result<Scrape> {
    let metrics = play(host, seed, count)?;
    // What the library holds shows while it works: the blocks of one short generation and nothing else.
    let mut stream = begin(host, "And now?", "after")?;
    stream.pieces(3)?;
    let (occupied, used) = blocks(&host.scrape());
    assert!(used > 0.0 && occupied <= used + 1.0, "{occupied} blocks in the cache, {used} needed");
    drop(stream);
    host.quiet();
    host.until("the library's cache", 0.0, |s| s.sum(OCCUPIED, &[]));
    Ok(metrics)
}

#[test]
fn two_hundred_rounds_at_random_leave_memory_and_cache_where_they_were() -> Result<()> {
    // OpenVINO keeps what it made for each number of tokens in a step, thousands of them: few numbers, soon all seen.
    let few = ["--max-concurrent", "8", "--cb-max-batched-tokens", "24"];
    let Some(host) = ov_genai::host(&[&CACHE[..], &few[..]].concat()) else {
        return Ok(());
    };
    let seed = setup::seed();
    // What the library and the allocator keep for good comes with the first load.
    rounds(&host, seed ^ 1, 64)?;
    let before = host.footprint();
    let metrics = rounds(&host, seed, 200)?;
    assert_eq!(metrics.sum("cascadia_tasks_failed_total", &[]), 0.0);
    assert_eq!(metrics.sum("cascadia_plugin_protocol_errors_total", &[]), 0.0);
    wait("memory, threads and descriptors to be as before", || {
        let now = host.footprint();
        let near = now.resident <= before.resident + KEPT
            && now.threads <= before.threads + 4
            && now.descriptors <= before.descriptors + 8;
        if near { Ok(()) } else { Err(format!("{now:?}, before {before:?}")) }
    });
    setup::say(&format!("{:?}, before {before:?}", host.footprint()));
    Ok(())
}

/// KiB that the allocator may hold more after 200 rounds, of a process of some 400 MiB.
pub(crate) const KEPT: u64 = 16 << 10;
