// The fields of a config.json as a table, and a reader that knows no others.
//
// A family lists every field that its configuration class in transformers has, with its default there, the names under
// which a file may have it, and its effect here. A field that is in a file and in no list is a problem: nobody could
// say whether it changes the model. tools/reference/hugging_face_fields.py compares the lists with transformers.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trifold {

struct ConfigField {
  enum class Use {
    Read,    // the family's reader asks for it
    Fixed,   // only some values are supported
    Unused,  // neither weights nor loss depend on it
  };
  // If a file has several of these names, the first in this list counts.
  std::vector<const char*> names;
  nlohmann::json absent;  // what transformers takes without it
  Use use = Use::Read;
  std::vector<nlohmann::json> others = {};  // of a Fixed field, the values that are supported beside `absent`
  // False: the class has no such field. The model reads it if it is there, or older versions and the authors' own
  // code have it.
  bool of_class = true;
  // Whether null is a value of its own. It always is where it is the default; without a field of the class null means
  // absent.
  bool nullable = false;

  ConfigField beyond_class() const;
  ConfigField or_null() const;
};

ConfigField field(std::vector<const char*> names, nlohmann::json absent);
ConfigField fixed(const char* name, nlohmann::json absent, std::vector<nlohmann::json> others = {});
ConfigField unused(std::vector<const char*> names, nlohmann::json absent = nullptr);

using ConfigFields = std::vector<ConfigField>;
ConfigFields joined(std::initializer_list<ConfigFields> lists);

// The fields that every family may have.
const ConfigFields& common_fields();

// Reads the fields of a table. Problems are collected, so that all are reported at once.
class ConfigReader {
 public:
  // Checks the fixed fields, and that every field of `config` is in `fields`, or in common_fields() if `common`.
  ConfigReader(const nlohmann::json& config, const ConfigFields& fields, bool common = true);

  // What transformers takes for a field of the table, by any of its names.
  const nlohmann::json& value(std::string_view name) const;
  // Whether the file has the field, and with another value than null.
  bool given(std::string_view name) const;
  bool has(std::string_view name) const;
  bool knows(std::string_view name) const;  // whether the table has it
  // The name that the file has for it, or else the one of the class.
  std::string_view name_of(std::string_view name) const;

  int64_t size(std::string_view name);
  double number(std::string_view name);
  bool flag(std::string_view name);  // null is false
  std::optional<int64_t> size_or_null(std::string_view name);
  std::optional<double> number_or_null(std::string_view name);

  void problem(std::string text) { problems_.push_back(std::move(text)); }
  // Takes over the problems of the object that is the value of `name`.
  void add_problems_of(const ConfigReader& inner, std::string_view name);
  // BadInput with all problems, if there are any.
  void finish(const std::string& where) const;

  // The fields that nobody has asked for although they are to be read.
  std::vector<std::string_view> unread() const;

 private:
  const ConfigField& find(std::string_view name) const;
  void check_fixed(const ConfigField& field);

  const nlohmann::json& config_;
  const ConfigFields& fields_;
  mutable std::vector<bool> asked_;  // of each field
  std::vector<std::string> problems_;
};

}  // namespace trifold
