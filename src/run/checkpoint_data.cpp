#include "run/checkpoint_data.h"

#include <nlohmann/json.hpp>

#include "core/error.h"

namespace trifold {

namespace {

constexpr const char* kFingerprint = "training_data";

}  // namespace

void note_data(CheckpointMeta& meta, const DataFingerprint& data) {
  if (!data.parts.empty()) meta.state[kFingerprint] = to_json(data);
}

std::string data_difference(const CheckpointMeta& meta, const DataFingerprint& data) {
  if (!meta.state.is_object() || !meta.state.contains(kFingerprint) || data.parts.empty()) return {};
  return difference(fingerprint_from_json(meta.state.at(kFingerprint)), data);
}

void check_training_data(const CheckpointMeta& meta, const std::string& name, const DataFingerprint& data,
                         bool may_differ) {
  const std::string changed = data_difference(meta, data);
  if (changed.empty() || may_differ) return;
  bad_input(
      "the training data differ from those that {} was trained on: {}; give the same data, or "
      "--allow-changed-data to continue with these after the {} samples that were consumed",
      name, changed, meta.consumed_samples);
}

std::string data_bookmark(const CheckpointMeta& meta) {
  const auto found = meta.state.find("data");
  if (found == meta.state.end()) return {};
  if (!found->is_string()) bad_input("the checkpoint's place in the data cannot be read: it is not a string");
  return found->get<std::string>();
}

void open_at_bookmark(const CheckpointMeta& meta, const DataSource& source, bool may_differ) {
  const std::string bookmark = data_bookmark(meta);
  if (bookmark.empty()) {
    if (!may_differ && meta.consumed_samples > 0 && !source.bookmark(0).empty())
      bad_input(
          "the checkpoint's position does not exist in these training data, because it was trained on "
          "others: give the same, or start a new run from its weights with --finetune");
    return;
  }
  try {
    source.open_at(bookmark);
  } catch (const Error& error) {
    if (!may_differ || error.kind() != ErrorKind::BadInput) throw;
  }
}

}  // namespace trifold
