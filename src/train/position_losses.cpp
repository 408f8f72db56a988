#include "train/position_losses.h"

#include <algorithm>

#include "ops/host_copy.h"
#include "tensor_parallel/vocab.h"

namespace trifold {

PositionLosses::PositionLosses(Replica& replica, int64_t seq_length)
    : replica_(replica), positions_(static_cast<size_t>(seq_length)) {}

void PositionLosses::begin(const Action&, int, const Batch& batch, const ParamSource&, Stream&) {
  batch_ = &batch;
}
void PositionLosses::end(Stream&) { batch_ = nullptr; }

// Records the losses. All tensor ranks have the losses of their rows, so only sums over the other axes are needed.
void PositionLosses::see(std::string_view, std::string_view what, Tensor tensor, Stream& stream) {
  if (what != VocabCrossEntropy::kLosses) return;
  const HostCopy losses(replica_.ops(), stream, tensor);
  const HostCopy weights(replica_.ops(), stream, batch_->loss_weight);
  const float* weight = weights.tensor().as<float>();
  const SequenceRows rows = batch_->held_rows();
  dispatch_float(tensor.dtype, [&](auto zero) {
    using T = decltype(zero);
    const T* loss = losses.tensor().as<T>();
    for (int64_t sample = 0; sample < batch_->samples(); ++sample)
      for (const RowRun& run : rows.runs())
        for (int64_t i = 0; i < run.count; ++i) {
          const int64_t row = sample * rows.rows() + run.row + i;
          PositionLoss& position = positions_[static_cast<size_t>(run.begin + i)];
          position.loss += static_cast<double>(loss[row]) * static_cast<double>(weight[row]);
          position.weight += static_cast<double>(weight[row]);
        }
  });
}

std::span<const PositionLoss> PositionLosses::gather() {
  static_assert(sizeof(PositionLoss) == 2 * sizeof(double));
  Stream host = replica_.compute().host();
  replica_.mesh()
      .comm(kDataAxes | AxisSet{Axis::Pp})
      .all_reduce({positions_.data(), DType::F64, {2 * static_cast<int64_t>(positions_.size())}}, Reduce::Sum,
                  host);
  return positions_;
}

std::string position_table(std::span<const PositionLoss> positions) {
  std::string text = "position,tokens,loss\n";
  for (size_t i = 0; i < positions.size(); ++i)
    if (positions[i].weight > 0)
      text += fmt::format("{},{},{:.6f}\n", i, positions[i].weight, positions[i].loss / positions[i].weight);
  return text;
}

std::vector<PositionRun> doubling_runs(std::span<const PositionLoss> positions) {
  std::vector<PositionRun> runs;
  const auto count = static_cast<int64_t>(positions.size());
  for (int64_t begin = 0, end = 1; begin < count; begin = end, end = std::min(2 * begin, count)) {
    PositionLoss sum;
    for (const PositionLoss& one :
         positions.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin))) {
      sum.loss += one.loss;
      sum.weight += one.weight;
    }
    if (sum.weight > 0) runs.push_back({begin, end, sum.loss / sum.weight});
  }
  return runs;
}

}  // namespace trifold
