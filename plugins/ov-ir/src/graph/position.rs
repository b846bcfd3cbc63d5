//! Cosines and sines of the positions' angles, once for each encoding that a model has, and the rotation by them.

use std::collections::HashMap;
use std::io;

use crate::ir::{ANY, Kind, Net, Value};
use crate::model::Rope;

/// Angles of the positions; each encoding is drawn when the first layer asks for it.
pub(super) struct Angles {
    /// `[batch, new, 1]` in f32.
    positions: Value,
    drawn: HashMap<usize, Turn>,
}

/// Cosines and sines `[batch, 1, new, rotated]`, those of a pair half the width apart.
#[derive(Clone)]
pub(super) struct Turn {
    cos: Value,
    sin: Value,
    dims: usize,
}

impl Angles {
    pub(super) fn new<W: io::Write>(net: &mut Net<W>, positions: &Value) -> io::Result<Self> {
        let positions = net.convert("rope/positions", positions, Kind::F32);
        let positions = net.unsqueeze("rope/positions3", &positions, &[2])?;
        Ok(Self { positions, drawn: HashMap::new() })
    }

    pub(super) fn get<W: io::Write>(
        &mut self,
        net: &mut Net<W>,
        number: usize,
        rope: &Rope,
    ) -> io::Result<Turn> {
        if let Some(known) = self.drawn.get(&number) {
            return Ok(known.clone());
        }
        let name = format!("rope/{number}");
        let pairs = rope.frequencies();
        let frequencies = net.f32s(&format!("{name}/frequencies"), &[1, 1, pairs.len() as i64], &pairs)?;
        let half = net.multiply(&format!("{name}/half"), &self.positions, &frequencies);
        let angles = net.concat(&format!("{name}/angles"), &[&half, &half], -1);
        let mut wave = |op: &str| -> io::Result<Value> {
            let name = format!("{name}/{op}");
            let mut x = net.unary(&name, op, &angles);
            if rope.scale() != 1.0 {
                let scale = net.f32(&format!("{name}/magnitude"), rope.scale())?;
                x = net.multiply(&format!("{name}/scaled"), &x, &scale);
            }
            net.unsqueeze(&format!("{name}/heads"), &x, &[1])
        };
        let turn = Turn { cos: wave("Cos")?, sin: wave("Sin")?, dims: rope.dims };
        self.drawn.insert(number, turn.clone());
        Ok(turn)
    }
}

impl Turn {
    /// Heads `[batch, heads, new, width]` turned by their positions; what lies behind the rotated part stays.
    pub(super) fn apply<W: io::Write>(&self, net: &mut Net<W>, name: &str, x: &Value) -> io::Result<Value> {
        let width = x.dims[3];
        let dims = self.dims as i64;
        debug_assert_eq!(x.dims[2], ANY);
        if dims == width {
            return self.rotate(net, name, x);
        }
        let front = net.slice(&format!("{name}/front"), x, 3, 0, dims)?;
        let rest = net.slice(&format!("{name}/rest"), x, 3, dims, width)?;
        let front = self.rotate(net, &format!("{name}/turned"), &front)?;
        Ok(net.concat(name, &[&front, &rest], -1))
    }

    fn rotate<W: io::Write>(&self, net: &mut Net<W>, name: &str, x: &Value) -> io::Result<Value> {
        let dims = self.dims as i64;
        let low = net.slice(&format!("{name}/low"), x, 3, 0, dims / 2)?;
        let high = net.slice(&format!("{name}/high"), x, 3, dims / 2, dims)?;
        let minus = net.f32s(&format!("{name}/minus"), &[1, 1, 1, 1], &[-1.0])?;
        let high = net.multiply(&format!("{name}/negated"), &high, &minus);
        let crossed = net.concat(&format!("{name}/crossed"), &[&high, &low], -1);
        let straight = net.multiply(&format!("{name}/straight"), x, &self.cos);
        let crossed = net.multiply(&format!("{name}/across"), &crossed, &self.sin);
        Ok(net.add(name, &straight, &crossed))
    }
}
