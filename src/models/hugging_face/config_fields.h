// ConfigFields: a table of the fields of a config.json; ConfigReader reads a file by such a table.
//
// A family lists every field that its configuration class in transformers has, with the default there, the names under
// which a file may have it, and its effect here. A field of a file that is in no list is a problem, because it may
// change the model. tools/reference/hugging_face_fields.py compares the lists with transformers.
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
  // If a file has several of these names, the first in this list is read.
  std::vector<const char*> names;
  nlohmann::json absent;  // the value that transformers uses if the field is absent
  Use use = Use::Read;
  std::vector<nlohmann::json> others = {};  // for a Fixed field: the supported values in addition to `absent`
  // False: the class has no such field, but the model reads it if it is present, or older versions or the authors' own
  // code have it.
  bool of_class = true;
  // Whether null is a value. It always is if it is the default. Null in a field that is not of the class means absent.
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

  // The value that transformers uses for a field of the table, given any of its names.
  const nlohmann::json& value(std::string_view name) const;
  // `given`: whether the file has the field with a value other than null.
  bool given(std::string_view name) const;
  bool has(std::string_view name) const;
  bool knows(std::string_view name) const;  // whether the table has the field
  // The field's name in the file, or in the class if the file does not have it.
  std::string_view name_of(std::string_view name) const;

  int64_t size(std::string_view name);
  double number(std::string_view name);
  bool flag(std::string_view name);  // null is false
  std::optional<int64_t> size_or_null(std::string_view name);
  std::optional<double> number_or_null(std::string_view name);

  void problem(std::string text) { problems_.push_back(std::move(text)); }
  // Adds the problems of the object that is the value of `name`.
  void add_problems_of(const ConfigReader& inner, std::string_view name);
  // BadInput with all problems, if there are any.
  void finish(const std::string& where) const;

  // The fields of Use::Read that have not been read.
  std::vector<std::string_view> unread() const;

 private:
  const ConfigField& find(std::string_view name) const;
  void check_fixed(const ConfigField& field);

  const nlohmann::json& config_;
  const ConfigFields& fields_;
  mutable std::vector<bool> asked_;  // whether each field was read
  std::vector<std::string> problems_;
};

}  // namespace trifold
