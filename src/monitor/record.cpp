#include "monitor/record.h"

#include <cmath>
#include <limits>

namespace trifold {

namespace {

using Json = nlohmann::ordered_json;
using Take = FunctionRef<void(const std::string& path, double value)>;

// The name of item `index` of a list.
std::string name_of_item(const Json& item, size_t index) {
  if (item.is_object() && item.contains("name") && item["name"].is_string())
    return item["name"].get<std::string>();
  return std::to_string(index);
}

void walk(const std::string& path, const Json& value, Take take) {
  if (value.is_null()) return take(path, std::numeric_limits<double>::quiet_NaN());
  if (value.is_boolean()) return take(path, value.get<bool>() ? 1 : 0);
  if (value.is_number()) return take(path, value.get<double>());
  if (value.is_object())
    for (const auto& item : value.items()) walk(path + "/" + item.key(), item.value(), take);
  if (value.is_array())
    for (size_t i = 0; i < value.size(); ++i) walk(path + "/" + name_of_item(value[i], i), value[i], take);
}

}  // namespace

nlohmann::json finite_number(double value) {
  return std::isfinite(value) ? nlohmann::json(value) : nlohmann::json(nullptr);
}

nlohmann::ordered_json object_of(const RunRecord& record) {
  Json object{{"step", record.step}};
  if (!record.event.empty()) object["event"] = record.event;
  object.update(record.values);
  return object;
}

std::optional<int64_t> continues_after(const RunRecord& record) {
  if (record.event == "start") return record.step;
  if (record.event != "loss_spike") return std::nullopt;
  const auto step = record.values.find("to_step");
  if (step == record.values.end() || !step->is_number_integer()) return std::nullopt;
  return step->get<int64_t>();
}

void for_each_number(const RunRecord& record, Take take) {
  const std::string part = record.part.empty() ? "" : record.part + "_";
  for (const auto& item : record.values.items()) {
    if (record.event.empty())
      walk(item.key().starts_with(part) ? item.key() : part + item.key(), item.value(), take);
    else if (item.value().is_primitive())
      walk(record.event + "/" + item.key(), item.value(), take);
  }
}

}  // namespace trifold
