//! Operations of OpenVINO's opsets, each with the shape that it gives.
//!
//! Shapes are written into the file for its readers; OpenVINO infers them anew. Operations whose inputs are constants
//! write these too, named after the operation.

use std::io;

use super::{ANY, Kind, Layer, Net, Value, list};

const NUMPY: &[(&str, &str)] = &[("auto_broadcast", "numpy")];

impl<W: io::Write> Net<W> {
    /// An input of the network.
    pub(crate) fn parameter(&mut self, name: &str, kind: Kind, dims: &[i64]) -> Value {
        let attributes = [("shape", &*list(dims)), ("element_type", kind.name())];
        let output = Some((kind, dims.to_vec(), Some(name)));
        self.value(Layer {
            name,
            op: "Parameter",
            opset: "opset1",
            attributes: &attributes,
            inputs: &[],
            output,
        })
    }

    /// An output of the network, found by its name. The name stands at the operation itself: readers look for the last
    /// matrix product right before the output.
    pub(crate) fn result(&mut self, name: &str, value: &Value) {
        self.name(value, name);
        let name = format!("{name}/result");
        self.layer(&Layer {
            name: &name,
            op: "Result",
            opset: "opset1",
            attributes: &[],
            inputs: &[value],
            output: None,
        });
    }

    pub(crate) fn i64s(&mut self, name: &str, values: &[i64]) -> io::Result<Value> {
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        self.constant(name, Kind::I64, &[values.len() as i64], &bytes)
    }

    pub(crate) fn i64(&mut self, name: &str, value: i64) -> io::Result<Value> {
        self.constant(name, Kind::I64, &[], &value.to_le_bytes())
    }

    pub(crate) fn f32s(&mut self, name: &str, dims: &[i64], values: &[f32]) -> io::Result<Value> {
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        self.constant(name, Kind::F32, dims, &bytes)
    }

    pub(crate) fn f32(&mut self, name: &str, value: f32) -> io::Result<Value> {
        self.f32s(name, &[], &[value])
    }

    fn op(
        &mut self,
        name: &str,
        op: &str,
        attributes: &[(&str, &str)],
        inputs: &[&Value],
        kind: Kind,
        dims: Vec<i64>,
    ) -> Value {
        let (op, opset) = op.split_once('@').unwrap_or((op, "opset1"));
        self.value(Layer { name, op, opset, attributes, inputs, output: Some((kind, dims, None)) })
    }

    fn binary(&mut self, name: &str, op: &str, a: &Value, b: &Value, kind: Kind) -> Value {
        self.op(name, op, NUMPY, &[a, b], kind, broadcast(&a.dims, &b.dims))
    }

    pub(crate) fn add(&mut self, name: &str, a: &Value, b: &Value) -> Value {
        self.binary(name, "Add", a, b, a.kind)
    }

    pub(crate) fn subtract(&mut self, name: &str, a: &Value, b: &Value) -> Value {
        self.binary(name, "Subtract", a, b, a.kind)
    }

    pub(crate) fn multiply(&mut self, name: &str, a: &Value, b: &Value) -> Value {
        self.binary(name, "Multiply", a, b, a.kind)
    }

    pub(crate) fn divide(&mut self, name: &str, a: &Value, b: &Value) -> Value {
        let attributes = [("auto_broadcast", "numpy"), ("m_pythondiv", "true")];
        self.op(name, "Divide", &attributes, &[a, b], a.kind, broadcast(&a.dims, &b.dims))
    }

    pub(crate) fn power(&mut self, name: &str, a: &Value, b: &Value) -> Value {
        self.binary(name, "Power", a, b, a.kind)
    }

    pub(crate) fn less_equal(&mut self, name: &str, a: &Value, b: &Value) -> Value {
        self.binary(name, "LessEqual", a, b, Kind::Bool)
    }

    pub(crate) fn greater(&mut self, name: &str, a: &Value, b: &Value) -> Value {
        self.binary(name, "Greater", a, b, Kind::Bool)
    }

    pub(crate) fn not_equal(&mut self, name: &str, a: &Value, b: &Value) -> Value {
        self.binary(name, "NotEqual", a, b, Kind::Bool)
    }

    pub(crate) fn bitwise_and(&mut self, name: &str, a: &Value, b: &Value) -> Value {
        self.binary(name, "BitwiseAnd@opset13", a, b, a.kind)
    }

    /// `yes` where the condition holds, else `no`.
    pub(crate) fn select(&mut self, name: &str, condition: &Value, yes: &Value, no: &Value) -> Value {
        let dims = broadcast(&condition.dims, &broadcast(&yes.dims, &no.dims));
        self.op(name, "Select", NUMPY, &[condition, yes, no], yes.kind, dims)
    }

