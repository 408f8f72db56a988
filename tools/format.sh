#!/usr/bin/env bash
# Lays out the C++ and CUDA sources as .clang-format says.
#
#   tools/format.sh           rewrites what differs
#   tools/format.sh --check   changes nothing; names what differs and exits with 1
set -euo pipefail
cd "$(dirname "$0")/.."

sources() { find src launch tests tools -regextype egrep -regex '.*\.(h|cpp|cu|cuh)' | sort; }

case ${1:-} in
  '') sources | xargs -r clang-format -i ;;
  --check)
    if ! sources | xargs -r clang-format --dry-run --Werror; then
      echo "To put it right: tools/format.sh" >&2
      exit 1
    fi ;;
  *) sed -n '2,5s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
