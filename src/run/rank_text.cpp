#include "run/rank_text.h"

#include <vector>

namespace trifold {

std::string ranks_text(std::span<const int> ranks) {
  std::vector<std::string> runs;  // numbers and, for three or more in a row, ranges: "0-6"
  for (size_t begin = 0; begin < ranks.size();) {
    size_t end = begin + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    if (end - begin < 3) end = begin + 1;
    const std::string first = std::to_string(ranks[begin]);
    runs.push_back(end - begin == 1 ? first : first + "-" + std::to_string(ranks[end - 1]));
    begin = end;
  }
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < runs.size(); ++i)
    text += (i == 0 ? "" : i + 1 == runs.size() ? " and " : ", ") + runs[i];
  return text;
}

std::string_view kind_of_ranks(const Communicator& world) {
  const std::string_view backend = world.backend();
  return backend == "mpi" ? "MPI" : backend == "nccl" ? "NCCL" : backend;
}

std::string ranks_text(const Communicator& world, int threads) {
  return fmt::format("{} {} rank{}, {} thread{} each", world.size(), kind_of_ranks(world),
                     world.size() == 1 ? "" : "s", threads, threads == 1 ? "" : "s");
}

}  // namespace trifold
