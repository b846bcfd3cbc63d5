//! The binary: parse, run, exit.

fn main() {
    let code = cascadia_host::cli::main();
    // Not `exit`: destructors of opened libraries would run beside their own threads.
    cascadia_host::plugins::leave(code)
}
