#include "data_parallel/shared_sums.h"

#include <algorithm>

namespace trifold {

std::span<double> SharedSums::over(Communicator& ranks, std::span<ExactSum> sums, Stream& stream) {
  limbs_.clear();
  for (ExactSum& sum : sums) limbs_.insert(limbs_.end(), sum.limbs().begin(), sum.limbs().end());
  Stream host = stream.host();
  ranks.all_reduce({limbs_.data(), DType::I64, {static_cast<int64_t>(limbs_.size())}}, Reduce::Sum, host);
  values_.clear();
  for (size_t i = 0; i < sums.size(); ++i) {
    ExactSum all;
    all.add_limbs(std::span<const int64_t>(limbs_).subspan(i * ExactSum::kLimbs, ExactSum::kLimbs));
    values_.push_back(all.value());
  }
  return values_;
}

ChunkedSquares::ChunkedSquares(int64_t chunks, const OpTable& ops)
    : ops_(ops),
      partials_(static_cast<size_t>(chunks) * sizeof(double), ops.device),
      limbs_(Buffer::shared(ExactSum::kLimbs * sizeof(int64_t), ops.device)) {}

void ChunkedSquares::take(Tensor x, Stream& stream) {
  const int64_t count = chunks_of(x.elements());
  const auto all = static_cast<int64_t>(partials_.bytes() / sizeof(double));
  ops_.chunk_squares(stream, partials_.tensor(DType::F64, {all}).rows(next_, next_ + count), x);
  next_ += count;
}

void ChunkedSquares::add_to(ExactSum& sum, Stream& stream) {
  const Tensor digits = limbs_.tensor(DType::I64, {ExactSum::kLimbs});
  const std::span<int64_t> limbs(digits.as<int64_t>(), ExactSum::kLimbs);
  std::fill(limbs.begin(), limbs.end(), 0);  // no longer in use: the last call waited for it
  ops_.exact_sum(stream, digits, partials_.tensor(DType::F64, {next_}));
  stream.synchronize();
  sum.add_limbs(limbs);
  next_ = 0;
}

}  // namespace trifold
