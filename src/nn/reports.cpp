#include "nn/reports.h"

#include <algorithm>

#include "core/error.h"

namespace trifold {

LossTermId LossTerms::declare(const std::string& name) {
  if (const auto known = find(name)) return *known;
  check(names_.size() < kMostLossTerms, "{} is one loss term too many: a model has at most {}", name,
        kMostLossTerms);
  names_.push_back(name);
  return {static_cast<int>(names_.size()) - 1};
}

std::optional<LossTermId> LossTerms::find(std::string_view name) const {
  const auto found = std::find(names_.begin(), names_.end(), name);
  if (found == names_.end()) return {};
  return LossTermId{static_cast<int>(found - names_.begin())};
}

}  // namespace trifold
