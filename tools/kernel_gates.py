#!/usr/bin/env python3
"""Checks the machine code of every CUDA kernel against the table of gates, tests/cuda/kernel_gates.txt.

usage: kernel_gates.py [--list] [--resources-only] [--gates FILE] MODULE

MODULE is a built trifold_cuda.so. For each kernel and architecture in it: registers and shared memory determine the
warps per multiprocessor, the stack must be as small as the table says, and for streaming kernels the disassembly gives
the number of a thread's 16-byte loads that are issued before the first is used. Rows that begin with "count" say how
often an instruction is in a kernel's code. A kernel without a row fails, and so does a row without a kernel.
--list prints the values of each row's kernels; --resources-only skips the disassembly.

cuobjdump and nvdisasm of CUDA 12.8 or newer are looked for on PATH, in /usr/local/cuda/bin, in build/kernel_tools, where
tests/run.sh installs them, and among Python's packages (pip install nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm).
Exit status: 1 if a gate is broken; 0 otherwise, also if the check reports that it was skipped.
"""
import argparse
import collections
import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile

from kernel_resources import readable

ROOT = pathlib.Path(__file__).resolve().parents[1]
GATES = ROOT / "tests/cuda/kernel_gates.txt"

# Of a multiprocessor, by architecture: bytes of shared memory, and how many each block takes in addition to its own.
# (From 9.0 on cuobjdump counts the latter among its own.) All have 65536 registers and hold 64 warps and 32 blocks.
SHARED = {"sm_80": (164 << 10, 1024), "sm_90a": (228 << 10, 0), "sm_100": (228 << 10, 0)}
REGISTERS, MOST_WARPS, MOST_BLOCKS = 65536, 64, 32

Row = collections.namedtuple("Row", "file kernel threads warps shared stack loads")
Count = collections.namedtuple("Count", "file kernel architecture instruction times")
Kernel = collections.namedtuple("Kernel", "architecture symbol file name registers stack shared local")


def find_tool(name):
    places = [os.environ.get("PATH", ""), "/usr/local/cuda/bin"]
    for packages in (ROOT / "build/kernel_tools", pathlib.Path(sysconfig.get_paths()["purelib"])):
        places += map(str, packages.glob("nvidia/*/bin"))
    return shutil.which(name, path=os.pathsep.join(places))


def output(*command, **how):
    return subprocess.run(command, check=True, capture_output=True, text=True, **how).stdout


def read_gates(path):
    """The rows of kernels, and those of counts."""
    rows, counts = [], []
    for line in path.read_text().splitlines():
        words = line.split("#")[0].split()
        if words and words[0] == "count":
            counts.append(Count(words[1], "".join(words[2:-3]), *words[-3:-1], int(words[-1])))
        elif words:
            numbers = [None if word == "-" else int(word) for word in words[-5:]]
            rows.append(Row(words[0], "".join(words[1:-5]), *numbers))
    return rows, counts


def fits(name, pattern):
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), name) is not None


def read_kernels(cuobjdump, module):
    found, architecture, symbol = [], None, None
    for line in output(cuobjdump, "-res-usage", module).splitlines():
        if match := re.match(r"arch = (\w+)", line):
            architecture = match[1]
        elif match := re.match(r"\s*Function (\S+):", line):
            symbol = match[1]
        elif match := re.match(r"\s*REG:(\d+) STACK:(\d+) SHARED:(\d+) LOCAL:(\d+)", line):
            found.append((architecture, symbol, *map(int, match.groups())))
    names = readable(sorted({symbol for _, symbol, *_ in found}))
    for architecture, symbol, registers, stack, shared, local in found:
        file = re.search(r"_GLOBAL__N__[0-9a-f]+_\d+_(\w+?)_cu_", symbol)
        yield Kernel(architecture, symbol, file[1] if file else "?", names[symbol].replace(" ", ""), registers, stack,
                     shared, local)


