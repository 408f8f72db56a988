#!/usr/bin/env bash
# Installs missing packages, builds Trifold and runs the tests that this machine can run. Lists what was skipped, and why.
#
#   tests/run.sh           the release build and its tests, but for those of the CUDA code and the labels long and thorough
#   tests/run.sh --quick   the release build and its tests of the labels unit and parity: for a quick look while working
#   tests/run.sh --all     what continuous integration runs: the above, layout, shell scripts, unit tests with
#                          AddressSanitizer, UndefinedBehaviorSanitizer and ThreadSanitizer, clang-tidy
#   tests/run.sh --long    --all, and: tests of the label long (real training runs, speed figures), the unit tests
#                          as clang optimises them, fuzzers, and launch/quickstart.sh from start to end
#
# Builds go under build/, one folder per preset. Exit status: 0 when all is well; 1 with the failing parts named.
# shellcheck disable=SC2317  # the functions are called through part()
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

mode=user
case ${1:-} in
  '') ;;
  --quick | --all | --long) mode=${1#--} ;;
  *) sed -n '2,11s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac

jobs=${TRIFOLD_JOBS:-$(nproc)}
failed=()
skipped=()
# Thread ranks that share cores with other tests could time each other out, so three tests at a time are the most: one often waits.
tests_at_once=$((jobs < 2 ? jobs : 3))

# The seconds of processor time that the ended children of this script have used.
processor_seconds() {
  local -a stat
  read -ra stat <"/proc/$$/stat"
  echo $(((stat[15] + stat[16]) / $(getconf CLK_TCK)))
}

# How many parts this mode has, if none fails, and how many began.
case $mode in quick | user) parts=4 ;; all) parts=13 ;; long) parts=16 ;; esac
begun=0

# part HEADLINE COMMAND...: runs one part; its result, its time and the processor time of its processes, without what runs
# aside, follow on a line of their own.
part() {
  local title=$1 start=$SECONDS used result=ok
  used=$(processor_seconds)
  shift
  begun=$((begun + 1))
  printf '\n== Part %d of %d: %s\n' "$begun" "$parts" "$title"
  "$@" || result=FAILED
  printf '== %s: %s, %d s (%d s of processors)\n' "$title" "$result" $((SECONDS - start)) $(($(processor_seconds) - used))
  if [[ $result == FAILED ]]; then
    failed+=("$title")
    return 1
  fi
}

skip() {
  skipped+=("$1: $2")
  printf '\n== %s: skipped, %s\n' "$1" "$2"
}

# Whether this run is for those who change the code.
develops() { [[ $mode == all || $mode == long ]]; }

# Whether the CUDA module is compiled: its kernels take minutes, and without a GPU only those who change the code need
# them. The same goes for the tests of CUDA code that need no GPU.
builds_cuda() { develops || command -v nvidia-smi >/dev/null; }

# Whether a build folder was configured with tests before; launch/quickstart.sh configures one without them.
has_tests() { grep -q '^TRIFOLD_LONG_TESTS:' "build/$1/CMakeCache.txt" 2>/dev/null; }

