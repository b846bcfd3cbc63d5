//! The binary: parse, run, exit.

/// Tokens and requests are many small blocks, some made by one thread and freed by another: this takes a fifth off what
/// an answer costs (docs/BENCHMARKS.md). Plugins keep their own heap: memory never changes owner at the boundary.
#[global_allocator]
static HEAP: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    let code = cascadia_host::cli::main();
    // Not `exit`: destructors of opened libraries would run beside their own threads.
    cascadia_host::plugins::leave(code)
}
