"""Operations on arrays of a batch as PyTorch computes them, for src/graph/host.

  pip install torch numpy
  graph_host_torch.py     writes tests/data/own_models/host/operations.pt2, a module without parameters that has every
                          operation which is evaluated on the host, and operations.npz, its inputs and outputs

The module is exported with a dynamic batch, and the outputs are those of another batch size than the export's. They are
stored one after the other, without shapes, in three arrays: those of f64, of other floats as f32, and all others as i64.
"""

import pathlib
import sys

import numpy
import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from own_models_torch import TEST_DATA, shorten  # noqa: E402

aten = torch.ops.aten


class Operations(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("table", torch.randn(7, 3))
        self.register_buffer("odd", torch.tensor([1.5, -0.0, float("inf"), float("-inf"), float("nan"), -2.5]))

    def forward(self, ids, mask, x, half):
        """ids i64 [b, 6], mask bool [b, 6], x f32 [b, 4, 6], half bf16 [b, 6]"""
        return (self.comparisons(ids, mask, x) + self.arithmetic(ids, x, half) + self.functions(x, half)
                + self.types(ids, mask, x, half) + self.choices(ids, mask, x) + self.views(ids, x)
                + self.writes(ids, x) + self.indices(ids, mask, x) + self.reductions(ids, mask, x, half)
                + self.makers(ids, x) + self.masks(ids, mask, x) + self.products(ids, x))

    def comparisons(self, ids, mask, x):
        odd, small = self.odd, ids.to(torch.int32)
        return [ids == 3, ids != small, ids[:, None] < ids[:, :, None], ids <= 2, x > 0.25, x >= x[:, :1], ids > 2.5, ids >= 4,
                odd == odd, odd < 0, odd >= odd[:, None], torch.isnan(odd), torch.isinf(odd), torch.isnan(ids),
                aten.eq.Tensor(x, x[0, 0, 0]), aten.ge.Tensor(ids, small), aten.le.Tensor(mask, ids),
                aten.gt.Tensor(ids, small), aten.lt.Scalar(mask, 1), aten.ne.Scalar(x, 0), mask & (ids > 1),
                ids & 5, ids | 2, aten.bitwise_or(ids, small), aten.bitwise_and(mask, mask[:, :1]), mask | mask[:, :1],
                ~mask, ~ids, torch.logical_and(ids, mask), torch.logical_or(ids, x[:, 0]), torch.logical_not(x)]

    def arithmetic(self, ids, x, half):
        odd, small = self.odd, ids.to(torch.int8)
        return [x + ids[:, None], torch.add(x, x[:, :1], alpha=-2), torch.add(ids, ids, alpha=3), x + 1, ids - 0.5,
                aten.add.Scalar(x, 2, 3), aten.sub.Scalar(ids, 2), aten.rsub.Scalar(ids, 2, 3),
                aten.rsub.Tensor(x, x[:, :1]), torch.sub(x, x[0, 0, 0].double(), alpha=0.5), 1 - x,
                aten.mul.Scalar(x, 1.1), x * 1.1, ids * ids[:, :1], half * x[:, 0], half * 1.5, half + half,
                small * 100, small.to(torch.uint8) + 200, ids / 4, ids / ids[:, :1], aten.div.Scalar(x, 3), ids % -4, (ids - 4) % 3, x % -0.7, 3.0 ** x, 2.0 ** ids,
                x ** 2, ids ** 3, x.abs() ** 0.5, x.abs() ** 1.7, x.abs() ** -1, torch.minimum(odd, odd[:, None]),
                torch.maximum(odd, odd[:, None]), torch.min(ids, small), torch.max(x, ids[:, None]),
                odd.clamp(-1, 2), x.clamp(min=0.1), ids.clamp(1, 3), ids.clamp(1.5), aten.clamp_min(odd, 0),
                aten.clamp_max(odd, 1), -ids, -x, ids.abs(), odd.abs()]

    def functions(self, x, half):
        positive = x.abs() + 0.1
        return [positive.log(), positive.log1p(), x.exp(), positive.sqrt(), positive.rsqrt(), positive.reciprocal(),
                x.square(), x.cos(), x.sin(), x.erf(), x.tanh(), x.sigmoid(), x.relu(), F.silu(x), F.gelu(x),
                F.gelu(x, approximate="tanh"), half.exp(), half.to(torch.float16).cos(), x.double().sin(),
                self.odd.relu(), self.odd.sqrt()]

    def types(self, ids, mask, x, half):
        return [x.to(torch.int64), (x * 300).to(torch.int16), ids.to(torch.float64), ids.bool(), x.bool(),
                mask.float(), mask.long(), x.to(torch.bfloat16), x.to(torch.float16), half.float(), half.double(),
                (ids * 77).to(torch.int8), (ids * 77).to(torch.uint8), ids.to(torch.uint16), ids.type_as(x),
                x.detach() + 1, F.dropout(x, 0.5, False), torch.dropout(x, 0.0, True), aten.to.dtype(ids, torch.int32)]

    def choices(self, ids, mask, x):
        cut = mask[:, None]
        return [torch.where(cut, x, x[:, :1]), torch.where(mask, ids, 0.5), torch.where(mask, -1, ids),
                torch.where(mask[:, :1], ids, ids + 1), x.masked_fill(cut, float("-inf")), ids.masked_fill(mask, -100),
                x.masked_fill(cut, x[0, 0, 0]), torch.where(cut, torch.tensor(0.0), float("-inf"))]

    def views(self, ids, x):
        b = x.shape[0]
        whole = [x.view(b, 24), x.reshape(4 * b, 6), x.flatten(), x.flatten(1), x.unsqueeze(-1), ids[:, :1].squeeze(1),
                 x.transpose(1, 2), x.transpose(0, 2), x[0].t(), x.permute(2, 0, 1), ids[:, None].expand(b, 4, 6),
                 ids[:, None].expand_as(x), x[:, 1:3], x[:, :, ::2], x[:, :, -4:-1], x[:, 5:], x[:, -1], x[:, :, 2],
                 ids.repeat(2, 3), ids.repeat(2, 1, 2), torch.cat([x, ids[:, None]], 1), torch.cat([ids, ids], -1),
                 torch.stack([ids, ids + 1], 1), torch.stack([x, x], -1), F.pad(x, (1, 2)), F.pad(ids, (2, -1), value=-100),
                 F.pad(x, (0, 0, 1, 1), value=0.5), F.pad(ids, (-2, 0)), aten.tril(x), aten.triu(x, 1), x.tril(-1),
                 torch.ones(4, 6, dtype=torch.bool).triu(2), ids.transpose(0, 1)[None].transpose(0, 2)]
        return whole + list(x.split(4, 2)) + list(x.chunk(3, 2)) + list(x.split([1, 3], 1)) + list(x.unbind(1))

    def writes(self, ids, x):
        a, b, c, d, e, f = x.clone(), x.clone(), ids.clone(), ids.clone(), x.clone(), x.clone()
        a[:, 1:3] = x[:, :2] * 2
        b[:, 2] = 7
        c[:, 1:] = ids[:, :-1]
        c[:, 0] = 1
        d.zero_()
        e.fill_(2.5)
        f[:, :, ::2].fill_(x[0, 0, 0])
        g = x.clone()
        g.copy_(ids[:, :1, None])
        h = x.clone()
        h.fill_(x[0, 0, 1])
        return [a, b, c, d, e, f, g, h]

    def indices(self, ids, mask, x):
        rows, columns = torch.arange(ids.shape[0])[:, None, None, None], torch.arange(6)
        return [mask[rows, columns], ids[rows, columns[None, None, :, None]], x[:, :, ids % 5], x[:, torch.tensor([0, -1])],
                x[:, torch.tensor([3, 1]), torch.tensor([5, 0])], x[torch.tensor(0), :, torch.tensor([1, 2])],
                x.index_select(2, columns[1:3]), x.gather(2, (ids % 6)[:, None].expand(-1, 4, -1)),
                ids.gather(0, ids[:1] % 2), F.embedding(ids % 7, self.table), self.table[ids % 7],
                x[ids[:, :1] % 2, 1]]

    def reductions(self, ids, mask, x, half):
        return [ids.sum(), x.sum(), mask.sum(), x.sum((0, 2)), x.sum(1, keepdim=True), ids.sum(-1), half.sum(-1),
                mask.sum(1, dtype=torch.float32), x.mean(), x.mean(1), x.mean((1, 2), keepdim=True), mask.any(), mask.all(),
                mask.any(1), mask.all(1, keepdim=True), ids.any(), (ids > -1).all(0), x.argmax(), x.argmax(1), ids.argmax(-1, keepdim=True),
                self.odd.argmax(), ids.cumsum(1), x.cumsum(1), mask.cumsum(-1), half.cumsum(0), x.softmax(-1), x.softmax(1),
                F.softmax(ids, 1, dtype=torch.float32), x.log_softmax(-1), ids.diff(), x.diff(n=2, dim=2), mask.diff(dim=1),
                ids.diff(prepend=ids[:, :1] - 1, append=ids[:, :2])]

    def makers(self, ids, x):
        b = x.shape[0]
        return [torch.arange(5), torch.arange(b), torch.arange(2, 7), torch.arange(0, 8, 3), torch.arange(1, 0, -0.25),
                torch.arange(0, 6, 2, dtype=torch.int64).float(), torch.zeros(b, 2), torch.ones(2, b, dtype=torch.int64),
                torch.full((b, 2), float("-inf")), torch.full((2,), 3), torch.zeros_like(ids), torch.ones_like(x[0]),
                torch.full_like(ids, 9), x.new_zeros(2, 3), ids.new_ones(b), x.new_full((2,), 1.5),
                aten.scalar_tensor(2.5), torch.arange(3, dtype=torch.float64), torch.full((2,), True)]

    def masks(self, ids, mask, x):
        """Masks and positions as models make them."""
        positions = (mask.cumsum(1) - 1).masked_fill(mask == 0, 1)
        causal = torch.arange(6)[:, None] >= torch.arange(6)
        both = causal[None, None] & mask[:, None, None, :]
        additive = torch.where(both, 0.0, torch.finfo(torch.float32).min)
        distance = torch.arange(6)[None] - torch.arange(6)[:, None]
        near = -torch.min(distance, torch.zeros_like(distance))
        far = 2 + (torch.log(near.float() / 2) / 3.0 * 2).to(torch.int64)
        bucket = torch.where(near < 2, near, torch.min(far, torch.full_like(far, 3)))
        return [positions, both, additive, bucket]

    def products(self, ids, x):
        frequencies = 1.0 / (100.0 ** (torch.arange(0, 6, 2, dtype=torch.int64).float() / 6))
        angles = (frequencies[None, :, None].expand(ids.shape[0], -1, 1) @ ids[:, None].float()).transpose(1, 2)
        return [angles.cos(), torch.cat([angles, angles], -1).sin(), torch.bmm(x, x.transpose(1, 2)), torch.mm(ids, ids.t()),
                x @ x[0, 0], x[0, 0] @ x.transpose(1, 2), x @ self.table[:6], x[0, 0] @ x[0, 1]]


def arrays(batch):
    ids = torch.randint(0, 9, (batch, 6))
    mask = torch.rand(batch, 6) < 0.6
    mask[:, 0] = True
    return ids, mask, torch.randn(batch, 4, 6), torch.randn(batch, 6).to(torch.bfloat16)


def elements(outputs, dtype, belongs):
    """The elements of the outputs whose type belongs to an array of this type, in the order of the outputs."""
    return torch.cat([output.detach().to(dtype).flatten() for output in outputs if belongs(output.dtype)]).numpy()


def main():
    torch.manual_seed(11)
    folder = TEST_DATA / "host"
    folder.mkdir(parents=True, exist_ok=True)
    model = Operations()
    batch = {0: torch.export.Dim("batch", min=2)}
    program = torch.export.export(model, arrays(2), dynamic_shapes=(batch,) * 4, strict=False)
    torch.export.save(program, folder / "operations.pt2")
    shorten(folder / "operations.pt2")
    given = arrays(3)
    outputs = program.module()(*given)
    content = {f"input{i}": (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()
               for i, tensor in enumerate(given)}
    content["f64"] = elements(outputs, torch.float64, lambda dtype: dtype == torch.float64)
    content["f32"] = elements(outputs, torch.float32, lambda dtype: dtype.is_floating_point and dtype != torch.float64)
    content["i64"] = elements(outputs, torch.int64, lambda dtype: not dtype.is_floating_point)
    numpy.savez_compressed(folder / "operations.npz", **content)
    print(sorted({str(node.target) for node in program.graph.nodes if node.op == "call_function"}))
    print(len(outputs), "outputs", *(f"{path.name} {path.stat().st_size}" for path in sorted(folder.iterdir())))


if __name__ == "__main__":
    main()
