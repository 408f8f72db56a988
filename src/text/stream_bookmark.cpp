#include "text/stream_bookmark.h"

#include <array>
#include <limits>

#include "core/error.h"
#include "core/read_json.h"

namespace trifold {

namespace {

constexpr const char* kUnreadable = "the checkpoint's place in the streamed text cannot be read";

// Everything that identifies the stream.
nlohmann::json identity(const StreamOptions& options) {
  return {{"tokenizer", options.tokenizer->fingerprint()},
          {"split", options.fractions.text()},
          {"json_key", options.json_key},
          {"seed", options.seed},
          {"seq_length", options.seq_length}};
}

struct Field {
  const char* name;
  const char* option;
};
constexpr std::array<Field, 5> kFields{{{"tokenizer", "--tokenizer-model"},
                                        {"split", "--split"},
                                        {"json_key", "--json-key"},
                                        {"seed", "--seed"},
                                        {"seq_length", "--seq-length"}}};

void check_stream(const JsonView& json, const StreamOptions& options) {
  const std::string& path = options.files->files().front().path;
  static const char* const kAdvice = "or start a new run from the weights with --finetune";
  if (json.at("files").text() != options.files->fingerprint())
    bad_input(
        "{}: the files are not those that the checkpoint was trained on (their names or sizes changed), "
        "so the run cannot continue in them; give the same files, {}",
        path, kAdvice);
  const nlohmann::json current = nlohmann::json::parse(json_text(identity(options)));
  for (const Field& field : kFields)
    if (json.at(field.name).value() != current.at(field.name))
      bad_input(
          "{}: the checkpoint's place in the streamed text is that of another {} ({}, now {}); "
          "give the same, {}",
          path, field.option, printable_json(json.at(field.name).value()),
          printable_json(current.at(field.name)), kAdvice);
}

BlockStart read_start(const JsonView& json, const StreamOptions& options) {
  BlockStart start;
  start.position = {json.at("epoch").integer(), json.at("part").integer(), json.at("offset").integer()};
  start.block = json.at("block").integer();
  start.first_sample = json.at("first_sample").integer();
  for (const int64_t id : json.at("carry").integers(0, std::numeric_limits<int32_t>::max()))
    start.carry.push_back(static_cast<int32_t>(id));
  const StreamPosition& position = start.position;
  if (position.epoch < 0 || position.part < 0 || position.part > options.files->parts() ||
      position.offset < 0 || start.block < 0 || start.first_sample < 0 ||
      std::ssize(start.carry) > options.seq_length)
    bad_input("{}: it says part {} of epoch {}, block {}, sample {}", kUnreadable, position.part,
              position.epoch, start.block, start.first_sample);
  check_ids(start.carry, options.tokenizer->vocab_size());
  return start;
}

}  // namespace

std::string write_bookmark(const BlockStart& start, const StreamOptions& options) {
  nlohmann::json json = identity(options);
  json.update({{"files", options.files->fingerprint()},
               {"epoch", start.position.epoch},
               {"part", start.position.part},
               {"offset", start.position.offset},
               {"block", start.block},
               {"first_sample", start.first_sample},
               {"carry", start.carry}});
  return json_text(json);
}

BlockStart read_bookmark(const std::string& bookmark, const StreamOptions& options) {
  const nlohmann::json json = parse_json(bookmark, kUnreadable);
  if (json.is_array())
    bad_input(
        "{}: the checkpoint was trained on a blend of {} paths; give the same --data-path, "
        "or start a new run from its weights with --finetune",
        options.files->files().front().path, json.size());
  const JsonView view(json, kUnreadable);
  check_stream(view, options);
  return read_start(view, options);
}

}  // namespace trifold
