#include "text/blend/data_schedule.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>
#include <optional>

#include "config/fields/number.h"
#include "core/error.h"
#include "core/read_json.h"

namespace trifold {

namespace {

constexpr const char* kScheduleOption = "--data-schedule";
constexpr const char* kBetween = "between";
constexpr double kMostTokens = 1e18;

bool is_inline(const std::string& option) {
  const size_t first = option.find_first_not_of(" \t\r\n");
  return first != std::string::npos && option[first] == '{';
}

// Whether a path may be called `name`.
bool has_name(const std::string& path, const std::string& name) {
  const std::filesystem::path file = std::filesystem::path(path).lexically_normal();
  const std::string last = (file.has_filename() ? file : file.parent_path()).filename().string();
  return name == last || last.starts_with(name + ".");
}

size_t path_of(const std::string& name, const std::vector<std::string>& paths, const std::string& where) {
  std::vector<size_t> found;
  for (size_t k = 0; k < paths.size(); ++k) {
    if (paths[k] == name) return k;
    if (has_name(paths[k], name)) found.push_back(k);
  }
  if (found.size() == 1) return found.front();
  if (found.empty())
    bad_input("{}: no path of --data-path is called '{}'; they are {}", where, name, fmt::join(paths, ", "));
  bad_input("{}: several paths of --data-path are called '{}'; give whole paths", where, name);
}

int64_t tokens_of(const std::string& key, const std::string& where) {
  std::optional<double> tokens;
  try {
    tokens = parse_double(key);
  } catch (const Error&) {
    tokens.reset();
  }
  if (!tokens || !(*tokens >= 0 && *tokens <= kMostTokens) ||
      *tokens != static_cast<double>(static_cast<int64_t>(*tokens)))
    bad_input("{}: '{}' is no number of tokens; give a whole number such as \"1e9\", or \"{}\"", where, key,
              kBetween);
  return static_cast<int64_t>(*tokens);
}

}  // namespace

DataSchedule::DataSchedule(const std::string& option, const std::vector<std::string>& paths) : names_(paths) {
  const bool given = is_inline(option);
  const std::string where = given ? kScheduleOption : fmt::format("{} {}", kScheduleOption, option);
  const nlohmann::json whole = given ? parse_json(option, where) : read_json_file(option);
  JsonView(whole, where).members([&](const std::string& key, const JsonView& value) {
    if (key == kBetween) {
      const std::string text = value.text();
      if (text != "steps" && text != "lines") value.refuse("\"steps\" or \"lines\"");
      between_ = text == "lines" ? BlendShares::Between::Lines : BlendShares::Between::Steps;
      return;
    }
    Point point{tokens_of(key, where), std::vector<double>(paths.size(), 0.0)};
    std::vector<bool> named(paths.size(), false);
    value.members([&](const std::string& name, const JsonView& weight) {
      const size_t path = path_of(name, paths, where);
      if (named[path])
        bad_input("{}: from {} tokens on, {} has two weights; give one", where, key, paths[path]);
      named[path] = true;
      if (!(weight.number() >= 0)) weight.refuse("a weight of at least 0");
      point.shares[path] = weight.number();
      names_[path] = name;
    });
    const double sum = std::accumulate(point.shares.begin(), point.shares.end(), 0.0);
    if (!(sum > 0)) bad_input("{}: from {} tokens on, no path has a weight above 0", where, key);
    if (!std::isfinite(sum))
      bad_input("{}: the weights from {} tokens on have a sum beyond the largest number: give smaller ones",
                where, key);
    for (double& share : point.shares) share /= sum;
    points_.push_back(std::move(point));
  });
  std::sort(points_.begin(), points_.end(),
            [](const Point& a, const Point& b) { return a.tokens < b.tokens; });
  if (points_.empty() || points_.front().tokens != 0)
    bad_input("{}: the weights at the beginning are missing; give a member \"0\"", where);
  for (size_t p = 1; p < points_.size(); ++p)
    if (points_[p].tokens == points_[p - 1].tokens)
      bad_input("{}: two members give the weights from {} tokens on", where, points_[p].tokens);
  for (size_t k = 0; k < paths.size(); ++k)
    if (std::all_of(points_.begin(), points_.end(), [&](const Point& point) { return point.shares[k] == 0; }))
      bad_input("{}: {} of --data-path never has a weight; name it, or leave the path out", where, paths[k]);
}

BlendShares DataSchedule::shares(int64_t seq_length) const {
  std::vector<BlendShares::Point> points;
  for (const Point& point : points_)
    points.push_back({(point.tokens + seq_length - 1) / seq_length, point.shares});
  return {std::move(points), between_};
}

std::string DataSchedule::text() const {
  std::string text = between_ == BlendShares::Between::Lines ? "lines" : "steps";
  for (const Point& point : points_) {
    text += fmt::format("; {}:", point.tokens);
    for (const double share : point.shares) text += fmt::format(" {}", share);
  }
  return text;
}

}  // namespace trifold
