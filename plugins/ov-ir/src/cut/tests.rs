//! A network of two layers with all three ties between layers, as exporters draw them.

#![allow(clippy::unwrap_used)]

use std::path::Path;

use super::net::Net;
use super::{Ready, Stage};

/// Layers as `name kind dims inputs`, in order; an attribute of variables follows a `|`.
fn network(lines: &[&str]) -> String {
    let (mut layers, mut edges, mut names) = (String::new(), String::new(), Vec::new());
    for (id, line) in lines.iter().enumerate() {
        let (line, data) = line.split_once('|').unwrap_or((line, ""));
        let mut words = line.split_whitespace();
        let (name, kind, dims) = (words.next().unwrap(), words.next().unwrap(), words.next().unwrap());
        for (port, input) in words.enumerate() {
            let from = names.iter().position(|known| known == &input).unwrap();
            edges += &super::net::edge(&from.to_string(), "9", &id.to_string(), &port.to_string());
        }
        let dims: String = dims.split(',').map(|dim| format!("<dim>{dim}</dim>")).collect();
        layers += &format!(
            "<layer id=\"{id}\" name=\"{name}\" type=\"{kind}\" version=\"opset1\"><data {data}/><output><port id=\"9\" \
             precision=\"FP32\" names=\"old\">{dims}</port></output></layer>"
        );
        names.push(name);
    }
    format!("<net name=\"n\" version=\"11\"><layers>{layers}</layers><edges>{edges}</edges><rt_info/></net>")
}

const LINES: [&str; 23] = [
    "input_ids Parameter -1,-1",
    "position_ids Parameter -1,-1",
    "table Const 9,4",
    "embedded Gather -1,-1,4 table input_ids",
    "square0 Power -1,-1,4 embedded",
    "past0 ReadValue -1,2,-1,2 | variable_id=\"a\" variable_shape=\"?,2,?,2\"",
    "past_length ShapeOf 4 past0",
    "count ShapeOf 2 input_ids",
    "state_shape ShapeOf 3 embedded",
    "all0 Concat -1,2,-1,2 past0 square0",
    "keep0 Assign -1,2,-1,2 all0 | variable_id=\"a\" variable_shape=\"?,2,?,2\"",
    "core0 ScaledDotProductAttention -1,2,-1,2 square0 all0 past_length count",
    "sum0 Add -1,-1,4 embedded core0",
    "square1 Power -1,-1,4 sum0",
    "past1 ReadValue -1,2,-1,2 | variable_id=\"b\" variable_shape=\"?,2,?,2\"",
    "all1 Concat -1,2,-1,2 past1 square1",
    "keep1 Assign -1,2,-1,2 all1 | variable_id=\"b\" variable_shape=\"?,2,?,2\"",
    "core1 ScaledDotProductAttention -1,2,-1,2 square1 all1 past_length count",
    "shaped1 Reshape -1,-1,4 core1 state_shape",
    "sum1 Add -1,-1,4 sum0 shaped1",
    "head Const 9,4",
    "logits MatMul -1,-1,9 sum1 head",
    "result Result -1,-1,9 logits",
];

fn cut(text: &str, first: bool) -> String {
    let net = Net::parse(Path::new("model.xml"), text).unwrap();
    let cores = net.attentions();
    let boundary = net.boundary(&cores, 1).unwrap();
    let (from, to) = if first { (None, Some(boundary)) } else { (Some(boundary), None) };
    Stage::new(&net, from, to).unwrap().text(&net).unwrap()
}

/// Names of a network's layers, and who feeds whom.
fn read(text: &str) -> (Vec<String>, Vec<(String, String)>) {
    let document = roxmltree::Document::parse(text).unwrap();
    let layers: Vec<_> = document.descendants().filter(|node| node.has_tag_name("layer")).collect();
    let name = |id: &str| {
        let layer = layers.iter().find(|layer| layer.attribute("id") == Some(id)).unwrap();
        layer.attribute("name").unwrap().to_owned()
    };
    let edges = document.descendants().filter(|node| node.has_tag_name("edge"));
    let edges =
        edges.map(|e| (name(e.attribute("from-layer").unwrap()), name(e.attribute("to-layer").unwrap())));
    (layers.iter().map(|layer| layer.attribute("name").unwrap().to_owned()).collect(), edges.collect())
}

#[test]
fn a_first_stage_ends_with_the_state_and_keeps_its_own_cache() {
    let text = cut(&network(&LINES), true);
    let (layers, edges) = read(&text);
    assert!(layers.contains(&"keep0".into()) && !layers.contains(&"keep1".into()), "{layers:?}");
    assert!(edges.contains(&("sum0".into(), "hidden_out/result".into())), "{edges:?}");
    assert!(
        text.contains("names=\"hidden_out\"") && text.matches("names=\"old\"").count() == layers.len() - 2
    );
}

#[test]
fn a_later_stage_needs_nothing_of_the_earlier_layers() {
    let (layers, edges) = read(&cut(&network(&LINES), false));
    for gone in ["past0", "keep0", "embedded", "table", "input_ids", "core0"] {
        assert!(!layers.contains(&gone.to_owned()), "{gone} of {layers:?}");
    }
    let fed =
        |from: &str, to: &str| assert!(edges.contains(&(from.into(), to.into())), "{from} {to}: {edges:?}");
    fed("past1", "past_length");
    fed("position_ids", "count");
    fed("inputs_embeds", "state_shape");
    fed("inputs_embeds", "square1");
    fed("inputs_embeds", "sum1");
    fed("logits", "result");
}

#[test]
fn ids_that_are_read_behind_the_cut_are_refused() {
    let mut lines = LINES.to_vec();
    lines[21] = "logits MatMul -1,-1,9 sum1 head input_ids";
    let text = network(&lines);
    let net = Net::parse(Path::new("model.xml"), &text).unwrap();
    let boundary = net.boundary(&net.attentions(), 1).unwrap();
    let Err(error) = Stage::new(&net, Some(boundary), None) else { panic!("the stage reads ids") };
    assert!(error.to_string().contains("logits (MatMul) reads input_ids"), "{error}");
}

#[test]
fn networks_without_attention_and_texts_that_are_none_are_refused() {
    let folder = std::env::temp_dir().join(format!("cascadia-cut-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join(crate::manifest::BIN), "").unwrap();
    for (text, why) in [(network(&LINES[..4]), "ScaledDotProductAttention"), ("<net".into(), "no network")] {
        std::fs::write(folder.join(crate::manifest::XML), text).unwrap();
        let error = Ready::open(&folder).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
    std::fs::remove_dir_all(folder).unwrap();
}
