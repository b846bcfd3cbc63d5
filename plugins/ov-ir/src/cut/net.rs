//! The text of a network as a graph: layers by their place in the file, edges both ways.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use roxmltree::{Document, Node};

use crate::error::Error;

/// A parsed network.
pub(super) struct Net<'a> {
    path: &'a Path,
    text: &'a str,
    layers: Vec<Layer>,
    /// Edges by the layer that they end at and that they begin at.
    into: Vec<Vec<Edge<'a>>>,
    users: Vec<Vec<usize>>,
    free: usize,
}

struct Layer {
    id: String,
    name: String,
    kind: String,
    /// Its place in the text.
    text: std::ops::Range<usize>,
    data: HashMap<String, String>,
    output: Option<Output>,
}

/// The first output.
struct Output {
    port: String,
    dims: Vec<i64>,
    /// The place of its `<port ...>` in the layer's text.
    tag: usize,
}

/// An edge to a layer.
pub(super) struct Edge<'a> {
    pub(super) from: usize,
    pub(super) from_port: &'a str,
    pub(super) to_port: &'a str,
}

impl<'a> Net<'a> {
    pub(super) fn parse(path: &'a Path, text: &'a str) -> Result<Self, Error> {
        let broken = |problem: String| Error::damaged(path, problem);
        let document = Document::parse(text).map_err(|e| broken(format!("is no network: {e}")))?;
        let root = document.root_element();
        let part = |name: &str| root.children().find(|node| node.has_tag_name(name));
        let (Some(layers), Some(edges)) = (part("layers"), part("edges")) else {
            return Err(broken("is no network: it has no layers or no edges".into()));
        };
        let layers: Vec<Layer> = layers.children().filter(Node::is_element).map(layer).collect();
        let places: HashMap<&str, usize> =
            layers.iter().enumerate().map(|(at, layer)| (layer.id.as_str(), at)).collect();
        let mut into: Vec<Vec<Edge>> = layers.iter().map(|_| Vec::new()).collect();
        let mut users = vec![Vec::new(); layers.len()];
        for node in edges.children().filter(Node::is_element) {
            // Slices of the text live longer than the document.
            let attribute =
                |name: &str| node.attribute_node(name).map(|a| &text[a.range_value()]).unwrap_or_default();
            let place = |name: &str| {
                let id = attribute(name);
                places
                    .get(id)
                    .copied()
                    .ok_or_else(|| broken(format!("has an edge with {name} {id}, no layer")))
            };
            let (from, to) = (place("from-layer")?, place("to-layer")?);
            let edge = Edge { from, from_port: attribute("from-port"), to_port: attribute("to-port") };
            into[to].push(edge);
            users[from].push(to);
        }
        let free =
            layers.iter().filter_map(|layer| layer.id.parse::<usize>().ok()).max().map_or(0, |id| id + 1);
        Ok(Self { path, text, layers, into, users, free })
    }

    /// Attention operations in the order of the layers: by how much lies before each.
    pub(super) fn attentions(&self) -> Vec<usize> {
        let mut all: Vec<usize> = self.of_kind("ScaledDotProductAttention").collect();
        all.sort_by_cached_key(|at| self.before(&[*at]).len());
        all
    }

    /// The state that layer `number` begins with: the last residual sum before its attention that does not lie before
    /// the attention of the layer before.
    pub(super) fn boundary(&self, cores: &[usize], number: usize) -> Result<usize, Error> {
        let (this, earlier) = (self.before(&[cores[number]]), self.before(&[cores[number - 1]]));
        let sums = self.of_kind("Add").filter(|at| this.contains(at) && !earlier.contains(at));
        let has = |at: usize, kind: &str| self.users(at).any(|user| self.kind(user) == kind);
        let residual = sums.filter(|at| has(*at, "Add") && has(*at, "Power"));
        let last = residual.max_by_key(|at| self.before(&[*at]).len());
        last.ok_or_else(|| {
            let what = format!("a network without a residual sum before layer {number}");
            Error::unsupported(self.path, what, "compile the layers from the model that it was made of")
        })
    }

    /// All layers before some, themselves included.
    fn before(&self, seeds: &[usize]) -> HashSet<usize> {
        self.ancestors(seeds, None, |_, from| from)
    }

    /// As `before`, but not behind `stop`; `source` says where an input of a layer comes from.
    pub(super) fn ancestors(
        &self,
        seeds: &[usize],
        stop: Option<usize>,
        source: impl Fn(usize, usize) -> usize,
    ) -> HashSet<usize> {
        let (mut found, mut open) = (HashSet::new(), seeds.to_vec());
        while let Some(at) = open.pop() {
            if Some(at) != stop && found.insert(at) {
                open.extend(self.into[at].iter().map(|edge| source(at, edge.from)));
            }
        }
        found
    }

