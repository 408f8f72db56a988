#include "config/fields/rehearse_config.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "config/fields/number.h"
#include "core/error.h"
#include "core/printable.h"

namespace trifold {

namespace {

// The rank that `word` names; -1 if it names none.
int rank_named(std::string_view word) {
  try {
    return parse_int(word);
  } catch (const Error&) {
    return -1;
  }
}

}  // namespace

RankList RankList::parse(std::string_view text) {
  RankList list;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const int rank = rank_named(text.substr(begin, end - begin));
    if (rank < 0)
      bad_input("'{}' is not possible: give ranks from 0 on, separated by commas, such as 0,8,15",
                printable(text));
    if (std::count(list.ranks.begin(), list.ranks.end(), rank) > 0)
      bad_input("'{}' has rank {} twice: name each rank once", printable(text), rank);
    list.ranks.push_back(rank);
    begin = end + 1;
  }
  return list;
}

std::string RankList::text() const { return fmt::format("{}", fmt::join(ranks, ",")); }

}  // namespace trifold
