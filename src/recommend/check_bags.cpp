#include "recommend/check_bags.h"

#include <unistd.h>

#include <algorithm>
#include <optional>
#include <string>

#include "core/error.h"

namespace trifold {

void check_bags(const ClickSource& source, int64_t samples, int64_t host_bytes) {
  const ClickSchema& schema = source.schema();
  constexpr int64_t kBatches = 2;  // one is read ahead
  const int64_t bytes_of_id = (schema.weighted ? 2 : 1) * int64_t{sizeof(int32_t)};
  int64_t ids = 0;
  int largest = 0;
  for (int t = 0; t < schema.table_count(); ++t) {
    ids += schema.table(t).max_ids;
    if (schema.table(t).max_ids > schema.table(largest).max_ids) largest = t;
  }
  if (ids <= host_bytes / kBatches / bytes_of_id / std::max<int64_t>(1, samples)) return;
  const ClickTable& table = schema.table(largest);
  const std::optional<int64_t> sample = source.longest_bag(largest);
  constexpr double kGib = 1 << 30;
  bad_input(
      "two batches of {} samples need {:.1f} GiB for their ids, because each sample has room for the longest "
      "bag; this host has {:.1f} GiB. Most are of table {}, {} ids a sample{}: "
      "give a smaller --global-batch-size, or "
      "preprocess "
      "the data with --max-bag N, which keeps the first N ids of a bag",
      samples, static_cast<double>(ids) * kBatches * static_cast<double>(bytes_of_id * samples) / kGib,
      static_cast<double>(host_bytes) / kGib, table.name, table.max_ids,
      sample ? fmt::format(" because of sample {}", *sample) : std::string());
}

void check_bags(const ClickSource& source, int64_t samples) {
  check_bags(source, samples, int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE));
}

}  // namespace trifold
