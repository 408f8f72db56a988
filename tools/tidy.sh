#!/usr/bin/env bash
# Runs clang-tidy (.clang-tidy) over the sources, two at a time, with the compile commands of a configured build.
#
#   tools/tidy.sh              every source file under src and launch, several at once as the preset asan compiles them
#   tools/tidy.sh --changed    only what differs from the branch main, and what is not committed
#   tools/tidy.sh FILE...      these
#
# Headers are checked with the sources that include them. TRIFOLD_JOBS sets how many files run at a time. The newer
# clang-tidy that tests/run.sh --all puts into build/tidy_tools is taken if it is there, which is twice as fast.
set -euo pipefail
cd "$(dirname "$0")/.."

# The build folder that was configured last: the others may not know the newest files.
database() {
  local newest
  newest=$(find build/release build/clang build/asan build/debug -maxdepth 1 -name compile_commands.json -printf '%T@ %h\n' 2>/dev/null |
    sort -rn | sed -n '1s/^[^ ]* //p')
  if [[ -z $newest ]]; then
    echo "No compile commands: run 'cmake --preset release' first." >&2
    return 2
  fi
  echo "$newest"
}

changed() {
  local base
  base=$(git merge-base HEAD origin/main 2>/dev/null || git merge-base HEAD main 2>/dev/null || git rev-parse HEAD)
  { git diff --name-only --diff-filter=d "$base"; git ls-files --others --exclude-standard; } |
    grep -E '^(src|launch)/.*\.cpp$' | sort -u || true
}

# What the preset asan compiles of src and launch, and of the emulation of CUDA, which has the only compile commands of the
# CUDA table there: outside headers, most of the work, are read once for many files. Its precompiled headers are left out of
# the commands: only the compiler that wrote them can read them, when they are built.
joined() {
  cmake --preset asan >/dev/null
  mkdir -p build/asan/tidy
  sed 's/ -Xclang -include-pch -Xclang [^ ]* -Xclang -include -Xclang [^ ]*//' build/asan/compile_commands.json \
    >build/asan/tidy/compile_commands.json
  sed -n "s|^ *\"file\": \"$PWD/\(.*\.c[px][px]\)\",*\$|\1|p" build/asan/compile_commands.json |
    grep -E '^(build/asan/)?(src|launch|tests/cuda_emulation)/' | grep -v '/cmake_pch\.' | sort -u
}

# The files that this machine compiles, of those given: a module whose library is missing has no command to check it with.
alone() {
  local newest file
  local -a known=()
  newest=$(database)
  mapfile -t known < <((($#)) && tools/tidy_commands.py "$newest" "$@" | grep .)
  for file in "$@"; do
    if [[ " ${known[*]} " != *" $file "* ]]; then echo "not compiled here, so not checked: $file" >&2; fi
  done
  folder=$newest/tidy
  files=("${known[@]}")
}

case ${1:-} in
  --changed) mapfile -t files < <(changed) && alone "${files[@]}" ;;
  '') mapfile -t files < <(joined) && folder=build/asan/tidy ;;
  -*) sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 2 ;;
  *) alone "$@" ;;
esac
echo "clang-tidy on ${#files[@]} files"
if ((${#files[@]} == 0)); then
  # Named files that nothing checks are a mistake, no changes are not.
  [[ ${1:-} != --changed ]] && exit 1
  exit 0
fi
# Debian 12's clang-tidy 14 also matches every check against the headers of the system, which is half of its time; newer
# ones do not. The one of PyPI has no headers of sanitizers: those of clang follow its own. What only newer compilers call
# deprecated is the standard library's business.
program=(clang-tidy)
newer=build/tidy_tools/clang_tidy/data/bin/clang-tidy
if [[ -x $newer ]]; then
  program=("$newer" "--extra-arg=-idirafter$(clang -print-resource-dir)/include" --extra-arg=-Wno-deprecated-declarations)
fi
printf '%s\0' "${files[@]}" |
  xargs -0 -n 1 -P "${TRIFOLD_JOBS:-2}" "${program[@]}" -p "$folder" --quiet --extra-arg=-Wno-unknown-warning-option --extra-arg=-Wno-unused-command-line-argument \
    2> >(grep -vE '^([0-9]+ warnings? (generated|treated)|Suppressed|Use -header-filter)' >&2)
