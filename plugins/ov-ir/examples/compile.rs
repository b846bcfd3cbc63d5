//! Compiles a model from a shell: `compile SOURCE FOLDER [FIRST END] [--int4 GROUP | --int8 GROUP]`.
//!
//! For the check scripts; operators have `cascadia-host model compile`.

use std::error::Error;
use std::io::Write;
use std::num::NonZeroUsize;

use cascadia_ov_ir::{Bits, Quantize, Request, Target, compile};

fn main() -> Result<(), Box<dyn Error>> {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    let mut quantize = None;
    for (flag, bits) in [("--int4", Bits::Four), ("--int8", Bits::Eight)] {
        if let Some(at) = words.iter().position(|word| word == flag) {
            let group = words.get(at + 1).ok_or("a group size is missing")?.parse::<usize>()?;
            quantize = Some(Quantize { bits, group: NonZeroUsize::new(group) });
            words.drain(at..at + 2);
        }
    }
    let [source, folder, rest @ ..] = words.as_slice() else {
        return Err("usage: compile SOURCE FOLDER [FIRST END] [--int4 GROUP | --int8 GROUP]".into());
    };
    let layers = match rest {
        [first, end] => Some(first.parse()?..end.parse()?),
        _ => None,
    };
    let (source, target) = (source.into(), Target::Folder(folder.into()));
    let report = compile(&Request { layers, quantize, ..Request::whole(source, target) }, &mut ())?;
    writeln!(std::io::stdout(), "{report:#?}")?;
    Ok(())
}