    /// Whether a value, and not its shape alone, reaches an attention of `within`.
    pub(super) fn feeds_attention(&self, at: usize, within: &HashSet<usize>) -> bool {
        let (mut seen, mut open) = (HashSet::new(), vec![at]);
        while let Some(at) = open.pop() {
            for user in self.users(at) {
                match self.kind(user) {
                    "ScaledDotProductAttention" if within.contains(&user) => return true,
                    "ShapeOf" => {}
                    _ if within.contains(&user) && seen.insert(user) => open.push(user),
                    _ => {}
                }
            }
        }
        false
    }

    pub(super) fn all(&self) -> impl Iterator<Item = usize> {
        0..self.layers.len()
    }

    pub(super) fn of_kind(&self, kind: &str) -> impl Iterator<Item = usize> {
        self.all().filter(move |at| self.kind(*at) == kind)
    }

    pub(super) fn kind(&self, at: usize) -> &str {
        &self.layers[at].kind
    }

    pub(super) fn id(&self, at: usize) -> &str {
        &self.layers[at].id
    }

    /// An attribute of the operation.
    pub(super) fn data(&self, at: usize, name: &str) -> Option<&str> {
        self.layers[at].data.get(name).map(String::as_str)
    }

    /// The input of that name.
    pub(super) fn parameter(&self, name: &str) -> Option<usize> {
        self.of_kind("Parameter").find(|at| self.layers[*at].name == name)
    }

    pub(super) fn inputs(&self, at: usize) -> impl Iterator<Item = usize> {
        self.into[at].iter().map(|edge| edge.from)
    }

    pub(super) fn edges_to(&self, at: usize) -> &[Edge<'a>] {
        &self.into[at]
    }

    pub(super) fn users(&self, at: usize) -> impl Iterator<Item = usize> {
        self.users[at].iter().copied()
    }

    /// The shape of the first output; -1 is unknown.
    pub(super) fn dims(&self, at: usize) -> Vec<i64> {
        self.layers[at].output.as_ref().map(|output| output.dims.clone()).unwrap_or_default()
    }

    pub(super) fn dim_tags(&self, at: usize) -> String {
        self.dims(at).iter().map(|dim| format!("<dim>{dim}</dim>")).collect()
    }

    pub(super) fn output_port(&self, at: usize) -> &str {
        self.layers[at].output.as_ref().map_or("0", |output| &output.port)
    }

    /// A number that no layer has, and none above it.
    pub(super) fn free_id(&self) -> usize {
        self.free
    }

    /// A layer as it stands in the file; its first output under a name where one is given.
    pub(super) fn layer_text(&self, at: usize, name: Option<&str>) -> String {
        let layer = &self.layers[at];
        let text = &self.text[layer.text.clone()];
        let (Some(name), Some(output)) = (name, &layer.output) else { return text.to_owned() };
        let (head, tail) = text.split_at(output.tag);
        let (tag, rest) = tail.split_at(tail.find('>').unwrap_or(0));
        let kept = match (tag.find(" names=\""), tag) {
            (Some(start), tag) => {
                let end = tag[start + 8..].find('"').map_or(tag.len(), |end| start + 8 + end + 1);
                format!("{}{}", &tag[..start], &tag[end..])
            }
            (None, tag) => tag.to_owned(),
        };
        format!("{head}{kept} names=\"{name}\"{rest}")
    }

    pub(super) fn refuse(&self, at: usize, why: &str) -> Error {
        let layer = &self.layers[at];
        let what = format!("a cut here: {} ({}) {why}, which", layer.name, layer.kind);
        Error::unsupported(
            self.path,
            what,
            "cut elsewhere, or compile the layers from the model that it was made of",
        )
    }
}

fn layer(node: Node) -> Layer {
    let attribute = |name: &str| node.attribute(name).unwrap_or_default().to_owned();
    let child = |name: &str| node.children().find(|child| child.has_tag_name(name));
    let data = child("data")
        .map(|data| data.attributes().map(|a| (a.name().to_owned(), a.value().to_owned())).collect());
    let port = child("output").and_then(|output| output.children().find(Node::is_element));
    let output = port.map(|port| Output {
        port: port.attribute("id").unwrap_or("0").to_owned(),
        dims: port
            .children()
            .filter(|child| child.has_tag_name("dim"))
            .map(|dim| dim.text().and_then(|text| text.trim().parse().ok()).unwrap_or(-1))
            .collect(),
        tag: port.range().start - node.range().start,
    });
    Layer {
        id: attribute("id"),
        name: attribute("name"),
        kind: attribute("type"),
        text: node.range(),
        data: data.unwrap_or_default(),
        output,
    }
}

/// An edge as text.
pub(super) fn edge(from: &str, from_port: &str, to: &str, to_port: &str) -> String {
    format!(
        "<edge from-layer=\"{from}\" from-port=\"{from_port}\" to-layer=\"{to}\" to-port=\"{to_port}\"/>\n"
    )
}
