#include "train/class_counts.h"

#include <string_view>

#include "nn/class_reports.h"

namespace trifold {

ClassCounts::ClassCounts(Replica& replica, int64_t top_k) : replica_(replica), top_k_(top_k) {
  constexpr std::string_view kCounter = ClassReports::kCounter;
  for (const auto& item : replica.model().reports.counters.items()) {
    if (!item.name.starts_with(kCounter)) continue;
    counters_.push_back(item.id);
    shares_.push_back({item.name.substr(kCounter.size())});
  }
}

void ClassCounts::write(BatchValues& values) const {
  if (const auto id = replica_.model().reports.batch_values.find(ClassReports::kTopK))
    values.at(static_cast<size_t>(id->index)) = static_cast<double>(top_k_);
}

void ClassCounts::add(Tensor counters) {
  for (size_t i = 0; i < counters_.size(); ++i) {
    const double* const numbers = counters.as<double>() + counters_[i].first;
    shares_[i].labels += numbers[0];
    shares_[i].likeliest += numbers[1];
    shares_[i].among += numbers[2];
  }
}

void ClassCounts::gather() {
  std::vector<double> numbers;
  for (const ClassShare& share : shares_)
    numbers.insert(numbers.end(), {share.labels, share.likeliest, share.among});
  Stream host = replica_.compute().host();
  replica_.mesh()
      .comm(kDataAxes | AxisSet{Axis::Pp})
      .all_reduce({numbers.data(), DType::F64, {static_cast<int64_t>(numbers.size())}}, Reduce::Sum, host);
  for (size_t i = 0; i < shares_.size(); ++i) {
    shares_[i].labels = numbers[3 * i];
    shares_[i].likeliest = numbers[3 * i + 1];
    shares_[i].among = numbers[3 * i + 2];
  }
}

}  // namespace trifold