    /// An operation on each element: `Sqrt`, `Cos`, `Tanh`, `Swish@opset4`, ...
    pub(crate) fn unary(&mut self, name: &str, op: &str, x: &Value) -> Value {
        self.op(name, op, &[], &[x], x.kind, x.dims.clone())
    }

    pub(crate) fn gelu_tanh(&mut self, name: &str, x: &Value) -> Value {
        let attributes = [("approximation_mode", "TANH")];
        self.op(name, "Gelu@opset7", &attributes, &[x], x.kind, x.dims.clone())
    }

    pub(crate) fn softmax(&mut self, name: &str, x: &Value) -> Value {
        self.op(name, "SoftMax@opset8", &[("axis", "-1")], &[x], x.kind, x.dims.clone())
    }

    pub(crate) fn convert(&mut self, name: &str, x: &Value, kind: Kind) -> Value {
        self.op(name, "Convert", &[("destination_type", kind.name())], &[x], kind, x.dims.clone())
    }

    /// The mean over the last axis, which stays with length one.
    pub(crate) fn mean(&mut self, name: &str, x: &Value) -> io::Result<Value> {
        let axis = self.i64s(&format!("{name}/axis"), &[-1])?;
        let mut dims = x.dims.clone();
        if let Some(last) = dims.last_mut() {
            *last = 1;
        }
        Ok(self.op(name, "ReduceMean", &[("keep_dims", "true")], &[x, &axis], x.kind, dims))
    }

    /// A new shape; 0 keeps a dimension, -1 takes what is left.
    pub(crate) fn reshape(&mut self, name: &str, x: &Value, to: &[i64]) -> io::Result<Value> {
        let shape = self.i64s(&format!("{name}/shape"), to)?;
        let kept = |(at, dim): (usize, &i64)| if *dim == 0 { x.dims[at] } else { *dim };
        let dims = to.iter().enumerate().map(kept).collect();
        Ok(self.op(name, "Reshape", &[("special_zero", "true")], &[x, &shape], x.kind, dims))
    }

    pub(crate) fn transpose(&mut self, name: &str, x: &Value, order: &[i64]) -> io::Result<Value> {
        let permutation = self.i64s(&format!("{name}/order"), order)?;
        let dims = order.iter().map(|at| x.dims[*at as usize]).collect();
        Ok(self.op(name, "Transpose", &[], &[x, &permutation], x.kind, dims))
    }

    /// New axes of length one, given by their place in the result.
    pub(crate) fn unsqueeze(&mut self, name: &str, x: &Value, axes: &[i64]) -> io::Result<Value> {
        let places = self.i64s(&format!("{name}/axes"), axes)?;
        let mut dims = x.dims.clone();
        for axis in axes {
            dims.insert(*axis as usize, 1);
        }
        Ok(self.op(name, "Unsqueeze", &[], &[x, &places], x.kind, dims))
    }

    pub(crate) fn concat(&mut self, name: &str, parts: &[&Value], axis: i64) -> Value {
        let rank = parts[0].dims.len() as i64;
        let at = if axis < 0 { axis + rank } else { axis } as usize;
        let mut dims = parts[0].dims.clone();
        let sum = parts.iter().try_fold(0, |sum, part| (part.dims[at] != ANY).then_some(sum + part.dims[at]));
        dims[at] = sum.unwrap_or(ANY);
        self.op(name, "Concat", &[("axis", &axis.to_string())], parts, parts[0].kind, dims)
    }

    /// Elements `from..to` along an axis of known length.
    pub(crate) fn slice(
        &mut self,
        name: &str,
        x: &Value,
        axis: i64,
        from: i64,
        to: i64,
    ) -> io::Result<Value> {
        let from_value = self.i64s(&format!("{name}/from"), &[from])?;
        let to_value = self.i64s(&format!("{name}/to"), &[to])?;
        let mut dims = x.dims.clone();
        dims[axis as usize] = to - from;
        self.slice_to(name, x, &from_value, &to_value, axis, dims)
    }

    /// Elements up to a bound that is computed.
    pub(crate) fn slice_until(&mut self, name: &str, x: &Value, axis: i64, to: &Value) -> io::Result<Value> {
        let from = self.i64s(&format!("{name}/from"), &[0])?;
        let mut dims = x.dims.clone();
        dims[axis as usize] = ANY;
        self.slice_to(name, x, &from, to, axis, dims)
    }

    fn slice_to(
        &mut self,
        name: &str,
        x: &Value,
        from: &Value,
        to: &Value,
        axis: i64,
        dims: Vec<i64>,
    ) -> io::Result<Value> {
        let step = self.i64s(&format!("{name}/step"), &[1])?;
        let axis = self.i64s(&format!("{name}/axis"), &[axis])?;
        Ok(self.op(name, "Slice@opset8", &[], &[x, from, to, &step, &axis], x.kind, dims))
    }

