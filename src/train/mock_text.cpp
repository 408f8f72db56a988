#include "train/mock_text.h"

#include "core/error.h"
#include "models/language_family.h"

namespace trifold {

std::unique_ptr<DataSource> MockText::source(Split split, int64_t seq_length, int64_t /*samples_needed*/,
                                             uint64_t seed) const {
  check(seq_length == model_.seq_length, "samples of {} tokens, the model's have {}", seq_length,
        model_.seq_length);
  // Each part has its own samples.
  constexpr uint64_t kOdd = 0x9E3779B97F4A7C15;
  return synthetic_data(model_, seed + kOdd * static_cast<uint64_t>(split));
}

std::unique_ptr<DataSource> MockText::passes(Split, int64_t, int64_t, uint64_t, int64_t) const {
  fail("there are no passes over random tokens");
}

}  // namespace trifold
