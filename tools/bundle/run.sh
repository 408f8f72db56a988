#!/usr/bin/env bash
# Runs what tools/gpu_bundle.sh packed, in the folder it was unpacked into.
#
#   run.sh [--only REGEX ...] first|speed|final|meshes|use   checks that every program finds its libraries, then tests/gpu.sh
#   run.sh --check    starts every program; says which loader, C library and libraries of NVIDIA it finds
#   run.sh --prepare  sets the loader of the programs: once, after they were unpacked
#
# The programs name their libraries relative to themselves, all but the C library: the machine's, where it is new enough,
# else the one that was packed, together with its loader (a program starts only with the two of one release).
#
# Exit status: that of tests/gpu.sh; 1 where a library is missing or a program does not start.
set -euo pipefail
cd "$(dirname "$0")"
root=$PWD
system=/lib64/ld-linux-x86-64.so.2

# The machine's C library, as "2.39"; nothing where it is none of GNU's.
machine_libc() { getconf GNU_LIBC_VERSION 2>/dev/null | sed -n 's/^glibc //p'; }

# Whether the machine's is at least the newest that the programs and their libraries ask for.
is_new_enough() {
  [[ -e $system && -n $(machine_libc) &&
    $(printf '%s\n%s\n' "$(cat glibc.needed)" "$(machine_libc)" | sort -V | head -n 1) == "$(cat glibc.needed)" ]]
}

# The loader's path is written over the place that was left for it, which is longer; nothing else moves.
prepare() {
  local loader=$system program offset bytes
  if ! is_new_enough; then
    loader=$root/lib/ld-linux-x86-64.so.2
    cp -a glibc/. lib/
  fi
  while read -r program offset bytes; do
    if ((${#loader} >= bytes)); then
      echo "the path of this folder is too long for the programs' loader: $loader (at most $((bytes - 1)) characters)" >&2
      exit 1
    fi
    { printf %s "$loader"; head -c $((bytes - ${#loader})) /dev/zero; } |
      dd of="$program" bs=1 seek="$offset" conv=notrunc status=none
  done <programs
  echo "$loader" >loader
}

# Libraries that a program or module names and that are not found, or why it cannot be loaded at all. (As ldd asks, with
# the loader of the programs; some loaders end with an error where a library is missing, others do not.)
missing() {
  local file loader listed
  loader=$(cat loader)
  while read -r file; do
    listed=$(LD_TRACE_LOADED_OBJECTS=1 "$loader" "$PWD/$file" 2>&1) || listed+=$'\n'"not found: $(tail -n 1 <<<"$listed")"
    sed -n "s|^[[:space:]]*\(.*not found.*\)|$file: \1|p" <<<"$listed"
  done < <(cut -d' ' -f1 programs; ls build/release/lib/*.so)
}

check_libraries() {
  local lacking
  lacking=$(missing)
  [[ -z $lacking ]] || { echo "$lacking" >&2; echo "libraries are missing: this bundle is of no use here" >&2; exit 1; }
}

# Each program's list of its tests or options, which takes no GPU.
start_all() {
  local program argument usual status failed=0
  while read -r program _; do
    usual=0
    case $program in
      */trifold) argument=--version ;;
      */op_bench | */cuda_probe) argument=--help usual=2 ;;  # says how it is called
      *) argument=--gtest_list_tests ;;
    esac
    status=0
    "./$program" "$argument" >/dev/null 2>start.log || status=$?
    if ((status == usual)); then
      printf '%-50s starts\n' "$program"
    else
      printf '%-50s does not start (status %d): %s\n' "$program" "$status" "$(tail -n 1 start.log)"
      failed=1
    fi
  done <programs
  return "$failed"
}

case ${1:-} in
  --prepare) prepare ;;
  --check)
    libc=$(machine_libc)
    echo "C library: the machine's is ${libc:-none of GNU}, $(cat glibc.needed) is needed; programs start with $(cat loader)"
    check_libraries
    start_all
    tests/gpu.sh --libraries || echo "without these there is nothing to run on a GPU with"
    ;;
  *)
    check_libraries
    exec tests/gpu.sh --no-build "$@"
    ;;
esac
