#include "clicks/column_map.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/printable.h"
#include "core/read_json.h"

namespace trifold {

namespace {

using nlohmann::json;

// Parses the text of a member, if there is one.
template <class Value>
Value parsed(const JsonView& view, const std::string& where, const char* key, Value none) {
  if (!view.has(key)) return none;
  const std::string text = view.at(key).text();
  try {
    return Value::parse(text);
  } catch (Error& error) {
    error.add_context(fmt::format("{}: {}", where, view.at(key).path()));
    throw;
  }
}

std::string words_of(const std::vector<std::string>& texts) {
  return texts.empty() ? std::string("none") : ColumnNames{texts}.text();
}

}  // namespace

json to_json(const NamedColumns& columns) {
  json value = {{"label", LabelRules{columns.labels}.text()},
                {"separator", Separator{columns.separator}.text()},
                {"missing_values", columns.missing}};
  const auto add = [&](const char* key, const std::string& text) {
    if (!text.empty()) value[key] = text;
  };
  add("columns", ColumnNames{columns.of_text}.text());
  add("dense", ColumnNames{columns.dense}.text());
  add("sparse", ColumnNames{columns.sparse}.text());
  add("bag", BagColumns{columns.bags}.text());
  add("bag_weights", ColumnNames{columns.bag_weights}.text());
  if (columns.quoting != Quoting::Auto) value["quoting"] = name_of(columns.quoting);
  if (!columns.weight.empty()) value["weight"] = columns.weight;
  return value;
}

NamedColumns named_columns_from_json(const json& value, const std::string& where) {
  const JsonView view(value, where);
  NamedColumns columns;
  columns.labels = parsed<LabelRules>(view, where, "label", {}).rules;
  if (columns.labels.empty()) bad_input("{}: the key \"label\" is missing", where);
  columns.of_text = parsed<ColumnNames>(view, where, "columns", {}).names;
  columns.dense = parsed<ColumnNames>(view, where, "dense", {}).names;
  columns.sparse = parsed<ColumnNames>(view, where, "sparse", {}).names;
  columns.bags = parsed<BagColumns>(view, where, "bag", {}).columns;
  columns.bag_weights = parsed<ColumnNames>(view, where, "bag_weights", {}).names;
  columns.weight = view.text("weight", "");
  columns.separator = parsed<Separator>(view, where, "separator", {}).character;
  if (view.has("quoting")) {
    const std::string quoting = view.at("quoting").text();
    const auto found = value_named<Quoting>(quoting);
    if (!found) bad_input("{}: \"quoting\" is '{}', not auto, quotes or none", where, printable(quoting));
    columns.quoting = *found;
  }
  if (view.has("missing_values"))
    view.at("missing_values").each([&](const JsonView& text) { columns.missing.push_back(text.text()); });
  return columns;
}

std::vector<std::string> column_differences(const NamedColumns& first, const std::string& first_name,
                                            const NamedColumns& other, const std::string& other_name) {
  std::vector<std::string> differences;
  const auto compare = [&](const std::string& what, const std::string& there, const std::string& here) {
    if (there != here)
      differences.push_back(fmt::format("{} {} in {}, {} in {}", what, there, other_name, here, first_name));
  };
  compare("--label is", LabelRules{other.labels}.text(), LabelRules{first.labels}.text());
  if (first.dense.size() != other.dense.size()) {
    compare("--dense is", words_of(other.dense), words_of(first.dense));
  } else {
    for (size_t i = 0; i < first.dense.size(); ++i)
      compare(fmt::format("--dense: column {} is", i + 1), other.dense[i], first.dense[i]);
  }
  const auto sorted = [](std::vector<std::string> texts) {
    std::sort(texts.begin(), texts.end());
    return words_of(texts);
  };
  compare("--missing-values are", sorted(other.missing), sorted(first.missing));
  return differences;
}

}  // namespace trifold
