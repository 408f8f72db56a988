#include "text/data_fingerprint.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/read_json.h"
#include "files/crc32.h"
#include "files/files_below.h"
#include "files/raw_file.h"
#include "text/blend.h"
#include "text/blend/data_schedule.h"
#include "text/indexed_dataset.h"
#include "text/stream_files.h"

namespace trifold {

namespace {

namespace fs = std::filesystem;

void add_path(const std::string& path, std::vector<std::string>& files) {
  if (is_indexed_prefix(path)) {
    files.push_back(path + ".idx");
    files.push_back(path + ".bin");
    return;
  }
  std::error_code error;
  if (!fs::is_directory(path, error)) {
    files.push_back(path);
    return;
  }
  for (const fs::path& file : files_below(path, [](const fs::path&) {})) files.push_back(file.string());
}

// Adds the sampled content of a file: all of it, or `blocks` blocks.
void add_content(const RawFile& file, int64_t size, int64_t blocks, DataPart& part) {
  std::vector<std::byte> block(static_cast<size_t>(DataFingerprint::kBlock));
  const bool whole = size <= blocks * DataFingerprint::kBlock;
  if (whole) blocks = (size + DataFingerprint::kBlock - 1) / DataFingerprint::kBlock;
  for (int64_t k = 0; k < blocks; ++k) {
    // The spacing is computed in floating point, because sizes times counts might overflow; it is the same on every
    // host.
    const int64_t at = whole
                           ? k * DataFingerprint::kBlock
                           : static_cast<int64_t>(static_cast<double>(size - DataFingerprint::kBlock) *
                                                  (static_cast<double>(k) / static_cast<double>(blocks - 1)));
    const auto bytes = static_cast<size_t>(std::min(DataFingerprint::kBlock, size - at));
    file.read(std::span(block).first(bytes), at);
    part.crc = crc32_of(part.crc, block.data(), bytes);
  }
}

void add_file(const std::string& path, bool sampled, int64_t blocks, bool grouped, DataPart& part) {
  const RawFile file(path, RawFile::Mode::Read);
  const int64_t size = file.size();
  part.bytes += size;
  if (grouped) part.crc = crc32_of(part.crc, &size, sizeof size);
  if (sampled) add_content(file, size, blocks, part);
}

std::string crc_text(uint32_t crc) { return fmt::format("{:08x}", crc); }

std::string describe(const DataPart& part) {
  if (part.files == 0) return part.name;
  if (part.files == 1) return part.name;
  return fmt::format("the {} files from {} on", part.files, part.name);
}

int64_t files_in(const DataFingerprint& data) {
  int64_t files = 0;
  for (const DataPart& part : data.parts) files += part.files;
  return files;
}

}  // namespace

DataFingerprint fingerprint_of_paths(std::span<const std::string> paths) {
  std::vector<std::string> files;
  for (const std::string& path : paths) add_path(path, files);
  std::erase_if(files, [](const std::string& path) {
    std::error_code error;
    return fs::file_size(path, error) == 0 && !error;
  });
  const auto count = static_cast<int64_t>(files.size());
  const auto groups_of = [&](int64_t most) { return std::max<int64_t>(1, (count + most - 1) / most); };
  const int64_t in_part = groups_of(DataFingerprint::kMostParts);
  const int64_t sampled = groups_of(DataFingerprint::kMostSampled);
  const int64_t blocks = std::clamp<int64_t>(
      DataFingerprint::kMostBlocks / std::max<int64_t>(1, (count + sampled - 1) / sampled), 2,
      DataFingerprint::kMostBlocksOfFile);
  DataFingerprint data;
  for (int64_t i = 0; i < count; ++i) {
    const std::string& path = files[static_cast<size_t>(i)];
    if (i % in_part == 0) data.parts.push_back({path, 0, 0, 0});
    ++data.parts.back().files;
    add_file(path, i % sampled == 0, blocks, in_part > 1, data.parts.back());
  }
  return data;
}

namespace {

// The file, or the prefix of the token files, of a word of --arrays, [NAME=]PATH[:INSIDE].
std::string file_of_array(const std::string& word) {
  const size_t name_end = word.find('=');
  std::string path = name_end == std::string::npos ? word : word.substr(name_end + 1);
  const auto is_data = [](const std::string& at) {
    std::error_code error;
    return fs::exists(at, error) || is_indexed_prefix(at);
  };
  for (size_t colon = path.rfind(':'); colon != std::string::npos && !is_data(path);
       colon = path.rfind(':', colon - 1)) {
    if (is_data(path.substr(0, colon))) return path.substr(0, colon);
    if (colon == 0) break;
  }
  return path;
}

}  // namespace

namespace {

// The order of the samples depends on the weights.
DataPart part_of_schedule(const DataConfig& config) {
  const std::vector<std::string>& words =
      config.train_data_path.empty() ? config.data_path : config.train_data_path;
  const std::string weights = DataSchedule(*config.data_schedule, parse_data_paths(words).paths).text();
  const uint32_t crc = crc32_of(0, weights.data(), weights.size());
  return {fmt::format("weights {} of --data-schedule", crc_text(crc)), 0, 0, crc};
}

}  // namespace

DataFingerprint fingerprint_of(const DataConfig& config) {
  if (!config.arrays.empty()) {
    std::vector<std::string> files;
    for (const std::string& word : config.arrays) files.push_back(file_of_array(word));
    return fingerprint_of_paths(files);
  }
  if (config.mock_data) return {{{"random tokens (--mock-data)", 0, 0, 0}}};
  std::vector<std::string> paths = text_paths(config);
  const bool text = std::any_of(paths.begin(), paths.end(),
                                [](const std::string& path) { return !is_indexed_prefix(path); });
  if (text && config.tokenizer_model) paths.push_back(*config.tokenizer_model);
  if (text && config.tokenizer_merges) paths.push_back(*config.tokenizer_merges);
  DataFingerprint data = fingerprint_of_paths(paths);
  if (config.data_schedule) data.parts.push_back(part_of_schedule(config));
  return data;
}

DataFingerprint fingerprint_of(const ClickDataConfig& config, uint64_t seed) {
  if (config.data_format != "synthetic" &&
      !(config.data_format == "auto" && config.train_data == "synthetic"))
    return fingerprint_of_paths(std::span(&config.train_data, 1));
  const std::string text = fmt::format(
      "synthetic clicks: {} samples, {} dense features, tables of {} rows, up to {} ids, "
      "exponent {}, missing {}, constant {}, seed {}",
      config.synthetic_samples, config.dense_features.value_or(13),
      config.table_rows ? config.table_rows->text() : "1000",
      config.table_max_ids ? config.table_max_ids->text() : "1", config.synthetic_zipf,
      config.synthetic_missing, config.synthetic_constant, seed);
  return {{{text, 0, 0, crc32_of(0, text.data(), text.size())}}};
}

std::string difference(const DataFingerprint& before, const DataFingerprint& now) {
  const size_t common = std::min(before.parts.size(), now.parts.size());
  for (size_t i = 0; i < common; ++i) {
    const DataPart& was = before.parts[i];
    const DataPart& is = now.parts[i];
    if (was.files != is.files) break;
    if (was.files == 0 && was.crc != is.crc) return fmt::format("{} then, {} now", was.name, is.name);
    if (was.bytes != is.bytes)
      return fmt::format("{} had {} bytes and now has {}{}", describe(was), was.bytes, is.bytes,
                         is.name == was.name ? "" : fmt::format(" ({})", describe(is)));
    if (was.crc != is.crc)
      return fmt::format("the content of {} has changed (CRC-32 of the sampled blocks {}, now {}){}",
                         describe(was), crc_text(was.crc), crc_text(is.crc),
                         is.name == was.name ? "" : fmt::format("; now it is {}", describe(is)));
  }
  if (files_in(before) != files_in(now) || before.parts.size() != now.parts.size()) {
    const auto first = [](const DataFingerprint& data) {
      return data.parts.empty() ? std::string("no file")
                                : fmt::format("{} file{}, the first {}", files_in(data),
                                              files_in(data) == 1 ? "" : "s", data.parts.front().name);
    };
    return fmt::format("{} then; {} now", first(before), first(now));
  }
  return {};
}

nlohmann::json to_json(const DataFingerprint& data) {
  nlohmann::json value = nlohmann::json::array();
  for (const DataPart& part : data.parts)
    value.push_back(
        {{"name", part.name}, {"files", part.files}, {"bytes", part.bytes}, {"crc32", crc_text(part.crc)}});
  return value;
}

DataFingerprint fingerprint_from_json(const nlohmann::json& value) {
  DataFingerprint data;
  JsonView(value, "its record of the training data").each([&](const JsonView& entry) {
    DataPart part{entry.at("name").text(), entry.at("files").integer(0), entry.at("bytes").integer(0), 0};
    const std::string text = entry.at("crc32").text();
    part.crc = static_cast<uint32_t>(std::strtoul(text.c_str(), nullptr, 16));
    if (crc_text(part.crc) != text) entry.at("crc32").refuse("a CRC-32 of eight hexadecimal digits");
    data.parts.push_back(std::move(part));
  });
  return data;
}

}  // namespace trifold
