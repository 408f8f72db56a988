#!/usr/bin/env bash
# Runs clang-tidy (.clang-tidy) over the sources, two at a time, with the compile commands of a configured build.
#
#   tools/tidy.sh              every source file under src and launch, several at once as the preset asan compiles them
#   tools/tidy.sh --changed    only what differs from the branch main, and what is not committed
#   tools/tidy.sh FILE...      these
#
# Headers are checked with the sources that include them. TRIFOLD_JOBS sets how many files run at a time.
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

# What the preset asan compiles of src and launch: outside headers, most of the work, are read once for many files.
joined() {
  cmake --preset asan >/dev/null
  sed -n "s|^ *\"file\": \"$PWD/\(.*\.c[px][px]\)\",*\$|\1|p" build/asan/compile_commands.json |
    grep -E '^(build/asan/)?(src|launch)/' | sort -u
}

case ${1:-} in
  --changed) folder=$(database) && mapfile -t files < <(changed) ;;
  '') mapfile -t files < <(joined) && folder=build/asan ;;
  -*) sed -n '2,8s/^# \{0,1\}//p' "$0"; exit 2 ;;
  *) folder=$(database) && files=("$@") ;;
esac
# A file that no target compiles on this machine (a module whose library is missing) has no command to check it with.
known=()
for file in "${files[@]}"; do
  if grep -qF "/$file\"" "$folder/compile_commands.json"; then
    known+=("$file")
  else
    echo "not compiled here, so not checked: $file"
  fi
done
echo "clang-tidy on ${#known[@]} files"
if ((${#known[@]} == 0)); then exit 0; fi
printf '%s\0' "${known[@]}" |
  xargs -0 -n 1 -P "${TRIFOLD_JOBS:-2}" clang-tidy -p "$folder" --quiet --extra-arg=-Wno-unknown-warning-option --extra-arg=-Wno-unused-command-line-argument \
    2> >(grep -vE '^([0-9]+ warnings? (generated|treated)|Suppressed|Use -header-filter)' >&2)
