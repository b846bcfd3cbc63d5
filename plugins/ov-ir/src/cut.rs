//! Cuts a ready-made network into stages that share its constants: the text is taken apart and put together anew, the
//! binary file stays as it is.
//!
//! Layers are found by their attention operations; a cut lies at the sum of a residual connection, which is the whole
//! state between two layers. Three things tie layers together beside that state, and are redirected: the length of the
//! past taken from the first layer's cache, shapes taken from an earlier layer's activations, and shapes taken from
//! `input_ids`. What else reaches over a cut is refused.

mod net;

#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::manifest::{BIN, XML};
use net::Net;

/// Bytes of a network's text.
const MAX: u64 = 1 << 30;

/// A ready-made network.
#[derive(Debug)]
pub(crate) struct Ready {
    pub(crate) xml: PathBuf,
    pub(crate) bin: PathBuf,
    text: String,
    pub(crate) layers: usize,
    /// Width of the state between layers.
    pub(crate) hidden: usize,
    pub(crate) vocab: usize,
}

impl Ready {
    /// Reads a folder's network.
    pub(crate) fn open(folder: &Path) -> Result<Self, Error> {
        let (xml, bin) = (folder.join(XML), folder.join(BIN));
        let mut text = String::new();
        let file = File::open(&xml).map_err(Error::io("open", &xml))?;
        file.take(MAX).read_to_string(&mut text).map_err(Error::io("read", &xml))?;
        std::fs::metadata(&bin).map_err(Error::io("open", &bin))?;
        let parsed = Net::parse(&xml, &text)?;
        let cores = parsed.attentions();
        if cores.is_empty() {
            let what = "a network without ScaledDotProductAttention, by which layers are told apart,";
            return Err(Error::unsupported(
                &xml,
                what,
                "cut a network of a language model, as it was converted",
            ));
        }
        let last = |dims: Vec<i64>| dims.last().and_then(|dim| usize::try_from(*dim).ok()).unwrap_or(0);
        let hidden = match cores.len() {
            1 => 0,
            _ => last(parsed.dims(parsed.boundary(&cores, 1)?)),
        };
        let logits = parsed.of_kind("Result").next().and_then(|result| parsed.inputs(result).next());
        let vocab = logits.map_or(0, |from| last(parsed.dims(from)));
        let layers = cores.len();
        drop(parsed);
        Ok(Self { xml, bin, text, layers, hidden, vocab })
    }

    /// The text of some layers.
    pub(crate) fn stage(&self, range: &Range<usize>) -> Result<String, Error> {
        let net = Net::parse(&self.xml, &self.text)?;
        let cores = net.attentions();
        let first = (range.start > 0).then(|| net.boundary(&cores, range.start)).transpose()?;
        let end = (range.end < cores.len()).then(|| net.boundary(&cores, range.end)).transpose()?;
        Stage::new(&net, first, end)?.text(&net)
    }
}

/// What of a network is kept, and what reads from where instead.
struct Stage {
    first: Option<usize>,
    end: Option<usize>,
    keep: HashSet<usize>,
    /// Old and new source of values.
    redirected: Vec<(usize, usize)>,
    /// Activations of earlier layers whose shape alone is read.
    shapes: HashSet<usize>,
}

