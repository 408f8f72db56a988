// Converts feature_spec.yaml of NVIDIA's DLRM to column files and a schema.
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "clicks/click_columns.h"
#include "config/fields/number.h"
#include "core/error.h"
#include "core/input_file.h"
#include "files/yaml.h"

namespace trifold {

namespace {

using nlohmann::json;

constexpr int64_t kMostBytes = int64_t{16} << 20;

class Spec {
 public:
  Spec(const std::string& folder, const std::string& part)
      : folder_(folder), part_(part), path_(folder + "/feature_spec.yaml") {
    spec_ = parse_yaml(read_input_file(path_, kMostBytes), path_);
  }

  SplitBinary read() {
    read_sources();
    const std::vector<std::string> labels = channel("label");
    if (labels.size() != 1) bad_input("{}: the channel label has {} features, not 1", path_, labels.size());
    SplitBinary result;
    result.files.labels = file_of(labels[0], 1);
    if (const std::string type = text(feature(labels[0]), "dtype"); type != "bool")
      bad_input("{}: the label {} is of type {}, not bool", path_, labels[0], type);
    read_dense(result);
    for (const std::string& name : channel("categorical")) {
      const json& entry = feature(name);
      const int64_t rows = number(entry, "cardinality", name);
      result.schema.tables.push_back({name, rows, 1});
      result.files.ids.push_back({file_of(name, 1), integer_bytes(text(entry, "dtype"), name)});
    }
    result.schema.dense_transform = "log3";  // NVIDIA's tools have already applied ln(x + 3)
    try {
      check_schema(result.schema);
    } catch (Error& error) {
      error.add_context(path_);
      throw;
    }
    return result;
  }

 private:
  const json& member(const json& object, const std::string& key) const {
    if (!object.is_object() || !object.contains(key)) bad_input("{} has no {}", path_, key);
    return object.at(key);
  }

  std::string text(const json& object, const std::string& key) const {
    const json& value = member(object, key);
    if (!value.is_string()) bad_input("{}: {} is not a single value", path_, key);
    return value.get<std::string>();
  }

  int64_t number(const json& object, const std::string& key, const std::string& name) const {
    try {
      return parse_int64(text(object, key));
    } catch (Error& error) {
      error.add_context(fmt::format("{}: {} of {}", path_, key, name));
      throw;
    }
  }

  std::vector<std::string> names(const json& list, const std::string& what) const {
    std::vector<std::string> result;
    if (!list.is_array()) bad_input("{}: {} is not a list", path_, what);
    for (const json& item : list) {
      if (!item.is_string()) bad_input("{}: {} holds something that is not a name", path_, what);
      result.push_back(item.get<std::string>());
    }
    return result;
  }

  std::vector<std::string> channel(const std::string& name) const {
    const json& channels = member(spec_, "channel_spec");
    return names(member(channels, name), name);
  }

  const json& feature(const std::string& name) const {
    const json& features = member(spec_, "feature_spec");
    if (!features.is_object() || !features.contains(name))
      bad_input("{}: feature_spec does not describe {}", path_, name);
    return features.at(name);
  }

  void read_sources() {
    const json& sources = member(spec_, "source_spec");
    if (!sources.is_object() || !sources.contains(part_))
      bad_input("{}: source_spec has no part '{}'", path_, part_);
    if (!sources.at(part_).is_array()) bad_input("{}: the part {} is not a list", path_, part_);
    for (const json& chunk : sources.at(part_)) {
      if (const std::string type = text(chunk, "type"); type != "split_binary")
        bad_input("{}: the part {} has a source of type {}; only split_binary is read", path_, part_, type);
      const std::vector<std::string> files = names(member(chunk, "files"), "files");
      if (files.size() != 1)
        bad_input("{}: a source of the part {} has {} files, not 1", path_, part_, files.size());
      const std::vector<std::string> features = names(member(chunk, "features"), "features");
      for (const std::string& name : features)
        if (!chunks_.try_emplace(name, Chunk{files[0], features}).second)
          bad_input("{}: the part {} has two sources of {}", path_, part_, name);
    }
  }

  // The file that holds `name` among `together` features.
  std::string file_of(const std::string& name, size_t together) const {
    const auto found = chunks_.find(name);
    if (found == chunks_.end()) bad_input("{}: the part {} has no source of {}", path_, part_, name);
    if (found->second.features.size() != together)
      bad_input("{}: the source of {} in the part {} holds {} features; {} were expected", path_, name, part_,
                found->second.features.size(), together);
    return folder_ + "/" + found->second.file;
  }

  void read_dense(SplitBinary& result) {
    const std::vector<std::string> dense = channel("numerical");
    result.schema.dense = static_cast<int>(dense.size());
    if (dense.empty()) return;
    result.files.dense = file_of(dense[0], dense.size());
    if (chunks_.at(dense[0]).features != dense)
      bad_input("{}: the part {} stores the numerical features in another order than the channel has", path_,
                part_);
    for (const std::string& name : dense) {
      const std::string type = text(feature(name), "dtype");
      if (type != "float16" && type != "float32")
        bad_input("{}: {} is of type {}, not float16 or float32", path_, name, type);
      const DType dtype = type == "float16" ? DType::F16 : DType::F32;
      if (&name != &dense[0] && dtype != result.files.dense_type)
        bad_input("{}: the numerical features are of several types", path_);
      result.files.dense_type = dtype;
    }
  }

  int integer_bytes(const std::string& type, const std::string& name) const {
    static const std::map<std::string, int> kTypes = {
        {"int8", 1}, {"uint8", 1}, {"int16", 2}, {"uint16", 2}, {"int32", 4}, {"uint32", 4}, {"int64", 8}};
    const auto found = kTypes.find(type);
    if (found == kTypes.end())
      bad_input("{}: {} is of type {}, not int8, int16, int32 or int64", path_, name, type);
    return found->second;
  }

  struct Chunk {
    std::string file;
    std::vector<std::string> features;
  };

  const std::string& folder_;
  const std::string& part_;
  std::string path_;
  json spec_;
  std::map<std::string, Chunk> chunks_;  // by feature
};

}  // namespace

SplitBinary read_feature_spec(const std::string& folder, const std::string& part) {
  return Spec(folder, part).read();
}

}  // namespace trifold
