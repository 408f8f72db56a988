#include "optim/param_factors.h"

#include <fmt/ranges.h>
#include <fnmatch.h>

#include <algorithm>
#include <iterator>

#include "config/fields/nearest.h"
#include "core/error.h"
#include "core/printable.h"

namespace trifold {

namespace {

bool matches(const ParamFactor& factor, const std::string& name) {
  return fnmatch(factor.pattern.c_str(), name.c_str(), 0) == 0;
}

[[noreturn]] void refuse_factor(std::string_view option, const ParamFactor& factor,
                                std::span<const std::string> names) {
  std::vector<std::string> near = similar(factor.pattern, names);
  if (near.empty())
    near.assign(names.begin(), names.begin() + std::min<std::ptrdiff_t>(3, std::ssize(names)));
  bad_input("--{} {} matches no parameter of the model; it has names such as {}", option,
            printable(factor.text()), printable(fmt::format("{}", fmt::join(near, ", "))));
}

void add_lines(std::vector<std::string>& lines, std::string_view option, std::span<const ParamFactor> factors,
               std::span<const std::string> names) {
  for (const ParamFactor& factor : factors) {
    const auto fits = [&](const std::string& name) { return matches(factor, name); };
    const auto first = std::find_if(names.begin(), names.end(), fits);
    if (first == names.end()) refuse_factor(option, factor, names);
    const auto count = std::count_if(names.begin(), names.end(), fits);
    lines.push_back(fmt::format("--{} {}: {} parameter{}, the first {}", option, factor.text(), count,
                                count == 1 ? "" : "s", *first));
  }
}

}  // namespace

double factor_of(std::span<const ParamFactor> factors, const std::string& name) {
  double found = 1;
  for (const ParamFactor& factor : factors)
    if (matches(factor, name)) found = factor.factor;
  return found;
}

std::vector<std::string> matched_factors(const OptimizerConfig& config, std::span<const std::string> names) {
  std::vector<std::string> lines;
  add_lines(lines, "lr-mult", config.lr_mult, names);
  add_lines(lines, "wd-mult", config.wd_mult, names);
  return lines;
}

}  // namespace trifold
