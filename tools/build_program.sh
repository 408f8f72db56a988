#!/usr/bin/env bash
# Builds the program alone, without tests and MPI and for the processor of this host, as the quickstarts do:
# build/release/launch/trifold. The details go to build/quickstart.log, whose end is printed when the build fails.
set -euo pipefail
cd "$(dirname "$0")/.."

# From nothing, several files are compiled at once, which is quicker; a folder that was configured before keeps its way,
# so that little is compiled again.
joined=()
if [[ ! -e build/release/CMakeCache.txt ]]; then
  joined=(-DCMAKE_UNITY_BUILD=ON -DTRIFOLD_HOST_KERNELS=ON)
elif grep -q '^TRIFOLD_HOST_KERNELS:BOOL=ON' build/release/CMakeCache.txt; then
  joined=(-DTRIFOLD_HOST_KERNELS=ON)  # the preset would turn it off
fi
mkdir -p build
if ! { cmake --preset release -DTRIFOLD_BUILD_TESTS=OFF -DTRIFOLD_MPI=OFF "${joined[@]}" >build/quickstart.log 2>&1 &&
  tools/build_progress.sh build/quickstart.log cmake --build build/release --target trifold --parallel "$(nproc)"; }; then
  tail -n 40 build/quickstart.log
  echo "The build failed; all of its output is in build/quickstart.log." >&2
  exit 1
fi
