//! Makes a [`Model`] of a family's facts and the tensors that are there.
//!
//! Biases, head norms and fused projections are found by their presence; everything found is checked for its shape, and
//! everything left over is refused.

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;

use super::Facts;
use super::names::Names;
use crate::error::Error;
use crate::manifest::Stored;
use crate::model::{Attention, Block, Linear, Mlp, Model, Norm, RowOrder, Weight};
use crate::source::{Info, Source};

/// The model, or what is missing, misshapen or left over.
pub(super) fn assemble(facts: Facts, names: &Names, source: &Source) -> Result<Model, Error> {
    let mut tensors = Tensors { facts: &facts, source, used: HashSet::new() };
    let hidden = facts.hidden;
    let table = source.get(names.embedding)?;
    let vocab = table.rows();
    tensors.shaped(names.embedding, &[vocab, hidden])?;
    let norm = tensors.norm(names.norm, hidden)?;
    let mut head = Linear { weight: Weight::whole(names.embedding), bias: None, inputs: hidden };
    if source.has(names.head) {
        tensors.shaped(names.head, &[vocab, hidden])?;
        if !facts.tied {
            head.weight = Weight::whole(names.head);
        }
    }
    let blocks =
        (0..facts.layers.len()).map(|layer| tensors.block(layer, names)).collect::<Result<_, _>>()?;
    tensors.nothing_left(names)?;
    let left_out = left_out(names, source);
    Ok(Model {
        family: facts.family,
        hidden,
        vocab,
        context: facts.context,
        embedding: Weight::whole(names.embedding),
        embedding_scale: facts.embedding_scale,
        blocks,
        norm,
        head,
        logit_cap: facts.logit_cap,
        logit_scale: None,
        ropes: facts.ropes,
        left_out,
    })
}

/// Counts the tensors of parts that are left out; bytes of those that can be read.
fn left_out(names: &Names, source: &Source) -> BTreeMap<String, Stored> {
    let mut all = BTreeMap::new();
    for name in source.names() {
        if let Some(part) = names.beside.iter().find(|part| name.starts_with(**part)) {
            let part = part.trim_end_matches('.').rsplit('.').next().unwrap_or_default();
            let entry = all.entry(part.to_owned()).or_insert(Stored { tensors: 0, bytes: 0 });
            entry.tensors += 1;
            entry.bytes += source.get(name).map_or(0, Info::bytes);
        }
    }
    all
}

struct Tensors<'a> {
    facts: &'a Facts,
    source: &'a Source,
    used: HashSet<String>,
}