impl Stage {
    fn new(net: &Net, first: Option<usize>, end: Option<usize>) -> Result<Self, Error> {
        let seeds: Vec<usize> = end.map_or_else(|| net.of_kind("Result").collect(), |end| vec![end]);
        let reach = net.ancestors(&seeds, first, |_, from| from);
        let read: Vec<usize> = net.of_kind("ReadValue").filter(|at| reach.contains(at)).collect();
        let (own, foreign): (Vec<usize>, Vec<usize>) =
            read.into_iter().partition(|at| net.feeds_attention(*at, &reach));
        let mut redirected = Vec::new();
        for at in foreign {
            let shape = net.data(at, "variable_shape");
            let same = own.iter().find(|own| net.data(**own, "variable_shape") == shape);
            let same = same.ok_or_else(|| net.refuse(at, "is read by a later stage whose caches differ"))?;
            redirected.push((at, *same));
        }
        let mut shapes = HashSet::new();
        if let Some(first) = first {
            if let (Some(ids), Some(positions)) = (net.parameter("input_ids"), net.parameter("position_ids"))
            {
                redirected.push((ids, positions));
            }
            let dims = net.dims(first);
            let shape_of = net.of_kind("ShapeOf").filter(|at| reach.contains(at));
            shapes = shape_of.flat_map(|at| net.inputs(at)).filter(|from| net.dims(*from) == dims).collect();
        }
        let variables: HashSet<&str> = own.iter().filter_map(|at| net.data(*at, "variable_id")).collect();
        let assigns = net
            .of_kind("Assign")
            .filter(|at| net.data(*at, "variable_id").is_some_and(|id| variables.contains(id)));
        let seeds: Vec<usize> = seeds.iter().copied().chain(assigns).collect();
        let mut stage = Self { first, end, keep: HashSet::new(), redirected, shapes };
        stage.keep = net.ancestors(&seeds, first, |at, from| stage.source(net, at, from));
        let ids = net.parameter("input_ids").filter(|_| first.is_some());
        let mut users = ids.into_iter().flat_map(|ids| net.users(ids));
        match users.find(|at| stage.keep.contains(at) && net.kind(*at) != "ShapeOf") {
            Some(user) => Err(net.refuse(user, "reads input_ids behind the cut")),
            None => Ok(stage),
        }
    }

    /// Where a layer's input comes from now.
    fn source(&self, net: &Net, at: usize, from: usize) -> usize {
        if let Some(first) = self.first
            && net.kind(at) == "ShapeOf"
            && self.shapes.contains(&from)
        {
            return first;
        }
        self.redirected.iter().find(|(old, _)| *old == from).map_or(from, |(_, new)| *new)
    }

    fn text(&self, net: &Net) -> Result<String, Error> {
        let (input, output) = (net.free_id(), net.free_id() + 1);
        let mut out =
            String::from("<?xml version=\"1.0\"?>\n<net name=\"stage\" version=\"11\">\n<layers>\n");
        let mut edges = String::new();
        if let Some(first) = self.first {
            let (dims, ports) = (net.dims(first), net.dim_tags(first));
            let shape: Vec<String> =
                dims.iter().map(|dim| if *dim < 0 { "?".to_owned() } else { dim.to_string() }).collect();
            let shape = shape.join(",");
            out.push_str(&format!(
                "<layer id=\"{input}\" name=\"inputs_embeds\" type=\"Parameter\" version=\"opset1\"><data \
                 shape=\"{shape}\" element_type=\"f32\"/><output><port id=\"0\" precision=\"FP32\" \
                 names=\"inputs_embeds\">{ports}</port></output></layer>\n"
            ));
        }
        for at in net.all().filter(|at| self.keep.contains(at)) {
            out.push_str(&net.layer_text(at, (self.end == Some(at)).then_some("hidden_out")));
            out.push('\n');
            for edge in net.edges_to(at) {
                let from = self.source(net, at, edge.from);
                let (id, port) = if Some(from) == self.first {
                    (input.to_string(), "0")
                } else if self.keep.contains(&from) {
                    let own = from == edge.from;
                    (net.id(from).to_owned(), if own { edge.from_port } else { net.output_port(from) })
                } else {
                    return Err(net.refuse(from, "reaches over the cut"));
                };
                edges.push_str(&net::edge(&id, port, net.id(at), edge.to_port));
            }
        }
        if let Some(end) = self.end {
            let ports = net.dim_tags(end);
            out.push_str(&format!(
                "<layer id=\"{output}\" name=\"hidden_out/result\" type=\"Result\" version=\"opset1\"><input>\
                 <port id=\"0\" precision=\"FP32\">{ports}</port></input></layer>\n"
            ));
            edges.push_str(&net::edge(net.id(end), net.output_port(end), &output.to_string(), "0"));
        }
        out.push_str("</layers>\n<edges>\n");
        out.push_str(&edges);
        out.push_str("</edges>\n<rt_info/>\n</net>\n");
        Ok(out)
    }
}