def resident_warps(kernel, threads):
    """Warps that a multiprocessor holds at a time, of blocks of so many threads."""
    of_block = -(-threads // 32)
    registers = -(-kernel.registers * 32 // 256) * 256  # of a warp: given out by 256
    total, besides = SHARED[kernel.architecture]
    blocks = min(REGISTERS // registers // of_block, MOST_WARPS // of_block, MOST_BLOCKS)
    if kernel.shared:
        blocks = min(blocks, total // (kernel.shared + besides))
    return blocks * of_block


def instructions(code):
    """(predicate or None, operation, operands) of each instruction."""
    for line in code:
        if match := re.match(r"\s+/\*[0-9a-f]+\*/\s+(@\S+\s+)?(\S+)\s*(.*?)\s*;", line):
            yield match.groups()


def loads_in_flight(code):
    """The most 16-byte loads of global memory that are asked for before one of them is used."""
    pending, most = {}, 0  # registers of each load
    for predicate, operation, operands in instructions(code):
        named = {int(number) for number in re.findall(r"\bR(\d+)\b", operands)}
        wide = re.match(r"LDG\S*\.(128|256)\b", operation)
        first = int(re.match(r"(?:\S+,\s*)??R(\d+)", operands)[1]) if wide else None
        pending = {load: registers for load, registers in pending.items() if not registers & named}
        if operation in ("BRA", "EXIT", "RET", "BRX") and not predicate:
            pending = {}
        if wide:
            count = int(wide[1]) // 32
            for part in range(0, count, 4):
                pending[first + part] = set(range(first + part, first + part + 4))
            most = max(most, len(pending))
    return most


def disassemble(tools, module, wanted):
    """{(architecture, symbol): lines of code} of the wanted kernels."""
    result = {}
    with tempfile.TemporaryDirectory() as folder:
        output(tools["cuobjdump"], "-xelf", "all", os.path.abspath(module), cwd=folder)
        for cubin in sorted(pathlib.Path(folder).iterdir()):
            architecture = cubin.name.split(".")[-2]
            index_of = {}
            for line in output("readelf", "-sW", str(cubin)).splitlines():
                words = line.split()
                if len(words) > 7 and (architecture, words[-1]) in wanted:
                    index_of[words[-1]] = words[0].rstrip(":")
            if not index_of:
                continue
            text = output(tools["nvdisasm"], "-c", "-ndf", "-fun", ",".join(index_of.values()), str(cubin))
            for section in re.split(r"^\s*\.section\s+", text, flags=re.MULTILINE)[1:]:
                symbol = re.match(r"\.text\.([^,\s]+)", section)
                if symbol:
                    result[architecture, symbol[1]] = section.splitlines()
    return result


def broken_counts(counts, kernels, code):
    for count in counts:
        counted = [kernel for kernel in kernels if kernel.file == count.file and fits(kernel.name, count.kernel)
                   and kernel.architecture == count.architecture]
        if not counted:
            yield f"{count.file}: {count.kernel}: no kernel in the module matches this row, for {count.architecture}"
        for kernel in counted:
            lines = code.get((kernel.architecture, kernel.symbol))
            if lines is None:
                yield f"{kernel.file}: {kernel.name}, {kernel.architecture}: nvdisasm showed no machine code"
                continue
            times = [operation.split(".")[0] for _, operation, _ in instructions(lines)].count(count.instruction)
            if times != count.times:
                yield (f"{kernel.file}: {kernel.name}, {kernel.architecture}: {count.instruction} occurs {times} time(s), "
                       f"expected {count.times}")


def broken_gates(kernel, row, warps, loads):
    if warps < row.warps:
        yield f"{warps} warps at a time, at least {row.warps} are wanted ({kernel.registers} registers, {kernel.shared} bytes of shared memory, blocks of {row.threads})"
    if kernel.shared > row.shared:
        yield f"{kernel.shared} bytes of shared memory, at most {row.shared} are allowed"
    if kernel.stack > row.stack or kernel.local > 0:
        yield f"{kernel.stack} bytes of stack and {kernel.local} of local memory, at most {row.stack} are allowed"
    if loads is not None and loads < row.loads:
        yield f"{loads} 16-byte loads in flight, at least {row.loads} are wanted"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("module", type=pathlib.Path)
    parser.add_argument("--gates", type=pathlib.Path, default=GATES)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--resources-only", action="store_true")
    options = parser.parse_args()
    tools = {name: find_tool(name) for name in ("cuobjdump", "nvdisasm", "readelf")}
    missing = [name for name, path in tools.items() if path is None]
    if missing or not options.module.exists():
        print(f"skipped: {', '.join(missing)} not found (pip install nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm)" if missing
              else f"skipped: {options.module} is not built (nvcc was not found, or TRIFOLD_CUDA is off)")
        return 0
    rows, counts = read_gates(options.gates)
    gated, wrong = [], []
    for kernel in read_kernels(tools["cuobjdump"], options.module):
        if kernel.architecture not in SHARED:
            continue  # the rows are of those that are released
        row = next((row for row in rows if row.file == kernel.file and fits(kernel.name, row.kernel)), None)
        if row is None:
            wrong.append(f"{kernel.file}: {kernel.name}, {kernel.architecture}: no gate; enter the kernel in {options.gates}")
        else:
            gated.append((kernel, row))
    counted_files = {count.file for count in counts}
    taken_apart = [] if options.resources_only else [kernel for kernel, row in gated if row.loads is not None or
                                                     kernel.file in counted_files]
    code = disassemble(tools, options.module, {(kernel.architecture, kernel.symbol) for kernel in taken_apart})
    loads = {which: loads_in_flight(lines) for which, lines in code.items()}
    if not options.resources_only:
        built = {kernel.architecture for kernel, _ in gated}
        wrong += broken_counts([count for count in counts if count.architecture in built],
                               [kernel for kernel, _ in gated], code)
    reached = {}
    for kernel, row in gated:
        warps = resident_warps(kernel, row.threads)
        in_flight = None if row.loads is None else loads.get((kernel.architecture, kernel.symbol))
        wrong += [f"{kernel.file}: {kernel.name}, {kernel.architecture}: {what}"
                  for what in broken_gates(kernel, row, warps, in_flight)]
        reached.setdefault(row, []).append((warps, kernel.shared, kernel.stack, in_flight))
    wrong += [f"{row.file}: {row.kernel}: no kernel in the module matches this row" for row in rows if row not in reached]
    if options.list:
        print(f"{'warps':>11} {'shared':>6} {'stack':>5} {'loads':>7}  row")
        for row, found in reached.items():
            warps, shared, stack, flight = zip(*found)
            seen = [count for count in flight if count is not None]
            print(f"{min(warps):5}..{max(warps):<4} {max(shared):6} {max(stack):5} {min(seen) if seen else '-':>7}  "
                  f"{row.file}: {row.kernel} ({len(found)})")
    for line in wrong:
        print(line)
    print(f"{len(gated)} kernels, {len(rows) + len(counts)} rows; {len(wrong)} gates are broken")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
