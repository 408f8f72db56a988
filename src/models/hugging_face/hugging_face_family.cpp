#include "models/hugging_face/hugging_face_family.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/read_json.h"

namespace trifold {

using nlohmann::json;

int64_t ConfigReader::size(const char* key, std::optional<int64_t> absent) {
  if (!has(key) && absent) return *absent;
  const json value = has(key) ? config_[key] : json();
  constexpr int64_t kMost = int64_t{1}
                            << 40;  // larger sizes are not realistic and could overflow in products
  if (value.is_number_unsigned() && value.get<uint64_t>() <= uint64_t{kMost}) return value.get<int64_t>();
  problems_.push_back(value.is_null() ? fmt::format("'{}' is missing", key)
                                      : fmt::format("'{}' is {}; a whole number from 0 to {} is needed", key,
                                                    printable_json(value), kMost));
  return 0;
}

double ConfigReader::number(const char* key, double absent) {
  if (!has(key)) return absent;
  if (config_[key].is_number()) return config_[key].get<double>();
  problems_.push_back(fmt::format("'{}' is {}; a number is needed", key, printable_json(config_[key])));
  return absent;
}

bool ConfigReader::flag(const char* key, bool absent) {
  if (!has(key)) return absent;
  if (config_[key].is_boolean()) return config_[key].get<bool>();
  problems_.push_back(fmt::format("'{}' is {}; true or false is needed", key, printable_json(config_[key])));
  return absent;
}

void ConfigReader::must_be(const char* key, const std::vector<json>& supported, const json& absent) {
  const json value = has(key) ? config_[key] : absent;
  if (std::find(supported.begin(), supported.end(), value) == supported.end())
    problems_.push_back(fmt::format("'{}' is {}; only {} is supported", key, printable_json(value),
                                    printable_json(supported[0])));
}

void ConfigReader::finish(const std::string& where) const {
  if (!problems_.empty())
    bad_input("{} holds a model that cannot be converted:\n  {}", where, fmt::join(problems_, "\n  "));
}

int64_t read_choices(ConfigReader& from, const char* experts, int64_t count) {
  const int64_t choices = from.size("num_experts_per_tok");
  if (from.has("num_experts_per_tok") && count > 0 && (choices < 1 || choices > count))
    from.problem(fmt::format("'num_experts_per_tok' is {}; a number from 1 to '{}', {}, is needed", choices,
                             experts, count));
  return choices;
}

void read_gelu(ConfigReader& from, const char* key, const char* absent, ModelConfig& model) {
  from.must_be(key, {"gelu_new", "gelu_pytorch_tanh", "gelu"}, absent);
  if ((from.has(key) ? from.at(key) : json(absent)) == "gelu") model.gelu = GeluKind::Erf;
}

const char* gelu_name(const ModelConfig& model) { return model.gelu == GeluKind::Erf ? "gelu" : "gelu_new"; }

std::vector<std::string> not_met(const std::vector<std::pair<bool, const char*>>& needs) {
  std::vector<std::string> missing;
  for (const auto& [met, what] : needs)
    if (!met) missing.emplace_back(what);
  return missing;
}

}  // namespace trifold
