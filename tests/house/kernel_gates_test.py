"""tools/kernel_gates.py finds kernels that are worse than their row. The kernels are compiled here, so it needs nvcc.

usage: kernel_gates_test.py NVCC (may be empty)
"""
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import kernel_gates as gates  # noqa: E402

NVCC = ""

SOURCE = """
namespace {
// Four packs asked for, then used; Wait: each before the next.
template <bool Wait>
__global__ void __launch_bounds__(256) stream(float4* to, const float4* from) {
  float4 sum{};
  float4 pack[4];
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    pack[k] = from[threadIdx.x + 256 * k];
    if (Wait) {
      sum.x += pack[k].x;
      to[threadIdx.x + 256 * k] = sum;
    }
  }
#pragma unroll
  for (int k = 0; k < 4; ++k) sum.x += pack[k].x * pack[k].y + pack[k].z * pack[k].w;
  to[threadIdx.x] = sum;
}
// An array whose places are known only when it runs is memory.
__global__ void __launch_bounds__(256) on_stack(int* to, const int* from) {
  int list[32];
  for (int i = 0; i < 32; ++i) list[i] = from[i];
  for (int i = 0; i < 32; ++i) list[from[i] & 31] += i;
  to[threadIdx.x] = list[to[threadIdx.x] & 31];
}
__global__ void __launch_bounds__(256) crowded(int* to) {
  __shared__ int tile[8192];
  for (int i = threadIdx.x; i < 8192; i += 256) tile[i] = to[i];
  __syncthreads();
  to[threadIdx.x] = tile[8191 - threadIdx.x];
}
}  // namespace
void launch(float4* to, float4* from, int* numbers) {
  stream<false><<<1, 256>>>(to, from);
  stream<true><<<1, 256>>>(to, from);
  on_stack<<<1, 256>>>(numbers, numbers);
  crowded<<<1, 256>>>(numbers);
}
"""

RIGHT = """
probe stream<false> 256 32     0   0 4
probe stream<true>  256 32     0   0 1
probe on_stack      256 32     0 128 -
probe crowded       256 48 33792   0 -   # six blocks
count probe stream<*> sm_90a BAR 0
count probe crowded   sm_90a BAR 1
"""


class KernelGates(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        tools = {name: gates.find_tool(name) for name in ("cuobjdump", "nvdisasm", "readelf")}
        if not NVCC or None in tools.values():
            raise unittest.SkipTest("nvcc, cuobjdump, nvdisasm and readelf are needed")
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        (cls.folder / "probe.cu").write_text(SOURCE)
        subprocess.run([NVCC, "-shared", "-Xcompiler", "-fPIC", "-gencode", "arch=compute_90a,code=sm_90a", "-o",
                        "probe.so", "probe.cu"], cwd=cls.folder, check=True)

    def broken(self, table):
        path = self.folder / "gates.txt"
        path.write_text(table)
        done = subprocess.run([sys.executable, ROOT / "tools/kernel_gates.py", "--gates", path, self.folder / "probe.so"],
                              capture_output=True, text=True)
        lines = done.stdout.splitlines()[:-1]
        self.assertEqual(done.returncode, 1 if lines else 0, done.stdout + done.stderr)
        return lines

    def test_figures_of_the_table_pass(self):
        self.assertEqual(self.broken(RIGHT), [])

    def test_each_worse_kernel_is_named(self):
        for before, after, said in (
                ("stream<true>  256 32     0   0 1", "stream<true> 256 32 0 0 4",
                 "stream<true>, sm_90a: 1 16-byte loads in flight, at least 4 are wanted"),
                ("0 128 -", "0 0 -", "on_stack, sm_90a: 128 bytes of stack"),
                ("256 48 33792", "256 56 33792", "crowded, sm_90a: 48 warps at a time, at least 56 are wanted"),
                ("crowded   sm_90a BAR 1", "crowded   sm_90a BAR 2", "crowded, sm_90a: BAR occurs 1 time(s), expected 2"),
                ("33792", "32768", "crowded, sm_90a: 33792 bytes of shared memory, at most 32768")):
            with self.subTest(said=said):
                self.assertIn(before, RIGHT)
                lines = self.broken(RIGHT.replace(before, after))
                self.assertEqual(len(lines), 1, lines)
                self.assertIn(said, lines[0])

    def test_rows_and_kernels_belong_together(self):
        lines = self.broken(RIGHT.replace("probe crowded", "probe lonely"))
        self.assertEqual(len(lines), 3)
        self.assertIn("crowded, sm_90a: no gate; enter the kernel in", lines[0])
        self.assertIn("lonely: no kernel in the module matches this row, for sm_90a", lines[1])
        self.assertIn("lonely: no kernel in the module", lines[2])


if __name__ == "__main__":
    NVCC = sys.argv[1] if len(sys.argv) > 1 else ""
    unittest.main(argv=sys.argv[:1])