    /// Rows of a table, or another part along the first axis.
    pub(crate) fn gather(&mut self, name: &str, table: &Value, indices: &Value) -> io::Result<Value> {
        let axis = self.i64(&format!("{name}/axis"), 0)?;
        let dims = indices.dims.iter().chain(&table.dims[1..]).copied().collect();
        let attributes = [("batch_dims", "0")];
        Ok(self.op(name, "Gather@opset8", &attributes, &[table, indices, &axis], table.kind, dims))
    }

    /// The length along an axis, as a list of one.
    pub(crate) fn length(&mut self, name: &str, x: &Value, axis: i64) -> io::Result<Value> {
        let shape_name = format!("{name}/shape");
        let rank = x.dims.len() as i64;
        let attributes = [("output_type", "i64")];
        let shape = self.op(&shape_name, "ShapeOf@opset3", &attributes, &[x], Kind::I64, vec![rank]);
        let at = self.i64s(&format!("{name}/at"), &[axis])?;
        self.gather(name, &shape, &at)
    }

    /// The only element of a list as a scalar.
    pub(crate) fn scalar(&mut self, name: &str, x: &Value) -> io::Result<Value> {
        let axis = self.i64s(&format!("{name}/axis"), &[0])?;
        Ok(self.op(name, "Squeeze", &[], &[x, &axis], x.kind, Vec::new()))
    }

    /// `0, 1, ..., end - 1`.
    pub(crate) fn range(&mut self, name: &str, end: &Value) -> io::Result<Value> {
        let zero = self.i64(&format!("{name}/zero"), 0)?;
        let one = self.i64(&format!("{name}/one"), 1)?;
        let attributes = [("output_type", "i64")];
        Ok(self.op(name, "Range@opset4", &attributes, &[&zero, end, &one], Kind::I64, vec![ANY]))
    }

    /// `x` repeated to fill a shape that is computed; `dims` is what is known of it.
    pub(crate) fn broadcast(
        &mut self,
        name: &str,
        x: &Value,
        to: &Value,
        mode: &str,
        dims: Vec<i64>,
    ) -> Value {
        self.op(name, "Broadcast@opset3", &[("mode", mode)], &[x, to], x.kind, dims)
    }

    /// `a · b`, or `a · bᵀ` of matrices in the last two axes.
    pub(crate) fn matmul(&mut self, name: &str, a: &Value, b: &Value, transposed: bool) -> Value {
        let attributes =
            [("transpose_a", "false"), ("transpose_b", if transposed { "true" } else { "false" })];
        let rank = a.dims.len();
        let mut dims = a.dims.clone();
        dims[rank - 1] = b.dims[b.dims.len() - if transposed { 2 } else { 1 }];
        self.op(name, "MatMul", &attributes, &[a, b], a.kind, dims)
    }

    /// Attention over all heads; `scale` where it is not one over the root of the head's width.
    pub(crate) fn attention(
        &mut self,
        name: &str,
        [query, key, value, mask]: [&Value; 4],
        scale: Option<f32>,
    ) -> io::Result<Value> {
        let scale = scale.map(|scale| self.f32(&format!("{name}/scale"), scale)).transpose()?;
        let inputs: Vec<&Value> = [query, key, value, mask].into_iter().chain(scale.as_ref()).collect();
        let op = "ScaledDotProductAttention@opset13";
        Ok(self.op(name, op, &[("causal", "false")], &inputs, Kind::F32, query.dims.clone()))
    }

    /// What a variable holds, at first `initial`.
    pub(crate) fn read_variable(&mut self, name: &str, id: &str, initial: &Value) -> Value {
        let shape = list(&initial.dims);
        let attributes =
            [("variable_id", id), ("variable_type", initial.kind.name()), ("variable_shape", &shape)];
        let dims = initial.dims.clone();
        self.op(name, "ReadValue@opset6", &attributes, &[initial], initial.kind, dims)
    }

    /// Keeps a value in a variable for the next inference.
    pub(crate) fn assign_variable(&mut self, name: &str, id: &str, value: &Value) {
        let shape = list(&value.dims);
        let attributes =
            [("variable_id", id), ("variable_type", value.kind.name()), ("variable_shape", &*shape)];
        self.layer(&Layer {
            name,
            op: "Assign",
            opset: "opset6",
            attributes: &attributes,
            inputs: &[value],
            output: None,
        });
    }
}

/// The shape of an operation on elements; 1 gives way, and the unknown to what is known.
fn broadcast(a: &[i64], b: &[i64]) -> Vec<i64> {
    let rank = a.len().max(b.len());
    let at = |dims: &[i64], i: usize| if i + dims.len() < rank { 1 } else { dims[i + dims.len() - rank] };
    (0..rank)
        .map(|i| match (at(a, i), at(b, i)) {
            (1, dim) | (dim, 1) => dim,
            (ANY, dim) | (dim, _) => dim,
        })
        .collect()
}
