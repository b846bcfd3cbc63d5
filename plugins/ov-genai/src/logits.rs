//! How many tokens a model has a logit for, as its files say: the library does not tell, and does not look where it writes.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use cascadia_gguf::Gguf;

use crate::pipeline::setup::{Options, Proposer};

/// Of a folder with a network.
const NETWORK: &str = "openvino_model.xml";

/// The fewest logits of the model and its draft model; none where the files of one do not say.
pub(crate) fn fewest(options: &Options) -> Option<usize> {
    let own = width(&options.model)?;
    match &options.proposer {
        Proposer::Model { path, .. } => Some(own.min(width(path)?)),
        Proposer::Nobody | Proposer::Prompt => Some(own),
    }
}

/// The length of a row of logits of a network's folder, or of a GGUF file that the library reads itself.
fn width(model: &Path) -> Option<usize> {
    if model.is_dir() {
        return of_network(&std::fs::read_to_string(model.join(NETWORK)).ok()?);
    }
    let gguf = Gguf::read(BufReader::new(File::open(model).ok()?)).ok()?;
    // A model without a head of its own has its table of embeddings as one.
    let head = gguf.tensor("output.weight").or_else(|| gguf.tensor("token_embd.weight"))?;
    usize::try_from(*head.dims.last()?).ok()
}

/// The last dimension of the result that is called logits, or of the only one.
fn of_network(xml: &str) -> Option<usize> {
    let layers = xml.split("<layer ").skip(1).filter_map(|layer| layer.split_once('>'));
    let results: Vec<_> = layers.filter(|(head, _)| head.contains("type=\"Result\"")).collect();
    let called =
        results.iter().find(|(head, _)| head.contains("name=\"logits") || head.contains("names=\"logits"));
    let (_, result) = match (called, &results[..]) {
        (Some(logits), _) => logits,
        (None, [only]) => only,
        _ => return None,
    };
    let (result, _) = result.split_once("</layer>")?;
    let (_, last) = result.rsplit_once("<dim>")?;
    // A dimension that is not fixed is -1.
    last.split_once("</dim>")?.0.trim().parse().ok().filter(|n| *n > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(head: &str, dims: &str) -> String {
        let dims: String = dims.split(' ').map(|n| format!("<dim>{n}</dim>\n")).collect();
        format!(
            "<layer id=\"7\" {head} type=\"Result\" version=\"opset1\"><input><port id=\"0\">{dims}</port></input></layer>"
        )
    }

    #[test]
    fn a_network_says_how_long_its_rows_of_logits_are() {
        let other = "<layer id=\"1\" name=\"logits\" type=\"MatMul\"><output><dim>5</dim></output></layer>";
        let of = |results: &[String]| {
            of_network(&format!("<net><layers>{other}{}</layers></net>", results.concat()))
        };
        let logits = result("name=\"Result_9\" output_names=\"logits\"", "-1 -1 49152");
        let hidden = result("name=\"Result_8\" output_names=\"hidden\"", "-1 -1 576");
        assert_eq!(of(&[hidden.clone(), logits.clone()]), Some(49152));
        assert_eq!(of(&[result("name=\"logits/result\"", "-1 -1 99"), hidden.clone()]), Some(99));
        assert_eq!(of(std::slice::from_ref(&hidden)), Some(576), "the only one");
        // Nothing is guessed.
        assert_eq!(of(&[hidden.clone(), hidden]), None);
        assert_eq!(of(&[result("name=\"logits\"", "-1 -1 -1")]), None);
        assert_eq!(of(&[]), None);
        assert_eq!(of_network(&logits.replace("</layer>", "")), None, "cut short");
    }

    #[test]
    fn a_model_and_its_draft_have_what_both_have() {
        let folder = std::env::temp_dir().join(format!("cascadia-ov-genai-logits-{}", std::process::id()));
        let network = |name: &str, width: &str| {
            let at = folder.join(name);
            std::fs::create_dir_all(&at).unwrap();
            std::fs::write(at.join(NETWORK), result("name=\"logits\"", width)).unwrap();
            at
        };
        let (model, path) = (network("model", "1 1 100"), network("draft", "1 1 90"));
        let alone = Options { model, ..Options::default() };
        assert_eq!(fewest(&alone), Some(100));
        let drafted =
            |path| Options { proposer: Proposer::Model { path, device: String::new() }, ..alone.clone() };
        assert_eq!(fewest(&drafted(path.clone())), Some(90));
        assert_eq!(fewest(&drafted(folder.join("nowhere"))), None);
        assert_eq!(fewest(&Options { model: folder.join("nowhere.gguf"), ..Options::default() }), None);
        std::fs::remove_dir_all(folder).unwrap();
    }
}