# build PRESET [TARGET...]: prints only what is wrong. From nothing, several files are compiled at once, which takes half
# as long; a folder that was configured with tests before stays as it is, so that little is compiled again while working.
build() {
  local preset=$1 log=build/$1.log
  local -a targets=() options=()
  shift
  if [[ ! -e build/$preset/CMakeCache.txt ]]; then
    options=(-DCMAKE_UNITY_BUILD=ON -DTRIFOLD_JOIN_TESTS=ON)
    # What is compiled from nothing need not be preprocessed for the cache first: the compiler lists the headers.
    local -x CCACHE_DEPEND=1
  fi
  if builds_cuda; then
    options+=(-DTRIFOLD_CUDA=ON -DTRIFOLD_DEVICE_TESTS=ON)
    # The kernels of one architecture compile in a third of the time of all, which a long run and a machine with a GPU take.
    if [[ $mode == long ]]; then
      options+=(-UCMAKE_CUDA_ARCHITECTURES)
    elif ! has_tests "$preset" && ! command -v nvidia-smi >/dev/null; then
      options+=(-DCMAKE_CUDA_ARCHITECTURES=90a-real)
    fi
  elif ! has_tests "$preset"; then
    options+=(-DTRIFOLD_CUDA=OFF -DTRIFOLD_DEVICE_TESTS=OFF)
  fi
  if develops; then
    options+=(-DTRIFOLD_LONG_TESTS=ON "-DTRIFOLD_WHOLE_TESTS=$([[ $mode == long ]] && echo ON || echo OFF)")
  elif ! has_tests "$preset"; then
    options+=(-DTRIFOLD_LONG_TESTS=OFF)
  fi
  if (($#)); then targets=(--target "$@"); fi
  mkdir -p build
  if cmake --preset "$preset" "${options[@]}" >"$log" 2>&1 &&
    tools/build_progress.sh "$log" cmake --build "build/$preset" --parallel "$jobs" "${targets[@]}"; then
    return 0
  fi
  tail -n 60 "$log"
  echo "(all of it: $log)"
  return 1
}

run_ctest() {
  local preset=$1
  shift
  # A machine that is busy with something else for a minute should not fail a test of what was built here.
  ctest --preset "$preset" --parallel "$tests_at_once" --no-tests=error --repeat after-timeout:2 "$@"
}

# The gates on machine code need two programs that neither Debian nor every CUDA toolkit has: they come from PyPI, into
# build/kernel_tools. Without them those tests are skipped.
kernel_tools() {
  local packages=build/kernel_tools PATH=$PATH:/usr/local/cuda/bin
  if ! builds_cuda; then
    skip "CUDA module, tests of its kernels and of devices" \
      "this machine has no GPU; tests/run.sh --all compiles and runs them, on an emulation and a fake device"
  elif ! command -v nvcc >/dev/null; then
    skip "gates on machine code" "nvcc is missing"
  elif command -v cuobjdump >/dev/null && command -v nvdisasm >/dev/null || [[ -d $packages ]]; then
    return
  elif ! python3 -m pip install --quiet --disable-pip-version-check --root-user-action ignore --target "$packages" \
    'nvidia-cuda-cuobjdump>=13.2' 'nvidia-cuda-nvdisasm>=13.2'; then
    skip "gates on machine code" "pip could not install nvidia-cuda-cuobjdump and nvidia-cuda-nvdisasm"
  fi
}

# Apache Arrow's libraries and headers, with which Parquet files are read, come from PyPI, into build/parquet_tools.
# Without them the module is not built, and its tests are skipped.
parquet_tools() {
  local packages=build/parquet_tools
  if [[ -d $packages/pyarrow ]] || python3 -c 'import pyarrow' 2>/dev/null; then return; fi
  python3 -m pip install --quiet --disable-pip-version-check --root-user-action ignore --target "$packages" 'pyarrow>=24' ||
    skip "Parquet files" "pip could not install pyarrow"
}

# A clang-tidy that looks at our own code only, in half the time (tools/tidy.sh), comes from PyPI, into build/tidy_tools:
# one version, so that what it finds changes only with .clang-tidy. Without it the one of the system is used.
tidy_tools() {
  local packages=build/tidy_tools version=23.1.4
  if ! develops || [[ -d $packages/clang_tidy-$version.dist-info ]]; then return; fi
  python3 -m pip install --quiet --disable-pip-version-check --root-user-action ignore --no-compile --upgrade --target "$packages" \
    "clang-tidy==$version" || echo "pip could not install clang-tidy $version: the system's is used, which takes longer"
}

# The release tests; their output is kept so that its closing lines can be shown again at the very end.
release_tests() {
  run_ctest release "$@" | tee build/release-tests.log
}

# Programs for machines with a GPU, which nothing here starts: they have to keep compiling.
gpu_programs() {
  if [[ ! -e build/release/lib/trifold_cuda.so ]]; then
    echo "not built: the CUDA module is not"
    return
  fi
  cmake --build build/release --parallel "$jobs" --target gpu_programs
}

# Configured before it is built: each file is compiled alone.
clang_unit() { cmake --preset clang >/dev/null && build clang tests_unit && run_ctest clang -L '^unit$' --progress; }

# Not run under sanitizers: tests of speed, and those that take over every character, search for long or train many runs
# for one figure. They would take a third of the time, and shorter tests run the same code.
slow_when_sanitized='*EveryCharacter*:Safetensors.ManyTensors*:AutomaticSchedule.IsNeverSlower*:AutomaticSchedule.IsAsShort*'
slow_when_sanitized+=':Simulate.ALargePlan*:PlanReport.PredictsMemoryAndTrafficOfReductions:StreamTrouble.ALongDocument*'
slow_when_sanitized+=':PreTokenizer.APatternThatWouldTakeForeverIsNamed:PlanSvg.ManyActions*:LayoutSearch.FindsTensorRanks*'
slow_when_sanitized+=':LayoutSearch.ListsEachMesh*:LayoutSearch.CountsHalves*:LayoutSearch.CutsLongSamples'
slow_when_sanitized+=':LongGraphs.*:NormsInParts.*:*EmulatedOps.DoesNotDependOnWhichThreadIsFirst*:*embedding_backward_of_many_rows*'

# The program is built too: this is what shows that clang takes all rooms.
asan_build() { build asan tests_unit trifold; }
asan_unit() { GTEST_FILTER="-$slow_when_sanitized" run_ctest asan -L '^unit$' --exclude-regex '^house\.' --progress; }

# What threads share is looked at: not the configuration, nor gradients by finite differences, nor operations in 16 bits
# (their threads share what those in f32 do), which AddressSanitizer sees and which take most of the time; nor drawings of
# plans, which a single thread makes, searches but for one (LayoutSearch.ChangesOnlyTheGivenAxes), or a file of two bytes
# that is opened again and again; nor types of numbers again whose ranks and threads do the same.
# ThreadSanitizer of gcc needs the classic address layout; newer kernels spread addresses wider than it can map.
tsan_build() { build tsan tests_threads; }
tsan_unit() {
  local -a layout=()
  if setarch "$(uname -m)" -R true 2>/dev/null; then layout=(setarch "$(uname -m)" -R); fi
  local single='Ops16.*:LayoutSearch.AgreesWith*:LayoutSearch.Cuts*:LayoutSearch.Chooses*:LayoutSearch.Keeps*:LayoutSearch.Names*'
  single+=':LayoutSearch.SaysThat*:LayoutSearch.Counts*:AutoLayout.*:PlanSvg.*:PlanReport.AgreesWithItsOutcome:PlanReport.KnowsThePublished*'
  single+=':PlanReport.RefusesMoreMemory*:Stream.APackedCorpusOfTwoBytes*:*Overlap.ChangesNoBit/one'
  single+=':*NotFinite.IsFoundWhereItArises/f64:*NotFinite.IsFoundWhereItArises/fp16'
  GTEST_FILTER="-$single:$slow_when_sanitized" "${layout[@]}" ctest --preset tsan --parallel "$tests_at_once" --no-tests=error \
    --repeat after-timeout:2 -L '^threads$' --progress
}

# A header that does not compile alone is a mistake of its writer, so only those who change the code build this.
headers() { cmake --build build/release --parallel "$jobs" --target header_self_containment; }

clang_tidy() { tools/tidy.sh; }

# Fuzzers: a minute each.
fuzz() { build asan fuzzers && tests/fuzz/run.sh build/asan build/release/launch/trifold; }

shell_scripts() { shellcheck tests/*.sh tests/gpu/*.sh tests/fuzz/*.sh tools/*.sh tools/bundle/*.sh launch/*.sh .ci/run; }

# start_aside FUNCTION...: runs these one after the other beside the parts that follow, at the lowest priority: tests leave
# cores idle now and then, which builds and clang-tidy can use. Output and result of each go to files in build/aside.
aside=
aside_parts=(clang_tidy asan_build tsan_build headers gpu_programs)
start_aside() {
  rm -rf build/aside
  mkdir -p build/aside
  set -m  # a process group of its own, that can be ended whole
  (
    set +m
    renice -n 19 -p "$BASHPID" >/dev/null || true
    for task in "$@"; do
      start=$SECONDS status=0
      "$task" >"build/aside/$task.log" 2>&1 || status=$?
      echo "$status $((SECONDS - start))" >"build/aside/$task.writing"
      mv "build/aside/$task.writing" "build/aside/$task.result"
    done
  ) </dev/null &
  aside=$!
  set +m
  trap 'kill -- "-$aside" 2>/dev/null' EXIT
}

# from_aside FUNCTION: waits for it, and shows what it printed.
from_aside() {
  local status seconds
  while [[ ! -e build/aside/$1.result ]]; do
    # It was ended from outside.
    if ! kill -0 "$aside" 2>/dev/null && [[ ! -e build/aside/$1.result ]]; then status=1 seconds=0; break; fi
    sleep 1
  done
  cat "build/aside/$1.log"
  [[ -n ${status:-} ]] || read -r status seconds <"build/aside/$1.result"
  echo "(took $seconds s beside other parts)"
  return "$status"
}

say_what_is_not_here() {
  if ! command -v nvidia-smi >/dev/null; then skip "tests on a GPU" "this machine has none"; fi
  if ! command -v mpiexec >/dev/null; then skip "tests of the label mpi" "mpiexec is missing"; fi
}

finish() {
  printf '\n== Skipped: %s\n' "${#skipped[@]}"
  if ((${#skipped[@]})); then printf '   %s\n' "${skipped[@]}"; fi
  printf '== Time in all: %d s\n' "$SECONDS"
  if ((${#failed[@]})); then
    printf '== FAILED: %s\n' "${failed[@]}"
    exit 1
  fi
  printf '== All parts passed. The tests of the release build once more, in short:\n\n'
  sed -n '/% tests passed/,$p' build/release-tests.log
  exit 0
}

part "Packages" tools/install_dependencies.sh || finish
kernel_tools
parquet_tools
tidy_tools
part "Levels of the rooms" python3 tools/check_layers.py
part "Release build (gcc)" build release || finish

if [[ $mode == quick ]]; then
  part "Tests: unit, parity" release_tests -L '^(unit|parity)$'
  finish
fi

say_what_is_not_here
if [[ $mode == long ]]; then
  part "Tests of all labels" release_tests  # with nothing beside them: some measure speed
else
  if [[ $mode == all ]]; then start_aside "${aside_parts[@]}"; fi
  skip "tests of the label long" "they take longer, and include all cases where other tests run a selection; tests/run.sh --long runs them"
  if [[ $mode == all ]]; then
    part "Tests of all labels but long" release_tests -LE '^long$'
  else
    skip "tests of the label thorough" "they kill, starve and damage runs again and again; tests/run.sh --all runs them"
    part "Tests of all labels but long and thorough" release_tests -LE '^(long|thorough)$'
  fi
fi
if [[ $mode == user ]]; then
  skip "sanitizers, clang-tidy, layout, shell scripts" "they are for those who change the code; tests/run.sh --all runs them"
  finish
fi

if [[ $mode == long ]]; then start_aside "${aside_parts[@]}"; fi
part "Layout of the source" tools/format.sh --check
part "Shell scripts" shell_scripts
part "clang-tidy" from_aside clang_tidy
part "Build with AddressSanitizer and UndefinedBehaviorSanitizer (clang)" from_aside asan_build &&
  part "Unit tests with AddressSanitizer and UndefinedBehaviorSanitizer" asan_unit
part "Build with ThreadSanitizer (gcc)" from_aside tsan_build &&
  part "Unit tests with ThreadSanitizer" tsan_unit
part "Headers compile alone" from_aside headers
part "Programs for machines with a GPU" from_aside gpu_programs
if [[ $mode == long ]]; then
  part "Fuzzers" fuzz
  part "clang, optimised: unit tests" clang_unit
  part "Quickstart" launch/quickstart.sh
fi
finish