impl Tensors<'_> {
    fn block(&mut self, layer: usize, names: &Names) -> Result<Block, Error> {
        let prefix = format!("{}{layer}{}", names.layer.0, names.layer.1);
        let name = |role: &str| format!("{prefix}{role}");
        let hidden = self.facts.hidden;
        let attention_norm = self.norm(&name(names.attention_norm), hidden)?;
        let attention = self.attention(layer, &prefix, names)?;
        let mlp = self.mlp(&prefix, names)?;
        let (post_attention_norm, mlp_norm, post_mlp_norm) = if self.facts.sandwich {
            let after = self.norm(&name(names.sandwich.post_attention), hidden)?;
            let before = self.norm(&name(names.sandwich.mlp), hidden)?;
            let last = self.norm(&name(names.sandwich.post_mlp), hidden)?;
            (Some(after), before, Some(last))
        } else {
            (None, self.norm(&name(names.mlp_norm), hidden)?, None)
        };
        Ok(Block { attention_norm, attention, post_attention_norm, mlp_norm, mlp, post_mlp_norm })
    }

    fn attention(&mut self, layer: usize, prefix: &str, names: &Names) -> Result<Attention, Error> {
        let f = self.facts;
        let (queries, keys) = (f.heads * f.head_dim, f.kv_heads * f.head_dim);
        let name = |role: &str| format!("{prefix}{role}");
        let this = f.layers[layer];
        let order = |heads: usize| match this.rope {
            Some(rope) if f.interleaved => RowOrder::Interleaved { heads, rotated: f.ropes[rope].dims },
            _ => RowOrder::HalfSplit,
        };
        let fused = name(names.fused_qkv);
        let (mut query, mut key, value) = if self.source.has(&format!("{fused}.weight")) {
            let all = queries + 2 * keys;
            (
                self.part(&fused, 0..queries, all, f.hidden)?,
                self.part(&fused, queries..queries + keys, all, f.hidden)?,
                self.part(&fused, queries + keys..all, all, f.hidden)?,
            )
        } else {
            (
                self.linear(&name(names.query), queries, f.hidden)?,
                self.linear(&name(names.key), keys, f.hidden)?,
                self.linear(&name(names.value), keys, f.hidden)?,
            )
        };
        for (linear, heads) in [(&mut query, f.heads), (&mut key, f.kv_heads)] {
            linear.weight.order = order(heads);
            if let Some(bias) = &mut linear.bias {
                bias.order = order(heads);
            }
        }
        Ok(Attention {
            heads: f.heads,
            kv_heads: f.kv_heads,
            head_dim: f.head_dim,
            scale: f.attention_scale.unwrap_or(1.0 / (f.head_dim as f32).sqrt()),
            query,
            key,
            value,
            output: self.linear(&name(names.output), f.hidden, queries)?,
            query_norm: self.optional_norm(&name(names.query_norm), f.head_dim)?,
            key_norm: self.optional_norm(&name(names.key_norm), f.head_dim)?,
            rope: this.rope,
            window: this.window,
            cap: f.attention_cap,
        })
    }

    fn mlp(&mut self, prefix: &str, names: &Names) -> Result<Mlp, Error> {
        let (hidden, activation) = (self.facts.hidden, self.facts.activation);
        let down = format!("{prefix}{}", names.down);
        let width = self.source.get(&format!("{down}.weight"))?.columns();
        let down = self.linear(&down, hidden, width)?;
        let gate = format!("{prefix}{}", names.gate);
        if self.source.has(&format!("{gate}.weight")) {
            let gate = self.linear(&gate, width, hidden)?;
            let up = self.linear(&format!("{prefix}{}", names.up), width, hidden)?;
            return Ok(Mlp { gate, up, down, activation });
        }
        let fused = format!("{prefix}{}", names.fused_gate_up);
        let gate = self.part(&fused, 0..width, 2 * width, hidden)?;
        let up = self.part(&fused, width..2 * width, 2 * width, hidden)?;
        Ok(Mlp { gate, up, down, activation })
    }

    fn linear(&mut self, name: &str, outputs: usize, inputs: usize) -> Result<Linear, Error> {
        let weight = format!("{name}.weight");
        self.shaped(&weight, &[outputs, inputs])?;
        let bias = self.bias(name, outputs)?.map(Weight::whole);
        Ok(Linear { weight: Weight::whole(weight), bias, inputs })
    }

    /// Some rows of a matrix that holds several.
    fn part(&mut self, name: &str, rows: Range<usize>, all: usize, inputs: usize) -> Result<Linear, Error> {
        let weight = format!("{name}.weight");
        self.shaped(&weight, &[all, inputs])?;
        let of = |tensor: String| Weight { rows: Some(rows.clone()), ..Weight::whole(tensor) };
        let bias = self.bias(name, all)?.map(of);
        Ok(Linear { weight: of(weight), bias, inputs })
    }

    fn bias(&mut self, name: &str, outputs: usize) -> Result<Option<String>, Error> {
        let bias = format!("{name}.bias");
        if !self.source.has(&bias) {
            return Ok(None);
        }
        self.vector(&bias, outputs)?;
        Ok(Some(bias))
    }

    fn norm(&mut self, name: &str, width: usize) -> Result<Norm, Error> {
        let weight = format!("{name}.weight");
        self.vector(&weight, width)?;
        Ok(Norm { weight, epsilon: self.facts.epsilon, plus_one: self.facts.plus_one })
    }

    fn optional_norm(&mut self, name: &str, width: usize) -> Result<Option<Norm>, Error> {
        if self.source.has(&format!("{name}.weight")) { self.norm(name, width).map(Some) } else { Ok(None) }
    }

    fn vector(&mut self, name: &str, width: usize) -> Result<(), Error> {
        self.shaped(name, &[width])?;
        let format = self.source.get(name)?.format;
        if !format.is_plain() {
            let problem = format!("is a vector of {format:?}; gains and biases must be plain numbers");
            return Err(Error::tensor(self.source.path(), name, problem));
        }
        Ok(())
    }

    fn shaped(&mut self, name: &str, shape: &[usize]) -> Result<(), Error> {
        let found = &self.source.get(name)?.shape;
        if found != shape {
            let problem = format!(
                "has the shape {found:?}, {shape:?} is needed; its configuration is of another model, fetch both from one place"
            );
            return Err(Error::tensor(self.source.path(), name, problem));
        }
        self.used.insert(name.to_owned());
        Ok(())
    }

    fn nothing_left(&self, names: &Names) -> Result<(), Error> {
        let ignored = |name: &str| {
            names.ignored.iter().any(|part| name.ends_with(part))
                || names.beside.iter().any(|part| name.starts_with(part))
        };
        match self.source.names().find(|name| !self.used.contains(*name) && !ignored(name)) {
            None => Ok(()),
            Some(name) => {
                let what = format!("tensor {name}, which the family {} does not have,", self.facts.family);
                Err(Error::feature(self.source.path(), what))
            }
        }
    }
}
