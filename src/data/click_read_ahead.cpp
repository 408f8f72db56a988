#include "data/click_read_ahead.h"

#include "core/error.h"

namespace trifold {

namespace {

std::vector<ClickBatchBuffer> make_buffers(const ClickReader& reader, const ClickReadOrder& order,
                                           int count) {
  check(order.global_batch >= 1 && order.rank_first >= 0 && order.rank_samples >= 0 &&
            order.rank_first + order.rank_samples <= order.global_batch,
        "samples [{}, {}) of a global batch of {}", order.rank_first, order.rank_first + order.rank_samples,
        order.global_batch);
  check(reader.samples() >= 1 || order.steps == 0, "read-ahead over no samples");
  std::vector<ClickBatchBuffer> buffers;
  for (int i = 0; i < count; ++i) buffers.emplace_back(reader.schema(), order.rank_samples);
  return buffers;
}

}  // namespace

ClickReadAhead::ClickReadAhead(const ClickReader& reader, const ClickReadOrder& order, int held, int ahead)
    : reader_(reader),
      order_(order),
      buffers_(make_buffers(reader, order, held + ahead)),
      slots_(
          order.steps, held, ahead, [this](int64_t index) { fill(index); },
          [this](int64_t index) { return fmt::format("the clicks of step {}", order_.first_step + index); }) {
}

void ClickReadAhead::fill(int64_t index) {
  const int64_t steps = steps_per_epoch(reader_.samples(), order_.global_batch);
  const int64_t step = order_.first_step + index;
  const int64_t first = step % steps * order_.global_batch + order_.rank_first;
  reader_.read(step / steps, first, order_.rank_samples, slot(index));
}

const ClickBatch& ClickReadAhead::get(std::chrono::milliseconds timeout) {
  return slot(slots_.get(timeout)).batch();
}

}  // namespace trifold
