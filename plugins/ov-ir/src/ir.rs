//! Writes a network as OpenVINO's IR: layers and edges as XML text, the data of constants into one binary file.
//!
//! What must hold: layers stand in an order in which each follows its inputs; constants begin at multiples of 64 bytes;
//! equal small constants are stored and listed once. The data goes to the file as it comes, so that only the text is
//! kept in memory. Knows operations and their shapes, nothing of models.

mod blob;
mod ops;

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io;

use blob::{Blob, Place};
pub(crate) use blob::{Pieces, Written};

/// An element type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    F32,
    F16,
    BF16,
    I64,
    I32,
    I8,
    U8,
    I4,
    U4,
    Bool,
}

impl Kind {
    /// As attributes have it.
    fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::BF16 => "bf16",
            Self::I64 => "i64",
            Self::I32 => "i32",
            Self::I8 => "i8",
            Self::U8 => "u8",
            Self::I4 => "i4",
            Self::U4 => "u4",
            Self::Bool => "boolean",
        }
    }

    /// As ports have it.
    fn precision(self) -> &'static str {
        match self {
            Self::F32 => "FP32",
            Self::F16 => "FP16",
            Self::BF16 => "BF16",
            Self::I64 => "I64",
            Self::I32 => "I32",
            Self::I8 => "I8",
            Self::U8 => "U8",
            Self::I4 => "I4",
            Self::U4 => "U4",
            Self::Bool => "BOOL",
        }
    }
}

/// A dimension that is known only when the network runs.
pub(crate) const ANY: i64 = -1;

/// What a layer gives.
#[derive(Debug, Clone)]
pub(crate) struct Value {
    layer: usize,
    port: usize,
    pub(crate) kind: Kind,
    pub(crate) dims: Vec<i64>,
}

/// A layer to be written; see [`Net::layer`].
struct Layer<'a> {
    name: &'a str,
    op: &'a str,
    opset: &'a str,
    attributes: &'a [(&'a str, &'a str)],
    inputs: &'a [&'a Value],
    /// Type and shape of the output, and the tensor's name where others must find it.
    output: Option<(Kind, Vec<i64>, Option<&'a str>)>,
}

/// A network under construction.
pub(crate) struct Net<W> {
    layers: Vec<String>,
    edges: String,
    blob: Blob<W>,
    small: HashMap<(Kind, Vec<i64>, Vec<u8>), Value>,
}

/// Constants up to this many bytes are looked for among those already written.
const SMALL: usize = 4096;

impl<W: io::Write> Net<W> {
    /// An empty network whose data goes to `data`.
    pub(crate) fn new(data: W) -> Self {
        Self { layers: Vec::new(), edges: String::new(), blob: Blob::new(data), small: HashMap::new() }
    }

    /// A constant of any type.
    pub(crate) fn constant(
        &mut self,
        name: &str,
        kind: Kind,
        dims: &[i64],
        bytes: &[u8],
    ) -> io::Result<Value> {
        let key = (bytes.len() <= SMALL).then(|| (kind, dims.to_vec(), bytes.to_vec()));
        if let Some(known) = key.as_ref().and_then(|key| self.small.get(key)) {
            return Ok(known.clone());
        }
        let offset = self.blob.put(bytes)?;
        let value = self.stored(name, kind, dims, offset, bytes.len() as u64);
        if let Some(key) = key {
            self.small.insert(key, value.clone());
        }
        Ok(value)
    }

    /// A constant whose data comes in pieces, none of which is kept.
    ///
    /// # Errors
    /// What `fill` says, or the data cannot be written.
    pub(crate) fn streamed<E: From<io::Error>>(
        &mut self,
        name: &str,
        kind: Kind,
        dims: &[i64],
        fill: impl FnOnce(&mut Pieces<W>) -> Result<(), E>,
    ) -> Result<Value, E> {
        let mut pieces = self.blob.pieces(SMALL);
        fill(&mut pieces)?;
        match pieces.finish() {
            Place::Written(offset, size) => Ok(self.stored(name, kind, dims, offset, size)),
            Place::Held(bytes) => Ok(self.constant(name, kind, dims, &bytes)?),
        }
    }

    /// A constant that is in the file.
    fn stored(&mut self, name: &str, kind: Kind, dims: &[i64], offset: u64, size: u64) -> Value {
        let attributes = [
            ("element_type", kind.name()),
            ("shape", &list(dims)),
            ("offset", &offset.to_string()),
            ("size", &size.to_string()),
        ];
        let output = Some((kind, dims.to_vec(), None));
        self.value(Layer { name, op: "Const", opset: "opset1", attributes: &attributes, inputs: &[], output })
    }

    /// Gives the tensor of a value a name by which others find it.
    fn name(&mut self, value: &Value, name: &str) {
        let head = format!("<output><port id=\"{}\"", value.port);
        let named = format!("{head} names=\"{name}\"");
        self.layers[value.layer] = self.layers[value.layer].replacen(&head, &named, 1);
    }

    /// The finished text, and the binary file with its length and digest.
    pub(crate) fn finish(self, name: &str) -> io::Result<(String, Written<W>)> {
        let mut text = String::with_capacity(self.edges.len() * 4);
        text.push_str("<?xml version=\"1.0\"?>\n<net name=\"");
        escape(&mut text, name);
        text.push_str("\" version=\"11\">\n<layers>\n");
        for layer in &self.layers {
            text.push_str(layer);
        }
        text.push_str("</layers>\n<edges>\n");
        text.push_str(&self.edges);
        text.push_str("</edges>\n<rt_info/>\n</net>\n");
        Ok((text, self.blob.finish()?))
    }

