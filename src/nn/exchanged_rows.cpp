#include "nn/exchanged_rows.h"

#include <algorithm>
#include <numeric>

#include "core/small_list.h"

namespace trifold {

namespace {

using RowsOfRanks = SmallList<int64_t, 8>;  // so many ranks allocate nothing

// What the host reads of numbers that `stream` has made: nothing where it computes nothing.
const int32_t* read_by_host(Stream& stream, const Tensor& numbers) {
  if (stream.mode() == Stream::Mode::Dry) return nullptr;
  stream.synchronize();
  return numbers.as<int32_t>();
}

// The sums of `ranks` rows of `counts`, each of `experts`.
RowsOfRanks rows_arriving_from(const int32_t* counts, int ranks, int64_t experts) {
  RowsOfRanks rows;
  for (int rank = 0; rank < ranks; ++rank)
    rows.push_back(counts == nullptr
                       ? 0
                       : std::accumulate(counts + rank * experts, counts + (rank + 1) * experts, int64_t{0}));
  return rows;
}

RowsOfRanks rows_leaving_to(const int32_t* first, int ranks, int64_t experts) {
  RowsOfRanks rows;
  for (int rank = 0; rank < ranks; ++rank)
    rows.push_back(first == nullptr ? 0 : first[(rank + 1) * experts] - first[rank * experts]);
  return rows;
}

}  // namespace

ExchangedRows::ExchangedRows(const Mesh& mesh, const std::string& name, int64_t experts, int64_t choices)
    : ranks_(mesh.size(Axis::Ep)), here_(experts / ranks_), choices_(choices) {
  check(experts % ranks_ == 0, "{}: {} experts cannot be cut over {} expert-parallel ranks", name, experts,
        ranks_);
}

void ExchangedRows::exchange_counts(Run& run, Tensor counts, Tensor first) const {
  const Arena::Mark mark = run.scratch.mark();
  const Tensor leaving = run.scratch.take(DType::I32, {ranks_, here_});
  run.stream.run([leaving, first] {
    const auto* begin = first.as<int32_t>();
    std::transform(begin + 1, begin + 1 + leaving.elements(), begin, leaving.as<int32_t>(), std::minus<>());
  });
  RowsOfRanks ones;
  for (int rank = 0; rank < ranks_; ++rank) ones.push_back(1);
  run.mesh.comm({Axis::Ep}).all_to_all(counts, leaving, ones, ones, run.stream);
  run.scratch.release(mark);
}

int64_t ExchangedRows::rows_arriving(Run& run, Tensor counts, int64_t tokens) const {
  const int32_t* known = read_by_host(run.stream, counts);
  if (known == nullptr) return ranks_ * tokens * std::min(choices_, here_);
  const RowsOfRanks rows = rows_arriving_from(known, ranks_, here_);
  return std::accumulate(rows.begin(), rows.end(), int64_t{0});
}

void ExchangedRows::find_experts(Run& run, Tensor expert, Tensor counts) const {
  run.stream.run([expert, counts, experts = here_] {
    auto* to = expert.as<int32_t>();
    const auto* count = counts.as<int32_t>();
    for (int64_t i = 0; i < counts.elements(); ++i)
      to = std::fill_n(to, count[i], static_cast<int32_t>(i % experts));
  });
}

void ExchangedRows::send(Run& run, Tensor arrived, Tensor own, Tensor counts, Tensor first) const {
  run.mesh.comm({Axis::Ep})
      .all_to_all(arrived, own, rows_arriving_from(read_by_host(run.stream, counts), ranks_, here_),
                  rows_leaving_to(read_by_host(run.stream, first), ranks_, here_), run.stream);
}

void ExchangedRows::send_back(Run& run, Tensor own, Tensor arrived, Tensor counts, Tensor first) const {
  run.mesh.comm({Axis::Ep})
      .all_to_all(own, arrived, rows_leaving_to(read_by_host(run.stream, first), ranks_, here_),
                  rows_arriving_from(read_by_host(run.stream, counts), ranks_, here_), run.stream);
}

}  // namespace trifold
