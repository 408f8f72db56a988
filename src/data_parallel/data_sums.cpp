#include "data_parallel/data_sums.h"

#include "core/error.h"

namespace trifold {

int64_t DataSums::work_elements(int64_t elements, int ranks) {
  return ranks == 1 ? 0 : (elements + ranks - 1) / ranks * ranks;
}

// The rounded sum of this rank's part, in the memory of `in`. Contributions are received there, because its previous
// content has been sent from the workspace; the sum accumulates in the workspace, which is free by then.
Tensor DataSums::sum_of_part(Communicator& ranks, Tensor in, Stream& stream) {
  const int64_t count = in.elements();
  const int64_t all = work_elements(count, ranks.size());
  const int64_t part = all / ranks.size();
  check(in.dtype == DType::F32 && all <= work_.elements() && all <= 2 * count,
        "a sum in bf16 of {} {} over {} ranks does not fit into its work space of {}", count,
        name_of(in.dtype), ranks.size(), work_.elements());
  const Tensor leaving = work_.flat(0, all);
  const Tensor arriving{in.data, DType::BF16, {ranks.size(), part}};
  const Tensor sum{work_.data, DType::F32, {part}};  // fits: two or more ranks' parts in bf16 are as large
  ops_.convert(stream, leaving.flat(0, count), in.flat());
  if (all > count) ops_.fill(stream, leaving.flat(count, all), 0.0);
  ones_.resize(static_cast<size_t>(ranks.size()), 1);
  ranks.all_to_all(arriving, leaving.reshape(arriving.shape), ones_, ones_, stream);
  ops_.column_sum(stream, sum, arriving, false);
  const Tensor rounded = arriving.flat(0, part);
  ops_.convert(stream, rounded, sum);
  return rounded;
}

void DataSums::reduce_scatter(Communicator& ranks, Tensor out, Tensor in, Stream& stream) {
  if (plain(ranks)) return ranks.reduce_scatter(out, in, Reduce::Sum, stream);
  const Tensor rounded = sum_of_part(ranks, in, stream);
  const Tensor aside = work_.flat(0, rounded.elements());  // `out` may overlap the sum
  ops_.copy(stream, aside, rounded);
  ops_.convert(stream, out, aside);
}

void DataSums::all_reduce(Communicator& ranks, Tensor inout, Stream& stream) {
  if (plain(ranks)) return ranks.all_reduce(inout, Reduce::Sum, stream);
  const Tensor rounded = sum_of_part(ranks, inout, stream);
  ranks.all_gather(work_.flat(0, rounded.elements() * ranks.size()), rounded, stream);
  ops_.convert(stream, inout, work_.flat(0, inout.elements()));
}

void DataSums::all_gather(Communicator& ranks, Tensor out, Tensor in, Stream& stream) {
  if (plain(ranks)) return ranks.all_gather(out, in, stream);
  const Tensor all = work_.flat(0, out.elements());
  const Tensor rank_part = all.flat(ranks.rank() * in.elements(), (ranks.rank() + 1) * in.elements());
  ops_.convert(stream, rank_part, in);
  ranks.all_gather(all, rank_part, stream);
  ops_.convert(stream, out, all);
}

}  // namespace trifold