    /// A layer with an output.
    fn value(&mut self, layer: Layer) -> Value {
        let (kind, dims) = match &layer.output {
            Some((kind, dims, _)) => (*kind, dims.clone()),
            None => (Kind::F32, Vec::new()),
        };
        let port = layer.inputs.len();
        Value { layer: self.layer(&layer), port, kind, dims }
    }

    /// Writes a layer with its edges and gives its number.
    fn layer(&mut self, layer: &Layer) -> usize {
        let id = self.layers.len();
        let mut line = String::with_capacity(512);
        let text = &mut line;
        push(text, format_args!("<layer id=\"{id}\" name=\""));
        escape(text, layer.name);
        push(text, format_args!("\" type=\"{}\" version=\"{}\">", layer.op, layer.opset));
        if !layer.attributes.is_empty() {
            text.push_str("<data");
            for (key, value) in layer.attributes {
                push(text, format_args!(" {key}=\"{value}\""));
            }
            text.push_str("/>");
        }
        if !layer.inputs.is_empty() {
            text.push_str("<input>");
            for (number, input) in layer.inputs.iter().enumerate() {
                port(text, number, input.kind, &input.dims, None);
                push(
                    &mut self.edges,
                    format_args!(
                        "<edge from-layer=\"{}\" from-port=\"{}\" to-layer=\"{id}\" to-port=\"{number}\"/>\n",
                        input.layer, input.port
                    ),
                );
            }
            text.push_str("</input>");
        }
        if let Some((kind, dims, name)) = &layer.output {
            text.push_str("<output>");
            port(text, layer.inputs.len(), *kind, dims, *name);
            text.push_str("</output>");
        }
        text.push_str("</layer>\n");
        self.layers.push(line);
        id
    }
}

fn port(text: &mut String, number: usize, kind: Kind, dims: &[i64], name: Option<&str>) {
    push(text, format_args!("<port id=\"{number}\" precision=\"{}\"", kind.precision()));
    if let Some(name) = name {
        push(text, format_args!(" names=\"{name}\""));
    }
    text.push('>');
    for dim in dims {
        push(text, format_args!("<dim>{dim}</dim>"));
    }
    text.push_str("</port>");
}

/// Dimensions of an attribute: commas between, `?` for the unknown.
fn list(dims: &[i64]) -> String {
    let parts: Vec<String> =
        dims.iter().map(|dim| if *dim == ANY { "?".to_owned() } else { dim.to_string() }).collect();
    parts.join(",")
}

fn push(text: &mut String, arguments: std::fmt::Arguments) {
    // PANIC: writing to a String cannot fail.
    text.write_fmt(arguments).expect("a string takes all text");
}

fn escape(text: &mut String, raw: &str) {
    for c in raw.chars() {
        match c {
            '&' => text.push_str("&amp;"),
            '<' => text.push_str("&lt;"),
            '>' => text.push_str("&gt;"),
            '"' => text.push_str("&quot;"),
            c if c.is_control() => text.push(' '),
            c => text.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_are_aligned_and_small_ones_written_once() {
        let mut net = Net::new(Vec::new());
        let one = net.constant("a", Kind::F32, &[1], &1f32.to_le_bytes()).unwrap();
        let again = net.constant("b", Kind::F32, &[1], &1f32.to_le_bytes()).unwrap();
        let scalar = net.constant("c", Kind::F32, &[], &1f32.to_le_bytes()).unwrap();
        assert_eq!((one.layer, again.layer, scalar.layer), (0, 0, 1));
        let (text, written) = net.finish("a \"net\" <1>").unwrap();
        assert_eq!((written.bytes, written.data.len()), (68, 68));
        assert!(text.contains("name=\"a &quot;net&quot; &lt;1&gt;\""));
        assert!(text.contains("shape=\"1\" offset=\"0\" size=\"4\""), "{text}");
        assert!(text.contains("shape=\"\" offset=\"64\" size=\"4\""), "{text}");
    }

    #[test]
    fn a_constant_in_pieces_is_the_same_constant() {
        let of = |piece: usize, length: usize| {
            let (mut net, bytes) = (Net::new(Vec::new()), vec![7u8; length]);
            net.f32("before", 1.0).unwrap();
            for _ in 0..2 {
                let fill = |pieces: &mut Pieces<_>| bytes.chunks(piece).try_for_each(|part| pieces.put(part));
                net.streamed::<io::Error>("w", Kind::U8, &[length as i64], fill).unwrap();
            }
            let (text, written) = net.finish("n").unwrap();
            (text, written.data, written.digest)
        };
        for length in [SMALL - 1, SMALL, SMALL + 1, 3 * SMALL] {
            let whole = of(length, length);
            assert!(whole == of(1000, length) && whole == of(SMALL, length), "{length} bytes");
            let copies = if length > SMALL { 2 } else { 1 };
            assert_eq!(
                whole.1.len(),
                (64 + length).next_multiple_of(64) * (copies - 1)
                    + if copies == 2 { length } else { 64 + length }
            );
        }
    }

    #[test]
    fn layers_are_wired_by_ports_that_count_inputs_first() {
        let mut net = Net::new(Vec::new());
        let x = net.parameter("x", Kind::F32, &[ANY, 4]);
        let y = net.multiply("y", &x, &x);
        net.result("y", &y);
        let (text, _) = net.finish("n").unwrap();
        assert!(text.contains("<edge from-layer=\"0\" from-port=\"0\" to-layer=\"1\" to-port=\"1\"/>"));
        assert!(text.contains("<edge from-layer=\"1\" from-port=\"2\" to-layer=\"2\" to-port=\"0\"/>"));
        assert!(text.contains("shape=\"?,4\" element_type=\"f32\""), "{text}");
    }
}
