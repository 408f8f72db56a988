#include "text/document_tokens.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/printable.h"
#include "core/read_json.h"
#include "tokenize/text_lines.h"
#include "tokenize/unicode/unicode.h"

namespace trifold {

std::string place_in_file(const StreamFile& file, int64_t offset) {
  const auto reader = open_bytes(file.path, file.packing);
  std::vector<char> block(size_t{1} << 18);
  int64_t line = 1;
  while (offset > 0) {
    const auto count = static_cast<size_t>(std::min<int64_t>(offset, std::ssize(block)));
    const size_t got = reader->read(std::span(block).first(count));
    if (got == 0) break;
    line += std::count(block.begin(), block.begin() + static_cast<int64_t>(got), '\n');
    offset -= static_cast<int64_t>(got);
  }
  return fmt::format("{}:{}", file.path, line);
}

DocumentTokens::DocumentTokens(const Tokenizer& tokenizer, std::string json_key, BadRecords* bad)
    : tokenizer_(tokenizer), json_key_(std::move(json_key)), bad_(bad), encoder_(tokenizer) {}

std::string DocumentTokens::place_of(const RawDocument& document) const {
  if (bad_ == nullptr || bad_->wants_line()) return place_in_file(*document.file, document.offset);
  return fmt::format("{}, byte {}", document.file->path, document.offset);
}

void DocumentTokens::add(std::string_view text, const RawDocument& document, std::vector<int32_t>& ids) {
  const std::string_view content = text.substr(document.begin, document.end - document.begin);
  const size_t before = ids.size();
  if (document.file->kind == TextKind::JsonLines) {
    std::string value;
    try {
      value = text_of_json(content, document);
      check_text(value, document);
    } catch (const Error& error) {
      if (bad_ == nullptr || !bad_->skips() || error.kind() != ErrorKind::BadInput) throw;
      return bad_->add(document.file->path, document.offset, error.what());
    }
    encode(value, document, ids);
  } else {
    if (!tokenizer_.takes_bytes())
      expect_utf8(content, [&](size_t at) {
        return place_in_file(*document.file, document.offset + static_cast<int64_t>(at));
      });
    check_text(content, document);
    encode(content, document, ids);
  }
  if (ids.size() > before && tokenizer_.eod()) ids.push_back(*tokenizer_.eod());
}

void DocumentTokens::check_text(std::string_view text, const RawDocument& document) const {
  try {
    tokenizer_.check_text(text);
  } catch (Error& error) {
    error.add_context(place_of(document));
    throw;
  }
}

// Adds the document's location to errors about text that a tokenizer rejects.
void DocumentTokens::encode(std::string_view text, const RawDocument& document, std::vector<int32_t>& ids) {
  try {
    if (document.file->kind == TextKind::JsonLines) {
      encoder_.add(text, ids);
    } else {
      for_each_line(text, kLongestLine, [&](std::string_view line) { encoder_.add(line, ids); });
    }
    encoder_.finish(ids);
  } catch (Error& error) {
    error.add_context(place_in_file(*document.file, document.offset));
    throw;
  }
}

std::string DocumentTokens::text_of_json(std::string_view line, const RawDocument& document) const {
  const auto place = [&] { return place_of(document); };
  nlohmann::json object;
  try {
    object = parse_json_record(line, {});
  } catch (const Error& error) {
    bad_input("{}: {}; each line must be one object with its text in the field \"{}\"", place(), error.what(),
              json_key_);
  }
  if (!object.is_object())
    bad_input("{} is not a JSON object; each line must be one with its text in the field \"{}\"", place(),
              json_key_);
  const auto value = object.find(json_key_);
  if (value == object.end()) {
    std::string keys;
    for (const auto& item : object.items()) keys += (keys.empty() ? "" : ", ") + item.key();
    keys = printable(keys);
    bad_input("{}: the object has no field \"{}\"; it has {}: name one with --json-key", place(), json_key_,
              keys.empty() ? "none" : keys);
  }
  if (!value->is_string()) bad_input("{}: the field \"{}\" is not a string", place(), json_key_);
  return std::move(value->get_ref<std::string&>());
}

}  // namespace trifold
