"""Training speed of DLRM in PyTorch: `dlrm_torch.py bench`.

Trains the Kaggle configuration of the reference implementation (33.8 million rows of 16 numbers, 13-512-256-64-16,
512-256-1, one id a table) with sparse gradients and SGD in f32 on random ids, and prints samples per second. Debian's
PyTorch takes the matrix products of the system's BLAS: with the reference BLAS it is twenty times slower than with
libopenblas0-pthread, so the rate of a product is printed too. --also COMMAND runs that command next, on the same cores:
Trifold's run of the same configuration. PyTorch's batches are complete tensors in memory before the clock starts. So
that neither side pays for generating ids, --write FILE puts the same samples into a file of MLPerf records (160 bytes
each), which that command reads, shuffles and checks while the clock runs.
"""

import array
import shlex
import subprocess
import time

import torch
import torch.nn.functional as F

KAGGLE_ROWS = [1460, 583, 10131227, 2202608, 305, 24, 12517, 633, 3, 93145, 5683, 8351593, 3194, 27, 14992, 5461306, 10,
               5652, 2173, 4, 7046547, 18, 15, 286181, 105, 142572]


class KaggleDlrm(torch.nn.Module):
    def __init__(self, rows, dim):
        super().__init__()
        self.tables = torch.nn.ModuleList(torch.nn.EmbeddingBag(n, dim, mode="sum", sparse=True) for n in rows)
        for table, n in zip(self.tables, rows):
            torch.nn.init.uniform_(table.weight, -n ** -0.5, n ** -0.5)
        vectors = len(rows) + 1
        self.bottom = self.mlp([13, 512, 256, 64, dim], True)
        self.top = self.mlp([dim + vectors * (vectors - 1) // 2, 512, 256, 1], False)
        self.lower = torch.tril_indices(vectors, vectors, -1)

    @staticmethod
    def mlp(widths, last_relu):
        layers = []
        for inputs, outputs in zip(widths, widths[1:]):
            layers += [torch.nn.Linear(inputs, outputs), torch.nn.ReLU()]
        return torch.nn.Sequential(*(layers if last_relu else layers[:-1]))

    def forward(self, dense, ids, offsets):
        x = self.bottom(dense)
        stack = torch.stack([x] + [table(of, offsets) for table, of in zip(self.tables, ids)], dim=1)
        products = torch.bmm(stack, stack.transpose(1, 2))
        return self.top(torch.cat([x, products[:, self.lower[0], self.lower[1]]], dim=1)).squeeze(1)


def zipf_ids(rows, count, exponent):
    """The law of Trifold's synthetic clicks: a bounded power law by inversion."""
    u = torch.rand(count, dtype=torch.float64)
    if exponent == 0:
        return (u * rows).long().clamp(max=rows - 1)
    top = (rows + 1) ** (1 - exponent) - 1
    ranks = ((1 + u * top) ** (1 / (1 - exponent)) - 1).long().clamp(0, rows - 1)
    return (ranks * 2654435761 + rows // 3) % rows


def write_records(path, batches):
    """Samples as MLPerf's .bin has them: 40 little-endian i32, the label, 13 counts, 26 ids."""
    with open(path, "wb") as file:
        for counts, ids, labels in batches:
            records = torch.cat([labels.int().unsqueeze(1), counts.int(), torch.stack(ids, dim=1).int()], dim=1)
            file.write(array.array("i", records.flatten().tolist()).tobytes())


def bench(options):
    if options.threads:
        torch.set_num_threads(options.threads)
    torch.manual_seed(1)
    rows = [min(n, options.max_rows) for n in KAGGLE_ROWS]
    model = KaggleDlrm(rows, 16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    offsets = torch.arange(options.batch)
    batches = [(torch.randint(0, 100, (options.batch, 13)), [zipf_ids(n, options.batch, options.zipf) for n in rows],
                torch.randint(0, 2, (options.batch,)).float()) for _ in range(options.batches)]
    if options.write:
        write_records(options.write, batches)
    batches = [(torch.log1p(counts.float()), ids, labels) for counts, ids, labels in batches]

    def step(number):
        dense, ids, labels = batches[number % len(batches)]
        optimizer.zero_grad(set_to_none=True)
        loss = F.binary_cross_entropy_with_logits(model(dense, ids, offsets), labels)
        loss.backward()
        optimizer.step()
        return loss.item()

    def gemm_gflops(size=1024, repeats=4):
        a, b = torch.rand(size, size), torch.rand(size, size)
        a @ b
        begin = time.perf_counter()
        for _ in range(repeats):
            a @ b
        return 2e-9 * repeats * size**3 / (time.perf_counter() - begin)

    for number in range(3):
        step(number)
    rates = []
    for _ in range(3):
        start = time.perf_counter()
        for number in range(options.steps):
            step(number)
        rates.append(options.steps * options.batch / (time.perf_counter() - start))
    print(f"PyTorch {torch.__version__}, {torch.get_num_threads()} threads, batch {options.batch}, Zipf {options.zipf}: "
          f"{max(rates):.0f} samples/s (three runs: {', '.join(f'{rate:.0f}' for rate in rates)}); "
          f"matrix product {gemm_gflops():.0f} GFLOP/s", flush=True)
    if options.also:
        subprocess.run(shlex.split(options.also), check=True)
