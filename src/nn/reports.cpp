#include "nn/reports.h"

#include <algorithm>

#include "core/error.h"

namespace trifold {

template <class Id, int Most>
Id SharedReports<Id, Most>::declare(const std::string& name) {
  if (const auto known = find(name)) return *known;
  check(std::ssize(names_) < Most, "the model reports {} too: it can have at most {} of that kind", name,
        Most);
  names_.push_back(name);
  return {static_cast<int>(names_.size()) - 1};
}

template <class Id, int Most>
std::optional<Id> SharedReports<Id, Most>::find(std::string_view name) const {
  const auto found = std::find(names_.begin(), names_.end(), name);
  if (found == names_.end()) return {};
  return Id{static_cast<int>(found - names_.begin())};
}

template <class Id>
Id BlockReports<Id>::declare(int block, const std::string& name, int64_t count) {
  const Id id{{elements_, count}};
  items_.push_back({block, name, id});
  elements_ += count;
  return id;
}

template <class Id>
std::optional<Id> BlockReports<Id>::find(int block, std::string_view name, int index) const {
  for (const Item& item : items_)
    if (item.block == block && item.name == name && index-- == 0) return item.id;
  return {};
}

LossTermId ReportList::declare_shown(const std::string& name) {
  if (std::find(shown_terms.begin(), shown_terms.end(), name) == shown_terms.end())
    shown_terms.push_back(name);
  return loss_terms.declare(name);
}

template class SharedReports<LossTermId, kMostLossTerms>;
template class SharedReports<BatchValueId, kMostBatchValues>;
template class BlockReports<CounterId>;
template class BlockReports<HostValueId>;

}  // namespace trifold
